//! Tests of the judge with logs of a few lines.

use std::time::Duration;

use super::*;

/// Judges lines such as `5 a/s1/1 start`: second 5, job `a`, session `s1`, token 1. The worker is
/// the session's last character.
fn judged(replication: Replication, lines: &[&str]) -> Verdict {
    let mut judge = Judge::new(replication);
    for line in lines {
        let mut words = line.split(' ');
        let t = Duration::from_secs_f64(words.next().unwrap().parse().unwrap());
        let t = t.as_nanos().try_into().unwrap();
        let run: Vec<_> = words.next().unwrap().split('/').collect();
        let event = match words.next().unwrap() {
            "start" => Event::Start,
            "tick" => Event::Tick,
            "held" => Event::Held,
            _ => Event::Stop,
        };
        let (session, token) = (run[1], run[2].parse().unwrap());
        let worker = &session[session.len() - 1..];
        judge.take(&Line { t, job: run[0], worker, session, token, event });
    }
    judge.verdict()
}

fn one(lines: &[&str]) -> Verdict {
    judged(Replication::One, lines)
}

fn gap_ms(verdict: &Verdict) -> Option<u64> {
    verdict.longest_gap.as_ref().map(|gap| gap.ns / 1_000_000)
}

#[test]
fn a_clean_handover_is_a_gap_and_nothing_else() {
    let verdict = one(&[
        "1 a/s1/1 start",
        "2 a/s1/1 tick",
        "2.5 a/s1/1 stop",
        "2.7 a/s2/2 start",
        "3.7 a/s2/2 tick",
    ]);
    assert!(verdict.is_good());
    assert_eq!((verdict.jobs, verdict.runs, gap_ms(&verdict)), (1, 2, Some(200)));
}

#[test]
fn any_event_of_the_older_run_after_the_newer_start_is_one_overlap() {
    let verdict = one(&[
        "1 a/s1/1 start",
        "2 a/s2/2 start",
        "2.1 a/s1/1 tick",
        "3 a/s2/2 stop",
        "3.1 a/s1/1 stop",
    ]);
    let [overlap] = &verdict.overlaps[..] else { panic!("{verdict:?}") };
    let ends = (overlap.from, overlap.until, overlap.older.token, overlap.newer.token);
    assert_eq!(ends, (2_000_000_000, 3_100_000_000, 1, 2));
    assert_eq!(verdict.regressions, []);
}

#[test]
fn the_time_in_a_line_counts_and_not_its_position() {
    let late_start = ["1 a/s1/1 start", "2.1 a/s1/1 tick", "2 a/s2/2 start"];
    assert_eq!(one(&late_start).overlaps.len(), 1);
    let late_tick = ["1 a/s1/1 start", "2 a/s2/2 start", "1.9 a/s1/1 tick"];
    assert!(one(&late_tick).is_good());
}

#[test]
fn a_job_may_start_again_under_the_same_grant() {
    let again = ["1 a/s1/1 start", "2 a/s1/1 stop", "2.1 a/s1/1 start", "3 a/s1/1 tick"];
    let verdict = one(&again);
    assert!(verdict.is_good());
    assert_eq!((verdict.runs, gap_ms(&verdict)), (2, Some(100)));
}

#[test]
fn a_smaller_or_reused_token_is_a_regression() {
    let smaller = one(&["1 a/s1/5 start", "2 a/s1/5 stop", "3 a/s2/4 start"]);
    assert_eq!((smaller.regressions[0].token, smaller.regressions[0].after), (4, 5));
    assert_eq!(smaller.overlaps.len(), 1, "an event of an older token after the newer start");
    let reused = one(&["1 a/s1/5 start", "2 a/s1/5 stop", "3 a/s2/5 start"]);
    assert_eq!((reused.regressions.len(), reused.overlaps.len()), (1, 0));
    let without = one(&["1 a/s1/0 start", "2 a/s1/0 stop", "3 a/s2/0 start", "4 a/s2/0 stop"]);
    assert!(without.is_good());
    let back = one(&[
        "1 a/s1/0 start",
        "2 a/s1/0 stop",
        "3 a/s2/0 start",
        "4 a/s2/0 stop",
        "5 a/s1/0 start",
    ]);
    assert!(back.is_good());
}

#[test]
fn every_worker_may_run_a_job_where_all_do_but_each_only_once() {
    let both = ["1 a/s1/1 start", "1 a/s2/2 start", "2 a/s1/1 tick", "2 a/s2/2 tick"];
    assert!(judged(Replication::All, &both).is_good());
    assert_eq!(one(&both).overlaps.len(), 1);
    let again = ["1 a/s1/1 start", "2 a/s1/1 stop", "3 a/t1/1 start", "4 a/t1/1 tick"];
    assert!(judged(Replication::All, &again).is_good(), "a worker that was restarted");
    assert_eq!(one(&again).regressions.len(), 1);
    let twice = ["1 a/s1/1 start", "2 a/t1/2 start", "3 a/s1/1 tick"];
    assert_eq!(judged(Replication::All, &twice).overlaps.len(), 1);
}

