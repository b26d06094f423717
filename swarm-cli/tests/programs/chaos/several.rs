//! Faults of several workers at once, and of a worker right after the operator's start.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::chaos::handover::{BUSY, FROZEN, KILLED, LEASE};
use crate::chaos::job::{SHORT, manifest};
use crate::chaos::pool::{Pool, signal};

const JOBS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// A pool of five workers with one job each.
fn running() -> Pool {
    let mut pool = Pool::new(&manifest(&format!("replicas: 5\n  {SHORT}"), &JOBS));
    pool.start();
    pool.settled(&JOBS);
    pool
}

/// Sends a signal to the first `count` workers, and waits until other workers run all jobs.
fn replaced(pool: &Pool, count: u64, kind: Signal) {
    let before: Vec<_> = (0..count).map(|slot| pool.worker(slot)).collect();
    for pid in before.iter().flatten() {
        signal(*pid, kind);
    }
    pool.until("all run again", || {
        let now: Vec<_> = (0..count).map(|slot| pool.worker(slot)).collect();
        let is_new = before.iter().zip(&now).all(|(before, now)| now.is_some() && before != now);
        pool.at_rest(&JOBS).filter(|_| is_new)
    });
}

#[test]
fn all_workers_killed_at_once_run_their_jobs_again_at_once() {
    let mut pool = running();
    replaced(&pool, 5, Signal::KILL);
    pool.end();
    let gap = pool.judged();
    println!("longest gap {gap:?}");
    assert!(gap < KILLED * BUSY, "{gap:?}");
}

#[test]
fn a_worker_that_freezes_right_after_a_restart_of_the_operator_is_replaced_in_time() {
    let mut pool = running();
    let since = Instant::now();
    pool.kill_operator();
    pool.start();
    pool.settled(&JOBS);
    let restarted = since.elapsed();
    replaced(&pool, 1, Signal::STOP);
    pool.end();
    let gap = pool.judged();
    println!("longest gap {gap:?}, restarted in {restarted:?}");
    assert!(gap < restarted + FROZEN * BUSY, "{gap:?}");
}

#[test]
fn a_start_with_more_jobs_moves_none_of_the_earlier_ones() {
    let mut pool = running();
    let slots = |pool: &Pool| JOBS.map(|job| pool.held()[job].slot);
    let before = slots(&pool);
    pool.end();
    let more: Vec<_> = (0..15).map(|n| format!("more-{n:02}")).collect();
    let lines = more.iter().fold(String::new(), |all, job| all + "    - {name: " + job + "}\n");
    pool.edit("    - {name: e}\n", &format!("    - {{name: e}}\n{lines}"));
    pool.start();
    let jobs: Vec<_> = JOBS.into_iter().chain(more.iter().map(String::as_str)).collect();
    pool.settled(&jobs);
    assert_eq!(slots(&pool), before);
    pool.end();
    let mut history = Command::new(env!("CARGO_BIN_EXE_swarm"));
    let history =
        history.args(["history", "-o", "json", "--dir"]).arg(pool.dir()).output().unwrap();
    let history = String::from_utf8(history.stdout).unwrap();
    assert!(history.contains("returned") && !history.contains("balance"), "{history}");
    pool.judged();
}

/// If more than three workers (or 30 %) fall silent at once, none is revoked for two leases. Then
/// one (or 10 %) is replaced per lease, until three are left.
#[test]
fn of_many_workers_that_freeze_at_once_some_are_replaced_later() {
    let mut pool = running();
    let since = Instant::now();
    replaced(&pool, 5, Signal::STOP);
    let took = since.elapsed();
    pool.end();
    let (gap, bound) = (pool.judged(), (LEASE * 5 + Duration::from_secs(2)) * BUSY);
    println!("longest gap {gap:?}, all replaced within {took:?}");
    assert!(gap < bound, "{gap:?}");
}
