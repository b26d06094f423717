//! Counts the room of jobs that a worker has not released in time.
//!
//! A plan leaves out jobs that are being released, since their room is free in a moment. A worker
//! may renew its Lease and release nothing. Under `Exclusive` it keeps the room of such a job for
//! ever, and a grant to it would wait for ever beside a worker that is free. So after
//! [`release_timeout`](crate::Timing::release_timeout) the plan counts that room as taken.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::{Desired, Observed};
use crate::handover::room::{Load, WHOLE};
use crate::handover::{Cell, Policy, SessionId};
use crate::{JobName, Ledger, Member, Pool, Share, Slot};

/// Returns `pool` without the room that overdue jobs take. A worker keeps at least the room of the
/// jobs that it holds, so that none of these moves for this reason. O(jobs · log jobs) if a job is
/// overdue, else O(jobs · log workers).
pub(super) fn without_their_room<'a>(
    pool: &'a Pool,
    ledger: &Ledger,
    desired: &Desired,
    observed: &Observed,
) -> Cow<'a, Pool> {
    let overdue = overdue(ledger, desired, observed);
    if overdue.is_empty() {
        return Cow::Borrowed(pool);
    }
    let has_shares =
        ledger.cells.has_shares || desired.jobs.values().any(|job| job.share.is_some());
    let mut taken = BTreeMap::<Slot, Load>::new();
    for (slot, jobs) in overdue {
        for job in jobs {
            let wanted = desired.jobs.get(job);
            let load = taken.entry(slot).or_default();
            *load = load.with(wanted.and_then(|job| job.share), wanted.is_none());
        }
    }
    let present = present(observed);
    let mut held = BTreeMap::<Slot, Load>::new();
    for (job, record) in &ledger.cells.jobs {
        let Cell::Granted { session, .. } = &record.cell else { continue };
        let Some(slot) = present.get(session).filter(|slot| taken.contains_key(slot)) else {
            continue;
        };
        let load = held.entry(*slot).or_default();
        *load = load.with(desired.jobs.get(job).and_then(|job| job.share), false);
    }
    let mut pool = pool.clone();
    for (slot, taken) in taken {
        if let Some(member) = pool.0.get_mut(&slot) {
            lessen(member, taken, held.get(&slot).copied().unwrap_or_default(), has_shares);
        }
    }
    Cow::Owned(pool)
}

/// Returns the jobs that a present session keeps for at least the timeout, by its slot. There are
/// none under `AtLeastOnce`, where the job is free then. O(jobs · log workers).
pub(crate) fn overdue<'a>(
    ledger: &'a Ledger,
    desired: &Desired,
    observed: &Observed,
) -> BTreeMap<Slot, Vec<&'a JobName>> {
    let mut found = BTreeMap::<_, Vec<_>>::new();
    if desired.policy == Policy::AtLeastOnce {
        return found;
    }
    let present = present(observed);
    let timeout = desired.timing.release_timeout;
    for (job, record) in &ledger.cells.jobs {
        let Cell::Releasing { session, .. } = &record.cell else { continue };
        let is_late = observed.ages.get(job).is_some_and(|age| timeout <= *age);
        if let Some(slot) = present.get(session).filter(|_| is_late) {
            found.entry(*slot).or_default().push(job);
        }
    }
    found
}

fn present(observed: &Observed) -> BTreeMap<&SessionId, Slot> {
    let sessions = observed.workers.iter();
    sessions.filter_map(|(slot, seen)| Some((seen.session.as_ref()?, *slot))).collect()
}

