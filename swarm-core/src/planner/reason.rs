//! Why a job moves, and why a job has no holder: lists that may grow, each reason with its documented
//! word.

/// Why a job changes its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum MoveReason {
    /// Nobody held the job.
    New,
    /// The job is no longer wanted.
    Removed,
    /// Its worker is gone.
    WorkerGone,
    /// Its worker had more than its quota. This reason and [`NotReady`](Self::NotReady) are voluntary,
    /// so a budget bounds them; all others are forced.
    Balance,
    /// Its plain worker has not been ready for too long, and a ready one has room.
    NotReady,
    /// It is pinned to a slot other than the one that held it.
    Pin,
    /// Its worker had more jobs than it may have, or its share is reserved elsewhere.
    Capacity,
    /// It lost its holder and nobody can take it.
    Unassigned(Unassigned),
}

/// Why a job has no holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Unassigned {
    /// No worker takes jobs now.
    NoWorkers,
    /// The pool never had an assignment and is not complete yet.
    PoolIncomplete,
    /// It is pinned to a slot that does not exist or takes no jobs now.
    Pin,
    /// The workers that could take it are full.
    Capacity,
    /// Nobody held it when the pool was paused.
    Paused,
    /// Nobody is to run it for now. It asks for nothing else: neither workers nor room would help.
    Suspended,
    /// The workers that could take it are plain ones. They acknowledge nothing, and under
    /// [`Policy::Exclusive`](crate::handover::Policy) a job is given only to a worker that can let go
    /// of it.
    PlainWorkers,
}

impl MoveReason {
    /// The documented word for the reason, as logs, Events and the CLI print it.
    ///
    /// ```
    /// use swarm_core::{MoveReason, Unassigned};
    ///
    /// assert_eq!(MoveReason::WorkerGone.as_str(), "worker-gone");
    /// assert_eq!(MoveReason::Unassigned(Unassigned::NoWorkers).as_str(), "no-workers");
    /// ```
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Removed => "removed",
            Self::WorkerGone => "worker-gone",
            Self::Balance => "balance",
            Self::NotReady => "not-ready",
            Self::Pin => "pin",
            Self::Capacity => "capacity",
            Self::Unassigned(reason) => reason.as_str(),
        }
    }
}

impl Unassigned {
    /// The documented word for the reason, as logs, Events and the CLI print it.
    ///
    /// ```
    /// use swarm_core::Unassigned;
    ///
    /// assert_eq!(Unassigned::PoolIncomplete.as_str(), "pool-incomplete");
    /// ```
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoWorkers => "no-workers",
            Self::PoolIncomplete => "pool-incomplete",
            Self::Pin => "pin",
            Self::Capacity => "capacity",
            Self::Paused => "paused",
            Self::Suspended => "suspended",
            Self::PlainWorkers => "plain-workers",
        }
    }
}
