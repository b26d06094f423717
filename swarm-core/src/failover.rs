//! Jobs that fail again and again on one worker, and should try another one.
//!
//! A worker's report concerns the jobs that this worker holds, and no other job moves because of
//! it. Within an hour a job leaves each worker at most once for this reason. So a job that fails
//! everywhere comes to rest, and a worker that lies can only shed a tenth of the jobs.
//!
//! Neither a pin nor a rule of the planner keeps the job away. A pin would be balanced by another
//! job, and the planner's proof of the fewest moves holds for jobs that differ only in pins and
//! shares. The ledger does not record failures: after a takeover the job may try a worker again.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::handover::Cell;
use crate::{
    Desired, Failing, FailingJob, FailingState, Job, JobName, Ledger, Relocation, Replication, Slot,
};

/// The time for which a job avoids a worker on which it failed.
const AVOIDED_FOR: Duration = Duration::from_secs(60 * 60);

/// The number of jobs that may avoid workers at a time, in a pool of few jobs.
const JOBS_MAX: usize = 3;

/// The part of the jobs that may avoid workers at a time, in percent.
const JOBS_PERCENT_MAX: usize = 10;

/// Remembers where jobs failed. It is lost with the operator's process: then such a job may try a
/// worker again.
///
/// ```
/// use std::time::Duration;
/// use swarm_core::{Desired, Failover, Ledger, jobs};
///
/// let mut desired = Desired::new(jobs(["a"])?);
/// desired.failover = std::num::NonZeroU32::new(5);
/// let mut failover = Failover::default();
/// failover.observe(&desired, &Ledger::new(1), [], Duration::ZERO);
/// assert!(failover.relocations().is_empty());
/// # Ok::<(), swarm_core::JobsError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Failover {
    jobs: BTreeMap<JobName, Failures>,
}

#[derive(Clone, Debug)]
struct Failures {
    home: Slot,
    /// The times of the failures.
    at: BTreeMap<Slot, Duration>,
}

impl Failover {
    /// Takes the reports of the workers at the time `now`, which a monotonic clock shows. A report
    /// counts for the jobs that the ledger grants to the worker in its slot.
    ///
    /// O(log jobs) for each remembered or reported job, and O(workers) if any job fails.
    pub fn observe<'a>(
        &mut self,
        desired: &Desired,
        ledger: &Ledger,
        reports: impl IntoIterator<Item = (Slot, &'a Failing)>,
        now: Duration,
    ) {
        if !desired.has_failover() || desired.replication != Replication::One {
            self.jobs.clear();
            return;
        }
        let limit_of = |name: &JobName| {
            let job = desired.jobs.get(name).filter(|job| may_move(job));
            job.and_then(|job| desired.failover_of(job))
        };
        let is_young = |at: Duration| now.saturating_sub(at) < AVOIDED_FOR;
        self.jobs.retain(|name, failures| {
            failures.at.retain(|_, at| is_young(*at));
            !failures.at.is_empty() && limit_of(name).is_some()
        });
        let reports = reports.into_iter();
        let worst = reports.flat_map(|(slot, it)| it.worst.iter().map(move |job| (slot, job)));
        let has_failed = |job: &FailingJob| {
            limit_of(&job.job).is_some_and(|limit| u64::from(limit.get()) <= failures_of(job))
        };
        let mut worst: Vec<_> = worst.filter(|(_, job)| has_failed(job)).collect();
        if worst.is_empty() {
            return;
        }
        worst.sort_by_key(|(slot, job)| (Reverse(failures_of(job)), &job.job, *slot));
        let slots = ledger.sessions();
        for (slot, FailingJob { job, .. }) in worst {
            let record = ledger.cells.jobs.get(job);
            let Some(Cell::Granted { session, .. }) = record.map(|it| &it.cell) else { continue };
            let is_held = slots.get(session) == Some(&slot);
            if !is_held {
                continue;
            }
            if let Some(failures) = self.jobs.get_mut(job) {
                failures.at.entry(slot).or_insert(now);
            } else if self.jobs.len() < most(desired.jobs.len()) {
                let failures = Failures { home: slot, at: [(slot, now)].into() };
                self.jobs.insert(job.clone(), failures);
            }
        }
    }

