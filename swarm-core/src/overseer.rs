//! The overseer of one pool: turns facts into evidence, revocations and the inputs of a turn.
//!
//! The overseer decides which fact is a proof, when a session is silent, and when the session is
//! revoked and fenced. It also decides which session of a pod is the live one, and which views must
//! be published. Adapters translate facts and carry out effects, and judge nothing. There is one
//! overseer per pool and process. Nothing of it is stored: an overseer that restarts waits longer,
//! never shorter.
//!
//! This module knows no clocks (a [`Moment`] is an argument), no stores, and no Kubernetes.
//!
//! ```
//! use std::time::Duration;
//! use swarm_core::Ledger;
//! use swarm_core::handover::*;
//! use swarm_core::overseer::*;
//! use swarm_core::session::Former;
//!
//! let at = |secs| Moment(Duration::from_secs(secs));
//! let mut overseer = Overseer::new(LeaseTerms::default());
//! overseer.note(at(0), &Ledger::new(1));
//!
//! // A session renews its Lease once, and then no more.
//! let session = SessionId::new("pod", 1);
//! let (version, ack) = (LeaseVersion(1), Ack::default());
//! let lease = Lease { version, holder: Holder::Session, number: 1, ack };
//! let (duration, began) = (Duration::from_secs(20), Began::default());
//! let (former, has_renewed, pause) = (Former::default(), true, Duration::ZERO);
//! let facts = LeaseFacts { lease, duration, began, former, has_renewed, pause };
//! overseer.learn(at(0), Fact::Lease(session.clone(), facts));
//! assert_eq!(overseer.wakes_at(), Some(at(20)));
//!
//! // It is silent, so its Lease is to be revoked, at the version that was seen.
//! let due = overseer.due(at(20), 1, |_| true);
//! assert_eq!(due, [Effect::Revoke(session.clone(), version)]);
//! overseer.learn(at(20), Fact::Revocation(session.clone(), version, Answer::Written));
//! assert!(overseer.due(at(22), 1, |_| true).is_empty());
//! let ended = WatchStage::Ended(Proof::Fenced);
//! assert_eq!(overseer.proofs().get(&session).map(|watch| watch.stage), Some(ended));
//! ```

mod facts;
mod proofs;
mod publications;
mod queries;
mod unsteady;
mod workers;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub use facts::{
    Answer, Began, Containers, Effect, Fact, LeaseFacts, PodFacts, PoolFacts, Protocol, ViewMark,
    WorkerFacts,
};
pub use proofs::{Known, Proofs, Suspicion};
pub use publications::{Publication, ViewMarks, publications};

use crate::handover::{
    Ages, Brake, CLAIM_MAX, Cell, Evidence, Health, LeaseTerms, Moment, Policy, Proof, SessionId,
};
use crate::{JobName, Jobs, Ledger, Observed, Position, Slot, Token};

