//! Facts that adapters report without a judgement, and effects that they carry out without a
//! choice.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::handover::{Ack, Holder, Lease, LeaseVersion, SessionId};
use crate::session::Former;
use crate::{Presence, Slot};

/// A fact that an adapter observed. Adapters translate facts, and never judge them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The Lease of a session was read, perhaps from a stale copy.
    Lease(SessionId, LeaseFacts),
    /// The Lease of a session is missing in the store itself, not only in a copy.
    LeaseMissing(SessionId),
    /// The state of the pod with this UID.
    Pod(String, PodFacts),
    /// A view of the session is in the store, and the session may have read it. `None` if the view
    /// was edited, so that its content is unknown.
    View(SessionId, Option<ViewMark>),
    /// No view of the session is in the store.
    ViewMissing(SessionId),
    /// The answer to [`Effect::Revoke`] of this version.
    Revocation(SessionId, LeaseVersion, Answer),
    /// A watch or a request of this observer failed at that moment or before. So a session that
    /// seems silent may only be unheard.
    StoreFailed,
    /// The store was rolled back to an older copy. Report this fact before the facts from that
    /// copy. Ends that were read from the store are doubted until each Lease was read again.
    StoreRolledBack,
}

/// The content of a session's Lease, and facts about the Lease itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseFacts {
    /// The Lease.
    pub lease: Lease,
    /// The time after it sent a renewal for which the session claims that it may act.
    pub duration: Duration,
    /// The start of the session, for a comparison with others of its pod.
    pub began: Began,
    /// The session's report about its predecessor in the same place.
    pub former: Former,
    /// Whether the observer saw the session write this Lease, and did not only find it. The write
    /// may date from before the observer began to oversee this pool, but not from before the last
    /// rollback. An [`Overseer`](super::Overseer) that learns two different writes concludes it by
    /// itself.
    pub has_renewed: bool,
    /// The time between the last two renewals that the observer saw; zero if it saw one. See
    /// [`Renewals`](crate::handover::Renewals).
    pub pause: Duration,
}

impl LeaseFacts {
    /// Returns a Lease that its session holds after `number` writes, and that acknowledges nothing;
    /// for tests and examples.
    ///
    /// ```
    /// use std::time::Duration;
    /// use swarm_core::overseer::LeaseFacts;
    ///
    /// let facts = LeaseFacts::held(3, Duration::from_secs(20));
    /// assert_eq!((facts.lease.version.0, facts.lease.number), (3, 3));
    /// ```
    #[must_use]
    pub fn held(number: u64, duration: Duration) -> Self {
        let (version, ack) = (LeaseVersion(number), Ack::default());
        let lease = Lease { version, holder: Holder::Session, number, ack };
        let (began, former) = (Began::default(), Former::default());
        Self { lease, duration, began, former, has_renewed: false, pause: Duration::ZERO }
    }
}

/// The start of a session, for a comparison of two sessions of one pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Began {
    /// The order in which Leases appeared to this observer; 0 for Leases that existed when
    /// observing began.
    pub order: u64,
    /// The time when the store created its Lease, in seconds since 1970.
    pub created_s: Option<i64>,
}

impl Began {
    /// The largest difference between the clocks of a store's servers and of nodes, in seconds.
    const CLOCKS_DIFFER_S: i64 = 5;

    /// Returns whether this session certainly began after `other`.
    ///
    /// ```
    /// use swarm_core::overseer::Began;
    ///
    /// let at = |order, created_s| Began { order, created_s: Some(created_s) };
    /// assert!(at(2, 7).is_after(at(1, 7)), "it appeared later");
    /// assert!(!at(0, 9).is_after(at(0, 7)), "the clocks of two servers may differ that much");
    /// assert!(at(0, 12).is_after(at(0, 7)));
    /// ```
    #[must_use]
    pub fn is_after(self, other: Self) -> bool {
        if self.order != other.order {
            return other.order < self.order;
        }
        self.created_s.is_some_and(|created| other.is_before(created))
    }

    /// Returns whether this session certainly began before `noted_s`, a time in seconds since 1970.
    ///
    /// ```
    /// use swarm_core::overseer::Began;
    ///
    /// let began = Began { order: 1, created_s: Some(7) };
    /// assert!(began.is_before(12) && !began.is_before(11));
    /// assert!(!Began::default().is_before(12), "the beginning is unknown");
    /// ```
    #[must_use]
    pub fn is_before(self, noted_s: i64) -> bool {
        let later = self.created_s.map(|created| noted_s.saturating_sub(created));
        later.is_some_and(|later| Self::CLOCKS_DIFFER_S <= later)
    }
}

