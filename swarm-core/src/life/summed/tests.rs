//! The sum of reports of workers: what is counted once, and what a worker cannot do.

use proptest::prelude::*;

use super::super::*;
use super::*;

const EXIT: &str = "ended with exit code 3";

fn job(name: &str) -> JobName {
    name.parse().unwrap()
}

/// A worker that has had these news of job `a`.
fn worker(since_ms: u64, news: &[(u64, News<'_>)]) -> Lives {
    let mut lives = Lives::begin(since_ms);
    for (at, news) in news {
        lives.learn(*at, &job("a"), "anything", *news);
    }
    lives
}

fn crash() -> News<'static> {
    News::Restarting(EXIT)
}

fn held(session: &str, worker: &str) -> (String, String) {
    (session.to_owned(), worker.to_owned())
}

#[test]
fn a_failing_job_that_moves_fails_still_with_its_counts_until_it_runs_well() {
    let mut pool = SummedLives::begin(0);
    let first = worker(0, &[(1_000, crash()), (2_000, crash())]);
    pool.take(2_100, "s0", "w-0", &first, |_| true);
    pool.follow(2_200, |_| Some(held("s0", "w-0")));
    // The worker itself measures how long it runs there, and ends with its pod.
    assert!(pool.lives().of("a").unwrap().fails(60_000));
    pool.follow(60_000, |_| None);
    pool.follow(61_000, |_| Some(held("s1", "w-1")));
    pool.follow(90_999, |_| Some(held("s1", "w-1")));
    let life = pool.lives().of("a").unwrap();
    assert!(life.fails(90_999));
    let fails = life.failing.as_ref().unwrap();
    assert_eq!((fails.since_ms, fails.worker.as_str(), life.restarts), (1_000, "w-0", 2));
    assert_eq!(life.counts, [(Cause::Crash, 2)].into());
    let mut recovers = pool.clone();
    recovers.follow(91_000, |_| Some(held("s1", "w-1")));
    assert!(recovers.lives().of("a").unwrap().failing.is_none());
    let second = worker(60_000, &[(90_000, crash())]);
    pool.take(91_000, "s1", "w-1", &second, |_| true);
    let life = pool.lives().of("a").unwrap();
    let fails = life.failing.as_ref().unwrap();
    assert_eq!((fails.since_ms, fails.worker.as_str(), life.restarts), (1_000, "w-1", 3));
    let events = life.events.iter().map(|it| (it.at_ms, it.worker.as_str()));
    assert_eq!(events.collect::<Vec<_>>(), [(1_000, "w-0"), (2_000, "w-0"), (90_000, "w-1")]);
}

#[test]
fn a_job_recovers_once_the_worker_that_reported_it_reports_it_no_more() {
    let mut pool = SummedLives::begin(0);
    let mut lives = worker(0, &[(1_000, crash()), (2_000, News::Started)]);
    pool.take(2_100, "s", "w-0", &lives, |_| true);
    lives.settle(32_000);
    pool.take(32_100, "s", "w-0", &lives, |_| true);
    let life = pool.lives().of("a").unwrap();
    assert!(life.failing.is_none() && life.restarts == 1);
    // Another event of a later session of that worker ends no failure of another one.
    pool.take(40_000, "t", "w-1", &worker(39_000, &[(39_500, crash())]), |_| true);
    pool.take(
        41_000,
        "u",
        "w-1",
        &worker(40_500, &[(40_900, News::Event(Cause::Killed, ""))]),
        |_| true,
    );
    assert!(pool.lives().of("a").unwrap().fails(41_000));
}

#[test]
fn a_worker_is_believed_about_its_own_jobs_within_bounds_and_about_nothing_else() {
    let mut lies = worker(0, &[(9_000, crash())]);
    lies.learn(1, &job("other"), "w-9", crash());
    let life = lies.jobs.get_mut("a").unwrap();
    life.counts = Cause::ALL.iter().map(|cause| (*cause, u64::MAX)).collect();
    life.restarts = u64::MAX;
    life.events[0].detail = "\u{1b}".repeat(1_000);
    life.events[0].at_ms = u64::MAX;
    let event = life.events[0].clone();
    life.events.resize(1_000, event);
    let fails = life.failing.as_mut().unwrap();
    (fails.since_ms, fails.exit) = (u64::MAX, "\u{1b}x".repeat(1_000));
    let mut pool = SummedLives::begin(0);
    for _ in 0..3 {
        pool.take(5_000, "s", "w-0", &lies, |job| job.as_str() == "a");
    }
    assert!(pool.lives().of("other").is_none());
    let life = pool.lives().of("a").unwrap();
    let counts = [Cause::Crash, Cause::Stall, Cause::Killed].map(|cause| (cause, COUNT_MAX));
    assert_eq!((life.counts.clone(), life.restarts), (counts.into(), COUNT_MAX));
    assert_eq!(life.events.len(), EVENTS_MAX);
    assert!(life.events.iter().all(|it| it.at_ms == 5_000 && it.worker == "w-0"));
    assert!(life.events.iter().all(|it| !it.detail.contains(char::is_control)));
    let fails = life.failing.as_ref().unwrap();
    assert_eq!((fails.since_ms, fails.worker.as_str()), (5_000, "w-0"));
    assert!(fails.exit.chars().count() <= DETAIL_MAX);
    // The text of events, and the marks, are bounded, too.
    for n in 0..3_000 {
        let mut one = Lives::begin(0);
        one.learn(1, &job(&format!("j{n}")), "w", crash());
        pool.take(6_000, "many", "w-1", &one, |_| true);
    }
    assert!(pool.taken.values().map(BTreeMap::len).sum::<usize>() <= MARKS_MAX);
}

#[test]
fn a_session_that_is_gone_and_a_job_that_was_removed_need_no_room() {
    let mut pool = SummedLives::begin(0);
    for session in ["s", "t"] {
        pool.take(9, session, "w", &worker(0, &[(1, crash())]), |_| true);
    }
    pool.retain(|session| session == "t", |_| true);
    assert_eq!(pool.taken.keys().collect::<Vec<_>>(), ["t"]);
    assert_eq!(pool.lives().of("a").unwrap().restarts, 2);
    pool.retain(|_| true, |_| false);
    assert_eq!(pool, SummedLives { lives: pool.lives.clone(), taken: BTreeMap::new() });
    assert!(pool.lives().of("a").is_none());
}

#[test]
fn a_life_that_was_left_out_for_room_is_not_counted_again() {
    let mut pool = SummedLives::begin(0);
    let mut lives = worker(0, &[(1, crash())]);
    pool.take(9, "s", "w", &lives, |_| true);
    pool.limit(10, 0, 0);
    pool.take(11, "s", "w", &lives, |_| true);
    assert_eq!(pool.lives().of("a").map(|it| it.restarts).unwrap_or_default(), 0);
    lives.learn(12, &job("a"), "w", crash());
    pool.take(13, "s", "w", &lives, |_| true);
    let life = pool.lives().of("a").unwrap();
    assert_eq!((life.since_ms, life.restarts), (10, 1));
}

/// A session: the news of its jobs, and the numbers of the reports that the operator reads, in order.
#[derive(Clone, Debug)]
struct Told {
    news: Vec<(usize, usize)>,
    reads: Vec<usize>,
}

fn told() -> impl Strategy<Value = Told> {
    let news = prop::collection::vec((0..3_usize, 0..4_usize), 0..20);
    let reads = prop::collection::vec(0..40_usize, 0..20);
    (news, reads).prop_map(|(news, reads)| Told { news, reads })
}

/// All reports of a session, from the empty one to the last.
fn reports(told: &Told, begin_ms: u64) -> Vec<Lives> {
    let mut lives = Lives::begin(begin_ms);
    let mut all = vec![lives.clone()];
    for (n, (which, news)) in told.news.iter().enumerate() {
        let news = [
            News::Restarting(EXIT),
            News::Stalled("no output"),
            News::Event(Cause::Killed, ""),
            News::Started,
        ][*news];
        lives.learn(begin_ms + n as u64, &job(["a", "b", "c"][*which]), "w", news);
        all.push(lives.clone());
    }
    all
}

proptest! {
    /// The sum has each event of the last reports once. Reports are read twice and late, in any order of
    /// sessions, and the operator restarts after each.
    #[test]
    fn each_event_is_counted_once(sessions in prop::collection::vec(told(), 1..5), order: u64) {
        let all: Vec<_> = sessions.iter().enumerate()
            .map(|(n, told)| reports(told, 1_000 * n as u64)).collect();
        let mut reads: Vec<_> = sessions.iter().enumerate()
            .flat_map(|(n, told)| told.reads.iter().map(move |read| (n, *read)))
            .collect();
        // A rotation interleaves the sessions.
        let by = usize::try_from(order % 97).unwrap() % reads.len().max(1);
        reads.rotate_left(by);
        reads.sort_by_key(|(n, read)| (read * 7 + n * 3) % 11);
        let last = all.iter().enumerate().map(|(n, reports)| (n, reports.len() - 1));
        reads.extend(last);
        let mut pool = SummedLives::begin(0);
        for (n, read) in &reads {
            let report = &all[*n][*read % all[*n].len()];
            let before = pool.lives().clone();
            pool.take(10_000, &format!("s{n}"), &format!("w-{n}"), report, |_| true);
            let once = pool.clone();
            pool.take(10_000, &format!("s{n}"), &format!("w-{n}"), report, |_| true);
            prop_assert_eq!(&pool, &once, "a report that is read again");
            for (job, life) in before.iter() {
                let after = pool.lives().of(job.as_str()).unwrap();
                prop_assert!(life.restarts <= after.restarts, "counts never fall");
            }
            // An operator that starts reads what the previous one has written.
            let text = serde_json::to_string(&pool).unwrap();
            let read: SummedLives = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&read.taken, &pool.taken);
            prop_assert_eq!(read.lives.jobs.len(), pool.lives.jobs.len());
        }
        for name in ["a", "b", "c"] {
            let of = |lives: &Lives| lives.of(name).map(|it| (it.restarts, it.counts.clone()));
            let (mut restarts, mut counts) = (0, Counts::new());
            for report in all.iter().filter_map(|reports| of(reports.last()?)) {
                restarts += report.0;
                for (cause, count) in report.1 {
                    *counts.entry(cause).or_default() += count;
                }
            }
            let found = of(pool.lives()).unwrap_or_default();
            prop_assert_eq!(found, (restarts, counts), "job {}", name);
        }
    }
}
