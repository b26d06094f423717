//! A worker of the world: a session of the shipped kind, and what the world does to it.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::time::Duration;

use swarm_core::handover::{Holder, Lease, LeaseVersion, LeaseWrite, Moment, SessionId};
use swarm_core::session::{Session, SessionEffect, SessionEvent};
use swarm_core::{JobName, Token};

use crate::Bounds;
use crate::bounds::TICK;

/// The state of a worker's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProcessState {
    /// It runs.
    Up,
    /// It is frozen, and does not notice.
    Paused,
    /// It has ended, and all its jobs with it.
    Dead,
}

/// A worker, and its messages on their way.
#[derive(Clone, Debug, PartialEq)]
pub struct Worker {
    /// The state of its process.
    pub process: ProcessState,
    /// The machine under test.
    pub session: Session,
    /// The jobs that really run, kept apart from the session's own state.
    pub running: BTreeMap<JobName, Token>,
    /// The running jobs that are being stopped.
    pub stopping: BTreeSet<JobName>,
    /// The worker's own clock.
    pub clock: Moment,
    /// Writes that have not reached the store.
    pub requests: Vec<LeaseWrite>,
    /// The answer to the latest write: the new version, or a conflict.
    pub reply: Option<Result<LeaseVersion, ()>>,
    /// Whether the session waits for an answer.
    pub is_waiting: bool,
    /// The number of its latest write.
    pub sent: u64,
    /// The largest revision of a view that was delivered.
    pub seen: u64,
    /// The number of ticks that its clock missed since it sent the renewal that its deadline counts
    /// from.
    pub slow_since_renewal: u32,
    /// The number of ticks that its clock missed since it sent its latest write.
    pub slow_since_sent: u32,
    /// The job that crashed it, if one did.
    pub culprit: Option<JobName>,
}

/// A question that the world must answer for a worker.
pub(crate) enum Ask {
    Lease,
    /// A read of the ledger, with the number that its answer carries.
    Ledger(u64),
}

impl Worker {
    pub(crate) fn open(id: SessionId, bounds: &Bounds) -> Self {
        // The start is far from zero, so that no subtraction is cut off there.
        let clock = Moment(Duration::from_secs(1_000));
        let (session, effects) = Session::open(id, bounds.lease_terms(), clock);
        let session = bounds.broken.into_iter().fold(session, Session::without);
        let mut worker = Self {
            process: ProcessState::Up,
            session,
            running: BTreeMap::new(),
            stopping: BTreeSet::new(),
            clock,
            requests: Vec::new(),
            reply: None,
            is_waiting: false,
            sent: 0,
            seen: 0,
            slow_since_renewal: 0,
            slow_since_sent: 0,
            culprit: None,
        };
        let _ = worker.carry_out(effects, bounds);
        worker
    }

    /// Lets the session take in an event, and carries out its effects.
    pub(crate) fn feed(&mut self, event: SessionEvent, bounds: &Bounds) -> Vec<Ask> {
        let deadline = self.session.deadline();
        let sent_before = self.slow_since_sent;
        let effects = self.session.step(self.clock, event);
        if deadline < self.session.deadline() {
            self.slow_since_renewal = sent_before;
        }
        self.carry_out(effects, bounds)
    }

    fn carry_out(&mut self, effects: Vec<SessionEffect>, bounds: &Bounds) -> Vec<Ask> {
        let mut asks = Vec::new();
        for effect in effects {
            match effect {
                SessionEffect::Start { job, token } => {
                    self.running.insert(job, token);
                }
                SessionEffect::Stop(job) => {
                    self.stopping.insert(job);
                }
                SessionEffect::Write(write) => self.send(write, bounds),
                SessionEffect::ReadLease => asks.push(Ask::Lease),
                SessionEffect::ReadLedger { number } => asks.push(Ask::Ledger(number)),
                SessionEffect::ReportRollback { .. } | SessionEffect::Over => (),
                SessionEffect::Abort => self.die(),
            }
        }
        if self.session.is_over() && self.running.is_empty() {
            self.die();
        }
        asks
    }

    fn send(&mut self, write: LeaseWrite, bounds: &Bounds) {
        self.sent = write.number;
        self.is_waiting = true;
        self.reply = None;
        self.slow_since_sent = 0;
        if self.requests.len() < bounds.in_flight {
            self.requests.push(write);
        }
    }

    /// Ends the process and every job in it. Messages that it has sent may still arrive.
    pub(crate) fn die(&mut self) {
        self.process = ProcessState::Dead;
        self.running.clear();
        self.stopping.clear();
        self.is_waiting = false;
        self.reply = None;
    }

    /// Whether its clock may miss a tick without running slower than the bounds allow.
    pub(crate) fn may_be_slow(&self, bounds: &Bounds) -> bool {
        let is_void = self.session.deadline() <= self.clock;
        self.process != ProcessState::Dead
            && (is_void || self.slow_since_renewal < bounds.drift)
            && (!self.is_waiting || self.slow_since_sent < bounds.drift)
    }

    pub(crate) fn tick(&mut self, is_slow: bool, bounds: &Bounds) -> Vec<Ask> {
        if is_slow {
            self.slow_since_renewal += 1;
            self.slow_since_sent += 1;
        } else {
            self.clock = self.clock.after(TICK);
        }
        match self.process {
            ProcessState::Up => self.feed(SessionEvent::Tick, bounds),
            ProcessState::Paused | ProcessState::Dead => Vec::new(),
        }
    }

    /// Hashes everything that matters for the next steps.
    pub(crate) fn digest<H: Hasher>(&self, lease: Option<&Lease>, bounds: &Bounds, to: &mut H) {
        (self.process, &self.culprit).hash(to);
        for write in &self.requests {
            let fits = write.expected == lease.map(|lease| lease.version);
            let is_final = lease.is_some_and(|lease| lease.holder != Holder::Session);
            // A write that can never be applied equals no write.
            if fits && !is_final {
                (write.number == self.sent, write.holder, &write.ack).hash(to);
                // Only a first write may create the Lease.
                (write.expected.is_none() && write.number == 1).hash(to);
            } else {
                0_u8.hash(to);
            }
        }
        if self.process == ProcessState::Dead {
            return;
        }
        self.session.digest(self.clock, lease, to);
        (&self.running, &self.stopping, self.is_waiting).hash(to);
        let current = lease.map(|lease| lease.version);
        self.reply.map(|reply| reply.map(|version| Some(version) == current)).hash(to);
        let is_void = self.session.deadline() <= self.clock;
        let slow = if is_void { 0 } else { self.slow_since_renewal.min(bounds.drift) };
        let sent = if self.is_waiting { self.slow_since_sent.min(bounds.drift) } else { 0 };
        (slow, sent).hash(to);
    }
}
