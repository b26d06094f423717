//! Lets small machines of processes live and die, and judges the proofs by the processes themselves.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// The process of the operator.
const OPERATOR: i32 = 0;
const WORKERS: i32 = 3;

/// A process of the modelled machine. Ids are never reused.
#[derive(Clone, Debug)]
struct Process {
    parent: i32,
    /// The worker that it descends from, which a real operator cannot see.
    origin: Option<i32>,
    /// Whether its environment can be read and has the mark.
    is_marked: bool,
    /// Whether it has ended and was not reaped.
    is_zombie: bool,
}

#[derive(Clone, Debug)]
enum Action {
    Fork {
        parent: usize,
        is_marked: bool,
    },
    End {
        process: usize,
    },
    /// The operator learns that a worker has ended.
    Reap {
        worker: i32,
    },
    /// The operator looks, and judges a worker.
    Look {
        worker: i32,
    },
}

#[derive(Debug)]
struct Machine {
    processes: BTreeMap<i32, Process>,
    next: i32,
    ends: Ends,
    proved: BTreeSet<i32>,
}

impl Machine {
    fn new() -> Self {
        let mut machine = Self {
            processes: BTreeMap::new(),
            next: 1,
            ends: Ends::default(),
            proved: BTreeSet::new(),
        };
        for _ in 0..WORKERS {
            let worker = machine.next;
            machine.fork(OPERATOR, Some(worker), true);
            machine.ends.started(&worker.to_string(), started(worker));
        }
        // Another process of the machine, whose orphans come to the operator of a container.
        machine.fork(-1, None, false);
        machine
    }

    fn fork(&mut self, parent: i32, origin: Option<i32>, is_marked: bool) {
        let process = Process { parent, origin, is_marked, is_zombie: false };
        self.processes.insert(self.next, process);
        self.next += 1;
    }

    fn living(&self) -> Vec<i32> {
        let living = self.processes.iter().filter(|(_, it)| !it.is_zombie);
        living.map(|(pid, _)| *pid).collect()
    }

    /// A process ends: its children go to the next subreaper, its worker or the operator.
    fn end(&mut self, pid: i32) {
        let parent_of = |pid: i32| self.processes.get(&pid).map(|it| (it.parent, it.is_zombie));
        let mut reaper = parent_of(pid).map_or(OPERATOR, |(parent, _)| parent);
        while OPERATOR < reaper && (WORKERS < reaper || parent_of(reaper).is_none_or(|it| it.1)) {
            reaper = parent_of(reaper).map_or(OPERATOR, |(parent, _)| parent);
        }
        let reaper = reaper.max(OPERATOR);
        for child in self.processes.values_mut().filter(|child| child.parent == pid) {
            child.parent = reaper;
        }
        self.processes.get_mut(&pid).unwrap().is_zombie = true;
        // Only the operator is modelled as a parent that reaps late.
        if self.processes[&pid].parent != OPERATOR {
            self.processes.remove(&pid);
        }
    }

    fn reap(&mut self, worker: i32) {
        if self.processes.get(&worker).is_some_and(|it| it.is_zombie) {
            self.processes.remove(&worker);
            self.ends.reaped(&worker.to_string());
        }
    }

    fn look(&mut self, worker: i32) {
        let is_orphan = |(pid, it): &(&i32, &Process)| it.parent == OPERATOR && WORKERS < **pid;
        let orphans: Vec<_> =
            self.processes.iter().filter(is_orphan).map(|(pid, _)| *pid).collect();
        let mut look = Look::default();
        for pid in orphans {
            let process = &self.processes[&pid];
            if process.is_zombie {
                self.processes.remove(&pid);
                continue;
            }
            let named = process.origin.filter(|_| process.is_marked).map(|it| it.to_string());
            look.orphans.insert(started(pid), named);
        }
        let has_ended = |it: &i32| self.processes.get(it).is_none_or(|worker| worker.is_zombie);
        look.ended = (1..=WORKERS).filter(has_ended).map(|it| it.to_string()).collect();
        self.ends.see(&look);
        let is_marked = |it: &Process| it.origin == Some(worker) && it.is_marked && !it.is_zombie;
        let is_marked = self.processes.values().any(is_marked);
        if !self.proved.contains(&worker) && self.ends.judge(&worker.to_string(), is_marked) {
            self.proved.insert(worker);
        }
    }