    /// Returns the jobs that avoid workers, for [`Observed::relocations`](crate::Observed).
    #[must_use]
    pub fn relocations(&self) -> BTreeMap<JobName, Relocation> {
        let relocation = |failures: &Failures| {
            let failed_on = failures.at.keys().copied().collect();
            Relocation { home: failures.home, failed_on }
        };
        self.jobs.iter().map(|(job, failures)| (job.clone(), relocation(failures))).collect()
    }
}

/// Returns the number of failures in a row. Each restart follows one, and so does the end of a job
/// that is not restarted any more.
fn failures_of(job: &FailingJob) -> u64 {
    job.restarts.saturating_add(u64::from(job.state == FailingState::Failed))
}

fn may_move(job: &Job) -> bool {
    job.pin.is_none() && !job.suspend
}

/// Returns how many of these jobs may avoid workers at a time.
fn most(jobs: usize) -> usize {
    JOBS_MAX.max(jobs.saturating_mul(JOBS_PERCENT_MAX) / 100)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::handover::SessionId;
    use crate::{Observed, Presence, WorkerSeen, decide, jobs};

    const HOUR: Duration = AVOIDED_FOR;

    fn session(slot: u32) -> SessionId {
        SessionId::new(&format!("pod-{slot}"), 1)
    }

    fn observed(workers: u32) -> Observed {
        let worker = |n| {
            let seen = WorkerSeen::new(format!("w-{n}"), Presence::Ready, Some(session(n)));
            (Slot(n), seen)
        };
        Observed::new((0..workers).map(worker), 1, [])
    }

    fn failing(names: &[&str], state: FailingState, restarts: u64) -> Failing {
        let job = |name: &&str| FailingJob {
            job: name.parse().unwrap(),
            state,
            restarts,
            since_unix_s: 0,
            last_exit: "ended with exit code 3".into(),
            last_output: Vec::new(),
        };
        Failing { count: names.len(), worst: names.iter().map(job).collect() }
    }

    /// Returns a pool of three workers with this many jobs `j00`, `j01` and so on.
    fn pool(count: usize) -> (Desired, Ledger) {
        let names: Vec<_> = (0..count).map(|n| format!("j{n:02}")).collect();
        let mut desired = Desired::new(jobs(names.iter().map(String::as_str)).unwrap());
        desired.failover = NonZeroU32::new(3);
        let ledger = decide(&Ledger::new(1), &desired, &observed(3)).ledger;
        (desired, ledger)
    }

    fn slot_of(ledger: &Ledger, job: &str) -> Slot {
        ledger.assignment().holder(&job.parse().unwrap()).unwrap()
    }

    #[test]
    fn the_number_of_failures_is_that_of_the_jobs_own_runner() {
        let (mut desired, ledger) = pool(3);
        let named = |name: &str| crate::RunnerName::new(name).unwrap();
        desired.jobs.get_mut("j00").unwrap().runner = Some(named("patient"));
        desired.jobs.get_mut("j01").unwrap().runner = Some(named("other"));
        desired.failover_by_runner = [(named("patient"), NonZeroU32::new(5).unwrap())].into();
        let relocated = |desired: &Desired, job: &str, restarts| {
            let report = failing(&[job], FailingState::Restarting, restarts);
            let (mut failover, at) = (Failover::default(), slot_of(&ledger, job));
            failover.observe(desired, &ledger, [(at, &report)], Duration::ZERO);
            failover.relocations().len()
        };
        assert_eq!([4, 5].map(|restarts| relocated(&desired, "j00", restarts)), [0, 1]);
        assert_eq!([4, 99].map(|restarts| relocated(&desired, "j01", restarts)), [0, 0]);
        assert_eq!([2, 3].map(|restarts| relocated(&desired, "j02", restarts)), [0, 1]);
        desired.failover = None;
        assert_eq!(["j00", "j02"].map(|job| relocated(&desired, job, 9)), [1, 0]);
    }

    #[test]
    fn a_job_is_relocated_after_its_failures_in_a_row() {
        let (desired, ledger) = pool(3);
        let at = slot_of(&ledger, "j00");
        let mut failover = Failover::default();
        let mut counts = |state, restarts| {
            let report = failing(&["j00"], state, restarts);
            failover.observe(&desired, &ledger, [(at, &report)], Duration::ZERO);
            failover.relocations().len()
        };
        assert_eq!(counts(FailingState::Restarting, 2), 0);
        assert_eq!(counts(FailingState::Failed, 1), 0);
        assert_eq!(counts(FailingState::Failed, 2), 1, "it is not restarted any more");
        let (desired, ledger) = pool(3);
        let report = failing(&["j00"], FailingState::Restarting, 3);
        let mut failover = Failover::default();
        failover.observe(&desired, &ledger, [(at, &report)], Duration::ZERO);
        let relocation = Relocation { home: at, failed_on: [at].into() };
        assert_eq!(failover.relocations(), [("j00".parse().unwrap(), relocation)].into());
    }

    #[test]
    fn a_report_about_the_job_of_another_worker_does_not_count() {
        let (desired, ledger) = pool(3);
        let other = Slot((slot_of(&ledger, "j00").0 + 1) % 3);
        let report = failing(&["j00", "nowhere"], FailingState::Restarting, 9);
        let mut failover = Failover::default();
        failover.observe(&desired, &ledger, [(other, &report)], Duration::ZERO);
        assert!(failover.relocations().is_empty());
    }

    #[test]
    fn an_hour_later_a_job_may_return() {
        let (desired, ledger) = pool(3);
        let at = slot_of(&ledger, "j00");
        let report = failing(&["j00"], FailingState::Restarting, 3);
        let mut failover = Failover::default();
        failover.observe(&desired, &ledger, [(at, &report)], Duration::ZERO);
        // The same report again does not make the hour longer.
        failover.observe(&desired, &ledger, [(at, &report)], HOUR / 2);
        failover.observe(&desired, &ledger, [], Duration::from_secs(3599));
        assert_eq!(failover.relocations().len(), 1);
        failover.observe(&desired, &ledger, [], HOUR);
        assert!(failover.relocations().is_empty());
    }

    #[test]
    fn pinned_suspended_and_removed_jobs_stay_and_the_rule_can_be_turned_off() {
        let (desired, ledger) = pool(3);
        let at = slot_of(&ledger, "j00");
        let report = failing(&["j00"], FailingState::Restarting, 3);
        let name: JobName = "j00".parse().unwrap();
        let mut begun = Failover::default();
        begun.observe(&desired, &ledger, [(at, &report)], Duration::ZERO);
        let with = |change: fn(&mut Job)| {
            let mut desired = desired.clone();
            desired.jobs.entry(name.clone()).and_modify(change);
            desired
        };
        let mut removed = desired.clone();
        removed.jobs.remove(&name);
        let changes = [
            with(|job| job.pin = Some(Slot(0))),
            with(|job| job.suspend = true),
            removed,
            Desired { failover: None, ..desired.clone() },
            Desired { replication: Replication::All, ..desired.clone() },
        ];
        for changed in changes {
            let mut failover = begun.clone();
            failover.observe(&changed, &ledger, [(at, &report)], Duration::ZERO);
            assert!(failover.relocations().is_empty(), "{changed:?}");
        }
    }

    #[test]
    fn a_worker_that_lies_sheds_a_tenth_of_the_jobs() {
        for (count, most) in [(9, 3), (60, 6)] {
            let (desired, ledger) = pool(count);
            let mut failover = Failover::default();
            for slot in [0, 1, 2].map(Slot) {
                let held = ledger.assignment().by_slot();
                let names: Vec<_> = held[&slot].iter().map(JobName::as_str).collect();
                let report = failing(&names, FailingState::Restarting, 9);
                failover.observe(&desired, &ledger, [(slot, &report)], Duration::ZERO);
            }
            assert_eq!(failover.relocations().len(), most);
        }
    }
}
