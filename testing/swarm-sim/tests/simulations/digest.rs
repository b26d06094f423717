//! Checks that worlds with the same digest have the same future. So the search loses nothing when
//! it visits only one of them.
#![expect(clippy::print_stdout, reason = "the figures are worth reading")]

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use swarm_sim::{Bounds, Fault, Invariant, Step, World};

use crate::extent::is_full;

/// The number of worlds with the same digest that are compared.
const ALIKE_MAX: usize = 4;

fn digest(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}

/// The invariants that hold in a world, and the digests of its next worlds.
fn future(world: &World) -> (Vec<bool>, BTreeSet<u64>) {
    let own = digest(world);
    let next = world.steps().into_iter().filter_map(|step| world.after(&step));
    let next = next.map(|world| digest(&world)).filter(|next| *next != own);
    (Invariant::ALL.map(|rule| rule.holds(world)).into(), next.collect())
}

/// A step that one of two worlds can take and the other cannot.
fn difference(one: &World, other: &World) -> String {
    let (_, can) = future(other);
    let leads = |step: &Step| one.after(step).filter(|world| !can.contains(&digest(world)));
    let step = one.steps().into_iter().find(|step| leads(step).is_some());
    format!("{step:?} from {one:#?} has no counterpart from {other:#?}")
}

/// Explores all states within `bounds`, some of them several times as different worlds, and
/// compares these. Returns the number of states and the number of comparisons.
fn compare(bounds: Bounds) -> (usize, usize) {
    let mut known: HashMap<u64, Vec<World>> = HashMap::new();
    let mut futures = HashMap::new();
    let mut queue = VecDeque::from([World::new(bounds)]);
    let mut compared = 0;
    while let Some(world) = queue.pop_front() {
        let alike = known.entry(digest(&world)).or_default();
        if alike.len() == ALIKE_MAX || alike.contains(&world) {
            continue;
        }
        alike.push(world.clone());
        let future = future(&world);
        let first = futures.entry(digest(&world)).or_insert_with(|| future.clone());
        if alike.len() > 1 {
            compared += 1;
            let differs = || [difference(&alike[0], &world), difference(&world, &alike[0])];
            assert!(*first == future, "{}", differs().join("\n\n"));
        }
        let steps = world.steps().into_iter();
        queue.extend(steps.filter_map(|step| world.after(&step)));
    }
    println!("{bounds:<32} {:>9} states {compared:>9} compared", known.len());
    (known.len(), compared)
}

#[test]
fn worlds_with_one_digest_have_one_future() {
    let some = Bounds { versions: 2, ..Bounds::default() };
    let worlds = [
        Bounds { drift: 1, ..some },
        Bounds { lease: 2, faults: &[], ..some },
        Bounds { operators: 2, faults: &[], ..some },
        Bounds { faults: &[Fault::Finish, Fault::Timeout, Fault::Hold], ..some },
        Bounds { versions: 3, faults: &[Fault::Crash, Fault::Restart, Fault::Poison], ..some },
        Bounds { faults: &[Fault::Delete, Fault::Pause], ..some },
        Bounds { jobs: 2, lease: 2, renew: 1, faults: &[], ..some },
        Bounds { jobs: 2, faults: &[Fault::OldLease], ..some },
    ];
    let count = if is_full() { worlds.len() } else { 1 };
    for bounds in worlds.into_iter().take(count) {
        let (states, compared) = compare(bounds);
        assert!(1_000 < states && states < compared, "{bounds}: {states}, {compared}");
    }
}
