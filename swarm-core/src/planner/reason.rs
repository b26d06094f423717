//! The reasons of moves, and of jobs without a holder. The lists may grow; each reason has a
//! documented word.

/// The reason why a job changes its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum MoveReason {
    /// The job had no holder.
    New,
    /// The job is no longer wanted.
    Removed,
    /// Its worker no longer exists.
    WorkerGone,
    /// Its worker had more than its quota. This reason, [`NotReady`](Self::NotReady) and
    /// [`Failing`](Self::Failing) are voluntary, so a budget bounds them; all others are forced.
    Balance,
    /// Its plain worker has not been ready for too long, and a ready worker has room.
    NotReady,
    /// It is pinned to a slot other than its previous one.
    Pin,
    /// Its worker had more jobs than it may have, or its share is reserved elsewhere.
    Capacity,
    /// It failed too often in a row on its worker, and another worker has room. Voluntary, so a
    /// budget bounds it.
    Failing,
    /// It lost its holder, and no worker can take it.
    Unassigned(Unassigned),
}

/// The reason why a job has no holder.
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
    /// It had no holder when the pool was paused.
    Paused,
    /// It is suspended. Neither workers nor room would change that.
    Suspended,
    /// The workers that could take it are plain ones, which acknowledge nothing. Under
    /// [`Policy::Exclusive`](crate::handover::Policy) only a worker that can prove a release
    /// receives jobs.
    PlainWorkers,
}

impl MoveReason {
    /// All reasons that this version knows, except [`Unassigned`](Self::Unassigned) with each of
    /// [its reasons](Unassigned::ALL).
    pub const ALL: &[Self] = &[
        Self::New,
        Self::Removed,
        Self::WorkerGone,
        Self::Balance,
        Self::NotReady,
        Self::Pin,
        Self::Capacity,
        Self::Failing,
    ];

    /// Returns the documented word for the reason, as logs, Events and the CLI print it.
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
            Self::Failing => "failing",
            Self::Unassigned(reason) => reason.as_str(),
        }
    }
}

impl Unassigned {
    /// All reasons that this version knows.
    pub const ALL: &[Self] = &[
        Self::NoWorkers,
        Self::PoolIncomplete,
        Self::Pin,
        Self::Capacity,
        Self::Paused,
        Self::Suspended,
        Self::PlainWorkers,
    ];

    /// Returns the documented word for the reason, as logs, Events and the CLI print it.
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
