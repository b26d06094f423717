//! Measures the memory of the operator for a Swarm with as many jobs as its sources may have. The
//! figures are for the memory that it keeps and the memory that a turn takes.

use std::error::Error;

use swarm_core::stored::Stored;
use swarm_core::{Decider, Desired, Ledger, Observed, jobs};

use crate::memory;

const JOBS: u32 = 200_000;

/// Bytes in MB, rounded up.
fn mb(bytes: usize) -> usize {
    bytes.div_ceil(1_000_000)
}

/// Runs `work`, and prints a line with the memory that it needs and that its result keeps.
fn row<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let before = memory::start();
    let made = work();
    let most = memory::peak();
    let kept = memory::start();
    println!("| {what} | {} MB | {} MB |", mb(kept.saturating_sub(before)), mb(most - before));
    made
}

pub(crate) fn all() -> Result<(), Box<dyn Error>> {
    let names: Vec<_> =
        (0..JOBS).map(|n| format!("stream:camera-with-a-long-name:{n:014}")).collect();
    println!("| {JOBS} jobs with names of 45 bytes | kept | at most |\n|---|--:|--:|");
    let list = row("the list", || jobs(names.iter().map(String::as_str)))?;
    let desired = Desired::new(list);
    let observed = Observed::new([], 1_790_000_000_000_000, []);
    let empty = Ledger::new(1_790_000_000_000_000);
    let mut decider = Decider::default();
    let mut decide = |ledger: &Ledger| decider.decide(ledger, &desired, &observed).ledger;
    let ledger = row("the first decision", || decide(&empty));
    let ledger = row("one that changes nothing", || decide(&ledger));
    let text = row("the ledger as text", || serde_json::to_vec(&Stored::from(&ledger)))?;
    let read = row("the ledger, read", || -> Result<_, Box<dyn Error>> {
        Ok(Ledger::try_from(serde_json::from_slice::<Stored>(&text)?)?)
    })?;
    if read == ledger { Ok(()) } else { Err("what was read is another ledger".into()) }
}
