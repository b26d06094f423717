//! Compares the planner with other libraries that distribute keys among workers.
//!
//! All get the same keys: the precomputed frozen hashes of the jobs' names. A library that cannot plan
//! a change assigns all keys again. The worker that joins or leaves is always the last one, because
//! one of the libraries supports no other. The first assignment includes the setup of the workers.

use std::time::Duration;

use swarm_core::{JobName, JobTable, JobsError, Mode, Slot, hash_job};

use crate::contestants::{Anchor, Hrw, Jump, NodeRing, PointRing, Swarm};
use crate::{names, shown, timed};

/// The number of times that each step runs.
const RUNS: usize = 7;

/// A way to assign keys to workers.
pub(crate) trait Contestant {
    /// Has the workers `0..workers` from now on, and no others.
    fn start(&mut self, workers: u32);

    /// The worker with the next number joins.
    fn join(&mut self);

    /// The worker with the last number leaves.
    fn leave(&mut self);

    /// The worker of every key. `held` is the previous worker of each key, for libraries that use it.
    fn assign(&self, held: &[Slot]) -> Vec<Slot>;
}

/// Measures every library at two sizes. The library whose work grows with jobs × workers runs only
/// at the smaller size.
pub(crate) fn all() -> Result<(), JobsError> {
    head();
    for (jobs, workers) in [(100_000, 100), (1_000_000, 1_000)] {
        let (table, keys) = keys(jobs)?;
        let measure =
            |name, contestant: &mut dyn Contestant| report(name, contestant, workers, RUNS);
        measure("swarm", &mut Swarm::new(&table, Mode::Sticky));
        measure("swarm, canonical", &mut Swarm::new(&table, Mode::Canonical));
        measure("hashring 0.3", &mut PointRing::new(&keys));
        measure("consistent_hash_ring 0.8", &mut NodeRing::new(&keys));
        measure("jumphash 0.1", &mut Jump::new(&keys));
        measure("anchorhash 0.2", &mut Anchor::new(&keys));
        if jobs <= 100_000 {
            measure("hrw-hash 2.0", &mut Hrw::new(&keys));
        }
        let (spread, up, down) = ((jobs % workers).min(1), jobs / (workers + 1), jobs / workers);
        println!(
            "| {jobs} × {workers} | fewest moves from even to even | | | | {spread} | {up} | {down} |"
        );
    }
    Ok(())
}

/// Measures the library whose work grows with jobs × workers once, at the larger size.
pub(crate) fn slow() -> Result<(), JobsError> {
    head();
    let (_, keys) = keys(1_000_000)?;
    report("hrw-hash 2.0", &mut Hrw::new(&keys), 1_000, 1);
    Ok(())
}

fn head() {
    println!(
        "| jobs × workers | library | first | +1 worker | −1 worker | spread | moves, +1 | moves, −1 |"
    );
    println!("|---|---|---|---|---|---|---|---|");
}

fn keys(jobs: u32) -> Result<(JobTable, Vec<u64>), JobsError> {
    let names = names(jobs);
    let table = JobTable::new(&names)?;
    let hash = |(name, number): (&String, usize)| {
        let name = JobName::new(name).map_err(|source| JobsError::Name { number, source })?;
        Ok(hash_job(&name))
    };
    let keys = names.iter().zip(1..).map(hash).collect::<Result<_, JobsError>>()?;
    Ok((table, keys))
}

fn report(name: &str, contestant: &mut dyn Contestant, workers: u32, runs: usize) {
    let mut held = Vec::new();
    let first = median(runs, || {
        let (assigned, took) = timed(|| {
            contestant.start(workers);
            contestant.assign(&[])
        });
        held = assigned;
        took
    });
    let mut moves = [0; 2];
    let up = median(runs, || {
        let (assigned, took) = timed(|| {
            contestant.join();
            contestant.assign(&held)
        });
        moves[0] = changed(&held, &assigned);
        contestant.leave();
        took
    });
    let down = median(runs, || {
        let (assigned, took) = timed(|| {
            contestant.leave();
            contestant.assign(&held)
        });
        moves[1] = changed(&held, &assigned);
        contestant.join();
        took
    });
    let [first, up, down] = [first, up, down].map(shown);
    let ([more, less], spread, jobs) = (moves, spread(&held, workers), held.len());
    println!(
        "| {jobs} × {workers} | {name} | {first} | {up} | {down} | {spread} | {more} | {less} |"
    );
}

fn median(runs: usize, once: impl FnMut() -> Duration) -> Duration {
    let mut times: Vec<_> = std::iter::repeat_with(once).take(runs).collect();
    times.sort_unstable();
    times[runs / 2]
}

fn changed(before: &[Slot], after: &[Slot]) -> usize {
    before.iter().zip(after).filter(|(before, after)| before != after).count()
}

fn spread(held: &[Slot], workers: u32) -> usize {
    let mut loads = vec![0_usize; workers as usize];
    for slot in held {
        loads[slot.0 as usize] += 1;
    }
    loads.iter().max().unwrap_or(&0) - loads.iter().min().unwrap_or(&0)
}
