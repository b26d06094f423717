//! The report about the sessions of a Swarm, for people.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use swarm_core::handover::{Cell, Policy, SessionId, TWO_CLOCKS_MARGIN, Watch};
use swarm_core::life::moved;
use swarm_core::{
    Decision, Failing, FailingJob, JobName, JobPhase, Ledger, Phases, Replication, Slot, Turn,
};

use super::{KnownSessions, SessionSummary};
use crate::clock;
use crate::status::{SHOWN, SessionReport, StillStopping, Unanswered};

/// The time since which each session owes an answer, by the wall clock: for people only.
pub(super) type Since = BTreeMap<SessionId, Timestamp>;

/// The time at which the release of each job began, by the wall clock: for people only.
pub(super) type Released = BTreeMap<JobName, (SessionId, Timestamp)>;

impl KnownSessions {
    /// Reports on the sessions after `ledger` was published.
    pub(crate) fn report(
        &mut self,
        ledger: &Ledger,
        summary: SessionSummary,
        ages: &BTreeMap<JobName, Duration>,
        policy: Policy,
    ) -> SessionReport {
        let lease = *self.overseer.terms();
        let mut report = SessionReport {
            living: summary.living,
            suspects: summary.suspects,
            lease: lease.duration,
            held_back: summary.held_back,
            unprotected: summary.unprotected,
            stale: self.overseer.stale(ledger),
            is_exclusive: policy == Policy::Exclusive,
            ..SessionReport::default()
        };
        report.failing = held(ledger, summary.failing);
        let overseer = &self.overseer;
        let acknowledged =
            |session: &SessionId, job: &str| overseer.acknowledged(ledger, session, job);
        report.fenced = self.standing.ended(clock::now(), ledger, acknowledged);
        let mut owed = BTreeMap::<&SessionId, (Duration, usize)>::new();
        for (job, record) in &ledger.cells.jobs {
            if record.is_quarantined() {
                report.quarantined.push(job.to_string());
            }
            if let Cell::Releasing { session, .. } = &record.cell {
                let (longest, jobs) = owed.entry(session).or_default();
                *longest = ages.get(job).copied().unwrap_or_default().max(*longest);
                *jobs += 1;
            }
        }
        self.owed.retain(|session, _| owed.contains_key(session));
        self.report_stopping(ledger, ages, &mut report);
        let slots = ledger.sessions();
        let outdated = self.waiting.iter();
        report.outdated = outdated.map(|(it, jobs)| (worker(ledger, &slots, it), *jobs)).collect();
        for (session, (age, jobs)) in owed {
            if session.is_plain() || age < lease.stop_timeout + lease.renew {
                continue;
            }
            let since = *self.owed.entry(session.clone()).or_insert_with(|| ago(age));
            let worker = worker(ledger, &slots, session);
            report.unanswered.push(Unanswered { worker, since, jobs });
        }
        report
    }

    /// Notes which grants are acknowledged after a turn. O(jobs · log jobs).
    pub(crate) fn acknowledge(&mut self, decided: &Turn) {
        let Turn { decision, granted, .. } = decided;
        let ledger = &decision.ledger;
        let acknowledged =
            |session: &SessionId, job: &str| self.overseer.acknowledged(ledger, session, job);
        self.unacknowledged.observe(ledger, granted, acknowledged);
    }

