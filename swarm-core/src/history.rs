//! The history of a pool: which jobs moved, when and why.
//!
//! A [`Recorder`] compares the ledger after each turn with the ledger before it. It returns an
//! [`Episode`] each time the pool becomes settled again. An episode is data for people and for
//! metrics; no decision reads it. Times are milliseconds since the Unix epoch, and the caller
//! passes them in.

mod causes;
mod late;
mod outage;
#[cfg(feature = "serde")]
mod packed;
mod recorder;
pub(crate) mod size;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::JobName;
use crate::verdict::counted;

pub use late::{RECENT, Scope, catch_up};
pub use outage::{OUTAGE_MIN_MS, Outage, OutageCause, Outages};
#[cfg(feature = "serde")]
pub use packed::Kept;
pub use recorder::{Begin, MOVES_MAX, PIECE_MAX_MS, Recorded, Recorder, Turned};
pub use size::fit;

/// The changes of a pool from the moment when it was no longer settled until it is settled again.
///
/// A pool that stays unsettled for long has an episode for each [`PIECE_MAX_MS`]. With the feature
/// `serde` it reads and writes objects with fields in camel case, and ignores unknown fields.
///
/// ```
/// use swarm_core::history::Episode;
///
/// let mut episode = Episode::default();
/// (episode.start_ms, episode.end_ms) = (1_000, 3_500);
/// assert_eq!(episode.duration().as_millis(), 2_500);
/// assert_eq!(episode.move_count(), 0);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, rename_all = "camelCase"))]
#[non_exhaustive]
pub struct Episode {
    /// The moment at which it began, in milliseconds since the Unix epoch.
    pub start_ms: u64,
    /// The moment at which it ended, in milliseconds since the Unix epoch.
    pub end_ms: u64,
    /// The observed changes that began it or joined it, as short sentences in order of time.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub causes: Vec<String>,
    /// The revision of the ledger before it.
    pub first_revision: u64,
    /// The revision of the ledger after it.
    pub last_revision: u64,
    /// The number of moves by reason, such as `balance` or `worker-gone`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "BTreeMap::is_empty"))]
    pub counts: BTreeMap<String, u64>,
    /// The moves in the order in which they began.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub moves: Vec<JobMove>,
    /// The edits of jobs that were neither added, removed, suspended nor resumed, the newest last.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub edits: Vec<JobEdit>,
    /// The number of edited jobs that are not in `edits`, for lack of room.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "crate::wire::is_default"))]
    pub edits_omitted: u64,
    /// The number of moves that are in `counts` and not in `moves`, for lack of room.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "crate::wire::is_default"))]
    pub omitted: u64,
    /// A digest of the jobs and their workers at the end, in hexadecimal digits.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "String::is_empty"))]
    pub holders: String,
    /// Whether the pool was not settled at the end, so that the next episode continues this one.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "crate::wire::is_default"))]
    pub is_cut: bool,
    /// Whether it has not ended. `end_ms` is the moment at which it was described.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "crate::wire::is_default"))]
    pub is_open: bool,
    /// Whether the moves of these revisions were not recorded.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "crate::wire::is_default"))]
    pub is_gap: bool,
    /// The [cause](OutageCause::as_str) of an outage with the bounds of this episode; empty without one.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "String::is_empty"))]
    pub outage: String,
}

impl Episode {
    /// Returns the time from its begin to its end.
    #[must_use]
    pub fn duration(&self) -> Duration {
        Duration::from_millis(self.end_ms.saturating_sub(self.start_ms))
    }

    /// Keeps as many jobs of each edit as `fitting` returns, and counts the others. It gets the newest
    /// edit first.
    fn keep_edited(&mut self, mut fitting: impl FnMut(&JobEdit) -> usize) {
        for edit in self.edits.iter_mut().rev() {
            let kept = fitting(edit);
            let omitted = edit.jobs.len().saturating_sub(kept) as u64;
            self.edits_omitted = self.edits_omitted.saturating_add(omitted);
            edit.jobs.truncate(kept);
        }
        self.edits.retain(|edit| !edit.jobs.is_empty());
    }

    /// Returns the number of moves, with and without details.
    #[must_use]
    pub fn move_count(&self) -> u64 {
        self.counts.values().copied().fold(0, u64::saturating_add)
    }
}

