//! The moves that a ledger has and a history lacks, since the history is written a while later.

use std::collections::BTreeMap;

use super::{Episode, JobMove, since};
use crate::handover::{Cell, SessionId};
use crate::{JobName, Ledger, MoveReason};

/// The reason of a move that only the ledger has. The history gets the reason a while later.
pub const RECENT: &str = "recent";

/// The cause of such moves.
const FROM_LEDGER: &str = "the ledger has this; the history gets the reason and the times soon";

/// The jobs whose moves [`catch_up`] looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// All jobs. The ledger has all of them.
    All,
    /// One job. The ledger may lack others.
    One(&'a JobName),
}

/// Adds an open episode with the moves that `ledger` has and the history lacks. It was written at
/// `written_ms`, in milliseconds since the Unix epoch. Adds nothing if no move is missing.
///
/// The moves have the reason [`RECENT`], and the time of the write as the time of each step. Jobs
/// whose last move has no details are left out, since their previous worker is not known.
/// O(moves · log jobs + jobs).
pub fn catch_up(episodes: &mut Vec<Episode>, ledger: &Ledger, written_ms: u64, scope: Scope<'_>) {
    let Some(last) = episodes.last() else { return };
    let (first_revision, last_revision) = (last.last_revision, ledger.revision());
    if last_revision <= first_revision {
        return;
    }
    let start_ms = written_ms.max(last.end_ms);
    let known = Known::of(episodes, scope);
    let names = names(ledger);
    let mut moves = Vec::new();
    for (job, record) in ledger.cells.jobs.iter().filter(|(job, _)| scope.has(job)) {
        let Some(now) = Now::of(&record.cell, &names) else { continue };
        moves.extend(known.step(job, &now, last_revision));
    }
    let is_gone = |job: &JobName| !ledger.cells.jobs.contains_key(job);
    for job in known.holders.keys().filter(|job| is_gone(job)) {
        moves.extend(known.step(job, &Now::Gone, last_revision));
    }
    if moves.is_empty() {
        return;
    }
    let recent = moves.iter().filter(|it| it.reason == RECENT).count() as u64;
    moves.extend(known.going_on(&moves, start_ms));
    moves.sort_by(|a, b| a.job.cmp(&b.job));
    let counts = [(RECENT.to_owned(), recent)].into_iter().filter(|(_, count)| 0 < *count);
    let counts = counts.collect();
    if let Some(open) = episodes.last_mut().filter(|it| it.is_open) {
        (open.is_open, open.is_cut) = (false, true);
    }
    let causes = vec![FROM_LEDGER.to_owned()];
    let (end_ms, is_open) = (start_ms, true);
    episodes.push(Episode {
        start_ms,
        end_ms,
        causes,
        first_revision,
        last_revision,
        counts,
        moves,
        is_open,
        ..Episode::default()
    });
}

impl Scope<'_> {
    fn has(self, job: &JobName) -> bool {
        match self {
            Self::All => true,
            Self::One(one) => one == job,
        }
    }
}

/// The state of a job in the ledger.
enum Now<'a> {
    Held(&'a str),
    /// Its worker is asked to release it.
    Released(&'a str),
    /// No worker has it.
    Nowhere,
    /// The ledger does not have it.
    Gone,
}

impl<'a> Now<'a> {
    /// Returns `None` for a job that does not move, and for a worker without a known name.
    fn of(cell: &Cell, names: &BTreeMap<&SessionId, &'a str>) -> Option<Self> {
        Some(match cell {
            Cell::Granted { session, .. } => Self::Held(names.get(session)?),
            Cell::Releasing { session, .. } => Self::Released(names.get(session)?),
            Cell::Free { .. } | Cell::Hold { .. } | Cell::Quarantined { .. } => Self::Nowhere,
            Cell::Done { .. } | Cell::Everywhere { .. } | Cell::ReleasingAll { .. } => return None,
        })
    }
}

/// The end of a history.
struct Known<'a> {
    /// The worker of each job, as far as it is known.
    holders: BTreeMap<&'a JobName, Option<&'a str>>,
    /// The moves that go on at the end, and the begin of their episode.
    open: BTreeMap<&'a JobName, &'a JobMove>,
    open_ms: u64,
    /// Whether jobs that are not in `holders` have never had a worker.
    is_whole: bool,
}

impl<'a> Known<'a> {
    fn of(episodes: &'a [Episode], scope: Scope<'_>) -> Self {
        let mut known = Self {
            holders: BTreeMap::new(),
            open: BTreeMap::new(),
            open_ms: 0,
            is_whole: episodes.first().is_some_and(|it| it.first_revision == 0),
        };
        for episode in episodes {
            known.open.clear();
            known.open_ms = episode.start_ms;
            for it in episode.moves.iter().filter(|it| scope.has(&it.job)) {
                known.holders.insert(&it.job, holder(it));
                if episode.is_open && it.granted.is_none() {
                    known.open.insert(&it.job, it);
                } else {
                    known.open.remove(&it.job);
                }
            }
            // Any job may have moved without details.
            if episode.is_gap || 0 < episode.omitted {
                known.holders.clear();
                known.is_whole = false;
            }
        }
        known
    }

    /// Returns the move of a job to its present state; `None` if the history has it.
    fn step(&self, job: &JobName, now: &Now<'_>, revision: u64) -> Option<JobMove> {
        let before = match self.holders.get(job) {
            Some(before) => *before,
            None if self.is_whole && matches!(now, Now::Held(_)) => None,
            None => return None,
        };
        let at = Some(0);
        let mut it = self.open.get(job).map_or_else(
            || JobMove::begun(job.clone(), before.map(str::to_owned), RECENT, revision),
            |it| JobMove { released: it.released.and(at), revision, ..(*it).clone() },
        );
        match *now {
            Now::Held(name) if before != Some(name) => {
                it.acknowledged = it.from.as_ref().and(at);
                (it.to, it.granted) = (Some(name.to_owned()), at);
            }
            Now::Released(name) if !self.open.contains_key(job) => {
                (it.from, it.released) = (Some(name.to_owned()), at);
            }
            Now::Nowhere if before.is_some() => it.acknowledged = at,
            Now::Gone if before.is_some() => {
                (it.to, it.acknowledged) = (None, at);
                MoveReason::Removed.as_str().clone_into(&mut it.reason);
            }
            _ => return None,
        }
        Some(it)
    }

    /// Returns the moves that still go on and are not in `moves`, with times from `start_ms`.
    fn going_on(&self, moves: &[JobMove], start_ms: u64) -> Vec<JobMove> {
        let later = since(self.open_ms, start_ms);
        let earlier = |at: Option<i64>| at.map(|at| at.saturating_sub(later));
        let is_left = |it: &&&JobMove| !moves.iter().any(|other| other.job == it.job);
        let left = self.open.values().filter(is_left).map(|it| JobMove {
            released: earlier(it.released),
            acknowledged: earlier(it.acknowledged),
            ..(*it).clone()
        });
        left.collect()
    }
}

/// Returns the worker that has the job after a move.
fn holder(it: &JobMove) -> Option<&str> {
    match (it.granted, it.acknowledged) {
        (Some(_), _) => it.to.as_deref(),
        (None, Some(_)) => None,
        (None, None) => it.from.as_deref(),
    }
}

/// Returns the names of the workers that fill a slot.
fn names(ledger: &Ledger) -> BTreeMap<&SessionId, &str> {
    ledger.slots.values().map(|it| (&it.session, it.worker.as_str())).collect()
}
