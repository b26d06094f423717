//! The stored form of a ledger: grouped by holder, so that a job costs little more than its name.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Ledger, SlotRecord, Token};
use crate::handover::{Cell, Cells, Record, SessionId};
use crate::{JobName, JobNameError, Slot};

/// A whole ledger, in types that any format can represent. Job names are not escaped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase", deny_unknown_fields))]
pub struct Stored {
    /// The incarnation of the ledger.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub incarnation: u64,
    /// The number of changes so far.
    pub revision: u64,
    /// The number of publications so far.
    pub version: u64,
    /// The token with which new jobs begin.
    pub first_token: u64,
    /// The longest Lease duration of an unseen session, in milliseconds.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub longest_lease_ms: u64,
    /// Whether a job in this ledger may have a share.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub has_shares: bool,
    /// The sessions with their jobs: sessions that fill a slot, and former sessions.
    #[cfg_attr(feature = "serde", serde(default))]
    pub holders: Vec<StoredHolder>,
    /// The jobs without a holder.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub waits: BTreeMap<String, Waits>,
    /// The number of crashes that each job is blamed for; jobs without any are left out.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub strikes: BTreeMap<String, u32>,
}

/// A session and its jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase", deny_unknown_fields))]
pub struct StoredHolder {
    /// The session, as text.
    pub session: String,
    /// The slot it fills, or filled.
    pub slot: u32,
    /// The worker's name, if it still fills the slot.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub worker: Option<String>,
    /// The publication that last changed the slot's set of jobs.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub version: u64,
    /// The publication that last moved one of the slot's jobs to another slot.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub last_handoff_version: u64,
    /// The revision at which it joined the slot, if there were jobs that all sessions run.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub joined: u64,
    /// The granted jobs, each with its token.
    #[cfg_attr(feature = "serde", serde(default))]
    pub jobs: BTreeMap<String, u64>,
    /// The jobs that it was asked to release.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub releasing: BTreeMap<String, Releasing>,
}

/// A release under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase", deny_unknown_fields))]
pub struct Releasing {
    /// The token of the grant that ends.
    pub token: u64,
    /// The revision at which the release began.
    pub since: u64,
}

/// The state of a job without a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase", deny_unknown_fields))]
pub enum Waits {
    /// The job waits for a decision.
    #[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
    Free {
        /// The token of the last grant.
        token: u64,
    },
    /// The job waits for the worker of a slot.
    #[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
    Hold {
        /// The slot.
        slot: u32,
        /// The longest time to wait, in milliseconds.
        span_ms: u64,
        /// The token of the last grant.
        token: u64,
    },
    /// The job is quarantined.
    #[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
    Quarantined {
        /// The duration of the quarantine, in milliseconds.
        span_ms: u64,
        /// The token of the last grant.
        token: u64,
    },
    /// The job has finished.
    #[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
    Done {
        /// The token under which it finished.
        token: u64,
    },
    /// Every session runs the job.
    #[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
    Everywhere {
        /// The token under which all sessions run it.
        token: u64,
    },
    /// Every session is asked to release the job.
    #[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
    ReleasingAll {
        /// The token under which all sessions ran it.
        token: u64,
        /// The revision at which the release began.
        since: u64,
    },
}

/// The reason why a stored text is not a ledger.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoredError {
    /// A job has an invalid name.
    #[error(transparent)]
    Name(#[from] JobNameError),
    /// A job occurs twice. Two holders would both run it, and swarm never writes such a ledger.
    #[error("job `{0}` occurs twice")]
    TwoHolders(JobName),
    /// A session occurs twice.
    #[error("session `{0}` occurs twice")]
    TwoSessions(String),
    /// A slot is filled twice.
    #[error("slot {0} is filled twice")]
    TwoInSlot(Slot),
}

