//! Tests every combination of a stopped phase of a handover, a fault, and a process that the fault
//! can hit.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::chaos::job;
use crate::chaos::pool::{Pool, signal};
use crate::chaos::side_by_side;

/// The workers' lease.
pub(crate) const LEASE: Duration = Duration::from_secs(3);

/// Maximum time until a killed worker's jobs run again.
pub(crate) const KILLED: Duration = Duration::from_secs(2);

/// Maximum time until a frozen worker's jobs run again: 1.07 leases and two seconds.
pub(crate) const FROZEN: Duration = Duration::from_millis(3_000 * 107 / 100 + 2_000);

/// Multiple of a promised time that a gap may have here, on a machine that does other work, too. These
/// tests find a wait that nothing ends; the promise itself is measured on an idle machine.
pub(crate) const BUSY: u32 = 10;

/// Number of attempts at a case: a slow machine may leave a phase before the fault.
const ATTEMPTS: u32 = 30;

/// Number of pools that run at once. They mostly wait.
const SIDE_BY_SIDE: usize = 12;

const JOBS: [&str; 3] = ["left", "moving", "right"];

/// The phase of the handover of `moving` from worker 0 to worker 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The handover has not begun.
    Rest,
    /// The ledger has released the job. The previous holder is frozen and has not seen it.
    Released,
    /// The previous holder has asked the job to stop, and the job is stopping.
    Stopping,
    /// The previous holder has acknowledged. The operator is frozen and has granted nothing.
    Acknowledged,
    /// The ledger has granted the job. The new holder is frozen and has not seen it.
    Granted,
    /// The new holder runs the job. The operator is frozen and has not seen it.
    Started,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Kill,
    /// The process resumes only when its lease has expired, and before any other frozen process.
    Freeze,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    OldHolder,
    NewHolder,
    OldGuard,
    NewGuard,
    /// Only the operator is left to end the jobs in time.
    OldHolderAndGuard,
    Operator,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    policy: &'static str,
    phase: Phase,
    fault: Fault,
    victim: Victim,
}

/// Returns all cases with `SWARM_TESTS=full`, and otherwise each phase, fault and victim with one of
/// the policies, in turn.
fn cases() -> Vec<Case> {
    use {Fault::*, Phase::*, Victim::*};
    let is_full = std::env::var_os("SWARM_TESTS").is_some_and(|extent| extent == "full");
    let mut cases = Vec::new();
    for (index, policy) in ["Exclusive", "AtLeastOnce"].into_iter().enumerate() {
        for phase in [Rest, Released, Stopping, Acknowledged, Granted, Started] {
            for fault in [Freeze, Kill] {
                let victims =
                    [OldHolder, NewHolder, OldGuard, NewGuard, OldHolderAndGuard, Operator];
                for victim in victims {
                    let turn = index + phase as usize + fault as usize + victim as usize;
                    if is_full || turn.is_multiple_of(2) {
                        cases.push(Case { policy, phase, fault, victim });
                    }
                }
            }
        }
    }
    cases
}

fn manifest(policy: &str) -> String {
    let terms = job::SHORT.replace("Exclusive", policy);
    let jobs = ["left, pin: 0", "moving, pin: 0", "right, pin: 1"];
    job::manifest(&format!("replicas: 2\n  {terms}"), &jobs)
}

/// A pool whose handover stays in a phase.
struct Held {
    pool: Pool,
    workers: [i32; 2],
    guards: [i32; 2],
    frozen: Vec<i32>,
}

impl Held {
    fn freeze(&mut self, pid: i32) {
        signal(pid, Signal::STOP);
        self.frozen.push(pid);
    }