/// The knowledge of one process about one pool.
///
/// A turn learns facts, observes, decides, saves the ledger, notes it, publishes, and learns the
/// published views:
///
/// ```
/// use std::time::Duration;
/// use swarm_core::handover::*;
/// use swarm_core::overseer::*;
/// use swarm_core::session::{Details, Former};
/// use swarm_core::{Desired, Ledger, Presence, Slot, decide, jobs};
///
/// let at = |secs| Moment(Duration::from_secs(secs));
/// let session = SessionId::new("pod", 1);
/// let lease = |number, revision| {
///     let (version, ack) = (LeaseVersion(number), Ack { incarnation: 1, revision, ..Ack::default() });
///     let lease = Lease { version, holder: Holder::Session, number, ack };
///     let (duration, began) = (LeaseTerms::default().duration, Began::default());
///     let (former, has_renewed, pause) = (Former::default(), true, Duration::ZERO);
///     let facts = LeaseFacts { lease, duration, began, former, has_renewed, pause };
///     Fact::Lease(session.clone(), facts)
/// };
/// let (name, pod) = ("w-0".to_owned(), Some("pod".to_owned()));
/// let presence = Presence::Ready;
/// let worker = WorkerFacts { name, presence, pod, is_wanted: true, is_replaced: false };
/// let pool = PoolFacts::new([(Slot(0), worker)], 1_790_000_000_000_000);
/// let mut desired = Desired::new(jobs(["a", "b"])?);
/// desired.policy = Policy::Exclusive;
///
/// let (mut overseer, stored) = (Overseer::new(LeaseTerms::default()), Ledger::new(1));
/// overseer.note(at(0), &stored);
/// overseer.learn(at(0), lease(1, 0));
/// let observed = overseer.observed(at(0), desired.policy, pool);
/// let decision = decide(&stored, &desired, &observed);
/// // Here its ledger is saved. Nothing is published before.
/// overseer.note(at(0), &decision.ledger);
/// for publication in overseer.publications(&decision.ledger, &Details::default(), 1) {
///     overseer.learn(at(0), Fact::View(publication.view.session, Some(publication.mark)));
/// }
/// assert_eq!(overseer.stale(&decision.ledger), ["w-0"]);
/// assert!(!overseer.progress(&decision, &desired, &observed).is_settled());
///
/// // The worker has read its view.
/// overseer.learn(at(1), lease(2, decision.ledger.revision()));
/// assert!(overseer.progress(&decision, &desired, &observed).is_settled());
/// assert!(overseer.publications(&decision.ledger, &Details::default(), 1).is_empty());
/// # Ok::<(), swarm_core::JobsError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overseer {
    proofs: Proofs,
    terms: LeaseTerms,
    /// The longest lease duration that the Swarm ever asked for, according to this process and the
    /// ledger. Older sessions may still use it.
    longest: Duration,
    brake: Brake,
    /// The silent sessions that the last [`due`](Self::due) held back.
    held: Held,
    ages: Ages,
    noted: Option<Noted>,
    /// The furthest position at which this process ever saw the ledger.
    furthest: Option<Position>,
    /// Whether no turn observed the pool since the ledger's incarnation was first noted.
    is_fresh: bool,
    /// The moment since when the pod of a session has been missing.
    gone: BTreeMap<SessionId, Moment>,
    /// The moment when a watch or request of this process last failed.
    failed: Option<Moment>,
    /// The sessions that report jobs as finished which they cannot have finished: since when, and
    /// the number of these jobs.
    false_finishes: BTreeMap<SessionId, (Moment, usize)>,
    /// The sessions that renew and acknowledge a revision that the ledger never had, each with the
    /// moment of the first such claim.
    unpublished: BTreeMap<SessionId, Moment>,
    /// The sessions that grants wait for.
    awaited: Awaited,
    /// The lives of the workers.
    lives: unsteady::Lives,
}

/// The sessions that may act on grants that the store lost before this process observed them. A
/// renewal of such a session shows on which grants it acts, or its worker notices the rollback.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Awaited {
    /// The pool was not observed since the start, or since the last rollback.
    #[default]
    Unknown,
    /// The sessions of the first observation that have neither renewed nor ended since.
    Since(Moment, BTreeSet<SessionId>),
}

/// The silent sessions that [`Overseer::due`] did not revoke when it was last called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Held {
    /// The moment of that call.
    at: Moment,
    sessions: BTreeSet<SessionId>,
    /// The moment when the brake lets some of them through.
    brake_opens_at: Option<Moment>,
    /// The moment when to look again for the missing Leases of some of them.
    look_up_at: Option<Moment>,
}

/// The content of the ledger that was noted last.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Noted {
    position: Position,
    /// The sessions that it names.
    named: BTreeSet<SessionId>,
    is_current: bool,
}

impl Overseer {
    /// Creates an overseer of a pool whose sessions use `terms`.
    ///
    /// ```
    /// use swarm_core::handover::LeaseTerms;
    /// use swarm_core::overseer::Overseer;
    ///
    /// let overseer = Overseer::new(LeaseTerms::default());
    /// assert!(!overseer.has_ledger()); // it knows nothing yet
    /// assert_eq!(overseer.proofs().iter().count(), 0);
    /// ```
    #[must_use]
    pub fn new(terms: LeaseTerms) -> Self {
        let mut overseer = Self::default();
        overseer.set_terms(terms);
        overseer
    }

