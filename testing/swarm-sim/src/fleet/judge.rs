//! The invariants after every act, and of every write.

mod operators;

use std::collections::BTreeSet;

use swarm_core::handover::{Ack, Cell, Holder, Policy, SessionId};
use swarm_core::overseer::Suspicion;
use swarm_core::{Decision, JobName, Ledger, Mode, MoveReason, Observed, Token};

use super::{Fleet, Honesty, Pod};
use crate::invariant::released;
use crate::written::{numbers, publication, sessions, stored};

impl Fleet {
    /// Judges the runners. A worker that runs a job holds it, is one of all workers that may run
    /// it, or is excused under `AtLeastOnce`.
    pub(super) fn judge_state(&mut self) {
        if self.wrong.is_some() {
            return;
        }
        let ledger = std::sync::Arc::clone(self.ledger());
        let sessions = ledger.sessions();
        let (mut seen, mut shared) = (BTreeSet::new(), BTreeSet::new());
        let policy = self.desired.policy;
        for n in (0..self.pods.len()).filter(|n| self.pods[*n].may_run()) {
            let id = self.pods[n].id().clone();
            let running = self.pods[n].worker.running.clone();
            for (job, token) in running {
                let record = ledger.cells.jobs.get(&job);
                let is_for_all = record.is_some_and(|record| record.cell.is_for_all());
                if is_for_all && sessions.contains_key(&id) {
                    continue;
                }
                let holder = record.and_then(|record| record.cell.holder());
                let is_excused = self.is_excused(&job, token, &id);
                // A worker may still run the jobs that a lost ledger granted to it, but no other
                // worker may.
                let is_elder = self.is_elders(n, &job, token);
                if holder != Some(&id) && !is_excused && !is_elder {
                    return self.is_wrong(|| format!("{id} runs {job} and does not hold it"));
                }
                // A restored ledger does not have the grants that were lost with the newer ledger.
                let is_own = record.is_some_and(|record| record.cell.token() < token);
                if is_own && !is_elder {
                    return self.is_wrong(|| format!("{id} runs {job} under a token of its own"));
                }
                let is_awaited = policy == Policy::Exclusive && !self.unawaited.contains(&job);
                let is_alone = is_awaited && !is_excused;
                let counts = holder == Some(&id) || is_elder && is_alone;
                if counts && is_elder && self.was_for_all(&job, token) {
                    shared.insert(job);
                    continue;
                }
                if counts && !seen.insert(job.clone()) {
                    return self.is_wrong(|| format!("{job} has two runners"));
                }
            }
        }
        if let Some(job) = seen.intersection(&shared).next().cloned() {
            self.is_wrong(|| format!("{job} has a runner, and all ran it before and still do"));
        }
    }

    /// Whether the policy has given up waiting for the end of this ownership.
    pub(super) fn is_excused(&self, job: &JobName, token: Token, session: &SessionId) -> bool {
        self.excused.contains(&(job.clone(), token, session.clone()))
    }

    /// Whether all workers ran a job under `token`, by any ledger so far.
    fn was_for_all(&self, job: &JobName, token: Token) -> bool {
        self.history
            .iter()
            .filter_map(|ledger| ledger.cells.jobs.get(job))
            .any(|record| record.cell.token() == token && record.cell.is_for_all())
    }

    /// Judges the sessions that an operator with the newest ledger suspects.
    ///
    /// # Errors
    ///
    /// If a suspected session keeps to the protocol. A session of a lost incarnation may look like
    /// a liar. So may a session whose Lease is longer than the Swarm asks for now.
    pub(super) fn judge_suspicions(&mut self, ledger: &Ledger) -> Result<(), String> {
        let (now, unix_time_us) = (self.operators[0].clock, self.unix_time());
        let overseer = &mut self.operators[0].overseer;
        overseer.judge_finished(now, ledger, &self.desired.jobs);
        let suspicions = overseer.suspicions(now, unix_time_us);
        for pod in self.pods.iter().skip(self.elders).filter(|pod| pod.honesty == Honesty::Honest) {
            match suspicions.get(pod.id()) {
                None | Some(Suspicion::LongLease(_)) => {}
                Some(suspicion) => {
                    return Err(format!("{} is not believed: {suspicion:?}, {ledger:?}", pod.id()));
                }
            }
        }
        Ok(())
    }