    fn apply(&mut self, action: &Action) {
        let living = self.living();
        match action {
            Action::Fork { parent, is_marked } => {
                let parent = living[parent % living.len()];
                let of = self.processes[&parent].clone();
                // No process regains a mark that its parent does not have.
                self.fork(parent, of.origin, of.is_marked && *is_marked);
            }
            Action::End { process } => {
                let pid = living[process % living.len()];
                if self.processes[&pid].origin.is_some() || WORKERS + 1 < pid {
                    self.end(pid);
                }
            }
            Action::Reap { worker } => self.reap(*worker),
            Action::Look { worker } => self.look(*worker),
        }
    }

    fn lives(&self, worker: i32) -> bool {
        self.processes.values().any(|it| it.origin == Some(worker) && !it.is_zombie)
    }
}

fn started(pid: i32) -> Identity {
    (pid, pid.unsigned_abs().into())
}

fn action() -> impl Strategy<Value = Action> {
    let worker = 1..=WORKERS;
    prop_oneof![
        3 => (any::<usize>(), any::<bool>())
            .prop_map(|(parent, is_marked)| Action::Fork { parent, is_marked }),
        4 => any::<usize>().prop_map(|process| Action::End { process }),
        2 => worker.clone().prop_map(|worker| Action::Reap { worker }),
        3 => worker.prop_map(|worker| Action::Look { worker }),
    ]
}

proptest! {
    #[test]
    fn an_instance_is_proved_to_have_ended_only_when_none_of_its_processes_lives(
        actions in prop::collection::vec(action(), 0..80),
    ) {
        let mut machine = Machine::new();
        for action in &actions {
            machine.apply(action);
            for worker in &machine.proved {
                prop_assert!(!machine.lives(*worker), "{worker} after {action:?}: {machine:?}");
            }
        }
    }

    #[test]
    fn every_end_is_proved_once_nothing_lives(
        actions in prop::collection::vec(action(), 0..80),
    ) {
        let mut machine = Machine::new();
        for action in &actions {
            machine.apply(action);
        }
        for pid in machine.living() {
            machine.end(pid);
        }
        for worker in (1..=WORKERS).flat_map(|worker| [worker; 3]) {
            machine.reap(worker);
            machine.look(worker);
        }
        prop_assert_eq!(machine.proved.len(), 3, "{:?}", machine);
    }
}

fn ended_at_once() -> Ends {
    let mut ends = Ends::default();
    for (instance, pid) in [("a", 1), ("b", 2)] {
        ends.started(instance, started(pid));
        ends.reaped(instance);
    }
    ends
}

#[test]
fn an_orphan_of_two_workers_that_died_between_two_looks_counts_for_both() {
    let mut ends = ended_at_once();
    let look = |orphans: &[(i32, Option<&str>)]| {
        let orphan = |(pid, named): &(i32, Option<&str>)| (started(*pid), named.map(str::to_owned));
        Look { orphans: orphans.iter().map(orphan).collect(), ..Look::default() }
    };
    ends.see(&look(&[(7, None)]));
    for instance in ["a", "b"] {
        assert_eq!(ends.left(instance).collect::<Vec<_>>(), [started(7)]);
        assert!(!ends.judge(instance, false) && !ends.judge(instance, false));
    }
    // One that says whose it is counts for that one.
    ends.see(&look(&[(8, Some("a"))]));
    assert_eq!((ends.left("a").count(), ends.left("b").count()), (1, 0));
    assert!(!ends.judge("b", false) && ends.judge("b", false));
    assert!(!ends.judge("a", false));
}

#[test]
fn an_orphan_that_came_before_any_end_or_is_older_belongs_to_no_worker() {
    let mut ends = Ends::default();
    ends.started("a", started(5));
    let orphans = BTreeMap::from([(started(9), None)]);
    ends.see(&Look { orphans: orphans.clone(), ..Look::default() });
    let orphans = orphans.into_iter().chain([(started(3), None)]).collect();
    ends.see(&Look { orphans, ended: BTreeSet::from(["a".to_owned()]) });
    ends.reaped("a");
    assert_eq!(ends.left("a").count(), 0);
}
