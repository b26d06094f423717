//! Properties of plans of jobs with shares. [`check`] judges two rules: no worker is reserved
//! beyond the whole, and no job is out that fits next to the jobs that come before it.

use super::*;

/// The largest number of running jobs that move for one job that gains a place.
pub(super) const MOVES_FOR_ONE: usize = 24;

/// A pool of equal workers and free jobs with shares, half of them held.
fn any_packing() -> impl Strategy<Value = (Vec<u8>, Vec<Option<u32>>, u32)> {
    let share = prop_oneof![1..=100_u8, 30..=60_u8];
    let shares = prop::collection::vec(share, 0..20);
    let held = prop::collection::vec(prop::option::weighted(0.5, 0..6_u32), 20);
    (shares, held, 1..6_u32)
}

fn case((shares, held, workers): (Vec<u8>, Vec<Option<u32>>, u32)) -> Case {
    let job = |percent: u8| Job { share: Share::new(percent).ok(), ..Job::default() };
    let jobs: Jobs = names(shares.len()).into_keys().zip(shares.into_iter().map(job)).collect();
    let held = jobs.keys().zip(held).filter_map(|(job, slot)| Some((job.clone(), Slot(slot?))));
    let held = held.collect();
    Case { jobs, held, pool: Pool::ready(workers), rules: Rules::default() }
}

/// Returns how many jobs first-fit decreasing leaves out, by the textbook, bin by bin.
fn left_by_first_fit_decreasing(case: &Case) -> usize {
    let mut sizes: Vec<_> = case.jobs.values().filter_map(|job| job.share).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let mut free = vec![100; case.pool.0.len()];
    let does_not_fit = |share: &Share| {
        let bin = free.iter_mut().find(|free| **free >= share.percent());
        bin.map(|free| *free -= share.percent()).is_none()
    };
    sizes.into_iter().filter(does_not_fit).count()
}

