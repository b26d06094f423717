//! The invariants of a pool of plain workers, and the end of its run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use swarm_core::handover::{Cell, Policy, SessionId};
use swarm_core::{
    Decision, JobName, Ledger, MoveReason, PLAIN_HANDOVER, Replication, Slot, decide,
};

use super::{PlainAct, PlainPool};
use crate::written::{holder, just_before, numbers, publication, sessions, stored};

/// The number of rounds of one tick within which the pool must have recovered.
const ROUNDS_MAX: usize = 200;
/// The number of rounds in which nothing must be written any more. Longer than any wait.
const ROUNDS_AT_REST: usize = 20;

impl PlainPool {
    pub(super) fn judge_write(&mut self, before: &Ledger, made: &Decision) {
        let after = &made.ledger;
        let is_lost = |job: &&JobName| !self.desired.paused && !after.cells.jobs.contains_key(*job);
        let lost = self.desired.jobs.keys().find(is_lost).map(|job| format!("{job} was lost"));
        let complaint = numbers(before, after)
            .or_else(|| publication(before, after))
            .or_else(|| sessions(after))
            .or_else(|| stored(after))
            .or(lost)
            .or_else(|| self.moved_in_a_pause(before, after))
            .or_else(|| self.left_without_need(before, after))
            .or_else(|| self.granted_permanently(before, after))
            .or_else(|| self.too_soon(before, made));
        if let Some(complaint) = complaint {
            self.is_wrong(|| complaint);
        }
    }

    /// In a pause no job goes to another slot. A job may lose a worker that has ended.
    fn moved_in_a_pause(&self, before: &Ledger, after: &Ledger) -> Option<String> {
        let (held, kept) = (before.assignment(), after.assignment());
        kept.iter()
            .filter(|_| self.desired.paused)
            .find(|(job, slot)| held.holder(job) != Some(*slot))
            .map(|(job, slot)| format!("{job} went to slot {slot} in a pause"))
    }

    /// While no worker is ready, every present worker keeps its jobs, except for removed jobs.
    fn left_without_need(&self, before: &Ledger, after: &Ledger) -> Option<String> {
        let up = || self.pods.iter().filter(|pod| pod.is_up);
        let is_free = |it: &JobName| self.desired.jobs.get(it).is_some_and(|it| it.pin.is_none());
        let counts = self.desired.replicas.is_none()
            && self.desired.max_jobs.is_none()
            && self.desired.jobs.values().all(|job| job.share.is_none())
            && self.desired.replication == Replication::One
            && up().all(|pod| !pod.is_ready && pod.slot.0 < self.wanted);
        if !counts {
            return None;
        }
        let there: BTreeSet<_> = up().map(|pod| SessionId::plain(&pod.uid)).collect();
        // A release that has begun continues.
        let is_there = |job: &&JobName| {
            let cell = &before.cells.jobs[*job].cell;
            matches!(cell, Cell::Granted { session, .. } if there.contains(session))
        };
        let mut held = before.cells.jobs.keys().filter(|job| is_free(job)).filter(is_there);
        let left = held.find(|job| holder(before, job) != holder(after, job))?;
        Some(format!("{left} left its worker, and nobody is ready to take it"))
    }

    /// Under `Exclusive`, a plain worker receives no jobs, since they could never be taken from it
    /// again.
    fn granted_permanently(&self, before: &Ledger, after: &Ledger) -> Option<String> {
        let is_new = |job: &&JobName| {
            let now = holder(after, job);
            now.is_some() && now != holder(before, job)
        };
        let new = after.cells.jobs.keys().find(is_new);
        new.filter(|_| self.desired.policy == Policy::Exclusive)
            .map(|job| format!("{job} was granted to a worker that answers nothing"))
    }

    /// Voluntary moves happen in batches within the budget. The next batch begins only when workers
    /// have had time to read the previous one.
    fn too_soon(&mut self, before: &Ledger, made: &Decision) -> Option<String> {
        let most = self.desired.rules.moves_max?;
        let has_limits = self.desired.max_jobs.is_some()
            || self.desired.jobs.values().any(|job| job.share.is_some());
        let had_begun = |job: &JobName| {
            let cell = before.cells.jobs.get(job).map(|record| &record.cell);
            matches!(cell, Some(Cell::Releasing { .. }))
        };
        let balance = made.plan.moves.iter().filter(|step| step.reason == MoveReason::Balance);
        let begun = balance.filter(|step| !had_begun(&step.job)).count();
        if begun == 0 || has_limits || made.waiting.is_some() {
            return None;
        }
        let since = self.moved.map(|moved| self.now.since(moved));
        self.moved = Some(self.now);
        if most < begun {
            return Some(format!("{begun} moves begun, {most} allowed"));
        }
        let is_soon = since.is_some_and(|since| since < PLAIN_HANDOVER);
        is_soon.then(|| format!("{begun} moves begun {since:?} after the ones before"))
    }

