//! Publishes the state of the pool, and reports when it is settled.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use swarm_adapters_host::clock::unix_ms;
use swarm_core::handover::SessionId;
use swarm_core::session::JobOutput;
use swarm_core::verdict::Summary;
use swarm_core::{Decision, Failing, JobPhase, Slot};
use swarm_view::age::age;
use swarm_view::picture::Bounds;

use super::Operation;
use super::turns::Last;
use crate::pool::outlets::Origin;
use crate::pool::snapshot::Snapshot;
use crate::print::text::{Placed, Settled};
use crate::processes::{Phase, Workers};
use crate::settings::starts::Runners;
use crate::state_dir::state;

impl Operation {
    /// Returns the failing jobs of each worker from its events, or from its written reports if it
    /// has no channel.
    pub(super) fn failing_now(&self, workers: &Workers) -> BTreeMap<Slot, Arc<Failing>> {
        let mut failing = self.stores.sessions.failing(workers);
        for (slot, reported) in self.stores.processes.reported().iter() {
            let up = workers.get(slot).filter(|worker| worker.phase == Phase::Up);
            if up.is_none_or(|worker| worker.instance != reported.instance) {
                continue;
            }
            if reported.failing.count == 0 {
                failing.remove(slot);
            } else {
                failing.insert(*slot, Arc::clone(&reported.failing));
            }
        }
        match self.inputs.wanted.output {
            JobOutput::Shown => failing,
            // A worker of an earlier library reports output even if it is hidden.
            JobOutput::Hidden => {
                let silent = |it: Arc<Failing>| Arc::new(Arc::unwrap_or_clone(it).without_output());
                failing.into_iter().map(|(slot, reported)| (slot, silent(reported))).collect()
            }
        }
    }

    /// Publishes the state of the pool, and reports when it becomes settled.
    pub(super) fn report(&mut self, workers: &Workers) {
        let unrecorded = self.turns.unrecorded.take();
        let Some(Last { decision, desired: decided, observed }) = &self.turns.last else { return };
        let progress =
            self.stores.sessions.progress(decision, &self.inputs.wanted.desired, observed);
        let wanted = self.inputs.wanted.workers();
        let is_settled = self.turns.is_settled(&progress, workers, wanted);
        let (ledger, sessions) = (&decision.ledger, &self.stores.sessions);
        // Edits after the last turn belong to the next one, whose moves they cause.
        let edits =
            if unrecorded.is_some() { std::mem::take(&mut self.inputs.edits) } else { Vec::new() };
        let (before, granted) = unrecorded.unwrap_or_else(|| (ledger.clone(), BTreeSet::new()));
        let acknowledged =
            |session: &SessionId, job: &str| sessions.acknowledged(ledger, session, job);
        self.history.acknowledge(ledger, &granted, acknowledged);
        let turn = (decision, decided, observed);
        let recorded = self.history.observe(unix_ms(), &before, turn, &edits, is_settled);
        for standstill in recorded.standstills {
            self.outlets.metrics.stood_still(standstill);
        }
        self.outlets.moved(&recorded.moves);
        self.moves.add(&recorded.moves);
        let phases = self.phases(decision);
        let mut snapshot =
            Snapshot::of(&self.inputs.wanted.name, decision, workers, &progress, is_settled);
        snapshot.status.jobs.confirm(&phases);
        (snapshot.status.guarantee, snapshot.bounds) = self.guarantee();
        snapshot.options = state::options(self.claim.dir.path());
        self.outlets.metrics.observe_jobs(phases);
        for (job, reason) in self.history.reasons() {
            if snapshot.job(job.as_str()).is_some_and(|row| row.state == "releasing") {
                let (_, of_plan) = snapshot.leaving.entry(job.to_string()).or_default();
                reason.clone_into(of_plan);
            }
        }
        let Origin { file, since_unix_s } = self.outlets.origin.clone();
        (snapshot.status.file, snapshot.status.since_unix_s) = (file, Some(since_unix_s));
        snapshot.status.undelivered =
            self.turns.problem.as_ref().map(|it| it.sentence().to_owned());
        snapshot.status.invalid_file.clone_from(&self.inputs.invalid_file);
        snapshot.status.by_hand = self.inputs.by_hand.applied().map(ToString::to_string).collect();
        snapshot.mark_silent(&self.silent);
        snapshot.mark_stopping(&mut self.stopping);
        snapshot.mark_failing(&self.failing, &self.outlets.reports);
        snapshot.mark_versions(&self.versions);
        let turn = Summary::of(decision, &self.inputs.wanted.desired, observed, &progress);
        snapshot.judge(&turn, workers);
        for sentence in self.failures.news(&snapshot.status) {
            self.outlets.voice.say(&sentence);
        }
        snapshot.explain(decision, &self.inputs.wanted.desired, observed);
        snapshot.runners = Runners::of(&self.inputs.wanted.runner, &self.inputs.wanted.runners);
        let failing = snapshot.status.jobs.failing;
        self.outlets.snapshots.send_replace(Arc::new(snapshot));
        if !is_settled {
            self.unsettled_since.get_or_insert_with(Instant::now);
            return;
        }
        let Some(since) = self.unsettled_since.take() else { return };
        let now = Placed::of(&decision.ledger);
        let settled = Settled {
            took: since.elapsed(),
            before: &self.settled,
            view: &decision.ledger.view(),
            now: &now,
            moves: &std::mem::take(&mut self.moves),
            unassigned: &decision.plan.unassigned,
            examples: turn.examples_without_worker(),
            failing,
        };
        self.outlets.voice.settled(&settled);
        self.settled = now;
    }

    /// Returns the guarantee for the jobs in words, and the longest times of a handover.
    fn guarantee(&self) -> (String, Bounds) {
        let (terms, desired) = (self.stores.sessions.terms(), &self.inputs.wanted.desired);
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

    /// Returns the numbers of jobs by phase. A report names only the worst failing jobs.
    fn phases(&self, decision: &Decision) -> Vec<(&'static str, usize)> {
        let reports = || self.failing.values().map(|it| &**it);
        let failing = reports().flat_map(|it| &it.worst).map(|it| it.job.clone()).collect();
        let unnamed = Failing::unnamed(reports(), self.inputs.wanted.desired.replication);
        let counts = self.history.phases(decision, &failing, unnamed);
        let count = |phase: &JobPhase| counts.get(phase).copied().unwrap_or_default();
        JobPhase::ALL.iter().map(|phase| (phase.as_str(), count(phase))).collect()
    }
}