/// The knowledge about a pod's containers that relates its sessions to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Containers {
    /// Unknown: there may be several containers, some of them as old as any session.
    #[default]
    Unknown,
    /// The pod has one container, which runs one process after another.
    One,
    /// The pod has several containers. According to their kubelet, all were started at this time or
    /// later, in seconds since 1970.
    AllSince(i64),
}

/// The state of a pod that has, or had, a session. On one machine, of one instance of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodFacts {
    /// Whether the pod cannot be expected to answer: it does not exist, it has ended, or its node
    /// is unreachable. That alone proves nothing.
    pub is_lost: bool,
    /// Whether its processes are known to have ended: its kubelet reported it, or the observer
    /// itself waited for their end.
    pub has_terminated: bool,
    /// Whether its node is reported as permanently off.
    pub is_node_off: bool,
    /// The containers that may be workers.
    pub containers: Containers,
}

/// The state of the worker in a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerFacts {
    /// Its name, the key of its entry in the view.
    pub name: String,
    /// The state of its pod, with ages on the observer's clock.
    pub presence: Presence,
    /// The UID of its pod; `None` without a pod.
    pub pod: Option<String>,
    /// Whether a worker is wanted in the slot.
    pub is_wanted: bool,
    /// Whether the observer itself replaces a worker whose Lease was revoked, so that its jobs
    /// wait.
    pub is_replaced: bool,
}

/// The state of a pool apart from its sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolFacts {
    /// Every slot that is wanted or still filled.
    pub workers: BTreeMap<Slot, WorkerFacts>,
    /// The number of workers that the workload should have.
    pub workers_desired: usize,
    /// The lowest slot.
    pub first_slot: u32,
    /// Whether its workers must implement the protocol of sessions.
    pub protocol: Protocol,
    /// The time for which the pool has been watched, on a monotonic clock.
    pub watched_for: Duration,
    /// The wall clock in microseconds since 1970.
    pub unix_time_us: u64,
    /// The time since the last change of the ledger; `None` if it does not matter.
    pub since_change: Option<Duration>,
    /// The time since plain workers last had to release a job; `None` if no plain worker can have
    /// had to.
    pub since_handover: Option<Duration>,
}

impl PoolFacts {
    /// Returns the state of a pool with these `workers`, at `unix_time_us` microseconds since 1970.
    ///
    /// The time has no default. It lets a new ledger use higher tokens than a lost one, so a wrong
    /// time may grant old tokens again. The workers must implement the protocol. The pool has been
    /// watched for zero time, so every wait for time to pass takes its full length.
    ///
    /// ```
    /// use swarm_core::handover::{LeaseTerms, Moment, Policy};
    /// use swarm_core::overseer::{Overseer, PoolFacts, WorkerFacts};
    /// use swarm_core::{Presence, Slot};
    ///
    /// let (name, presence, pod) = ("w-0".to_owned(), Presence::Ready, Some("pod".to_owned()));
    /// let worker = WorkerFacts { name, presence, pod, is_wanted: true, is_replaced: false };
    /// let pool = PoolFacts::new([(Slot(0), worker)], 1_790_000_000_000_000);
    /// assert_eq!(pool.workers_desired, 1);
    ///
    /// let mut overseer = Overseer::new(LeaseTerms::default());
    /// let observed = overseer.observed(Moment::default(), Policy::Exclusive, pool);
    /// assert_eq!(observed.unix_time_us, 1_790_000_000_000_000);
    /// ```
    #[must_use]
    pub fn new(workers: impl IntoIterator<Item = (Slot, WorkerFacts)>, unix_time_us: u64) -> Self {
        let workers = BTreeMap::from_iter(workers);
        Self {
            workers_desired: workers.values().filter(|worker| worker.is_wanted).count(),
            workers,
            first_slot: 0,
            protocol: Protocol::default(),
            watched_for: Duration::ZERO,
            unix_time_us,
            since_change: None,
            since_handover: None,
        }
    }
}

/// The kind of workers in a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Any program that reads a view. A worker that has a session is served as a session.
    Plain,
    /// Programs that implement the protocol of sessions. Other programs receive no jobs.
    #[default]
    Session,
}

/// The mark of one published view: its position and a digest of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ViewMark {
    /// The incarnation of the ledger.
    pub incarnation: u64,
    /// The revision of the ledger from which it follows.
    pub revision: u64,
    /// The digest of its jobs and their details.
    pub digest: u64,
}

/// The answer to a revocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The revocation was written, at the requested version.
    Written,
    /// The revocation was refused, or no answer arrived.
    Failed,
}

/// An action for an adapter, which carries it out and never chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Revoke the Lease by compare-and-set, at this version only, and report the
    /// [answer](Fact::Revocation).
    Revoke(SessionId, LeaseVersion),
    /// Read the Lease from the store itself. The ledger names its session, or a view exists, and no
    /// copy shows the Lease.
    LookUp(SessionId),
}
