//! Forms of a ledger: the objects that store it, and the memory that a process keeps of them.

use std::collections::BTreeMap;

use swarm_client::api::{
    Claimant, Holdings, PartHoldings, PartName, SwarmLedger, SwarmLedgerSpec, Writer,
};
use swarm_core::Ledger;
use swarm_core::parts::{Part, Split, join};
use swarm_core::ports::{Seen, StoreError};
use swarm_core::stored::Stored;

use super::parts::{self, Contents};
use super::seen;
use super::writer::Standing;
use crate::annotations::{PARTS_LEFT_ANNOTATION, SOURCES_ANNOTATION};
use crate::version;
use crate::watch::rollback::{Epoch, Rollbacks};

/// The number of jobs from which a pool is large. The ledger of a large pool stays in memory in its
/// decoded form, since decoding it in each turn would take most of the turn.
pub(crate) const LARGE_POOL_JOBS: usize = 10_000;

/// The ledger that this process last read or wrote, as text. Text takes a quarter of the memory of
/// the decoded form, and of a thousand pools only a few are active at a time.
#[derive(Default)]
pub(super) struct Memory {
    /// The last known state. A stale state is harmless, because the save would conflict.
    pub(super) head: Option<Head>,
    /// The newest known state of the object, from the last read or write.
    newest: Option<Newest>,
    /// The contents of the parts. Parts never change, so these stay correct for any later head.
    pub(super) contents: Contents,
    /// Whether this process is the writer.
    pub(super) standing: Standing,
}

/// A state of the object that later states must not fall behind.
struct Newest {
    uid: String,
    version: u64,
    revision: u64,
    /// The epoch of the store in which the state was seen.
    epoch: Epoch,
}

impl Memory {
    /// Records the state of the object. Returns whether an earlier state was newer, and reports
    /// that.
    pub(super) fn is_rolled_back(&mut self, head: &Head, rollbacks: &Rollbacks) -> bool {
        let Head { seen, uid, revision, .. } = head;
        let version = version::number(Some(&seen.0));
        let newest =
            Newest { uid: uid.clone(), version, revision: *revision, epoch: rollbacks.epoch() };
        let before = self.newest.replace(newest).filter(|before| before.uid == *uid);
        let Some(before) = before else {
            // The object was restored or recreated, so its writer displaced no other writer.
            self.standing = Standing::Unknown;
            return false;
        };
        let what = || format!("ledger `{uid}`");
        if rollbacks.compare(before.epoch, before.version, version, what) {
            return true;
        }
        let is_reset = *revision < before.revision;
        if is_reset {
            let evidence =
                format!("ledger `{uid}` is at revision {revision} and was at {}", before.revision);
            rollbacks.report(before.epoch, &evidence);
        }
        is_reset
    }
}

/// The state of a ledger's main object.
pub(super) struct Head {
    spec: Box<[u8]>,
    pub(super) seen: Seen,
    pub(super) uid: String,
    pub(super) revision: u64,
    pub(super) writer: Option<Writer>,
    pub(super) parts: Vec<PartName>,
    /// Whether unneeded parts may exist.
    pub(super) is_untidy: bool,
    /// The record of the ConfigMaps that the jobs come from, as text.
    pub(super) sources: String,
    /// The ledger, if it is large.
    pub(super) large: Option<Ledger>,
}

impl Head {
    /// Keeps the needed fields of a ledger, with the metadata of the stored `object`.
    pub(super) fn of(spec: &SwarmLedgerSpec, object: &SwarmLedger) -> Result<Self, StoreError> {
        let what = || format!("ledger of pool `{}`", spec.pool.name);
        let text = serde_json::to_vec(spec)
            .map_err(|error| StoreError::Unavailable { what: what(), source: error.into() })?;
        let annotations = object.metadata.annotations.as_ref();
        Ok(Self {
            spec: text.into_boxed_slice(),
            seen: seen(object),
            uid: object.metadata.uid.clone().unwrap_or_default(),
            revision: u64::try_from(spec.revision).unwrap_or_default(),
            writer: spec.writer.clone(),
            parts: spec.holdings.parts.clone(),
            is_untidy: annotations.is_some_and(|all| all.contains_key(PARTS_LEFT_ANNOTATION)),
            sources: annotations
                .and_then(|all| all.get(SOURCES_ANNOTATION))
                .cloned()
                .unwrap_or_default(),
            large: None,
        })
    }

    /// Keeps the decoded ledger of this head, if it is large.
    pub(super) fn keep(&mut self, ledger: &Ledger) {
        self.large = (LARGE_POOL_JOBS <= ledger.cells.jobs.len()).then(|| ledger.clone());
    }