    /// Counts the jobs that run, and the jobs that are granted and not known to run: their grants are
    /// not acknowledged, or their workers are silent. O(jobs · log jobs).
    pub(crate) fn count_phases(
        &self,
        decision: &Decision,
        replication: Replication,
        report: &mut SessionReport,
    ) {
        let worst = report.failing.iter().flat_map(|(_, failing)| &failing.worst);
        let failing = worst.map(|it| it.job.clone()).collect();
        let (unacknowledged, failing) = (&self.unacknowledged, &failing);
        let unheard = &self.overseer.unheard(clock::now(), TWO_CLOCKS_MARGIN);
        let phases = Phases { decision, unacknowledged, unheard, failing };
        // A Lease names only the worst failing jobs. The others run, or run at times.
        let unnamed = Failing::unnamed(report.failing.iter().map(|(_, it)| it), replication);
        let counts = phases.counts_with(unnamed);
        let count = |phase| counts.get(&phase).copied().unwrap_or_default();
        report.published = count(JobPhase::Published);
        report.running = count(JobPhase::Running);
        report.phases = counts.iter().map(|(phase, count)| (phase.as_str(), *count)).collect();
    }

    /// Records the jobs that sessions have to stop, and names the slowest. O(jobs · log jobs), if
    /// any are released.
    fn report_stopping(
        &mut self,
        ledger: &Ledger,
        ages: &BTreeMap<JobName, Duration>,
        report: &mut SessionReport,
    ) {
        let mut before = std::mem::take(&mut self.released);
        for (job, record) in &ledger.cells.jobs {
            let Cell::Releasing { session, .. } = &record.cell else { continue };
            if session.is_plain() {
                continue;
            }
            let known = before.remove(job).filter(|(holder, _)| holder == session);
            let age = || ages.get(job).copied().unwrap_or_default();
            let since = known.map_or_else(|| ago(age()), |(_, since)| since);
            self.released.insert(job.clone(), (session.clone(), since));
        }
        report.stopping = self.released.len();
        report.oldest_release = self.released.values().map(|(_, since)| *since).min();
        let proofs = self.overseer.proofs();
        let mut slowest: Vec<_> = self.released.iter().collect();
        slowest.sort_by_cached_key(|(job, (session, since))| {
            let says_so = |watch: &Watch| watch.ack.stopping.jobs.contains_key(*job);
            (!proofs.get(session).is_some_and(says_so), *since, (*job).clone())
        });
        let slots = ledger.sessions();
        let slowest = slowest.into_iter().take(SHOWN).map(|(job, (session, since))| {
            let worker = worker(ledger, &slots, session);
            StillStopping { job: job.to_string(), worker, since: *since }
        });
        report.slowest = slowest.collect();
    }
}

impl SessionReport {
    /// Adds the jobs that fail though no worker reports them, since they moved or their workers were
    /// replaced. Each one comes with the worker of its last end. O(jobs · log jobs), if any fail.
    pub(crate) fn carry(&mut self, decision: &Decision, carried: Vec<(FailingJob, String)>) {
        if carried.is_empty() {
            return;
        }
        let (ledger, unassigned) = (&decision.ledger, &decision.plan.unassigned);
        let slots = ledger.sessions();
        let moved = moved(
            ledger,
            carried.iter().map(|(it, _)| &it.job),
            self.failing.iter().map(|(name, it)| (name.clone(), it)),
            |job| unassigned.contains_key(job),
            |session| worker(ledger, &slots, session),
        );
        let moved: BTreeMap<_, _> =
            moved.into_iter().map(|(job, worker)| (job.clone(), worker)).collect();
        for (failing, last) in carried {
            let Some(worker) = moved.get(&failing.job) else { continue };
            let worker = worker.clone().unwrap_or(last);
            match self.failing.iter_mut().find(|(name, _)| *name == worker) {
                Some((_, it)) => {
                    it.count += 1;
                    it.worst.push(failing);
                }
                None => self.failing.push((worker, Failing { count: 1, worst: vec![failing] })),
            }
        }
    }
}

/// The wall-clock time `age` ago.
pub(super) fn ago(age: Duration) -> Timestamp {
    let now = Timestamp::now();
    now.checked_sub(age).unwrap_or(now)
}