    /// Before the slots beyond `count` are given up, they are empty in the view that workers read.
    pub(super) fn judge_size(&mut self, count: u32) {
        if self.wanted <= count || self.desired.replication == Replication::All {
            return;
        }
        let Some(view) = self.views.last() else { return };
        let has_jobs = |slot: u32| {
            view.workers.get(&format!("w-{slot}")).is_some_and(|entry| !entry.jobs.is_empty())
        };
        if let Some(slot) = (count..self.wanted).find(|slot| has_jobs(*slot)) {
            self.is_wrong(|| format!("slot {slot} is given up with its jobs"));
        }
    }

    /// While nothing needs to be written, time alone changes nothing before the operator looks
    /// again.
    pub(super) fn judge_wake(&mut self, decision: &Decision) {
        let mut operator = self.operator.clone();
        let wakes_in = operator.overseer.wakes_at().map(|at| at.since(self.now));
        let sleeps = just_before(decision.recheck_in, wakes_in);
        let seen = self.observed_by(&mut operator, self.now.after(sleeps));
        let later = decide(&decision.ledger, &self.desired, &seen);
        if later.ledger != decision.ledger || later.replicas != decision.replicas {
            self.is_wrong(|| format!("looked at again in {sleeps:?}, too late for {later:?}"));
        }
    }

    /// Lets all faults stop and the operator work until the pool is as it should be and stays so.
    ///
    /// # Errors
    ///
    /// The problem that remains in the end, or that comes up on the way.
    pub fn heal(&mut self) -> Result<(), String> {
        (self.desired.paused, self.desired.replicas) = (false, None);
        self.desired.policy = Policy::AtLeastOnce;
        let (mut at_rest, mut writes, mut amiss) = (0, self.writes(), None);
        for _ in 0..ROUNDS_MAX {
            self.heal_workers();
            self.take(PlainAct::Turn(0, false));
            (0..self.pods.len()).for_each(|n| self.take(PlainAct::Read(n, 0)));
            if let Some(wrong) = &self.wrong {
                return Err(format!("while healing: {wrong}"));
            }
            amiss = self.amiss();
            let is_calm = amiss.is_none() && writes == self.writes();
            at_rest = if is_calm { at_rest + 1 } else { 0 };
            writes = self.writes();
            if at_rest == ROUNDS_AT_REST {
                return Ok(());
            }
        }
        Err(amiss.unwrap_or_else(|| "the ledger is written again and again".into()))
    }

    fn heal_workers(&mut self) {
        self.take(PlainAct::Tick);
        for slot in (0..5).map(Slot) {
            match self.in_slot(slot) {
                Some(_) if self.wanted <= slot.0 => self.crash(slot),
                Some(n) => self.pods[n].is_ready = true,
                None if slot.0 < self.wanted => self.start(slot),
                None => {}
            }
        }
    }

    /// The difference between the pool and its goal, by the running jobs and the operator's
    /// knowledge.
    fn amiss(&mut self) -> Option<String> {
        let ledger = Arc::clone(self.ledger());
        self.operator.overseer.note(self.now, &ledger);
        let observed = self.observed();
        let decision = decide(&ledger, &self.desired, &observed);
        if decision.ledger != *ledger {
            return Some(format!("to be written: {:?}", decision.ledger));
        }
        let progress = self.operator.overseer.progress(&decision, &self.desired, &observed);
        if !progress.is_settled() {
            return Some(format!("{progress:?}"));
        }
        let mut expected: BTreeMap<Slot, BTreeSet<JobName>> = BTreeMap::new();
        for job in self.desired.jobs.keys() {
            let slots: Vec<_> = match self.desired.replication {
                Replication::All => (0..self.wanted).map(Slot).collect(),
                Replication::One => decision.plan.assignment.holder(job).into_iter().collect(),
            };
            for slot in slots {
                expected.entry(slot).or_default().insert(job.clone());
            }
        }
        let should = |slot| expected.get(&slot).cloned().unwrap_or_default();
        let mut up = self.pods.iter().filter(|pod| pod.is_up);
        let differs = up.find(|pod| pod.runs != should(pod.slot))?;
        let (slot, runs) = (differs.slot, &differs.runs);
        Some(format!("slot {slot} runs {runs:?}, not {:?}", should(slot)))
    }
}