    /// Sets the terms that the Swarm asks for now. The grace of a session that claims a longer
    /// Lease still follows from its own claim. If the whole pool waits for sessions of another
    /// incarnation, the grace follows from the longest terms that were ever asked for.
    ///
    /// ```
    /// use std::time::Duration;
    /// use swarm_core::handover::*;
    /// use swarm_core::overseer::*;
    ///
    /// let (start, terms) = (Moment::default(), LeaseTerms::default());
    /// let mut overseer = Overseer::new(terms);
    /// let facts = LeaseFacts::held(1, terms.duration);
    /// overseer.learn(start, Fact::Lease(SessionId::new("pod", 1), facts));
    /// let shorter = LeaseTerms { duration: Duration::from_secs(17), ..terms };
    /// overseer.set_terms(shorter);
    /// assert_eq!(overseer.terms(), &shorter);
    /// assert_eq!(overseer.wakes_at(), Some(start.after(terms.duration))); // as the session claims
    /// ```
    pub fn set_terms(&mut self, terms: LeaseTerms) {
        self.terms = terms;
        self.longest = self.longest.max(terms.duration);
    }

    /// Returns the terms that an unknown session may use.
    fn longest_terms(&self) -> LeaseTerms {
        LeaseTerms { duration: self.longest.max(self.terms.duration), ..self.terms }
    }

    /// Returns the terms that the Swarm asks for.
    #[must_use]
    pub fn terms(&self) -> &LeaseTerms {
        &self.terms
    }

    /// Returns the proofs about all sessions.
    ///
    /// ```
    /// use swarm_core::handover::*;
    /// use swarm_core::overseer::*;
    ///
    /// let (session, mut overseer) = (SessionId::new("pod", 1), Overseer::new(LeaseTerms::default()));
    /// overseer.learn(Moment::default(), Fact::LeaseMissing(session.clone()));
    /// assert!(!overseer.proofs().get(&session).is_some_and(Watch::may_renew));
    /// ```
    #[must_use]
    pub fn proofs(&self) -> &Proofs {
        &self.proofs
    }

    /// Processes a fact that was learned at `now`.
    ///
    /// ```
    /// use swarm_core::handover::*;
    /// use swarm_core::overseer::*;
    ///
    /// let (session, terms) = (SessionId::new("pod", 1), LeaseTerms::default());
    /// let mut overseer = Overseer::new(terms);
    /// let facts = LeaseFacts::held(1, terms.duration);
    /// overseer.learn(Moment::default(), Fact::Lease(session.clone(), facts));
    /// assert_eq!(overseer.living("pod"), Some(&session));
    /// ```
    pub fn learn(&mut self, now: Moment, fact: Fact) {
        match fact {
            Fact::StoreFailed => self.failed = self.failed.max(Some(now)),
            Fact::StoreRolledBack => {
                self.went_back(now);
                self.is_fresh = true;
            }
            fact => self.proofs.learn(now, fact, &self.longest_terms()),
        }
    }

    /// Notes that the store was rolled back, or may have been. Earlier statements of the store
    /// prove no end, and sessions may act on grants that the store lost.
    fn went_back(&mut self, now: Moment) {
        self.proofs.doubt_stored_ends(now);
        self.awaited = Awaited::Unknown;
    }

    /// Notes the ledger, which was loaded or saved just now.
    ///
    /// ```
    /// use swarm_core::handover::{LeaseTerms, Moment, SessionId};
    /// use swarm_core::overseer::Overseer;
    /// use swarm_core::{Assignment, Ledger, Pool};
    ///
    /// let mut overseer = Overseer::new(LeaseTerms::default());
    /// let ledger = Ledger::new(0).next(&Assignment::default(), &Pool::ready(1));
    /// overseer.note(Moment::default(), &ledger);
    /// assert_eq!(overseer.named().collect::<Vec<_>>(), [&SessionId::plain("worker-0")]);
    /// ```
    pub fn note(&mut self, now: Moment, ledger: &Ledger) {
        self.ages.see(now, &ledger.cells);
        let position = ledger.position();
        let before = self.noted.as_ref().map(|noted| noted.position);
        // Until a ledger is stored, every turn begins with a fresh one, whose incarnation is the
        // time.
        let is_still_unwritten = |before: Position| before.revision == 0 && position.revision == 0;
        let is_another = before.is_some_and(|before| {
            before.incarnation != position.incarnation && !is_still_unwritten(before)
        });
        let is_behind = self.furthest.is_some_and(|furthest| position < furthest);
        if is_another || is_behind && before != Some(position) {
            self.went_back(now);
        }
        if before.is_none_or(|before| before.incarnation != position.incarnation) {
            self.is_fresh = true;
            if before.is_some_and(|before| before < position) {
                self.proofs.began_incarnation(before);
            }
        }
        let named = ledger.sessions().into_keys().cloned().collect();
        self.noted = Some(Noted { position, named, is_current: true });
        // No session is waited for longer than the longest claim, even if the ledger was edited.
        self.longest = self.longest.max(ledger.longest_lease.min(CLAIM_MAX));
        // A ledger that was rolled back is read like any other. A ledger without any write carries
        // no information, independently of its incarnation.
        let written = Some(position).filter(|position| 0 < position.revision);
        self.furthest = self.furthest.max(written);
    }

