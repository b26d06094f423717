//! Fair runs: every store answers, and at each tick every worker but one does its work. That one may
//! do anything. No job waits for long that another worker has room for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use swarm_core::handover::{Cell, Holder, Lease, Moment, Policy};
use swarm_core::{JobName, Ledger, Observed, Slot, Token};

use super::{Act, Fleet, Honesty, Numbers, Pod};
use crate::ProcessState;

/// The renewals that are added to a wait: one to notice its end, one to release.
const RENEWALS: u32 = 2;

/// A mistake of operators that lets one worker hold up the others. Such an operator receives false
/// evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// It counts no time while a job is released, so the room of that job is free in a moment, for
    /// ever.
    Releases,
    /// It takes each version of a Lease for a renewal, except for the wait after its start.
    Versions,
    /// After its start it waits for a session by the claim of that session alone.
    Claims,
}

/// The jobs that wait under their latest tokens, each with the moment since when. A grant ends a
/// wait. If it is to the one worker, which does not run the job, another wait begins.
type Waits = BTreeMap<(JobName, Option<Token>), Moment>;

impl Fleet {
    /// The longest wait for a grant of a job that another worker has room for, while one worker may do
    /// anything. It counts from the last edit or start of an operator. The waits for an end, a release
    /// and a return run side by side.
    #[must_use]
    pub fn longest_wait(&self) -> Duration {
        let (terms, timing) = (self.lease_terms(), &self.desired.timing);
        let longest = timing.release_timeout.max(timing.return_grace).max(terms.fence_wait());
        longest + RENEWALS * terms.renew
    }

    /// Carries out acts of users and operators, and of the worker in the first slot, whichever
    /// worker they name. Each tick is fair. Returns the longest wait of a job.
    ///
    /// # Errors
    ///
    /// The broken invariant, or the job that waited for longer than the
    /// [longest wait](Self::longest_wait).
    pub fn be_fair(&mut self, acts: &[Act]) -> Result<Duration, String> {
        let (mut waits, mut longest) = (Waits::new(), Duration::ZERO);
        for act in acts {
            let n = self.in_slot(self.slot(0)).unwrap_or_default();
            match *act {
                Act::Tick(_) => {
                    self.work();
                    longest = longest.max(self.judge_waits(&mut waits)?);
                }
                Act::Stick(_, stuck) => self.take(Act::Stick(n, stuck)),
                Act::Lie(_, lie) => self.take(Act::Lie(n, lie)),
                Act::Freeze(_) => self.take(Act::Freeze(n)),
                Act::Resume(_) => self.take(Act::Resume(n)),
                Act::Terminate(_) => self.take(Act::Terminate(n)),
                Act::Flip(_) => self.take(Act::Flip(n)),
                Act::Crash(_, culprit) => {
                    self.take(Act::Crash(n, culprit));
                    if self.pods[n].honesty == Honesty::Lies {
                        self.pods[n].honesty = Honesty::Lied;
                    }
                }
                Act::Start(_) if !self.pods[n].is_dead() => {}
                Act::Start(_) => self.take(Act::Start(0)),
                Act::Restart(_) => {
                    (0..2).for_each(|o| self.restart(o));
                    waits.clear();
                }
                edit => {
                    self.take(edit);
                    waits.clear();
                }
            }
            if let Some(wrong) = &self.wrong {
                return Err(format!("after {act:?}: {wrong}"));
            }
        }
        Ok(longest)
    }

    /// Lets time pass. All workers that can work do, and both operators. No kubelet reports an end,
    /// as when its node is lost.
    fn work(&mut self) {
        self.renew_lies();
        let first = self.slot(0);
        self.let_work(|slot| slot != first);
        for o in 0..2 {
            self.observe(o, 0);
            self.revoke(o, false);
            self.turn(o, 0, None);
        }
        self.judge_state();
    }

    /// Returns the longest wait at present.
    ///
    /// # Errors
    ///
    /// If a job waits for too long.
    fn judge_waits(&self, waits: &mut Waits) -> Result<Duration, String> {
        let ledger = Arc::clone(self.ledger());
        let waiting = self.desired.jobs.keys().filter(|job| self.is_delayed(&ledger, job));
        let token = |job| ledger.cells.jobs.get(job).map(|record| record.cell.token());
        let since = |wait: &_| waits.get(wait).copied().unwrap_or(self.now);
        let waiting = waiting.map(|job| (job.clone(), token(job))).map(|wait| {
            let since = since(&wait);
            (wait, since)
        });
        *waits = waiting.collect();
        let Some(((job, _), since)) = waits.iter().min_by_key(|(_, since)| **since) else {
            return Ok(Duration::ZERO);
        };
        let (wait, most) = (self.now.since(*since), self.longest_wait());
        if most < wait {
            return Err(format!("{job} waits for {wait:?}, longer than {most:?}: {ledger:?}"));
        }
        Ok(wait)
    }

