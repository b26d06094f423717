//! The end of a run: no more faults happen, and everything has to recover.

use std::collections::BTreeMap;
use std::sync::Arc;

use swarm_core::handover::{Cell, Policy, SessionId};
use swarm_core::session::SessionEvent;
use swarm_core::{Decision, JobName, Ledger, Replication, Slot, Token, decide};

use super::{Fleet, Honesty, Operator, Pod, grace};
use crate::ProcessState;

/// The number of rounds of one tick within which everything must have recovered. Four crashes of
/// one job keep the job away for two minutes, and a mass failure engages the brake for a while.
const ROUNDS_MAX: usize = 600;
/// The number of rounds before a user deletes the pods of liars.
const ROUNDS_OF_LIES: usize = 60;
/// The number of rounds before a user deletes the pods of stuck workers. The brake has then let
/// through all silent sessions.
const ROUNDS_STUCK: usize = 120;
/// The number of rounds in which nothing must be written any more. Longer than any wait.
const ROUNDS_AT_REST: usize = 40;
/// The number of rounds after which every worker that was frozen or cut off has renewed its Lease
/// or closed it. Operators then know its state.
const ROUNDS_UNSURE: usize = 20;

impl Fleet {
    /// Lets all faults stop and both operators work until the pool is as it should be and stays so.
    ///
    /// # Errors
    ///
    /// The problem that remains in the end, or that comes up on the way.
    pub fn heal(&mut self) -> Result<(), String> {
        (self.desired.paused, self.desired.replicas) = (false, None);
        let mut at_rest = 0;
        let mut writes = self.writes();
        let mut amiss = None;
        for round in 0..ROUNDS_MAX {
            if round == ROUNDS_OF_LIES {
                self.remove_liars();
            }
            if round == ROUNDS_STUCK {
                self.judge_others()?;
                self.remove_stuck();
            }
            self.renew_lies();
            self.heal_workers(round);
            (0..2).for_each(|o| self.heal_by(o));
            self.judge_state();
            if let Some(wrong) = &self.wrong {
                return Err(format!("while healing: {wrong}"));
            }
            amiss = self.amiss(round)?;
            let is_calm = self.nobody_lies()
                && self.nobody_is_stuck()
                && writes == self.writes()
                && amiss.is_none();
            at_rest = if is_calm { at_rest + 1 } else { 0 };
            writes = self.writes();
            if at_rest == ROUNDS_AT_REST {
                return Ok(());
            }
        }
        Err(amiss.unwrap_or_else(|| "the ledger is written again and again".into()))
    }

    fn nobody_lies(&self) -> bool {
        self.pods.iter().all(|pod| pod.honesty != Honesty::Lies)
    }

    fn nobody_is_stuck(&self) -> bool {
        self.pods.iter().all(|pod| pod.is_dead() || pod.stuck.is_none())
    }

    /// Deletes the pods of stuck workers, as a user would; kubelets report that they have ended.
    fn remove_stuck(&mut self) {
        for pod in self.pods.iter_mut().filter(|pod| !pod.is_dead() && pod.stuck.is_some()) {
            pod.worker.die();
            pod.honesty = Honesty::Removed;
        }
    }

    /// Judges the rest of a pool in which some workers have been stuck for long.
    ///
    /// # Errors
    ///
    /// If a job waits that could run on another worker.
    fn judge_others(&mut self) -> Result<(), String> {
        if self.nobody_is_stuck() {
            return Ok(());
        }
        let ledger = Arc::clone(self.ledger());
        let Operator { overseer, clock, .. } = &mut self.operators[0];
        overseer.note(*clock, &ledger);
        let observed = self.observed(0);
        let decision = decide(&ledger, &self.desired, &observed);
        if decision.ledger != *ledger {
            return Err(format!("stuck, and to be written: {:?}", decision.ledger));
        }
        let is_stuck = |pod: &Pod| !pod.is_dead() && pod.stuck.is_some();
        let pod = |session: &SessionId| self.pods.iter().find(|pod| pod.id() == session);
        let runs = |pod: &Pod, job: &JobName, token: Token| {
            is_stuck(pod) || pod.is_up() && pod.worker.running.get(job) == Some(&token)
        };
        let latest = |slot: Slot| self.in_slot(slot).map(|n| &self.pods[n]);
        for (job, record) in &ledger.cells.jobs {
            let is_well = match &record.cell {
                Cell::Granted { session, token } => {
                    pod(session).is_some_and(|pod| runs(pod, job, *token))
                }
                Cell::Releasing { session, .. } => pod(session).is_some_and(is_stuck),
                Cell::Free { .. } => {
                    let planned = decision.plan.assignment.holder(job).and_then(latest);
                    planned.is_none_or(is_stuck)
                }
                Cell::Everywhere { token } => {
                    self.slots().filter_map(latest).all(|pod| runs(pod, job, *token))
                }
                Cell::ReleasingAll { .. } => self.desired.policy == Policy::Exclusive,
                // The worker of its slot has no room until it releases another job.
                Cell::Hold { slot, .. } => latest(*slot).is_some_and(is_stuck),
                Cell::Quarantined { .. } | Cell::Done { .. } => true,
            };
            if !is_well {
                return Err(format!("{job} waits for a worker that is stuck: {ledger:?}"));
            }
        }
        Ok(())
    }

