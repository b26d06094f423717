//! The outputs of the operation: plain lines or a screen, snapshots, metrics.
#![cfg_attr(
    not(feature = "terminal"),
    allow(dead_code, reason = "without a screen nothing reads what it would show")
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use swarm_adapters_host::metrics::PoolMetrics;
use swarm_core::history::{JobMove, Outage, RETURNED};
use swarm_core::ports::StoreError;
use swarm_core::{Turn, Unassigned};
use swarm_spec::manifest::Explained;
use swarm_terminal::columns;
use swarm_terminal::output::complain_in_lines;
use swarm_terminal::scene::Timed;
use swarm_view::message::Message;
use swarm_view::words::counted;
use tokio::sync::{mpsc, watch};

use super::events::Events;
use super::snapshot::Snapshot;
use crate::print::text::{self, Settled};
use crate::processes::reports::Reports;

/// Maximum number of moves of a turn that have an event each; further moves are only counted.
const MOVES_MAX: usize = 100;

/// The outputs of the operation.
pub(crate) struct Outlets {
    pub(crate) voice: Voice,
    pub(crate) snapshots: watch::Sender<Arc<Snapshot>>,
    pub(crate) metrics: PoolMetrics,
    /// The reports of the workers.
    pub(crate) reports: Reports,
    /// The file, and the start of the operator.
    pub(crate) origin: Origin,
}

/// The file of a pool, and the start of its operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The followed file, if edits are followed.
    pub(crate) file: Option<String>,
    /// Time in seconds of Unix time.
    pub(crate) since_unix_s: u64,
    /// The last sign of a previous operator that was not asked to end, in milliseconds of Unix time.
    pub(crate) away_since_ms: Option<u64>,
}

/// Messages to the user. All of them also go to the operator's log and to other terminals.
#[derive(Clone, Debug)]
pub(crate) struct Voice {
    pub(crate) place: Place,
    pub(crate) events: Events,
}

/// The place where the user reads messages.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// Lines on standard output, problems on standard error.
    Lines,
    /// The log of a screen.
    Screen(mpsc::Sender<Timed>),
    /// The operator's log only.
    Log,
}

impl Outlets {
    /// Reports and publishes the end of the pool.
    pub(super) fn ended(&self, sentence: &str) {
        self.voice.say(sentence);
        self.snapshots.send_modify(|snapshot| {
            let mut ended = Snapshot::clone(snapshot);
            ended.status.ending.get_or_insert_default().last = Some(sentence.to_owned());
            *snapshot = Arc::new(ended);
        });
    }

    /// Counts and tells the moves of a turn. A job that came back to its worker has not moved to
    /// another one, so the metric does not count it.
    pub(super) fn moved(&self, moves: &[JobMove]) {
        self.metrics.moved(moves.iter().filter(|it| it.reason != RETURNED).count());
        self.voice.moved(moves);
    }

    /// Tells and counts an outage.
    pub(super) fn outage(&self, outage: &Outage) {
        self.voice.complain(&format!("an outage is over: {outage}"));
        self.metrics.outage(outage.cause.as_str(), outage.seconds());
    }

    /// Counts a turn.
    pub(super) fn turned(&self, took: Duration, turned: &Result<Turn, StoreError>) {
        let result = match turned {
            Ok(turn) => {
                let plan = &turn.decision.plan;
                let moves = plan.moves.iter().filter(|_| turn.changed);
                let count = |why| plan.unassigned.values().filter(|it| **it == why).count();
                let unassigned = Unassigned::ALL.iter().map(|why| (why.as_str(), count(*why)));
                self.metrics.planned(moves.map(|it| it.reason.as_str()), unassigned);
                if turn.changed {
                    self.metrics.wrote();
                }
                "ok"
            }
            Err(StoreError::Conflict { .. }) => "conflict",
            Err(StoreError::Unavailable { .. }) => "unavailable",
            Err(StoreError::Refused { .. }) => "refused",
        };
        self.metrics.turned(result, took);
    }
}

impl Voice {
    /// Makes a voice that prints lines.
    pub(super) fn lines() -> Self {
        Self { place: Place::Lines, events: Events::default() }
    }

    pub(super) fn say(&self, sentence: &str) {
        tracing::info!("{sentence}");
        if matches!(self.place, Place::Lines) {
            text::say(sentence);
        }
        self.show(Message::Info(sentence.to_owned()));
    }

    pub(super) fn complain(&self, sentence: &str) {
        tracing::warn!("{sentence}");
        if matches!(self.place, Place::Lines) {
            complain_in_lines(sentence);
        }
        self.show(Message::Problem(sentence.to_owned()));
    }

