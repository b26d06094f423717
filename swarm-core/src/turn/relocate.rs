//! Places jobs that failed on some workers on others.
//!
//! The plan for all other jobs counts such a job at its home, where the job first failed. So the
//! others stay where they are. Then the job gets the emptiest worker that has room and on which it
//! has not failed. Without such a worker the job stays.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Assignment, Job, JobName, Jobs, Move, MoveReason, Plan, Pool, Relocation, Request, Slot,
    Standing,
};

/// Returns the assignment from which the plan for the other jobs starts: each relocated job is at
/// its home, if the worker there takes jobs. O(jobs) if any job is relocated.
pub(super) fn homes<'a>(
    held: &'a Assignment,
    jobs: &Jobs,
    pool: &Pool,
    relocations: &BTreeMap<JobName, Relocation>,
) -> Cow<'a, Assignment> {
    if relocations.is_empty() {
        return Cow::Borrowed(held);
    }
    let mut homes: BTreeMap<_, _> = held.iter().map(|(job, slot)| (job.clone(), slot)).collect();
    for (name, relocation) in relocations {
        let is_kept =
            held.holder(name).and_then(|slot| pool.standing(slot)) == Some(Standing::Keeps);
        let counts = jobs.get(name).is_some_and(|job| job.pin.is_none()) && !is_kept;
        if counts && takes(pool, relocation.home) {
            homes.insert(name.clone(), relocation.home);
        }
    }
    Cow::Owned(homes.into_iter().collect())
}

/// Relocates jobs in the plan that starts at their [`homes`]. `held` has their actual holders, and
/// `is_leaving` returns whether a job is being released already. The others move within the budget.
///
/// O(jobs + relocations · log workers) if any job is relocated. The number of percent and of the
/// workers that a job avoids are factors of each relocation.
pub(super) fn apply(
    request: &Request<'_>,
    held: &Assignment,
    is_leaving: impl Fn(&JobName) -> bool,
    relocations: &BTreeMap<JobName, Relocation>,
    mut plan: Plan,
) -> Plan {
    if relocations.is_empty() {
        return plan;
    }
    let (pool, mut room) = (request.pool, Room::of(request, &plan));
    let voluntary = [MoveReason::Balance, MoveReason::NotReady];
    let made = plan.moves.iter().filter(|step| voluntary.contains(&step.reason)).count();
    let mut budget = request.rules.moves_max.map(|most| most.saturating_sub(made));
    let steps = std::mem::take(&mut plan.moves).into_iter();
    let mut moves: BTreeMap<_, _> = steps.map(|step| (step.job.clone(), step)).collect();
    for (name, relocation) in relocations {
        let wish = request.jobs.get(name).filter(|job| job.pin.is_none());
        let Some(job) = wish else { continue };
        let holder = held.holder(name);
        plan.deferred.remove(name);
        let Some(planned) = plan.assignment.holder(name) else {
            record(&mut moves, name, [holder, None], false);
            continue;
        };
        if holder.and_then(|slot| pool.standing(slot)) == Some(Standing::Keeps) {
            continue;
        }
        let fits = |slot: &Slot| *slot == planned || room.fits(job, *slot);
        let present = holder.filter(fits);
        let avoids = |slot: &Slot| relocation.failed_on.contains(slot);
        let is_free = is_leaving(name) || present.is_none();
        let may_move = is_free || budget.is_none_or(|left| 0 < left);
        let target = present
            .filter(|slot| !avoids(slot))
            .or_else(|| Some(planned).filter(|slot| !avoids(slot)))
            .or_else(|| room.emptiest(job, avoids))
            .filter(|target| may_move || present == Some(*target))
            .or(present)
            .unwrap_or(planned);
        if !is_free && present != Some(target) {
            budget = budget.map(|left| left.saturating_sub(1));
        }
        // The room at its planned worker stays reserved. Otherwise the next plan might displace
        // the job that gets it.
        if target != planned {
            room.give(job, target);
        }
        let failed_here = holder.is_some_and(|slot| avoids(&slot));
        plan.assignment.insert(name.clone(), target);
        record(&mut moves, name, [holder, Some(target)], failed_here);
    }
    plan.moves = moves.into_values().collect();
    plan
}

