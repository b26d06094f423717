//! What adapters learn and carry out: facts without a judgement, and effects without a choice.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::handover::{Ack, Holder, Lease, LeaseVersion, SessionId};
use crate::session::Former;
use crate::{Presence, Slot};

/// Something that an adapter learned. It translates; it never judges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The Lease of a session was read, perhaps from a stale copy.
    Lease(SessionId, LeaseFacts),
    /// The Lease of a session is missing in the store itself, not only in a copy.
    LeaseMissing(SessionId),
    /// What is known of a pod, by its UID.
    Pod(String, PodFacts),
    /// A view of the session is in the store, which the session may have read; `None` if somebody
    /// edited it, so that it is not known what it says.
    View(SessionId, Option<ViewMark>),
    /// No view of the session is in the store.
    ViewMissing(SessionId),
    /// The answer to [`Effect::Revoke`] of this version.
    Revocation(SessionId, LeaseVersion, Answer),
    /// A watch or a request of this observer failed at that moment, or before: what seems silent may
    /// only be unheard.
    StoreFailed,
    /// The store was rolled back to an older copy. This fact comes before the facts from that copy.
    /// Ends that were read from the store are doubted until each Lease was looked at again.
    StoreRolledBack,
}

/// What the Lease of a session says, and what is known of the Lease itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseFacts {
    /// The Lease.
    pub lease: Lease,
    /// For how long the session claims that it may act after it sent a renewal.
    pub duration: Duration,
    /// When the session began, compared with others of its pod.
    pub began: Began,
    /// What the session says of the one before it in the same place.
    pub former: Former,
    /// Whether the observer saw the session write this Lease, not only found it. The write may be
    /// from before the observer began to oversee this pool, but not from before the last rollback.
    /// An [`Overseer`](super::Overseer) that learns two different writes concludes it by itself.
    pub has_renewed: bool,
}

impl LeaseFacts {
    /// A Lease that its session holds after so many writes, and that acknowledges nothing; for tests
    /// and examples.
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
        Self { lease, duration, began, former, has_renewed: false }
    }
}

/// When a session began, for a comparison of two sessions of one pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Began {
    /// Which Lease it was to appear before this observer; 0 if it was there when observing began.
    pub order: u64,
    /// When its Lease was made, in seconds since 1970, by the store's clock.
    pub created_s: Option<i64>,
}

impl Began {
    /// By how many seconds the clocks of a store's servers, and those of nodes, may differ.
    const CLOCKS_DIFFER_S: i64 = 5;

    /// Whether this one certainly began after `other`.
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

    /// Whether it certainly began before something that is said to have happened at this time, in
    /// seconds since 1970.
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

/// What a pod's containers say about whose sessions are whose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Containers {
    /// Nothing: there are several, and some may have run for as long as any session.
    #[default]
    Unknown,
    /// There is one, which runs one process after another.
    One,
    /// There are several, and by their kubelet all of them were started at this time or later, in
    /// seconds since 1970.
    AllSince(i64),
}

/// What is known of a pod that has, or had, a session. On one machine, of one instance of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodFacts {
    /// Whether nothing is to be expected of it: there is no such pod, it has ended, or its node is
    /// out of reach. That alone proves nothing.
    pub is_lost: bool,
    /// Whether its processes are reported to have ended: by its kubelet, or because the observer
    /// itself waited for their end.
    pub has_terminated: bool,
    /// Whether somebody said that its node is off for good.
    pub is_node_off: bool,
    /// Which of its containers may be workers.
    pub containers: Containers,
}

/// What is known of the worker in a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerFacts {
    /// Its name, the key of its entry in the view.
    pub name: String,
    /// Whether its pod is there, with ages on the observer's clock.
    pub presence: Presence,
    /// The UID of its pod; `None` while there is none.
    pub pod: Option<String>,
    /// Whether somebody is meant to fill the slot.
    pub is_wanted: bool,
    /// Whether the observer itself replaces a worker whose Lease was revoked, so that its jobs wait.
    pub is_replaced: bool,
}

/// What is known of a pool beside its sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolFacts {
    /// Every slot that is wanted or still filled.
    pub workers: BTreeMap<Slot, WorkerFacts>,
    /// How many workers the workload is meant to have.
    pub workers_desired: usize,
    /// The lowest slot.
    pub first_slot: u32,
    /// Whether its workers have to speak the protocol.
    pub protocol: Protocol,
    /// For how long the pool has been watched, on a monotonic clock.
    pub watched_for: Duration,
    /// The wall clock in microseconds since 1970.
    pub unix_time_us: u64,
    /// How long ago the ledger was changed last; `None` if that does not matter.
    pub since_change: Option<Duration>,
    /// How long ago plain workers last had to release a job; `None` if none can have.
    pub since_handover: Option<Duration>,
}

impl PoolFacts {
    /// What is known of `workers`, at this time of the wall clock, in microseconds since 1970.
    ///
    /// There is no default for that time: the tokens of a ledger that was lost are passed by it, so
    /// with a wrong one they may be granted again. The workers have to speak the protocol, and the
    /// pool has been watched for no time, so whatever waits for time to pass waits for the longest.
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

/// What the workers of a pool have to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Any program that reads a view; one that has a session is served as such.
    Plain,
    /// Programs that speak the protocol of sessions; others are given nothing.
    #[default]
    Session,
}

/// What one published view says, in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ViewMark {
    /// The incarnation of the ledger.
    pub incarnation: u64,
    /// The revision of the ledger it follows from.
    pub revision: u64,
    /// The digest of its jobs, with all that is said of them.
    pub digest: u64,
}

/// How a revocation was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It was written, at the version that was asked for.
    Written,
    /// It was refused, or there was no answer.
    Failed,
}

/// What an adapter is asked to do. It carries out; it never chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Revoke the Lease by compare-and-set, at this version only, and report the
    /// [answer](Fact::Revocation).
    Revoke(SessionId, LeaseVersion),
    /// Read the Lease from the store itself: its session is named by the ledger or has a view, and no
    /// copy shows the Lease.
    LookUp(SessionId),
}