    /// Judges a write of the ledger by the true state, not by the writer's knowledge.
    pub(super) fn judge_write(&mut self, before: &Ledger, made: &Decision, seen: &Observed) {
        let after = &made.ledger;
        let is_another_life = before.cells.incarnation < after.cells.incarnation;
        if is_another_life {
            // No session holds a job in a new ledger, so there is nothing to end.
            let held = after.assignment().iter().next().map(|(job, _)| format!("{job} is held"));
            let complaint = held.or_else(|| stored(after)).or_else(|| self.jobs(after));
            if let Some(complaint) = complaint {
                self.is_wrong(|| complaint);
            }
            // A session's claim may have led to the new incarnation.
            self.is_lost();
        }
        let complaint = (!is_another_life)
            .then_some(())
            .and_then(|()| numbers(before, after))
            .or_else(|| publication(before, after))
            .or_else(|| sessions(after))
            .or_else(|| stored(after))
            .or_else(|| self.jobs(after))
            .or_else(|| self.leases(after))
            .or_else(|| self.budget(before, made, seen))
            .or_else(|| if is_another_life { None } else { self.endings(before, after, seen) });
        if let Some(complaint) = complaint {
            self.is_wrong(|| complaint);
        }
        for (job, record) in &after.cells.jobs {
            self.tokens.insert(job.clone(), record.cell.token());
            let is_given = record.cell.holder().is_some() || record.cell.is_for_all();
            if is_given && self.desired.policy == Policy::AtLeastOnce {
                self.unawaited.insert(job.clone());
            }
        }
    }

    /// Every wanted job is in the ledger, under a token that never falls.
    fn jobs(&self, after: &Ledger) -> Option<String> {
        // In a pause no job enters the ledger.
        let is_lost = |job: &&JobName| !self.desired.paused && !after.cells.jobs.contains_key(*job);
        if let Some(job) = self.desired.jobs.keys().find(is_lost) {
            return Some(format!("{job} was lost"));
        }
        let falls = |(job, record): &(&JobName, &swarm_core::handover::Record)| {
            self.tokens.get(*job).is_some_and(|highest| record.cell.token() < *highest)
        };
        after.cells.jobs.iter().find(falls).map(|(job, _)| format!("a token of {job} fell"))
    }

    /// The ledger has the time for which each of its sessions may act, even if their Leases cannot
    /// be seen.
    fn leases(&self, after: &Ledger) -> Option<String> {
        let holders = after.cells.jobs.values().filter_map(|record| record.cell.holder());
        let holders: BTreeSet<_> = holders.collect();
        let is_too_short = |pod: &&Pod| {
            let lives = !pod.is_dead() && pod.honesty == Honesty::Honest;
            lives && holders.contains(pod.id()) && after.longest_lease < pod.claims
        };
        let pod = self.pods.iter().find(is_too_short)?;
        let (id, claims, known) = (pod.id(), pod.claims, after.longest_lease);
        Some(format!("{id} may act for {claims:?}, and the ledger knows of {known:?}"))
    }

    /// No more jobs are taken from workers for balance than the budget has left. A job that is not
    /// released in time uses no budget.
    fn budget(&self, before: &Ledger, made: &Decision, seen: &Observed) -> Option<String> {
        let most = self.desired.rules.moves_max?;
        // A canonical plan swaps jobs of full workers, regardless of the budget.
        let has_limits = self.desired.max_jobs.is_some()
            || self.desired.jobs.values().any(|job| job.share.is_some());
        if self.desired.rules.mode == Mode::Canonical && has_limits {
            return None;
        }
        let is_moving = |ledger: &Ledger, job: &JobName| {
            let record = ledger.cells.jobs.get(job);
            record.is_some_and(|record| matches!(record.cell, Cell::Releasing { .. }))
        };
        let timeout = self.desired.timing.release_timeout;
        let is_late = |job: &JobName| {
            let is_kept = self.desired.policy != Policy::AtLeastOnce;
            is_kept && seen.ages.get(job).is_some_and(|age| timeout <= *age)
        };
        let moving = before.cells.jobs.keys().filter(|job| is_moving(before, job));
        let in_flight = moving.filter(|job| !is_late(job)).count();
        let balance = made.plan.moves.iter().filter(|step| step.reason == MoveReason::Balance);
        let begun = balance
            .filter(|step| is_moving(&made.ledger, &step.job) && !is_moving(before, &step.job))
            .count();
        (most.saturating_sub(in_flight) < begun)
            .then(|| format!("{begun} moves begun, {in_flight} in flight, {most} allowed"))
    }

    /// A job leaves its holder only if that holder truly released it. Under `AtLeastOnce`, it also
    /// leaves after a long enough wait, and the run is then excused.
    fn endings(&mut self, before: &Ledger, after: &Ledger, seen: &Observed) -> Option<String> {
        if let Some(wrong) = self.departures(before, after, seen) {
            return Some(wrong);
        }
        for (job, record) in &before.cells.jobs {
            let now = after.cells.jobs.get(job).map(|record| &record.cell);
            if record.cell.is_for_all()
                && !now.is_some_and(Cell::is_for_all)
                && let Some(wrong) = self.excuse_all(job, before, seen)
            {
                return Some(wrong);
            }
            let Some(holder) = record.cell.holder() else { continue };
            let token = now.map_or(record.cell.token(), Cell::token);
            if now.and_then(Cell::holder) == Some(holder) && token == record.cell.token() {
                continue;
            }
            let is_done = matches!(now, Some(Cell::Done { .. }));
            let runs_once = self.desired.jobs.get(job).is_some_and(|job| job.run_once);
            if is_done && !runs_once {
                return Some(format!("{job} is done and does not run to completion"));
            }
            let known = seen.evidence.get(holder).cloned().unwrap_or_default();
            let since = since(&record.cell);
            let is_proved =
                known.ended.is_some() || since.is_some_and(|since| since <= known.released(job));
            if is_done || (is_proved && self.has_released(holder, job, &record.cell)) {
                continue;
            }
            let timing = &self.desired.timing;
            let age = seen.ages.get(job).copied().unwrap_or_default();
            let waited = !is_proved
                && (since.is_some() && timing.release_timeout <= age || self.is_gone(seen, holder));
            if self.desired.policy == Policy::Exclusive || !waited {
                return Some(format!("{job} left {holder} without proof"));
            }
            self.excused.insert((job.clone(), record.cell.token(), holder.clone()));
        }
        None
    }