#[test]
fn where_replication_changes_no_worker_runs_a_job_under_one_token_while_another_has_a_later_one() {
    let changing = |lines: &[&str]| judged(Replication::Changing, lines);
    let all = ["1 a/s1/1 start", "1 a/s2/1 start", "2 a/s1/1 tick", "2 a/s2/1 tick"];
    assert!(changing(&all).is_good());
    let to_one = ["2.1 a/s1/1 stop", "2.2 a/s2/1 stop", "2.3 a/s1/2 start", "3 a/s1/2 tick"];
    assert!(changing(&[all, to_one].concat()).is_good());
    let too_early = ["2.1 a/s1/1 stop", "2.2 a/s1/2 start", "2.3 a/s2/1 stop"];
    assert_eq!(changing(&[&all[..], &too_early].concat()).overlaps.len(), 1);
    let to_all = ["1 a/s1/1 start", "2 a/s2/2 start", "2.1 a/s1/1 stop", "2.2 a/s1/2 start"];
    assert_eq!(changing(&to_all).overlaps.len(), 1);
    let twice = ["1 a/s1/1 start", "2 a/t1/1 start", "3 a/s1/1 tick"];
    assert_eq!(changing(&twice).overlaps.len(), 1, "one worker, in two sessions");
    let back = ["3 a/s1/2 start", "3.1 a/s1/2 stop", "4 a/s2/1 start"];
    assert_eq!(changing(&back).regressions.len(), 1);
}

#[test]
fn silence_of_more_than_three_ticks_is_a_gap_also_at_the_end() {
    assert_eq!(gap_ms(&one(&["1 a/s1/1 start", "4 a/s1/1 tick"])), None);
    assert_eq!(gap_ms(&one(&["1 a/s1/1 start", "4.1 a/s1/1 tick"])), Some(3_100));
    let dead = ["1 a/s1/1 start", "1 b/s1/1 start", "5 b/s1/1 stop"];
    assert_eq!(gap_ms(&one(&dead)), Some(4_000));
    let stopped =
        ["1 a/s1/1 start", "1 b/s1/1 start", "2 a/s1/1 stop", "9 c/s1/1 start", "2 b/s1/1 stop"];
    assert_eq!(gap_ms(&one(&stopped)), None);
}

#[test]
fn runs_without_a_start_or_a_stop_are_counted() {
    let counts = |lines: &[&str]| {
        let verdict = one(lines);
        (verdict.runs_without_start, verdict.runs_without_stop, verdict.is_complete())
    };
    assert_eq!(counts(&[]), (0, 0, false));
    assert_eq!(counts(&["1 a/s1/1 start", "2 a/s1/1 tick"]), (0, 0, true), "it still runs");
    assert_eq!(counts(&["2 a/s1/1 tick", "3 a/s1/1 stop"]), (1, 0, false));
    let killed = ["1 a/s1/1 start", "2 a/s2/2 start", "3 a/s2/2 stop"];
    assert_eq!(counts(&killed), (0, 1, true));
    let silent = ["1 a/s1/1 start", "1 b/s1/2 start", "5 b/s1/2 tick"];
    assert_eq!(counts(&silent), (0, 1, true));
    let again = ["1 a/s1/1 start", "2 a/s1/1 start", "3 a/s1/1 stop"];
    assert_eq!(counts(&again), (0, 1, true));
    let lowered = ["1 a/s1/4 start", "2 a/s1/5 tick", "3 a/s1/5 stop"];
    assert_eq!(counts(&lowered), (1, 1, false), "the token of a start was lowered");
}

#[test]
fn a_reboot_ends_every_run_and_keeps_the_tokens() {
    let mut judge = Judge::new(Replication::One);
    let line = |t, session, token, event| Line { t, job: "a", worker: "w", session, token, event };
    judge.take(&line(900, "s1", 5, Event::Start));
    judge.machine_started();
    judge.take(&line(10, "s2", 6, Event::Start));
    judge.take(&line(20, "s3", 4, Event::Start));
    let verdict = judge.verdict();
    assert_eq!((verdict.regressions.len(), verdict.longest_gap.unwrap().ns), (1, 10));
}

#[test]
fn findings_are_counted_beyond_the_list_and_memory_stays_bounded() {
    let mut judge = Judge::new(Replication::One);
    for number in 1..=5_000_u64 {
        let session = if number % 2 == 0 { "even" } else { "odd" };
        let (t, event) = (number, Event::Start);
        judge.take(&Line { t, job: "a", worker: "w", session, token: 6_000 - number, event });
    }
    assert!(judge.jobs["a"][&0].runs.len() <= RUNS_MAX);
    let verdict = judge.verdict();
    assert_eq!((verdict.regressions.len(), verdict.overlaps.len()), (LISTED_MAX, LISTED_MAX));
    assert_eq!(verdict.regressions_left_out, 3_999);
}

#[test]
fn a_run_that_could_not_be_ended_has_an_end_that_was_seen_or_may_still_run() {
    let seen = one(&["1 a/s1/1 start", "2 a/s1/1 held", "3 a/s1/1 stop", "4 a/s2/2 start"]);
    assert!(seen.is_good() && seen.is_complete());
    let lines = ["1 a/s1/1 start", "2 a/s1/1 held", "4 a/s2/2 start", "5 a/s2/2 tick"];
    let unseen = one(&lines);
    assert!(unseen.is_good() && !unseen.is_complete());
    let [Unseen { job, run, since }] = &unseen.unseen[..] else { panic!("{unseen:?}") };
    assert_eq!((&**job, &*run.session, run.token, *since), ("a", "s1", 1, 2_000_000_000));
}
