//! Queries of an overseer that are not inputs of a turn. They do not change the overseer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Held, Known, Overseer, Publication, Suspicion, publications};
use crate::handover::{Ack, Moment, SessionId, Watch, WatchStage};
use crate::session::Details;
use crate::{Decision, Desired, Ledger, Observed, Position, Progress, SlotRecord};

impl Overseer {
    /// Returns the sessions that are not believed at `now`, with the reasons, until they have
    /// ended.
    ///
    /// ```
    /// use std::time::Duration;
    /// use swarm_core::handover::*;
    /// use swarm_core::overseer::*;
    /// use swarm_core::Ledger;
    ///
    /// let (now, session) = (Moment::default(), SessionId::new("pod", 1));
    /// let mut overseer = Overseer::new(LeaseTerms::default());
    /// overseer.note(now, &Ledger::new(1));
    /// let claim = Duration::from_secs(600); // longer than the terms
    /// overseer.learn(now, Fact::Lease(session.clone(), LeaseFacts::held(1, claim)));
    /// let suspicion = Suspicion::LongLease(claim);
    /// assert_eq!(overseer.suspicions(now, 1), [(session, suspicion)].into());
    /// ```
    #[must_use]
    pub fn suspicions(&self, now: Moment, unix_time_us: u64) -> BTreeMap<SessionId, Suspicion> {
        let Some(known) = self.known(unix_time_us) else { return BTreeMap::new() };
        let is_long = |since: Moment| self.terms.duration <= now.since(since);
        let finishes = self.false_finishes.iter().filter(|(_, (since, _))| is_long(*since));
        let finishes =
            finishes.map(|(session, (_, jobs))| (session.clone(), Suspicion::FalseFinish(*jobs)));
        let suspicion = |(session, _): (&SessionId, &Watch)| {
            let suspicion = self.proofs.suspicion(session, known, &self.terms)?;
            Some((session.clone(), suspicion))
        };
        finishes.chain(self.proofs.iter().filter_map(suspicion)).collect()
    }

    /// Returns the views to publish after `ledger` was saved or loaded. Never publish before the
    /// save.
    ///
    /// ```
    /// use swarm_core::handover::*;
    /// use swarm_core::overseer::*;
    /// use swarm_core::session::Details;
    /// use swarm_core::{Assignment, Ledger, Pool};
    ///
    /// let (now, session) = (Moment::default(), SessionId::new("pod", 1));
    /// let mut overseer = Overseer::new(LeaseTerms::default());
    /// let ledger = Ledger::new(1).next(&Assignment::default(), &Pool::ready(1));
    /// // The store has a view of a session that the ledger does not name, so it gets an empty view.
    /// overseer.learn(now, Fact::View(session.clone(), None));
    /// let due = overseer.publications(&ledger, &Details::default(), 1);
    /// assert_eq!((&due[0].view.session, due[0].view.jobs.len()), (&session, 0));
    /// overseer.learn(now, Fact::View(session, Some(due[0].mark)));
    /// assert!(overseer.publications(&ledger, &Details::default(), 1).is_empty());
    /// ```
    #[must_use]
    pub fn publications(
        &self,
        ledger: &Ledger,
        details: &Details,
        unix_time_us: u64,
    ) -> Vec<Publication> {
        let known = Known { position: ledger.position(), unix_time_us };
        let others = self.proofs.of_another_incarnation(known).cloned();
        // A session whose Lease was not read yet may exist.
        let can_read = |session: &SessionId| self.proofs.is_open(session) != Some(false);
        publications(ledger, details, self.proofs.marks(), others, can_read)
    }

    /// Returns the session of a pod that may receive jobs: the newest that may renew its Lease.
    ///
    /// ```
    /// use swarm_core::handover::*;
    /// use swarm_core::overseer::*;
    ///
    /// let (now, terms) = (Moment::default(), LeaseTerms::default());
    /// let (session, mut overseer) = (SessionId::new("pod", 1), Overseer::new(terms));
    /// overseer.learn(now, Fact::Lease(session.clone(), LeaseFacts::held(1, terms.duration)));
    /// assert_eq!(overseer.living("pod"), Some(&session));
    /// overseer.learn(now, Fact::LeaseMissing(session));
    /// assert_eq!(overseer.living("pod"), None);
    /// ```
    #[must_use]
    pub fn living(&self, pod_uid: &str) -> Option<&SessionId> {
        self.proofs.living(pod_uid)
    }

