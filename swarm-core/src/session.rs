//! A worker's session as a pure machine: decides which jobs run, and until when.
//!
//! Events go in with the reading of the worker's clock, and effects come out. The driver of the
//! machine carries out the effects and reports back. The clock also counts the time while the
//! machine was suspended (`CLOCK_BOOTTIME`). The rules, each with its name in [`Rule`]:
//!
//! - A session runs only jobs that a view for this very session grants, and only newer views count.
//! - It acknowledges a view after every job that the view releases was stopped and joined. Before
//!   that it may acknowledge the view except for the jobs that it still stops. It lists all of
//!   them.
//! - It may act until one lease duration after it **sent** the last renewal that succeeded. One
//!   stop timeout before that end it stops its jobs, and at the end it aborts the remaining ones.
//!   If a later renewal succeeds, the lease was not revoked, and the session resumes the same
//!   grants.
//! - It closes its lease after everything was joined. A session that is over never comes back.

mod event;
mod pace;
mod part;
mod reconcile;
mod view;

#[cfg(feature = "mutations")]
mod digest;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub use event::{SessionEffect, SessionEvent};
pub use pace::{Pace, Portion};
pub use view::{Details, Granted, JobOutput, WorkerView};

use crate::handover::{
    Ack, Grants, Holder, Lease, LeaseTerms, LeaseVersion, Moment, Rule, Rules, SessionId,
    SessionView,
};
use crate::merge::side_by_side;
use crate::{JobName, Token};

/// A session's knowledge of its predecessor in the same place: a container's state directory, or
/// the same process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Former {
    /// The predecessor, if it is known that nothing of it is left.
    pub session: Option<SessionId>,
    /// The job that is believed to have crashed the predecessor.
    pub culprit: Option<JobName>,
}

/// One instance of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    id: SessionId,
    terms: LeaseTerms,
    rules: Rules,
    phase: Phase,
    /// The incarnation of the ledger that the session serves; taken from the first view.
    incarnation: Option<u64>,
    /// The largest revision of a view that was acted on.
    seen: u64,
    /// The grants of that view.
    granted: Grants,
    /// The jobs that run and are not being stopped.
    runs: BTreeMap<JobName, Token>,
    /// The jobs that are being stopped.
    stopping: BTreeMap<JobName, Token>,
    /// Run-to-completion jobs that ended well under a grant that is still in force.
    finished: BTreeMap<JobName, Token>,
    /// The differences between these four, so that an event of one job need not look at all jobs.
    due: Due,
    /// The largest revision that may be acknowledged.
    acked: u64,
    /// The progress of the latest view, for an acknowledgement before all of it is carried out.
    part: Part,
    lease: LeaseVersion,
    has_lease: bool,
    /// The moment until which it may act; the clock's start if it never could.
    deadline: Moment,
    /// Whether the ledger is known not to have been rolled back since the session could last act.
    is_verified: bool,
    /// The latest write that had landed when the session could not act. A read of the ledger after
    /// that write, or after an earlier one, may be outdated.
    lapsed_after: u64,
    pending: Option<Pending>,
    /// The number of writes that were sent.
    writes: u64,
    /// The number of the latest write that has certainly landed.
    landed: u64,
    /// The acknowledgement in the last write that landed.
    landed_ack: Ack,
    /// Whether the last write got no answer.
    is_retry: bool,
    /// The moment when the next renewal is due.
    renew_at: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Open,
    /// Its jobs are being moved away; the remaining ones are stopped at the given moment.
    Draining(Moment),
    /// Nothing runs and nothing starts any more; the lease is being closed.
    Closing,
    Over,
}

/// The differences between the running jobs and the granted jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Due {
    /// The granted jobs that did not finish, and that neither run nor are being stopped.
    starts: BTreeSet<JobName>,
    /// The jobs that run and are not granted. Empty after every step.
    stops: BTreeSet<JobName>,
    /// Number of jobs that are being stopped and are not granted.
    releases: usize,
}

/// The part of a view that is carried out while other jobs are still being stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Part {
    /// Time since which there may be something to acknowledge in part.
    since: Moment,
    /// Whether writes list the jobs that are still being stopped. They do once a part of the views
    /// since the last fully carried out view is done.
    is_said: bool,
    /// Whether this list alone requires a write, since a part of the latest view is done.
    is_news: bool,
}

