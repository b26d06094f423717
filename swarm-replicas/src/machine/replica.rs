//! A member among the replicas, as a pure machine: what it may act on, and until when.
//!
//! Events go in with the reading of the member's clock, effects come out; whoever drives the machine
//! carries them out and reports back. The clock also counts the time the machine was suspended
//! (`CLOCK_BOOTTIME`). What it does, beside the rules of the [module](super):
//!
//! - It may act until one lease duration after it **sent** the last renewal that succeeded. If a later
//!   renewal succeeds, nobody has revoked its Lease, and it acts on as before.
//! - A Lease that somebody else closed, revoked, deleted or replaced ends it for good.
//! - The set that it aims at is a function of the Leases that it sees: all that are held and neither
//!   leaving nor too new. One change is carried through before the next begins, so members that come
//!   and go do not keep it from declaring any.
//! - A member that is silent for a whole duration is revoked at the version seen. That waits while the
//!   fault is more likely its own: its last renewal failed, or it slept, or most others are silent.

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
    /// What it hosts from now on.
    hosts: Hosts,
    own: Own,
    /// Its own card, as the watch returned it last.
    own_card: Option<Card>,
    /// The number of its own write that the watch returned last; 0 if none was.
    own_seen: u64,
    /// Whether the watch has returned a first list.
    is_listed: bool,
    peers: BTreeMap<MemberId, Peer>,
    /// The set declared by its last write that is known to have landed.
    declared: Arc<Owners>,
    /// The number of the first write that declared it; 0 if none did.
    declared_since: u64,
    /// The set declared before.
    #[cfg(feature = "mutations")]
    formerly: Arc<Owners>,
    change: Option<Change>,
    /// What it acts on, and goes on with. Part of what is declared, and of what is to be.
    owned: Portion,
    /// What is being stopped, by the number of the request. Part of what is declared.
    stops: BTreeMap<u64, Portion>,
    stops_asked: u64,
    /// What is declared, and waits for others, by the moment since when.
    locked: BTreeMap<Moment, Portion>,
    tables: Tables,
    /// Since when members that came wait to be counted.
    joins_since: Option<Moment>,
    /// From when on the silence of others counts.
    counts_from: Moment,
    /// Since when most others have been silent.
    most_silent_since: Option<Moment>,
    stepped_at: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Open,
    /// Everything is being stopped.
    Leaving,
    /// Nothing is acted on any more; the Lease is being closed.
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

    /// The same member with one of its rules broken, for a model check to notice.
    #[cfg(feature = "mutations")]
    #[must_use]
    pub fn without(self, rule: super::Rule) -> Self {
        Self { rules: Rules::without(rule), ..self }
    }

    /// Its identity.
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

    /// Until when it may act on this bucket, if it may at `now`: on what it owns, and on what it is
    /// asked to stop and has not stopped yet. Asked right before each request, whose answer is awaited
    /// until the moment returned at most. O(log controllers).
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

    /// Whether a turn for this bucket may begin at `now`: it is owned and not to be stopped, and the
    /// Lease does not end within a stop timeout. O(log controllers).
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

    /// What it acts on: what it owns, and what it is asked to stop and has not stopped yet. Only
    /// before the [`deadline`](Self::deadline).
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

    /// What it owns, and is not asked to stop.
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

    /// Until when it may act; the clock's start if it never could.
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

    /// Whether it is over: the process ends, or opens another member.
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

    /// Takes in what happened by `now`, and says what to do about it, in order. A renewal of another
    /// member costs O(log members), and O(members · controllers) while anything is locked; a change of
    /// the set [as much](Owners::next) as its table.
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

    /// Takes in all that happened by `now`, in order, and then says what to do about it.
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
        // Whoever slept has heard nobody meanwhile.
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

    /// Brings the set, the buckets and the Lease in line with what is seen and allowed at `now`.
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

    /// Ends at once: it may not act any more.
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

    /// When the mere passing of time next changes something. Whoever drives the machine sends a
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
        // What is due already waits for something else than time.
        let others = self.peers_wake_at().filter(|at| self.stepped_at < *at);
        [self.own.wakes_at(), joins, others].into_iter().flatten().min()
    }
}
