//! Counts the room of jobs that a worker has not released in time.
//!
//! A plan leaves out jobs that are being released, since their room is free in a moment. A worker
//! may renew its Lease and release nothing. Under `Exclusive` it keeps the room of such a job for
//! ever, and a grant to it would wait for ever beside a worker that is free. So after
//! [`release_timeout`](crate::Timing::release_timeout) the plan counts that room as taken.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Desired, Observed};
use crate::handover::room::{Load, WHOLE};
use crate::handover::{Cell, Policy, SessionId};
use crate::{
    JobName, Jobs, Ledger, Member, Mode, Plan, Pool, Request, Share, Slot, Standing, Unassigned,
};

/// Returns `pool` without the room that overdue jobs take. A worker keeps at least the room of the
/// jobs that it holds, so that none of these moves for this reason. A canonical plan does not see
/// who holds a job, so there these jobs are pinned. O(jobs · log jobs) if a job is overdue, else
/// O(jobs · log workers).
pub(super) fn without_their_room<'a>(
    pool: &'a Pool,
    jobs: &'a Jobs,
    ledger: &Ledger,
    desired: &Desired,
    observed: &Observed,
) -> (Cow<'a, Pool>, Cow<'a, Jobs>) {
    let (mut pool, mut jobs) = (Cow::Borrowed(pool), Cow::Borrowed(jobs));
    let overdue = overdue(ledger, desired, observed);
    if overdue.is_empty() {
        return (pool, jobs);
    }
    let has_shares =
        ledger.cells.has_shares || desired.jobs.values().any(|job| job.share.is_some());
    let is_bounded = |slot: &Slot| {
        has_shares || pool.0.get(slot).is_some_and(|member| member.max_jobs.is_some())
    };
    let mut rooms = BTreeMap::<Slot, Room>::new();
    for (slot, late) in overdue.into_iter().filter(|(slot, _)| is_bounded(slot)) {
        let room = rooms.entry(slot).or_default();
        for job in late {
            let wanted = desired.jobs.get(job);
            room.taken = room.taken.with(wanted.and_then(|job| job.share), wanted.is_none());
        }
    }
    if rooms.is_empty() {
        return (pool, jobs);
    }
    let present = present(observed);
    for (name, record) in &ledger.cells.jobs {
        let Cell::Granted { session, .. } = &record.cell else { continue };
        let Some(slot) = present.get(session) else { continue };
        let Some(room) = rooms.get_mut(slot) else { continue };
        let wanted = jobs.get(name);
        room.held = room.held.with(wanted.and_then(|job| job.share), false);
        let stays = desired.rules.mode == Mode::Canonical
            && pool.standing(*slot) == Some(Standing::Takes)
            && wanted.is_some_and(|job| job.pin.is_none());
        if stays {
            if let Some(job) = jobs.to_mut().get_mut(name) {
                job.pin = Some(*slot);
            }
        }
    }
    for (slot, Room { taken, held }) in rooms {
        if let Some(member) = pool.to_mut().0.get_mut(&slot) {
            lessen(member, taken, held, has_shares);
        }
    }
    (pool, jobs)
}

/// The room that the overdue jobs of a worker take, and the jobs that it holds.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    taken: Load,
    held: Load,
}

/// Returns the jobs that a present session keeps for at least the timeout, by its slot.
/// O(jobs · log workers).
pub(crate) fn overdue<'a>(
    ledger: &'a Ledger,
    desired: &'a Desired,
    observed: &'a Observed,
) -> BTreeMap<Slot, Vec<&'a JobName>> {
    let present = present(observed);
    let mut found = BTreeMap::<_, Vec<_>>::new();
    for (job, session) in late(ledger, desired, &observed.ages) {
        if let Some(slot) = present.get(session) {
            found.entry(*slot).or_default().push(job);
        }
    }
    found
}