    /// Returns the sessions without young evidence that they run their jobs: they were silent for
    /// [`LeaseTerms::silent_after`](crate::handover::LeaseTerms::silent_after) at `now`, or cannot
    /// renew any more. O(sessions · log sessions).
    ///
    /// ```
    /// use swarm_core::handover::*;
    /// use swarm_core::overseer::*;
    ///
    /// let (start, terms) = (Moment::default(), LeaseTerms::default());
    /// let (session, mut overseer) = (SessionId::new("pod", 1), Overseer::new(terms));
    /// overseer.learn(start, Fact::Lease(session.clone(), LeaseFacts::held(1, terms.duration)));
    /// let at = start.after(terms.silent_after(TWO_CLOCKS_MARGIN));
    /// assert!(overseer.unheard(start.after(terms.renew), TWO_CLOCKS_MARGIN).is_empty());
    /// assert_eq!(overseer.unheard(at, TWO_CLOCKS_MARGIN), [session.clone()].into());
    /// // Only renewals end the silence, and the first one is not enough.
    /// let pause = terms.silent_after(TWO_CLOCKS_MARGIN);
    /// let first = LeaseFacts { pause, ..LeaseFacts::held(2, terms.duration) };
    /// overseer.learn(at, Fact::Lease(session.clone(), first));
    /// assert_eq!(overseer.unheard(at, TWO_CLOCKS_MARGIN).len(), 1);
    /// let second = LeaseFacts { pause: terms.renew, ..LeaseFacts::held(3, terms.duration) };
    /// overseer.learn(at.after(terms.renew), Fact::Lease(session, second));
    /// assert!(overseer.unheard(at.after(terms.renew), TWO_CLOCKS_MARGIN).is_empty());
    /// ```
    #[must_use]
    pub fn unheard(&self, now: Moment, margin: Duration) -> BTreeSet<SessionId> {
        let is_heard = |until: Option<Moment>| until.is_some_and(|until| now < until);
        let unheard = self.proofs.heard_until(&self.terms, margin);
        let unheard = unheard.filter(|(_, _, until)| !is_heard(*until));
        unheard.map(|(session, ..)| session.clone()).collect()
    }

    /// Returns the moment from which the first session that may renew is [unheard](Self::unheard) unless
    /// it renews before. It is in the past if one is so already. O(sessions).
    ///
    /// ```
    /// use swarm_core::handover::*;
    /// use swarm_core::overseer::*;
    ///
    /// let (start, terms) = (Moment::default(), LeaseTerms::default());
    /// let (session, mut overseer) = (SessionId::new("pod", 1), Overseer::new(terms));
    /// overseer.learn(start, Fact::Lease(session.clone(), LeaseFacts::held(1, terms.duration)));
    /// let bound = terms.silent_after(TWO_CLOCKS_MARGIN);
    /// assert_eq!(overseer.unheard_at(TWO_CLOCKS_MARGIN), Some(start.after(bound)));
    /// ```
    #[must_use]
    pub fn unheard_at(&self, margin: Duration) -> Option<Moment> {
        let open = self.proofs.heard_until(&self.terms, margin);
        let open = open.filter(|(_, watch, _)| watch.may_renew());
        open.map(|(.., until)| until.unwrap_or_default()).min()
    }

    /// Returns whether a pod is missing: it is lost or has ended, and no session of it renews its
    /// Lease.
    ///
    /// ```
    /// use swarm_core::handover::*;
    /// use swarm_core::overseer::*;
    ///
    /// let (now, terms) = (Moment::default(), LeaseTerms::default());
    /// let mut overseer = Overseer::new(terms);
    /// overseer.learn(now, Fact::Pod("pod".into(), PodFacts { is_lost: true, ..PodFacts::default() }));
    /// assert!(overseer.is_gone(now, "pod"));
    /// // But then a session of it renews its Lease.
    /// let facts = LeaseFacts::held(1, terms.duration);
    /// overseer.learn(now, Fact::Lease(SessionId::new("pod", 1), facts));
    /// assert!(!overseer.is_gone(now, "pod"));
    /// assert!(overseer.is_gone(now.after(terms.duration), "pod"));
    /// ```
    #[must_use]
    pub fn is_gone(&self, now: Moment, pod_uid: &str) -> bool {
        self.proofs.is_gone(now, pod_uid, &self.terms)
    }

    /// Returns whether a session of a pod renewed its Lease so recently that a report of the pod's
    /// node being off must be wrong.
    ///
    /// ```
    /// use swarm_core::handover::*;
    /// use swarm_core::overseer::*;
    ///
    /// let (now, terms) = (Moment::default(), LeaseTerms::default());
    /// let mut overseer = Overseer::new(terms);
    /// let facts = LeaseFacts::held(1, terms.duration);
    /// overseer.learn(now, Fact::Lease(SessionId::new("pod", 1), facts));
    /// assert!(overseer.is_heard(now, "pod"));
    /// assert!(!overseer.is_heard(now.after(3 * terms.renew), "pod"));
    /// ```
    #[must_use]
    pub fn is_heard(&self, now: Moment, pod_uid: &str) -> bool {
        self.proofs.is_heard_lately(now, pod_uid, &self.terms)
    }

