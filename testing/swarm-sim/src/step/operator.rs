//! What operators do in a world, by the functions that are shipped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use swarm_core::Slot;
use swarm_core::handover::{
    Cells, Evidence, Place, Policy, Proof, SessionId, StepInputs, Watch, WatchEffect, WatchEvent,
    advance, check_step,
};

use crate::invariant::{ends_by_proof, of_write};
use crate::world::{jobs, session_id};
use crate::{Answer, Goal, Invariant, Waited, World};

impl World {
    pub(super) fn observe(&mut self, o: usize, n: usize) -> bool {
        let Some(lease) = self.leases[n].as_deref().cloned() else { return false };
        let before = self.operators[o].watches.get(&n).cloned();
        if before.is_none() {
            let watch = Watch::begin(self.now, &lease);
            self.operator(o).watches.insert(n, watch);
        } else {
            self.tell(o, n, &WatchEvent::Seen(lease));
        }
        before.as_ref() != self.operators[o].watches.get(&n)
    }

    pub(super) fn tell(&mut self, o: usize, n: usize, event: &WatchEvent) {
        let (now, terms) = (self.now, self.bounds.lease_terms());
        if let Some(watch) = self.operator(o).watches.get_mut(&n) {
            let _ = watch.step(now, event, &terms);
        }
    }

    pub(super) fn revoke(&mut self, o: usize, n: usize, answer: Answer) -> bool {
        let terms = self.bounds.lease_terms();
        let now = self.now;
        let Some(watch) = self.operator(o).watches.get_mut(&n) else { return false };
        let asked = watch.step(now, &WatchEvent::Suspect, &terms);
        let Some(WatchEffect::Revoke(version)) = asked else { return false };
        let next = self.next_version();
        let revoked = self.bounds.revoked(self.leases[n].as_deref(), version, next);
        let is_known = revoked.is_some() && answer == Answer::Arrives;
        let has_changed = revoked.is_some();
        if has_changed {
            self.leases[n] = revoked.map(Arc::new);
        }
        let event = if is_known {
            WatchEvent::RevocationWritten(version)
        } else {
            WatchEvent::RevocationFailed
        };
        self.tell(o, n, &event);
        has_changed
    }

    pub(super) fn turn(&mut self, o: usize, base: usize, goal: &[Goal], waited: Waited) -> bool {
        let cells = Arc::clone(&self.history[base]);
        let place = |to: &Goal| match to {
            Goal::Session(n) => Place::Session(slot(*n), session_id(*n)),
            Goal::Slot(n) => Place::Slot(slot(*n)),
            Goal::Nowhere => Place::Nowhere,
        };
        let goal = jobs(&self.bounds).zip(goal.iter().map(place)).collect();
        let span = match waited {
            Waited::Nothing => Duration::ZERO,
            Waited::Long => Duration::MAX,
        };
        let watches = self.operators[o].watches.iter();
        let evidence = |(n, watch): (&usize, &Watch)| {
            let known = watch.evidence(cells.incarnation);
            let is_seen_to_end = known.ended == Some(Proof::ProcessEnded);
            let culprit = self.workers[*n].culprit.clone().filter(|_| is_seen_to_end);
            let known = Evidence { gone_for: Some(span), culprit, ..known };
            (session_id(*n), self.bounds.known(known))
        };
        let evidence = watches.map(evidence).collect();
        let ages = jobs(&self.bounds).map(|job| (job, span)).collect();
        // Any job may finish.
        let run_once = jobs(&self.bounds).collect();
        let sight =
            StepInputs { goal: &goal, evidence: &evidence, ages: &ages, run_once: &run_once };
        let terms = self.bounds.handover_terms();
        let Some(save) = advance(&cells, &sight, &terms) else { return false };
        let Some(next) = self.bounds.saved(self.cells(), &save) else { return false };
        self.broken = self.broken.or_else(|| of_write(self, &next, &sight));
        if self.broken.is_none() && check_step(&cells, &next, &sight, &terms).is_err() {
            self.broken = Some(Invariant::StepIsJudgedGood);
        }
        self.excuse(&next, &evidence);
        self.history.push(Arc::new(next));
        true
    }

    /// Remembers the runs that go on after their ownership ended for want of an answer: these, and
    /// no others, may overlap with the next owner's.
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
            if !is_kept && !ends_by_proof(&record.cell, evidence.get(holder)) {
                self.excused.insert((job.clone(), holder.clone(), record.cell.token()));
            }
        }
    }
}

fn slot(n: usize) -> Slot {
    Slot(u32::try_from(n).unwrap_or(u32::MAX))
}
