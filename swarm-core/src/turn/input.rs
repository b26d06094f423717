//! The inputs of a turn: the wishes of the user, and the observed pool.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::Duration;

use crate::handover::{Evidence, Policy, SessionId};
use crate::{
    Autoscale, Job, JobName, Jobs, Position, Presence, Relocation, Rules, RunnerName, Share, Slot,
    Timing, View,
};

/// The wishes of the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase", deny_unknown_fields))]
#[non_exhaustive]
pub struct Desired {
    /// The jobs. One worker runs each job, or every worker does.
    pub jobs: Jobs,
    /// The number of workers that run each job.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub replication: Replication,
    /// The rules of planning.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub rules: Rules,
    /// The largest number of jobs per worker; `None` for any number.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub max_jobs: Option<u32>,
    /// The largest number of jobs per worker for single slots, instead of
    /// [`max_jobs`](Self::max_jobs). It is configured, not observed, so it also holds while a
    /// worker is away or has just started.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub max_jobs_by_slot: BTreeMap<Slot, u32>,
    /// The part of the workers in single slots that jobs can reserve, in percent of the largest
    /// workers. A missing slot has its whole worker.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub capacity_by_slot: BTreeMap<Slot, Share>,
    /// The waiting times, for absent workers and others.
    #[cfg_attr(feature = "serde", serde(default))]
    pub timing: Timing,
    /// The condition under which an ownership may end.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub policy: Policy,
    /// Whether no job may move.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub paused: bool,
    /// Whether no job should run for now.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub suspend: bool,
    /// The time after a change of the ledger within which further changes are collected.
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
    /// The number of workers that the pool should have; `None` if the workload decides, not the
    /// user.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub replicas: Option<u32>,
    /// The rule that adapts this number to the jobs, if there is one. [`decide`](crate::decide)
    /// uses only [`replicas`](Self::replicas), which an [`Autoscaler`](crate::Autoscaler) sets.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub autoscale: Option<Autoscale>,
    /// The number of failures in a row on one worker after which a job that names no runner tries
    /// another worker; `None` for never. A [`Failover`](crate::Failover) finds such jobs.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub failover: Option<NonZeroU32>,
    /// The same number for the jobs that name a runner, by its name. Jobs of other runners never
    /// try another worker.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub failover_by_runner: BTreeMap<RunnerName, NonZeroU32>,
}

impl Desired {
    /// Returns the number of failures in a row on one worker after which `job` tries another one.
    pub(crate) fn failover_of(&self, job: &Job) -> Option<NonZeroU32> {
        match &job.runner {
            None => self.failover,
            Some(runner) => self.failover_by_runner.get(runner).copied(),
        }
    }

    /// Returns whether some jobs may try another worker after failures.
    ///
    /// ```
    /// use std::num::NonZeroU32;
    /// use swarm_core::{Desired, Jobs};
    ///
    /// let mut desired = Desired::new(Jobs::new());
    /// assert!(!desired.has_failover());
    /// desired.failover = NonZeroU32::new(5);
    /// assert!(desired.has_failover());
    /// ```
    #[must_use]
    pub fn has_failover(&self) -> bool {
        self.failover.is_some() || !self.failover_by_runner.is_empty()
    }

    /// Returns wishes for `jobs`, each on one worker, with defaults for everything else.
    ///
    /// The default policy is [`Policy::AtLeastOnce`], which any worker can follow. With
    /// [`Policy::Exclusive`] only [sessions](crate::session) receive jobs.
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

    /// Returns the largest number of jobs for the worker in `slot`; `None` for any number.
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

    /// Returns the part of the worker in `slot` that jobs can reserve, in percent of the largest
    /// workers; `None` for the whole worker.
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

/// The number of workers that run each job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub enum Replication {
    /// Exactly one worker.
    #[default]
    One,
    /// Every worker.
    All,
}

