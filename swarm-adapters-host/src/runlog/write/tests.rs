//! Tests of the writer, mostly through the reader.

use std::fs;
use std::path::PathBuf;

use super::super::judge::Replication;
use super::super::{Damage, judged, rotate, rotated};
use super::*;

struct Logs {
    dir: tempfile::TempDir,
}

impl Logs {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("run.log")
    }

    fn open(&self, worker: &str, session: &str) -> RunLog {
        RunLog::open(&self.path(), worker, session).unwrap()
    }

    fn text(&self) -> String {
        fs::read_to_string(self.path()).unwrap()
    }

    /// Renames the log, and lets these writers notice it.
    fn rotate(&self, writers: &[&RunLog]) {
        rotate(&self.path(), 0).unwrap();
        assert!(!self.path().exists());
        for writer in writers {
            writer.look_again();
        }
    }
}

/// The number of runs and overlaps, whether every run has a start, and the state of the logs.
fn summary(paths: &[PathBuf]) -> (u64, usize, bool, Damage) {
    let (verdict, damage) = judged(paths, Replication::One).unwrap();
    (verdict.runs, verdict.overlaps.len(), verdict.is_complete(), damage)
}

fn start(log: &RunLog, job: &str, token: u64) {
    log.write(&job.parse().unwrap(), Token(token), RunEvent::Start).unwrap();
}

fn stop(log: &RunLog, job: &str, token: u64) {
    log.write(&job.parse().unwrap(), Token(token), RunEvent::Stop).unwrap();
}

