//! The acts of operators in a world, by the shipped functions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use swarm_core::handover::{
    Cells, Evidence, Lease, Moment, Place, Policy, SessionId, StepInputs, advance, check_step,
};
use swarm_core::overseer::{self, Began, Containers, Fact, Known, LeaseFacts, PodFacts, Proofs};
use swarm_core::session::Former;
use swarm_core::{Job, Position, Slot};

use crate::bounds::TICK;
use crate::invariant::{ends_by_proof, of_write};
use crate::world::jobs;
use crate::{Answer, Bounds, Fault, Goal, Invariant, Waited, World};

impl Bounds {
    /// The knowledge of an operator when it starts. About a pod with one container it knows only
    /// that.
    pub(crate) fn new_operator(&self) -> Proofs {
        let mut proofs = Proofs::default();
        if self.may(Fault::Restart) {
            let pod = PodFacts { containers: Containers::One, ..PodFacts::default() };
            let uid = self.session(0).pod_uid().to_owned();
            proofs.learn(Moment::default(), Fact::Pod(uid, pod), &self.lease_terms());
        }
        proofs
    }
}

impl World {
    /// Every fact counts before the next decision, as in production.
    pub(super) fn learn(&mut self, o: usize, fact: Fact) {
        let (now, terms) = (self.now, self.bounds.lease_terms());
        let proofs = Arc::make_mut(&mut self.operators[o]);
        proofs.learn(now, fact, &terms);
        proofs.settle(now, &terms);
    }

    pub(super) fn observe(&mut self, o: usize, n: usize, read: Option<&Lease>) -> bool {
        let session = self.bounds.session(n).clone();
        let known = self.operators[o].get(&session);
        let fact = match read {
            Some(lease) => {
                let began = Began { order: n as u64 + 1, created_s: None };
                let (lease, duration) = (lease.clone(), TICK * self.bounds.lease);
                let (former, has_renewed) = (self.former(n), false);
                let facts = LeaseFacts {
                    lease,
                    duration,
                    began,
                    former,
                    has_renewed,
                    pause: Duration::ZERO,
                };
                Fact::Lease(session, facts)
            }
            None if known.is_some() || self.holds(n) => Fact::LeaseMissing(session),
            None => return false,
        };
        let before = Arc::clone(&self.operators[o]);
        self.bounds.forget(self.bounds.session(n), Arc::make_mut(&mut self.operators[o]));
        self.learn(o, fact);
        if self.forgets(n, &before, &self.operators[o]) {
            self.broken = self.broken.or(Some(Invariant::ProofsStay));
        }
        before != self.operators[o]
    }

    /// Whether an operator knew `before` that session `n` released a job, and does not know it
    /// `now`.
    fn forgets(&self, n: usize, before: &Proofs, now: &Proofs) -> bool {
        let incarnation = self.cells().incarnation;
        let known = |proofs: &Proofs| {
            let watch = proofs.get(self.bounds.session(n))?;
            (watch.ack.incarnation == incarnation).then(|| watch.evidence(incarnation))
        };
        let Some((before, now)) = known(before).zip(known(now)) else { return false };
        jobs(&self.bounds).any(|job| now.released(&job) < before.released(&job))
    }

    /// The report of a session about its predecessor in the same pod.
    fn former(&self, n: usize) -> Former {
        let before = n.checked_sub(1).filter(|_| self.bounds.may(Fault::Restart));
        let culprit = before.and_then(|before| self.workers[before].culprit.clone());
        Former { session: None, culprit }
    }

    pub(super) fn revoke(&mut self, o: usize, n: usize, answer: Answer) -> bool {
        let (now, terms) = (self.now, self.bounds.lease_terms());
        let session = self.bounds.session(n);
        let before = Arc::clone(&self.operators[o]);
        let asked = Arc::make_mut(&mut self.operators[o]).suspect(now, session, &terms);
        let Some(version) = asked else { return false };
        let next = self.next_version();
        let revoked = self.bounds.revoked(self.leases[n].as_deref(), version, next);
        let has_changed = revoked.is_some();
        let is_known = has_changed && answer == Answer::Arrives;
        if has_changed {
            self.leases[n] = revoked.map(Arc::new);
        }
        let answer = if is_known { overseer::Answer::Written } else { overseer::Answer::Failed };
        self.learn(o, Fact::Revocation(session.clone(), version, answer));
        // A refused revocation should leave the operator unchanged.
        has_changed || before != self.operators[o]
    }

    pub(super) fn turn(&mut self, o: usize, base: usize, goal: &[Goal], waited: Waited) -> bool {
        let cells = Arc::clone(&self.history[base]);
        let place = |to: &Goal| match to {
            Goal::Session(n) => Place::Session(slot(*n), self.bounds.session(*n).clone()),
            Goal::Slot(n) => Place::Slot(slot(*n)),
            Goal::Nowhere => Place::Nowhere,
        };
        let goal = jobs(&self.bounds).zip(goal.iter().map(place)).collect();
        let span = match waited {
            Waited::Nothing => Duration::ZERO,
            Waited::Long => Duration::MAX,
        };
        let Cells { incarnation, revision, .. } = *cells;
        let known = Known { position: Position { incarnation, revision }, unix_time_us: 0 };
        let mut evidence = self.operators[o].evidence(known);
        for (session, known) in &mut evidence {
            known.gone_for = Some(span);
            self.bounds.believe(session, &self.operators[o], known);
        }
        let ages = jobs(&self.bounds).map(|job| (job, span)).collect();
        // Any job may finish.
        let all = jobs(&self.bounds).map(|job| (job, Job { run_once: true, ..Job::default() }));
        let (all, seats) = (all.collect(), self.bounds.seats());
        let (evidence, ages) = (&evidence, &ages);
        let inputs = StepInputs { goal: &goal, evidence, ages, jobs: &all, seats: &seats };
        let terms = self.bounds.handover_terms();
        let Some(save) = advance(&cells, &inputs, &terms) else { return false };
        let Some(next) = self.bounds.saved(self.cells(), &save) else { return false };
        self.broken = self.broken.or_else(|| of_write(self, &next, &inputs));
        if self.broken.is_none() && check_step(&cells, &next, &inputs, &terms).is_err() {
            self.broken = Some(Invariant::StepIsJudgedGood);
        }
        self.excuse(&next, evidence);
        self.history.push(Arc::new(next));
        true
    }

    /// Remembers the runs that go on after their ownership ended without an answer. Only these runs
    /// may overlap with a run of the next owner.
    fn excuse(&mut self, next: &Cells, evidence: &BTreeMap<SessionId, Evidence>) {
        if self.bounds.handover_terms().policy == Policy::Exclusive {
            return;
        }
        let cells = Arc::clone(&self.history[self.history.len() - 1]);
        for (job, record) in &cells.jobs {
            let Some(holder) = record.cell.holder() else { continue };
            let is_kept = next.jobs.get(job).is_some_and(|now| {
                now.cell.holder() == Some(holder) && now.cell.token() == record.cell.token()
            });
            if !is_kept && !ends_by_proof(job, &record.cell, evidence.get(holder)) {
                self.excused.insert((job.clone(), holder.clone(), record.cell.token()));
            }
        }
    }
}

fn slot(n: usize) -> Slot {
    Slot(u32::try_from(n).unwrap_or(u32::MAX))
}