    fn heal_workers(&mut self, round: usize) {
        for n in 0..self.pods.len() {
            self.resume(n);
            self.pods[n].is_ready = true;
            let is_wanted = self.is_latest(n) && self.is_wanted(self.pods[n].slot);
            // A worker with a Lease longer than the Swarm asks for now receives no jobs. A rollout
            // replaces it.
            let is_outdated = self.lease_terms().duration < self.pods[n].claims;
            if (!is_wanted || is_outdated) && round == 0 {
                self.feed(n, SessionEvent::Terminate { grace: grace() });
            }
        }
        self.let_work(|_| true);
    }

    /// Starts a pod in each of the empty slots that `starts` allows. Time passes, and all workers that
    /// can work do.
    pub(super) fn let_work(&mut self, starts: impl Fn(Slot) -> bool) {
        let is_empty = |slot: &Slot| self.in_slot(*slot).is_none_or(|n| self.pods[n].is_dead());
        let empty: Vec<_> = self.slots().filter(|slot| starts(*slot) && is_empty(slot)).collect();
        for slot in empty {
            self.start_pod(slot);
        }
        self.tick(0);
        for n in 0..self.pods.len() {
            if self.pods[n].worker.requests.is_empty() && self.pods[n].worker.reply.is_none() {
                self.lose(n);
            }
            self.calm(n);
        }
    }

    fn heal_by(&mut self, o: usize) {
        self.observe(o, 0);
        self.learn_ends(o);
        self.revoke(o, false);
        self.turn(o, 0, None);
        self.sweep(o);
    }

    fn runs_once(&self, job: &JobName) -> bool {
        self.desired.jobs.get(job).is_some_and(|job| job.run_once)
    }

    pub(super) fn is_suspended(&self, job: &JobName) -> bool {
        self.desired.suspend || self.desired.jobs.get(job).is_some_and(|job| job.suspend)
    }

    /// The difference between the pool and its goal, by the running jobs and an operator's
    /// knowledge.
    ///
    /// # Errors
    ///
    /// If an operator that has read the Leases of all sessions considers the pool settled and it is
    /// not.
    fn amiss(&mut self, round: usize) -> Result<Option<String>, String> {
        let ledger = Arc::clone(self.ledger());
        let Operator { overseer, clock, .. } = &mut self.operators[0];
        overseer.note(*clock, &ledger);
        self.judge_suspicions(&ledger)?;
        self.read_views(0);
        let observed = self.observed(0);
        let decision = decide(&ledger, &self.desired, &observed);
        if decision.ledger != *ledger {
            return Ok(Some(format!("to be written: {:?}", decision.ledger)));
        }
        let overseer = &self.operators[0].overseer;
        let progress = overseer.progress(&decision, &self.desired, &observed);
        // While liars receive no jobs, there may be no worker left to run jobs.
        let is_settled = progress.is_settled() && progress.has_all_workers();
        // A liar may claim to act on its published view. Under `AtLeastOnce`, a stuck worker may
        // run on although no job waits for it any more.
        let is_known = ROUNDS_UNSURE <= round && self.nobody_lies() && self.nobody_is_stuck();
        match self.differs(&ledger, &decision) {
            Some(differs) if is_settled && is_known => {
                Err(format!("it counts as settled, but {differs}"))
            }
            None if !is_settled => Ok(Some(format!("{progress:?}"))),
            differs => Ok(differs),
        }
    }

    /// A job that does not run as the plan wants, if there is one.
    fn differs(&self, ledger: &Ledger, decision: &Decision) -> Option<String> {
        let mut expected: BTreeMap<Slot, BTreeMap<JobName, Token>> = BTreeMap::new();
        for (job, record) in &ledger.cells.jobs {
            let slots: Vec<_> = match (&record.cell, self.desired.replication) {
                (Cell::Done { .. }, _) if self.runs_once(job) => Vec::new(),
                _ if self.is_suspended(job) => Vec::new(),
                (_, Replication::All) => self.slots().collect(),
                (_, Replication::One) => decision.plan.assignment.holder(job).into_iter().collect(),
            };
            for slot in slots {
                expected.entry(slot).or_default().insert(job.clone(), record.cell.token());
            }
        }
        for (n, pod) in self.pods.iter().enumerate() {
            let runs = if pod.worker.process == ProcessState::Up {
                pod.worker.running.clone()
            } else {
                BTreeMap::new()
            };
            let should = expected.get(&pod.slot).filter(|_| self.is_latest(n));
            if runs != should.cloned().unwrap_or_default() {
                let id = pod.id();
                return Some(format!(
                    "{id} in slot {} runs {runs:?}, not {should:?}; {ledger:?}",
                    pod.slot
                ));
            }
        }
        None
    }
}
