//! The events that were reported to the user, so that each is reported once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use swarm_core::history::JobMove;
use swarm_core::verdict::WithoutWorker;
use swarm_core::{Decision, Slot};

use crate::pool::ending::{Cause, report_killed};
use crate::pool::failures::Failures;
use crate::pool::outlets::{Outlets, Voice};
use crate::print::text::{Moves, Placed, Settled};
use crate::processes::{Processes, WorkerProcess, Workers};

/// The events that were reported to the user.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// Number of killed jobs and workers.
    pub(super) killed: usize,
    /// Number of ends of each worker.
    deaths: BTreeMap<Slot, u32>,
    pub(super) failures: Failures,
    /// Sentences about programs of jobs, without the names of jobs.
    warned: BTreeSet<String>,
    /// Sentences about processes that cannot be ended.
    held: Vec<String>,
    /// Whether the state directory took no write.
    has_no_room: bool,
    /// The jobs' workers when the pool was last settled, for the report about the changes since.
    settled: Placed,
    /// The moves since then.
    moves: Moves,
}

impl Said {
    /// Begins with a pool that an earlier run left settled.
    pub(super) fn after(settled: Placed) -> Self {
        Self { settled, ..Self::default() }
    }

    /// Forgets the processes, since others follow them.
    pub(super) fn forget_processes(&mut self) {
        self.killed = 0;
        self.deaths.clear();
    }

    /// Reports killed jobs and workers.
    pub(super) fn killed(&mut self, processes: &Processes, outlets: &Outlets, cause: Cause) {
        self.killed = report_killed(processes, outlets, self.killed, cause);
    }

    /// Returns the workers that ended without a request since the last call.
    pub(super) fn died<'a>(&mut self, workers: &'a Workers) -> Vec<(Slot, &'a WorkerProcess)> {
        self.deaths.retain(|slot, _| workers.contains_key(slot));
        let died = workers.iter().filter(|(slot, worker)| {
            let told = self.deaths.insert(**slot, worker.deaths).unwrap_or_default();
            told < worker.deaths
        });
        died.map(|(slot, worker)| (*slot, worker)).collect()
    }

    /// Tells that the state directory takes no write, and that it takes some again.
    pub(super) fn room(&mut self, problem: Option<&str>, voice: &Voice) {
        let had_none = std::mem::replace(&mut self.has_no_room, problem.is_some());
        match problem {
            Some(sentence) if !had_none => voice.complain(sentence),
            None if had_none => voice.say("the workers renew their leases again"),
            Some(_) | None => {}
        }
    }

    /// Reports programs that get other rights, each program once.
    pub(super) fn warned(&mut self, warnings: Vec<String>, voice: &Voice) {
        for warning in warnings {
            let program = warning.split_once(": ").map_or(&*warning, |(_, it)| it).to_owned();
            if self.warned.insert(program) {
                voice.complain(&warning);
            }
        }
    }

    /// Reports processes that newly cannot be ended.
    pub(super) fn held(&mut self, held: &[String], voice: &Voice) {
        let new = held.iter().filter(|sentence| !self.held.contains(sentence));
        new.for_each(|sentence| voice.complain(sentence));
        self.held = held.to_vec();
    }

    /// Tells moves, and counts them.
    pub(super) fn moved(&mut self, moves: &[JobMove], outlets: &Outlets) {
        outlets.moved(moves);
        self.moves.add(moves);
    }

    /// Reports that the pool became settled with this decision.
    pub(super) fn settled(
        &mut self,
        took: Duration,
        decision: &Decision,
        examples: Vec<WithoutWorker>,
        failing: usize,
        outlets: &Outlets,
    ) {
        let now = Placed::of(&decision.ledger);
        outlets.voice.settled(&Settled {
            took,
            before: &self.settled,
            view: &decision.ledger.view(),
            now: &now,
            moves: &std::mem::take(&mut self.moves),
            unassigned: &decision.plan.unassigned,
            examples,
            failing,
        });
        self.settled = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::Phase;

    #[test]
    fn an_end_of_a_worker_is_told_once() {
        let worker = |deaths| WorkerProcess {
            name: "w-0".to_owned(),
            instance: String::new(),
            pid: None,
            phase: Phase::Up,
            deaths,
            last_death: None,
            unstarted: None,
            held: Vec::new(),
        };
        let mut said = Said::default();
        let mut told = |deaths: &[u32]| {
            let workers = (0..).map(Slot).zip(deaths.iter().copied().map(worker)).collect();
            said.died(&workers).into_iter().map(|(slot, _)| slot.0).collect::<Vec<_>>()
        };
        assert_eq!(told(&[0, 0]), [0; 0]);
        assert_eq!(told(&[0, 2]), [1]);
        assert_eq!(told(&[1, 2]), [0]);
        assert_eq!(told(&[1]), [0; 0]);
        // The worker of another slot begins again with its count.
        assert_eq!(told(&[1, 1]), [1]);
        said.forget_processes();
        assert_eq!(said.died(&[(Slot(0), worker(1))].into()).len(), 1);
    }
}