    /// Brings the handover to `phase`. Returns whether it reached that phase: a worker that a slow
    /// machine keeps frozen for too long loses its lease instead.
    fn begin(&mut self, phase: Phase) -> bool {
        let before = self.pool.held()["moving"].clone();
        let new = self.pool.held()["right"].session.clone();
        let old = self.pool.held()["left"].session.clone();
        match phase {
            Phase::Rest => return true,
            Phase::Released => self.freeze(self.workers[0]),
            Phase::Stopping | Phase::Acknowledged => {
                fs::write(self.pool.path("hold.moving"), "").unwrap();
            }
            Phase::Granted | Phase::Started => self.freeze(self.workers[1]),
        }
        self.pool.edit("name: moving, pin: 0", "name: moving, pin: 1");
        let pool = &self.pool;
        let since = || pool.held().get("moving")?.releasing_since;
        let granted = || {
            let held = pool.held().get("moving").cloned();
            let held = held.filter(|held| held.session == new && before.token < held.token)?;
            pool.is_published(&new, "moving").then_some(held)
        };
        // Another session has the job, or one of both workers: a frozen one has lost its lease.
        let is_missed = || {
            let held = pool.held();
            let is_other = |job: &str, session: &String| {
                held.get(job).is_some_and(|held| held.session != *session)
            };
            let has_moved = held.get("moving").is_some_and(|held| held.slot == 1);
            is_other("left", &old)
                || is_other("right", &new)
                || (phase != Phase::Granted && phase != Phase::Started && has_moved)
        };
        match phase {
            Phase::Rest => {}
            Phase::Released => return reached(pool, "released", since, is_missed).is_some(),
            Phase::Stopping | Phase::Acknowledged => {
                let Some(since) = reached(pool, "released", since, is_missed) else {
                    return false;
                };
                let is_stopping = || pool.path("stopping.moving").exists().then_some(());
                if reached(pool, "the job to be stopping", is_stopping, is_missed).is_none() {
                    return false;
                }
                if phase == Phase::Acknowledged {
                    let operator = pool.operator();
                    signal(operator, Signal::STOP);
                    fs::remove_file(pool.path("hold.moving")).unwrap();
                    let began = Instant::now();
                    let acknowledged =
                        || pool.acknowledged(&before.session).filter(|acked| since <= *acked);
                    let is_late = || 2 * LEASE < began.elapsed();
                    let has = reached(pool, "acknowledged", acknowledged, is_late).is_some();
                    self.frozen.push(operator);
                    return has;
                }
            }
            Phase::Granted => return reached(pool, "granted", granted, is_missed).is_some(),
            Phase::Started => {
                let Some(held) = reached(pool, "granted", granted, is_missed) else {
                    return false;
                };
                let operator = pool.operator();
                signal(operator, Signal::STOP);
                signal(self.workers[1], Signal::CONT);
                let since = Instant::now();
                let has_started = pool.until("started, or without a lease", || {
                    let is_it = |line: &crate::chaos::pool::Line| {
                        line.job == "moving" && line.token == held.token
                    };
                    let has_started = pool.lines().iter().any(is_it);
                    (has_started || 2 * LEASE < since.elapsed()).then_some(has_started)
                });
                self.frozen = vec![operator];
                return has_started;
            }
        }
        true
    }

    /// Whether the handover is still in `phase`: only time can have moved it.
    fn is_in(&self, phase: Phase) -> bool {
        let held = self.pool.held()["moving"].clone();
        match phase {
            Phase::Rest => held.slot == 0 && held.releasing_since.is_none(),
            Phase::Released | Phase::Stopping | Phase::Acknowledged => {
                held.slot == 0 && held.releasing_since.is_some()
            }
            Phase::Granted | Phase::Started => held.slot == 1 && held.releasing_since.is_none(),
        }
    }

    fn pids(&self, victim: Victim) -> Vec<i32> {
        match victim {
            Victim::OldHolder => vec![self.workers[0]],
            Victim::NewHolder => vec![self.workers[1]],
            Victim::OldGuard => vec![self.guards[0]],
            Victim::NewGuard => vec![self.guards[1]],
            Victim::OldHolderAndGuard => vec![self.guards[0], self.workers[0]],
            Victim::Operator => vec![self.pool.operator()],
        }
    }

    fn strike(&mut self, fault: Fault, victim: Victim) {
        let kind = match (fault, victim) {
            (Fault::Kill, Victim::Operator) => {
                let operator = self.pool.operator();
                self.frozen.retain(|frozen| *frozen != operator);
                return self.pool.kill_operator();
            }
            (Fault::Kill, _) => Signal::KILL,
            (Fault::Freeze, _) => Signal::STOP,
        };
        for pid in self.pids(victim) {
            signal(pid, kind);
        }
    }

