//! Keys shared among replicas: what one member more costs, and what it touches.

use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::time::Duration;

use swarm_core::replicas::{
    Bucket, Buckets, Controller, Hosts, Keys, MemberId, Members, Owners, Weight,
};

use crate::{shown, timed};

/// How often each step is taken.
const RUNS: usize = 15;
const OBJECTS: u32 = 1_000_000;
const MEMBERS: u64 = 100;

pub(crate) fn all() -> Result<(), Box<dyn Error>> {
    println!("| replicas: {OBJECTS} objects × {MEMBERS} members | median | best | touched |");
    println!("|---|---|---|---|");
    let controller: Controller = "swarm".parse()?;
    let (set, more) = (members(&controller, MEMBERS)?, members(&controller, MEMBERS + 1)?);
    let (keys, took) = timed(keys);
    println!("| objects put into their buckets, once | {} | | {} |", shown(took), keys.len());
    row("owners of all buckets, from nothing", || (Owners::of(&set), Bucket::COUNT));
    let owners = Owners::of(&set);
    row("+1 member: owners, what changes hands, its objects", || touched(&owners, &more, &keys));
    let next = owners.next(&more);
    row("−1 member: the same", || touched(&next, &set, &keys));
    let newest = members(&controller, MEMBERS + 1)?;
    let newest = newest.iter().find(|(member, _)| !set.contains(member)).map(|(member, _)| member);
    let newest = newest.ok_or("there is no new member")?;
    row("what one member owns", || {
        let share = next.share(newest);
        let buckets = share.get(&controller).map_or(0, Buckets::len);
        (share, buckets)
    });
    Ok(())
}

fn members(controller: &Controller, count: u64) -> Result<Members, Box<dyn Error>> {
    let hosts: Hosts = [(controller.clone(), Weight::default())].into();
    let member = |n| Ok((MemberId::new(&format!("swarm-operator-{n}"), n)?, hosts.clone()));
    let all: Result<BTreeMap<_, _>, Box<dyn Error>> = (0..count).map(member).collect();
    Ok(Members::from(all?))
}

fn keys() -> Keys<u32> {
    let mut keys = Keys::default();
    for n in 0..OBJECTS {
        let (high, low) = (n.wrapping_mul(2_654_435_761), n.wrapping_mul(40_503));
        keys.insert(&format!("{high:08x}-5c1a-4a52-9d63-{low:012x}"), n);
    }
    keys
}

/// The new table, and how many objects change hands.
fn touched(owners: &Owners, set: &Members, keys: &Keys<u32>) -> (Owners, usize) {
    let next = owners.next(set);
    let moved: Buckets = owners.changes(&next).map(|change| change.bucket).collect();
    let touched = keys.of(&moved).map(black_box).count();
    (next, touched)
}

fn row<T>(name: &str, mut work: impl FnMut() -> (T, usize)) {
    let mut times = Vec::new();
    let mut touched = 0;
    for _ in 0..RUNS {
        let ((made, count), took): (_, Duration) = timed(|| black_box(work()));
        drop(made);
        times.push(took);
        touched = count;
    }
    times.sort_unstable();
    println!("| {name} | {} | {} | {touched} |", shown(times[RUNS / 2]), shown(times[0]));
}
