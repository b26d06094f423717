//! Tests of logs of a few lines.

use std::collections::BTreeMap;
use std::fs;

use proptest::prelude::*;

use super::super::judge::{Replication, Verdict};
use super::super::{Damage, ReadError, judged};

const SECOND: u64 = 1_000_000_000;

/// Judges lines such as `5 9 2 start a 7`: second 5, line 2 of writer 9, the start of job `a` under
/// token 7. The session and the worker of writer 9 are `s9` and `w`. `5 9 0 session 3` begins a
/// file with all runs since second 3. A line in braces stays as it is.
fn log(lines: &[&str]) -> (Verdict, Damage) {
    try_log(lines).unwrap()
}

fn try_log(lines: &[&str]) -> Result<(Verdict, Damage), ReadError> {
    try_logs(&[lines])
}

fn try_logs(files: &[&[&str]]) -> Result<(Verdict, Damage), ReadError> {
    let dir = tempfile::tempdir().unwrap();
    let mut paths = Vec::new();
    for (number, lines) in files.iter().enumerate() {
        let path = dir.path().join(format!("{number}.log"));
        let lines = lines.iter().map(|line| written(line) + "\n");
        fs::write(&path, lines.collect::<String>()).unwrap();
        paths.push(path);
    }
    judged(&paths, Replication::One)
}

fn ns(seconds: &str) -> u64 {
    let seconds: f64 = seconds.parse().unwrap();
    std::time::Duration::from_secs_f64(seconds).as_nanos().try_into().unwrap()
}

