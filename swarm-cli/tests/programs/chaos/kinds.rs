//! Special jobs and rules that limit moves: run-to-completion jobs, jobs that all workers
//! run, pins, shares, limits.

use std::collections::BTreeMap;
use std::fs;

use rustix::process::Signal;

use crate::chaos::handover::{BUSY, KILLED};
use crate::chaos::job::{SHORT, manifest};
use crate::chaos::pool::{Pool, signal};

const JOBS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn pool(spec: &str, jobs: &[&str]) -> Pool {
    let mut pool = Pool::new(&manifest(&format!("{spec}\n  {SHORT}"), jobs));
    pool.start();
    pool
}

fn loads(held: &BTreeMap<String, u64>) -> Vec<usize> {
    let mut loads = BTreeMap::<u64, usize>::new();
    for slot in held.values() {
        *loads.entry(*slot).or_default() += 1;
    }
    let mut loads: Vec<_> = loads.into_values().collect();
    loads.sort_unstable_by(|a, b| b.cmp(a));
    loads
}

/// Counts the starts of a job.
fn starts(pool: &Pool, job: &str) -> usize {
    pool.lines().iter().filter(|line| line.job == job && line.event == "start").count()
}

#[test]
fn workers_come_and_go_two_three_two_with_edits_and_a_kill_in_between() {
    let mut pool = pool("replicas: 2", &JOBS);
    pool.settled(&JOBS);
    let at = |loads_wanted: &[usize], jobs: &[&str]| {
        pool.until("evenly settled", || {
            pool.at_rest(jobs).filter(|held| loads(held) == loads_wanted)
        });
    };
    pool.edit("replicas: 2", "replicas: 3");
    at(&[2, 2, 2], &JOBS);
    pool.edit("    - {name: f}\n", "");
    at(&[2, 2, 1], &JOBS[..5]);
    signal(pool.worker(2).unwrap(), Signal::KILL);
    pool.edit("    - {name: e}\n", "    - {name: e}\n    - {name: f}\n");
    at(&[2, 2, 2], &JOBS);
    pool.edit("replicas: 3", "replicas: 2");
    at(&[3, 3], &JOBS);
    pool.runs_on(&JOBS);
    pool.end();
    let gap = pool.judged();
    println!("longest gap {gap:?}");
    assert!(gap < KILLED * BUSY, "{gap:?}");
}

#[test]
fn an_edit_in_the_middle_of_a_handover_is_carried_out_after_it() {
    let mut pool = pool("replicas: 2", &["a, pin: 0", "b, pin: 0", "c, pin: 1"]);
    let jobs = ["a", "b", "c"];
    pool.settled(&jobs);
    fs::write(pool.path("hold.a"), "").unwrap();
    pool.edit("name: a, pin: 0", "name: a, pin: 1");
    pool.until("a is asked to stop", || pool.path("stopping.a").exists().then_some(()));
    // The edit is reverted, with another change, while a is moving.
    pool.edit("name: a, pin: 1", "name: a, pin: 0");
    pool.edit("name: b, pin: 0", "name: b, pin: 1");
    fs::remove_file(pool.path("hold.a")).unwrap();
    pool.until("as in the last edit", || {
        pool.at_rest(&jobs).filter(|held| (held["a"], held["b"], held["c"]) == (0, 1, 1))
    });
    pool.runs_on(&jobs);
    pool.end();
    pool.judged();
}

#[test]
fn a_finite_job_is_done_once_and_for_all() {
    let mut pool = pool("replicas: 2", &["a", "b", "once, runOnce: true"]);
    pool.settled(&["a", "b", "once"]);
    fs::write(pool.path("end.once"), "").unwrap();
    let is_done = |pool: &Pool| {
        pool.until("once is done", || pool.waits("once").filter(|state| state == "done"));
        pool.until("the others run", || {
            let runs = pool.runs();
            (runs.keys().eq(["a", "b"]) && runs.values().all(|runs| runs.len() == 1)).then_some(())
        });
    };
    is_done(&pool);
    for slot in [0, 1] {
        signal(pool.worker(slot).unwrap(), Signal::KILL);
    }
    pool.edit("replicas: 2", "replicas: 3");
    pool.runs_on(&["a", "b"]);
    is_done(&pool);
    pool.kill_operator();
    pool.start();
    pool.runs_on(&["a", "b"]);
    is_done(&pool);
    pool.edit("replicas: 3", "replicas: 1");
    pool.runs_on(&["a", "b"]);
    is_done(&pool);
    assert_eq!(starts(&pool, "once"), 1);
    pool.end();
    assert_eq!(starts(&pool, "once"), 1);
    pool.judged();
}

/// Waits until each of this many workers runs `a` and `b`.
fn everywhere(pool: &Pool, workers: usize) {
    pool.until("every worker runs all", || {
        let runs = pool.runs();
        let is_everywhere = |job: &str| {
            let mut sessions: Vec<_> = runs.get(job)?.iter().map(|run| &run.0).collect();
            sessions.sort();
            sessions.dedup();
            (sessions.len() == workers && runs[job].len() == workers).then_some(())
        };
        is_everywhere("a").and(is_everywhere("b"))
    });
}

#[test]
fn replication_changes_while_jobs_run() {
    let mut pool = pool("replicas: 2\n  replication: One", &["a", "b"]);
    pool.settled(&["a", "b"]);
    pool.edit("replication: One", "replication: All");
    everywhere(&pool, 2);
    pool.edit("replicas: 2", "replicas: 3");
    everywhere(&pool, 3);
    pool.edit("replication: All", "replication: One");
    pool.until("each job on one worker", || pool.at_rest(&["a", "b"]));
    // A worker that is killed while all workers are asked to release is not waited for longer than
    // that.
    pool.edit("replication: One", "replication: All");
    everywhere(&pool, 3);
    let killed = pool.worker(1);
    pool.edit("replication: All", "replication: One");
    signal(killed.unwrap(), Signal::KILL);
    pool.until("each job on one worker", || pool.at_rest(&["a", "b"]));
    pool.runs_on(&["a", "b"]);
    pool.end();
    pool.judged_as(&["--replication-changes"]);
}

