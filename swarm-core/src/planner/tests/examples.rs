//! Single cases, small pools exhaustively, and plans that must never change.

use super::*;
use crate::{JobsError, jobs};

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

/// The case that the predecessors' slicing `start = i * size` handled wrongly: job 3 ran twice, job
/// 5 never.
#[test]
fn five_jobs_on_two_workers_run_once_each() {
    let five = jobs(["1", "2", "3", "4", "5"]).unwrap();
    let plan = plan(&five, &Assignment::default(), &Pool::ready(2));
    assert_eq!(loads(&plan.assignment, &Pool::ready(2)), [3, 2]);
    assert_eq!(plan.assignment.len(), 5);
}

/// Placement is persisted behaviour: another plan would move jobs in every running pool.
///
/// The fingerprints were computed on x86-64 only. They hold on other platforms because of how the
/// planner computes. Names are hashed as bytes, which XXH3 reads as little-endian words explicitly
/// (`from_le_bytes`). All further values are `u64`s, their shifts and products, which have no byte
/// order. The bytes of a number are never hashed or compared, and a `usize` is widened to 64 bits
/// before it enters a hash. All orders are orders of bytes or integers. A sort is stable, or its
/// key contains the job's number. No map with a random order is iterated, and no floats are used.
#[test]
fn plans_of_a_thousand_jobs_are_frozen() {
    let jobs = names(1_000);
    let fingerprint = |assignment: &Assignment| {
        let lines: Vec<_> = assignment.iter().map(|(job, slot)| format!("{job}={slot}")).collect();
        let text = lines.join("\n") + "\n";
        twox_hash::XxHash3_64::oneshot(text.as_bytes())
    };
    let first = plan(&jobs, &Assignment::default(), &Pool::ready(7));
    let up = plan(&jobs, &first.assignment, &Pool::ready(10));
    let down = plan(&jobs, &up.assignment, &Pool::ready(6));
    let found = [&first, &up, &down].map(|plan| fingerprint(&plan.assignment));
    assert_eq!(
        found,
        [0x4140_bbc0_2eeb_3c95, 0x5f3c_e066_9a45_8b68, 0x4546_5fc6_34d9_9a19],
        "{found:#x?}"
    );
}

#[test]
fn a_held_job_without_any_worker_is_unassigned_with_a_reason() {
    let jobs = names(1);
    let held = plan(&jobs, &Assignment::default(), &Pool::ready(1)).assignment;
    let plan = plan(&jobs, &held, &Pool::default());
    assert_eq!(plan.unassigned.values().collect::<Vec<_>>(), [&Unassigned::NoWorkers]);
    assert_eq!(plan.moves[0].reason.as_str(), "no-workers");
    assert_eq!((plan.moves[0].from, plan.moves[0].to), (Some(Slot(0)), None));
}

#[test]
fn a_pinned_job_waits_only_for_the_worker_that_keeps_it() {
    let pinned = Job { pin: Some(Slot(1)), ..Job::default() };
    let jobs: Jobs =
        [("a".parse().unwrap(), pinned.clone()), ("b".parse().unwrap(), pinned)].into();
    let held =
        Assignment::from_iter([("a".parse().unwrap(), Slot(1)), ("b".parse().unwrap(), Slot(0))]);
    let pool = Pool([member(0, Standing::Takes, None), member(1, Standing::Keeps, None)].into());
    let plan = plan(&jobs, &held, &pool);
    assert_eq!(plan.assignment.holder(&"a".parse().unwrap()), Some(Slot(1)));
    assert_eq!(plan.unassigned["b"], Unassigned::Pin);
    assert_eq!(plan.moves[0].reason.as_str(), "pin");
}