proptest! {
    /// Scope: every input, mode and tolerance, with and without a budget. A plan from the result
    /// moves nothing, or what the budget deferred.
    #[test]
    fn leveled_plans_pass_the_check_and_settle(
        case in any_case_with_shares(), tolerance in 0..=100_u8,
    ) {
        let rules = Rules { share_tolerance: Some(tolerance), ..case.rules };
        let mut case = Case { rules, ..case };
        let plan = case.plan();
        prop_assert_eq!(check(&case.request(), &plan), Ok(()), "{:?}", plan);
        case.rules.moves_max = None;
        case.held = case.plan().assignment;
        prop_assert_eq!(&case.plan().moves, &[]);
    }

    /// Scope: one class of jobs with shares on up to 5 equal workers, with any holders. No move
    /// between the workers that differ most would reduce the difference.
    #[test]
    fn no_move_levels_more(packing in any_packing(), tolerance in 0..=100_u8) {
        let rules = Rules { share_tolerance: Some(tolerance), ..Rules::default() };
        let case = Case { rules, ..case(packing) };
        let plan = case.plan();
        let share = |job: &JobName| case.jobs[job].share.map_or(0, Share::percent);
        let by_slot = plan.assignment.by_slot();
        let jobs = |slot: &Slot| by_slot.get(slot).into_iter().flatten();
        let reserved = |slot: &Slot| jobs(slot).map(share).sum::<u8>();
        let takers = case.pool.takers();
        let least = takers.iter().map(reserved).min().unwrap_or(0);
        for slot in takers.iter().filter(|_| plan.unassigned.is_empty()) {
            let difference = reserved(slot) - least;
            let is_level = difference <= tolerance || jobs(slot).all(|job| difference <= share(job));
            prop_assert!(is_level, "{:?}", plan.assignment);
        }
    }

    /// Scope: every input, mode and budget, a third of the jobs with shares.
    #[test]
    fn every_plan_with_shares_passes_the_independent_check(case in any_case_with_shares()) {
        let plan = case.plan();
        prop_assert_eq!(check(&case.request(), &plan), Ok(()), "{:?}", plan);
    }

    /// Scope: the same, without a budget.
    #[test]
    fn planning_shares_again_moves_nothing(case in any_case_with_shares()) {
        let case = Case { rules: Rules { moves_max: None, ..case.rules }, ..case };
        let first = case.plan();
        let again = case.after(&first).plan();
        prop_assert_eq!(&again.moves, &[]);
        prop_assert_eq!(again.unassigned, first.unassigned);
    }

    /// Scope: the same, with a budget of no moves: the first plan makes all forced moves.
    #[test]
    fn planning_shares_again_without_moves_to_spend_moves_nothing(
        case in any_case_with_shares(), tolerance in prop::option::of(0..=100_u8),
    ) {
        let rules =
            Rules { moves_max: Some(0), share_tolerance: tolerance, mode: Mode::Sticky };
        let case = Case { rules, ..case };
        let first = case.plan();
        prop_assert_eq!(voluntary(&first), 0);
        let again = case.after(&first).plan();
        prop_assert_eq!(&again.moves, &[]);
        prop_assert_eq!(again.unassigned, first.unassigned);
    }

    /// Scope: every input and mode with a budget. The last plan moves and defers nothing.
    #[test]
    fn plans_with_shares_settle_under_a_budget(
        case in any_case_with_shares(), moves_max in 1..8_usize,
    ) {
        let mut case = Case { rules: Rules { moves_max: Some(moves_max), ..case.rules }, ..case };
        let most = case.jobs.len() + 2;
        let mut plans = (0..most).map(|_| {
            let plan = case.plan();
            case = case.after(&plan);
            plan
        });
        let settled = plans.find(|plan| plan.moves.is_empty());
        prop_assert_eq!(settled.map(|plan| plan.deferred), Some(BTreeSet::new()));
    }

    /// Scope: one class of jobs with shares on up to 5 equal workers, with any holders. Fewer jobs
    /// run than may move for one.
    #[test]
    fn no_more_stay_out_than_first_fit_decreasing_leaves(packing in any_packing()) {
        let case = case(packing);
        prop_assert!(case.plan().unassigned.len() <= left_by_first_fit_decreasing(&case));
    }

    /// Scope: the same, compared with the plan without previous holders.
    #[test]
    fn no_more_stay_out_than_a_canonical_plan_leaves(packing in any_packing()) {
        let case = case(packing);
        let rules = Rules { mode: Mode::Canonical, ..Rules::default() };
        let canonical = Case { rules, ..case.clone() }.plan().unassigned.len();
        prop_assert!(case.plan().unassigned.len() <= canonical);
    }

    /// Scope: as above. Jobs that all fit where they are stay there.
    #[test]
    fn jobs_that_fit_where_they_are_stay(packing in any_packing()) {
        let mut case = case(packing);
        let mut used = BTreeMap::<Slot, u32>::new();
        let held = case.held.iter().filter(|(job, slot)| {
            let used = used.entry(*slot).or_default();
            let share = u32::from(case.jobs[*job].share.map_or(0, Share::percent));
            let fits = case.pool.standing(*slot).is_some() && *used + share <= 100;
            *used += if fits { share } else { 0 };
            fits
        });
        case.held = held.map(|(job, slot)| (job.clone(), slot)).collect();
        case.jobs.retain(|job, _| case.held.holder(job).is_some());
        prop_assert_eq!(case.plan().moves, &[]);
    }
}

#[test]
fn a_smaller_worker_is_full_sooner_and_takes_no_job_that_is_larger_than_it() {
    let half = Share::new(50).ok();
    let mut pool = Pool::ready(2);
    pool.0.get_mut(&Slot(0)).unwrap().capacity = half;
    let plan = |shares: &[Option<u8>]| {
        let job = |(n, share): (usize, &Option<u8>)| {
            let share = share.and_then(|percent| Share::new(percent).ok());
            (JobName::new(&format!("job-{n}")).unwrap(), Job { share, ..Job::default() })
        };
        let jobs: Jobs = shares.iter().enumerate().map(job).collect();
        let held = Assignment::default();
        let request = Request { jobs: &jobs, held: &held, pool: &pool, rules: Rules::default() };
        let plan = request.plan();
        assert_eq!(check(&request, &plan), Ok(()));
        let slots = jobs.keys().map(|job| plan.assignment.holder(job).map(|slot| slot.0));
        (slots.collect::<Vec<_>>(), request.workers_enough())
    };
    assert_eq!(plan(&[Some(50), Some(60)]).0, [Some(0), Some(1)]);
    assert_eq!(plan(&[Some(100), Some(60)]), (vec![Some(1), None], Some(3)));
    // Half of the largest workers is all of it, so no other job runs there.
    assert_eq!(plan(&[Some(50), Some(80), None, None]).0, [Some(0), Some(1), Some(1), Some(1)]);
}

