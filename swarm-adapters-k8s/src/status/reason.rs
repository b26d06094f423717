//! Reasons why a Swarm is ready or not. Some are shared with the pool on one machine, the others
//! are specific to Kubernetes.

use swarm_core::verdict::Reason as Shared;

/// Reason why a Swarm is ready or not, for the condition `Ready` and for Events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A reason that a pool on one machine can have as well.
    Shared(Shared),
    /// Workers get the newest template of their workload.
    RollingOut,
    /// A rollout of the newest template does not proceed.
    RolloutStalled,
    /// The pool is scaled to no workers, and there are jobs.
    ScaledToZero,
    /// A job is pinned to a worker that cannot exist.
    PinnedOutside,
    /// Workers need a replacement, but a budget or a rule forbids it.
    RefreshBlocked,
    /// Workers hold Leases for longer than the Swarm allows, so they get no jobs.
    LeaseTooLong,
    /// Workers make impossible claims, so the operator ignores them.
    WorkersSuspect,
    /// Many workers are silent at once, so their Leases are not revoked yet.
    RevocationHeld,
    /// Workers of an older version cannot run jobs with the runners that the jobs name.
    WorkersOutdated,
    /// Workers do not release jobs that they were asked to release.
    ReleaseUnanswered,
    /// The pool's workload does not exist.
    PoolNotFound,
    /// More than one workload has the labels.
    PoolAmbiguous,
    /// Some pods with the labels belong to another Swarm.
    PodsClaimed,
    /// A ConfigMap that should hold jobs does not exist, or lacks the key.
    SourceMissing,
    /// The operator has no right to read a ConfigMap that should hold jobs.
    SourceForbidden,
    /// A ConfigMap that should hold jobs has invalid content.
    SourceInvalid,
    /// The ConfigMaps that hold jobs are larger than the operator reads.
    SourcesTooLarge,
    /// Large lists of jobs in the namespace change too often, so changes of this list wait.
    SourcesThrottled,
    /// Another client keeps scaling the pool, although the Swarm decides its size.
    ScaleContested,
    /// Another client keeps changing the view that the Swarm publishes.
    ViewContested,
    /// The operator creates the pool, or waits until an object with its name is deleted.
    PoolBeingMade,
    /// The API server refuses the pool as specified.
    PoolRefused,
    /// The operator has no rights to create pools.
    ManagedForbidden,
    /// An object with the name of a wanted object exists, and the operator did not create it.
    NameTaken,
    /// Another client keeps changing an object of the operator.
    Contested,
    /// The spec cannot be used.
    InvalidSpec,
    /// A turn panicked: a bug in the operator.
    TurnPanicked,
    /// The API server refuses a write or read permanently. The word is its own.
    Refused(&'static str),
}

impl From<Shared> for Reason {
    fn from(reason: Shared) -> Self {
        Self::Shared(reason)
    }
}

impl Reason {
    /// The word for conditions and Events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Shared(reason) => reason.as_str(),
            Self::ScaledToZero => Shared::NoWorkers.as_str(),
            Self::PinnedOutside => Shared::JobsUnassigned.as_str(),
            Self::RollingOut => "RollingOut",
            Self::RolloutStalled => "RolloutStalled",
            Self::RefreshBlocked => "RefreshBlocked",
            Self::LeaseTooLong => "LeaseTooLong",
            Self::WorkersSuspect => "WorkersSuspect",
            Self::RevocationHeld => "RevocationHeld",
            Self::ReleaseUnanswered => "ReleaseUnanswered",
            Self::WorkersOutdated => "WorkersOutdated",
            Self::PoolNotFound => "PoolNotFound",
            Self::PoolAmbiguous => "PoolAmbiguous",
            Self::PodsClaimed => "PodsClaimed",
            Self::SourceMissing => "SourceMissing",
            Self::SourceForbidden => "SourceForbidden",
            Self::SourceInvalid => "SourceInvalid",
            Self::SourcesTooLarge => "SourcesTooLarge",
            Self::SourcesThrottled => "SourcesThrottled",
            Self::ScaleContested => "ScaleContested",
            Self::ViewContested => "ViewContested",
            Self::PoolBeingMade => "PoolBeingMade",
            Self::PoolRefused => "PoolRefused",
            Self::ManagedForbidden => "ManagedForbidden",
            Self::NameTaken => "NameTaken",
            Self::Contested => "Contested",
            Self::InvalidSpec => "InvalidSpec",
            Self::TurnPanicked => "TurnPanicked",
            Self::Refused(code) => code,
        }
    }

    /// Whether only an edit by a person can help.
    #[must_use]
    pub fn is_stalled(self) -> bool {
        match self {
            Self::Shared(_)
            | Self::RollingOut
            | Self::RefreshBlocked
            | Self::RevocationHeld
            | Self::ReleaseUnanswered
            | Self::WorkersOutdated
            | Self::SourcesThrottled
            | Self::PoolBeingMade => false,
            Self::LeaseTooLong
            | Self::RolloutStalled
            | Self::ScaledToZero
            | Self::PinnedOutside
            | Self::WorkersSuspect
            | Self::PoolNotFound
            | Self::PoolAmbiguous
            | Self::PodsClaimed
            | Self::SourceMissing
            | Self::SourceForbidden
            | Self::SourceInvalid
            | Self::SourcesTooLarge
            | Self::ScaleContested
            | Self::ViewContested
            | Self::PoolRefused
            | Self::ManagedForbidden
            | Self::NameTaken
            | Self::Contested
            | Self::InvalidSpec
            | Self::TurnPanicked
            | Self::Refused(_) => true,
        }
    }

    /// Whether an Event with this reason is a warning.
    #[must_use]
    pub fn is_warning(self) -> bool {
        let warns = [
            Self::RefreshBlocked,
            Self::RevocationHeld,
            Self::ReleaseUnanswered,
            Self::WorkersOutdated,
            Self::Shared(Shared::AllJobsFailing),
        ];
        self.is_stalled() || warns.contains(&self)
    }

    /// Whether the reason mostly lasts only a moment, for example when a Swarm is applied before
    /// its pool, or while a new worker starts.
    pub(crate) fn is_often_brief(self) -> bool {
        matches!(
            self,
            Self::PoolNotFound | Self::SourceMissing | Self::Shared(Shared::WorkersMissing)
        )
    }

    pub(super) fn is_ready(self) -> bool {
        matches!(self, Self::Shared(reason) if reason.is_ready())
    }

    pub(super) fn is_reconciling(self) -> bool {
        !self.is_ready()
            && !self.is_stalled()
            && !matches!(self, Self::Shared(Shared::Paused { .. }))
    }
}
