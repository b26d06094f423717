//! The invariants of operators' decisions, in addition to the safety of jobs. No absent session
//! receives jobs, and nothing moves in a pause. Few sessions are revoked at once, and every wait is
//! looked at again. A pool shrinks only where nothing runs.

use swarm_core::handover::{Cell, Policy, STRIKES_MAX, SessionId};
use swarm_core::overseer::Effect;
use swarm_core::{Decision, JobName, Ledger, Observed, Replication, Token, WorkerSeen, decide};

use super::super::{Fleet, Honesty};
use crate::written::just_before;

impl Fleet {
    /// No worker lets a job act that it was asked to stop.
    pub(in crate::fleet) fn judge_permits(&mut self) {
        for n in (0..self.pods.len()).filter(|n| self.pods[*n].is_up()) {
            let worker = &self.pods[n].worker;
            let may_act = |job: &&JobName| {
                let token = worker.running.get(*job);
                token.is_some_and(|token| worker.session.permits(worker.clock, job, *token))
            };
            if let Some(job) = worker.stopping.iter().find(may_act).cloned() {
                return self.is_wrong(|| format!("worker {n} lets {job} act while it stops it"));
            }
        }
    }

    /// Judges a write within one incarnation, by its writer's observations.
    pub(in crate::fleet) fn judge_grants(
        &mut self,
        before: &Ledger,
        made: &Decision,
        seen: &Observed,
    ) {
        let after = &made.ledger;
        if before.cells.incarnation != after.cells.incarnation {
            return;
        }
        for (job, record) in &after.cells.jobs {
            let Some(old) = before.cells.jobs.get(job) else { continue };
            let complaint = self
                .granted_to_nobody(&old.cell, &record.cell, seen)
                .or_else(|| self.moved_in_a_pause(job, &old.cell, &record.cell, seen))
                .or_else(|| self.granted_too_much(&old.cell, &record.cell, after, seen));
            if let Some(complaint) = complaint {
                return self.is_wrong(|| format!("{job} {complaint}"));
            }
            // A further strike means that this job crashed a worker.
            let is_poison = old.strikes < record.strikes && STRIKES_MAX <= record.strikes;
            let is_kept_away = matches!(record.cell, Cell::Quarantined { .. });
            if is_poison && !is_kept_away {
                let strikes = record.strikes;
                return self.is_wrong(|| format!("{job} crashed {strikes} workers and goes on"));
            }
        }
    }

    /// A job is granted only to a session that fills a slot now and whose pod exists.
    fn granted_to_nobody(&self, before: &Cell, after: &Cell, seen: &Observed) -> Option<String> {
        let Cell::Granted { session, .. } = after else { return None };
        if self.desired.replication == Replication::All || before.holder() == Some(session) {
            return None;
        }
        let is_there = seen.workers.values().any(|worker| worker.session.as_ref() == Some(session));
        (!is_there).then(|| format!("was granted to {session}, which fills no slot"))
    }

    /// A job is granted only where it fits next to all jobs of the session, including the jobs to
    /// release.
    fn granted_too_much(
        &self,
        before: &Cell,
        after: &Cell,
        ledger: &Ledger,
        seen: &Observed,
    ) -> Option<String> {
        let Cell::Granted { session, .. } = after else { return None };
        if before.holder() == Some(session) {
            return None;
        }
        let is_its = |worker: &WorkerSeen| worker.session.as_ref() == Some(session);
        let slot =
            seen.workers.iter().find_map(|(slot, worker)| is_its(worker).then_some(*slot))?;
        let its = ledger.cells.jobs.iter().filter(|(_, it)| it.cell.holder() == Some(session));
        let (mut count, mut reserved) = (0_u32, 0_u32);
        for (job, _) in its {
            let share = self.desired.jobs.get(job).and_then(|job| job.share);
            count += 1;
            reserved += share.map_or(0, |share| u32::from(share.percent()));
        }
        let size = self.desired.capacity_of(slot).map_or(100, |size| u32::from(size.percent()));
        let most = self.desired.max_jobs_of(slot).unwrap_or(u32::MAX);
        let is_too_much = size < reserved || most < count;
        is_too_much.then(|| {
            format!("makes {count} of {most} jobs and {reserved} of {size} percent of {session}")
        })
    }