    /// Returns the progress of the pool. Call this after `decision` was saved and its
    /// [views](Self::publications) were published and [learned](super::Fact::View). The example of
    /// [`Overseer`] shows this. O(jobs · log jobs).
    #[must_use]
    pub fn progress(
        &self,
        decision: &Decision,
        desired: &Desired,
        observed: &Observed,
    ) -> Progress {
        Progress::of(decision, desired, observed, self.stale(&decision.ledger))
    }

    /// Returns the names of the workers whose sessions have not yet acted on their views of
    /// `ledger`. O(slots · log sessions).
    ///
    /// ```
    /// use swarm_core::handover::LeaseTerms;
    /// use swarm_core::overseer::Overseer;
    /// use swarm_core::{Assignment, Ledger, Pool};
    ///
    /// let overseer = Overseer::new(LeaseTerms::default());
    /// let ledger = Ledger::new(1).next(&Assignment::default(), &Pool::ready(1));
    /// assert!(overseer.stale(&ledger).is_empty()); // plain workers do not report what they have read
    /// ```
    #[must_use]
    pub fn stale(&self, ledger: &Ledger) -> Vec<String> {
        let is_stale =
            |record: &&SlotRecord| !self.proofs.has_newest(&record.session, ledger.position());
        let stale = ledger.slots.values().filter(is_stale);
        stale.map(|record| record.worker.clone()).collect()
    }

    /// Returns the revision of `ledger` up to which a session has acknowledged `job` in its view:
    /// the greatest number if it has acknowledged its newest view. Zero if it has acknowledged
    /// nothing, or is a plain worker. O(log sessions).
    ///
    /// ```
    /// use swarm_core::handover::*;
    /// use swarm_core::overseer::*;
    /// use swarm_core::{Assignment, Ledger, Pool};
    ///
    /// let (now, session) = (Moment::default(), SessionId::new("pod", 1));
    /// let ledger = Ledger::new(7).next(&Assignment::default(), &Pool::ready(1)); // revision 1
    /// let (terms, mut overseer) = (LeaseTerms::default(), Overseer::new(LeaseTerms::default()));
    /// let mut facts = LeaseFacts::held(1, terms.duration);
    /// facts.lease.ack = Ack { incarnation: 7, revision: 1, ..Ack::default() };
    /// overseer.learn(now, Fact::Lease(session.clone(), facts));
    /// assert_eq!(overseer.acknowledged(&ledger, &session, "a"), 1);
    /// let view = ViewMark { incarnation: 7, revision: 1, digest: 0 };
    /// overseer.learn(now, Fact::View(session.clone(), Some(view)));
    /// assert_eq!(overseer.acknowledged(&ledger, &session, "a"), u64::MAX);
    /// ```
    #[must_use]
    pub fn acknowledged(&self, ledger: &Ledger, session: &SessionId, job: &str) -> u64 {
        let Position { incarnation, revision } = ledger.position();
        let ack = self.proofs.get(session).map(|watch| &watch.ack);
        let is_of_ledger =
            |ack: &&Ack| ack.incarnation == incarnation && ack.position().revision <= revision;
        let Some(ack) = ack.filter(is_of_ledger) else { return 0 };
        let published = self.proofs.marks().get(session).copied().flatten();
        let has_newest = published
            .is_some_and(|mark| mark.incarnation == incarnation && mark.revision <= ack.revision);
        if has_newest { u64::MAX } else { ack.revision.max(ack.stopping.released(job)) }
    }

    /// Returns the number of silent sessions that are not revoked because many are silent at once.
    ///
    /// ```
    /// use swarm_core::handover::*;
    /// use swarm_core::overseer::*;
    ///
    /// let (start, terms) = (Moment::default(), LeaseTerms::default());
    /// let mut overseer = Overseer::new(terms);
    /// for n in 0..4 {
    ///     let facts = LeaseFacts::held(1, terms.duration);
    ///     overseer.learn(start, Fact::Lease(SessionId::new("pod", n), facts));
    /// }
    /// let now = start.after(terms.duration);
    /// assert!(overseer.due(now, 1, |_| true).is_empty()); // all are silent at once
    /// assert_eq!(overseer.held_back(now), 4);
    /// ```
    #[must_use]
    pub fn held_back(&self, now: Moment) -> usize {
        if self.brake.is_engaged() { self.proofs.silent(now, &self.terms).len() } else { 0 }
    }