/// The observed state of the pool.
///
/// It has no default. A caller that forgets the positions would not notice that a ledger was rolled
/// back, and would grant jobs that others run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Observed {
    /// Every slot that is wanted or still filled.
    pub workers: BTreeMap<Slot, WorkerSeen>,
    /// The number of workers that the workload should have now.
    pub workers_desired: usize,
    /// The time for which the pool has been watched, on a monotonic clock.
    pub watched_for: Duration,
    /// The wall clock in microseconds since 1970. Only the first token of a new ledger, or of a
    /// ledger that starts again after a loss, comes from it.
    pub unix_time_us: u64,
    /// The evidence about sessions. Plain workers need none.
    pub evidence: BTreeMap<SessionId, Evidence>,
    /// The time for which each cell of the ledger has been seen unchanged; a missing cell counts as
    /// new.
    pub ages: BTreeMap<JobName, Duration>,
    /// The known positions of the ledger: the positions that live sessions report to have acted on,
    /// and the furthest one that the operator itself saved or loaded. A ledger that is behind one
    /// of them was lost or rolled back, and starts again. Without positions, a rollback is not
    /// noticed.
    pub positions: BTreeSet<Position>,
    /// The lowest slot.
    pub first_slot: u32,
    /// The time since the last change of the ledger; `None` if it does not matter.
    pub since_change: Option<Duration>,
    /// The time since plain workers last had to release a job; `None` if no plain worker can have
    /// had to.
    pub since_handover: Option<Duration>,
    /// The Lease duration that the user sets for sessions now. No session that receives jobs
    /// exceeds it.
    pub lease: Duration,
    /// The longest Lease duration that was ever requested, if known.
    pub longest_lease: Duration,
    /// The time for which an unknown session may go on, by the longest Lease duration ever
    /// requested. [`Timing::fence_wait`] counts instead if it is longer.
    pub fence_wait: Duration,
    /// The number of sessions that have neither renewed their Leases since the operator began to
    /// observe them, nor ended. Such a session may act on a grant that a rollback of the store
    /// lost, so nothing is granted meanwhile.
    pub unrenewed: usize,
    /// The view in which another system assigned the jobs of the pool, if the first ledger should
    /// adopt it; `None` otherwise. A pool that has assigned jobs ignores it.
    pub adoptable: Option<View>,
    /// The jobs that avoid workers on which they failed, as a [`Failover`](crate::Failover) knows
    /// them.
    pub relocations: BTreeMap<JobName, Relocation>,
    /// The slots of workers that end again and again without being asked. They keep their jobs, and
    /// get only jobs that no other worker can take.
    pub unsteady: BTreeSet<Slot>,
}

impl Observed {
    /// Returns the observation of `workers` at `unix_time_us` microseconds since 1970, if the
    /// ledger is known to have reached these `positions`.
    ///
    /// All workers are wanted, no session is known, and the pool has been watched for zero time. So
    /// nothing is proved, and every wait for time to pass takes its full length. To get further,
    /// set [`watched_for`](Self::watched_for), and for workers with sessions
    /// [`evidence`](Self::evidence) and [`ages`](Self::ages). An
    /// [`Overseer`](crate::overseer::Overseer) can fill in all of these.
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
            relocations: BTreeMap::new(),
            unsteady: BTreeSet::new(),
        }
    }

    /// Returns the number of ready workers.
    ///
    /// ```
    /// assert_eq!(swarm_core::Observed::new([], 1, []).ready(), 0);
    /// ```
    #[must_use]
    pub fn ready(&self) -> usize {
        self.workers.values().filter(|seen| seen.presence == Presence::Ready).count()
    }
}

/// The observed state of the worker in a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerSeen {
    /// Its name, the key of its entry in the view. Empty until a worker has filled the slot.
    pub name: String,
    /// Its presence.
    pub presence: Presence,
    /// Its session; `None` without a worker, or without one that can receive jobs.
    pub session: Option<SessionId>,
}

impl WorkerSeen {
    /// Returns the worker of this name. Its session is `None` while it can receive no jobs.
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
