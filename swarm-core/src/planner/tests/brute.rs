//! Plans of jobs without shares, compared with all assignments.

use std::cmp::Reverse;

use super::*;
use crate::jobs;

/// Up to 6 jobs with priorities, a fifth of them pinned, on 2 or 3 workers with maxima; any holder.
fn any_small_case() -> impl Strategy<Value = Case> {
    let pin = prop::option::weighted(0.2, 0..4_u32);
    let held = prop::option::weighted(0.8, 0..4_u32);
    let jobs = prop::collection::vec((pin, -1..=1_i32, held), 1..=6);
    let maxima = prop::collection::vec(prop::option::weighted(0.8, 0..4_u32), 2..=3);
    (jobs, maxima).prop_map(|(wishes, maxima)| {
        let mut case = Case {
            jobs: Jobs::new(),
            held: Assignment::default(),
            pool: Pool::default(),
            rules: Rules::default(),
        };
        let mut held = Vec::new();
        for (name, (pin, priority, holder)) in names(6).into_keys().zip(wishes) {
            held.extend(holder.map(|slot| (name.clone(), Slot(slot))));
            case.jobs.insert(name, Job { pin: pin.map(Slot), priority, ..Job::default() });
        }
        case.held = held.into_iter().collect();
        let members = maxima.into_iter().zip(0..);
        case.pool = Pool(members.map(|(max, slot)| member(slot, Standing::Takes, max)).collect());
        case
    })
}

/// The score of an assignment, in this order: the number of assigned jobs per priority, held jobs
/// separately, from the most important down. Then the loads, from the highest down, then the moves.
type Score = (Vec<Reverse<usize>>, Vec<usize>, usize);

fn score(case: &Case, places: &[Option<Slot>]) -> Option<Score> {
    let mut loads: BTreeMap<_, _> = case.pool.takers().into_iter().map(|slot| (slot, 0)).collect();
    let mut counts = vec![Reverse(0); 6];
    let mut moves = 0;
    for ((name, job), to) in case.jobs.iter().zip(places) {
        let Some(to) = to else { continue };
        if job.pin.is_some_and(|pin| pin != *to) {
            return None;
        }
        *loads.get_mut(to)? += 1;
        let from = case.held.holder(name).filter(|from| case.pool.standing(*from).is_some());
        let class = usize::try_from(1 - job.priority).unwrap() * 2 + usize::from(from.is_none());
        counts[class].0 += 1;
        moves += usize::from(from.is_some_and(|from| from != *to));
    }
    let fits = |(slot, load): (&Slot, &usize)| case.max(*slot).is_none_or(|max| *load <= max);
    if !loads.iter().all(fits) {
        return None;
    }
    let mut loads: Vec<_> = loads.into_values().collect();
    loads.sort_unstable_by(|a, b| b.cmp(a));
    Some((counts, loads, moves))
}

/// Returns the best score of any assignment.
fn best(case: &Case) -> Option<Score> {
    let choices: Vec<_> = case.pool.takers().into_iter().map(Some).chain([None]).collect();
    let all = 0..choices.len().pow(u32::try_from(case.jobs.len()).unwrap());
    let places = |code: usize| {
        let digit = |n| choices[code / choices.len().pow(n) % choices.len()];
        (0..u32::try_from(case.jobs.len()).unwrap()).map(digit).collect::<Vec<_>>()
    };
    all.filter_map(|code| score(case, &places(code))).min()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    /// Scope: sticky, no budget; up to 6 jobs on up to 3 workers, with pins, maxima and priorities.
    #[test]
    fn no_assignment_as_good_and_as_flat_moves_fewer_jobs(case in any_small_case()) {
        let plan = case.plan();
        let places: Vec<_> = case.jobs.keys().map(|job| plan.assignment.holder(job)).collect();
        prop_assert_eq!(score(&case, &places), best(&case), "{:?}", plan);
    }
}

#[test]
fn jobs_of_workers_with_too_many_stay_out_first() {
    let jobs = names(1_050);
    let ten_or_eleven = |n: u32| Slot(if n < 1_000 { n / 10 } else { n - 1_000 });
    let held = jobs.keys().zip(0..).map(|(job, n)| (job.clone(), ten_or_eleven(n))).collect();
    let mut pool = Pool::ready(100);
    pool.0.values_mut().for_each(|member| member.max_jobs = Some(10));
    for moves_max in [Some(0), None] {
        let rules = Rules { moves_max, ..Rules::default() };
        let plan = Request { jobs: &jobs, held: &held, pool: &pool, rules }.plan();
        assert_eq!((plan.unassigned.len(), plan.moves.len()), (50, 50));
    }
}

#[test]
fn a_job_does_not_take_the_place_of_one_that_could_stay() {
    let jobs = jobs(["a", "b"]).unwrap();
    for held in [[("a", 0), ("b", 1)], [("b", 0), ("a", 1)]] {
        let held = held.map(|(job, slot)| (job.parse().unwrap(), Slot(slot))).into_iter().collect();
        let pool =
            [member(0, Standing::Takes, Some(0)), member(1, Standing::Takes, Some(1))].into();
        let plan = plan(&jobs, &held, &Pool(pool));
        assert_eq!(plan.minimum_moves, Some(0));
        assert_eq!(plan.moves.len(), 1);
    }
}
