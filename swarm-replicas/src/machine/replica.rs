//! A member among the replicas, as a pure machine: the buckets on which it may act, and until when.
//!
//! Events go in with the reading of the member's clock, and effects come out. The driver of the
//! machine carries the effects out and reports back. The clock also counts the time while the
//! computer was suspended (`CLOCK_BOOTTIME`). In addition to the rules of the [module](super), a
//! member behaves as follows:
//!
//! - It may act until one lease duration after it **sent** the last renewal that succeeded. If a
//!   later renewal succeeds, its Lease was not revoked, and the member continues to act as before.
//! - If another process closes, revokes, deletes or replaces its Lease, the member ends
//!   permanently.
//! - The set that it aims at is a function of the Leases that it sees: all that are held and
//!   neither leaving nor too new. It completes one change of the set before the next begins. So
//!   members that come and go do not keep it from declaring a set.
//! - It revokes a member that is silent for a whole duration, at the version seen. It waits while
//!   the fault is more likely its own: its last renewal failed, it slept, or most other members are
//!   silent.

mod change;
mod event;
mod own;
mod peers;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use event::{ReplicaEffect, ReplicaEvent};
pub use status::{ControllerStatus, ReplicaStatus};

use swarm_core::handover::Moment;

use super::{Bucket, Card, Controller, Hosts, MemberId, Owners, Portion, ReplicaTerms, Rules};
use change::{Change, Tables};
use own::Own;
use peers::Peer;

/// One member.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Replica {
    id: MemberId,
    terms: ReplicaTerms,
    rules: Rules,
    phase: Phase,
    /// The controllers that it hosts from now on.
    hosts: Hosts,
    own: Own,
    /// Its own card, as its watch returned it last.
    own_card: Option<Card>,
    /// The number of its own write that the watch returned last; 0 if the watch returned none.
    own_seen: u64,
    /// Whether the watch has returned a first list.
    is_listed: bool,
    peers: BTreeMap<MemberId, Peer>,
    /// The set declared by the last write known to have landed.
    declared: Arc<Owners>,
    /// The number of the first write that declared the set; 0 if no write did.
    declared_since: u64,
    /// The set declared previously.
    #[cfg(feature = "mutations")]
    formerly: Arc<Owners>,
    change: Option<Change>,
    /// The buckets on which it acts and may begin turns. The declared set gives them to this member,
    /// and so does the next set if a change is on its way.
    owned: Portion,
    /// The buckets that are being stopped, by the number of the request. The declared set has them.
    stops: BTreeMap<u64, Portion>,
    stops_asked: u64,
    /// The buckets that are declared and wait for other members, by the moment when they were
    /// locked.
    locked: BTreeMap<Moment, Portion>,
    tables: Tables,
    /// The moment since when members that came wait to be counted.
    joins_since: Option<Moment>,
    /// The moment from when on the silence of others counts.
    counts_from: Moment,
    /// The moment since when most others have been silent.
    most_silent_since: Option<Moment>,
    stepped_at: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Open,
    /// All buckets are being stopped.
    Leaving,
    /// The member acts on nothing any more; its Lease is being closed.
    Closing,
    Over,
}

impl Replica {
    /// Begins a member that hosts these controllers. The first effect creates its Lease.
    ///
    /// ```
    /// use swarm_core::handover::Moment;
    /// use swarm_replicas::machine::{Hosts, MemberId, Replica, ReplicaEffect, ReplicaTerms};
    ///
    /// let (id, terms) = (MemberId::new("a", 1)?, ReplicaTerms::default());
    /// let (_, effects) = Replica::open(id, Hosts::new(), terms, Moment::default());
    /// let [ReplicaEffect::Write(write)] = &effects[..] else { panic!("{effects:?}") };
    /// assert_eq!(write.expected, None); // its Lease must not exist yet
    /// # Ok::<(), swarm_replicas::machine::MemberIdError>(())
    /// ```
    #[must_use]
    pub fn open(
        id: MemberId,
        hosts: Hosts,
        terms: ReplicaTerms,
        now: Moment,
    ) -> (Self, Vec<ReplicaEffect>) {
        let mut replica = Self {
            id,
            terms,
            rules: Rules::default(),
            phase: Phase::Open,
            hosts,
            own: Own::new(now),
            own_card: None,
            own_seen: 0,
            is_listed: false,
            peers: BTreeMap::new(),
            declared: Arc::default(),
            declared_since: 0,
            #[cfg(feature = "mutations")]
            formerly: Arc::default(),
            change: None,
            owned: Portion::default(),
            stops: BTreeMap::new(),
            stops_asked: 0,
            locked: BTreeMap::new(),
            tables: Tables::default(),
            joins_since: None,
            counts_from: now,
            most_silent_since: None,
            stepped_at: now,
        };
        let mut effects = Vec::new();
        replica.reconcile(now, &mut effects);
        (replica, effects)
    }

