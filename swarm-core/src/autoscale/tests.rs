//! The number of workers under any sequence of needs, judged from the questions and answers.

use proptest::prelude::*;

use super::*;
use crate::{Share, jobs};

const PER_WORKER: PerWorker = PerWorker::Jobs(1);

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn terms(min: u32, max: u32, cooldown: u64) -> Autoscale {
    Autoscale { min, max, per_worker: PER_WORKER, cooldown: secs(cooldown) }
}

/// One question to an autoscaler, with its time and its answer.
#[derive(Clone, Copy, Debug)]
struct Answer {
    at: u64,
    need: u32,
    workers: u32,
}

/// Asks with these needs, each after the given number of seconds.
fn asked(terms: &Autoscale, present: u32, needs: &[(u64, u32)]) -> Vec<Answer> {
    let (mut scaler, mut at) = (Autoscaler::default(), 0);
    let answer = |(after, need): &(u64, u32)| {
        at += after;
        let workers = scaler.step(terms, *need, present, secs(at)).workers;
        Answer { at, need: *need, workers }
    };
    needs.iter().map(answer).collect()
}

/// Bounds of 0 to 20, up to 20 more; a cooldown of up to two minutes. Up to 60 needs, with pauses
/// of up to a minute and a half.
fn any_sequence() -> impl Strategy<Value = (Autoscale, u32, Vec<(u64, u32)>)> {
    let bounds = (0..20_u32, 0..20_u32, 0..120_u64);
    let bounds = bounds.prop_map(|(min, more, cooldown)| terms(min, min + more, cooldown));
    (bounds, 0..50_u32, prop::collection::vec((0..90_u64, 0..50_u32), 1..60))
}

proptest! {
    #[test]
    fn the_number_stays_within_its_bounds_and_grows_at_once(
        (terms, present, needs) in any_sequence(),
    ) {
        for Answer { need, workers, .. } in asked(&terms, present, &needs) {
            prop_assert!(terms.min <= workers && workers <= terms.max);
            prop_assert!(need.min(terms.max) <= workers, "{need} are needed, {workers} are there");
        }
    }

    #[test]
    fn it_shrinks_only_to_what_was_enough_for_a_whole_cooldown(
        (terms, present, needs) in any_sequence(),
    ) {
        let answers = asked(&terms, present, &needs);
        for (n, pair) in answers.windows(2).enumerate() {
            let [before, after] = [pair[0], pair[1]];
            if before.workers <= after.workers {
                continue;
            }
            let begin = after.at.checked_sub(terms.cooldown.as_secs());
            prop_assert!(begin.is_some(), "within the first cooldown: {answers:?}");
            let until_now = &answers[..=n + 1];
            let lasted = until_now.iter().filter(|it| begin.is_some_and(|begin| begin < it.at));
            for Answer { need, .. } in lasted.chain([&after]) {
                prop_assert!(terms.bounded(*need) <= after.workers, "{answers:?}");
            }
            prop_assert!(until_now.iter().any(|it| terms.bounded(it.need) == after.workers));
        }
    }

    /// A cooldown lies between growing and shrinking, and between two times of shrinking, for any
    /// needs.
    #[test]
    fn it_never_flaps((terms, present, needs) in any_sequence()) {
        let mut last_change = None;
        for pair in asked(&terms, present, &needs).windows(2) {
            let [before, after] = [pair[0], pair[1]];
            if after.workers < before.workers {
                let since = last_change.map_or(after.at, |at| after.at - at);
                prop_assert!(terms.cooldown <= secs(since), "{since} s after the last change");
            }
            if after.workers != before.workers {
                last_change = Some(after.at);
            }
        }
    }

    /// A caller that asks again at the given times reaches the need after two cooldowns at the
    /// latest.
    #[test]
    fn a_need_that_stays_is_met((terms, present, needs) in any_sequence(), last in 0..50_u32) {
        let mut scaler = Autoscaler::default();
        let mut now = Duration::ZERO;
        for (after, need) in needs {
            now += secs(after);
            let _ = scaler.step(&terms, need, present, now);
        }
        let end = now + terms.cooldown * 2;
        let mut scale = scaler.step(&terms, last, present, now);
        while let Some(requeue_after) = scale.requeue_after {
            prop_assert!(!requeue_after.is_zero() || terms.cooldown.is_zero());
            now += requeue_after;
            scale = scaler.step(&terms, last, present, now);
            prop_assert!(now <= end, "it takes longer than two cooldowns");
        }
        prop_assert_eq!(scale.workers, terms.bounded(last));
    }

    /// A turn may come for any reason, and more of them change nothing.
    #[test]
    fn how_often_it_is_asked_makes_no_difference(
        (terms, present, needs) in any_sequence(),
        more in 1..5_usize,
    ) {
        let often = needs.iter().flat_map(|(after, need)| {
            let again = std::iter::repeat_n((0, *need), more);
            [(*after, *need)].into_iter().chain(again)
        });
        let often: Vec<_> = often.collect();
        let last = |needs: &[(u64, u32)]| asked(&terms, present, needs).pop().map(|it| it.workers);
        prop_assert_eq!(last(&often), last(&needs));
    }
}

