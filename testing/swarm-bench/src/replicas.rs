//! Measures keys shared among replicas: the cost of one more member, and the objects that it
//! touches.

use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::time::Duration;

use swarm_replicas::machine::{
    Bucket, Buckets, Controller, Hosts, Keys, MemberId, Members, Owners, Weight,
};

use crate::{shown, timed};

/// The number of times that each step runs.
const RUNS: usize = 15;
const OBJECTS: u32 = 1_000_000;
const MEMBERS: u64 = 100;

pub(crate) fn all() -> Result<(), Box<dyn Error>> {
    println!("| {OBJECTS} objects × {MEMBERS} members | median | best | objects touched |");
    println!("|---|---|---|---|");
    let controller: Controller = "swarm".parse()?;
    let (set, more) = (members(&controller, MEMBERS)?, members(&controller, MEMBERS + 1)?);
    let (keys, took) = timed(keys);
    println!("| all objects put into their buckets, once | {} | | {} |", shown(took), keys.len());
    row("the owners of all buckets, from nothing", || (Owners::of(&set), Bucket::COUNT));
    let owners = Owners::of(&set);
    row("one member more: the owners, the buckets that change hands, and their objects", || {
        touched(&owners, &more, &keys)
    });
    let next = owners.next(&more);
    row("one member less: the same", || touched(&next, &set, &keys));
    let newest = members(&controller, MEMBERS + 1)?;
    let newest = newest.iter().find(|(member, _)| !set.contains(member)).map(|(member, _)| member);
    let newest = newest.ok_or("there is no new member")?;
    row("the share of one member", || {
        let share = next.share(newest);
        let buckets = share.get(&controller).map_or(0, Buckets::len);
        (share, buckets)
    });
    updates(&controller)
}

/// Measures how many times a bucket changes its owner in an update. In an update, a new replica has
/// its share before an old replica leaves, and so on.
fn updates(controller: &Controller) -> Result<(), Box<dyn Error>> {
    println!("| replicas | changes of a bucket, mean | most |\n|--:|--:|--:|");
    for count in [1, 2, 3, 4, 5, 10, 100] {
        let all = members(controller, 2 * count)?;
        let all: Vec<_> = all.iter().map(|(id, hosts)| (id.clone(), hosts.clone())).collect();
        let (old, new) = all.split_at(usize::try_from(count)?);
        let mut set: BTreeMap<_, _> = old.iter().cloned().collect();
        let mut owners = Owners::of(&Members::from(set.clone()));
        let mut moves = BTreeMap::<Bucket, u32>::new();
        let mut take = |set: &BTreeMap<_, _>, owners: &mut Owners| {
            let next = owners.next(&Members::from(set.clone()));
            for change in owners.changes(&next) {
                *moves.entry(change.bucket).or_default() += 1;
            }
            *owners = next;
        };
        for ((old, _), (member, hosts)) in old.iter().zip(new) {
            set.insert(member.clone(), hosts.clone());
            take(&set, &mut owners);
            set.remove(old);
            take(&set, &mut owners);
        }
        let all: u32 = moves.values().sum();
        let mean = f64::from(all) / f64::from(u32::try_from(Bucket::COUNT)?);
        println!("| {count} | {mean:.2} | {} |", moves.values().max().unwrap_or(&0));
    }
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

/// Returns the new table, and the number of objects that change their owner.
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
