//! An independent checker of a plan as an answer to a request.
//!
//! The checker shares no code with the planner and asks other questions: not "is this the quota"
//! but "would another place be better for some job". Tests use it, and so does
//! [`decide`](crate::decide) in debug builds. It does not check the number of moves, for which
//! [`minimum_moves`](super::minimum_moves) has a formula.

use std::collections::BTreeMap;

use super::{Mode, MoveReason, Plan, Request, Unassigned};
use crate::{Job, JobName, Slot, Standing};

/// A rule that a plan breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A job is neither assigned nor unassigned, or both.
    #[error("job `{0}` does not occur in the plan exactly once")]
    NotOnce(JobName),
    /// The plan contains a job that is not wanted.
    #[error("job `{0}` is in the plan and is not wanted")]
    NotWanted(JobName),
    /// A job is assigned to a worker that may not have it.
    #[error("job `{0}` may not be assigned to slot {1}")]
    Misplaced(JobName, Slot),
    /// A job has no holder although it could have one, or its reason is wrong.
    #[error("job `{0}` is unassigned with the reason `{reason}`, which does not hold", reason = .1.as_str())]
    Unfounded(JobName, Unassigned),
    /// A worker has more jobs than it may have.
    #[error("slot {0} has more jobs than it may have")]
    Overfull(Slot),
    /// A job is unassigned although a less important one is assigned.
    #[error("job `{0}` is unassigned while the less important `{1}` is assigned")]
    Outranked(JobName, JobName),
    /// A job could move from one worker to another that has at least two fewer.
    #[error("slot {0} could give a job to slot {1}")]
    Uneven(Slot, Slot),
    /// The moves differ from the change of holders, or a reason is wrong.
    #[error("the move of job `{0}` is missing, wrong, or has the wrong reason")]
    WrongMove(JobName),
    /// The plan makes more voluntary moves than the budget allows.
    #[error("{made} voluntary moves exceed the budget of {budget}")]
    OverBudget {
        /// The number of voluntary moves in the plan.
        made: usize,
        /// The budget.
        budget: usize,
    },
}

/// Checks `plan` as an answer to `request`; the error is the first rule that it violates.
///
/// # Errors
///
/// The [`Violation`]. It indicates a defect of the planner, never of the input.
///
/// Time: O(jobs · log jobs + workers), and O(workers) more for each distinct wish of the unassigned
/// jobs with a share.
///
/// ```
/// use swarm_core::{Assignment, Pool, Request, Rules, Slot, Violation, check, jobs};
///
/// let (jobs, held, pool) = (jobs(["a", "b"])?, Assignment::default(), Pool::ready(2));
/// let request = Request { jobs: &jobs, held: &held, pool: &pool, rules: Rules::default() };
/// let mut plan = request.plan();
/// assert_eq!(check(&request, &plan), Ok(()));
///
/// plan.assignment = jobs.keys().map(|job| (job.clone(), Slot(0))).collect();
/// assert!(check(&request, &plan).is_err()); // two jobs on one worker, none on the other
/// # Ok::<(), swarm_core::JobsError>(())
/// ```
pub fn check(request: &Request<'_>, plan: &Plan) -> Result<(), Violation> {
    each_once(request, plan)?;
    let seats = Seats::of(request, plan)?;
    seats.nobody_is_overfull(request)?;
    seats.reasons_hold(request, plan)?;
    seats.the_least_important_stay_out(request, plan)?;
    moves_are_the_difference(request, plan)?;
    within_budget(request, plan)?;
    seats.flat(request, plan)
}

fn each_once(request: &Request<'_>, plan: &Plan) -> Result<(), Violation> {
    let planned = plan.assignment.iter().map(|(job, _)| job).chain(plan.unassigned.keys());
    if let Some(job) = planned.into_iter().find(|job| !request.jobs.contains_key(*job)) {
        return Err(Violation::NotWanted(job.clone()));
    }
    let once =
        |job: &JobName| plan.assignment.holder(job).is_some() != plan.unassigned.contains_key(job);
    request
        .jobs
        .keys()
        .find(|job| !once(job))
        .map_or(Ok(()), |job| Err(Violation::NotOnce(job.clone())))
}