    /// Decodes the content of the object.
    pub(super) fn spec(&self) -> Result<SwarmLedgerSpec, StoreError> {
        serde_json::from_slice(&self.spec).map_err(|error| StoreError::Unavailable {
            what: "the ledger in memory".into(),
            source: error.into(),
        })
    }

    /// The size of the object, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.spec.len()
    }

    /// The ledger of this head, whose parts have these `contents`.
    pub(super) fn ledger(&self, contents: &Contents) -> Result<Ledger, StoreError> {
        if let Some(ledger) = &self.large {
            return Ok(ledger.clone());
        }
        let spec = self.spec()?;
        let pool = spec.pool.name.clone();
        let part = |name: &PartName| -> Result<Part, String> {
            let holdings = contents.get(name);
            parts::read(holdings.ok_or_else(|| format!("part {name} was not read"))?)
        };
        let parts: Result<Vec<_>, _> = self.parts.iter().map(part).collect();
        from_spec(spec, parts.map_err(|detail| unreadable(&pool, &detail))?)
    }
}

/// A counter as the API stores it, up to the largest number that the API can carry. Real counters
/// stay far below: a token starts at microseconds since 1970, and rises by one a move.
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Names the parts of a divided ledger. A part that equals its counterpart in `before` keeps its
/// name. All other parts get a new name at `revision`.
pub(super) fn names(split: &Split<'_>, before: &[PartName], revision: u64) -> Vec<PartName> {
    let is_same_count = before.len() == split.digests().len();
    let name = |(place, digest): (usize, &u64)| {
        let old = before.get(place).filter(|old| is_same_count && old.digest == *digest);
        old.copied().unwrap_or(PartName { revision, digest: *digest })
    };
    split.digests().iter().enumerate().map(name).collect()
}

/// The contents of the named parts that are not in `before`.
pub(super) fn new_contents(
    split: &Split<'_>,
    names: &[PartName],
    before: &[PartName],
) -> Result<Contents, StoreError> {
    let is_new = |(_, name): &(usize, &PartName)| !before.contains(name);
    let places: BTreeMap<_, _> =
        names.iter().enumerate().filter(is_new).map(|(place, name)| (place, *name)).collect();
    let parts = split.parts(&places.keys().copied().collect());
    let holdings = |(place, part)| {
        let name = places[&place];
        let holdings = PartHoldings::of(&part).map_err(|detail| StoreError::Refused {
            code: "LedgerTooLarge",
            reason: format!("part {name} of a ledger cannot be written: {detail}"),
        });
        Ok((name, holdings?))
    };
    parts.into_iter().map(holdings).collect()
}

/// Builds the spec of the object for `stored`, with its jobs in these parts, if any.
pub(super) fn to_spec(
    stored: Stored,
    parts: Vec<PartName>,
    swarm: &Claimant,
    pool: &Claimant,
) -> SwarmLedgerSpec {
    let Stored {
        incarnation,
        revision,
        version,
        first_token,
        longest_lease_ms,
        has_shares,
        holders,
        waits,
        strikes,
    } = stored;
    SwarmLedgerSpec {
        swarm: swarm.clone(),
        pool: pool.clone(),
        writer: None,
        revision: number(revision),
        version: number(version),
        first_token: number(first_token),
        holdings: Holdings {
            incarnation,
            longest_lease_ms,
            has_shares,
            parts,
            holders,
            waits,
            strikes,
        },
    }
}

fn from_spec(spec: SwarmLedgerSpec, parts: Vec<Part>) -> Result<Ledger, StoreError> {
    let unreadable = |detail: String| unreadable(&spec.pool.name, &detail);
    let number = |value: i64| {
        u64::try_from(value).map_err(|_| unreadable(format!("{value} is not a counter")))
    };
    let Holdings {
        incarnation,
        longest_lease_ms,
        has_shares,
        parts: named,
        holders,
        waits,
        strikes,
    } = spec.holdings;
    if !named.is_empty() && !named.len().is_power_of_two() {
        return Err(unreadable(format!("it names {} parts, and no power of two", named.len())));
    }
    let stored = Stored {
        incarnation,
        revision: number(spec.revision)?,
        version: number(spec.version)?,
        first_token: number(spec.first_token)?,
        longest_lease_ms,
        has_shares,
        holders,
        waits,
        strikes,
    };
    let ledger = if parts.is_empty() { Ledger::try_from(stored) } else { join(stored, parts) };
    ledger.map_err(|error| unreadable(error.to_string()))
}

fn unreadable(pool: &str, detail: &str) -> StoreError {
    let reason = format!("the ledger of pool `{pool}` cannot be read: {detail}");
    StoreError::Refused { code: "LedgerUnreadable", reason }
}

#[cfg(test)]
mod tests;