    /// Returns when the next [held back](Self::held_back) session may be revoked, according to the
    /// last [`due`](Self::due). `None` if no session is held back.
    ///
    /// ```
    /// use swarm_core::handover::*;
    /// use swarm_core::overseer::*;
    ///
    /// let (start, terms) = (Moment::default(), LeaseTerms::default());
    /// let mut overseer = Overseer::new(terms);
    /// for n in 0..4 {
    ///     let facts = LeaseFacts::held(1, terms.duration);
    ///     overseer.learn(start, Fact::Lease(SessionId::new("pod", n), facts));
    /// }
    /// let now = start.after(terms.duration);
    /// assert!(overseer.due(now, 1, |_| true).is_empty()); // all are silent at once
    /// assert_eq!(overseer.held_until(), Some(now.after(terms.duration * 2)));
    /// assert_eq!(overseer.wakes_at(), overseer.held_until());
    /// ```
    #[must_use]
    pub fn held_until(&self) -> Option<Moment> {
        self.held.brake_opens_at
    }

    /// Returns whether a doubt will be settled by time alone, so that the pool needs another look
    /// soon. There are two kinds of doubt:
    ///
    /// - The node of a pod is reported off although a session of the pod renewed recently.
    /// - A session reports jobs as finished that it cannot have finished, or acknowledges a
    ///   revision that was never published.
    ///
    /// ```
    /// use swarm_core::handover::*;
    /// use swarm_core::overseer::*;
    ///
    /// let (now, terms) = (Moment::default(), LeaseTerms::default());
    /// let mut overseer = Overseer::new(terms);
    /// let facts = LeaseFacts::held(1, terms.duration);
    /// overseer.learn(now, Fact::Lease(SessionId::new("pod", 1), facts));
    /// let off = PodFacts { is_node_off: true, ..PodFacts::default() };
    /// overseer.learn(now, Fact::Pod("pod".into(), off));
    /// assert!(overseer.is_in_doubt(now));
    /// assert!(!overseer.is_in_doubt(now.after(3 * terms.renew))); // it is off
    /// ```
    #[must_use]
    pub fn is_in_doubt(&self, now: Moment) -> bool {
        let finishes = self.false_finishes.values().map(|(since, _)| since);
        let mut claims = finishes.chain(self.unpublished.values());
        self.proofs.is_any_doubted(now, &self.terms)
            || claims.any(|since| now.since(*since) < self.terms.duration)
    }

    /// Returns when time alone next changes a proof or a due effect; `None` if it never does. After
    /// a call of [`due`](Self::due) the result is later than that call, unless a revocation failed
    /// since, which can be tried again.
    ///
    /// ```
    /// use swarm_core::handover::*;
    /// use swarm_core::overseer::*;
    ///
    /// let (now, terms) = (Moment::default(), LeaseTerms::default());
    /// let mut overseer = Overseer::new(terms);
    /// assert_eq!(overseer.wakes_at(), None);
    /// let facts = LeaseFacts::held(1, terms.duration);
    /// overseer.learn(now, Fact::Lease(SessionId::new("pod", 1), facts));
    /// assert_eq!(overseer.wakes_at(), Some(now.after(terms.duration)));
    /// ```
    #[must_use]
    pub fn wakes_at(&self) -> Option<Moment> {
        let Held { at, sessions, brake_opens_at, look_up_at } = &self.held;
        let terms = self.longest_terms();
        let wakes = self.proofs.iter().filter_map(|(session, watch)| {
            let wakes = watch.wakes_at(&terms)?;
            // The last look already covered it.
            (*at < wakes || !sessions.contains(session)).then_some(wakes)
        });
        // The whole pool may wait for less time than the jobs of a session that claims a long
        // Lease.
        let pool = self.proofs.iter().filter_map(|(_, watch)| match watch.stage {
            WatchStage::Revoked { since } => {
                Some(since.after(terms.fence_wait())).filter(|it| at < it)
            }
            WatchStage::Held { .. } | WatchStage::Revoking { .. } | WatchStage::Ended(_) => None,
        });
        let unpublished = self.unpublished.values().map(|since| since.after(self.terms.duration));
        let unpublished = unpublished.filter(|it| at < it);
        let steady = self.lives.wakes_at(*at);
        let wakes = wakes.chain(pool).chain(unpublished).chain(steady);
        wakes.chain(*brake_opens_at).chain(*look_up_at).min()
    }
}
