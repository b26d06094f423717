//! State that was removed or corrupted, while the pool runs and while it does not.

use std::fs;

use crate::chaos::job::{SHORT, manifest};
use crate::chaos::pool::Pool;

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
        (good.replacen("\"format\":2", "\"format\":999", 1), "use the version of swarm that wrote"),
        (good[..good.len() / 2].to_owned(), "move it away to assign all jobs again"),
        (String::new(), "move it away to assign all jobs again"),
        ("\0\u{1}garbage".to_owned(), "move it away to assign all jobs again"),
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
    assert!(complaints.contains("move it away to assign all jobs again"), "{complaints}");
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
