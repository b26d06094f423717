//! Measures one turn of the operator without its requests, and the cost of a ledger of that size.
//! The figures are for the decision, and for the ledger as text, in one piece and in parts.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::hint::black_box;

use swarm_core::handover::SessionId;
use swarm_core::history::{Recorded, Recorder, Turned};
use swarm_core::parts::{Part, Split, StoredPart, count, join};
use swarm_core::stored::Stored;
use swarm_core::{
    Decider, Desired, Jobs, Ledger, Observed, Presence, Slot, Unacknowledged, WorkerSeen, decide,
    jobs,
};

use crate::{names, shown, timed};

/// The number of times that each step runs.
const RUNS: usize = 7;
const JOBS: u32 = 100_000;
const WORKERS: u32 = 100;

pub(crate) fn all() -> Result<(), Box<dyn Error>> {
    let names = names(JOBS + 1);
    let all = jobs(names.iter().map(String::as_str))?;
    let (last, but_one) = (all.keys().next_back().cloned(), all.clone());
    let fewer: Jobs = but_one.into_iter().filter(|(job, _)| Some(job) != last.as_ref()).collect();
    let desired = |jobs: &Jobs| Desired::new(jobs.clone());
    let (want, more) = (desired(&fewer), desired(&all));
    let (pool, wide) = (observed(WORKERS), observed(WORKERS + 1));
    let ledger = decide(&Ledger::new(1_790_000_000_000_000), &want, &pool).ledger;
    let parts = count(ledger.stored_bytes(), 0);
    println!("| {JOBS} jobs × {WORKERS} workers, {parts} parts | median | best |\n|---|---|---|");
    row("decide: nothing changed, and no kept decision", || decide(&ledger, &want, &pool));
    let mut decider = Decider::default();
    row("decide: nothing changed", || decider.decide(&ledger, &want, &pool));
    row("decide: one job more", || decide(&ledger, &more, &pool));
    row("decide: one worker more", || decide(&ledger, &want, &wide));
    row("the history of a turn: nothing changed", recorded(&ledger, &want, &pool));
    row("the history of a turn: one job more", recorded(&ledger, &more, &pool));
    row("the history of a turn: one worker more", recorded(&ledger, &want, &wide));
    row("the list of jobs, copied for a turn", || want.clone());
    row("the view, of one text", || ledger.view().to_yaml());
    row("the size of the ledger", || ledger.stored_bytes());
    row("the ledger in one piece: to text", || serde_json::to_vec(&Stored::from(&ledger)));
    let text = serde_json::to_vec(&Stored::from(&ledger))?;
    row("the ledger in one piece: from text", || read_whole(&text));
    row("the ledger in parts: find the changed parts", || Split::of(&ledger, parts));
    let split = Split::of(&ledger, parts);
    row("the ledger in parts: one to text", || texts(&split, &[0].into()));
    let every = (0..parts).collect();
    row("the ledger in parts: all to text", || texts(&split, &every));
    let texts = texts(&split, &every);
    row("the ledger in parts: from text", || read_parts(split.head(), &texts));
    let read = read_parts(split.head(), &texts)?;
    let bytes: usize = texts.iter().map(Vec::len).sum();
    println!("\n{} bytes in one piece, {bytes} in parts", text.len());
    if read == ledger { Ok(()) } else { Err("the text has another ledger".into()) }
}

/// Returns the recording of a turn, by a recorder that has seen another turn before.
fn recorded<'a>(
    ledger: &'a Ledger,
    desired: &'a Desired,
    observed: &'a Observed,
) -> impl FnMut() -> Recorded + 'a {
    let (mut recorder, unacknowledged) = (Recorder::default(), Unacknowledged::default());
    let decision = decide(ledger, desired, observed);
    move || {
        let turned = Turned {
            before: ledger,
            decision: &decision,
            desired,
            edits: &[],
            observed,
            unacknowledged: &unacknowledged,
            is_settled: true,
        };
        recorder.observe(1, &turned)
    }
}

fn texts(split: &Split<'_>, wanted: &BTreeSet<usize>) -> Vec<Vec<u8>> {
    let parts: BTreeMap<usize, StoredPart> = split.parts(wanted);
    parts.values().filter_map(|part| serde_json::to_vec(part).ok()).collect()
}

fn read_whole(text: &[u8]) -> Result<Ledger, Box<dyn Error>> {
    Ok(Ledger::try_from(serde_json::from_slice::<Stored>(text)?)?)
}

fn read_parts(head: Stored, texts: &[Vec<u8>]) -> Result<Ledger, Box<dyn Error>> {
    let part = |text: &Vec<u8>| -> Result<Part, Box<dyn Error>> {
        Ok(Part::try_from(serde_json::from_slice::<StoredPart>(text)?)?)
    };
    Ok(join(head, texts.iter().map(part).collect::<Result<Vec<_>, _>>()?)?)
}

fn observed(workers: u32) -> Observed {
    let seen = |n: u32| {
        let uid = format!("0b8f1d3e-5c1a-4a52-9d63-{n:012}");
        let (name, session) = (format!("swarm-worker-{n}"), Some(SessionId::plain(&uid)));
        (Slot(n), WorkerSeen::new(name, Presence::Ready, session))
    };
    Observed::new((0..workers).map(seen), 1_790_000_000_000_000, [])
}

fn row<T>(name: &str, mut work: impl FnMut() -> T) {
    let mut times: Vec<_> = (0..RUNS).map(|_| timed(|| black_box(work())).1).collect();
    times.sort_unstable();
    println!("| {name} | {} | {} |", shown(times[RUNS / 2]), shown(times[0]));
}