/// The jobs of the workers that take jobs, according to the plan.
struct Seats<'a> {
    /// The jobs with a share, by slot.
    reserved: BTreeMap<Slot, Vec<&'a Job>>,
    /// The pinned jobs and the other jobs without a share, by slot.
    jobs: BTreeMap<Slot, [Vec<&'a JobName>; 2]>,
    has_room: bool,
}

impl<'a> Seats<'a> {
    /// Seats every assigned job, and checks that it may be in its place.
    fn of(request: &Request<'a>, plan: &'a Plan) -> Result<Self, Violation> {
        let takers = request.pool.takers().into_iter();
        let mut jobs: BTreeMap<_, _> = takers.map(|slot| (slot, [vec![], vec![]])).collect();
        let mut reserved = BTreeMap::new();
        for (job, slot) in plan.assignment.iter() {
            let misplaced = || Violation::Misplaced(job.clone(), slot);
            if request.jobs.get(job).is_some_and(|job| job.suspend) {
                return Err(misplaced());
            }
            let held = request.held.holder(job);
            let is_kept = |slot| request.pool.standing(slot) == Some(Standing::Keeps);
            if held.is_some_and(is_kept) || is_kept(slot) {
                if held != Some(slot) {
                    return Err(misplaced());
                }
                continue;
            }
            let pin = request.jobs.get(job).and_then(|job| job.pin);
            if pin.is_some_and(|pin| pin != slot) {
                return Err(misplaced());
            }
            let seats = jobs.get_mut(&slot).ok_or_else(misplaced)?;
            if let Some(wish) = request.jobs.get(job).filter(|job| job.share.is_some()) {
                let reserved: &mut Vec<_> = reserved.entry(slot).or_default();
                reserved.push(wish);
                continue;
            }
            seats[usize::from(pin.is_none())].push(job);
        }
        let mut seats = Self { reserved, jobs, has_room: false };
        seats.has_room =
            seats.jobs.keys().any(|slot| seats.load(*slot) < seats.max(request, *slot));
        Ok(seats)
    }

    fn load(&self, slot: Slot) -> usize {
        self.jobs.get(&slot).map_or(0, |[pinned, free]| pinned.len() + free.len())
    }

    /// Returns the largest number of jobs without a share for a worker: 0 if it is fully reserved.
    fn max(&self, request: &Request<'_>, slot: Slot) -> usize {
        let jobs = self.reserved.get(&slot).map_or(0, Vec::len);
        let left = max(request, slot).saturating_sub(jobs);
        if self.percent(slot) == size(request, slot) { 0 } else { left }
    }

    /// Returns the reserved part of a worker, in percent.
    fn percent(&self, slot: Slot) -> usize {
        let shares = self.reserved.get(&slot).into_iter().flatten().filter_map(|job| job.share);
        shares.map(|share| usize::from(share.percent())).sum()
    }

    /// Returns whether a job with a share would fit together with the jobs that come before it:
    /// pinned jobs, and jobs of at least its priority. No worker has more than a hundred such jobs.
    fn could_reserve(&self, request: &Request<'_>, wish: &Job) -> bool {
        let percent = |job: &Job| job.share.map_or(0, |share| usize::from(share.percent()));
        let comes_before = |other: &&&Job| match (wish.pin, other.pin) {
            (None, Some(_)) => true,
            (Some(_), None) => false,
            (None, None) | (Some(_), Some(_)) => other.priority >= wish.priority,
        };
        let fits = |slot: &Slot| {
            let others = self.reserved.get(slot).into_iter().flatten().filter(comes_before);
            let (sum, jobs) =
                others.fold((0, 0), |(sum, jobs), job| (sum + percent(job), jobs + 1));
            sum + percent(wish) <= size(request, *slot) && jobs < max(request, *slot)
        };
        match wish.pin {
            Some(pin) => self.jobs.contains_key(&pin) && fits(&pin),
            None => self.jobs.keys().any(fits),
        }
    }

