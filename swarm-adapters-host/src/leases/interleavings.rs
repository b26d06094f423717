//! Tests the chain with several writers and readers, whose steps follow a random schedule.
//! Processes are killed and frozen between any two steps. The effects of each step on the files
//! decide whether the results are right.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use proptest::prelude::*;

use super::*;

const SESSION: &str = "pod-0000000000000001";

/// All files, and the knowledge of an observer of every step.
#[derive(Default)]
struct World {
    files: BTreeMap<String, Document>,
    /// The true newest states in order, each with the step that made it. No process can see this.
    heads: Vec<(usize, u64, String)>,
    /// The step in which the lease was created, if it exists.
    made: Option<usize>,
    steps: usize,
}

impl World {
    fn link(&mut self, name: &str, document: &Document) -> bool {
        if self.files.contains_key(name) {
            return false;
        }
        self.files.insert(name.to_owned(), document.clone());
        let version: u64 = name.rsplit_once('.').unwrap().1.parse().unwrap();
        let is_next = self
            .heads
            .last()
            .is_some_and(|(_, head, mark)| head + 1 == version && *mark == document.after);
        if version == 0 {
            assert!(self.made.is_none(), "made twice");
            self.made = Some(self.steps);
            self.heads.push((self.steps, 1, document.after.clone()));
        } else if is_next {
            self.heads.push((self.steps, version, document.mark.clone()));
        }
        true
    }
}

/// One process. Each step waits for its turn in the schedule.
struct Process {
    world: Arc<Mutex<World>>,
    turns: Mutex<Receiver<()>>,
    done: Sender<()>,
}

impl Process {
    fn step<T>(&self, act: impl FnOnce(&mut World) -> T) -> io::Result<T> {
        let turn = self.turns.lock().unwrap().recv();
        // A killed process makes no further step.
        turn.map_err(|_| io::Error::other("killed"))?;
        let mut world = self.world.lock().unwrap();
        world.steps += 1;
        let done = act(&mut world);
        drop(world);
        self.done.send(()).unwrap();
        Ok(done)
    }
}

impl disk::Names for Process {
    fn load(&self, name: &str) -> io::Result<Option<Document>> {
        self.step(|world| world.files.get(name).cloned())
    }

    fn exists(&self, name: &str) -> io::Result<bool> {
        self.step(|world| world.files.contains_key(name))
    }

    fn link(&self, name: &str, document: &Document) -> io::Result<bool> {
        self.step(|world| world.link(name, document))
    }

    fn unlink(&self, name: &str) -> io::Result<()> {
        self.step(|world| {
            world.files.remove(name);
        })
    }

    /// The listing has three parts: a change between two parts may be missed.
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for part in [1, 2, 0] {
            let is_in = |name: &&String| name.bytes().last().unwrap() % 3 == part;
            let seen = self.step(|w| w.files.keys().filter(is_in).cloned().collect::<Vec<_>>())?;
            names.extend(seen);
        }
        Ok(names)
    }
}

fn document() -> Document {
    let (version, ack) = (LeaseVersion(0), swarm_core::handover::Ack::default());
    Document::new(&Lease { version, holder: Holder::Session, number: 0, ack }, "boot").unwrap()
}

/// The result of a process's action, with the steps before and after.
enum Outcome {
    Read(usize, usize, Option<(u64, String)>),
    Wrote(u64, String),
}

/// The start of a process, and the hints of its reads.
#[derive(Clone, Debug)]
struct Plan {
    /// The version it saw before it was frozen; 0 if it was about to create the lease.
    saw: usize,
    /// One hint for each read; 0 means no hint.
    hints: Vec<u64>,
}

/// Continues an action after a freeze, then reads and writes until it is killed.
fn live(
    process: &Process,
    saw: Option<&State>,
    hints: &[u64],
    outcomes: &Mutex<Vec<Outcome>>,
) -> io::Result<()> {
    let chain = Chain { names: process, session: SESSION };
    let write = |state: Option<&State>| {
        let next = document();
        let mark = next.mark.clone();
        let written = match state {
            Some(state) => chain.append(state, next)?,
            None => chain.create(document(), &next)?,
        };
        if let Some(version) = written {
            outcomes.lock().unwrap().push(Outcome::Wrote(version, mark));
        }
        io::Result::Ok(())
    };
    let steps = || process.world.lock().unwrap().steps;
    write(saw)?;
    for hint in hints {
        let before = steps();
        let state = chain.newest((*hint > 0).then_some(*hint))?;
        let what = state.as_ref().map(|s| (s.version, s.document.mark.clone()));
        outcomes.lock().unwrap().push(Outcome::Read(before, steps(), what));
        if state.is_some() {
            write(state.as_ref())?;
        }
    }
    Ok(())
}

