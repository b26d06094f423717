//! The search for dead ends: states from which no path leads to all jobs running.
//!
//! The check `eventually` of Stateright is unsound on graphs with cycles, and this graph is full of
//! cycles. So the search builds the whole graph, and walks backwards from the good states.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use swarm_core::handover::{Cell, Holder, Moment};

use crate::{Bounds, ProcessState, Step, World};

/// Writes of the ledger that a way out may need: one to release, one to grant.
const WRITES_LEFT: usize = 2;

/// The result of the search for dead ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Liveness<S = Step> {
    /// The number of states.
    pub states: usize,
    /// The number of judged states. In these, the needed members or sessions can still act, and the
    /// bounds leave room for the writes that a way out may need.
    pub judged: usize,
    /// The number of states in which all jobs run with their holders, or all keys have an owner.
    pub good: usize,
    /// The number of good states in which a job or a key has moved.
    pub moved: usize,
    /// The number of judged states that are dead ends.
    pub dead_ends: usize,
    /// The fewest steps to a dead end, if there is one.
    pub example: Option<Vec<S>>,
}

/// A world whose states can all be visited.
pub(crate) trait Walked: Clone + Hash {
    /// A step of the world.
    type Step;

    fn all_steps(&self) -> Vec<Self::Step>;

    /// The world after a step, or `None` if it changes nothing.
    fn stepped(&self, step: &Self::Step) -> Option<Self>;

    fn verdict(&self) -> Verdict;
}

/// The judgement of a state for the search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verdict {
    /// Whether the state is good.
    pub(crate) is_good: bool,
    /// Whether a good state must be reachable from it.
    pub(crate) is_judged: bool,
    /// Whether the state is good and something has moved.
    pub(crate) has_moved: bool,
}

struct Graph<W> {
    ids: HashMap<u64, usize>,
    /// The states that lead to each state, by its number.
    before: Vec<Vec<u32>>,
    /// The state from which each state was first reached.
    first_from: Vec<Option<usize>>,
    is_good: Vec<bool>,
    is_judged: Vec<bool>,
    queue: VecDeque<(usize, W)>,
    judged: usize,
    good: usize,
    moved: usize,
}

/// Explores all states within `bounds` and looks for dead ends.
#[must_use]
pub fn dead_ends(bounds: Bounds) -> Liveness {
    walk_back(&World::new(bounds))
}

/// Explores all states that are reached from `start` and looks for dead ends.
pub(crate) fn walk_back<W: Walked>(start: &W) -> Liveness<W::Step> {
    let mut graph = Graph::default();
    graph.enter(start.clone(), None);
    while let Some((id, world)) = graph.queue.pop_front() {
        for step in world.all_steps() {
            if let Some(next) = world.stepped(&step) {
                graph.enter(next, Some(id));
            }
        }
    }
    let stuck = graph.stuck();
    let example = stuck.first().map(|id| graph.way_to(start, *id));
    let Graph { ids, judged, good, moved, .. } = graph;
    Liveness { states: ids.len(), judged, good, moved, dead_ends: stuck.len(), example }
}

impl<W> Default for Graph<W> {
    fn default() -> Self {
        Self {
            ids: HashMap::new(),
            before: Vec::new(),
            first_from: Vec::new(),
            is_good: Vec::new(),
            is_judged: Vec::new(),
            queue: VecDeque::new(),
            judged: 0,
            good: 0,
            moved: 0,
        }
    }
}

impl<W: Walked> Graph<W> {
    fn enter(&mut self, world: W, from: Option<usize>) {
        let new_id = self.before.len();
        let id = match self.ids.entry(fingerprint(&world)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(unknown) => {
                unknown.insert(new_id);
                self.before.push(Vec::new());
                self.first_from.push(from);
                let Verdict { is_good, is_judged, has_moved } = world.verdict();
                self.is_good.push(is_good);
                self.is_judged.push(is_judged);
                self.judged += usize::from(is_judged);
                self.good += usize::from(is_good);
                self.moved += usize::from(has_moved);
                self.queue.push_back((new_id, world));
                new_id
            }
        };
        if let Some(from) = from.and_then(|from| u32::try_from(from).ok()) {
            self.before[id].push(from);
        }
    }

    /// The fewest steps from the beginning to a state: back along the first visits, and then
    /// forward again.
    fn way_to(&self, start: &W, id: usize) -> Vec<W::Step> {
        let first = |id: &usize| self.first_from[*id];
        let mut path: Vec<_> = std::iter::successors(Some(id), first).collect();
        path.pop();
        let mut world = start.clone();
        let mut way = Vec::new();
        for next in path.into_iter().rev() {
            let leads = |step: &W::Step| {
                let after = world.stepped(step)?;
                (self.ids.get(&fingerprint(&after)) == Some(&next)).then_some(after)
            };
            let found = world.all_steps().into_iter().find_map(|step| Some((leads(&step)?, step)));
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

fn fingerprint<W: Hash>(world: &W) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}

impl Walked for World {
    type Step = Step;

    fn all_steps(&self) -> Vec<Step> {
        self.steps()
    }

    fn stepped(&self, step: &Step) -> Option<Self> {
        self.after(step)
    }

    fn verdict(&self) -> Verdict {
        let is_good = is_good(self);
        let has_moved = is_good && has_moved(self);
        Verdict { is_good, is_judged: is_judged(self), has_moved }
    }
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
        // A session whose Lease was not created by its first write ends as soon as it knows.
        let never_could_act = worker.session.deadline() == Moment::default();
        let is_good = lease.is_some_and(|lease| lease.number == 1 || !never_could_act);
        worker.process == ProcessState::Up && !worker.session.is_ending() && is_good
    };
    let usable = (0..world.workers.len()).filter(|n| is_usable(*n)).count();
    let takes_all = world.bounds.jobs <= usable.saturating_mul(most(&world.bounds));
    has_room && 0 < usable && takes_all
}
