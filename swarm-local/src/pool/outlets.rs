//! The outputs of the operation: plain lines or a screen, snapshots, metrics.
#![cfg_attr(
    not(feature = "terminal"),
    allow(dead_code, reason = "without a screen nothing reads what it would show")
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use swarm_adapters_host::metrics::PoolMetrics;
use swarm_core::ports::StoreError;
use swarm_core::{Turn, Unassigned};
use swarm_spec::manifest::Explained;
use tokio::sync::{mpsc, watch};

use super::events::Events;
use super::snapshot::Snapshot;
use crate::print::output::complain_in_lines;
use crate::print::terminal;
use crate::print::text::{self, Settled};
use crate::processes::reports::Reports;

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

/// A message, with its time.
pub(crate) type Timed = (Message, Instant);

/// A message to the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "text", rename_all = "camelCase")]
pub(crate) enum Message {
    /// An expected event.
    Info(String),
    /// A problem.
    Problem(String),
    /// The pool became settled.
    Settled(String),
}

/// Paths of the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Paths {
    /// The file to edit, as the user wrote it, if edits are followed.
    pub(crate) file: Option<String>,
    /// The state directory, or options that name a pool without one, such as ` -n media`.
    pub(crate) dir: String,
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
            text::say(&settled.report(terminal::columns()));
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