/// The name of a session's worker, or its slot if another worker has that slot now.
pub(super) fn worker(
    ledger: &Ledger,
    slots: &BTreeMap<&SessionId, Slot>,
    session: &SessionId,
) -> String {
    let slot = slots.get(session).copied();
    let record = slot.and_then(|slot| ledger.slots.get(&slot));
    match record.filter(|record| record.session == *session) {
        Some(record) => record.worker.clone(),
        None => slot.map_or_else(String::new, |slot| format!("the previous worker of slot {slot}")),
    }
}

/// The reported failing jobs that their workers still hold. O(jobs), if any fail.
fn held(
    ledger: &Ledger,
    reported: BTreeMap<SessionId, (String, Failing)>,
) -> Vec<(String, Failing)> {
    if reported.is_empty() {
        return Vec::new();
    }
    let (mut counts, mut for_all) = (BTreeMap::<&SessionId, usize>::new(), 0);
    for record in ledger.cells.jobs.values() {
        match record.cell.holder() {
            Some(session) => *counts.entry(session).or_default() += 1,
            None => for_all += usize::from(matches!(record.cell, Cell::Everywhere { .. })),
        }
    }
    let has = |job: &JobName, session: &SessionId| {
        ledger.cells.jobs.get(job).is_some_and(|record| record.cell.is_with(session))
    };
    let of = |(session, (worker, failing)): (SessionId, (String, Failing))| {
        let failing = failing.held(|job| has(job, &session));
        let held = counts.get(&session).copied().unwrap_or_default() + for_all;
        (worker, failing.limited(held, failing.worst.len()))
    };
    reported.into_iter().map(of).filter(|(_, failing)| 0 < failing.count).collect()
}

#[cfg(test)]
mod tests {
    use swarm_core::handover::{Ack, LeaseTerms};
    use swarm_core::overseer::{Fact, LeaseFacts, Overseer, PoolFacts};
    use swarm_core::{
        Desired, FailingState, Observed, Presence, Unassigned, WorkerSeen, decide, jobs,
    };

    use super::*;

