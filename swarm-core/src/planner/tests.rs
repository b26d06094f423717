//! Properties of the planner, for every set of jobs, every previous assignment and every pool.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::subsequence;

use super::*;
use crate::pool::Member;

fn names(n: usize) -> BTreeSet<JobName> {
    (0..n).map(|n| JobName::new(&format!("job-{n}")).unwrap()).collect()
}

/// Up to 60 jobs of 80 names are wanted; any of the 80 may be held by any of 12 slots, whether the
/// slot exists now or not; up to 10 of the slots exist, some of which only keep.
fn any_case() -> impl Strategy<Value = (BTreeSet<JobName>, Assignment, Pool)> {
    let all: Vec<_> = names(80).into_iter().collect();
    let wanted = subsequence(all.clone(), 0..=60).prop_map(BTreeSet::from_iter);
    let held = prop::collection::vec(prop::option::weighted(0.7, 0..12_u32), all.len());
    let held = held.prop_map(move |slots| {
        let held = all.iter().cloned().zip(slots);
        held.filter_map(|(job, slot)| Some((job, Slot(slot?)))).collect::<Assignment>()
    });
    let standing = prop_oneof![3 => Just(Standing::Takes), 1 => Just(Standing::Keeps)];
    let pool = prop::collection::btree_map(0..12_u32, standing, 0..=10);
    let member = |(slot, standing)| (Slot(slot), Member { name: format!("w-{slot}"), standing });
    let pool = pool.prop_map(move |pool| Pool(pool.into_iter().map(member).collect()));
    (wanted, held, pool)
}

/// The loads of the workers that take jobs, zeros included.
fn loads(assignment: &Assignment, pool: &Pool) -> Vec<usize> {
    let by_slot = assignment.by_slot();
    pool.takers().iter().map(|slot| by_slot.get(slot).map_or(0, BTreeSet::len)).collect()
}

fn spread(loads: &[usize]) -> usize {
    loads.iter().max().unwrap_or(&0) - loads.iter().min().unwrap_or(&0)
}

proptest! {
    /// Scope: every input.
    #[test]
    fn each_job_is_assigned_exactly_once_or_unassigned_with_a_reason((jobs, held, pool) in any_case()) {
        let plan = plan(&jobs, &held, &pool);
        let assigned: BTreeSet<_> = plan.assignment.iter().map(|(job, _)| job.clone()).collect();
        let unassigned: BTreeSet<_> = plan.unassigned.keys().cloned().collect();
        prop_assert!(assigned.is_disjoint(&unassigned));
        prop_assert_eq!(&assigned | &unassigned, jobs);
        prop_assert!(plan.assignment.iter().all(|(_, slot)| pool.standing(slot).is_some()));
        prop_assert!(unassigned.is_empty() || pool.takers().is_empty());
    }

    /// Scope: every input; over the workers that take jobs.
    #[test]
    fn loads_differ_by_at_most_one((jobs, held, pool) in any_case()) {
        let loads = loads(&plan(&jobs, &held, &pool).assignment, &pool);
        prop_assert!(spread(&loads) <= 1, "{loads:?}");
    }

    /// Scope: every input; moves between workers that take jobs. The other moves are forced.
    #[test]
    fn voluntary_moves_are_the_closed_form_minimum((jobs, held, pool) in any_case()) {
        let plan = plan(&jobs, &held, &pool);
        let wanted: Assignment = held
            .iter()
            .filter(|(job, _)| jobs.contains(*job))
            .map(|(job, slot)| (job.clone(), slot))
            .collect();
        let before = loads(&wanted, &pool);
        let total = loads(&plan.assignment, &pool).iter().sum();
        let voluntary = plan.moves.iter().filter(|m| m.reason == MoveReason::Balance).count();
        prop_assert_eq!(voluntary, minimum_moves(&before, total));
    }

    /// Scope: every input. A worker that keeps neither gains nor loses a job that is wanted.
    #[test]
    fn a_worker_that_keeps_holds_on_to_exactly_its_jobs((jobs, held, pool) in any_case()) {
        let plan = plan(&jobs, &held, &pool);
        for slot in pool.0.keys().filter(|slot| pool.standing(**slot) == Some(Standing::Keeps)) {
            let of = |a: &Assignment| a.by_slot().remove(slot).unwrap_or_default();
            prop_assert_eq!(of(&plan.assignment), &of(&held) & &jobs);
        }
    }

    /// Scope: every input.
    #[test]
    fn planning_again_moves_nothing((jobs, held, pool) in any_case()) {
        let first = plan(&jobs, &held, &pool);
        let again = plan(&jobs, &first.assignment, &pool);
        prop_assert_eq!(&again.moves, &[]);
        prop_assert_eq!(again.assignment, first.assignment);
    }

    /// Scope: every input, in any order of the lists it came as.
    #[test]
    fn the_order_of_input_is_irrelevant((jobs, held, pool) in any_case(), seed in any::<u64>()) {
        let shuffled = |job: &JobName| mix(hash_job(job) ^ seed);
        let mut list: Vec<_> = jobs.iter().map(JobName::as_str).collect();
        list.sort_by_key(|name| shuffled(&JobName::new(name).unwrap()));
        let mut pairs: Vec<_> = held.iter().map(|(job, slot)| (job.clone(), slot)).collect();
        pairs.sort_by_key(|(job, _)| shuffled(job));
        let other = plan(&crate::jobs(list).unwrap(), &Assignment::from_iter(pairs), &pool);
        prop_assert_eq!(other, plan(&jobs, &held, &pool));
    }

    /// Scope: every input. Moves are exactly the difference, each job at most once, in order.
    #[test]
    fn moves_lead_from_what_was_held_to_the_assignment((jobs, held, pool) in any_case()) {
        let plan = plan(&jobs, &held, &pool);
        let mut map: BTreeMap<_, _> = held.iter().map(|(job, slot)| (job.clone(), slot)).collect();
        prop_assert!(plan.moves.is_sorted_by(|a, b| a.job < b.job));
        for step in &plan.moves {
            prop_assert_ne!(step.from, step.to);
            prop_assert_eq!(map.remove(&step.job), step.from);
            map.extend(step.to.map(|to| (step.job.clone(), to)));
        }
        prop_assert_eq!(Assignment::from_iter(map), plan.assignment);
    }
}

