//! A full disk, and a disk that cannot be written. The tests need their own file system, which only
//! root may mount, in a mount namespace that ends with the test.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::chaos::job::{SHORT, manifest};
use crate::chaos::pool::Pool;

pub(crate) const JOBS: [&str; 3] = ["a", "b", "c"];

/// A mount namespace in which a directory is a small file system.
pub(crate) struct Namespace {
    holder: Child,
    dir: PathBuf,
}

impl Namespace {
    /// Returns `None`, with a message, if this is not permitted.
    fn with_disk_on(dir: &Path) -> Option<Self> {
        let script = "mount -t tmpfs -o size=1m,mode=700 tmpfs \"$0\" && echo mounted && exec cat";
        let mut holder = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script])
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let mut line = String::new();
        BufReader::new(holder.stdout.take()?).read_line(&mut line).ok()?;
        let namespace = Self { holder, dir: dir.to_owned() };
        if line == "mounted\n" {
            return Some(namespace);
        }
        println!("skipped: only root can mount a file system of its own");
        None
    }

    fn enter(&self) -> Vec<String> {
        let namespace = format!("--mount=/proc/{}/ns/mnt", self.holder.id());
        vec!["nsenter".to_owned(), namespace]
    }

    /// Returns the directory's path outside the namespace.
    fn seen(&self) -> PathBuf {
        let root = format!("/proc/{}/root", self.holder.id());
        Path::new(&root).join(self.dir.strip_prefix("/").unwrap())
    }

    fn mount(&self, options: &str) {
        let [enter, namespace] = &self.enter()[..] else { return };
        let mut mount = Command::new(enter);
        let mount = mount.arg(namespace).args(["mount", "-o", options]).arg(&self.dir);
        assert!(mount.status().unwrap().success());
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// A pool whose state directory is a separate disk. Returns `None`, with a message, if that is not
/// permitted.
pub(crate) fn on_its_own_disk() -> Option<(Pool, Namespace)> {
    let pool = Pool::new(&manifest(&format!("replicas: 2\n  {SHORT}"), &JOBS));
    let namespace = Namespace::with_disk_on(pool.dir())?;
    let pool = pool.through(namespace.enter(), namespace.seen());
    Some((pool, namespace))
}

#[test]
fn a_full_disk_stops_jobs_in_time_and_they_go_on_when_there_is_room() {
    let Some((mut pool, _namespace)) = on_its_own_disk() else { return };
    pool.start();
    pool.settled(&JOBS);
    let ballast = pool.path("ballast");
    fs::write(&ballast, vec![0; 2 << 20]).unwrap_err();
    pool.edit("    - {name: c}\n", "    - {name: c}\n    - {name: d}\n");
    pool.until("a complaint", || pool.complaints().contains("retrying").then_some(()));
    pool.until("the disk is named", || {
        pool.complaints().contains("nothing can be written in ").then_some(())
    });
    pool.until("nothing runs", || pool.runs().is_empty().then_some(()));
    fs::remove_file(ballast).unwrap();
    let jobs = ["a", "b", "c", "d"];
    pool.settled(&jobs);
    pool.runs_on(&jobs);
    let outage = pool.until("the outage in the history", || {
        let history = fs::read_to_string(pool.path("history.jsonl")).ok()?;
        let episodes = history.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        episodes.into_iter().find(|it| it["outage"] == "disk")
    });
    assert!(outage["startMs"].as_u64() < outage["endMs"].as_u64(), "{outage}");
    let cause = outage["causes"][0].as_str().unwrap();
    let words = ["the state directory took no write for ", " stood still"];
    assert!(words.iter().all(|it| cause.contains(it)), "{outage}");
    assert!(pool.complaints().contains(&format!("an outage is over: {cause}")));
    pool.end();
    // Lines without room are torn, and no killed writer explains them.
    let report = pool.verify("run.log", &[]).report;
    assert_eq!((report["overlaps"].as_array().unwrap().len(), report["runs"].is_u64()), (0, true));
    assert_eq!(report["token_regressions"].as_array().unwrap().len(), 0, "{report:#}");
}

#[test]
fn a_directory_that_cannot_be_written_is_refused_in_a_sentence() {
    let Some((mut pool, namespace)) = on_its_own_disk() else { return };
    pool.start();
    pool.settled(&JOBS);
    pool.end();
    let before = pool.complaints().lines().count();
    namespace.mount("remount,ro");
    pool.start();
    assert_eq!(pool.ended().code(), Some(1));
    let complaints = pool.complaints();
    let complaint: Vec<_> = complaints.lines().skip(before).collect();
    let expected = "cannot be used: Read-only file system";
    assert!(complaint.len() == 1 && complaint[0].contains(expected), "{complaints}");
    namespace.mount("remount,rw");
    pool.start();
    pool.settled(&JOBS);
    pool.end();
    pool.judged();
}