    /// The ledger forgets a session that may run jobs of all workers only if it runs none of them
    /// any more. Under `AtLeastOnce`, it also forgets a session that has been away for long enough.
    fn departures(&mut self, before: &Ledger, after: &Ledger, seen: &Observed) -> Option<String> {
        let (was, is) = (before.sessions(), after.sessions());
        let left = was.into_keys().filter(|session| !is.contains_key(session));
        for session in left {
            let Some(pod) = self.pods.iter().find(|pod| pod.id() == session) else { continue };
            let is_shared = |job: &JobName| {
                // A job that all workers have just released was judged, or waited for, on its own.
                let of =
                    |ledger: &Ledger| ledger.cells.jobs.get(job).map(|it| it.cell.is_for_all());
                of(before) == Some(true) && of(after) == Some(true)
            };
            if self.desired.policy == Policy::AtLeastOnce && self.is_gone(seen, session) {
                // This includes a session that reads an old view only now.
                let shared = before.cells.jobs.iter().filter(|(job, _)| is_shared(job));
                let excused =
                    shared.map(|(job, it)| (job.clone(), it.cell.token(), session.clone()));
                self.excused.extend(excused);
                continue;
            }
            let runs: Vec<_> = pod.worker.running.keys().filter(|job| is_shared(job)).collect();
            if pod.is_up() && pod.honesty == Honesty::Honest && !runs.is_empty() {
                return Some(format!("{session} was forgotten and runs {runs:?}"));
            }
        }
        None
    }

    /// Under `AtLeastOnce`, a session that still runs a job of all workers may go on after a wait.
    fn excuse_all(&mut self, job: &JobName, before: &Ledger, seen: &Observed) -> Option<String> {
        let cell = &before.cells.jobs[job].cell;
        let age = seen.ages.get(job).copied().unwrap_or_default();
        let is_released = matches!(cell, Cell::ReleasingAll { .. });
        let has_waited = is_released && self.desired.timing.release_timeout <= age;
        let is_excused = |session: &SessionId| {
            let is_given_up = has_waited || self.is_gone(seen, session);
            self.desired.policy == Policy::AtLeastOnce && is_given_up
        };
        let runs = |pod: &&Pod| {
            let runs = pod.worker.running.get(job) == Some(&cell.token());
            pod.is_up() && pod.honesty == Honesty::Honest && runs
        };
        let is_waited_for = |session: &&SessionId| {
            !is_excused(session) && !self.is_excused(job, cell.token(), session)
        };
        let left = self.pods.iter().skip(self.elders).filter(runs).map(Pod::id);
        let mut left = left.filter(is_waited_for);
        if let Some(session) = left.next() {
            return Some(format!("{job} is free while {session} still runs it"));
        }
        // This includes a session that reads an old view only now.
        let may_run = before.sessions().into_keys().filter(|session| is_excused(session));
        let excused = may_run.map(|session| (job.clone(), cell.token(), session.clone()));
        self.excused.extend(excused.collect::<Vec<_>>());
        None
    }

    /// Whether a session has been away for as long as its return is waited for.
    fn is_gone(&self, seen: &Observed, session: &SessionId) -> bool {
        let gone = seen.evidence.get(session).and_then(|known| known.gone_for);
        gone.is_some_and(|gone| self.desired.timing.return_grace <= gone)
    }

    fn has_released(&self, holder: &SessionId, job: &JobName, cell: &Cell) -> bool {
        let Some(pod) = self.pods.iter().find(|pod| pod.id() == holder) else { return false };
        let since = since(cell).unwrap_or(u64::MAX);
        let has_acked = |ack: &Ack| since <= released(ack, job);
        let proves = |lease: &swarm_core::handover::Lease| {
            lease.holder != Holder::Session || has_acked(&lease.ack)
        };
        pod.honesty != Honesty::Honest
            || pod.is_dead()
            || pod.lost_acks.iter().any(has_acked)
            || pod.leases.iter().skip(1).any(|it| it.as_ref().is_none_or(proves))
    }
}

/// The revision at which a release began.
fn since(cell: &Cell) -> Option<u64> {
    match cell {
        Cell::Releasing { since, .. } => Some(*since),
        Cell::Granted { .. }
        | Cell::Free { .. }
        | Cell::Hold { .. }
        | Cell::Quarantined { .. }
        | Cell::Done { .. }
        | Cell::Everywhere { .. }
        | Cell::ReleasingAll { .. } => None,
    }
}
