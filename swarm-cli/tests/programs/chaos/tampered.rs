//! State that was removed or corrupted, while the pool runs and while it does not.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::fs::{CWD, RenameFlags};

use crate::chaos::job::{LOG, SHORT, manifest};
use crate::chaos::pool::{Held, Pool};

const JOBS: [&str; 4] = ["a", "b", "c", "d"];

/// A pool of two workers with two jobs each.
fn running() -> Pool {
    let mut pool = Pool::new(&manifest(&format!("replicas: 2\n  {SHORT}"), &JOBS));
    pool.start();
    pool.settled(&JOBS);
    pool
}

/// Adds a third worker, which makes a job move, and a job.
fn moves_on(pool: &Pool) {
    pool.edit("replicas: 2", "replicas: 3");
    pool.edit("    - {name: a}\n", "    - {name: a}\n    - {name: e}\n");
    let jobs = ["a", "b", "c", "d", "e"];
    pool.until("a job runs on the third worker", || {
        pool.at_rest(&jobs).filter(|held| held.values().any(|slot| *slot == 2))
    });
    pool.runs_on(&jobs);
}

/// Returns the only message of an operator that ended by itself.
fn refused(pool: &mut Pool) -> String {
    pool.start();
    assert_eq!(pool.ended().code(), Some(1), "{}", pool.history());
    pool.complaints()
}

#[test]
fn a_ledger_that_is_removed_or_rolled_back_while_it_runs_is_written_again() {
    for is_rolled_back in [false, true] {
        let mut pool = running();
        let path = pool.path("ledger.json");
        let old = fs::read_to_string(&path).unwrap();
        pool.edit("    - {name: d}\n", "");
        pool.settled(&JOBS[..3]);
        if is_rolled_back {
            fs::write(&path, old).unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
        pool.edit("    - {name: c}\n", "    - {name: c}\n    - {name: d}\n");
        pool.settled(&JOBS);
        moves_on(&pool);
        assert!(pool.complaints().contains("it is written again as it was"), "{}", pool.history());
        pool.end();
        pool.judged();
    }
}

#[test]
fn a_ledger_that_is_removed_while_nothing_runs_is_recreated_with_higher_tokens() {
    let mut pool = running();
    pool.end();
    fs::remove_file(pool.path("ledger.json")).unwrap();
    pool.start();
    pool.settled(&JOBS);
    moves_on(&pool);
    pool.end();
    pool.judged();
}

#[test]
fn a_ledger_that_is_none_or_of_a_newer_version_is_refused_in_a_sentence_and_left_alone() {
    let mut pool = running();
    pool.end();
    let path = pool.path("ledger.json");
    let good = fs::read_to_string(&path).unwrap();
    let cases = [
        (good.replacen("\"format\":2", "\"format\":999", 1), "has format 999"),
        (good[..good.len() / 2].to_owned(), "is not a ledger"),
        (String::new(), "is not a ledger"),
        ("\0\u{1}garbage".to_owned(), "is not a ledger"),
        (good.replacen("\"jobs\":{\"", "\"jobs\":{\"two words\":1,\"", 1), "two words"),
    ];
    for (text, expected) in cases {
        fs::write(&path, &text).unwrap();
        let before = pool.complaints().len();
        let complaints = refused(&mut pool);
        let sentence = &complaints[before..];
        assert!(sentence.contains(expected), "{sentence}");
        assert_eq!(sentence.trim_end().lines().count(), 1, "{sentence}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    fs::write(&path, good).unwrap();
    pool.start();
    pool.settled(&JOBS);
    pool.end();
    pool.judged();
}

#[test]
fn nonsense_in_the_ledger_while_it_runs_ends_everything_in_a_sentence() {
    let mut pool = running();
    fs::write(pool.path("ledger.json"), "{\"format\":2,\"led").unwrap();
    pool.edit("    - {name: d}\n", "");
    assert_eq!(pool.ended().code(), Some(1), "{}", pool.history());
    let complaints = pool.complaints();
    assert!(complaints.contains("is not a ledger"), "{complaints}");
    assert_eq!(complaints.trim_end().lines().count(), 1, "{complaints}");
    fs::remove_file(pool.path("ledger.json")).unwrap();
    pool.start();
    pool.settled(&JOBS[..3]);
    pool.end();
    pool.judged();
}

#[test]
fn leases_that_are_removed_while_it_runs_end_their_sessions_and_new_ones_begin() {
    let mut pool = running();
    let before = pool.held();
    fs::remove_dir_all(pool.path("leases")).unwrap();
    pool.until("new sessions run every job", || {
        let is_new = pool.held().iter().all(|(job, held)| held.session != before[job].session);
        pool.at_rest(&JOBS).filter(|_| is_new)
    });
    moves_on(&pool);
    pool.end();
    pool.judged();
}

#[test]
fn views_that_are_garbage_or_gone_are_passed_over_until_the_next_is_published() {
    let mut pool = running();
    for held in pool.held().values() {
        let view = pool.path("sessions").join(&held.session).join("view.json");
        fs::write(view, "{\"format\":1,\"jo").unwrap();
    }
    pool.until("workers complain", || {
        let log = |slot: u32| fs::read_to_string(pool.path("logs").join(format!("w-{slot}.log")));
        let complains =
            |slot| log(slot).is_ok_and(|log| log.contains("the last valid one is kept"));
        (complains(0) && complains(1)).then_some(())
    });
    pool.runs_on(&JOBS);
    moves_on(&pool);
    fs::remove_dir_all(pool.path("sessions")).unwrap();
    pool.edit("replicas: 3", "replicas: 2");
    pool.until("two workers run everything", || {
        pool.at_rest(&["a", "b", "c", "d", "e"]).filter(|held| held.values().all(|slot| *slot < 2))
    });
    pool.end();
    pool.judged();
}

/// A fault of the whole state directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Removed,
    Emptied,
    Renamed,
}

/// Removes a directory, while processes create files in it, or everything in it.
fn remove(fault: Fault, dir: &Path) {
    let removed = || match fault {
        Fault::Removed => fs::remove_dir_all(dir).is_ok(),
        _ => fs::read_dir(dir).unwrap().flatten().all(|entry| {
            let path = entry.path();
            fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path)).is_ok()
        }),
    };
    while !removed() {}
}

