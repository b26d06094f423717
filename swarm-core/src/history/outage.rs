//! Times in which nothing could be written, or in which no operator ran.

use std::fmt;

use crate::verdict::counted;

/// The shortest time without a write that is an outage although all jobs seem to run, in milliseconds:
/// 10 seconds.
pub const OUTAGE_MIN_MS: u64 = 10 * 1_000;

/// The cause of an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OutageCause {
    /// The API server, or its store, took no write.
    ApiServer,
    /// The state directory took no write.
    Disk,
    /// No operator ran.
    Operators,
}

impl OutageCause {
    /// All causes.
    pub const ALL: [Self; 3] = [Self::ApiServer, Self::Disk, Self::Operators];

    /// Returns the word for documents and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ApiServer => "api-server",
            Self::Disk => "disk",
            Self::Operators => "operators",
        }
    }
}

impl fmt::Display for OutageCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ApiServer => "the API server took no write",
            Self::Disk => "the state directory took no write",
            Self::Operators => "no operator ran",
        })
    }
}

/// A time in which nothing could be decided, since nothing could be written or no operator ran.
///
/// ```
/// use swarm_core::history::{Outage, OutageCause};
///
/// let outage = Outage { cause: OutageCause::Disk, from_ms: 1_000, to_ms: 50_000, jobs: 5 };
/// let sentence = "the state directory took no write for 49 s; up to 5 jobs stood still";
/// assert_eq!(outage.to_string(), sentence);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The cause.
    pub cause: OutageCause,
    /// The last moment before it at which something could be written, in milliseconds since the Unix
    /// epoch.
    pub from_ms: u64,
    /// The first such moment after it.
    pub to_ms: u64,
    /// The largest number of jobs that stood still at a time, as far as it is known.
    pub jobs: u64,
}

impl Outage {
    /// Returns whether jobs stood still, or whether it was long.
    #[must_use]
    pub fn is_news(&self) -> bool {
        0 < self.jobs || OUTAGE_MIN_MS <= self.to_ms.saturating_sub(self.from_ms)
    }

    /// Returns its duration in whole seconds.
    #[must_use]
    pub fn seconds(&self) -> u64 {
        self.to_ms.saturating_sub(self.from_ms) / 1_000
    }
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {} s", self.cause, self.seconds())?;
        match usize::try_from(self.jobs).unwrap_or(usize::MAX) {
            0 => Ok(()),
            jobs => write!(f, "; up to {} stood still", counted(jobs, "job")),
        }
    }
}

/// Follows the failed and the successful writes of an operator.
///
/// ```
/// use swarm_core::history::{OutageCause, Outages};
///
/// let mut outages = Outages::default();
/// outages.failed(OutageCause::Disk, 20_000, 3);
/// outages.failed(OutageCause::Disk, 21_000, 5);
/// assert_eq!(outages.succeeded(69_000).unwrap().to_string(),
///     "the state directory took no write for 49 s; up to 5 jobs stood still");
/// outages.failed(OutageCause::Disk, 70_000, 0);
/// assert_eq!(outages.succeeded(72_000), None, "a short one in which no job stood still");
/// assert_eq!(outages.succeeded(99_000), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outages {
    open: Option<Outage>,
}

impl Outages {
    /// Notes a failed write. `last_ms` is the last known moment of a successful one, and `jobs` the number
    /// of jobs without a run now. The first call of an outage sets its begin.
    pub fn failed(&mut self, cause: OutageCause, last_ms: u64, jobs: u64) {
        let open = Outage { cause, from_ms: last_ms, to_ms: last_ms, jobs };
        let open = self.open.get_or_insert(open);
        open.jobs = open.jobs.max(jobs);
    }

    /// Notes a successful write at `now_ms`. Returns the outage that it ends, if
    /// that [is news](Outage::is_news).
    pub fn succeeded(&mut self, now_ms: u64) -> Option<Outage> {
        let ended = Outage { to_ms: now_ms, ..self.open.take()? };
        Some(ended).filter(Outage::is_news)
    }
}