    /// Marks the ledger as possibly changed by another writer since it was noted.
    ///
    /// ```
    /// use swarm_core::Ledger;
    /// use swarm_core::handover::{LeaseTerms, Moment};
    /// use swarm_core::overseer::Overseer;
    ///
    /// let mut overseer = Overseer::new(LeaseTerms::default());
    /// overseer.note(Moment::default(), &Ledger::new(1));
    /// assert!(overseer.has_ledger());
    /// overseer.forget_ledger(); // a write of it had no answer
    /// assert!(!overseer.has_ledger());
    /// ```
    pub fn forget_ledger(&mut self) {
        if let Some(noted) = &mut self.noted {
            noted.is_current = false;
        }
    }

    /// Returns whether the ledger that was noted last may still be used.
    #[must_use]
    pub fn has_ledger(&self) -> bool {
        self.noted.as_ref().is_some_and(|noted| noted.is_current)
    }

    /// Returns the sessions that the ledger names.
    pub fn named(&self) -> impl Iterator<Item = &SessionId> {
        self.noted.iter().flat_map(|noted| &noted.named)
    }

    /// Returns the sessions that have ended and that `ledger` does not name. Their objects in the
    /// store are garbage. O(sessions · log slots).
    ///
    /// ```
    /// use swarm_core::Ledger;
    /// use swarm_core::handover::*;
    /// use swarm_core::overseer::*;
    ///
    /// let (session, mut overseer) = (SessionId::new("pod", 1), Overseer::new(LeaseTerms::default()));
    /// let mut facts = LeaseFacts::held(1, LeaseTerms::default().duration);
    /// facts.lease.holder = Holder::Closed;
    /// overseer.learn(Moment::default(), Fact::Lease(session.clone(), facts));
    /// assert_eq!(overseer.garbage(&Ledger::new(1)), [session].into());
    /// ```
    #[must_use]
    pub fn garbage(&self, ledger: &Ledger) -> BTreeSet<SessionId> {
        let named = ledger.sessions();
        let ended = self.proofs.iter().filter(|(_, watch)| watch.has_ended());
        ended.map(|(session, _)| session).filter(|it| !named.contains_key(it)).cloned().collect()
    }

    /// Forgets the sessions that the ledger does not name and for which the store shows neither a
    /// Lease nor a view.
    ///
    /// ```
    /// use swarm_core::handover::*;
    /// use swarm_core::overseer::*;
    ///
    /// let (session, mut overseer) = (SessionId::new("pod", 1), Overseer::new(LeaseTerms::default()));
    /// overseer.learn(Moment::default(), Fact::LeaseMissing(session.clone()));
    /// overseer.forget(|_| true); // its view is still in the store
    /// assert!(overseer.proofs().get(&session).is_some());
    /// overseer.forget(|_| false);
    /// assert!(overseer.proofs().get(&session).is_none());
    /// ```
    pub fn forget(&mut self, is_shown: impl Fn(&SessionId) -> bool) {
        let named = self.noted.as_ref().map(|noted| &noted.named);
        let is_named = |session: &SessionId| named.is_some_and(|it| it.contains(session));
        let pods: BTreeSet<_> = named.into_iter().flatten().map(SessionId::pod_uid).collect();
        self.proofs.retain(|it| is_named(it) || is_shown(it), |uid| pods.contains(uid));
    }