#[test]
fn jobs_without_a_share_go_to_workers_that_are_not_fully_reserved() {
    let mut jobs = names(6);
    jobs.insert("whole".parse().unwrap(), Job { share: Share::new(100).ok(), ..Job::default() });
    let plan = plan(&jobs, &Assignment::default(), &Pool::ready(3));
    let mut loads = loads(&plan.assignment, &Pool::ready(3));
    loads.sort_unstable();
    assert_eq!(loads, [1, 3, 3]);
    assert_eq!(plan.minimum_moves, None);
}

/// Adds jobs one after the other, 15 to 45 percent each in a mixed order, until the workers are
/// almost full. Returns the number of moves of each arrival.
fn arrivals(workers: u32, percent_of_all: u32, rules: Rules) -> Vec<usize> {
    let (mut case, mut sum, mut moved) = (case((vec![], vec![], workers)), 0, Vec::new());
    case.rules = rules;
    for n in 0.. {
        let percent = [15, 20, 25, 30, 35, 40, 45][n * n / 3 % 7];
        sum += u32::from(percent);
        if sum > percent_of_all * workers {
            break;
        }
        let job = Job { share: Share::new(percent).ok(), ..Job::default() };
        case.jobs.insert(format!("job-{n}").parse().unwrap(), job);
        let plan = case.plan();
        assert_eq!(check(&case.request(), &plan), Ok(()));
        moved.push(plan.moves.iter().filter(|step| step.from.is_some()).count());
        case = case.after(&plan);
    }
    moved
}

/// Scope: 100 workers until 98 % are reserved, at most one voluntary move at a time.
#[test]
fn a_new_job_moves_at_most_two_of_those_that_run() {
    let moved = arrivals(100, 98, Rules { moves_max: Some(1), ..Rules::default() });
    assert!(moved.len() > 264);
    assert!(moved.iter().all(|moves| *moves <= 2), "{moved:?}");
}

/// Scope: 1,000 workers, while the reserved part grows from 94 to 98 %. Jobs of 10 to 59 percent
/// come in three random orders, without a budget and with a budget of one move.
#[test]
fn in_a_large_pool_a_new_job_moves_few_of_those_that_run() {
    const WORKERS: u32 = 1_000;
    for (seed, moves_max) in (1..=3_u32).flat_map(|seed| [(seed, None), (seed, Some(1))]) {
        let rules = Rules { moves_max, ..Rules::default() };
        let (mut random, mut sum) = (seed, 0);
        let (mut wishes, mut held) = (Vec::new(), Vec::new());
        loop {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let percent = u8::try_from(10 + (random >> 16) % 50).unwrap();
            sum += u32::from(percent);
            if sum > 98 * WORKERS {
                break;
            }
            let job = Job { share: Share::new(percent).ok(), ..Job::default() };
            wishes.push((format!("{:06}", wishes.len()), job));
            if sum < 94 * WORKERS {
                continue;
            }
            let is_first = held.is_empty();
            let table = JobTable::with_wishes(wishes.clone()).unwrap();
            let plan = table.plan(&held, &Pool::ready(WORKERS), rules);
            let moves = plan.moves().filter(|step| step.from.is_some_and(|slot| slot.0 < WORKERS));
            let moves = moves.count();
            assert!(is_first || moves <= 3, "{moves} moves for job {}", wishes.len());
            assert_eq!(plan.unassigned.len(), 0);
            held = plan.holders.into_owned();
            held.push(Slot::NOBODY);
        }
    }
}

