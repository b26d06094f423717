use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const EXIT: &str = "ended with exit code 3";

fn job(name: &str) -> JobName {
    name.parse().unwrap()
}

fn lives(news: &[(u64, &str, News<'_>)]) -> Lives {
    let mut lives = Lives::begin(0);
    for (at, worker, news) in news {
        lives.learn(*at, &job("a"), worker, *news);
    }
    lives
}

#[test]
fn a_failing_job_that_moves_fails_until_it_has_run_for_half_a_minute_in_all() {
    let moved = [
        (1_000, "w-0", News::Restarting(EXIT)),
        (2_000, "w-0", News::Started),
        (12_000, "w-0", News::Stopped),
        // No worker runs it for an hour.
        (3_600_000, "w-1", News::Started),
    ];
    let mut all = lives(&moved);
    assert_eq!(all.well_in(3_600_000), Some(20_000));
    assert_eq!(all.failing(3_619_999).count(), 1);
    assert_eq!(all.failing(3_620_000).count(), 0);
    let fails = all.of("a").unwrap().failing.clone().unwrap();
    assert_eq!((fails.since_ms, fails.exit.as_str()), (1_000, EXIT));
    let before = all.changes();
    all.settle(3_619_999);
    assert_eq!(all.changes(), before);
    all.settle(3_620_000);
    assert!(before < all.changes() && all.of("a").unwrap().failing.is_none());
    assert_eq!(all.of("a").unwrap().restarts, 1, "its counters stay");
}

#[test]
fn a_job_that_fails_again_on_another_worker_fails_since_its_first_end() {
    let all = lives(&[
        (1_000, "w-0", News::Restarting(EXIT)),
        (2_000, "w-1", News::Started),
        (3_000, "w-1", News::Failed("was ended by signal 11")),
    ]);
    let life = all.of("a").unwrap();
    let fails = life.failing.as_ref().unwrap();
    assert_eq!((fails.since_ms, fails.worker.as_str()), (1_000, "w-1"));
    assert_eq!((life.restarts, life.counts[&Cause::Crash]), (1, 2), "no run follows the second");
    assert_eq!(life.last_end(), Some("was ended by signal 11"));
}

#[test]
fn a_success_ends_a_failure_and_counts_nothing() {
    let mut all = lives(&[
        (1_000, "w-0", News::Restarting(EXIT)),
        (2_000, "w-0", News::Started),
        (3_000, "w-0", News::Succeeded),
    ]);
    assert_eq!((all.failing(3_000).count(), all.well_in(3_000)), (0, None));
    let life = all.of("a").unwrap();
    assert_eq!((life.restarts, life.counts[&Cause::Crash]), (1, 1));
    all.learn(4_000, &job("b"), "w-0", News::Succeeded);
    assert!(all.of("b").is_none(), "a job without an event has no life");
}

#[test]
fn the_time_of_a_run_ends_with_its_worker() {
    let mut all = lives(&[(0, "w-0", News::Restarting(EXIT)), (1_000, "w-0", News::Started)]);
    all.gone(2_000, "w-1");
    assert_eq!(all.well_in(2_000), Some(29_000));
    all.gone(6_000, "w-0");
    assert_eq!(all.well_in(9_000), None);
    assert_eq!(all.of("a").unwrap().failing.as_ref().unwrap().ran_ms, 5_000);
}

#[test]
fn the_end_of_a_run_that_stalled_is_no_crash() {
    let stall = [(1, "w", News::Stalled("no output for 9 s")), (2, "w", News::Restarting(EXIT))];
    let all = lives(&stall);
    let life = all.of("a").unwrap();
    assert_eq!((life.counts.clone(), life.restarts), ([(Cause::Stall, 1)].into(), 1));
    let moved = [stall[0], (2, "w", News::Stopped), (3, "x", News::Restarting(EXIT))];
    let counts = lives(&moved).of("a").unwrap().counts.clone();
    assert_eq!(counts, [(Cause::Stall, 1), (Cause::Crash, 1)].into());
}

#[test]
fn a_job_without_an_event_has_no_life_and_a_removed_one_none_any_more() {
    let mut all = lives(&[(1, "w", News::Started), (2, "w", News::Stopped)]);
    assert_eq!((all.iter().count(), all.changes()), (0, 0));
    all.learn(3, &job("a"), "w", News::Event(Cause::ByHand, "restart"));
    all.retain(|_| false);
    assert_eq!((all.iter().count(), all.changes()), (0, 2));
}

#[cfg(feature = "serde")]
#[test]
fn what_a_later_version_writes_is_read() {
    let later = r#"{"sinceMs": 7, "size": 1, "jobs": {"a": {"counts": {"crash": 2, "melt": 3},
        "events": [{"atMs": 9, "cause": "melt", "worker": "w", "heat": 5}]}}}"#;
    let read: Lives = serde_json::from_str(later).unwrap();
    let life = read.of("a").unwrap();
    assert_eq!((life.counts[&Cause::Crash], life.counts[&Cause::Other]), (2, 3));
    assert_eq!((life.events.len(), life.events[0].cause), (1, Cause::Other));
}