/// A write whose answer is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pending {
    number: u64,
    sent: Moment,
    holder: Holder,
    ack: Ack,
}

impl Session {
    /// Opens a session. The first effect creates its lease; no job runs before that write
    /// succeeded.
    ///
    /// ```
    /// use swarm_core::handover::{LeaseTerms, Moment, SessionId};
    /// use swarm_core::session::{Session, SessionEffect};
    ///
    /// let id = SessionId::new("pod", 1);
    /// let (_, effects) = Session::open(id, LeaseTerms::default(), Moment::default());
    /// let [SessionEffect::Write(write)] = &effects[..] else { panic!("{effects:?}") };
    /// assert_eq!(write.expected, None); // its Lease must not exist yet
    /// ```
    #[must_use]
    pub fn open(id: SessionId, terms: LeaseTerms, now: Moment) -> (Self, Vec<SessionEffect>) {
        let mut session = Self {
            id,
            terms,
            rules: Rules::default(),
            phase: Phase::Open,
            incarnation: None,
            seen: 0,
            granted: Grants::default(),
            runs: BTreeMap::new(),
            stopping: BTreeMap::new(),
            finished: BTreeMap::new(),
            due: Due::default(),
            acked: 0,
            part: Part::default(),
            lease: LeaseVersion(0),
            has_lease: false,
            deadline: Moment::default(),
            is_verified: true,
            lapsed_after: 0,
            pending: None,
            writes: 0,
            landed: 0,
            landed_ack: Ack::default(),
            is_retry: false,
            renew_at: now,
        };
        let mut effects = Vec::new();
        session.reconcile(now, &mut effects);
        (session, effects)
    }

    /// Breaks one rule of the session, for a model check to notice.
    #[cfg(feature = "mutations")]
    #[must_use]
    pub fn without(self, rule: Rule) -> Self {
        Self { rules: Rules::without(rule), ..self }
    }

    /// Returns its identity.
    ///
    /// ```
    /// use swarm_core::handover::{LeaseTerms, Moment, SessionId};
    /// use swarm_core::session::Session;
    ///
    /// let id = SessionId::new("pod", 1);
    /// let (session, _) = Session::open(id.clone(), LeaseTerms::default(), Moment::default());
    /// assert_eq!(session.id(), &id);
    /// ```
    #[must_use]
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Returns the jobs that run or are being stopped, with their tokens. A token has a use only
    /// for a sink that refuses lower ones.
    ///
    /// ```
    /// use swarm_core::handover::{LeaseTerms, Moment, SessionId};
    /// use swarm_core::session::Session;
    ///
    /// let id = SessionId::new("pod", 1);
    /// let (session, _) = Session::open(id, LeaseTerms::default(), Moment::default());
    /// assert_eq!(session.running().count(), 0); // it has no grant yet
    /// ```
    pub fn running(&self) -> impl Iterator<Item = (&JobName, Token)> {
        let both = side_by_side(&self.runs, &self.stopping);
        both.filter_map(|(job, runs, stops)| Some((job, *runs.or(stops)?)))
    }

    /// Returns whether a job may still act under `token` at `now`. A long loop asks this
    /// repeatedly.
    ///
    /// ```
    /// use std::time::Duration;
    /// use swarm_core::handover::{LeaseTerms, LeaseVersion, Moment, SessionId, SessionView};
    /// use swarm_core::session::{Session, SessionEvent};
    /// use swarm_core::{JobName, Token};
    ///
    /// let (id, now) = (SessionId::new("pod", 1), Moment(Duration::from_secs(1)));
    /// let (mut session, _) = Session::open(id.clone(), LeaseTerms::default(), now);
    /// let (job, token): (JobName, _) = ("camera".parse()?, Token(7));
    /// let jobs = [(job.clone(), token)].into();
    /// let view = SessionView { session: id, incarnation: 1, revision: 1, jobs };
    /// let written = SessionEvent::Written { number: 1, version: LeaseVersion(1) };
    /// session.step_all(now, [written, SessionEvent::View(view)]);
    /// assert!(session.permits(now, &job, token));
    /// assert!(!session.permits(now, &job, Token(6)), "a former grant");
    /// assert!(!session.permits(session.deadline(), &job, token));
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    #[must_use]
    pub fn permits(&self, now: Moment, job: &JobName, token: Token) -> bool {
        now < self.deadline && self.runs.get(job) == Some(&token)
    }