/// Returns a span in whole milliseconds, rounded up, so that readers never wait shorter.
pub(crate) fn whole_millis(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl From<&Ledger> for Stored {
    fn from(ledger: &Ledger) -> Self {
        let Ledger { cells, version, slots, former, longest_lease } = ledger;
        let mut holders = BTreeMap::<&SessionId, StoredHolder>::new();
        for (slot, SlotRecord { worker, session, joined, version, last_handoff_version }) in slots {
            let holder = StoredHolder {
                session: session.to_stored(),
                slot: slot.0,
                worker: Some(worker.clone()),
                joined: *joined,
                version: *version,
                last_handoff_version: *last_handoff_version,
                ..StoredHolder::default()
            };
            holders.insert(session, holder);
        }
        for (session, slot) in former {
            let (session_text, slot) = (session.to_stored(), slot.0);
            let holder = StoredHolder { session: session_text, slot, ..StoredHolder::default() };
            holders.insert(session, holder);
        }
        let Cells { incarnation, revision, first_token, has_shares, jobs } = cells;
        let mut stored = Self {
            incarnation: *incarnation,
            revision: *revision,
            version: *version,
            first_token: first_token.0,
            longest_lease_ms: whole_millis(*longest_lease),
            has_shares: *has_shares,
            ..Self::default()
        };
        for (job, Record { cell, strikes }) in jobs {
            if *strikes > 0 {
                stored.strikes.insert(job.to_string(), *strikes);
            }
            let waits = match cell {
                Cell::Granted { session, token } => {
                    let holder = holders.entry(session).or_insert_with(|| unplaced(session));
                    holder.jobs.insert(job.to_string(), token.0);
                    continue;
                }
                Cell::Releasing { session, token, since } => {
                    let holder = holders.entry(session).or_insert_with(|| unplaced(session));
                    let releasing = Releasing { token: token.0, since: *since };
                    holder.releasing.insert(job.to_string(), releasing);
                    continue;
                }
                Cell::Free { .. }
                | Cell::Hold { .. }
                | Cell::Quarantined { .. }
                | Cell::Done { .. }
                | Cell::Everywhere { .. }
                | Cell::ReleasingAll { .. } => waits(cell),
            };
            stored.waits.extend(waits.map(|waits| (job.to_string(), waits)));
        }
        stored.holders = holders.into_values().collect();
        stored.holders.sort_by(|a, b| (a.slot, &a.session).cmp(&(b.slot, &b.session)));
        stored
    }
}

/// Returns a holder whose slot is unknown: it can only release jobs.
fn unplaced(session: &SessionId) -> StoredHolder {
    StoredHolder { session: session.to_stored(), slot: Slot::NOBODY.0, ..StoredHolder::default() }
}

impl TryFrom<Stored> for Ledger {
    type Error = StoredError;

    fn try_from(stored: Stored) -> Result<Self, StoredError> {
        let mut ledger = Self::new(stored.first_token);
        ledger.version = stored.version;
        ledger.longest_lease = Duration::from_millis(stored.longest_lease_ms);
        ledger.cells.incarnation = stored.incarnation;
        ledger.cells.revision = stored.revision;
        ledger.cells.has_shares = stored.has_shares;
        let mut strikes = stored.strikes;
        let mut jobs = BTreeMap::new();
        let mut put = |name: String, cell: Cell| {
            let job = JobName::new(&name)?;
            let record = Record { cell, strikes: strikes.remove(&name).unwrap_or_default() };
            match jobs.insert(job.clone(), record) {
                None => Ok(()),
                Some(_) => Err(StoredError::TwoHolders(job)),
            }
        };
        let mut sessions = BTreeSet::new();
        for holder in stored.holders {
            let session = SessionId::from_stored(&holder.session);
            if !sessions.insert(session.clone()) {
                return Err(StoredError::TwoSessions(holder.session));
            }
            for (job, token) in holder.jobs {
                put(job, granted(&session, token))?;
            }
            for (job, release) in holder.releasing {
                put(job, releasing(&session, release))?;
            }
            let slot = Slot(holder.slot);
            let Some(worker) = holder.worker else {
                ledger.former.insert(session, slot);
                continue;
            };
            let StoredHolder { joined, version, last_handoff_version, .. } = holder;
            let record = SlotRecord { worker, session, joined, version, last_handoff_version };
            match ledger.slots.insert(slot, record) {
                None => {}
                Some(_) => return Err(StoredError::TwoInSlot(slot)),
            }
        }
        for (job, waits) in stored.waits {
            put(job, cell(waits))?;
        }
        ledger.cells.jobs = jobs.into();
        Ok(ledger)
    }
}

pub(super) fn granted(session: &SessionId, token: u64) -> Cell {
    Cell::Granted { session: session.clone(), token: Token(token) }
}

pub(super) fn releasing(session: &SessionId, Releasing { token, since }: Releasing) -> Cell {
    Cell::Releasing { session: session.clone(), token: Token(token), since }
}

/// Returns the stored state of a job without a holder; `None` if the job has a holder.
pub(super) fn waits(cell: &Cell) -> Option<Waits> {
    match cell {
        Cell::Granted { .. } | Cell::Releasing { .. } => None,
        Cell::Free { token } => Some(Waits::Free { token: token.0 }),
        Cell::Hold { slot, span, token } => {
            Some(Waits::Hold { slot: slot.0, span_ms: whole_millis(*span), token: token.0 })
        }
        Cell::Quarantined { span, token } => {
            Some(Waits::Quarantined { span_ms: whole_millis(*span), token: token.0 })
        }
        Cell::Done { token } => Some(Waits::Done { token: token.0 }),
        Cell::Everywhere { token } => Some(Waits::Everywhere { token: token.0 }),
        Cell::ReleasingAll { token, since } => {
            Some(Waits::ReleasingAll { token: token.0, since: *since })
        }
    }
}

pub(super) fn cell(waits: Waits) -> Cell {
    match waits {
        Waits::Free { token } => Cell::Free { token: Token(token) },
        Waits::Hold { slot, span_ms, token } => Cell::Hold {
            slot: Slot(slot),
            span: Duration::from_millis(span_ms),
            token: Token(token),
        },
        Waits::Quarantined { span_ms, token } => {
            Cell::Quarantined { span: Duration::from_millis(span_ms), token: Token(token) }
        }
        Waits::Done { token } => Cell::Done { token: Token(token) },
        Waits::Everywhere { token } => Cell::Everywhere { token: Token(token) },
        Waits::ReleasingAll { token, since } => Cell::ReleasingAll { token: Token(token), since },
    }
}