    /// A pool whose only session renewed its Lease this long ago, and the turn that granted its jobs.
    async fn heard(age_s: u64) -> (KnownSessions, Turn) {
        // The clock of this process may have begun later than the paused one.
        clock::now();
        tokio::time::advance(Duration::from_mins(1)).await;
        let session = SessionId::new("pod", 1);
        let seen = WorkerSeen::new("w-0", Presence::Ready, Some(session.clone()));
        let before = Ledger::new(7);
        let desired = Desired::new(jobs(["a", "b"]).unwrap());
        let decision = decide(&before, &desired, &Observed::new([(Slot(0), seen)], 1, []));
        let (granted, changed) = (desired.jobs.keys().cloned().collect(), true);
        let mut facts = LeaseFacts::held(1, LeaseTerms::default().duration);
        let revision = decision.ledger.revision();
        facts.lease.ack = Ack { incarnation: 7, revision, ..Ack::default() };
        let overseer = Overseer::new(LeaseTerms::default());
        let mut known = KnownSessions { overseer, ..KnownSessions::default() };
        known.overseer.learn(clock::now(), Fact::Lease(session, facts));
        tokio::time::advance(Duration::from_secs(age_s)).await;
        (known, Turn { decision, before, changed, granted })
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_of_a_silent_session_are_granted_and_not_running() {
        for (age_s, expected) in [(0, (2, 0)), (16, (2, 0)), (17, (0, 2)), (60, (0, 2))] {
            let (mut known, decided) = heard(age_s).await;
            let mut report = SessionReport::default();
            known.acknowledge(&decided);
            known.count_phases(&decided.decision, Replication::One, &mut report);
            assert_eq!((report.running, report.published), expected, "after {age_s} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_of_a_session_that_comes_back_run_from_its_second_renewal_on() {
        let (mut known, decided) = heard(30).await;
        known.acknowledge(&decided);
        let running = |known: &KnownSessions| {
            let mut report = SessionReport::default();
            known.count_phases(&decided.decision, Replication::One, &mut report);
            report.running
        };
        let mut renewed = |number, pause| {
            let facts = LeaseFacts::held(number, LeaseTerms::default().duration);
            let mut facts = LeaseFacts { pause: Duration::from_secs(pause), ..facts };
            facts.lease.ack = Ack { incarnation: 7, revision: 1, ..Ack::default() };
            known.overseer.learn(clock::now(), Fact::Lease(SessionId::new("pod", 1), facts));
            let summary = known.summary(clock::now(), &PoolFacts::new([], 1));
            (running(&known), summary.again_in.unwrap().as_secs())
        };
        let renew = LeaseTerms::default().renew.as_secs();
        assert_eq!(renewed(2, 30), (0, renew), "the next renewal is looked for");
        tokio::time::advance(Duration::from_secs(renew)).await;
        assert_eq!(renewed(3, renew), (2, 17));
    }

    fn failing(job: &str) -> FailingJob {
        let job = job.parse().unwrap();
        let (since_unix_s, last_exit) = (7, "ended with exit code 3".to_owned());
        let (state, restarts) = (FailingState::Restarting, 4);
        FailingJob { job, state, restarts, since_unix_s, last_exit, last_output: Vec::new() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_has_moved_fails_until_its_life_says_that_it_runs_well() {
        let (mut known, mut decided) = heard(0).await;
        known.acknowledge(&decided);
        let counted = |report: &mut SessionReport, decided: &Turn| {
            report.carry(&decided.decision, vec![(failing("a"), "w-9".to_owned())]);
            known.count_phases(&decided.decision, Replication::One, report);
            (report.running, report.failing_jobs(), report.failing[0].0.clone())
        };
        let w_0 = "w-0".to_owned();
        let report = SessionReport::default;
        assert_eq!(counted(&mut report(), &decided), (1, 1, w_0.clone()));
        // Its worker reports it by itself, or may count it with the jobs that it does not name.
        let one = |count, job| (w_0.clone(), Failing { count, worst: vec![failing(job)] });
        for (reported, expected) in [(one(1, "a"), (1, 1)), (one(2, "b"), (0, 2))] {
            let mut report = SessionReport { failing: vec![reported], ..report() };
            let (running, failing, _) = counted(&mut report, &decided);
            assert_eq!((running, failing), expected);
        }
        let mut both = SessionReport { failing: vec![one(1, "b")], ..report() };
        assert_eq!(counted(&mut both, &decided), (0, 2, w_0));

        // On its way to the next worker it fails, and a job that is not wanted does not.
        let record = decided.decision.ledger.cells.jobs.get_mut("a").unwrap();
        record.cell = Cell::Free { token: record.cell.token() };
        assert_eq!(counted(&mut report(), &decided), (1, 1, "w-9".to_owned()));
        decided.decision.plan.unassigned.insert("a".parse().unwrap(), Unassigned::Suspended);
        let mut silent = report();
        silent.carry(&decided.decision, vec![(failing("a"), "w-9".to_owned())]);
        assert_eq!(silent.failing, []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pool_at_rest_is_looked_at_again_when_a_session_falls_silent_and_while_it_is() {
        let bound = LeaseTerms::default().silent_after(TWO_CLOCKS_MARGIN);
        let looked = async |age_s| {
            let (known, _) = heard(age_s).await;
            let now = clock::now();
            let summary = known.summary(now, &PoolFacts::new([], 1));
            let alarm = summary.alarm.map(|alarm| (alarm.at.since(now), alarm.sessions[0].1));
            (alarm, summary.again_in.unwrap())
        };
        let left = bound.saturating_sub(Duration::from_secs(1));
        assert_eq!(looked(1).await, (Some((left, bound)), left));
        // A renewal causes no turn, so the next one is looked for: here, until the Lease is revoked.
        assert_eq!(looked(18).await, (None, Duration::from_secs(2)));
    }
}