/// A list swings between 2 and 10 workers, with every period from one second to ten minutes. The
/// pool changes at most twice in a cooldown, and a list that swings faster changes nothing.
#[test]
fn a_list_that_swings_does_not_swing_the_pool() {
    let terms = terms(1, 20, 300);
    for period in 1..=600_u64 {
        let needs: Vec<_> =
            (0..7200).map(|at| (1, if (2 * at / period) % 2 == 0 { 10 } else { 2 })).collect();
        let answers = asked(&terms, 2, &needs);
        let changes = answers.windows(2).filter(|pair| pair[0].workers != pair[1].workers).count();
        let most = if period < 600 { 0 } else { 2 * 7200 / period };
        assert!(changes as u64 <= most, "{changes} changes with a period of {period} s");
    }
}

#[test]
fn new_bounds_hold_at_once_and_the_wrong_way_round_the_fewest_count() {
    let mut scaler = Autoscaler::default();
    let mut workers = |terms: &Autoscale| scaler.step(terms, 6, 3, secs(1)).workers;
    assert_eq!(workers(&terms(1, 9, 60)), 6);
    assert_eq!(workers(&terms(8, 9, 60)), 8);
    assert_eq!(workers(&terms(1, 4, 60)), 4);
    assert_eq!(workers(&terms(7, 2, 60)), 7);
}

#[test]
fn an_autoscaler_without_memory_begins_with_the_present_workers() {
    let terms = terms(1, 9, 60);
    let mut scaler = Autoscaler::default();
    let scale = scaler.step(&terms, 2, 7, secs(1000));
    assert_eq!((scale.workers, scale.requeue_after), (7, Some(secs(60))));
    let scale = scaler.step(&terms, 2, 7, secs(1060));
    assert_eq!((scale.workers, scale.requeue_after), (2, None));
}

fn desired(jobs: Jobs, autoscale: Autoscale) -> Desired {
    Desired { jobs, autoscale: Some(autoscale), ..Desired::default() }
}

fn need(desired: &Desired) -> Need {
    Need::of(&Ledger::new(1), desired, 0).unwrap()
}

fn shares(shares: &[u8]) -> Jobs {
    let job = |(n, share): (usize, &u8)| {
        let job = Job { share: Share::new(*share).ok(), ..Job::default() };
        (format!("job-{n}").parse().unwrap(), job)
    };
    shares.iter().enumerate().map(job).collect()
}

#[test]
fn workers_are_needed_by_jobs_and_by_shares() {
    let by_jobs = desired(jobs(["a", "b", "c", "d", "e"]).unwrap(), terms(0, 9, 1));
    let two = |desired: &Desired, per_worker| {
        let autoscale = desired.autoscale.map(|terms| Autoscale { per_worker, ..terms });
        need(&Desired { autoscale, ..desired.clone() })
    };
    assert_eq!(two(&by_jobs, PerWorker::Jobs(2)).workers, 3);
    assert_eq!(two(&by_jobs, PerWorker::Share(50)).workers, 1, "no job has a share");
    let by_shares = desired(shares(&[30, 30, 30]), terms(0, 9, 1));
    assert_eq!(two(&by_shares, PerWorker::Share(100)).workers, 1);
    assert_eq!(two(&by_shares, PerWorker::Share(60)).workers, 2);
    assert_eq!(need(&desired(Jobs::new(), terms(0, 9, 1))).workers, 0);
}