#[test]
fn an_urgent_job_takes_what_is_free_before_it_displaces_a_running_one() {
    let job =
        |percent, priority| Job { share: Share::new(percent).ok(), priority, ..Job::default() };
    let [running, urgent] = ["running", "urgent"].map(|name| name.parse::<JobName>().unwrap());
    let jobs = Jobs::from([(running.clone(), job(60, 0)), (urgent.clone(), job(60, 9))]);
    let held = Assignment::from_iter([(running.clone(), Slot(0))]);
    let plan = plan(&jobs, &held, &Pool::ready(2));
    assert_eq!(plan.assignment.holder(&running), Some(Slot(0)));
    assert_eq!(plan.assignment.holder(&urgent), Some(Slot(1)));
}

/// One slot is free, but the urgent job fits only if a less important job makes room for it.
#[test]
fn an_urgent_job_displaces_the_one_that_finds_another_place() {
    let job =
        |percent, priority| Job { share: Share::new(percent).ok(), priority, ..Job::default() };
    let wishes = [("big", job(90, 0), 0), ("small", job(40, 0), 1), ("medium", job(50, 0), 2)];
    let mut jobs = Jobs::from([("urgent".parse().unwrap(), job(80, 1))]);
    let mut held = Vec::new();
    for (name, job, slot) in wishes {
        let name: JobName = name.parse().unwrap();
        held.push((name.clone(), Slot(slot)));
        jobs.insert(name, job);
    }
    let plan = plan(&jobs, &held.into_iter().collect(), &Pool::ready(3));
    let moved: Vec<_> = plan.moves.iter().map(|step| (step.job.as_str(), step.to)).collect();
    assert_eq!(moved, [("small", Some(Slot(2))), ("urgent", Some(Slot(1)))]);
}

/// Jobs with their share, their priority and their holder, on workers 0 and 1. Each class could be
/// packed so that less of it stays out, for one move.
fn two_classes_to_pack(moves_max: usize) -> Case {
    let wishes =
        [(55, 1, 1), (30, 1, 0), (50, 1, 0), (55, 1, 2), (20, 0, 1), (10, 0, 1), (40, 0, 2)];
    let wish = |((name, _), (percent, priority, slot)): ((JobName, Job), (u8, i32, u32))| {
        let job = Job { share: Share::new(percent).ok(), priority, ..Job::default() };
        ((name.clone(), job), (name, Slot(slot)))
    };
    let (jobs, held): (Vec<_>, Vec<_>) =
        names(wishes.len()).into_iter().zip(wishes).map(wish).unzip();
    let rules = Rules { moves_max: Some(moves_max), ..Rules::default() };
    let (jobs, held) = (jobs.into_iter().collect(), held.into_iter().collect());
    Case { jobs, held, pool: Pool::ready(2), rules }
}

#[test]
fn classes_share_one_budget_for_packing_the_most_important_first() {
    let out = |moves_max| {
        let case = two_classes_to_pack(moves_max);
        let plan = case.plan();
        assert_eq!(check(&case.request(), &plan), Ok(()));
        plan.unassigned.into_keys().map(|job| job.to_string()).collect::<Vec<_>>()
    };
    // In the more important class, then in the other one, a small job is out instead of a large
    // one.
    let most = [["job-3", "job-6"], ["job-2", "job-6"], ["job-2", "job-4"]];
    assert_eq!([out(0), out(1), out(2)], most);
}

/// Ten jobs of ten percent on one worker, when nine more workers come.
fn ten_on_one(rules: Rules) -> Case {
    let (shares, held) = (vec![10; 10], vec![Some(0); 10]);
    Case { rules, ..case((shares, held, 10)) }
}

