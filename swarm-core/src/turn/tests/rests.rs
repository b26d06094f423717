//! Pools with failing jobs come to rest while every worker answers at once.

use proptest::prelude::*;

use super::*;
use crate::Share;

const WORKERS: u32 = 4;

fn seen(ledger: &Ledger, workers: u32, relocations: &BTreeMap<JobName, Relocation>) -> Observed {
    let positions = (0 < ledger.revision()).then(|| ledger.position());
    let mut seen = acked(&vec![ledger.revision(); workers as usize]);
    seen.positions.extend(positions);
    seen.relocations = relocations.clone();
    seen
}

/// Returns the ledger at rest; `Err` with the last two ledgers if the pool never rests.
fn rest(
    desired: &Desired,
    mut ledger: Ledger,
    workers: u32,
    relocations: &BTreeMap<JobName, Relocation>,
) -> Result<Ledger, Box<[Ledger; 2]>> {
    // Each job is released and granted a few times at most, and a budget makes each a turn.
    let most = 8 * u32::try_from(desired.jobs.len()).unwrap() + 8;
    for _ in 0..most {
        let next = decide(&ledger, desired, &seen(&ledger, workers, relocations)).ledger;
        if next == ledger {
            return Ok(ledger);
        }
        ledger = next;
    }
    let next = decide(&ledger, desired, &seen(&ledger, workers, relocations)).ledger;
    Err(Box::new([ledger, next]))
}

fn name(n: usize) -> JobName {
    format!("j{n:02}").parse().unwrap()
}

fn share(percent: u8) -> Job {
    Job { share: Share::new(percent).ok(), ..Job::default() }
}

fn at_once(jobs: Jobs) -> Desired {
    let timing = Timing { initial_wait: Duration::ZERO, ..Timing::default() };
    Desired { jobs, timing, policy: Policy::Exclusive, ..Desired::default() }
}

#[test]
fn a_failing_job_that_has_to_make_room_within_a_budget_comes_to_rest() {
    for budget in [None, Some(1), Some(2)] {
        let pinned = |percent, slot| Job { pin: Some(Slot(slot)), ..share(percent) };
        let mut desired = at_once([(name(0), pinned(49, 0)), (name(5), pinned(63, 1))].into());
        desired.rules.moves_max = budget;
        desired.max_jobs_by_slot = [(Slot(0), 3), (Slot(1), 1)].into();
        let ledger = rest(&desired, Ledger::new(1), 2, &BTreeMap::new()).unwrap();
        desired.jobs.values_mut().for_each(|job| job.pin = None);
        desired.jobs.insert(name(1), share(63));
        let relocation = Relocation { home: Slot(0), failed_on: [Slot(0)].into() };
        let rested = rest(&desired, ledger, 2, &[(name(0), relocation)].into());
        assert!(rested.is_ok(), "{budget:?}: {rested:?}");
    }
}

fn any_job() -> impl Strategy<Value = Job> {
    prop_oneof![2 => Just(Job::default()), 2 => (1..=100_u8).prop_map(share)]
}

proptest! {
    /// With shares and a budget there are rare pools that do not rest: jobs of several shares that
    /// make room together, some of them failing.
    #[test]
    fn a_pool_with_failing_jobs_comes_to_rest(
        jobs in prop::collection::vec(any_job(), 1..10),
        maxima in prop::collection::vec(prop::option::weighted(0.4, 1..5_u32), WORKERS as usize),
        workers in 2..=WORKERS,
        moves_max in prop::option::weighted(0.7, 1..3_usize),
        failing in prop::collection::btree_map(0..10_usize, prop::collection::btree_set(0..WORKERS, 1..3), 1..4),
        arrivals in prop::collection::vec(any_job(), 0..4),
    ) {
        let wanted = |job| if moves_max.is_none() { job } else { Job::default() };
        let jobs = jobs.into_iter().map(wanted).enumerate();
        let jobs: Jobs = jobs.map(|(n, job)| (name(n), job)).collect();
        let mut desired = at_once(jobs);
        desired.rules.moves_max = moves_max;
        let maxima = maxima.into_iter().enumerate();
        desired.max_jobs_by_slot =
            maxima.filter_map(|(slot, most)| Some((Slot(u32::try_from(slot).ok()?), most?))).collect();
        let rested = rest(&desired, Ledger::new(1), workers, &BTreeMap::new());
        prop_assert!(rested.is_ok(), "without a failing job: {rested:?}");
        let ledger = rested.unwrap();
        let failing = failing.into_iter().filter_map(|(job, failed_on)| {
            let home = ledger.assignment().holder(&name(job))?;
            let failed_on = failed_on.into_iter().map(Slot).chain([home]).collect();
            Some((name(job), Relocation { home, failed_on }))
        });
        let failing = failing.collect();
        for (n, job) in arrivals.into_iter().map(wanted).enumerate() {
            desired.jobs.insert(name(20 + n), job);
        }
        let rested = rest(&desired, ledger, workers, &failing);
        prop_assert!(rested.is_ok(), "{rested:?}");
    }
}