    /// Whether a job waits although another worker than the one in the first slot has room for it.
    fn is_delayed(&self, ledger: &Ledger, job: &JobName) -> bool {
        if self.desired.paused || self.is_suspended(job) {
            return false;
        }
        let Some(record) = ledger.cells.jobs.get(job) else { return self.has_room(ledger, job) };
        let holder = record.cell.holder();
        let holder = holder.and_then(|id| self.pods.iter().find(|pod| pod.id() == id));
        let waits = match &record.cell {
            Cell::Granted { .. } => holder.is_none_or(|pod| !self.is_there(pod)),
            Cell::Releasing { .. } => {
                let keeps = |pod: &Pod| pod.slot == self.slot(0) && self.is_there(pod);
                self.desired.policy == Policy::AtLeastOnce || !holder.is_some_and(keeps)
            }
            Cell::Free { .. } | Cell::Hold { .. } => true,
            Cell::Quarantined { .. }
            | Cell::Done { .. }
            | Cell::Everywhere { .. }
            | Cell::ReleasingAll { .. } => false,
        };
        waits && self.has_room(ledger, job)
    }

    /// Whether a session may keep its jobs: it renews its Lease, or claimed that it may act for
    /// longer than the Swarm asks for. A claim delays the jobs of its own session alone.
    fn is_there(&self, pod: &Pod) -> bool {
        let is_open = pod.lease().is_some_and(|lease| lease.holder == Holder::Session);
        let renews = match pod.honesty {
            Honesty::Honest => pod.worker.process == ProcessState::Up,
            Honesty::Lies => pod.numbers == Numbers::Rising,
            Honesty::Lied | Honesty::Removed => false,
        };
        is_open && renews || self.lease_terms().duration < pod.longest_claim
    }

    /// Whether a worker of another slot has room for one more job.
    fn has_room(&self, ledger: &Ledger, job: &JobName) -> bool {
        let Some(wanted) = self.desired.jobs.get(job) else { return false };
        let share = |job: &JobName| {
            let share = self.desired.jobs.get(job).and_then(|job| job.share);
            share.map_or(0, |share| u32::from(share.percent()))
        };
        let fits = |slot: Slot| {
            let Some(pod) = self.in_slot(slot).map(|n| &self.pods[n]) else { return false };
            let counts = |cell: &Cell| cell.holder().is_some_and(|id| id == pod.id());
            let its = ledger.cells.jobs.iter().filter(|(name, _)| *name != job);
            let its: Vec<_> = its.filter(|(_, record)| counts(&record.cell)).collect();
            let reserved: u32 = its.iter().map(|(job, _)| share(job)).sum();
            let size = self.desired.capacity_of(slot).map_or(100, |it| u32::from(it.percent()));
            let most = self.desired.max_jobs_of(slot).map_or(usize::MAX, |most| most as usize);
            let is_apart = reserved + share(job) < size || its.is_empty();
            is_apart && reserved + share(job) <= size && its.len() < most
        };
        let others = self.slots().filter(|slot| *slot != self.slot(0));
        let mut others = others.filter(|slot| wanted.pin.is_none_or(|pin| pin == *slot));
        others.any(fits)
    }

    /// The Lease as an operator reads it. With a mistake in force, each version is a renewal.
    pub(super) fn numbered(&self, lease: Lease) -> Lease {
        let number =
            if self.delay == Some(Delay::Versions) { lease.version.0 } else { lease.number };
        Lease { number, ..lease }
    }

    /// Gives an operator false evidence, if it is to make a mistake.
    pub(super) fn hold_up(&self, observed: &mut Observed) {
        let is_open = |pod: &&Pod| pod.lease().is_some_and(|lease| lease.holder == Holder::Session);
        match self.delay {
            None => {}
            Some(Delay::Releases) => {
                let cells = &self.ledger().cells.jobs;
                let is_releasing = |job: &JobName| {
                    cells.get(job).is_some_and(|it| matches!(it.cell, Cell::Releasing { .. }))
                };
                observed.ages.retain(|job, _| !is_releasing(job));
            }
            Some(Delay::Versions) => {
                let never_rises =
                    |pod: &&Pod| pod.honesty == Honesty::Lies && pod.numbers != Numbers::Rising;
                observed.unrenewed += self.pods.iter().filter(is_open).filter(never_rises).count();
            }
            Some(Delay::Claims) => {
                let claims_more = |pod: &&Pod| self.lease_terms().duration < pod.longest_claim;
                let dead = self.pods.iter().filter(|pod| pod.is_dead());
                observed.unrenewed += dead.filter(is_open).filter(claims_more).count();
            }
        }
    }
}