#[test]
fn suspended_jobs_run_nowhere_and_go_on_afterwards() {
    let mut pool = pool("replicas: 2\n  suspend: false", &["a, suspend: false", "b"]);
    pool.settled(&["a", "b"]);
    let runs_only = |jobs: &[&str]| {
        pool.until("exactly these jobs to run", || {
            let runs = pool.runs();
            runs.keys().map(String::as_str).eq(jobs.iter().copied()).then_some(())
        });
    };
    pool.edit("a, suspend: false", "a, suspend: true");
    runs_only(&["b"]);
    signal(pool.worker(0).unwrap(), Signal::KILL);
    runs_only(&["b"]);
    pool.edit("a, suspend: true", "a, suspend: false");
    pool.until("both to run", || pool.at_rest(&["a", "b"]));
    pool.edit("  suspend: false", "  suspend: true");
    runs_only(&[]);
    pool.edit("  suspend: true", "  suspend: false");
    pool.until("both to run", || pool.at_rest(&["a", "b"]));
    pool.runs_on(&["a", "b"]);
    pool.end();
    pool.judged();
}

#[test]
fn what_all_workers_run_runs_on_every_worker_once() {
    // A worker that leaves and waits for its jobs to be taken would do so for this time.
    let patient = SHORT.replace("stopTimeout: 1s", "stopTimeout: 30m").replace("3s", "1h");
    let spec = format!("replicas: 2\n  replication: All\n  {patient}");
    let mut pool = Pool::new(&manifest(&spec, &["a", "b"]));
    pool.start();
    everywhere(&pool, 2);
    pool.edit("replicas: 2", "replicas: 3");
    everywhere(&pool, 3);
    let killed = pool.worker(1);
    signal(killed.unwrap(), Signal::KILL);
    pool.until("another worker", || pool.worker(1).filter(|now| Some(*now) != killed));
    everywhere(&pool, 3);
    pool.edit("replicas: 3", "replicas: 2");
    everywhere(&pool, 2);
    pool.runs_on(&["a", "b"]);
    pool.end();
    pool.judged_as(&["--replication-all"]);
}

#[test]
fn one_move_at_a_time_settles_too() {
    let mut pool = pool("replicas: 2\n  rebalance: {maxMovesInFlight: 1}", &JOBS);
    pool.settled(&JOBS);
    pool.edit("replicas: 2", "replicas: 3");
    pool.until("evenly settled", || {
        let held = pool.held();
        let moving = held.values().filter(|held| held.releasing_since.is_some()).count();
        assert!(moving <= 1, "{held:?}");
        pool.at_rest(&JOBS).filter(|held| loads(held) == [2, 2, 2])
    });
    pool.until("reported", || pool.stdout().contains("on 3 workers").then_some(()));
    pool.end();
    pool.judged();
}

#[test]
fn a_paused_pool_moves_nothing_until_it_goes_on() {
    let mut pool = pool("replicas: 2\n  rebalance: {paused: false}", &JOBS);
    let before = pool.settled(&JOBS);
    pool.edit("paused: false", "paused: true");
    pool.edit("replicas: 2", "replicas: 3");
    let session_of_third = || {
        let leases = fs::read_dir(pool.path("leases")).ok()?.flatten();
        let mut names = leases.filter_map(|entry| entry.file_name().into_string().ok());
        names.find(|name| name.starts_with("w-2."))
    };
    pool.until("the third worker is there", session_of_third);
    pool.runs_on(&JOBS);
    assert_eq!(pool.settled(&JOBS), before);
    // A crashed worker is replaced in its slot, even if the pool is paused.
    let killed = pool.worker(0);
    signal(killed.unwrap(), Signal::KILL);
    pool.until("another worker", || pool.worker(0).filter(|now| Some(*now) != killed));
    assert_eq!(pool.settled(&JOBS), before);
    pool.edit("paused: true", "paused: false");
    pool.until("evenly settled", || pool.at_rest(&JOBS).filter(|held| loads(held) == [2, 2, 2]));
    pool.end();
    pool.judged();
}

#[test]
fn shares_and_limits_leave_out_what_does_not_fit_and_say_so() {
    let mut pool =
        pool("replicas: 2", &["whole, share: 100", "half, share: 50", "other, share: 60", "a"]);
    pool.until("reported", || {
        pool.stdout().contains("1 without a worker (capacity)").then_some(())
    });
    pool.until("three run", || (pool.runs().len() == 3).then_some(()));
    pool.edit("replicas: 2", "replicas: 3");
    let held = pool.settled(&["whole", "half", "other", "a"]);
    let whole = held["whole"];
    assert_eq!(held.values().filter(|slot| **slot == whole).count(), 1, "{held:?}");
    pool.end();
    pool.judged();

    let mut pool = Pool::new(
        &manifest(&format!("replicas: 2\n  {SHORT}"), &JOBS)
            .replace("worker: {", "worker: {maxJobs: 2, "),
    );
    pool.start();
    pool.until("reported", || pool.stdout().contains("2 without a worker (").then_some(()));
    pool.edit("replicas: 2", "replicas: 3");
    assert_eq!(loads(&pool.settled(&JOBS)), [2, 2, 2]);
    pool.end();
    pool.judged();
}