#[test]
fn shares_are_leveled_within_the_tolerance_and_the_budget() {
    let reserved = |plan: &Plan| {
        let by_slot = plan.assignment.by_slot();
        (0..10)
            .map(|slot| by_slot.get(&Slot(slot)).map_or(0, BTreeSet::len) * 10)
            .collect::<Vec<_>>()
    };
    assert_eq!(ten_on_one(Rules::default()).plan().moves, &[]);
    let level = Rules { share_tolerance: Some(0), ..Rules::default() };
    assert_eq!(reserved(&ten_on_one(level).plan()), [10; 10]);
    let mut case = ten_on_one(Rules { moves_max: Some(2), share_tolerance: Some(20), ..level });
    let plan = case.plan();
    assert_eq!((voluntary(&plan), plan.deferred.len()), (2, 6));
    for _ in 0..4 {
        let plan = case.plan();
        assert_eq!(check(&case.request(), &plan), Ok(()));
        case = case.after(&plan);
    }
    let settled = case.plan();
    assert_eq!((settled.moves.len(), settled.deferred.len()), (0, 0));
    let reserved = reserved(&settled);
    assert_eq!(spread(&reserved), 20, "{reserved:?}");
}

/// Jobs by name, each with its share, its pin and its holder.
fn few<'a>(
    pool: Pool,
    jobs: impl IntoIterator<Item = (&'a str, Option<u8>, Option<u32>, Option<u32>)>,
) -> Case {
    let (mut wishes, mut held) = (Jobs::new(), Vec::new());
    for (name, percent, pin, holder) in jobs {
        let name: JobName = name.parse().unwrap();
        held.extend(holder.map(|holder| (name.clone(), Slot(holder))));
        let share = percent.and_then(|percent| Share::new(percent).ok());
        wishes.insert(name, Job { share, pin: pin.map(Slot), ..Job::default() });
    }
    Case { jobs: wishes, held: held.into_iter().collect(), pool, rules: Rules::default() }
}

/// The job does not fit where it is held, so packing it costs the first plan as much as a second
/// plan, which sees no holder for it.
#[test]
fn a_job_that_lost_its_worker_counts_for_no_move_of_a_packing() {
    let mut smaller = Pool::ready(2);
    smaller.0.get_mut(&Slot(0)).unwrap().capacity = Share::new(30).ok();
    let whole = [("a", 96, 1), ("b", 3, 1), ("c", 100, 0)];
    let mut single = Pool::ready(2);
    single.0.get_mut(&Slot(0)).unwrap().max_jobs = Some(1);
    single.0.get_mut(&Slot(1)).unwrap().capacity = Share::new(1).ok();
    let larger = [("a", 25, 0), ("b", 75, 1)];
    for (pool, jobs) in [(smaller, &whole[..]), (single, &larger)] {
        let jobs = jobs.iter().map(|(name, percent, at)| (*name, Some(*percent), None, Some(*at)));
        let mut case = few(pool, jobs);
        for moves_max in [None, Some(0), Some(1)] {
            case.rules.moves_max = moves_max;
            let plan = case.plan();
            assert_eq!(check(&case.request(), &plan), Ok(()));
            assert_eq!(&case.after(&plan).plan().moves, &[], "budget of {moves_max:?}");
        }
    }
}

/// Four jobs that need a worker each, and one without a share that is pinned to the third worker.
fn four_whole_and_a_pinned_one(workers: u32, held: &[(&str, u32)]) -> Case {
    let whole = Job { share: Share::new(100).ok(), ..Job::default() };
    let name = |name: &str| name.parse::<JobName>().unwrap();
    let mut jobs: Jobs = ["a", "b", "c", "d"].map(|job| (name(job), whole.clone())).into();
    jobs.insert(name("light"), Job { pin: Some(Slot(2)), ..Job::default() });
    let held = held.iter().map(|(job, slot)| (name(job), Slot(*slot))).collect();
    Case { jobs, held, pool: Pool::ready(workers), rules: Rules::default() }
}