/// Returns the number of `moving` jobs that leave their holders although `plan`, which starts at
/// their [`homes`], does not move them. Each takes a part of the budget.
pub(super) fn leaving_beside(plan: &Plan, moving: &[&JobName]) -> usize {
    let planned: BTreeSet<_> = plan.moves.iter().map(|step| &step.job).collect();
    moving.iter().filter(|job| !planned.contains(*job)).count()
}

/// Replaces the planned move of a job.
fn record(
    moves: &mut BTreeMap<JobName, Move>,
    name: &JobName,
    [from, to]: [Option<Slot>; 2],
    failed_here: bool,
) {
    let planned = moves.remove(name).map(|step| step.reason);
    if from == to {
        return;
    }
    let reason = match (failed_here, planned) {
        (true, _) => MoveReason::Failing,
        (false, Some(reason)) => reason,
        (false, None) => MoveReason::New,
    };
    moves.insert(name.clone(), Move { job: name.clone(), from, to, reason });
}

fn takes(pool: &Pool, slot: Slot) -> bool {
    pool.standing(slot) == Some(Standing::Takes)
}

/// The room of the workers that take jobs.
struct Room<'a> {
    pool: &'a Pool,
    /// The number of jobs, and their reserved part in percent.
    used: BTreeMap<Slot, (u32, u32)>,
    /// The workers that are not full, with their numbers of jobs, by their unreserved percent.
    by_rest: BTreeMap<u32, BTreeSet<(u32, Slot)>>,
}

impl<'a> Room<'a> {
    fn of(request: &Request<'a>, plan: &Plan) -> Self {
        let used = request.pool.takers().into_iter().map(|slot| (slot, (0, 0))).collect();
        let mut room = Self { pool: request.pool, used, by_rest: BTreeMap::new() };
        for (name, slot) in plan.assignment.iter() {
            if let Some(job) = request.jobs.get(name) {
                room.add(job, slot);
            }
        }
        for slot in room.used.keys() {
            if let Some(rest) = room.rest(*slot) {
                room.by_rest.entry(rest).or_default().insert((room.used[slot].0, *slot));
            }
        }
        room
    }

    fn add(&mut self, job: &Job, slot: Slot) {
        if let Some((jobs, reserved)) = self.used.get_mut(&slot) {
            *jobs = jobs.saturating_add(1);
            *reserved = reserved.saturating_add(percent(job));
        }
    }

    /// Gives a job to a worker. O(log workers).
    fn give(&mut self, job: &Job, slot: Slot) {
        let place = |room: &Self| Some((room.rest(slot)?, (room.used.get(&slot)?.0, slot)));
        if let Some((rest, entry)) = place(self) {
            self.by_rest.entry(rest).or_default().remove(&entry);
        }
        self.add(job, slot);
        if let Some((rest, entry)) = place(self) {
            self.by_rest.entry(rest).or_default().insert(entry);
        }
    }

    /// Returns the unreserved percent of a worker; `None` if it takes no further job.
    fn rest(&self, slot: Slot) -> Option<u32> {
        let ((jobs, reserved), member) = (self.used.get(&slot)?, self.pool.0.get(&slot)?);
        let capacity = member.capacity.map_or(100, |share| u32::from(share.percent()));
        let rest = capacity.checked_sub(*reserved).filter(|rest| 0 < *rest);
        rest.filter(|_| member.max_jobs.is_none_or(|most| *jobs < most))
    }

    /// Returns whether a worker takes jobs and has room for this one. A job without a share uses
    /// unreserved parts.
    fn fits(&self, job: &Job, slot: Slot) -> bool {
        self.rest(slot).is_some_and(|rest| percent(job) <= rest)
    }

    /// Returns the worker with the fewest jobs that has room and that the job does not avoid.
    /// O(100 · (log workers + avoided workers)).
    fn emptiest(&self, job: &Job, avoids: impl Fn(&Slot) -> bool) -> Option<Slot> {
        let other = |workers: &BTreeSet<(u32, Slot)>| {
            workers.iter().find(|(_, slot)| !avoids(slot)).copied()
        };
        let others = self.by_rest.range(percent(job)..).filter_map(|(_, workers)| other(workers));
        others.min().map(|(_, slot)| slot)
    }
}