    /// Returns the effects that are due at `now`: Leases to look up, and Leases to revoke, each at
    /// one version only. `is_shown` says whether a copy of the store shows the Lease of a session.
    ///
    /// A few silent sessions are revoked at once, and many only as the [brake](Brake) allows. Some
    /// sessions are revoked although they renew, so that their jobs do not wait for them:
    ///
    /// - A session that acts on another incarnation of the ledger should close once its view is of
    ///   the present incarnation. If it does not close, it is revoked.
    /// - A session that acknowledges a revision which the ledger never had is revoked after one
    ///   lease duration. Its view was edited, so the next view seems older to it.
    ///
    /// ```
    /// use swarm_core::handover::*;
    /// use swarm_core::overseer::*;
    ///
    /// let (session, mut overseer) = (SessionId::new("pod", 1), Overseer::new(LeaseTerms::default()));
    /// overseer.learn(Moment::default(), Fact::View(session.clone(), None));
    /// // There is a view for a session, and no Lease is shown.
    /// let due = overseer.due(Moment::default(), 1, |_| false);
    /// assert_eq!(due, [Effect::LookUp(session)]);
    /// ```
    pub fn due(
        &mut self,
        now: Moment,
        unix_time_us: u64,
        is_shown: impl Fn(&SessionId) -> bool,
    ) -> Vec<Effect> {
        self.proofs.settle(now, &self.longest_terms());
        if self.is_fresh || self.noted.is_none() {
            self.proofs.all_are_elders();
        }
        let is_unseen = |session: &&SessionId| {
            !session.is_plain() && !is_shown(session) && self.proofs.is_open(session) != Some(false)
        };
        let expected = self.named().chain(self.proofs.viewed());
        let unseen: BTreeSet<_> = expected.filter(is_unseen).cloned().collect();
        let silent = self.proofs.silent(now, &self.terms);
        let total = self.proofs.may_renew();
        let allowed = self.brake.allow(now, &silent, total, self.health(now), &self.terms);
        let mut due = Vec::new();
        for session in allowed.difference(&unseen) {
            let version = self.proofs.suspect(now, session, &self.longest_terms());
            due.extend(version.map(|version| Effect::Revoke(session.clone(), version)));
        }
        self.hold(now, silent, total, &unseen);
        if let Some(known) = self.known(unix_time_us) {
            for session in self.due_for_claims(now, known).difference(&unseen) {
                let version = self.proofs.held_at(session).filter(|_| !allowed.contains(session));
                due.extend(version.map(|version| Effect::Revoke(session.clone(), version)));
            }
        }
        unseen.into_iter().map(Effect::LookUp).chain(due).collect()
    }

    /// Returns the sessions whose Leases are revoked although they renew them.
    fn due_for_claims(&mut self, now: Moment, known: Known) -> BTreeSet<SessionId> {
        let unpublished = self.proofs.unpublished(known);
        self.unpublished.retain(|session, _| unpublished.contains(session));
        for session in unpublished {
            self.unpublished.entry(session).or_insert(now);
        }
        let is_over = |since: Moment| self.terms.duration <= now.since(since);
        let over = self.unpublished.iter().filter(|(_, since)| is_over(**since));
        let mut ended = self.proofs.to_be_ended(known);
        ended.extend(over.map(|(session, _)| session.clone()));
        ended
    }

    /// Records which of the `silent` sessions are not revoked, and when to look again.
    fn hold(
        &mut self,
        now: Moment,
        silent: BTreeSet<SessionId>,
        total: usize,
        unseen: &BTreeSet<SessionId>,
    ) {
        let terms = self.longest_terms();
        let well_at = self.failed.map(|at| at.after(self.terms.duration)).unwrap_or_default();
        let brake_opens_at = self.brake.opens_at(&silent, total, well_at, &self.terms);
        let is_held = |session: &SessionId| {
            let wakes = self.proofs.get(session).and_then(|watch| watch.wakes_at(&terms));
            wakes.is_some_and(|wakes| wakes <= now)
        };
        let sessions: BTreeSet<_> = silent.into_iter().filter(is_held).collect();
        let look_up_at = (!sessions.is_disjoint(unseen)).then(|| now.after(self.terms.renew));
        self.held = Held { at: now, sessions, brake_opens_at, look_up_at };
    }

    /// Returns the health of this process: after a failure, a silent session may only be unheard.
    fn health(&self, now: Moment) -> Health {
        match self.failed {
            Some(at) if now.since(at) < self.terms.duration => Health::Poor,
            Some(_) | None => Health::Good,
        }
    }

    /// Returns the ledger that was noted last, for a comparison with claims.
    fn known(&self, unix_time_us: u64) -> Option<Known> {
        let noted = self.noted.as_ref()?;
        Some(Known { position: noted.position, unix_time_us })
    }

