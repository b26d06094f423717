//! Properties of every plan.

use super::*;
use crate::hash::mix;
use crate::{hash_job, jobs};

/// The most plans that a budget of at least 1 needs to move everything: one for each job.
const PLANS_MAX: usize = 100;

proptest! {
    /// Scope: every input, mode and budget. Each job is assigned once, or unassigned with a true
    /// reason. Pins and maxima hold, and workers that keep are unchanged. The least important jobs
    /// are out, moves are the difference, and loads are flat unless the budget holds moves back.
    #[test]
    fn every_plan_passes_the_independent_check(case in any_case_at_all()) {
        let plan = case.plan();
        prop_assert_eq!(check(&case.request(), &plan), Ok(()), "{:?}", plan);
    }

    /// Scope: no pins, no maxima, no budget, either mode; over the workers that take jobs.
    #[test]
    fn loads_differ_by_at_most_one(case in any_case(Maxima::None), rules in any_rules()) {
        let mut case = Case { rules: Rules { moves_max: None, ..rules }, ..case };
        case.jobs.values_mut().for_each(|job| job.pin = None);
        case.pool.0.values_mut().for_each(|member| member.standing = Standing::Takes);
        let plan = case.plan();
        let loads = loads(&plan.assignment, &case.pool);
        prop_assert!(spread(&loads) <= 1, "{loads:?}");
        prop_assert!(plan.unassigned.is_empty() || loads.is_empty());
    }

    /// Scope: sticky, no budget, with pins and maxima. Jobs that a full worker has to give up count
    /// as moves of the formula too.
    #[test]
    fn moves_between_workers_are_the_closed_form_minimum(case in any_case(Maxima::Some)) {
        let plan = case.plan();
        let (loads, total) = case.loads(&plan);
        let between = [MoveReason::Balance, MoveReason::Capacity];
        let made = plan.moves.iter().filter(|step| between.contains(&step.reason)).count();
        prop_assert_eq!(made, minimum_moves(&loads, total));
        prop_assert_eq!(Some(made), plan.minimum_moves);
    }

    /// Scope: sticky, any budget, with pins and maxima.
    #[test]
    fn a_budget_reaches_exactly_the_lowest_maximum(
        case in any_case(Maxima::Some), budget in 0..12_usize,
    ) {
        let case = Case { rules: Rules { moves_max: Some(budget), ..case.rules }, ..case };
        let plan = case.plan();
        let (before, total) = case.loads(&plan);
        let kept = |job: &JobName| case.is_kept(job);
        let after: Assignment =
            plan.assignment.iter().filter(|(job, _)| !kept(job)).map(|(j, s)| (j.clone(), s)).collect();
        let highest = loads(&after, &case.pool).into_iter().max().unwrap_or(0);
        if !before.is_empty() {
            prop_assert_eq!(highest, lowest_maximum(&before, total, budget));
        }
        let forced = plan.moves.iter().filter(|step| step.reason == MoveReason::Capacity).count();
        let wanted = minimum_moves(&before, total) - forced;
        prop_assert_eq!(voluntary(&plan), wanted.min(budget));
        prop_assert_eq!(plan.deferred.len(), wanted - wanted.min(budget));
    }

    /// Scope: every input with maxima. Apart from pins that cannot be met, exactly the jobs that
    /// exceed the maxima are out.
    #[test]
    fn as_few_jobs_stay_out_as_the_maxima_allow(case in any_case_at_all()) {
        let out = |reason| move |why: &&Unassigned| **why == reason;
        let plan = case.plan();
        let mut seats: BTreeMap<_, _> =
            case.pool.takers().into_iter().map(|slot| (slot, case.max(slot).unwrap_or(999))).collect();
        let room: usize = seats.values().sum();
        let (mut wanted, mut beyond_pins) = (0_usize, 0);
        for (_, job) in case.jobs.iter().filter(|(name, _)| !case.is_kept(name)) {
            match job.pin.map(|pin| seats.get_mut(&pin)) {
                Some(None) => {}
                Some(Some(0)) => beyond_pins += 1,
                Some(Some(seats)) => { *seats -= 1; wanted += 1 }
                None => wanted += 1,
            }
        }
        let expected = if seats.is_empty() { 0 } else { beyond_pins + wanted.saturating_sub(room) };
        let found = plan.unassigned.values().filter(out(Unassigned::Capacity)).count();
        prop_assert_eq!(found, expected);
    }

    /// Scope: every input, either mode, no budget.
    #[test]
    fn planning_again_moves_nothing(case in any_case_at_all()) {
        let case = Case { rules: Rules { moves_max: None, ..case.rules }, ..case };
        let first = case.plan();
        let again = case.after(&first).plan();
        prop_assert_eq!(&again.moves, &[]);
        prop_assert_eq!(again.assignment, first.assignment);
        prop_assert_eq!(again.unassigned, first.unassigned);
    }

    /// Scope: every input, either mode, any budget but 0. In sticky mode the total of the moves
    /// equals the moves of the plan without a budget.
    #[test]
    fn plans_under_a_budget_end_settled(case in any_case_at_all(), budget in 1..8_usize) {
        let mut case = Case { rules: Rules { moves_max: Some(budget), ..case.rules }, ..case };
        let target = Case { rules: Rules { moves_max: None, ..case.rules }, ..case.clone() }.plan();
        let mut made = 0;
        for _ in 0..PLANS_MAX {
            let plan = case.plan();
            made += voluntary(&plan);
            case = case.after(&plan);
            if plan.deferred.is_empty() {
                break;
            }
        }
        let preplaced = case.plan();
        prop_assert_eq!(&preplaced.moves, &[]);
        prop_assert_eq!(&preplaced.deferred, &BTreeSet::new());
        match case.rules.mode {
            Mode::Sticky => prop_assert_eq!(made, voluntary(&target)),
            Mode::Canonical => prop_assert_eq!(preplaced.assignment, target.assignment),
        }
    }

    /// Scope: canonical, no budget, pools in which no worker only keeps; any two histories.
    #[test]
    fn a_canonical_plan_does_not_depend_on_what_was_held(
        case in any_case(Maxima::Some), other in any_case(Maxima::Some),
    ) {
        let rules = Rules { mode: Mode::Canonical, ..Rules::default() };
        let mut case = Case { rules, ..case };
        case.pool.0.values_mut().for_each(|member| member.standing = Standing::Takes);
        let other = Case { held: other.held, ..case.clone() };
        prop_assert_eq!(case.plan().assignment, other.plan().assignment);
    }

    /// Scope: every input, with its lists in any order.
    #[test]
    fn the_order_of_input_is_irrelevant(case in any_case_at_all(), seed in any::<u64>()) {
        let mut names: Vec<_> = case.jobs.clone().into_iter().collect();
        names.sort_by_key(|(job, _)| mix(hash_job(job) ^ seed));
        let texts = names.iter().map(|(name, job)| (name.as_str(), job.clone()));
        let table = JobTable::with_wishes(texts).unwrap();
        let held = table.holders(&case.held);
        let plan = table.plan(&held, &case.pool, case.rules);
        let holders: Vec<_> = plan.holders.iter().map(|slot| slot.some()).collect();
        let expected = case.plan();
        let expected: Vec<_> = case.jobs.keys().map(|job| expected.assignment.holder(job)).collect();
        prop_assert_eq!(holders, expected);
    }

    /// Scope: any list of up to 8 texts, valid or not. A table and a map report the same error.
    #[test]
    fn any_text_is_a_job_or_an_error(
        texts in prop::collection::vec("[a-c\u{0}\n ü]{0,3}", 0..8),
    ) {
        let map = jobs(texts.iter().map(String::as_str));
        match (JobTable::new(&texts), map) {
            (Ok(table), Ok(map)) => {
                let names: Vec<_> = (0..table.len()).map(|job| table.name(job)).collect();
                prop_assert!(names.into_iter().eq(map.keys().map(JobName::as_str)));
            }
            (Err(table), Err(map)) => {
                // If several entries are invalid, either may be named.
                prop_assert!(!table.to_string().is_empty() && !map.to_string().is_empty());
            }
            (table, map) => prop_assert!(false, "{table:?} but {map:?}"),
        }
    }
}
