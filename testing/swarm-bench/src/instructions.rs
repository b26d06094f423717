//! Counts the instructions of requests with callgrind, and compares them with a committed list.
//!
//! A time depends on the load of the machine; a count of instructions does not. Each case runs in a
//! separate process under callgrind, which counts only the work inside [`collected`]. With
//! `UPDATE=1` in the environment, the list is written instead of compared.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;

use swarm_core::session::SessionEvent;
use swarm_core::{Decider, JobTable, Ledger, Pool, Replication, Rules, decide};

use crate::cliffs;

/// The committed list: a case and its count on each line.
const LIST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.txt");
/// The factor up to which a count may exceed the committed count.
const FACTOR_MAX: f64 = 1.2;

type Case = (&'static str, fn() -> Result<(), Box<dyn Error>>);

/// The cases that are counted.
const CASES: [Case; 12] = [
    ("plan from nothing, 50000 jobs, 500 workers", || plan(0, 0)),
    ("plan from nothing, slots from 1000000", || plan(cliffs::FAR, 0)),
    ("plan with one worker less", || plan(0, 1)),
    ("plan 5000 shares with distinct priorities", distinct_priorities),
    ("plan one share more than fits, 1250 workers", one_more),
    ("workers that are enough, with a pin to slot 99000", workers_enough),
    ("decide, nothing changed, 20000 jobs, 200 workers", || turn(Change::Nothing)),
    ("decide, nothing kept", || turn(Change::NothingKept)),
    ("decide, one job more", || turn(Change::Job)),
    ("decide, one worker more", || turn(Change::Worker)),
    ("views where 1000 workers run 1250 jobs each", views_of_all),
    ("a session joins 12500 jobs one by one", joined),
];

/// Counts all cases and compares them with the list.
pub(crate) fn all() -> Result<(), Box<dyn Error>> {
    let mut counts = BTreeMap::new();
    for (name, _) in CASES {
        counts.insert(name, count(name)?);
    }
    if std::env::var_os("UPDATE").is_some() {
        return Ok(std::fs::write(LIST, list(&counts))?);
    }
    let known = std::fs::read_to_string(LIST)?;
    let known: BTreeMap<_, _> = known.lines().filter_map(|line| line.rsplit_once(": ")).collect();
    println!("| case | instructions | as listed |\n|---|---|---|");
    let mut more = Vec::new();
    for (name, count) in counts {
        let listed = known.get(name).ok_or_else(|| format!("`{name}` is not in {LIST}"))?;
        let factor = as_f64(count) / as_f64(listed.parse()?);
        println!("| {name} | {count} | × {factor:.2} |");
        if FACTOR_MAX < factor {
            more.push(name);
        }
    }
    if more.is_empty() {
        return Ok(());
    }
    let more = more.join("`, `");
    Err(format!(
        "more than {FACTOR_MAX} times the instructions of {}: `{more}`; make them fewer, or say why \
         in the commit and run `just bless-instructions` to write the list again",
        file_name(LIST)
    )
    .into())
}

/// Runs the case of this name here, for callgrind.
pub(crate) fn case(name: &str) -> Result<(), Box<dyn Error>> {
    let known = CASES.into_iter().find(|(known, _)| *known == name);
    known.ok_or_else(|| format!("there is no case `{name}`"))?.1()
}

/// Runs a case under callgrind. Returns the number of instructions inside [`collected`].
fn count(name: &str) -> Result<u64, Box<dyn Error>> {
    let made = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(["--collect-atstart=no", "--toggle-collect=*instructions*collected*"])
        .arg(std::env::current_exe()?)
        .args(["case", name])
        .output()
        .map_err(|error| format!("valgrind cannot be run ({error}); install it"))?;
    let said = String::from_utf8_lossy(&made.stderr);
    let count = said.lines().find_map(|line| line.split_once("Collected : "));
    let count = count.and_then(|(_, count)| count.trim().parse().ok());
    count
        .filter(|count| made.status.success() && 0 < *count)
        .ok_or_else(|| format!("`{name}` was not counted:\n{said}").into())
}

/// Does the work that is counted.
#[inline(never)]
fn collected(work: &mut dyn FnMut()) {
    work();
}

fn counted<T>(mut work: impl FnMut() -> T) {
    collected(&mut || drop(black_box(work())));
}

fn list(counts: &BTreeMap<&str, u64>) -> String {
    counts.iter().fold(String::new(), |mut list, (name, count)| {
        let _ = writeln!(list, "{name}: {count}");
        list
    })
}

/// Counts are far below 2⁵³.
#[expect(clippy::cast_precision_loss, reason = "a ratio of two counts")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

fn file_name(path: &str) -> &str {
    Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or(path)
}

/// Plans a pool from slot `first` on. The plan begins from nothing, or after `fewer` workers have
/// left.
fn plan(first: u32, fewer: u32) -> Result<(), Box<dyn Error>> {
    let (table, workers) = (JobTable::new(crate::names(50_000))?, 500);
    let full = cliffs::pool_from(first, workers);
    let held = table.plan(&[], &full, Rules::default()).holders.into_owned();
    let held = if fewer == 0 { &[][..] } else { &held };
    let pool = cliffs::pool_from(first, workers - fewer);
    counted(|| table.plan(held, &pool, Rules::default()));
    Ok(())
}

fn distinct_priorities() -> Result<(), Box<dyn Error>> {
    let table = cliffs::with_distinct_priorities(5_000)?;
    counted(|| table.plan(&[], &Pool::ready(2_500), Rules::default()));
    Ok(())
}

fn one_more() -> Result<(), Box<dyn Error>> {
    let (table, held) = cliffs::full(1_250)?;
    counted(|| table.plan(&held, &Pool::ready(1_250), Rules::default()));
    Ok(())
}

fn workers_enough() -> Result<(), Box<dyn Error>> {
    cliffs::with_enough(2_000, |request| counted(|| request.workers_enough()))?;
    Ok(())
}

/// The difference from the previous turn.
#[derive(Clone, Copy)]
enum Change {
    Nothing,
    NothingKept,
    Job,
    Worker,
}

fn turn(change: Change) -> Result<(), Box<dyn Error>> {
    let (jobs, workers) = (20_000, 200);
    let (mut desired, mut observed) = (cliffs::desired(jobs)?, cliffs::observed(workers));
    let ledger = decide(&Ledger::new(1), &desired, &observed).ledger;
    let mut decider = Decider::default();
    match change {
        Change::Nothing => drop(decider.decide(&ledger, &desired, &observed)),
        Change::NothingKept => {}
        Change::Job => desired = cliffs::desired(jobs + 1)?,
        Change::Worker => observed = cliffs::observed(workers + 1),
    }
    counted(|| decider.decide(&ledger, &desired, &observed));
    Ok(())
}

fn views_of_all() -> Result<(), Box<dyn Error>> {
    let mut desired = cliffs::desired(1_250)?;
    desired.replication = Replication::All;
    let ledger = decide(&Ledger::new(1), &desired, &cliffs::observed(1_000)).ledger;
    counted(|| ledger.session_views());
    Ok(())
}

fn joined() -> Result<(), Box<dyn Error>> {
    cliffs::with_endings(12_500, SessionEvent::Joined, |end| counted(end))?;
    Ok(())
}