#[test]
fn a_whole_worker_job_leaves_alone_the_slot_of_a_pinned_job() {
    let light: JobName = "light".parse().unwrap();
    let full = [("a", 0), ("b", 1), ("c", 2), ("d", 3)];
    for mode in [Mode::Sticky, Mode::Canonical] {
        for (held, share_tolerance) in [(&full[..0], None), (&full, None), (&full, Some(10))] {
            let mut case = four_whole_and_a_pinned_one(6, held);
            case.rules = Rules { mode, share_tolerance, ..Rules::default() };
            let plan = case.plan();
            assert_eq!(check(&case.request(), &plan), Ok(()));
            assert_eq!(plan.unassigned, BTreeMap::new());
            assert_eq!(plan.assignment.holder(&light), Some(Slot(2)));
            assert_eq!(&case.after(&plan).plan().moves, &[]);
        }
    }
    // Only the job that is on this worker moves.
    let plan = four_whole_and_a_pinned_one(6, &full).plan();
    assert_eq!(plan.moves.iter().filter(|step| step.from.is_some()).count(), 1);
}

#[test]
fn a_job_with_a_share_comes_before_a_pinned_one_where_no_other_slot_is_free() {
    let case = four_whole_and_a_pinned_one(4, &[]);
    let plan = case.plan();
    assert_eq!(plan.unassigned.keys().map(JobName::as_str).collect::<Vec<_>>(), ["light"]);
    for workers in [1, 4, 6] {
        assert_eq!(four_whole_and_a_pinned_one(workers, &[]).request().workers_enough(), Some(5));
    }
}

/// The maximum of a worker is such a limit, too.
#[test]
fn a_job_with_a_share_leaves_the_only_place_of_a_worker_to_the_job_that_is_pinned_to_it() {
    let mut case = four_whole_and_a_pinned_one(2, &[("a", 0)]);
    case.jobs.retain(|job, _| ["a", "light"].contains(&job.as_str()));
    for job in case.jobs.values_mut() {
        job.share = job.share.and(Share::new(10).ok());
        job.pin = job.pin.and(Some(Slot(0)));
    }
    case.pool.0.values_mut().for_each(|member| member.max_jobs = Some(1));
    let plan = case.plan();
    assert_eq!(plan.unassigned, BTreeMap::new());
}

/// Two whole-worker jobs have to take two or one of the slots to which others are pinned.
#[test]
fn as_many_pinned_jobs_as_possible_find_room() {
    let mut case = four_whole_and_a_pinned_one(5, &[("a", 0), ("b", 1), ("c", 2), ("d", 3)]);
    let other = Job { pin: Some(Slot(0)), ..Job::default() };
    case.jobs.insert("other".parse().unwrap(), other);
    let plan = case.plan();
    assert_eq!(check(&case.request(), &plan), Ok(()));
    assert_eq!(plan.unassigned.len(), 1, "{:?}", plan.unassigned);
    assert_eq!(&case.after(&plan).plan().moves, &[]);
}

/// The job is pinned to a worker that is too small for it.
#[test]
fn a_job_with_a_share_that_never_has_a_place_takes_no_room_from_a_pinned_job() {
    let mut case = four_whole_and_a_pinned_one(7, &[("c", 2)]);
    let never = Job { pin: Some(Slot(6)), share: Share::new(60).ok(), ..Job::default() };
    case.jobs.insert("never".parse().unwrap(), never);
    case.pool.0.get_mut(&Slot(6)).unwrap().capacity = Share::new(50).ok();
    let plan = case.plan();
    assert_eq!(plan.unassigned.keys().map(JobName::as_str).collect::<Vec<_>>(), ["never"]);
}

#[test]
fn shares_are_leveled_next_to_a_pinned_job_and_stay() {
    let mut pool = Pool::ready(3);
    pool.0.get_mut(&Slot(0)).unwrap().max_jobs = Some(1);
    for (slot, percent) in [(1, 50), (2, 60)] {
        pool.0.get_mut(&Slot(slot)).unwrap().capacity = Share::new(percent).ok();
    }
    let jobs = [("big", Some(40), None), ("light", None, Some(0)), ("small", Some(18), None)];
    let mut case = few(pool, jobs.map(|(name, percent, pin)| (name, percent, pin, None)));
    case.rules.share_tolerance = Some(5);
    let plan = case.plan();
    assert_eq!(plan.unassigned, BTreeMap::new());
    assert_eq!(&case.after(&plan).plan().moves, &[]);
}
