//! What a turn goes by: what the user asks for, and what was seen of the pool.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::handover::{Evidence, Policy, SessionId};
use crate::{Autoscale, JobName, Jobs, Position, Presence, Rules, Share, Slot, Timing, View};

/// What the user asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase", deny_unknown_fields))]
#[non_exhaustive]
pub struct Desired {
    /// The jobs, each to be run by one worker, or by all.
    pub jobs: Jobs,
    /// By how many workers each job is run.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub replication: Replication,
    /// How to plan.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub rules: Rules,
    /// The most jobs one worker may have; `None` for any number.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub max_jobs: Option<u32>,
    /// The most jobs of the workers in single slots, in place of [`max_jobs`](Self::max_jobs). It is
    /// asked for, not seen, so that it holds while a worker is away or has just started.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub max_jobs_by_slot: BTreeMap<Slot, u32>,
    /// How much of the workers in single slots jobs can reserve, in percent of the largest workers; all
    /// of one that is not here.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub capacity_by_slot: BTreeMap<Slot, Share>,
    /// How long to wait for absent workers.
    #[cfg_attr(feature = "serde", serde(default))]
    pub timing: Timing,
    /// What it takes to end an ownership.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub policy: Policy,
    /// Whether everything is to stay as it is.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub paused: bool,
    /// Whether nobody is to run any job for now.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub suspend: bool,
    /// For how long after a change of the ledger further changes are gathered.
    #[cfg_attr(
        feature = "serde",
        serde(
            rename = "batchWindowMs",
            with = "crate::wire::millis",
            default,
            skip_serializing_if = "crate::wire::is_default"
        )
    )]
    pub batch_window: Duration,
    /// How many workers the pool is to have; `None` if the workload decides, not the user.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub replicas: Option<u32>,
    /// How that number follows the jobs, where it does. [`decide`](crate::decide) goes by
    /// [`replicas`](Self::replicas) alone, which an [`Autoscaler`](crate::Autoscaler) decides on.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub autoscale: Option<Autoscale>,
}

impl Desired {
    /// The `jobs`, each on one worker, with defaults for all else.
    ///
    /// The default policy is [`Policy::AtLeastOnce`], which any worker can follow; with
    /// [`Policy::Exclusive`] only [sessions](crate::session) are given jobs.
    ///
    /// ```
    /// use swarm_core::handover::Policy;
    /// use swarm_core::{Desired, jobs};
    ///
    /// let mut desired = Desired::new(jobs(["a", "b"])?);
    /// desired.policy = Policy::Exclusive;
    /// # Ok::<(), swarm_core::JobsError>(())
    /// ```
    #[must_use]
    pub fn new(jobs: Jobs) -> Self {
        Self { jobs, ..Self::default() }
    }

    /// The most jobs that the worker in `slot` may have; `None` for any number.
    ///
    /// ```
    /// use swarm_core::{Desired, Slot};
    ///
    /// let mut desired = Desired::default();
    /// desired.max_jobs = Some(10);
    /// desired.max_jobs_by_slot = [(Slot(1), 40)].into(); // a larger machine
    /// assert_eq!([0, 1].map(|n| desired.max_jobs_of(Slot(n))), [Some(10), Some(40)]);
    /// ```
    #[must_use]
    pub fn max_jobs_of(&self, slot: Slot) -> Option<u32> {
        self.max_jobs_by_slot.get(&slot).copied().or(self.max_jobs)
    }

    /// How much of the worker in `slot` jobs can reserve, in percent of the largest workers; `None` for
    /// all of it.
    ///
    /// ```
    /// use swarm_core::{Desired, Share, Slot};
    ///
    /// let mut desired = Desired::default();
    /// desired.capacity_by_slot = [(Slot(1), Share::new(50)?)].into(); // a machine of half the size
    /// assert_eq!(desired.capacity_of(Slot(1)).map(Share::percent), Some(50));
    /// assert_eq!(desired.capacity_of(Slot(0)), None);
    /// # Ok::<(), swarm_core::ShareError>(())
    /// ```
    #[must_use]
    pub fn capacity_of(&self, slot: Slot) -> Option<Share> {
        self.capacity_by_slot.get(&slot).copied()
    }
}

/// By how many workers each job is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub enum Replication {
    /// By exactly one.
    #[default]
    One,
    /// By every one.
    All,
}