/// Scope: all (jobs ≤ 30, workers ≤ 10), from nothing and after one more or one less worker.
#[test]
fn small_pools_are_even_and_move_the_minimum_when_scaled() {
    for n in 0..=30 {
        let jobs = names(n);
        for workers in 1..=10 {
            let first = plan(&jobs, &Assignment::default(), &Pool::ready(workers));
            assert_eq!(first.assignment.len(), n, "{n} jobs on {workers}");
            assert!(spread(&loads(&first.assignment, &Pool::ready(workers))) <= 1);
            let up = plan(&jobs, &first.assignment, &Pool::ready(workers + 1));
            assert_eq!(up.moves.len(), n / (workers as usize + 1), "{n} jobs, {workers} + 1");
            let down = plan(&jobs, &up.assignment, &Pool::ready(workers));
            assert!(down.moves.iter().all(|step| step.reason == MoveReason::WorkerGone));
        }
    }
}

/// Scope: all loads up to 4 on up to 4 workers with up to 3 loose jobs. The formula is held
/// against every even load vector, not against the planner.
#[test]
fn the_closed_form_is_the_least_over_all_even_load_vectors() {
    for code in 0..5_usize.pow(4) * 4 {
        for workers in 1..=4 {
            let (loose, mut digits) = (code % 4, code / 4);
            let digit = |_| {
                let digit = digits % 5;
                digits /= 5;
                digit
            };
            let loads: Vec<_> = (0..workers).map(digit).collect();
            let total = loads.iter().sum::<usize>() + loose;
            let (q, r) = (total / workers, total % workers);
            let cost = |extras: u32| {
                let share = |w: usize| q + usize::from(extras & (1 << w) != 0);
                (0..workers).map(|w| loads[w].saturating_sub(share(w))).sum::<usize>()
            };
            let even = (0_u32..1 << workers).filter(|extras| extras.count_ones() as usize == r);
            assert_eq!(even.map(cost).min(), Some(minimum_moves(&loads, total)), "{loads:?}");
        }
    }
}

/// The case that the predecessors' slicing `start = i * size` got wrong: job 3 ran twice, job 5
/// never.
#[test]
fn five_jobs_on_two_workers_run_once_each() {
    let five = crate::jobs(["1", "2", "3", "4", "5"]).unwrap();
    let plan = plan(&five, &Assignment::default(), &Pool::ready(2));
    assert_eq!(loads(&plan.assignment, &Pool::ready(2)), [3, 2]);
    assert_eq!(plan.assignment.len(), 5);
}

#[test]
fn a_held_job_without_any_worker_is_unassigned_and_says_why() {
    let jobs = names(1);
    let held = plan(&jobs, &Assignment::default(), &Pool::ready(1)).assignment;
    let plan = plan(&jobs, &held, &Pool::default());
    assert_eq!(plan.unassigned.values().collect::<Vec<_>>(), [&Unassigned::NoWorkers]);
    assert_eq!(plan.moves[0].reason.as_str(), "no-workers");
    assert_eq!((plan.moves[0].from, plan.moves[0].to), (Some(Slot(0)), None));
}