#[test]
fn jobs_that_do_not_fit_need_more_workers_than_their_number_says() {
    let mut whole = desired(shares(&[100, 100, 100, 100]), terms(1, 9, 1));
    whole.autoscale = Some(Autoscale { per_worker: PerWorker::Jobs(10), ..terms(1, 9, 1) });
    assert_eq!(need(&whole), Need { workers: 4, enough: 4 });
    whole.autoscale = Some(Autoscale { per_worker: PerWorker::Jobs(10), ..terms(1, 3, 1) });
    assert_eq!(need(&whole), Need { workers: 3, enough: 4 });
    let limited = Desired { max_jobs: Some(2), ..whole };
    let limited = Desired { jobs: jobs(["a", "b", "c", "d", "e"]).unwrap(), ..limited };
    assert_eq!(need(&limited), Need { workers: 3, enough: 3 });
}

#[test]
fn a_worker_of_half_the_size_counts_as_half() {
    let half = |slots: &[u32]| {
        let by_slot = slots.iter().map(|slot| (Slot(*slot), Share::new(50).unwrap()));
        let few = Autoscale { per_worker: PerWorker::Jobs(10), ..terms(1, 9, 1) };
        let pool = desired(shares(&[60, 60]), few);
        Desired { capacity_by_slot: by_slot.collect(), ..pool }
    };
    assert_eq!(need(&half(&[])).workers, 2);
    assert_eq!(need(&half(&[0])).workers, 3);
    assert_eq!(need(&half(&[0, 1, 2])).workers, 5);
    assert_eq!(need(&half(&[3])).workers, 2, "nobody asks for that one");
    let from_three = |slots| Need::of(&Ledger::new(1), &half(slots), 3).unwrap().workers;
    assert_eq!((from_three(&[0]), from_three(&[3])), (2, 3));
    let jobs = jobs(["a", "b", "c", "d", "e"]).unwrap();
    let maxima = Desired { jobs, max_jobs: Some(2), ..half(&[]) };
    assert_eq!(need(&maxima).workers, 3);
    let one = Desired { max_jobs_by_slot: [(Slot(1), 5)].into(), ..maxima.clone() };
    assert_eq!(need(&one).workers, 2, "the second has room for five");
    let none = Desired { max_jobs_by_slot: [(Slot(1), 0)].into(), ..maxima };
    assert_eq!(need(&none).workers, 4);
}

/// A mistaken pin does not raise the number of workers to its maximum.
#[test]
fn a_job_that_fits_nowhere_needs_nobody() {
    let pinned = |slot| Job { pin: Some(Slot(slot)), ..Job::default() };
    let mut all = jobs(["a", "b"]).unwrap();
    all.insert("far".parse().unwrap(), pinned(90_000));
    let mut pool = desired(all, terms(1, 9, 1));
    pool.autoscale = Some(Autoscale { per_worker: PerWorker::Jobs(10), ..terms(1, 9, 1) });
    assert_eq!(need(&pool), Need { workers: 1, enough: 90_001 });
    pool.jobs.insert("near".parse().unwrap(), pinned(4));
    assert_eq!(need(&pool).workers, 5);
    // If slots count from 3, the fifth slot is worker 1.
    assert_eq!(Need::of(&Ledger::new(1), &pool, 3).unwrap().workers, 2);
    pool.autoscale = None;
    pool.jobs.remove("far");
    assert_eq!(need(&pool), Need { workers: 5, enough: 5 });
    let all = Desired { replication: Replication::All, ..pool };
    assert_eq!(Need::of(&Ledger::new(1), &all, 0), None);
}