    fn nobody_is_overfull(&self, request: &Request<'_>) -> Result<(), Violation> {
        let is_overfull = |slot: &&Slot| {
            let reserved = self.reserved.get(slot).map_or(0, Vec::len);
            reserved > max(request, **slot)
                || self.percent(**slot) > size(request, **slot)
                || self.load(**slot) > self.max(request, **slot)
        };
        let overfull = self.jobs.keys().find(is_overfull);
        overfull.map_or(Ok(()), |slot| Err(Violation::Overfull(*slot)))
    }

    /// Checks that the reason of every unassigned job is true.
    fn reasons_hold(&self, request: &Request<'_>, plan: &Plan) -> Result<(), Violation> {
        // Many jobs have the same wishes, so the answers are remembered.
        let mut known = BTreeMap::new();
        let mut could_reserve = |wish: &Job| {
            let known = known.entry((wish.pin, wish.priority, wish.share));
            *known.or_insert_with(|| self.could_reserve(request, wish))
        };
        for (job, reason) in &plan.unassigned {
            let wish = &request.jobs[job];
            let pin = wish.pin;
            let can_pin = pin.is_none_or(|pin| self.jobs.contains_key(&pin));
            let is_kept = request
                .held
                .holder(job)
                .is_some_and(|slot| request.pool.standing(slot) == Some(Standing::Keeps));
            let is_founded = match reason {
                Unassigned::NoWorkers => self.jobs.is_empty(),
                Unassigned::Pin => !self.jobs.is_empty() && !can_pin,
                Unassigned::Capacity if wish.share.is_some() => {
                    can_pin && !self.jobs.is_empty() && !could_reserve(wish)
                }
                Unassigned::Capacity => match pin {
                    None => !self.has_room && !self.jobs.is_empty(),
                    Some(pin) => can_pin && self.load(pin) >= self.max(request, pin),
                },
                Unassigned::Suspended => wish.suspend,
                Unassigned::PoolIncomplete | Unassigned::Paused | Unassigned::PlainWorkers => false,
            };
            let is_kept = is_kept && !wish.suspend;
            // "Its pinned worker is full" is true only if that worker's other jobs cannot go elsewhere.
            let others = pin.and_then(|pin| self.jobs.get(&pin)).is_some_and(|j| !j[1].is_empty());
            let could_make_room =
                *reason == Unassigned::Capacity && wish.share.is_none() && others && self.has_room;
            if is_kept || !is_founded || could_make_room {
                return Err(Violation::Unfounded(job.clone(), *reason));
            }
        }
        Ok(())
    }

    /// Checks that no unassigned job outranks an assigned job whose place it could have. It could
    /// have the place directly, or after a job of the worker to which it is pinned moved there.
    fn the_least_important_stay_out(
        &self,
        request: &Request<'_>,
        plan: &Plan,
    ) -> Result<(), Violation> {
        let priority = |job: &JobName| request.jobs.get(job).map_or(0, |job| job.priority);
        let least = |jobs: &[Vec<&'a JobName>; 2]| {
            jobs.iter().flatten().copied().min_by_key(|job| priority(job))
        };
        let least_of: BTreeMap<_, _> = self.jobs.iter().map(|(slot, j)| (slot, least(j))).collect();
        let least_of_all = least_of.values().flatten().copied().min_by_key(|job| priority(job));
        for (job, _) in plan.unassigned.iter().filter(|(_, why)| **why == Unassigned::Capacity) {
            if request.jobs[job].share.is_some() {
                continue;
            }
            let pin = request.jobs.get(job).and_then(|job| job.pin);
            let only_pinned =
                |pin: &Slot| self.jobs.get(pin).is_some_and(|jobs| jobs[1].is_empty());
            let rival = match pin.filter(only_pinned) {
                Some(pin) => least_of.get(&pin).copied().flatten(),
                None => least_of_all,
            };
            if let Some(rival) = rival.filter(|rival| priority(rival) < priority(job)) {
                return Err(Violation::Outranked(job.clone(), rival.clone()));
            }
        }
        Ok(())
    }