    /// Returns the inputs at `now` of a turn about the ledger that was [noted](Self::note) last. If
    /// no ledger was noted, no ledger exists; then sessions that acted on an earlier ledger block
    /// the next.
    ///
    /// O(jobs + sessions · log sessions).
    ///
    /// ```
    /// use swarm_core::handover::*;
    /// use swarm_core::overseer::*;
    /// use swarm_core::{Presence, Slot};
    ///
    /// let (name, presence, pod) = ("w-0".to_owned(), Presence::Ready, Some("pod".to_owned()));
    /// let worker = WorkerFacts { name, presence, pod, is_wanted: true, is_replaced: false };
    /// let pool = PoolFacts::new([(Slot(0), worker)], 1_790_000_000_000_000);
    /// let mut overseer = Overseer::new(LeaseTerms::default());
    /// let observed = overseer.observed(Moment::default(), Policy::Exclusive, pool);
    /// // The pod is ready, but it has no session yet, so nothing can be granted to it.
    /// assert_eq!(observed.workers[&Slot(0)].session, None);
    /// assert_eq!(observed.ready(), 0);
    /// ```
    pub fn observed(&mut self, now: Moment, policy: Policy, pool: PoolFacts) -> Observed {
        let position = self.noted.as_ref().map(|noted| noted.position).unwrap_or_default();
        let known = Known { position, unix_time_us: pool.unix_time_us };
        self.proofs.settle(now, &self.longest_terms());
        if std::mem::take(&mut self.is_fresh) || self.noted.is_none() {
            self.proofs.all_are_elders();
        }
        let unrenewed = self.unrenewed(now, policy);
        let evidence = self.evidence(now, policy, known);
        let is_plain = pool.protocol == Protocol::Plain && self.proofs.is_empty();
        let worker = |(slot, facts): (Slot, WorkerFacts)| {
            let worker = workers::seen(&self.proofs, facts, pool.protocol, known, &self.terms)?;
            Some((slot, worker))
        };
        self.lives.see(now, &self.proofs, &pool.workers);
        let mut workers = pool.workers.into_iter().filter_map(worker).collect();
        let unsteady = self.lives.unsteady(now, &mut workers);
        Observed {
            workers,
            workers_desired: pool.workers_desired,
            first_slot: pool.first_slot,
            watched_for: pool.watched_for,
            unix_time_us: pool.unix_time_us,
            since_change: pool.since_change,
            since_handover: pool.since_handover,
            evidence,
            ages: self.ages.at(now),
            // Plain workers act on no ledger, since they read the view that they share.
            positions: if is_plain { BTreeSet::new() } else { self.positions(now, known) },
            lease: self.terms.duration,
            longest_lease: self.longest,
            fence_wait: self.longest_terms().fence_wait(),
            unrenewed,
            adoptable: None,
            relocations: BTreeMap::new(),
            unsteady,
        }
    }

    /// Returns the number of sessions that have neither renewed nor ended since this process first
    /// observed the pool, or since the last rollback. A session that opens later does not count,
    /// since its Lease was created later.
    ///
    /// Under *at least once* the wait ends after two renewal intervals, so silent sessions do not
    /// prolong it. A session that claims a longer Lease than the Swarm ever asked for was granted
    /// nothing under that claim. So it is waited for by the Swarm's longest terms.
    fn unrenewed(&mut self, now: Moment, policy: Policy) -> usize {
        if self.awaited == Awaited::Unknown {
            let named = self.noted.iter().flat_map(|noted| &noted.named);
            let named = named.filter(|session| !session.is_plain());
            let unrenewed = named.filter(|session| self.proofs.is_unrenewed(session));
            let all = unrenewed.chain(self.proofs.unrenewed()).cloned().collect();
            self.awaited = Awaited::Since(now, all);
        }
        let longest = self.longest_terms();
        let Awaited::Since(since, sessions) = &mut self.awaited else { return 0 };
        let is_waited_out = longest.fence_wait() <= now.since(*since);
        let claims_more = |session: &SessionId| {
            self.proofs.get(session).is_some_and(|it| longest.duration < it.claimed(&longest))
        };
        let is_over = policy == Policy::AtLeastOnce && 2 * self.terms.renew <= now.since(*since);
        // A session that was forgotten has no Lease to renew.
        let named = self.noted.as_ref().map(|noted| &noted.named);
        let is_known = |session: &SessionId| {
            self.proofs.get(session).is_some() || named.is_some_and(|named| named.contains(session))
        };
        let may_act = |session: &SessionId| {
            let uid = session.pod_uid();
            self.proofs.is_unrenewed(session)
                && !(is_waited_out && claims_more(session))
                && !self.proofs.is_ended_with_its_pod(now, uid, &self.terms)
        };
        sessions.retain(|session| !is_over && is_known(session) && may_act(session));
        sessions.len()
    }