/// What was seen of the pool.
///
/// There is no default: whoever forgets the positions would not notice that a ledger was rolled
/// back, and grant jobs that others run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Observed {
    /// Every slot that is wanted or still filled.
    pub workers: BTreeMap<Slot, WorkerSeen>,
    /// How many workers the workload is meant to have.
    pub workers_desired: usize,
    /// For how long the pool has been watched, on a monotonic clock.
    pub watched_for: Duration,
    /// The wall clock in microseconds since 1970. Only the first token of a new ledger, or of one that
    /// starts again after a loss, is taken from it.
    pub unix_time_us: u64,
    /// What is known of sessions. Plain workers need none.
    pub evidence: BTreeMap<SessionId, Evidence>,
    /// For how long each cell of the ledger has been seen as it is; a missing one counts as new.
    pub ages: BTreeMap<JobName, Duration>,
    /// What is known of how far the ledger was: by live sessions that report to have acted on a view,
    /// and by the operator itself, the furthest that it ever saved or loaded. A ledger that is behind
    /// one of them was lost or rolled back, and starts again. Without any, that is not noticed.
    pub positions: BTreeSet<Position>,
    /// The lowest slot.
    pub first_slot: u32,
    /// How long ago the ledger was changed last; `None` if that does not matter.
    pub since_change: Option<Duration>,
    /// How long ago plain workers last had to release a job; `None` if none can have.
    pub since_handover: Option<Duration>,
    /// The Lease that the user asks sessions for now, which no session that is given jobs exceeds.
    pub lease: Duration,
    /// The longest Lease that was ever asked for, as far as is known.
    pub longest_lease: Duration,
    /// How long a session that nobody knows may go on, by the longest Lease that was ever asked for.
    /// What [`Timing::fence_wait`] says counts if that is more.
    pub fence_wait: Duration,
    /// Number of sessions that have neither renewed their Leases since the operator began to
    /// observe them, nor ended. Such a session may act on a grant that a rollback of the store
    /// lost, so nothing is granted meanwhile.
    pub unrenewed: usize,
    /// The view by which somebody else assigned the jobs of the pool, if the first ledger is to take
    /// that over; `None` otherwise. A pool that has assigned jobs does not look at it.
    pub adoptable: Option<View>,
}

impl Observed {
    /// What was seen of `workers`, at this time of the wall clock, in microseconds since 1970, where the
    /// ledger is known to have been at these `positions`.
    ///
    /// All of the workers are wanted, nothing is known of sessions, and the pool has been watched for
    /// no time: so nothing is proved, and whatever waits for time to pass waits for the longest. To
    /// get further set [`watched_for`](Self::watched_for), and for workers with sessions
    /// [`evidence`](Self::evidence) and [`ages`](Self::ages), or let an
    /// [`Overseer`](crate::overseer::Overseer) make all of it.
    ///
    /// ```
    /// use swarm_core::handover::SessionId;
    /// use swarm_core::{Desired, Ledger, Observed, Presence, Slot, Waiting, WorkerSeen, decide, jobs};
    ///
    /// let session = Some(SessionId::plain("uid"));
    /// let worker = WorkerSeen::new("worker-0", Presence::Ready, session);
    /// let seen = |positions| Observed::new([(Slot(0), worker.clone())], 1, positions);
    ///
    /// // Nothing was ever saved, so there is nothing to compare with.
    /// let desired = Desired::new(jobs(["a"])?);
    /// let saved = decide(&Ledger::new(1), &desired, &seen(vec![])).ledger;
    /// // The store lost that ledger, and has an older one.
    /// let decision = decide(&Ledger::new(1), &desired, &seen(vec![saved.position()]));
    /// assert_eq!(decision.waiting, Some(Waiting::LedgerReset));
    /// # Ok::<(), swarm_core::JobsError>(())
    /// ```
    #[must_use]
    pub fn new(
        workers: impl IntoIterator<Item = (Slot, WorkerSeen)>,
        unix_time_us: u64,
        positions: impl IntoIterator<Item = Position>,
    ) -> Self {
        let workers = BTreeMap::from_iter(workers);
        Self {
            workers_desired: workers.len(),
            workers,
            watched_for: Duration::ZERO,
            unix_time_us,
            evidence: BTreeMap::new(),
            ages: BTreeMap::new(),
            positions: positions.into_iter().collect(),
            first_slot: 0,
            since_change: None,
            since_handover: None,
            lease: Duration::ZERO,
            longest_lease: Duration::ZERO,
            fence_wait: Duration::ZERO,
            unrenewed: 0,
            adoptable: None,
        }
    }

    /// How many workers are ready.
    ///
    /// ```
    /// assert_eq!(swarm_core::Observed::new([], 1, []).ready(), 0);
    /// ```
    #[must_use]
    pub fn ready(&self) -> usize {
        self.workers.values().filter(|seen| seen.presence == Presence::Ready).count()
    }
}

/// What was seen of the worker in a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerSeen {
    /// Its name, the key of its entry in the view. Empty until a worker filled the slot.
    pub name: String,
    /// Whether it is there.
    pub presence: Presence,
    /// Its session; `None` while there is no worker, or none that could be given jobs.
    pub session: Option<SessionId>,
}

impl WorkerSeen {
    /// The worker of this name, whose session is `None` while it can be given nothing.
    ///
    /// ```
    /// use swarm_core::handover::SessionId;
    /// use swarm_core::{Presence, WorkerSeen};
    ///
    /// let plain = WorkerSeen::new("worker-0", Presence::Ready, Some(SessionId::plain("pod-uid")));
    /// assert!(plain.session.is_some_and(|session| session.is_plain()));
    /// ```
    #[must_use]
    pub fn new(name: impl Into<String>, presence: Presence, session: Option<SessionId>) -> Self {
        Self { name: name.into(), presence, session }
    }
}
