//! Properties of the planner, for every set of jobs, every previous assignment and every pool.
//!
//! Formulas and [`check`], which shares no code with the planner, judge the plans.

mod brute;
mod departures;
mod enough;
mod examples;
mod formulas;
mod large;
mod oracle;
mod properties;
mod shares;
mod suspended;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::subsequence;

use super::*;
use crate::pool::Member;
use crate::{Job, Share, Standing};

/// All inputs of a plan, owned.
#[derive(Clone, Debug)]
struct Case {
    jobs: Jobs,
    held: Assignment,
    pool: Pool,
    rules: Rules,
}

impl Case {
    fn request(&self) -> Request<'_> {
        Request { jobs: &self.jobs, held: &self.held, pool: &self.pool, rules: self.rules }
    }

    fn plan(&self) -> Plan {
        self.request().plan()
    }

    /// Returns the same case after `plan` was carried out.
    fn after(&self, plan: &Plan) -> Self {
        Self { held: plan.assignment.clone(), ..self.clone() }
    }

    fn is_kept(&self, job: &JobName) -> bool {
        let held = self.held.holder(job);
        held.is_some_and(|slot| self.pool.standing(slot) == Some(Standing::Keeps))
    }

    /// Returns the load of each taker before the plan, by the jobs that the plan assigns, and the
    /// number of assigned jobs on takers.
    fn loads(&self, plan: &Plan) -> (Vec<Load>, usize) {
        let mut loads: BTreeMap<_, _> = self
            .pool
            .takers()
            .into_iter()
            .map(|slot| (slot, Load { max: self.max(slot), ..Load::default() }))
            .collect();
        let mut total = 0;
        for (job, to) in plan.assignment.iter().filter(|(job, _)| !self.is_kept(job)) {
            total += 1;
            if self.jobs[job].pin.is_some() {
                loads.get_mut(&to).unwrap().pinned += 1;
            } else if let Some(from) = self.held.holder(job).and_then(|slot| loads.get_mut(&slot)) {
                from.free += 1;
            }
        }
        (loads.into_values().collect(), total)
    }

    fn max(&self, slot: Slot) -> Option<usize> {
        self.pool.0[&slot].max_jobs.map(|max| max as usize)
    }
}

fn names(n: usize) -> Jobs {
    let name = |n| JobName::new(&format!("job-{n}")).unwrap();
    (0..n).map(|n| (name(n), Job::default())).collect()
}

fn member(slot: u32, standing: Standing, max_jobs: Option<u32>) -> (Slot, Member) {
    (Slot(slot), Member { name: format!("w-{slot}"), standing, max_jobs, capacity: None })
}

/// Whether workers have maxima.
#[derive(Clone, Copy)]
enum Maxima {
    None,
    Some,
}

/// Up to 60 jobs of 80 names are wanted, a fifth of them pinned to one of 13 slots, with priorities
/// -1 to 1. Any of 12 slots may hold any of the 80, whether the slot exists now or not. Up to 10 of
/// the slots exist. Some of these only keep, and some may have few jobs.
fn any_case(maxima: Maxima) -> impl Strategy<Value = Case> {
    let all: Vec<_> = names(80).into_keys().collect();
    let wish = (prop::option::weighted(0.2, 0..13_u32), -1..=1_i32);
    let wish =
        wish.prop_map(|(pin, priority)| Job { pin: pin.map(Slot), priority, ..Job::default() });
    let wishes = prop::collection::vec(prop_oneof![wish, Just(Job::default())], all.len());
    let jobs = (subsequence(all.clone(), 0..=60), wishes)
        .prop_map(|(names, wishes)| names.into_iter().zip(wishes).collect::<Jobs>());
    let held = prop::collection::vec(prop::option::weighted(0.7, 0..12_u32), all.len());
    let held = held.prop_map(move |slots| {
        let held = all.iter().cloned().zip(slots);
        held.filter_map(|(job, slot)| Some((job, Slot(slot?)))).collect::<Assignment>()
    });
    let standing = prop_oneof![3 => Just(Standing::Takes), 1 => Just(Standing::Keeps)];
    let max = match maxima {
        Maxima::None => Just(None).boxed(),
        Maxima::Some => prop::option::of(0..12_u32).boxed(),
    };
    let pool = prop::collection::btree_map(0..12_u32, (standing, max), 0..=10);
    let pool = pool.prop_map(|pool| {
        Pool(pool.into_iter().map(|(slot, (standing, max))| member(slot, standing, max)).collect())
    });
    (jobs, held, pool).prop_map(|(jobs, held, pool)| Case {
        jobs,
        held,
        pool,
        rules: Rules::default(),
    })
}

fn any_rules() -> impl Strategy<Value = Rules> {
    let mode = prop_oneof![Just(Mode::Sticky), Just(Mode::Canonical)];
    (mode, prop::option::of(0..8_usize)).prop_map(|(mode, moves_max)| Rules {
        mode,
        moves_max,
        ..Rules::default()
    })
}

/// Generates any case under any rules.
fn any_case_at_all() -> impl Strategy<Value = Case> {
    (any_case(Maxima::Some), any_rules()).prop_map(|(case, rules)| Case { rules, ..case })
}

/// Generates any case in which a third of the jobs have shares, and a third of the workers are
/// smaller than the others.
fn any_case_with_shares() -> impl Strategy<Value = Case> {
    let percent = prop_oneof![1..=100_u8, Just(100), Just(50)];
    let shares = prop::collection::vec(prop::option::weighted(0.3, percent.clone()), 60);
    let sizes = prop::collection::vec(prop::option::weighted(0.3, percent), 10);
    (any_case_at_all(), shares, sizes).prop_map(|(mut case, shares, sizes)| {
        for (member, percent) in case.pool.0.values_mut().zip(sizes) {
            member.capacity = percent.and_then(|percent| Share::new(percent).ok());
        }
        for (job, percent) in case.jobs.values_mut().zip(shares) {
            job.share = percent.and_then(|percent| Share::new(percent).ok());
        }
        case
    })
}

/// Returns the loads of the workers that take jobs, including zeros.
fn loads(assignment: &Assignment, pool: &Pool) -> Vec<usize> {
    let by_slot = assignment.by_slot();
    pool.takers().iter().map(|slot| by_slot.get(slot).map_or(0, BTreeSet::len)).collect()
}

fn spread(loads: &[usize]) -> usize {
    loads.iter().max().unwrap_or(&0) - loads.iter().min().unwrap_or(&0)
}

fn voluntary(plan: &Plan) -> usize {
    plan.moves.iter().filter(|step| step.reason == MoveReason::Balance).count()
}