    /// Returns whether it is over. Then the process ends, or opens another session.
    ///
    /// ```
    /// use swarm_core::handover::{LeaseTerms, LeaseVersion, Moment, SessionId};
    /// use swarm_core::session::{Session, SessionEvent};
    ///
    /// let (id, version) = (SessionId::new("pod", 1), LeaseVersion(1));
    /// let (mut session, _) = Session::open(id, LeaseTerms::default(), Moment::default());
    /// assert!(!session.is_over());
    /// session.step(Moment::default(), SessionEvent::Written { number: 1, version });
    /// session.step(Moment::default(), SessionEvent::LeaseRead(None));
    /// assert!(session.is_over(), "its Lease was deleted");
    /// ```
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Returns whether it was asked to end, or has to. It receives no further jobs, but runs its
    /// granted jobs until they are moved away or its time is over.
    ///
    /// ```
    /// use std::time::Duration;
    /// use swarm_core::handover::{LeaseTerms, Moment, SessionId};
    /// use swarm_core::session::{Session, SessionEvent};
    ///
    /// let id = SessionId::new("pod", 1);
    /// let (mut session, _) = Session::open(id, LeaseTerms::default(), Moment::default());
    /// session.step(Moment::default(), SessionEvent::Terminate { grace: Duration::from_secs(30) });
    /// assert!(session.is_ending() && !session.is_over());
    /// ```
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.phase != Phase::Open
    }

    /// Returns when time alone next changes something. The driver sends a [`SessionEvent::Tick`]
    /// then at the latest. A separate guard thread, which depends on nothing else, ends the process
    /// at [`deadline`](Self::deadline) if it still runs jobs.
    ///
    /// ```
    /// use swarm_core::handover::{LeaseTerms, LeaseVersion, Moment, SessionId};
    /// use swarm_core::session::{Session, SessionEvent};
    ///
    /// let id = SessionId::new("pod", 1);
    /// let (mut session, _) = Session::open(id, LeaseTerms::default(), Moment::default());
    /// let written = SessionEvent::Written { number: 1, version: LeaseVersion(1) };
    /// session.step(Moment::default(), written);
    /// assert_eq!(session.wakes_at(), Some(Moment(LeaseTerms::default().renew)));
    /// ```
    #[must_use]
    pub fn wakes_at(&self) -> Option<Moment> {
        let renewal = self.pending.is_none().then_some(self.renew_at);
        let drain = match self.phase {
            Phase::Draining(stop_at) => Some(stop_at),
            Phase::Open | Phase::Closing => None,
            Phase::Over => return None,
        };
        // A job that is already being stopped is not stopped again.
        let (goes_on, is_idle) = (!self.runs.is_empty(), self.is_idle());
        let drain = drain.filter(|_| goes_on || is_idle);
        let suspension = goes_on.then(|| self.suspends_at());
        let end = (!is_idle).then_some(self.deadline);
        let may_write = self.has_lease && self.pending.is_none();
        let part = may_write.then(|| self.part_write_at()).flatten();
        [renewal, drain, suspension, end, part].into_iter().flatten().min()
    }

    /// Returns the moment until which it may act.
    ///
    /// ```
    /// use swarm_core::handover::{LeaseTerms, LeaseVersion, Moment, SessionId};
    /// use swarm_core::session::{Session, SessionEvent};
    ///
    /// let (id, terms) = (SessionId::new("pod", 1), LeaseTerms::default());
    /// let (mut session, _) = Session::open(id, terms, Moment::default());
    /// let answered = Moment(terms.renew);
    /// session.step(answered, SessionEvent::Written { number: 1, version: LeaseVersion(1) });
    /// assert_eq!(session.deadline(), Moment(terms.duration)); // counted from the moment of sending
    /// ```
    #[must_use]
    pub fn deadline(&self) -> Moment {
        self.deadline
    }

    /// Processes an event at `now`, and returns the effects in order. A view costs O(jobs · log
    /// jobs). Any other event costs O(log jobs) for each job that it concerns, as does each effect.
    /// An acknowledgement lists all jobs that have finished.
    ///
    /// ```
    /// use std::time::Duration;
    /// use swarm_core::Token;
    /// use swarm_core::handover::{LeaseTerms, LeaseVersion, Moment, SessionId, SessionView};
    /// use swarm_core::session::{Session, SessionEffect, SessionEvent};
    ///
    /// let (session, now) = (SessionId::new("pod", 1), Moment(Duration::from_secs(1)));
    /// let (mut machine, _) = Session::open(session.clone(), LeaseTerms::default(), now);
    /// machine.step(now, SessionEvent::Written { number: 1, version: LeaseVersion(1) });
    /// let jobs = [("camera".parse()?, Token(7))].into();
    /// let view = SessionView { session, incarnation: 1, revision: 1, jobs };
    /// let effects = machine.step(now, SessionEvent::View(view));
    /// let start = SessionEffect::Start { job: "camera".parse()?, token: Token(7) };
    /// assert_eq!(effects[0], start);
    /// assert!(matches!(&effects[1], SessionEffect::Write(write) if write.ack.revision == 1));
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    pub fn step(&mut self, now: Moment, event: SessionEvent) -> Vec<SessionEffect> {
        self.step_all(now, [event])
    }

    /// Processes all events up to `now` in order, and returns the effects. Several events may share
    /// one write, where separate steps might need several.
    ///
    /// ```
    /// use swarm_core::handover::{LeaseTerms, LeaseVersion, Moment, SessionId};
    /// use swarm_core::session::{Session, SessionEvent};
    ///
    /// let (id, now, version) = (SessionId::new("pod", 1), Moment::default(), LeaseVersion(1));
    /// let (mut session, _) = Session::open(id, LeaseTerms::default(), now);
    /// let written = SessionEvent::Written { number: 1, version };
    /// let _ = session.step_all(now, [written, SessionEvent::LeaseRead(None)]);
    /// ```
    pub fn step_all(
        &mut self,
        now: Moment,
        events: impl IntoIterator<Item = SessionEvent>,
    ) -> Vec<SessionEffect> {
        let mut effects = Vec::new();
        let mut has_news = false;
        for event in events {
            if self.is_over() {
                return effects;
            }
            if event == SessionEvent::Resumed && !self.rules.keep(Rule::CheckOnResume) {
                continue;
            }
            if self.deadline <= now && !self.is_idle() {
                self.abort(&mut effects);
                return effects;
            }
            self.take_in(now, event, &mut effects);
            has_news = true;
        }
        if has_news {
            self.reconcile(now, &mut effects);
        }
        effects
    }

    fn take_in(&mut self, now: Moment, event: SessionEvent, effects: &mut Vec<SessionEffect>) {
        match event {
            SessionEvent::Tick | SessionEvent::Resumed => (),
            SessionEvent::View(view) => self.see(now, view, effects),
            SessionEvent::Written { number, version } => {
                self.written(now, number, version, effects);
            }
            SessionEvent::Conflict { number } => {
                effects.extend(self.is_pending(number).then_some(SessionEffect::ReadLease));
            }
            SessionEvent::LeaseRead(lease) => self.lease_read(now, lease, effects),
            SessionEvent::Lost { number } => {
                if self.is_pending(number) {
                    self.give_up(now);
                }
            }
            // A read of the ledger before the session last lost its right to act says nothing about
            // the time after it.
            SessionEvent::LedgerRead { number, .. } if number <= self.lapsed_after => (),
            SessionEvent::LedgerRead { incarnation, revision, .. } => {
                self.ledger_read(now, incarnation, revision, effects);
            }
            SessionEvent::Joined(job) => {
                self.ended(&job);
                self.await_start(job);
            }
            SessionEvent::Finished(job) => {
                if let Some(token) = self.ended(&job) {
                    self.finished.insert(job.clone(), token);
                }
                self.await_start(job);
            }
            SessionEvent::Terminate { grace } => {
                let stop_at = now.after(grace).before(self.terms.stop_timeout);
                self.drain(stop_at);
            }
        }
    }

    fn see(&mut self, now: Moment, view: SessionView, effects: &mut Vec<SessionEffect>) {
        let rules = self.rules;
        let is_mine = view.session == self.id || !rules.keep(Rule::SessionIdentity);
        let incarnation = self.incarnation.unwrap_or(view.incarnation);
        if !is_mine || view.incarnation < incarnation {
            return;
        }
        if incarnation < view.incarnation {
            // The ledger was rebuilt and does not contain our grants.
            self.roll_back(now, effects);
            return;
        }
        if view.revision <= self.seen && rules.keep(Rule::NewerViewsOnly) {
            return;
        }
        let left = self.part_left();
        self.incarnation = Some(incarnation);
        self.seen = view.revision;
        let before = std::mem::replace(&mut self.granted, view.jobs);
        let granted = &self.granted;
        self.finished.retain(|job, token| granted.get(job) == Some(token));
        self.due = self.differences();
        self.begin_part(now, &before, left);
    }

    fn is_pending(&self, number: u64) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.number == number)
    }

    fn written(
        &mut self,
        now: Moment,
        number: u64,
        version: LeaseVersion,
        effects: &mut Vec<SessionEffect>,
    ) {
        let Some(pending) = self.pending.take_if(|pending| pending.number == number) else {
            return;
        };
        self.write_landed(now, number, version);
        if pending.holder != Holder::Session {
            self.phase = Phase::Over;
            effects.push(SessionEffect::Over);
            return;
        }
        let counts_from =
            if self.rules.keep(Rule::DeadlineFromSending) { pending.sent } else { now };
        self.deadline = self.deadline.max(counts_from.after(self.terms.duration));
        self.landed_ack = pending.ack;
        if !self.is_verified {
            effects.push(SessionEffect::ReadLedger { number });
        }
    }

    /// Records that the lease contains our write `number`. A lease that was created by a later
    /// write than the first may have been created twice. An earlier lease may have been granted
    /// jobs, then been revoked, fenced and deleted, and its jobs may belong to others now. So this
    /// session ends unused, and the next one has a fresh name.
    fn write_landed(&mut self, now: Moment, number: u64, version: LeaseVersion) {
        if !self.has_lease && number != 1 {
            self.drain(now);
        }
        self.lease = version;
        self.landed = number;
        self.has_lease = true;
    }

    /// Processes a read of the lease after a refused write.
    fn lease_read(&mut self, now: Moment, lease: Option<Lease>, effects: &mut Vec<SessionEffect>) {
        match lease {
            Some(lease) if lease.holder == Holder::Session => {
                if lease.number < self.landed {
                    // A landed write is missing: the store was rolled back, and the ledger with it.
                    self.roll_back(now, effects);
                }
                if self.is_pending(lease.number) {
                    self.written(now, lease.number, lease.version, effects);
                } else {
                    // An earlier write of ours landed late. Its time of sending is forgotten, so it
                    // prolongs nothing. The next write is sent with the right version.
                    self.pending = None;
                    self.write_landed(now, lease.number, lease.version);
                }
            }
            Some(lease) if lease.holder == Holder::Closed && self.phase == Phase::Closing => {
                self.phase = Phase::Over;
                effects.push(SessionEffect::Over);
            }
            // A lease that was never created is not over: the read may be older than the write.
            None if !self.has_lease => self.give_up(now),
            Some(_) | None => self.abort(effects),
        }
    }

    /// Stops waiting for an answer, and schedules another attempt a little later.
    fn give_up(&mut self, now: Moment) {
        self.pending = None;
        self.is_retry = true;
        self.renew_at = now.after(self.terms.renew / 4);
    }

    fn ledger_read(
        &mut self,
        now: Moment,
        incarnation: u64,
        revision: u64,
        effects: &mut Vec<SessionEffect>,
    ) {
        let before = (self.incarnation.unwrap_or(incarnation), self.seen);
        if before.0 == incarnation && before.1 <= revision {
            self.is_verified = true;
        } else {
            self.roll_back(now, effects);
        }
    }

    fn roll_back(&mut self, now: Moment, effects: &mut Vec<SessionEffect>) {
        effects.push(SessionEffect::ReportRollback { seen: self.seen });
        self.drain(now);
    }

    fn drain(&mut self, stop_at: Moment) {
        self.phase = match self.phase {
            Phase::Open => Phase::Draining(stop_at),
            Phase::Draining(earlier) => Phase::Draining(earlier.min(stop_at)),
            Phase::Closing => Phase::Closing,
            Phase::Over => Phase::Over,
        };
    }

    /// Ends at once, and aborts all remaining jobs.
    fn abort(&mut self, effects: &mut Vec<SessionEffect>) {
        self.phase = Phase::Over;
        self.runs.clear();
        self.stopping.clear();
        effects.push(SessionEffect::Abort);
    }

    /// Returns the moment from which on jobs are stopped if no renewal succeeds.
    fn suspends_at(&self) -> Moment {
        self.deadline.before(self.terms.stop_timeout)
    }
}