/// Returns the states of a lease that was written `newest` times, with the files from `lowest` on.
/// Writers that are killed before they clean up leave such files.
fn history(newest: u64, lowest: u64) -> (World, Vec<State>) {
    let (mut world, mut states) = (World::default(), Vec::<State>::new());
    for version in 1..=newest {
        let next = document();
        let next = if let Some(last) = states.last() { next.after(&last.document) } else { next };
        world.link(&file_name(SESSION, version), &next);
        if version == 1 {
            world.link(&file_name(SESSION, 0), &document().after(&next));
        }
        states.push(State { version, document: next });
    }
    for version in 1..lowest.min(newest.saturating_sub(1)) {
        world.files.remove(&file_name(SESSION, version));
    }
    (world, states)
}

/// Lets the process make one step, and returns whether it has not ended.
fn let_step(turn: &Sender<()>, done: &Receiver<()>) -> bool {
    turn.send(()).is_ok() && done.recv().is_ok()
}

/// Runs the schedule. `(process, steps)` lets a process make that many steps. Killed processes make
/// no more steps.
fn play(
    (world, states): (World, Vec<State>),
    plans: Vec<Plan>,
    schedule: &[(usize, usize)],
    kills: &[usize],
) -> (World, Vec<Outcome>) {
    let world = Arc::new(Mutex::new(world));
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    let mut processes = Vec::new();
    for Plan { saw, hints } in plans {
        let saw = saw.min(states.len()).checked_sub(1).map(|n| states[n].clone());
        let ((turn, turns), (done, dones)) = (channel(), channel());
        let process = Process { world: Arc::clone(&world), turns: Mutex::new(turns), done };
        let outcomes = Arc::clone(&outcomes);
        let thread = thread::spawn(move || {
            // An error means that the process was killed.
            let _ = live(&process, saw.as_ref(), &hints, &outcomes);
        });
        processes.push((turn, dones, thread));
    }
    for &(process, steps) in schedule {
        let (turn, done, _) = &processes[process];
        let _ = (0..steps).all(|_| let_step(turn, done));
    }
    for (process, (turn, done, thread)) in processes.into_iter().enumerate() {
        // The frozen processes continue, one after the other.
        while !kills.contains(&process) && let_step(&turn, &done) {}
        drop((turn, done));
        thread.join().unwrap();
    }
    let world = Arc::into_inner(world).unwrap().into_inner().unwrap();
    (world, Arc::into_inner(outcomes).unwrap().into_inner().unwrap())
}

/// Judges the results by the effects of the steps.
fn judge(world: &World, outcomes: &[Outcome]) -> Result<(), String> {
    for (n, (_, version, _)) in world.heads.iter().enumerate() {
        if *version != n as u64 + 1 {
            return Err(format!("version {version} was made as number {n}"));
        }
    }
    let mut wrote = BTreeSet::new();
    for outcome in outcomes {
        match outcome {
            Outcome::Wrote(version, mark) => {
                let is_true = world.heads.iter().any(|(_, v, m)| v == version && m == mark);
                if !is_true || !wrote.insert(version) {
                    return Err(format!(
                        "the write of {version} did not happen, or happened twice"
                    ));
                }
            }
            Outcome::Read(before, after, None) => {
                if world.made.is_some_and(|made| made <= *before) {
                    return Err(format!("nothing was read between {before} and {after}"));
                }
            }
            Outcome::Read(before, after, Some((version, mark))) => {
                let head = world.heads.iter().position(|(_, v, m)| v == version && m == mark);
                let Some(head) = head else { return Err(format!("{version} read is stray")) };
                let until = world.heads.get(head + 1).map_or(usize::MAX, |(step, ..)| *step);
                if until <= *before || *after < world.heads[head].0 {
                    return Err(format!(
                        "{version}, read from {before} to {after}, was not newest"
                    ));
                }
            }
        }
    }
    // The newest state must be readable and writable at the end.
    let Some((_, head, mark)) = world.heads.last() else { return Ok(()) };
    match world.files.get(&file_name(SESSION, *head)) {
        Some(document) if document.mark == *mark => {}
        _ => return Err(format!("the newest, {head}, no longer exists")),
    }
    let Some((_, before, mark)) = world.heads.iter().rev().nth(1) else { return Ok(()) };
    match world.files.get(&file_name(SESSION, *before)) {
        Some(document) if document.mark == *mark => Ok(()),
        _ => Err(format!("the one before the newest, {head}, no longer exists")),
    }
}

fn any_plan() -> impl Strategy<Value = Plan> {
    let hints = prop::collection::vec(0..9_u64, 0..6);
    (0..8_usize, hints).prop_map(|(saw, hints)| Plan { saw, hints })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn no_order_of_steps_lets_two_writers_succeed_or_a_reader_see_a_state_that_never_existed(
        (newest, lowest) in (0..8_u64, 1..8_u64),
        plans in prop::collection::vec(any_plan(), 4),
        // Long runs of one process while the others are frozen, and single steps.
        schedule in prop::collection::vec((0..4_usize, prop_oneof![1..4_usize, 1..40_usize]), 1..40),
        kills in prop::collection::vec(0..4_usize, 0..3),
    ) {
        let (world, outcomes) = play(history(newest, lowest), plans, &schedule, &kills);
        prop_assert_eq!(judge(&world, &outcomes), Ok(()));
    }
}