    /// The same member with one of its rules broken, so that a model check can notice.
    #[cfg(feature = "mutations")]
    #[must_use]
    pub fn without(self, rule: super::Rule) -> Self {
        Self { rules: Rules::without(rule), ..self }
    }

    /// The identity of the member.
    ///
    /// ```
    /// use swarm_core::handover::Moment;
    /// use swarm_replicas::machine::{Hosts, MemberId, Replica, ReplicaTerms};
    ///
    /// let id = MemberId::new("a", 1)?;
    /// let terms = ReplicaTerms::default();
    /// let (replica, _) = Replica::open(id.clone(), Hosts::new(), terms, Moment::default());
    /// assert_eq!(replica.id(), &id);
    /// # Ok::<(), swarm_replicas::machine::MemberIdError>(())
    /// ```
    #[must_use]
    pub fn id(&self) -> &MemberId {
        &self.id
    }

    /// The moment until when it may act on this bucket, if it may act on it at `now`. It may act on
    /// the buckets that it owns, and on those it is asked to stop until they have stopped. The
    /// driver calls this right before each request, and waits for the answer until the returned
    /// moment at most. O(log controllers).
    ///
    /// ```
    /// use swarm_core::handover::Moment;
    /// use swarm_replicas::machine::{Bucket, Hosts, MemberId, Replica, ReplicaTerms};
    ///
    /// let (id, terms) = (MemberId::new("a", 1)?, ReplicaTerms::default());
    /// let (replica, _) = Replica::open(id, Hosts::new(), terms, Moment::default());
    /// let bucket = Bucket::of("6f1c");
    /// assert_eq!(replica.may_act(&"labels".parse()?, bucket, Moment::default()), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn may_act(&self, controller: &Controller, bucket: Bucket, now: Moment) -> Option<Moment> {
        let has = |portion: &Portion| portion.contains(controller, bucket);
        let acts = has(&self.owned) || self.stops.values().any(has);
        (acts && now < self.own.deadline()).then_some(self.own.deadline())
    }

    /// Whether a turn for this bucket may begin at `now`. The member must own the bucket, must not
    /// be asked to stop it, and its Lease must not end within a stop timeout. O(log controllers).
    ///
    /// ```
    /// use swarm_core::handover::Moment;
    /// use swarm_replicas::machine::{Bucket, Hosts, MemberId, Replica, ReplicaTerms};
    ///
    /// let (id, terms) = (MemberId::new("a", 1)?, ReplicaTerms::default());
    /// let (replica, _) = Replica::open(id, Hosts::new(), terms, Moment::default());
    /// assert!(!replica.may_begin(&"labels".parse()?, Bucket::of("6f1c"), Moment::default()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn may_begin(&self, controller: &Controller, bucket: Bucket, now: Moment) -> bool {
        let until = self.own.deadline().before(self.terms.lease.stop_timeout);
        now < until && self.owned.contains(controller, bucket)
    }

    /// The buckets on which it acts: the buckets that it owns, and the buckets that it is asked to
    /// stop and has not stopped yet. Valid only before the [`deadline`](Self::deadline).
    ///
    /// ```
    /// use swarm_core::handover::Moment;
    /// use swarm_replicas::machine::{Hosts, MemberId, Replica, ReplicaTerms};
    ///
    /// let (id, terms) = (MemberId::new("a", 1)?, ReplicaTerms::default());
    /// let (replica, _) = Replica::open(id, Hosts::new(), terms, Moment::default());
    /// assert!(replica.acting().is_empty());
    /// # Ok::<(), swarm_replicas::machine::MemberIdError>(())
    /// ```
    #[must_use]
    pub fn acting(&self) -> Portion {
        let mut acting = self.owned.clone();
        self.stops.values().for_each(|stopping| acting.add(stopping));
        acting
    }

    /// The buckets that it owns and is not asked to stop.
    ///
    /// ```
    /// use swarm_core::handover::Moment;
    /// use swarm_replicas::machine::{Hosts, MemberId, Replica, ReplicaTerms};
    ///
    /// let (id, terms) = (MemberId::new("a", 1)?, ReplicaTerms::default());
    /// let (replica, _) = Replica::open(id, Hosts::new(), terms, Moment::default());
    /// assert!(replica.owned().is_empty());
    /// # Ok::<(), swarm_replicas::machine::MemberIdError>(())
    /// ```
    #[must_use]
    pub fn owned(&self) -> &Portion {
        &self.owned
    }

    /// The moment until when it may act; the clock's start if it never could.
    ///
    /// ```
    /// use swarm_core::handover::{LeaseVersion, Moment};
    /// use swarm_replicas::machine::{Hosts, MemberId, Replica, ReplicaEvent, ReplicaTerms};
    ///
    /// let (id, terms) = (MemberId::new("a", 1)?, ReplicaTerms::default());
    /// let (mut replica, _) = Replica::open(id, Hosts::new(), terms, Moment::default());
    /// let answered = Moment(terms.lease.renew);
    /// replica.step(answered, ReplicaEvent::Written { number: 1, version: LeaseVersion(1) });
    /// assert_eq!(replica.deadline(), Moment(terms.lease.duration)); // counted from when it was sent
    /// # Ok::<(), swarm_replicas::machine::MemberIdError>(())
    /// ```
    #[must_use]
    pub fn deadline(&self) -> Moment {
        self.own.deadline()
    }

    /// Whether the member is over. The process then ends, or opens another member.
    ///
    /// ```
    /// use swarm_core::handover::{LeaseVersion, Moment};
    /// use swarm_replicas::machine::{Hosts, MemberId, Replica, ReplicaEvent, ReplicaTerms};
    ///
    /// let (id, terms) = (MemberId::new("a", 1)?, ReplicaTerms::default());
    /// let (mut replica, _) = Replica::open(id, Hosts::new(), terms, Moment::default());
    /// assert!(!replica.is_over());
    /// let written = ReplicaEvent::Written { number: 1, version: LeaseVersion(1) };
    /// replica.step_all(Moment::default(), [written, ReplicaEvent::LeaseRead(None)]);
    /// assert!(replica.is_over(), "its Lease was deleted");
    /// # Ok::<(), swarm_replicas::machine::MemberIdError>(())
    /// ```
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Takes in an event that happened by `now`, and returns the effects, in order.
    ///
    /// A renewal of another member costs O(log members), and O(members · controllers) while any
    /// bucket is locked. A change of the set costs [as much](Owners::next) as its table.
    ///
    /// ```
    /// use swarm_core::handover::Moment;
    /// use swarm_replicas::machine::{Hosts, MemberId, Replica, ReplicaEvent, ReplicaTerms};
    ///
    /// let (id, terms) = (MemberId::new("a", 1)?, ReplicaTerms::default());
    /// let (mut replica, _) = Replica::open(id, Hosts::new(), terms, Moment::default());
    /// let effects = replica.step(Moment(terms.lease.renew), ReplicaEvent::Tick);
    /// assert!(effects.is_empty(), "the first write has no answer yet");
    /// # Ok::<(), swarm_replicas::machine::MemberIdError>(())
    /// ```
    pub fn step(&mut self, now: Moment, event: ReplicaEvent) -> Vec<ReplicaEffect> {
        self.step_all(now, [event])
    }

    /// Takes in all events that happened by `now`, in order, and then returns the effects.
    ///
    /// ```
    /// use std::time::Duration;
    /// use swarm_core::handover::{LeaseVersion, Moment};
    /// use swarm_replicas::machine::*;
    ///
    /// let labels: Controller = "labels".parse()?;
    /// let hosts: Hosts = [(labels.clone(), Weight::default())].into();
    /// let (id, now) = (MemberId::new("a", 1)?, Moment(Duration::from_secs(1)));
    /// let (mut replica, effects) = Replica::open(id.clone(), hosts, ReplicaTerms::default(), now);
    /// let mut stored = None;
    /// let mut written = |effects: &[ReplicaEffect]| {
    ///     let Some(ReplicaEffect::Write(write)) = effects.last() else { panic!("{effects:?}") };
    ///     let version = LeaseVersion(write.number);
    ///     stored = write.onto(stored.as_ref(), version);
    ///     let lease = stored.clone().unwrap();
    ///     (ReplicaEvent::Written { number: write.number, version }, lease)
    /// };
    /// let (answer, lease) = written(&effects);
    /// let alone = ReplicaEvent::Listed([(id.clone(), lease)].into());
    /// let effects = replica.step_all(now, [answer, alone]); // declares a set with itself
    /// let (answer, lease) = written(&effects);
    /// replica.step(now, answer);
    /// assert!(replica.owned().is_empty()); // waits for its watch
    /// replica.step(now, ReplicaEvent::Seen(id, lease));
    /// assert_eq!(replica.may_act(&labels, Bucket::of("6f1c"), now), Some(replica.deadline()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn step_all(
        &mut self,
        now: Moment,
        events: impl IntoIterator<Item = ReplicaEvent>,
    ) -> Vec<ReplicaEffect> {
        let mut effects = Vec::new();
        // A member that slept has received no renewals of others meanwhile.
        if self.terms.lease.renew.saturating_mul(2) < now.since(self.stepped_at) {
            self.counts_from = now;
        }
        self.stepped_at = self.stepped_at.max(now);
        for event in events {
            if self.is_over() {
                return effects;
            }
            self.take_in(now, event, &mut effects);
        }
        self.reconcile(now, &mut effects);
        effects
    }

    fn take_in(&mut self, now: Moment, event: ReplicaEvent, effects: &mut Vec<ReplicaEffect>) {
        match event {
            ReplicaEvent::Tick => (),
            ReplicaEvent::Listed(leases) => self.listed(now, leases, effects),
            ReplicaEvent::Seen(member, lease) => self.seen(now, member, lease, effects),
            ReplicaEvent::Gone(member) => self.gone(now, &member, effects),
            ReplicaEvent::Written { number, version } => {
                self.written(now, number, version, effects);
            }
            ReplicaEvent::Conflict { number } => {
                let is_pending = self.own.is_pending(number);
                effects.extend(is_pending.then_some(ReplicaEffect::ReadLease));
            }
            ReplicaEvent::LeaseRead(lease) => self.lease_read(now, lease, effects),
            ReplicaEvent::Lost { number } => {
                if self.own.is_pending(number) {
                    self.counts_from = now;
                    self.own.give_up(now, &self.terms);
                }
            }
            ReplicaEvent::Stopped { number } => {
                self.stops.remove(&number);
            }
            ReplicaEvent::Host(hosts) => self.hosts = hosts,
            ReplicaEvent::Leave => self.leave(effects),
            ReplicaEvent::RevocationWritten(member, version) => {
                self.revocation_written(now, &member, version);
            }
            ReplicaEvent::RevocationFailed(member) => self.revocation_failed(now, &member),
            ReplicaEvent::ProcessEnded(member) => self.process_ended(now, &member),
        }
    }

    /// Brings the set, the buckets and the Lease in line with the state that is seen and allowed at
    /// `now`.
    fn reconcile(&mut self, now: Moment, effects: &mut Vec<ReplicaEffect>) {
        if self.is_over() {
            return;
        }
        self.pass_time(now, effects);
        self.aim(now, effects);
        self.start(effects);
        if self.phase == Phase::Leaving && self.stops.is_empty() {
            self.phase = Phase::Closing;
        }
        self.write(now, effects);
        self.revoke(now, effects);
    }

    /// Ends the member at once, since it may not act any more.
    fn abort(&mut self, effects: &mut Vec<ReplicaEffect>) {
        self.end();
        effects.push(ReplicaEffect::Abort);
    }

    fn end(&mut self) {
        self.phase = Phase::Over;
        self.change = None;
        self.owned = Portion::default();
        self.stops.clear();
        self.locked.clear();
    }

    /// The moment when time alone next changes something. The driver of the machine sends a
    /// [`ReplicaEvent::Tick`] then at the latest.
    ///
    /// ```
    /// use swarm_core::handover::{LeaseVersion, Moment};
    /// use swarm_replicas::machine::{Hosts, MemberId, Replica, ReplicaEvent, ReplicaTerms};
    ///
    /// let (id, terms) = (MemberId::new("a", 1)?, ReplicaTerms::default());
    /// let (mut replica, _) = Replica::open(id, Hosts::new(), terms, Moment::default());
    /// let written = ReplicaEvent::Written { number: 1, version: LeaseVersion(1) };
    /// replica.step(Moment::default(), written);
    /// assert_eq!(replica.wakes_at(), Some(Moment(terms.lease.renew)));
    /// # Ok::<(), swarm_replicas::machine::MemberIdError>(())
    /// ```
    #[must_use]
    pub fn wakes_at(&self) -> Option<Moment> {
        if self.is_over() {
            return None;
        }
        let joins = self.joins_since.map(|since| since.after(self.terms.join_window));
        let joins = joins.filter(|_| self.change.is_none());
        // A moment that has passed already waits for something other than time.
        let others = self.peers_wake_at().filter(|at| self.stepped_at < *at);
        [self.own.wakes_at(), joins, others].into_iter().flatten().min()
    }
}