/// Exchanges two directories at once. The operator creates a missing one again at any moment.
fn exchange(one: &Path, other: &Path) {
    rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
}

/// Waits until new sessions with higher tokens run every job.
fn granted_again(pool: &Pool, jobs: &[&str], before: &BTreeMap<String, Held>) {
    pool.until("new sessions with higher tokens run every job", || {
        let is_new = |(job, held): (&String, &Held)| {
            held.session != before[job].session && before[job].token < held.token
        };
        pool.at_rest(jobs).filter(|_| pool.held().iter().all(is_new))
    });
}

#[test]
fn a_state_directory_that_returns_is_used_and_answers_again() {
    let mut pool = running();
    let (dir, moved) = (pool.dir().to_owned(), pool.dir().with_file_name("moved"));
    let before = pool.held();
    fs::rename(&dir, &moved).unwrap();
    granted_again(&pool, &JOBS, &before);
    let before = pool.held();
    exchange(&dir, &moved);
    fs::rename(&moved, dir.with_file_name("second")).unwrap();
    granted_again(&pool, &JOBS, &before);
    pool.until("the socket answers", || {
        let mut status = Command::new(env!("CARGO_BIN_EXE_swarm"));
        let status = status.args(["status", "--dir"]).arg(&dir).output().unwrap();
        status.status.success().then_some(())
    });
    pool.end();
}

#[test]
fn an_earlier_directory_of_the_pool_is_refused_until_it_is_moved_away() {
    let mut pool = running();
    moves_on(&pool);
    pool.end();
    let (dir, earlier) = (pool.dir().to_owned(), pool.dir().with_file_name("earlier"));
    fs::rename(&dir, &earlier).unwrap();
    pool.start();
    let jobs = ["a", "b", "c", "d", "e"];
    pool.settled(&jobs);
    let before = pool.held();
    let ledger = fs::read(earlier.join("ledger.json")).unwrap();
    exchange(&dir, &earlier);
    fs::rename(&earlier, dir.with_file_name("later")).unwrap();
    pool.until("the pool to refuse the directory", || {
        pool.complaints().contains("has the state of another run now").then_some(())
    });
    fs::rename(&dir, &earlier).unwrap();
    granted_again(&pool, &jobs, &before);
    assert_eq!(fs::read(earlier.join("ledger.json")).unwrap(), ledger);
    pool.end();
    pool.judged();
}

#[test]
fn a_state_directory_that_is_lost_while_it_runs_is_created_again_and_nobody_else_gets_it() {
    for fault in [Fault::Removed, Fault::Emptied, Fault::Renamed] {
        let mut pool = running();
        let before = pool.held();
        let moved = pool.dir().with_file_name("moved");
        match fault {
            Fault::Renamed => fs::rename(pool.dir(), &moved).unwrap(),
            _ => remove(fault, pool.dir()),
        }
        for _ in 0..3 {
            let refused = pool.output(&[]);
            assert_eq!(refused.status.code(), Some(1), "{fault:?}: {refused:?}");
        }
        granted_again(&pool, &JOBS, &before);
        if fault == Fault::Renamed {
            // The pool would run the same jobs there, with the same tokens.
            let refused = pool.output_in(&moved, &[]);
            assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        }
        let complaints = pool.complaints();
        assert!(complaints.contains("all jobs stop, and start again"), "{complaints}");
        moves_on(&pool);
        pool.end();
        if fault == Fault::Renamed {
            let logs = [moved.as_path(), pool.dir()].map(|dir| dir.join(LOG));
            let [old, new] = logs.each_ref().map(|log| fs::read_to_string(log).unwrap());
            fs::write(&logs[1], old + &new).unwrap();
        }
        pool.judged();
    }
}