    /// In a pause a session that has not ended keeps its jobs, unless it reports them as finished.
    fn moved_in_a_pause(
        &self,
        job: &JobName,
        before: &Cell,
        after: &Cell,
        seen: &Observed,
    ) -> Option<String> {
        let Cell::Granted { session, .. } = before else { return None };
        let known = seen.evidence.get(session);
        let has_released =
            known.is_some_and(|known| known.ended.is_some() || known.finished.contains_key(job));
        (self.desired.paused && !has_released && after != before)
            .then(|| format!("left {session} in a pause: {after:?}"))
    }

    /// At most three sessions or 30 %, whichever is more, are revoked at once for their silence.
    /// For an operator that may itself be cut off, the limit is one or 10 %.
    pub(in crate::fleet) fn judge_revocations(&mut self, o: usize, due: &[Effect]) {
        let (now, terms) = (self.operators[o].clock, self.lease_terms());
        let proofs = self.operators[o].overseer.proofs();
        let is_silent = |session: &SessionId| {
            // Liars, and sessions that act on a lost ledger, are revoked for that reason instead.
            let honest = self.pods.iter().skip(self.elders);
            let mut honest = honest.filter(|pod| pod.honesty == Honesty::Honest);
            honest.any(|pod| pod.id() == session)
                && proofs.get(session).is_some_and(|watch| watch.is_silent(now, &terms))
        };
        let revoked = due.iter().filter(|effect| match effect {
            Effect::Revoke(session, _) => is_silent(session),
            Effect::LookUp(_) => false,
        });
        let (revoked, all) = (revoked.count(), proofs.iter().count());
        let is_well =
            self.operators[o].failed.is_none_or(|failed| terms.duration <= now.since(failed));
        let most = if is_well { 3.max(all * 30 / 100) } else { 1.max(all / 10) };
        if most < revoked {
            self.is_wrong(|| format!("{revoked} of {all} sessions are revoked at once"));
        }
    }

    /// While nothing needs to be written and all due requests were in vain, time alone changes
    /// nothing before the operator looks again.
    pub(in crate::fleet) fn judge_wake(&mut self, o: usize, decision: &Decision) {
        let (mut operator, shown) = (self.operators[o].clone(), self.shown());
        let now = operator.clock;
        let _ = operator.overseer.due(now, self.unix_time(), |it| shown.contains(it));
        let wakes_in = operator.overseer.wakes_at().map(|at| at.since(now));
        let Decision { ledger, recheck_in, .. } = decision;
        operator.clock = now.after(just_before(*recheck_in, wakes_in));
        let seen = self.observed_by(&mut operator);
        let later = decide(ledger, &self.desired, &seen).ledger;
        if later != *ledger {
            let wakes = (recheck_in, wakes_in);
            self.is_wrong(|| format!("looked at again in {wakes:?}, too late for {later:?}"));
        }
    }

    /// The slots beyond `count` are empty before the workload gives them up.
    pub(in crate::fleet) fn judge_size(&mut self, count: u32) {
        let Replication::One = self.desired.replication else { return };
        if self.desired.policy != Policy::Exclusive || self.wanted <= count {
            return;
        }
        let end = self.slot(count);
        let runs = |n: &usize| {
            let pod = &self.pods[*n];
            let is_beyond = end <= pod.slot && pod.honesty == Honesty::Honest;
            let mut running = pod.worker.running.iter();
            let counts = |(job, token): (&JobName, &Token)| !self.is_excused(job, *token, pod.id());
            is_beyond && pod.is_up() && running.any(counts)
        };
        if let Some(n) = (self.elders..self.pods.len()).find(runs) {
            self.is_wrong(|| format!("worker {n} still runs jobs beyond {count} slots"));
        }
    }
}
