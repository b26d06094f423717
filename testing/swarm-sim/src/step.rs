//! The steps of a world, and their effects.

mod choices;
mod operator;

use std::sync::Arc;

use swarm_core::JobName;
use swarm_core::handover::{Ack, Holder, Lease, Stopping};
use swarm_core::overseer::{Fact, PodFacts};
use swarm_core::session::SessionEvent;

use crate::bounds::TICK;
use crate::worker::Ask;
use crate::{Fault, Invariant, ProcessState, Worker, World};

/// A step of a world. Sessions and operators are named by number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The next worker starts.
    Open,
    /// A worker ends without a word.
    Crash(usize),
    /// A worker is frozen.
    Pause(usize),
    /// A frozen worker runs again.
    Resume(usize),
    /// A worker is asked to end.
    Terminate(usize),
    /// A worker that has nothing to do renews its lease, and all operators see it, in one step.
    Refresh(usize),
    /// A job that was to stop has ended.
    Join(usize, JobName),
    /// A run-to-completion job has ended well.
    Finish(usize, JobName),
    /// A worker reads a view: for a session, from the state of the ledger at a place in its
    /// history.
    View(usize, usize, usize),
    /// A worker's write reaches the store.
    Apply(usize, usize),
    /// A worker's write is lost on its way.
    Drop(usize, usize),
    /// A worker reads the answer to its latest write.
    Reply(usize),
    /// A worker stops waiting for the answer.
    Lose(usize),
    /// Time passes. The clocks of the workers in the set of bits miss it.
    Tick(u32),
    /// An operator reads a session's lease.
    Observe(usize, usize),
    /// An operator reads a wrong copy of a session's lease.
    ReadCopy(usize, usize, Copied),
    /// A user deletes a session's Lease.
    Delete(usize),
    /// An operator learns that the containers of a worker's pod have terminated.
    LearnEnd(usize, usize),
    /// An operator revokes a silent session, and gets the answer or does not.
    Revoke(usize, usize, Answer),
    /// An operator takes a turn from a place in the history towards a goal: a place for each job.
    /// All waits are over, or none is.
    Turn(usize, usize, Vec<Goal>, Waited),
    /// An operator restarts.
    Restart(usize),
}

/// The fault of a copy of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Copied {
    /// The Lease before the session last changed it.
    Old,
    /// The Lease for another incarnation of the ledger, with as much acknowledged as fits.
    Foreign,
}

/// The place of a job in a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Goal {
    /// Without a session.
    Nowhere,
    /// With this session.
    Session(usize),
    /// In the slot of this session, for any session that comes to fill it.
    Slot(usize),
}

/// The time for which an operator has watched cells and workers. It covers all waits: timeouts of
/// releases, the return of workers, the end of holds and quarantines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Waited {
    /// Not at all.
    Nothing,
    /// Longer than any wait.
    Long,
}

/// The fate of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It arrives.
    Arrives,
    /// It is lost, although the request was carried out.
    IsLost,
}

impl World {
    /// The world after `step`, or `None` if it changes nothing.
    #[must_use]
    pub fn after(&self, step: &Step) -> Option<Self> {
        let mut next = self.clone();
        next.take(step).then_some(next)
    }

    /// Lets `step` happen; returns whether it changed anything.
    pub fn take(&mut self, step: &Step) -> bool {
        match step {
            Step::Open => {
                let id = self.bounds.session(self.workers.len()).clone();
                self.workers.push(Arc::new(Worker::open(id, &self.bounds)));
            }
            Step::Crash(n) => {
                let is_poison = self.bounds.may(Fault::Poison);
                let first = self.workers[*n].running.keys().next().cloned();
                self.worker(*n).culprit = first.filter(|_| is_poison);
                self.worker(*n).die();
            }
            Step::Pause(n) => self.worker(*n).process = ProcessState::Paused,
            Step::Resume(n) => {
                self.worker(*n).process = ProcessState::Up;
                self.feed(*n, SessionEvent::Resumed);
            }
            Step::Terminate(n) => {
                let grace = TICK * (self.bounds.stop + 1);
                self.feed(*n, SessionEvent::Terminate { grace });
            }
            Step::Refresh(n) => return self.refresh(*n),
            Step::Join(n, job) => {
                self.worker(*n).running.remove(job);
                self.worker(*n).stopping.remove(job);
                self.feed(*n, SessionEvent::Joined(job.clone()));
            }
            Step::Finish(n, job) => {
                self.worker(*n).running.remove(job);
                self.feed(*n, SessionEvent::Finished(job.clone()));
            }
            Step::View(n, k, whose) => {
                let view = self.history[*k].view(self.bounds.session(*whose));
                if whose == n {
                    self.worker(*n).seen = view.revision;
                }
                let before = self.workers[*n].session.clone();
                self.feed(*n, SessionEvent::View(view));
                return before != self.workers[*n].session;
            }
            Step::Apply(n, i) => self.apply(*n, *i),
            Step::Drop(n, i) => {
                self.worker(*n).requests.remove(*i);
            }
            Step::Reply(n) => self.reply(*n),
            Step::Lose(n) => {
                if self.bounds.in_flight == 1 {
                    self.worker(*n).requests.clear();
                }
                self.worker(*n).is_waiting = false;
                self.worker(*n).reply = None;
                let number = self.workers[*n].sent;
                self.feed(*n, SessionEvent::Lost { number });
            }
            Step::Tick(slow) => self.tick(*slow),
            Step::Observe(o, n) => {
                let lease = self.leases[*n].clone();
                return self.observe(*o, *n, lease.as_deref());
            }
            Step::ReadCopy(o, n, copied) => {
                let copy = self.copy(*n, *copied);
                return copy.is_some() && self.observe(*o, *n, copy.as_deref());
            }
            Step::Delete(n) => self.leases[*n] = None,
            Step::LearnEnd(o, n) => {
                let pod = PodFacts { has_terminated: true, ..PodFacts::default() };
                let uid = self.bounds.session(*n).pod_uid().to_owned();
                self.learn(*o, Fact::Pod(uid, pod));
            }
            Step::Revoke(o, n, answer) => return self.revoke(*o, *n, *answer),
            Step::Turn(o, base, goal, waited) => return self.turn(*o, *base, goal, *waited),
            Step::Restart(o) => self.operators[*o] = Arc::new(self.bounds.new_operator()),
        }
        true
    }