/// News at a time after the one before, for a job on a worker.
type Step = (u64, usize, usize, usize, String);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..20_000_u64, 0..3_usize, 0..2_usize, 0..6_usize, "\\PC{0,200}");
    prop::collection::vec(step, 0..60)
}

/// Takes the steps, and compares the failing jobs after each with a count of their running time.
fn walk(steps: &[Step]) -> Lives {
    let mut all = Lives::begin(0);
    // The time that each job has run since its last end, and the worker that runs it now.
    let mut ran = BTreeMap::<usize, u64>::new();
    let mut runs = BTreeMap::<usize, usize>::new();
    let mut now = 0;
    for (after, number, worker, kind, text) in steps {
        now += after;
        for number in runs.keys() {
            ran.entry(*number).and_modify(|ran| *ran += after);
        }
        let news = match kind {
            0 => News::Started,
            1 => News::Stopped,
            2 => News::Restarting(text),
            3 => News::Failed(text),
            4 => News::Stalled(text),
            _ => News::Event(Cause::Killed, text),
        };
        all.learn(now, &job(&format!("job-{number}")), &format!("w-{worker}"), news);
        match kind {
            0 => drop(runs.insert(*number, *worker)),
            1 if runs.get(number) == Some(worker) => drop(runs.remove(number)),
            2 | 3 => {
                ran.insert(*number, 0);
                runs.remove(number);
            }
            _ => {}
        }
        let failing: Vec<_> = all.failing(now).map(|(job, _)| job.to_string()).collect();
        let expected = ran.iter().filter(|(_, ran)| **ran < RUNS_WELL_MS);
        let expected: Vec<_> = expected.map(|(number, _)| format!("job-{number}")).collect();
        assert_eq!(failing, expected, "at {now}");
        if now % 3 == 0 {
            all.settle(now);
            ran.retain(|_, ran| *ran < RUNS_WELL_MS);
        }
    }
    all
}

proptest! {
    #[test]
    fn a_job_fails_if_it_ended_within_the_last_half_minute_of_its_running(steps in steps()) {
        let all = walk(&steps);
        let count = |kinds: &[usize]| steps.iter().filter(|it| kinds.contains(&it.3)).count() as u64;
        let counted = |cause| all.iter().filter_map(|(_, it)| it.counts.get(&cause)).sum::<u64>();
        prop_assert!(all.learned().iter().all(|(cause, learned)| counted(*cause) == *learned));
        prop_assert_eq!(counted(Cause::Killed), count(&[5]));
        prop_assert_eq!(counted(Cause::Stall), count(&[4]));
        prop_assert!(counted(Cause::Crash) <= count(&[2, 3]));
        prop_assert_eq!(all.iter().map(|(_, it)| it.restarts).sum::<u64>(), count(&[2]));
        prop_assert!(all.iter().all(|(_, life)| life.events.len() <= EVENTS_MAX));
    }

    #[cfg(feature = "serde")]
    #[test]
    fn lives_are_read_as_they_were_written_within_their_bounds(
        steps in steps(),
        jobs in 0_usize..4,
        bytes in 0_usize..20_000,
    ) {
        let mut all = walk(&steps);
        let counts = |all: &Lives| -> Vec<_> {
            all.iter().map(|(job, it)| (job.clone(), it.counts.clone(), it.restarts)).collect()
        };
        let before = counts(&all);
        all.limit(7, jobs, bytes);
        let text = serde_json::to_string(&all).unwrap();
        prop_assert!(all.bytes() <= bytes && all.iter().count() <= jobs);
        prop_assert!(text.len() <= bytes + 40, "{} {bytes}", text.len());
        prop_assert!(counts(&all).iter().all(|it| before.contains(it)), "counters are not cut");
        let read: Lives = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(serde_json::to_string(&read).unwrap(), text);
        let mut again = all.clone();
        again.limit(8, jobs, bytes);
        prop_assert_eq!(again, all, "limits have no more effect");
    }
}