#[test]
fn when_workers_are_full_low_priorities_are_unassigned_first_then_new_jobs() {
    let mut jobs = names(4);
    jobs.insert("urgent".parse().unwrap(), Job { priority: 1, ..Job::default() });
    jobs.insert("idle".parse().unwrap(), Job { priority: -1, ..Job::default() });
    let held = ["idle", "job-0", "job-2"].map(|name| (name.parse().unwrap(), Slot(0)));
    let pool = Pool([member(0, Standing::Takes, Some(3))].into());
    let plan = plan(&jobs, &held.into_iter().collect(), &pool);
    let assigned: Vec<_> = plan.assignment.iter().map(|(job, _)| job.as_str()).collect();
    assert_eq!(assigned, ["job-0", "job-2", "urgent"]);
    assert_eq!(plan.unassigned.values().filter(|why| why.as_str() == "capacity").count(), 3);
}

#[test]
fn of_equal_jobs_that_are_pinned_to_a_full_worker_the_one_that_is_there_stays() {
    // `urgent` displaces one of them in either case; only one of them need not move as well.
    let pinned = |priority| Job { pin: Some(Slot(0)), priority, ..Job::default() };
    for (there, elsewhere) in [("a", "b"), ("b", "a")] {
        let name = |name: &str| name.parse::<JobName>().unwrap();
        let jobs = [("a", pinned(-1)), ("b", pinned(-1)), ("urgent", Job::default())];
        let jobs: Jobs = jobs.map(|(job, wish)| (name(job), wish)).into();
        let held = [(there, Slot(0)), ("urgent", Slot(0)), (elsewhere, Slot(1))];
        let held = held.map(|(job, slot)| (name(job), slot)).into_iter().collect();
        let pool =
            Pool([member(0, Standing::Takes, Some(1)), member(1, Standing::Takes, None)].into());
        let plan = plan(&jobs, &held, &pool);
        assert_eq!(plan.assignment.holder(&name(there)), Some(Slot(0)));
        assert_eq!(plan.unassigned.keys().collect::<Vec<_>>(), [&name(elsewhere)]);
    }
}

#[test]
fn duplicate_names_are_refused_by_number() {
    let refused = JobTable::new(["b", "a", "b"]).unwrap_err();
    let name = "b".parse().unwrap();
    assert_eq!(refused, JobsError::Duplicate { name, first: 1, second: 3 });
}

#[test]
fn extreme_slots_are_planned_without_panic() {
    let slots = [0, 5_000, 1_000_000, u32::MAX - 1, u32::MAX];
    let pool = Pool(slots.map(|slot| member(slot, Standing::Takes, None)).into());
    let mut jobs = names(100);
    let pinned = Job { pin: Some(Slot(u32::MAX)), priority: i32::MIN, ..Job::default() };
    jobs.insert("pinned".parse().unwrap(), pinned);
    let request =
        Request { jobs: &jobs, held: &Assignment::default(), pool: &pool, rules: Rules::default() };
    let plan = request.plan();
    assert_eq!(check(&request, &plan), Ok(()));
    assert_eq!(loads(&plan.assignment, &pool), [25; 4]);
    assert_eq!(plan.unassigned["pinned"], Unassigned::Pin);
}

#[test]
fn every_worker_that_takes_jobs_runs_all_and_one_that_keeps_what_it_has() {
    let jobs = jobs(["a", "b"]).unwrap();
    let set = |names: [&str; 2]| names.map(|name| name.parse().unwrap()).into();
    let held = BTreeMap::from([(Slot(1), set(["b", "gone"])), (Slot(2), set(["a", "b"]))]);
    let pool = Pool([member(0, Standing::Takes, None), member(1, Standing::Keeps, None)].into());
    let plan = everywhere(&jobs, &held, &pool);
    assert_eq!([0, 1, 2].map(|slot| plan.jobs_of(Slot(slot)).len()), [2, 1, 0]);
    let changes = plan.changes(&held);
    let counts = changes.values().map(|change| (change.included.len(), change.excluded.len()));
    assert_eq!(counts.collect::<Vec<_>>(), [(2, 0), (0, 1), (0, 2)]);
    assert_eq!(everywhere(&jobs, &held, &Pool::default()).unassigned.len(), 2);
}