    pub(crate) fn worker(&mut self, n: usize) -> &mut Worker {
        Arc::make_mut(&mut self.workers[n])
    }

    fn feed(&mut self, n: usize, event: SessionEvent) {
        let bounds = Arc::clone(&self.bounds);
        let asks = self.worker(n).feed(event, &bounds);
        self.answer(n, asks);
    }

    /// Reads from the store itself for a worker.
    fn answer(&mut self, n: usize, asks: Vec<Ask>) {
        for ask in asks {
            let event = match ask {
                Ask::Lease => SessionEvent::LeaseRead(self.leases[n].as_deref().cloned()),
                Ask::Ledger(number) => SessionEvent::LedgerRead {
                    number,
                    incarnation: self.cells().incarnation,
                    revision: self.cells().revision,
                },
            };
            self.feed(n, event);
        }
    }

    fn refresh(&mut self, n: usize) -> bool {
        let is_held = |lease: &Arc<Lease>| lease.holder == Holder::Session;
        if !self.leases[n].as_ref().is_some_and(is_held) || self.workers[n].session.is_over() {
            return false;
        }
        self.worker(n).requests.clear();
        if self.workers[n].is_waiting {
            self.take(&Step::Lose(n));
        }
        // An unanswered write may have landed before. Then the first attempt is refused.
        for _ in 0..2 {
            if !self.workers[n].requests.is_empty() {
                self.apply(n, 0);
                self.reply(n);
            }
        }
        for o in 0..self.operators.len() {
            let lease = self.leases[n].clone();
            self.observe(o, n, lease.as_deref());
        }
        true
    }

    fn apply(&mut self, n: usize, i: usize) {
        let write = self.worker(n).requests.remove(i);
        let version = self.next_version();
        let was_final = self.leases[n].as_ref().is_some_and(|held| held.holder != Holder::Session);
        let result = write.onto(self.leases[n].as_deref(), version);
        let worker = self.worker(n);
        if worker.is_waiting && worker.sent == write.number {
            worker.reply = Some(result.as_ref().map(|lease| lease.version).map_err(|_| ()));
        }
        if let Ok(lease) = result {
            if was_final {
                self.broken = Some(Invariant::EndsAreFinal);
            }
            let before = self.leases[n].replace(Arc::new(lease));
            let has_changed = before.as_ref().map(|it| &it.ack) != self.ack(n);
            if self.bounds.may(Fault::OldLease) && has_changed {
                self.copies[n] = before;
            }
        }
    }

    fn ack(&self, n: usize) -> Option<&Ack> {
        self.leases[n].as_ref().map(|lease| &lease.ack)
    }

    /// A copy of a lease that may be read instead of it.
    fn copy(&self, n: usize, copied: Copied) -> Option<Arc<Lease>> {
        match copied {
            Copied::Old => self.copies[n].clone(),
            Copied::Foreign => {
                let lease = self.leases[n].as_deref()?;
                let incarnation = self.cells().incarnation + 1;
                let stopping = Stopping { reads: u64::MAX, ..Stopping::default() };
                let ack = Ack { incarnation, stopping, ..lease.ack.clone() };
                Some(Arc::new(Lease { ack, ..lease.clone() }))
            }
        }
    }

    fn reply(&mut self, n: usize) {
        let worker = self.worker(n);
        let number = worker.sent;
        worker.is_waiting = false;
        let event = match worker.reply.take() {
            Some(Ok(version)) => SessionEvent::Written { number, version },
            Some(Err(())) => SessionEvent::Conflict { number },
            None => return,
        };
        self.feed(n, event);
    }

    fn tick(&mut self, slow: u32) {
        let bounds = Arc::clone(&self.bounds);
        self.now = self.now.after(TICK);
        for n in 0..self.workers.len() {
            let asks = self.worker(n).tick(slow & (1 << n) != 0, &bounds);
            self.answer(n, asks);
        }
        let terms = bounds.lease_terms();
        for proofs in &mut self.operators {
            Arc::make_mut(proofs).settle(self.now, &terms);
        }
    }
}