/// Shows the counts, the duration and the causes in one sentence.
///
/// ```
/// use swarm_core::history::Episode;
///
/// let mut episode = Episode::default();
/// episode.end_ms = 2_345;
/// episode.counts = [("balance".to_owned(), 2), ("worker-gone".to_owned(), 1)].into();
/// episode.causes = vec!["worker w-1 left".to_owned()];
/// let sentence = "3 jobs changed hands within 2.3 s (balance 2, worker-gone 1): worker w-1 left";
/// assert_eq!(episode.to_string(), sentence);
/// ```
impl fmt::Display for Episode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = usize::try_from(self.move_count()).unwrap_or(usize::MAX);
        let tenths = self.duration().as_millis() / 100;
        let (seconds, tenths) = (tenths / 10, tenths % 10);
        if count == 0 {
            f.write_str("no job changed hands")?;
        } else {
            write!(f, "{} changed hands within ", counted(count, "job"))?;
            if seconds < 60 {
                write!(f, "{seconds}.{tenths} s")?;
            } else {
                write!(f, "{} min {} s", seconds / 60, seconds % 60)?;
            }
        }
        let reasons: Vec<_> =
            self.counts.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
        if !reasons.is_empty() {
            write!(f, " ({})", reasons.join(", "))?;
        }
        if self.causes.is_empty() { Ok(()) } else { write!(f, ": {}", self.causes.join("; ")) }
    }
}

/// A job that changed its worker.
///
/// Each time is relative to the begin of the episode, in milliseconds. It is negative if the move
/// began in the episode before.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
#[non_exhaustive]
pub struct JobMove {
    /// The job.
    pub job: JobName,
    /// The name of the worker that lost it.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub from: Option<String>,
    /// The name of the worker that got it or will get it.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub to: Option<String>,
    /// The reason, a word of [`MoveReason`](crate::MoveReason), [`LEAVING`], [`RETURNED`] or
    /// [`QUARANTINED`].
    pub reason: String,
    /// The revision of the ledger that last changed its holder.
    pub revision: u64,
    /// The moment at which its worker was asked to release it.
    #[cfg_attr(
        feature = "serde",
        serde(default, rename = "releasedMs", skip_serializing_if = "Option::is_none")
    )]
    pub released: Option<i64>,
    /// The moment at which its release was acknowledged or proved.
    #[cfg_attr(
        feature = "serde",
        serde(default, rename = "acknowledgedMs", skip_serializing_if = "Option::is_none")
    )]
    pub acknowledged: Option<i64>,
    /// The moment at which another worker was granted it.
    #[cfg_attr(
        feature = "serde",
        serde(default, rename = "grantedMs", skip_serializing_if = "Option::is_none")
    )]
    pub granted: Option<i64>,
    /// The moment at which that worker acknowledged the grant. Plain workers never do.
    #[cfg_attr(
        feature = "serde",
        serde(default, rename = "runningMs", skip_serializing_if = "Option::is_none")
    )]
    pub running: Option<i64>,
}

/// An edit of the same fields of jobs. Their workers restart them in place if params or the runner
/// differ.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
#[non_exhaustive]
pub struct JobEdit {
    /// The moment at which the operator saw it, relative to the begin of the episode, in
    /// milliseconds.
    #[cfg_attr(feature = "serde", serde(rename = "atMs"))]
    pub at: i64,
    /// The fields that differ, as manifests name them: `params.url`. Values can be secrets, so they
    /// are not here.
    pub fields: Vec<String>,
    /// The edited jobs, in order of their names.
    pub jobs: Vec<JobName>,
}

/// The reason of a job that its worker releases because that worker leaves.
pub const LEAVING: &str = "leaving";

/// The reason of a job that came back to its worker, which had ended or lost its lease.
pub const RETURNED: &str = "returned";

/// The reason of a job that no worker gets for a while, because it crashed several workers.
pub const QUARANTINED: &str = "quarantined";

impl JobMove {
    /// Makes a move that has no step yet.
    fn begun(job: JobName, from: Option<String>, reason: &str, revision: u64) -> Self {
        let [released, acknowledged, granted, running] = [None; 4];
        let (to, reason) = (None, reason.to_owned());
        Self { job, from, to, reason, revision, released, acknowledged, granted, running }
    }

    /// Describes the change of the worker, such as `a: w-0 → w-1 (balance)`; `None` if the job is new
    /// or has no worker.
    #[must_use]
    pub fn sentence(&self) -> Option<String> {
        let Self { job, from, to, reason, .. } = self;
        Some(format!("{job}: {} → {} ({reason})", from.as_ref()?, to.as_ref()?))
    }

    /// Returns the time for which the job ran nowhere, as far as acknowledgements show it. It lasts
    /// from the acknowledged release to the acknowledged grant. `None` for a job without both.
    ///
    /// The job may have ended shortly before the previous worker said so. It may also have begun
    /// shortly before the next worker said so.
    #[must_use]
    pub fn standstill(&self) -> Option<Duration> {
        let time = self.running?.checked_sub(self.acknowledged?)?;
        u64::try_from(time).ok().map(Duration::from_millis)
    }
}

/// Returns the time from `start_ms` to `now_ms`; negative if the clock went back.
fn since(start_ms: u64, now_ms: u64) -> i64 {
    let later = i64::try_from(now_ms.saturating_sub(start_ms)).unwrap_or(i64::MAX);
    let earlier = i64::try_from(start_ms.saturating_sub(now_ms)).unwrap_or(i64::MAX);
    later - earlier
}
