//! Reasons why a Swarm is ready or not, as words: reasons of both homes, and reasons of Kubernetes.

use swarm_core::verdict::Reason as Shared;

/// Why a Swarm is ready or not: the reasons of the condition `Ready` and of Events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A reason that one machine can have as well.
    Shared(Shared),
    /// Workers get the newest template of their workload.
    RollingOut,
    /// They should get it, and the rollout does not proceed.
    RolloutStalled,
    /// The pool is meant to have no workers, and there are jobs.
    ScaledToZero,
    /// Workers should be replaced, and may not be.
    RefreshBlocked,
    /// Workers hold Leases for longer than the Swarm allows, so they get no jobs.
    LeaseTooLong,
    /// Workers claim what cannot be, so they are not believed.
    WorkersSuspect,
    /// Many workers are silent at once, so their Leases are not revoked yet.
    RevocationHeld,
    /// Workers do not release jobs that they were asked to release.
    ReleaseUnanswered,
    /// The pool's workload does not exist.
    PoolNotFound,
    /// More than one workload has the labels.
    PoolAmbiguous,
    /// Some pods that have the labels belong to another Swarm.
    PodsClaimed,
    /// A ConfigMap that should hold jobs, or its key, is not there.
    SourceMissing,
    /// A ConfigMap that should hold jobs may not be read.
    SourceForbidden,
    /// A ConfigMap that should hold jobs holds something else.
    SourceInvalid,
    /// The ConfigMaps that hold jobs hold more than is read.
    SourcesTooLarge,
    /// Large lists of jobs of the namespace change all the time, so changes of this one wait.
    SourcesThrottled,
    /// Somebody keeps scaling the pool although the Swarm decides.
    ScaleContested,
    /// Somebody keeps changing the view that the Swarm publishes.
    ViewContested,
    /// The operator makes the pool, or what is in its way goes.
    PoolBeingMade,
    /// The API server refuses the pool as it is asked for.
    PoolRefused,
    /// The operator has no rights to make pools.
    ManagedForbidden,
    /// An object that is to be made exists, and is somebody else's.
    NameTaken,
    /// Somebody keeps changing what the operator has made.
    Contested,
    /// The spec cannot be used.
    InvalidSpec,
    /// A turn panicked, which is a defect of the operator.
    TurnPanicked,
    /// A store refuses for good; the word is the store's.
    Refused(&'static str),
}

impl Reason {
    /// The word in conditions and Events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Shared(reason) => reason.as_str(),
            Self::ScaledToZero => Shared::NoWorkers.as_str(),
            Self::RollingOut => "RollingOut",
            Self::RolloutStalled => "RolloutStalled",
            Self::RefreshBlocked => "RefreshBlocked",
            Self::LeaseTooLong => "LeaseTooLong",
            Self::WorkersSuspect => "WorkersSuspect",
            Self::RevocationHeld => "RevocationHeld",
            Self::ReleaseUnanswered => "ReleaseUnanswered",
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
            | Self::SourcesThrottled
            | Self::PoolBeingMade => false,
            Self::LeaseTooLong
            | Self::RolloutStalled
            | Self::ScaledToZero
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

    /// Whether an Event about it is a warning.
    #[must_use]
    pub fn is_warning(self) -> bool {
        let warns = [
            Self::RefreshBlocked,
            Self::RevocationHeld,
            Self::ReleaseUnanswered,
            Self::Shared(Shared::AllJobsFailing),
        ];
        self.is_stalled() || warns.contains(&self)
    }

    /// Whether it is mostly over in a moment, as where a Swarm is applied before its pool.
    pub(crate) fn is_often_brief(self) -> bool {
        matches!(self, Self::PoolNotFound | Self::SourceMissing)
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