    /// Checks that no job could move to a worker with two fewer, apart from jobs that the budget
    /// defers.
    fn flat(&self, request: &Request<'_>, plan: &Plan) -> Result<(), Violation> {
        if !plan.deferred.is_empty() {
            return Ok(());
        }
        let load = |slot: &Slot| self.load(*slot);
        let gives = self.jobs.iter().filter(|(_, [_, free])| !free.is_empty());
        let Some(highest) = gives.map(|(slot, _)| slot).max_by_key(|slot| load(slot)) else {
            return Ok(());
        };
        let takes = self.jobs.keys().filter(|slot| load(slot) < self.max(request, **slot));
        match takes.min_by_key(|slot| load(slot)) {
            Some(lowest) if load(lowest) + 1 < load(highest) => {
                Err(Violation::Uneven(*highest, *lowest))
            }
            Some(_) | None => Ok(()),
        }
    }
}

fn max(request: &Request<'_>, slot: Slot) -> usize {
    let max = request.pool.0.get(&slot).and_then(|member| member.max_jobs);
    max.map_or(usize::MAX, |max| max as usize)
}

/// Returns the part of a worker that jobs can reserve, in percent.
fn size(request: &Request<'_>, slot: Slot) -> usize {
    let capacity = request.pool.0.get(&slot).and_then(|member| member.capacity);
    capacity.map_or(100, |capacity| usize::from(capacity.percent()))
}

/// Checks that the moves are the change of holders, in order, each with a true reason.
fn moves_are_the_difference(request: &Request<'_>, plan: &Plan) -> Result<(), Violation> {
    let mut moves = plan.moves.iter().peekable();
    let mut names: Vec<_> =
        request.held.iter().map(|(job, _)| job).chain(request.jobs.keys()).collect();
    names.sort_unstable();
    names.dedup();
    for job in names {
        let (from, to) = (request.held.holder(job), plan.assignment.holder(job));
        let is_new_and_out = from.is_none() && to.is_none();
        let step = moves.next_if(|step| step.job == *job);
        let is_right = match step {
            None => from == to || is_new_and_out,
            Some(step) => {
                from != to && (step.from, step.to) == (from, to) && holds(request, plan, step)
            }
        };
        if !is_right {
            return Err(Violation::WrongMove(job.clone()));
        }
    }
    moves.next().map_or(Ok(()), |step| Err(Violation::WrongMove(step.job.clone())))
}

fn holds(request: &Request<'_>, plan: &Plan, step: &super::Move) -> bool {
    let pin = request.jobs.get(&step.job).and_then(|job| job.pin);
    let is_present = step.from.is_some_and(|slot| request.pool.standing(slot).is_some());
    match step.reason {
        MoveReason::New => step.from.is_none(),
        // Only the layer above the planner gives these reasons.
        MoveReason::NotReady | MoveReason::Failing => false,
        MoveReason::Removed => !request.jobs.contains_key(&step.job),
        MoveReason::WorkerGone => step.to.is_some() && step.from.is_some() && !is_present,
        MoveReason::Pin => is_present && pin.is_some() && step.to == pin,
        MoveReason::Balance => is_present && pin.is_none() && step.to.is_some(),
        MoveReason::Capacity => {
            let has_limits = request.jobs.values().any(|job| job.share.is_some())
                || step.from.is_some_and(|from| max(request, from) < usize::MAX);
            is_present && pin.is_none() && step.to.is_some() && has_limits
        }
        MoveReason::Unassigned(reason) => plan.unassigned.get(&step.job) == Some(&reason),
    }
}

/// Checks the budget. In canonical mode, jobs of full workers may have to be swapped beyond it.
fn within_budget(request: &Request<'_>, plan: &Plan) -> Result<(), Violation> {
    let Some(budget) = request.rules.moves_max else { return Ok(()) };
    let made = plan.moves.iter().filter(|step| step.reason == MoveReason::Balance).count();
    let may_swap = request.rules.mode == Mode::Canonical
        && (request.pool.0.values().any(|member| member.max_jobs.is_some())
            || request.jobs.values().any(|job| job.share.is_some()));
    if made > budget && !may_swap {
        return Err(Violation::OverBudget { made, budget });
    }
    Ok(())
}