/// Returns a plan in which jobs that are not released in time leave their room to jobs that would
/// wait for it. They are planned again when they are released. O(plan) if such a job exists.
pub(super) fn give_way(
    request: &Request<'_>,
    late: &BTreeSet<&JobName>,
    plan: impl Fn(&Request<'_>) -> Plan,
) -> Plan {
    let all = plan(request);
    let is_waiting = |job: &&JobName| !late.contains(job);
    let waiting = |plan: &Plan| plan.unassigned.keys().filter(is_waiting).count();
    if late.is_empty() || waiting(&all) == 0 {
        return all;
    }
    let mut jobs = request.jobs.clone();
    jobs.retain(|name, _| !late.contains(name));
    let mut without = plan(&Request { jobs: &jobs, ..*request });
    if waiting(&all) <= waiting(&without) {
        return all;
    }
    let wanted = late.iter().filter(|job| request.jobs.contains_key(**job));
    without.unassigned.extend(wanted.map(|job| ((*job).clone(), Unassigned::Capacity)));
    without
}

/// Returns the jobs that a session keeps for at least the timeout, each with the session. There
/// are none under `AtLeastOnce`, where such a job is free.
pub(super) fn late<'a>(
    ledger: &'a Ledger,
    desired: &'a Desired,
    ages: &'a BTreeMap<JobName, Duration>,
) -> impl Iterator<Item = (&'a JobName, &'a SessionId)> {
    let is_kept = desired.policy != Policy::AtLeastOnce;
    let timeout = desired.timing.release_timeout;
    ledger.cells.jobs.iter().filter(move |_| is_kept).filter_map(move |(job, record)| {
        let Cell::Releasing { session, .. } = &record.cell else { return None };
        ages.get(job).is_some_and(|age| timeout <= *age).then_some((job, session))
    })
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

    /// Returns whether a new job gets the place on worker 1 that a job waits for, which worker 0 has
    /// not released for this long.
    fn gets_the_place_of(late: &Job, new: &Job, waited: Duration) -> bool {
        let timing = Timing { initial_wait: Duration::ZERO, ..Timing::default() };
        let policy = Policy::Exclusive;
        let mut desired = Desired { max_jobs: Some(1), timing, policy, ..Desired::default() };
        let name = |name: &str| name.parse::<JobName>().unwrap();
        desired.jobs = [(name("late"), Job { pin: Some(Slot(0)), ..late.clone() })].into();
        let mut ledger = Ledger::new(1);
        ledger = decide(&ledger, &desired, &seen(&ledger, 0, waited)).ledger;
        let acked = ledger.revision();
        desired.jobs = [(name("late"), late.clone())].into();
        let turn = |ledger: &Ledger, desired: &Desired| {
            let mut seen = seen(ledger, acked, waited);
            seen.workers.get_mut(&Slot(0)).unwrap().presence = Presence::Draining;
            decide(ledger, desired, &seen).ledger
        };
        ledger = turn(&ledger, &desired);
        assert!(matches!(ledger.cells.jobs[&name("late")].cell, Cell::Releasing { .. }));
        desired.jobs.insert(name("new"), new.clone());
        for _ in 0..9 {
            ledger = turn(&ledger, &desired);
        }
        matches!(ledger.cells.jobs[&name("new")].cell, Cell::Granted { .. })
    }

    #[test]
    fn a_job_that_is_not_released_in_time_keeps_no_place_elsewhere() {
        let timeout = Timing::default().release_timeout;
        let some = Job::default();
        let important = Job { priority: 1, ..Job::default() };
        let pinned = Job { pin: Some(Slot(1)), ..Job::default() };
        let half = Job { share: Share::new(60).ok(), ..Job::default() };
        for (late, new) in
            [(&some, &important), (&important, &some), (&pinned, &some), (&half, &some)]
        {
            assert!(gets_the_place_of(late, new, timeout), "{late:?} {new:?}");
        }
        assert!(!gets_the_place_of(&important, &some, Duration::ZERO), "it may come in a moment");
    }

    #[test]
    fn a_job_that_is_not_released_in_time_uses_no_budget() {
        let timing = Timing { initial_wait: Duration::ZERO, ..Timing::default() };
        let mut desired = Desired { timing, policy: Policy::Exclusive, ..Desired::default() };
        desired.rules.moves_max = Some(1);
        let name = |name: &str| name.parse::<JobName>().unwrap();
        let first = Job { pin: Some(Slot(0)), ..Job::default() };
        desired.jobs = [(name("old"), first)].into();
        let ledger = Ledger::new(1);
        let ledger = decide(&ledger, &desired, &seen(&ledger, 0, Duration::ZERO)).ledger;
        let acked = ledger.revision();
        desired.jobs = ["a", "b", "c"].map(|job| (name(job), Job::default())).into();
        let mut drained = seen(&ledger, acked, Duration::ZERO);
        drained.workers.get_mut(&Slot(0)).unwrap().presence = Presence::Draining;
        let ledger = decide(&ledger, &desired, &drained).ledger;
        let begun = |waited| {
            let ledger = decide(&ledger, &desired, &seen(&ledger, acked, waited)).ledger;
            ledger.cells.jobs.values().filter(|record| super::super::is_moving(record)).count() - 1
        };
        let timeout = desired.timing.release_timeout;
        assert_eq!((begun(Duration::ZERO), begun(timeout)), (0, 1));
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
