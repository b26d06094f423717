//! The search for dead ends: states from which no path leads to all jobs running.
//!
//! Stateright's own `eventually` is unsound on graphs with cycles, and this graph is full of them.
//! So the whole graph is built, and walked backwards from the good states.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use swarm_core::handover::{Cell, Holder, Moment};

use crate::{Bounds, Life, Step, World};

/// Writes of the ledger that a way out may need: one to release, one to grant.
const WRITES_LEFT: usize = 2;

/// What the search for dead ends saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Liveness {
    /// How many states there are.
    pub states: usize,
    /// How many of them were judged: there are sessions for all jobs that can still be used, and the
    /// bounds leave room for the writes that a way out may need.
    pub judged: usize,
    /// In how many states all jobs run, with their holders.
    pub good: usize,
    /// In how many of these a job has moved.
    pub moved: usize,
    /// How many judged states are dead ends.
    pub dead_ends: usize,
    /// The steps to one of them, the fewest there are.
    pub example: Option<Vec<Step>>,
}

#[derive(Default)]
struct Graph {
    ids: HashMap<u64, usize>,
    /// For every state, the states it is reached from.
    before: Vec<Vec<u32>>,
    /// For every state, the one it was first reached from.
    first_from: Vec<Option<usize>>,
    is_good: Vec<bool>,
    is_judged: Vec<bool>,
    queue: VecDeque<(usize, World)>,
    seen: Liveness,
}

/// Walks through all states within `bounds` and looks for dead ends.
#[must_use]
pub fn dead_ends(bounds: Bounds) -> Liveness {
    let mut graph = Graph::default();
    graph.enter(World::new(bounds), None);
    while let Some((id, world)) = graph.queue.pop_front() {
        for step in world.steps() {
            if let Some(next) = world.after(&step) {
                graph.enter(next, Some(id));
            }
        }
    }
    let stuck = graph.stuck();
    let example = stuck.first().map(|id| graph.way_to(bounds, *id));
    let Graph { mut seen, ids, .. } = graph;
    seen.states = ids.len();
    seen.dead_ends = stuck.len();
    seen.example = example;
    seen
}

impl Graph {
    fn enter(&mut self, world: World, from: Option<usize>) {
        let new_id = self.before.len();
        let id = match self.ids.entry(fingerprint(&world)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(unknown) => {
                unknown.insert(new_id);
                self.before.push(Vec::new());
                self.first_from.push(from);
                let (good, judged) = (is_good(&world), is_judged(&world));
                self.is_good.push(good);
                self.is_judged.push(judged);
                self.seen.judged += usize::from(judged);
                self.seen.good += usize::from(good);
                self.seen.moved += usize::from(good && has_moved(&world));
                self.queue.push_back((new_id, world));
                new_id
            }
        };
        if let Some(from) = from.and_then(|from| u32::try_from(from).ok()) {
            self.before[id].push(from);
        }
    }

    /// The fewest steps from the beginning to a state: up the tree of first sights, and down again.
    fn way_to(&self, bounds: Bounds, id: usize) -> Vec<Step> {
        let first = |id: &usize| self.first_from[*id];
        let mut path: Vec<_> = std::iter::successors(Some(id), first).collect();
        path.pop();
        let mut world = World::new(bounds);
        let mut way = Vec::new();
        for next in path.into_iter().rev() {
            let leads = |step: &Step| {
                let after = world.after(step)?;
                (self.ids.get(&fingerprint(&after)) == Some(&next)).then_some(after)
            };
            let found = world.steps().into_iter().find_map(|step| Some((leads(&step)?, step)));
            let Some((after, step)) = found else { break };
            world = after;
            way.push(step);
        }
        way
    }

    /// The judged states from which no good state is reached.
    fn stuck(&self) -> Vec<usize> {
        let mut reaches = self.is_good.clone();
        let mut queue: VecDeque<_> = (0..reaches.len()).filter(|id| reaches[*id]).collect();
        while let Some(id) = queue.pop_front() {
            for from in self.before[id].iter().map(|from| *from as usize) {
                if !std::mem::replace(&mut reaches[from], true) {
                    queue.push_back(from);
                }
            }
        }
        (0..reaches.len()).filter(|id| self.is_judged[*id] && !reaches[*id]).collect()
    }
}

fn fingerprint(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}

/// Whether every job runs, with the session it is granted to.
fn is_good(world: &World) -> bool {
    world.cells().jobs.iter().all(|(job, record)| match &record.cell {
        Cell::Granted { session, .. } => {
            world.runners(job).any(|n| world.bounds.session(n) == session)
        }
        Cell::Releasing { .. }
        | Cell::Free { .. }
        | Cell::Hold { .. }
        | Cell::Quarantined { .. }
        | Cell::Done { .. }
        | Cell::Everywhere { .. }
        | Cell::ReleasingAll { .. } => false,
    })
}

fn has_moved(world: &World) -> bool {
    let first = Some(world.bounds.session(0));
    world.cells().jobs.values().any(|record| record.cell.holder() != first)
}

/// The most jobs that a session may have.
fn most(bounds: &Bounds) -> usize {
    bounds.max_jobs.map_or(usize::MAX, |max| max as usize)
}

fn is_judged(world: &World) -> bool {
    let has_room = world.history.len() + WRITES_LEFT <= world.bounds.versions;
    let is_usable = |n: usize| {
        let worker = &world.workers[n];
        let lease = world.leases[n].as_ref().filter(|lease| lease.holder == Holder::Session);
        // A session whose lease another write than the first has made ends as soon as it knows.
        let never_could_act = worker.session.deadline() == Moment::default();
        let is_good = lease.is_some_and(|lease| lease.number == 1 || !never_could_act);
        worker.life == Life::Up && !worker.session.is_ending() && is_good
    };
    let usable = (0..world.workers.len()).filter(|n| is_usable(*n)).count();
    let takes_all = world.bounds.jobs <= usable.saturating_mul(most(&world.bounds));
    has_room && 0 < usable && takes_all
}