fn percent(job: &Job) -> u32 {
    job.share.map_or(0, |share| u32::from(share.percent()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Member, Rules, Share};

    const WORKERS: u32 = 4;

    fn name(n: usize) -> JobName {
        format!("j{n:02}").parse().unwrap()
    }

    /// Plans jobs at these holders, with these relocations.
    fn planned(
        jobs: &Jobs,
        held: &Assignment,
        pool: &Pool,
        rules: Rules,
        relocations: &BTreeMap<JobName, Relocation>,
    ) -> Plan {
        let homes = homes(held, jobs, pool, relocations);
        let request = Request { jobs, held: &homes, pool, rules };
        let plan = request.plan();
        apply(&request, held, |_| false, relocations, plan)
    }

    fn relocation(home: u32, failed_on: &[u32]) -> Relocation {
        Relocation { home: Slot(home), failed_on: failed_on.iter().copied().map(Slot).collect() }
    }

    #[test]
    fn a_failing_job_gets_another_worker_and_no_other_job_moves() {
        let jobs: Jobs = (0..8).map(|n| (name(n), Job::default())).collect();
        let pool = Pool::ready(WORKERS);
        let rules = Rules::default();
        let even = planned(&jobs, &Assignment::default(), &pool, rules, &BTreeMap::new());
        let held = even.assignment;
        let home = held.holder(&name(0)).unwrap();
        let mut failed = vec![home.0];
        let mut now = held.clone();
        for _ in 1..WORKERS {
            let relocations = [(name(0), relocation(home.0, &failed))].into();
            let plan = planned(&jobs, &now, &pool, rules, &relocations);
            assert_eq!(plan.moves.len(), 1, "{:?}", plan.moves);
            assert_eq!(plan.moves[0].reason, MoveReason::Failing);
            let to = plan.assignment.holder(&name(0)).unwrap();
            assert!(!failed.contains(&to.0), "slot {to} failed already: {failed:?}");
            failed.push(to.0);
            now = plan.assignment;
            assert_eq!(planned(&jobs, &now, &pool, rules, &relocations).moves, []);
        }
        // The job has failed everywhere, and stays where it is.
        let relocations = [(name(0), relocation(home.0, &failed))].into();
        assert_eq!(planned(&jobs, &now, &pool, rules, &relocations).moves, []);
    }

    #[test]
    fn a_relocated_job_that_is_leaving_anyway_leaves_the_budget_to_another_one() {
        let jobs: Jobs = (0..2).map(|n| (name(n), Job::default())).collect();
        let held: Assignment = (0..2).map(|n| (name(n as usize), Slot(n))).collect();
        let relocations = [0, 1].map(|n| (name(n as usize), relocation(n, &[n])));
        let rules = Rules { moves_max: Some(1), ..Rules::default() };
        let pool = Pool::ready(WORKERS);
        let request = Request { jobs: &jobs, held: &held, pool: &pool, rules };
        let moves = |leaving: Option<JobName>| {
            let is_leaving = |job: &JobName| leaving.as_ref() == Some(job);
            apply(&request, &held, is_leaving, &relocations.clone().into(), request.plan())
                .moves
                .len()
        };
        assert_eq!((moves(None), moves(Some(name(0)))), (1, 2));
    }

    fn any_job() -> impl Strategy<Value = Job> {
        let share =
            prop_oneof![3 => Just(None), 1 => (1..=100_u8).prop_map(|it| Share::new(it).ok())];
        let pin = prop_oneof![6 => Just(None), 1 => (0..WORKERS).prop_map(|it| Some(Slot(it)))];
        (share, pin).prop_map(|(share, pin)| Job { pin, share, ..Job::default() })
    }

    fn any_pool() -> impl Strategy<Value = Pool> {
        let standing = prop_oneof![4 => Just(Standing::Takes), 1 => Just(Standing::Keeps)];
        let member = (standing, prop::option::weighted(0.5, 0..6_u32))
            .prop_map(|(standing, max)| Member { max_jobs: max, ..Member::new("w", standing) });
        let members = prop::collection::vec(member, 1..=WORKERS as usize);
        members.prop_map(|it| Pool((0..).map(Slot).zip(it).collect()))
    }

    fn any_relocations() -> impl Strategy<Value = BTreeMap<JobName, Relocation>> {
        let failed_on = prop::collection::btree_set((0..WORKERS).prop_map(Slot), 1..=3);
        let relocation = ((0..WORKERS).prop_map(Slot), failed_on)
            .prop_map(|(home, failed_on)| Relocation { home, failed_on });
        prop::collection::btree_map((0..12_usize).prop_map(name), relocation, 0..4)
    }

    /// Returns the number of jobs and the reserved part of each worker.
    fn loads(jobs: &Jobs, assignment: &Assignment) -> BTreeMap<Slot, (u32, u32)> {
        let mut loads = BTreeMap::<_, (u32, u32)>::new();
        for (job, slot) in assignment.iter() {
            let load = loads.entry(slot).or_default();
            *load = (load.0 + 1, load.1 + percent(&jobs[job]));
        }
        loads
    }

    proptest! {
        #[test]
        fn relocations_concern_the_failing_jobs_alone(
            jobs in prop::collection::vec(any_job(), 0..12),
            pool in any_pool(),
            holders in prop::collection::vec(prop::option::of((0..WORKERS).prop_map(Slot)), 12),
            relocations in any_relocations(),
            moves_max in prop::option::of(0..3_usize),
        ) {
            let jobs: Jobs = jobs.into_iter().enumerate().map(|(n, job)| (name(n), job)).collect();
            let held = jobs.keys().zip(holders).filter_map(|(job, slot)| Some((job.clone(), slot?)));
            let held: Assignment = held.collect();
            let rules = Rules { moves_max, ..Rules::default() };
            let homes = homes(&held, &jobs, &pool, &relocations);
            let request = Request { jobs: &jobs, held: &homes, pool: &pool, rules };
            let base = request.plan();
            let plan = apply(&request, &held, |_| false, &relocations, base.clone());

            let relocated: BTreeSet<_> = relocations.keys().collect();
            prop_assert_eq!(&plan.unassigned, &base.unassigned);
            for job in base.unassigned.keys() {
                let step = plan.moves.iter().find(|it| it.job == *job);
                prop_assert_eq!(step.and_then(|it| it.from), held.holder(job));
            }
            for (job, slot) in base.assignment.iter() {
                let now = plan.assignment.holder(job);
                if !relocated.contains(job) {
                    prop_assert_eq!(now, Some(slot), "{} moves", job);
                }
                let (from, step) = (held.holder(job), plan.moves.iter().find(|it| it.job == *job));
                prop_assert_eq!(step.map(|it| (it.from, it.to)), (from != now).then_some((from, now)));
                if step.is_some_and(|it| it.reason == MoveReason::Failing) {
                    let relocation = &relocations[job];
                    prop_assert!(relocation.failed_on.contains(&from.unwrap()));
                }
            }
            // No worker is fuller than without relocations, or than it may be.
            let (before, after) = (loads(&jobs, &base.assignment), loads(&jobs, &plan.assignment));
            for (slot, load) in after {
                let before = before.get(&slot).copied().unwrap_or_default();
                let Some(member) = pool.0.get(&slot) else { continue };
                prop_assert!(load.0 <= before.0 || member.max_jobs.is_none_or(|most| load.0 <= most));
                prop_assert!(load.1 <= before.1.max(100));
            }
            // With a budget the next plan goes on; without one nothing is left to do. A job whose
            // home no longer takes jobs counts where it is, so others may follow.
            let have_homes = relocations.values().all(|it| takes(&pool, it.home));
            if moves_max.is_none() && have_homes {
                let again = planned(&jobs, &plan.assignment, &pool, rules, &relocations);
                prop_assert_eq!(again.moves, []);
            }
        }
    }
}