#[test]
fn a_line_records_who_ran_what_when() {
    let logs = Logs::new();
    let before = boottime_ns();
    let log = logs.open("w-0", "s1");
    start(&log, "stream:\"a\"", 7);
    log.alive().unwrap();
    stop(&log, "stream:\"a\"", 7);
    log.alive().unwrap();
    drop(log);
    let text = logs.text();
    let [session, start, alive, stop, end] = text.lines().collect::<Vec<_>>()[..] else {
        panic!("{text}")
    };
    let at = |line: &str| -> u64 {
        line.strip_prefix("{\"at\":").unwrap().split_once(',').unwrap().0.parse().unwrap()
    };
    assert!((before..=boottime_ns()).contains(&at(session)) && at(session) < at(start), "{text}");
    let writer = session.split("\"writer\":").nth(1).unwrap().split(',').next().unwrap();
    let since = at(session);
    let rest = format!(
        r#","format":2,"writer":{writer},"n":0,"worker":"w-0","session":"s1","since":{since}}}"#
    );
    assert!(session.ends_with(&rest), "{text}");
    let run = r#""job":"stream:\"a\"","worker":"w-0","session":"s1","token":7}"#;
    assert!(start.ends_with(&format!(r#","writer":{writer},"n":1,"event":"start",{run}"#)));
    assert!(alive.ends_with(&format!(r#","alive":{writer},"n":2}}"#)), "{text}");
    assert!(stop.ends_with(&format!(r#","writer":{writer},"n":3,"event":"stop",{run}"#)));
    assert!(end.ends_with(&format!(r#","writer":{writer},"n":4,"event":"end"}}"#)), "{text}");
}

#[test]
fn a_full_disk_is_reported_once_and_counted() {
    let log = RunLog::open(Path::new("/dev/full"), "w-0", "s1").unwrap();
    let write = || log.write(&JobName::new("a").unwrap(), Token(1), RunEvent::Start);
    assert!(write().is_err());
    assert!(write().is_ok() && log.alive().is_ok());
    assert_eq!(log.errors(), 3);
}

#[test]
fn a_rotated_log_and_the_new_one_can_each_be_judged() {
    let logs = Logs::new();
    let (log, other) = (logs.open("w-0", "s1"), logs.open("w-1", "s2"));
    start(&log, "a", 1);
    start(&log, "gone", 2);
    start(&other, "b", 3);
    stop(&log, "gone", 2);
    logs.rotate(&[&log, &other]);
    log.alive().unwrap();
    other.alive().unwrap();
    stop(&log, "a", 1);
    start(&other, "a", 4);
    stop(&other, "a", 4);
    stop(&other, "b", 3);
    drop((log, other));
    let (new, old) = (logs.path(), rotated(&logs.path()));
    for (paths, runs) in
        [(vec![old.clone()], 3), (vec![new.clone()], 3), (vec![new.clone(), old.clone()], 4)]
    {
        let (found, overlaps, is_complete, damage) = summary(&paths);
        assert_eq!((found, overlaps, is_complete), (runs, 0, true), "{paths:?}");
        assert!(damage.is_none(), "{paths:?}: {damage:?}");
    }
}

#[test]
fn a_double_run_is_found_in_a_file_without_the_one_before_it() {
    let logs = Logs::new();
    let (log, other) = (logs.open("w-0", "s1"), logs.open("w-1", "s2"));
    start(&log, "a", 1);
    start(&other, "a", 2);
    logs.rotate(&[&log, &other]);
    other.alive().unwrap();
    log.alive().unwrap();
    let (runs, overlaps, ..) = summary(&[logs.path()]);
    assert_eq!((runs, overlaps), (2, 1));
    let both = [logs.path(), rotated(&logs.path())];
    let (verdict, _) = judged(&both, Replication::One).unwrap();
    assert_eq!((verdict.overlaps.len(), verdict.regressions.len()), (1, 0), "{verdict:?}");
}

#[test]
fn a_log_that_was_removed_or_truncated_goes_on_with_the_running_jobs() {
    for damage in [
        (|path: &Path| fs::remove_file(path).unwrap()) as fn(&Path),
        |path| fs::rename(path, path.with_extension("old")).unwrap(),
        |path| fs::write(path, "").unwrap(),
    ] {
        let logs = Logs::new();
        let log = logs.open("w-0", "s1");
        start(&log, "a", 1);
        start(&log, "b", 1);
        damage(&logs.path());
        log.look_again();
        log.alive().unwrap();
        let text = logs.text();
        assert!(text.lines().count() == 4 && text.contains(r#""event":"running","job":"b""#));
        let (runs, _, is_complete, damage) = summary(&[logs.path()]);
        assert_eq!((runs, is_complete, damage.is_none()), (2, true, true), "{damage:?}");
    }
}

#[test]
fn a_line_that_was_not_written_is_missing_until_the_running_jobs_are_named_again() {
    let logs = Logs::new();
    let log = logs.open("w-0", "s1");
    start(&log, "a", 1);
    let lose = || {
        let mut state = log.state.lock().unwrap();
        (state.n, state.is_whole) = (state.n + 1, false);
    };
    lose();
    log.alive().unwrap();
    assert!(summary(&[logs.path()]).3.is_none(), "a start or a second is named again");
    log.state.lock().unwrap().since = Some(boottime_ns());
    lose();
    log.alive().unwrap();
    let damage = summary(&[logs.path()]).3;
    let [gap] = &damage.coverage.gaps[..] else { panic!("{damage:?}") };
    assert_eq!((gap.session.as_deref(), gap.from < gap.until), (Some("s1"), true));
}

#[test]
fn a_log_that_was_switched_off_says_so_and_none_is_created() {
    let logs = Logs::new();
    switched_off(&logs.path()).unwrap();
    assert!(!logs.path().exists());
    let log = logs.open("w-0", "s1");
    start(&log, "a", 1);
    stop(&log, "a", 1);
    drop(log);
    switched_off(&logs.path()).unwrap();
    let damage = summary(&[logs.path()]).3;
    assert!(damage.coverage.off_since.is_some() && damage.coverage.gaps.is_empty(), "{damage:?}");
    start(&logs.open("w-0", "s2"), "a", 2);
    let damage = summary(&[logs.path()]).3;
    assert_eq!((damage.coverage.off_since, damage.coverage.gaps.len()), (None, 1), "{damage:?}");
}
