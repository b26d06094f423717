//! Publishes the state of the pool, and reports when it is settled.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use swarm_adapters_host::clock::unix_ms;
use swarm_core::handover::{LeaseTerms, SessionId};
use swarm_core::life::Cause;
use swarm_core::verdict::Summary;
use swarm_core::{Desired, Ledger, Slot};
use swarm_view::age::age;
use swarm_view::picture::Bounds;
use swarm_view::starts::Runners;

use super::Operation;
use super::health::Health;
use super::said::Said;
use super::turns::Last;
use crate::pool::history::History;
use crate::pool::outlets::{Origin, Outlets};
use crate::pool::snapshot::Snapshot;
use crate::processes::Workers;
use crate::state_dir::{room, state};

impl Operation {
    /// Publishes the state of the pool, and reports when it becomes settled.
    pub(super) fn report(&mut self, workers: &Workers) {
        let Self { inputs, claim, stores, turns, health, said, history, outlets, .. } = self;
        let unrecorded = turns.unrecorded.take();
        let Some(Last { decision, desired: decided, observed }) = &turns.last else { return };
        // Edits after the last turn belong to the next one, whose moves they cause.
        let edits =
            if unrecorded.is_some() { std::mem::take(&mut inputs.edits) } else { Vec::new() };
        let (wanted, sessions, ledger) = (&inputs.wanted, &stores.sessions, &decision.ledger);
        let progress = sessions.progress(decision, &wanted.desired, observed);
        let is_settled = turns.is_settled(&progress, workers, wanted.workers());
        let (before, granted) = unrecorded.unwrap_or_else(|| (ledger.clone(), BTreeSet::new()));
        let acknowledged =
            |session: &SessionId, job: &str| sessions.acknowledged(ledger, session, job);
        history.acknowledge(ledger, &granted, acknowledged);
        let turn = (decision, decided, observed);
        let recorded = history.observe(unix_ms(), &before, turn, &edits, is_settled);
        for standstill in recorded.standstills {
            outlets.metrics.stood_still(standstill);
        }
        said.moved(&recorded.moves, outlets);
        outlets.reports.lives().failed_over(unix_ms(), &recorded.moves);
        let phases = health.phases(history, sessions, decision, wanted.desired.replication);
        let mut snapshot = Snapshot::of(&wanted.name, decision, workers, &progress, is_settled);
        snapshot.status.jobs.confirm(&phases);
        (snapshot.status.guarantee, snapshot.bounds) = guarantee(sessions.terms(), &wanted.desired);
        snapshot.options = state::options(claim.dir.path());
        outlets.metrics.observe_jobs(phases);
        let events = outlets.reports.lives().learned().clone();
        let count = |cause: &Cause| events.get(cause).copied().unwrap_or_default();
        let counts = Cause::ALL.iter().map(|cause| (cause.as_str(), count(cause)));
        outlets.metrics.observe_job_events(counts);
        for (job, reason) in history.reasons() {
            if snapshot.job(job.as_str()).is_some_and(|row| row.state == "releasing") {
                let (_, of_plan) = snapshot.leaving.entry(job.to_string()).or_default();
                reason.clone_into(of_plan);
            }
        }
        let Origin { file, since_unix_s, .. } = outlets.origin.clone();
        (snapshot.status.file, snapshot.status.since_unix_s) = (file, Some(since_unix_s));
        snapshot.status.undelivered = turns.problem.as_ref().map(|it| it.sentence().to_owned());
        snapshot.status.invalid_file.clone_from(&inputs.invalid_file);
        snapshot.status.removal = inputs.removed.shown().map(str::to_owned);
        snapshot.status.by_hand = inputs.by_hand.applied().map(ToString::to_string).collect();
        health.mark(&mut snapshot, ledger, &outlets.reports);
        let dir = claim.dir.path();
        look_for_room(dir, ledger, &mut snapshot, (health, history, said), outlets);
        outlets.metrics.observe_removal(inputs.removed.jobs());
        let held = stores.processes.held();
        said.held(&held, &outlets.voice);
        snapshot.status.warnings.extend(held);
        snapshot.status.warnings.extend(stores.processes.unstarted());
        let turn = Summary::of(decision, &wanted.desired, observed, &progress);
        snapshot.judge(&turn, workers);
        for sentence in said.failures.news(&snapshot.status) {
            outlets.voice.say(&sentence);
        }
        snapshot.explain(decision, &wanted.desired, observed);
        snapshot.runners = Runners::of(&wanted.runner, &wanted.runners);
        let failing = snapshot.status.jobs.failing;
        outlets.snapshots.send_replace(Arc::new(snapshot));
        if !is_settled {
            self.unsettled_since.get_or_insert_with(Instant::now);
        } else if let Some(since) = self.unsettled_since.take() {
            let examples = turn.examples_without_worker();
            said.settled(since.elapsed(), decision, examples, failing, outlets);
        }
    }
}

/// Tries a write in the state directory while a worker is silent. Names a directory that takes none, and
/// tells an outage that is over.
fn look_for_room(
    dir: &Path,
    ledger: &Ledger,
    snapshot: &mut Snapshot,
    (health, history, said): (&Health, &mut History, &mut Said),
    outlets: &Outlets,
) {
    let since_ms = health.silent_since_ms(unix_ms());
    let no_room = since_ms.and_then(|_| room::problem(dir));
    outlets.metrics.observe_room(no_room.is_none());
    said.room(no_room.as_deref(), &outlets.voice);
    let silent = snapshot.status.workers.iter();
    let silent = silent.filter(|row| health.silent.contains_key(&Slot(row.slot)));
    let still = silent.map(|row| row.jobs + row.releasing).sum();
    history.room(no_room.as_ref().and(since_ms), still, ledger);
    for outage in history.ended() {
        outlets.outage(&outage);
    }
    snapshot.status.warnings.extend(no_room);
}

/// Returns the guarantee for the jobs in words, and the longest times of a handover.
fn guarantee(terms: &LeaseTerms, desired: &Desired) -> (String, Bounds) {
    let guarantee = format!("{:?}, lease {}", desired.policy, age(terms.duration));
    let bounds = Bounds {
        stop: terms.stop_timeout,
        // Workers kill their jobs, and the guard of a worker does if the worker has ended.
        release: None,
        fence: terms.fence_wait(),
        return_grace: desired.timing.return_grace,
    };
    (guarantee, bounds)
}