fn written(line: &str) -> String {
    if line.starts_with('{') {
        return line.to_owned();
    }
    let words: Vec<_> = line.split(' ').collect();
    let at = ns(words[0]);
    match words[1..] {
        [w, n, "alive"] => format!(r#"{{"at":{at},"alive":{w},"n":{n}}}"#),
        [w, n, "end"] => format!(r#"{{"at":{at},"writer":{w},"n":{n},"event":"end"}}"#),
        [w, n, "session", since] => format!(
            r#"{{"at":{at},"format":2,"writer":{w},"n":{n},"worker":"w","session":"s{w}","since":{}}}"#,
            ns(since)
        ),
        [w, n, event, job, token] => format!(
            r#"{{"at":{at},"writer":{w},"n":{n},"event":"{event}","job":"{job}","worker":"w","session":"s{w}","token":{token}}}"#
        ),
        [w, n, event, job, token, since] => format!(
            r#"{{"at":{at},"writer":{w},"n":{n},"event":"{event}","job":"{job}","worker":"w","session":"s{w}","token":{token},"since":{}}}"#,
            ns(since)
        ),
        // Format 1.
        [run, event] => {
            let [job, session, token] = run.split('/').collect::<Vec<_>>()[..] else { panic!() };
            format!(
                r#"{{"t":{at},"job":"{job}","worker":"w","session":"{session}","token":{token},"event":"{event}"}}"#
            )
        }
        _ => panic!("{line}"),
    }
}

/// The gaps in seconds.
fn gaps(damage: &Damage) -> Vec<(u64, u64)> {
    let gaps = damage.coverage.gaps.iter();
    gaps.map(|gap| (gap.from / SECOND, gap.until / SECOND)).collect()
}

const CLEAN: [&str; 9] = [
    "1 8 0 session 1",
    "1 8 1 start a 1",
    "2 8 2 alive",
    "2.5 8 3 stop a 1",
    "2.6 8 4 end",
    "2.7 9 0 session 2.7",
    "2.8 9 1 start a 2",
    "3.8 9 2 stop a 2",
    "3.9 9 3 end",
];

#[test]
fn a_clean_handover_is_complete_from_the_first_line_to_the_last() {
    let (verdict, damage) = log(&CLEAN);
    assert!(verdict.is_good() && verdict.is_complete() && damage.is_none(), "{damage:?}");
    assert_eq!((verdict.jobs, verdict.runs, verdict.runs_without_stop), (1, 2, 0));
    assert_eq!(verdict.longest_gap.unwrap().ns, 3 * SECOND / 10);
    let coverage = damage.coverage;
    let time = (coverage.from, coverage.until, coverage.without_end);
    assert_eq!(time, (Some(SECOND), 39 * SECOND / 10, 0));
}

/// An `alive` line is as good as a `tick` of format 1 for each job.
#[test]
fn a_double_run_within_one_alive_interval_is_found() {
    let killed = [
        "1 8 0 session 1",
        "1 8 1 start a 1",
        "1 8 2 start b 2",
        "2 8 3 alive",
        "2.1 9 0 session 2.1",
        "2.1 9 1 start b 3",
        "3 8 4 alive",
    ];
    let (verdict, _) = log(&killed);
    let [overlap] = &verdict.overlaps[..] else { panic!("{verdict:?}") };
    assert_eq!((&*overlap.job, overlap.from, overlap.until), ("b", 21 * SECOND / 10, 3 * SECOND));
    let (verdict, _) = log(&killed[..6]);
    assert!(verdict.is_good(), "nothing shows that it still ran");
    let quick = [&killed[..6], &["2.2 8 4 stop b 2"]].concat();
    assert_eq!(log(&quick).0.overlaps[0].until, 22 * SECOND / 10);
    let in_order = ["1 8 0 session 1", "1 8 1 start b 2", "2 8 2 stop b 2", "2.1 9 0 session 2.1"];
    let in_order = [&in_order[..], &["2.1 9 1 start b 3", "3 8 3 alive"]].concat();
    assert!(log(&in_order).0.is_good(), "the stopped job is none of the running ones");
}

#[test]
fn two_sessions_of_one_worker_are_told_apart() {
    let lines = [
        "1 8 0 session 1",
        "1 8 1 start a 1",
        "2 9 0 session 2",
        "2 9 1 start a 1",
        "2.5 8 2 alive",
        "2.6 9 2 alive",
    ];
    let (verdict, _) = log(&lines);
    assert_eq!((verdict.overlaps.len(), verdict.regressions.len()), (1, 1), "{verdict:?}");
    let after = [&lines[..2], &["2 8 2 stop a 1", "2 8 3 end", "3 9 0 session 3"]].concat();
    let (verdict, damage) = log(&[&after[..], &["3 9 1 start a 2", "4 9 2 alive"]].concat());
    assert!(verdict.is_good() && damage.is_none(), "{verdict:?}");
}

#[test]
fn another_process_may_report_the_end_for_a_killed_writer() {
    let lines = [
        "1 8 0 session 1",
        "1 8 1 start a 1",
        "2 8 2 alive",
        r#"{"at":2500000000,"format":2,"writer":7,"n":0,"worker":"w","session":"s8","since":2500000000}"#,
        r#"{"at":2600000000,"writer":7,"n":1,"event":"stop","job":"a","worker":"w","session":"s8","token":1}"#,
        "3 9 0 session 3",
        "3 9 1 start a 2",
        "9 9 2 alive",
    ];
    let (verdict, damage) = log(&lines);
    assert!(verdict.is_good() && damage.is_none());
    assert_eq!((verdict.runs_without_stop, damage.coverage.without_end), (0, 2));
}

#[test]
fn each_missing_line_is_noticed() {
    for (lost, line) in CLEAN.iter().enumerate() {
        let mut lines = CLEAN.to_vec();
        lines.remove(lost);
        let damage = log(&lines).1;
        // Without its last line, a writer may have been killed.
        let is_last = matches!(lost, 4 | 8);
        assert_eq!(damage.is_none(), is_last, "{line}: {damage:?}");
    }
}

#[test]
fn a_crash_and_a_silence_lose_nothing_that_a_later_line_shows() {
    let frozen = ["1 8 0 session 1", "1 8 1 start a 1", "2 8 2 alive", "7200 8 3 alive"];
    let (verdict, damage) = log(&frozen);
    assert!(verdict.is_good() && damage.is_none(), "the machine may have slept");
    assert_eq!(verdict.longest_gap.unwrap().ns, 7198 * SECOND);
    let crashed = [&frozen[..3], &["60 9 0 session 60", "60 9 1 start a 2"]].concat();
    let (verdict, damage) = log(&crashed);
    assert!(verdict.is_good() && verdict.is_complete() && damage.is_none());
    assert_eq!((verdict.runs_without_stop, damage.coverage.without_end), (1, 1));
    let woken = [&crashed[..], &["61 8 3 alive"]].concat();
    assert_eq!(log(&woken).0.overlaps.len(), 1, "it had never ended");
}

#[test]
fn a_file_is_judged_from_its_own_beginning() {
    let rotated = [
        "100 8 70 session 40",
        "100 8 71 running a 1 3",
        "100.8 9 20 session 100.5",
        "100.8 9 21 running b 2 9",
        "101 8 72 alive",
    ];
    let (verdict, damage) = log(&rotated);
    assert!(verdict.is_good() && verdict.is_complete() && damage.is_none(), "{damage:?}");
    assert_eq!((verdict.runs, damage.coverage.from), (2, Some(1005 * SECOND / 10)));
    let idle = [&rotated[..], &["5000 7 40 session 60", "5000 7 41 start c 3"]].concat();
    assert!(log(&idle).1.is_none(), "it ran nothing since before the file began");
    let late = [&rotated[..], &["5000 7 40 session 4000", "5000 7 41 start c 3"]].concat();
    assert_eq!(gaps(&log(&late).1), [(100, 4000)]);
    let frozen = [&rotated[..], &["102 6 0 session 102", "102 6 1 start b 3"]].concat();
    let frozen = [&frozen[..], &["5000 9 22 alive"]].concat();
    assert_eq!(log(&frozen).0.overlaps.len(), 1);
    let cut = log(&rotated[4..]).1;
    assert_eq!((gaps(&cut).len(), cut.is_none()), (1, false), "nobody knows what runs");
}

#[test]
fn a_log_that_spans_a_reboot_is_judged_before_and_after_it() {
    let lines = [
        "900 8 0 session 900",
        "900 8 1 start a 1",
        "901 8 2 alive",
        "5 9 0 session 5",
        "5 9 1 start a 2",
        "6 9 2 alive",
    ];
    let (verdict, damage) = log(&lines);
    assert!(verdict.is_good() && verdict.longest_gap.is_none() && damage.is_none(), "{damage:?}");
    let coverage = damage.coverage;
    let time = (coverage.from, coverage.until, coverage.reboots);
    assert_eq!(time, (Some(900 * SECOND), 6 * SECOND, 1));
    let again = [&lines[..], &["7 7 0 session 7", "7 7 1 start b 1", "8 8 3 alive"]].concat();
    assert!(!log(&again).1.is_none(), "no writer survives a reboot");
    let lower = [&lines[..3], &["5 9 0 session 5", "5 9 1 start a 0", "6 9 2 alive"]].concat();
    assert_eq!(log(&lower).0.regressions.len(), 1, "tokens rise across reboots");
}

#[test]
fn lines_of_both_formats_are_judged_together() {
    let upgraded = [
        "1 a/s1/1 start",
        "2 a/s1/1 tick",
        "2.5 a/s1/1 stop",
        "3 8 0 session 3",
        "3 8 1 start a 2",
        "4 8 2 alive",
    ];
    let (verdict, damage) = log(&upgraded);
    assert!(verdict.is_good() && verdict.is_complete() && damage.is_none());
    for late in ["3.5 a/s1/1 tick", "3.5 a/s1/1 stop"] {
        let lines = [&upgraded[..2], &upgraded[3..], &[late]].concat();
        assert_eq!(log(&lines).0.overlaps.len(), 1, "{late}");
    }
}

#[test]
fn a_later_format_is_refused() {
    let lines = [&CLEAN[..], &[r#"{"at":9,"format":3,"writer":1}"#]].concat();
    let error = try_log(&lines).unwrap_err().to_string();
    assert!(error.contains("line 10 has format 3, ") && error.contains(" 1 to 2; "), "{error}");
}

/// The check of a program that knows only format 1.
#[test]
fn an_earlier_program_reads_none_of_the_lines() {
    for line in CLEAN {
        let line = written(line);
        let fields: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert!(fields.get("t").is_none() && !line.starts_with(r#"{"t":"#), "{line}");
    }
}

/// Two writers and what they write in both formats.
#[derive(Default)]
struct Both {
    first: Vec<String>,
    second: Vec<String>,
    /// The number of the next line of each writer.
    n: [u64; 2],
    since: [f64; 2],
    running: BTreeMap<(usize, char), (u64, f64)>,
    token: u64,
}

impl Both {
    fn add(&mut self, at: f64, writer: usize, line: &str) {
        let (w, n) = (8 + writer, self.n[writer]);
        self.second.push(format!("{at} {w} {n} {line}"));
        self.n[writer] += 1;
    }

    fn begin_file(&mut self, at: f64) {
        for writer in 0..2 {
            self.add(at, writer, &format!("session {}", self.since[writer]));
            for ((_, job), (token, since)) in
                self.running.clone().range((writer, 'a')..=(writer, 'z'))
            {
                self.add(at, writer, &format!("running {job} {token} {since}"));
                self.first.push(format!("{at} {job}/s{}/{token} tick", 8 + writer));
            }
        }
    }

    /// The jobs that both writers run.
    fn doubled(&self) -> usize {
        let runs = |writer, job| self.running.contains_key(&(writer, job));
        ['a', 'b'].into_iter().filter(|job| runs(0, *job) && runs(1, *job)).count()
    }

    /// Lets a writer start or stop a job, or say that it is alive.
    fn step(&mut self, at: f64, writer: usize, job: char, is_alive: bool) {
        let w = 8 + writer;
        if is_alive {
            if self.running.keys().any(|(of, _)| *of == writer) {
                self.add(at, writer, "alive");
            }
            for ((_, job), (token, _)) in self.running.range((writer, 'a')..=(writer, 'z')) {
                self.first.push(format!("{at} {job}/s{w}/{token} tick"));
            }
        } else if let Some((token, _)) = self.running.remove(&(writer, job)) {
            self.since[writer] = at;
            self.add(at, writer, &format!("stop {job} {token}"));
            self.first.push(format!("{at} {job}/s{w}/{token} stop"));
        } else {
            self.token += 1;
            let token = self.token;
            self.running.insert((writer, job), (token, at));
            self.add(at, writer, &format!("start {job} {token}"));
            self.first.push(format!("{at} {job}/s{w}/{token} start"));
        }
    }
}

proptest! {
    /// Histories with double runs, most of them short: no format may hide what the other shows.
    #[test]
    fn both_formats_show_the_same_runs_and_double_runs(
        steps in proptest::collection::vec((0..2_usize, proptest::char::range('a', 'b'), proptest::bool::ANY), 2..40),
        cut in 1..40_usize,
    ) {
        let mut both = Both::default();
        both.begin_file(0.0);
        let (mut beginning, mut doubled) = (0, 0);
        for (number, (writer, job, is_alive)) in (1_u32..).zip(&steps) {
            let at = f64::from(number) / 4.0;
            both.step(at, *writer, *job, *is_alive);
            if number as usize == cut.min(steps.len() - 1) {
                (beginning, doubled) = (both.second.len(), both.doubled());
                both.begin_file(at + 0.1);
            }
        }
        let first: Vec<_> = both.first.iter().map(String::as_str).collect();
        let second: Vec<_> = both.second.iter().map(String::as_str).collect();
        let (old, new) = second.split_at(beginning);
        let expected = try_log(&first).unwrap().0;
        let (found, damage) = try_logs(&[new, old]).unwrap();
        prop_assert!(damage.is_none(), "{damage:?}");
        prop_assert_eq!(&found.overlaps, &expected.overlaps);
        prop_assert_eq!(&found.regressions, &expected.regressions);
        prop_assert_eq!((found.runs, found.jobs), (expected.runs, expected.jobs));
        // The newer file alone shows each double run that lasts beyond its beginning.
        let (alone, damage) = try_logs(&[new]).unwrap();
        prop_assert!(damage.is_none() && (alone.is_complete() || alone.runs == 0), "{damage:?}");
        prop_assert!(doubled <= alone.overlaps.len(), "{alone:?}");
    }
}

#[test]
fn a_file_without_the_earlier_ones_shows_no_gap_since_the_start_of_a_run() {
    let later =
        ["61 8 4 session 58", "61 8 5 running a 7 2", "61 8 6 alive", "62 8 7 alive", "63 8 8 end"];
    let (verdict, damage) = log(&later);
    assert_eq!(verdict.longest_gap, None);
    assert!(verdict.is_good() && verdict.is_complete(), "{verdict:?}");
    assert_eq!(gaps(&damage), []);
    // A silence within the file is a gap.
    let silent = [&later[..3], &["70 8 7 alive"][..]].concat();
    let gap = log(&silent).0.longest_gap.unwrap();
    assert_eq!((gap.from / SECOND, gap.ns / SECOND), (61, 9));
}