/// Takes the room of some jobs from a worker, as far as the jobs that it holds leave room.
fn lessen(member: &mut Member, taken: Load, held: Load, has_shares: bool) {
    let most = member.max_jobs.map(|most| most.saturating_sub(taken.jobs).max(held.jobs));
    member.max_jobs = most;
    if !has_shares {
        return;
    }
    let whole = member.capacity.map_or(WHOLE, |share| u32::from(share.percent()));
    let left = whole.saturating_sub(taken.percent);
    let left = if taken.has_others { left.min(WHOLE - 1) } else { left };
    if left == 0 {
        member.max_jobs = Some(held.jobs);
    }
    let capacity = u8::try_from(left.max(held.percent)).ok().and_then(|left| Share::new(left).ok());
    member.capacity = capacity.or(member.capacity);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{WorkerSeen, decide};
    use super::*;
    use crate::handover::Evidence;
    use crate::{Job, Presence, Timing};

    /// Returns an observation of two workers. Worker 0 acknowledged nothing after `acked`. Each job
    /// has waited this long.
    fn seen(ledger: &Ledger, acked: u64, waited: Duration) -> Observed {
        let id = |n: u32| SessionId::new(&format!("pod-{n}"), 1);
        let worker =
            |n: u32| (Slot(n), WorkerSeen::new(format!("w-{n}"), Presence::Ready, Some(id(n))));
        let positions = (0 < ledger.revision()).then(|| ledger.position());
        let mut seen = Observed::new([0, 1].map(worker), 1, positions);
        for (n, acked) in [(0, acked), (1, ledger.revision())] {
            let evidence = Evidence { acked, ..Evidence::default() };
            seen.evidence.insert(id(n), evidence);
        }
        seen.ages = ledger.cells.jobs.keys().map(|job| (job.clone(), waited)).collect();
        seen
    }

    /// Returns the names among 40 that wait at rest, although worker 1 is free. Worker 0 had one of
    /// these jobs, which was removed, and never releases it.
    fn waiting(job: &Job, max_jobs: Option<u32>, waited: Duration) -> usize {
        let timing = Timing { initial_wait: Duration::ZERO, ..Timing::default() };
        let policy = Policy::Exclusive;
        let mut desired = Desired { max_jobs, timing, policy, ..Desired::default() };
        let waits = |name: JobName| {
            desired.jobs =
                [("old".parse().unwrap(), Job { pin: Some(Slot(0)), ..job.clone() })].into();
            let mut ledger = Ledger::new(1);
            ledger = decide(&ledger, &desired, &seen(&ledger, 0, waited)).ledger;
            let acked = ledger.revision();
            desired.jobs = [(name.clone(), job.clone())].into();
            for _ in 0..9 {
                ledger = decide(&ledger, &desired, &seen(&ledger, acked, waited)).ledger;
            }
            !matches!(ledger.cells.jobs[&name].cell, Cell::Granted { .. })
        };
        (0..40)
            .map(|n| format!("new-{n}").parse().unwrap())
            .map(waits)
            .filter(|waits| *waits)
            .count()
    }

    #[test]
    fn a_job_goes_to_a_free_worker_once_another_one_has_not_released_in_time() {
        let timeout = Timing::default().release_timeout;
        let half = Job { share: Share::new(60).ok(), ..Job::default() };
        for (job, max_jobs) in [(&Job::default(), Some(1)), (&half, None), (&half, Some(3))] {
            assert_eq!(waiting(job, max_jobs, timeout), 0, "{job:?} {max_jobs:?}");
            let before = waiting(job, max_jobs, timeout.saturating_sub(Duration::from_millis(1)));
            assert!(0 < before, "until then the room is expected to be free in a moment");
        }
        assert_eq!(waiting(&Job::default(), None, timeout), 0);
    }

    #[test]
    fn a_worker_keeps_room_for_the_jobs_that_it_holds() {
        let (one, two) = (
            Load { jobs: 1, percent: 60, has_others: false },
            Load { jobs: 2, percent: 50, has_others: true },
        );
        let member = |max_jobs| Member { max_jobs, ..Member::new("w", crate::Standing::Takes) };
        let lessened = |max_jobs, has_shares| {
            let mut member = member(max_jobs);
            lessen(&mut member, one, two, has_shares);
            (member.max_jobs, member.capacity.map(Share::percent))
        };
        assert_eq!(lessened(None, false), (None, None));
        assert_eq!(lessened(Some(2), false), (Some(2), None));
        assert_eq!(lessened(Some(4), true), (Some(3), Some(50)));
        // A removed job may have had the whole worker.
        let mut full = member(None);
        lessen(&mut full, Load { percent: WHOLE, ..one }, two, true);
        assert_eq!((full.max_jobs, full.capacity.map(Share::percent)), (Some(2), Some(50)));
    }
}