    /// Tells moves where events are listed. Lines have a table of them once the pool is settled.
    fn moved(&self, moves: &[JobMove]) {
        for sentence in moves.iter().take(MOVES_MAX).filter_map(JobMove::sentence) {
            self.show(Message::Moved(sentence));
        }
        if let Some(rest @ 1..) = moves.len().checked_sub(MOVES_MAX) {
            self.show(Message::Moved(format!("… and {} moved", counted(rest, "more job"))));
        }
    }

    /// Reports a refused edit, with the invalid line.
    pub(super) fn refuse(&self, explained: &Explained) {
        let Explained { sentence, excerpt } = explained;
        self.complain(&format!("{sentence}; the last valid state stays"));
        if let (Place::Lines, Some(excerpt)) = (&self.place, excerpt) {
            text::remark(excerpt);
        }
    }

    pub(super) fn settled(&self, settled: &Settled<'_>) {
        let headline = settled.headline();
        tracing::info!("{headline}");
        if matches!(self.place, Place::Lines) {
            text::say(&settled.report(columns()));
        }
        self.show(if 0 < settled.failing {
            Message::Problem(headline)
        } else {
            Message::Settled(headline)
        });
    }

    fn show(&self, message: Message) {
        if let Place::Screen(screen) = &self.place {
            // A blocked terminal must not delay the workers. Messages that do not fit are still in
            // the log.
            let _ = screen.try_send((message.clone(), Instant::now()));
        }
        self.events.push(message);
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;
    use swarm_core::handover::SessionId;
    use swarm_core::history::{Recorder, Turned};
    use swarm_core::{
        Desired, Ledger, Observed, Presence, Slot, Unacknowledged, WorkerSeen, decide, jobs,
    };

    use super::*;

    /// Returns the moves of a pool whose only worker is replaced by another one in this slot.
    fn moves(jobs_of_pool: usize, next: u32) -> Vec<JobMove> {
        let names: Vec<_> = (0..jobs_of_pool).map(|n| format!("job-{n:03}")).collect();
        let desired = Desired::new(jobs(names.iter().map(String::as_str)).unwrap());
        let (mut recorder, mut ledger) = (Recorder::default(), Ledger::new(1));
        let mut moves = Vec::new();
        for (uid, slot) in [(0, 0), (1, next), (1, next)] {
            let session = Some(SessionId::plain(&format!("uid-{uid}")));
            let seen = WorkerSeen::new(format!("w-{slot}"), Presence::Ready, session);
            let observed = Observed::new([(Slot(slot), seen)], 1, []);
            let decision = decide(&ledger, &desired, &observed);
            let turn = Turned {
                before: &ledger,
                decision: &decision,
                desired: &desired,
                edits: &[],
                observed: &observed,
                unacknowledged: &Unacknowledged::default(),
                is_settled: false,
            };
            moves.extend(recorder.observe(1, &turn).moves);
            ledger = decision.ledger;
        }
        moves
    }

    /// Returns the events about moves, and the line of the metric.
    fn told(moves: &[JobMove]) -> (Vec<String>, String) {
        let outlets = Outlets {
            voice: Voice { place: Place::Log, events: Events::default() },
            snapshots: watch::Sender::default(),
            metrics: PoolMetrics::default(),
            reports: Reports::default(),
            origin: Origin::default(),
        };
        outlets.moved(moves);
        let events = outlets.voice.events.after(0).events.into_iter();
        let texts = events.map(|event| match event.message {
            Message::Moved(text) => text,
            other => panic!("{other:?}"),
        });
        let (mut registry, mut metrics) = (Registry::default(), String::new());
        outlets.metrics.register(&mut registry);
        encode(&mut metrics, &registry).unwrap();
        let line = metrics.lines().find(|line| line.contains("job_moves_total ")).unwrap();
        (texts.collect(), line.to_owned())
    }

    #[test]
    fn moves_are_events_and_many_are_counted() {
        let (events, metric) = told(&moves(1, 1));
        assert_eq!(events, ["job-000: w-0 → w-1 (worker-gone)"]);
        assert_eq!(metric, "swarm_job_moves_total 1");
        let (events, metric) = told(&moves(500, 1));
        assert_eq!(events.len(), MOVES_MAX + 1);
        assert_eq!(events[MOVES_MAX], "… and 400 more jobs moved");
        assert_eq!(metric, "swarm_job_moves_total 500");
    }

    #[test]
    fn a_job_that_came_back_is_an_event_and_no_move_to_another_worker() {
        let (events, metric) = told(&moves(1, 0));
        assert_eq!(events, ["job-000: w-0 → w-0 (returned)"]);
        assert_eq!(metric, "swarm_job_moves_total 0");
    }
}