    /// Returns the evidence about every session that counts.
    fn evidence(
        &mut self,
        now: Moment,
        policy: Policy,
        known: Known,
    ) -> BTreeMap<SessionId, Evidence> {
        let mut evidence = self.proofs.evidence(known);
        for session in self.noted.iter().flat_map(|noted| &noted.named) {
            // A plain worker needs no evidence, unless the policy requires a proof.
            if !session.is_plain() || policy == Policy::Exclusive {
                evidence.entry(session.clone()).or_default();
            }
        }
        self.gone.retain(|session, _| evidence.contains_key(session));
        for (session, evidence) in &mut evidence {
            let uid = session.pod_uid();
            let is_gone = self.proofs.is_gone(now, uid, &self.terms);
            if !is_gone {
                self.gone.remove(session);
                continue;
            }
            let since = *self.gone.entry(session.clone()).or_insert(now);
            evidence.gone_for = Some(now.since(since));
            // A plain worker has no Lease, and so no grace: it has ended once its pod is missing.
            if session.is_plain() || self.proofs.is_ended_with_its_pod(now, uid, &self.terms) {
                evidence.ended.get_or_insert(Proof::ProcessEnded);
            }
        }
        evidence
    }

    /// Returns the positions of the ledger that sessions and this process know about. A session
    /// that acted on lost grants may have ended meanwhile, but its tokens were used.
    fn positions(&self, now: Moment, known: Known) -> BTreeSet<Position> {
        let mut positions = self.proofs.positions(now, known, &self.longest_terms());
        positions.extend(self.furthest);
        positions
    }

    /// Compares the jobs that sessions report as finished with `ledger`, as a turn left it, and
    /// with the wanted `jobs`. An honest session differs from the ledger only for a moment. O(jobs
    /// reported as finished · log jobs).
    ///
    /// ```
    /// use swarm_core::handover::*;
    /// use swarm_core::overseer::*;
    /// use swarm_core::{Jobs, Ledger, Token};
    ///
    /// let (start, terms, ledger) = (Moment::default(), LeaseTerms::default(), Ledger::new(1));
    /// let (session, mut overseer) = (SessionId::new("pod", 1), Overseer::new(terms));
    /// overseer.note(start, &ledger);
    /// let mut facts = LeaseFacts::held(1, terms.duration);
    /// facts.lease.ack.finished = [("film".parse()?, Token(7))].into(); // it was never granted that
    /// overseer.learn(start, Fact::Lease(session.clone(), facts));
    /// overseer.judge_finished(start, &ledger, &Jobs::new());
    /// assert!(overseer.suspicions(start, 1).is_empty());
    /// let suspicion = Suspicion::FalseFinish(1);
    /// assert_eq!(overseer.suspicions(start.after(terms.duration), 1), [(session, suspicion)].into());
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    pub fn judge_finished(&mut self, now: Moment, ledger: &Ledger, jobs: &Jobs) {
        let before = std::mem::take(&mut self.false_finishes);
        for (session, watch) in self.proofs.iter().filter(|(_, watch)| watch.may_renew()) {
            let is_false = |(job, token): &(&JobName, &Token)| {
                // A job that was removed may have run to completion before.
                let runs_once = jobs.get(*job).is_none_or(|job| job.run_once);
                let may_be = match ledger.cells.jobs.get(*job).map(|record| &record.cell) {
                    Some(
                        Cell::Granted { session: holder, token: held }
                        | Cell::Releasing { session: holder, token: held, .. },
                    ) => (holder, held) == (session, *token),
                    Some(Cell::Done { .. }) => true,
                    Some(
                        Cell::Free { .. }
                        | Cell::Hold { .. }
                        | Cell::Quarantined { .. }
                        | Cell::Everywhere { .. }
                        | Cell::ReleasingAll { .. },
                    )
                    | None => false,
                };
                !(runs_once && may_be)
            };
            let count = watch.ack.finished.iter().filter(is_false).count();
            if 0 < count {
                let since = before.get(session).map_or(now, |(since, _)| *since);
                self.false_finishes.insert(session.clone(), (since, count));
            }
        }
    }
}