    fn heal(&mut self, fault: Fault, victim: Victim) {
        let _ = fs::remove_file(self.pool.path("hold.moving"));
        if fault == Fault::Freeze {
            for pid in self.pids(victim) {
                signal(pid, Signal::CONT);
            }
        }
        for pid in std::mem::take(&mut self.frozen) {
            signal(pid, Signal::CONT);
        }
        if (fault, victim) == (Fault::Kill, Victim::Operator) {
            self.pool.start();
        }
    }
}

/// Waits for an answer. Returns `None` once it cannot come any more.
fn reached<T>(
    pool: &Pool,
    what: &str,
    mut answer: impl FnMut() -> Option<T>,
    is_missed: impl Fn() -> bool,
) -> Option<T> {
    pool.until(what, || match answer() {
        Some(answer) => Some(Some(answer)),
        None => is_missed().then_some(None),
    })
}

/// Runs a case. Returns the longest gap, and the delay that the test itself caused. Returns `None`
/// if a slow machine left the phase before the fault.
fn played(case: Case) -> Option<(Duration, Duration)> {
    let Case { policy, phase, fault, victim } = case;
    let mut pool = Pool::new(&manifest(policy));
    pool.start();
    pool.settled(&JOBS);
    let workers = [0, 1].map(|slot| pool.worker(slot).unwrap());
    let guards = [0, 1].map(|slot| pool.guard(slot).unwrap());
    let mut held = Held { pool, workers, guards, frozen: Vec::new() };
    let disturbed = Instant::now();
    let is_at = held.begin(phase) && held.is_in(phase);
    held.strike(fault, victim);
    let is_hit = is_at && held.is_in(phase);
    if fault == Fault::Freeze {
        let lease_is_over =
            || (LEASE + Duration::from_millis(500) < disturbed.elapsed()).then_some(());
        held.pool.until("the lease has expired", lease_is_over);
    }
    let mark = held.pool.mark();
    held.heal(fault, victim);
    let kept = disturbed.elapsed();
    let mut pool = held.pool;
    if (fault, victim) == (Fault::Kill, Victim::Operator) {
        // The workers of the killed operator run on for a moment, and its successor may not handle
        // signals yet.
        pool.until("the next operator has begun", || (pool.mark() != mark).then_some(()));
    }
    if phase == Phase::Rest {
        pool.edit("name: moving, pin: 0", "name: moving, pin: 1");
    }
    pool.until("every job runs on its worker", || {
        pool.at_rest(&JOBS).filter(|held| held["moving"] == 1 && held["left"] == 0)
    });
    pool.runs_on(&JOBS);
    pool.end();
    Some((pool.judged(), kept)).filter(|_| is_hit)
}

/// Returns the maximum gap of a job on a busy machine.
fn bound(case: Case, kept: Duration) -> Duration {
    let is_operator_still = matches!(case.phase, Phase::Acknowledged | Phase::Started)
        || case.victim == Victim::Operator;
    match case.fault {
        Fault::Kill => kept + KILLED * BUSY,
        Fault::Freeze if is_operator_still => kept + FROZEN * BUSY,
        Fault::Freeze => FROZEN * BUSY,
    }
}

#[test]
fn a_fault_in_any_phase_of_a_handover_doubles_nothing_and_loses_nothing() {
    let results =
        side_by_side(cases(), SIDE_BY_SIDE, |case| (0..ATTEMPTS).find_map(|_| played(case)));
    let mut failures = Vec::new();
    for (case, found) in results {
        match found {
            Ok(Some((gap, kept))) => {
                let (gap_ms, kept_ms) = (gap.as_millis(), kept.as_millis());
                println!("{case:?}: longest gap {gap_ms} ms, held for {kept_ms} ms");
                if bound(case, kept) < gap {
                    failures.push(format!("{case:?}: {gap:?} is too long a gap"));
                }
            }
            Ok(None) => failures.push(format!("{case:?}: the phase could not be held")),
            Err(why) => failures.push(format!("{case:?}: {why}")),
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n\n"));
}
