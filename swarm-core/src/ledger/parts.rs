//! A ledger in parts, for stores whose objects have a limit: what is small stands in a head, and
//! the jobs in parts by the hash of their names, so that a job's change touches one part.
//!
//! A part is told from another by the [digest](Part::digest) of what it says, so that a store need
//! neither write nor look at the parts that stay. Both the hash and the digest are frozen: what is
//! stored goes by them.

use std::collections::{BTreeMap, BTreeSet};

use super::Ledger;
use super::stored::{self, Releasing, Stored, StoredError, Waits};
use crate::handover::{Cell, Cells, Record, SessionId};
use crate::hash::{digest_bytes, mix};
use crate::{JobName, Slot, hash_job};

/// The most bytes of a ledger that stands in one piece.
pub const WHOLE_BYTES_MAX: usize = 900_000;
/// A ledger in parts becomes one piece again when it has no more bytes than these. Between the two
/// it stays as it is, so that a few jobs more or less do not write everything each time.
pub const WHOLE_AGAIN_BYTES_MAX: usize = 600_000;
/// How many bytes a part has at most when a ledger is divided.
const PART_BYTES: usize = 100_000;
/// Parts that have more bytes on average are divided further.
const PART_BYTES_MAX: usize = 128_000;
/// Parts that have fewer bytes on average are put together.
const PART_BYTES_MIN: usize = 30_000;

/// In how many parts to keep a ledger of about `bytes` that is in `now` parts; 0 stands for one
/// piece. Any other answer is a power of two.
///
/// ```
/// use swarm_core::parts::count;
///
/// assert_eq!(count(900_000, 0), 0);
/// assert_eq!(count(1_000_000, 0), 16);
/// assert_eq!(count(800_000, 16), 16); // one piece would do, and everything would be written anew
/// assert_eq!(count(600_000, 16), 0);
/// ```
#[must_use]
pub fn count(bytes: usize, now: usize) -> usize {
    let whole_max = if now == 0 { WHOLE_BYTES_MAX } else { WHOLE_AGAIN_BYTES_MAX };
    if bytes <= whole_max {
        return 0;
    }
    if now != 0 && (now * PART_BYTES_MIN..=now * PART_BYTES_MAX).contains(&bytes) {
        return now;
    }
    bytes.div_ceil(PART_BYTES).next_power_of_two()
}

/// The jobs of one part, in terms that any format can carry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase", deny_unknown_fields))]
pub struct StoredPart {
    /// Sessions, with what they hold of this part. Which slots they fill stands in the head.
    #[cfg_attr(feature = "serde", serde(default))]
    pub holders: Vec<StoredShare>,
    /// The jobs that nobody holds.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "BTreeMap::is_empty"))]
    pub waits: BTreeMap<String, Waits>,
    /// How many crashes a job is blamed for, where it is any.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "BTreeMap::is_empty"))]
    pub strikes: BTreeMap<String, u32>,
}

/// What a session holds of one part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase", deny_unknown_fields))]
pub struct StoredShare {
    /// The session, as text.
    pub session: String,
    /// The jobs it was granted, each with its token.
    #[cfg_attr(feature = "serde", serde(default))]
    pub jobs: BTreeMap<String, u64>,
    /// The jobs it was asked to let go of.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "BTreeMap::is_empty"))]
    pub releasing: BTreeMap<String, Releasing>,
}

/// The jobs of one part, in the order of their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part(Vec<(JobName, Record)>);

impl Part {
    /// Tells parts apart: two that say the same have the same digest, whoever wrote them.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut bytes = Vec::new();
        self.0.iter().fold(0, |digest, (job, record)| continued(digest, job, record, &mut bytes))
    }
}

impl TryFrom<StoredPart> for Part {
    type Error = StoredError;

    fn try_from(stored: StoredPart) -> Result<Self, StoredError> {
        let StoredPart { holders, waits, mut strikes } = stored;
        let mut jobs = Vec::new();
        let mut put = |name: String, cell: Cell| -> Result<(), StoredError> {
            let strikes = strikes.remove(&name).unwrap_or_default();
            jobs.push((JobName::new(&name)?, Record { cell, strikes }));
            Ok(())
        };
        for StoredShare { session, jobs, releasing } in holders {
            let session = SessionId::from_stored(&session);
            for (job, token) in jobs {
                put(job, stored::granted(&session, token))?;
            }
            for (job, release) in releasing {
                put(job, stored::releasing(&session, release))?;
            }
        }
        for (job, waits) in waits {
            put(job, stored::cell(waits))?;
        }
        sort(&mut jobs)?;
        Ok(Self(jobs))
    }
}

/// Brings jobs into order, each of which may stand there once.
fn sort(jobs: &mut [(JobName, Record)]) -> Result<(), StoredError> {
    // Several runs that are in order already: this sort makes use of them.
    jobs.sort_by(|(a, _), (b, _)| a.cmp(b));
    match jobs.windows(2).find(|two| two[0].0 == two[1].0) {
        None => Ok(()),
        Some(two) => Err(StoredError::TwoHolders(two[0].0.clone())),
    }
}

/// A ledger, divided.
#[derive(Clone, Debug)]
pub struct Split<'a> {
    ledger: &'a Ledger,
    /// The part of each job, in the order of their names.
    places: Vec<usize>,
    digests: Vec<u64>,
}

impl<'a> Split<'a> {
    /// Divides `ledger` into `count` parts, a power of two. O(jobs).
    #[must_use]
    pub fn of(ledger: &'a Ledger, count: usize) -> Self {
        debug_assert!(count.is_power_of_two(), "{count} is no count of parts");
        let (mut digests, mut bytes) = (vec![0; count], Vec::new());
        let places = ledger.cells.jobs.iter().map(|(job, record)| {
            let place = place(job, count);
            digests[place] = continued(digests[place], job, record, &mut bytes);
            place
        });
        let places = places.collect();
        Self { ledger, places, digests }
    }

    /// The digest of each part.
    #[must_use]
    pub fn digests(&self) -> &[u64] {
        &self.digests
    }

    /// What does not stand in parts: slots, counters and former sessions.
    #[must_use]
    pub fn head(&self) -> Stored {
        Stored::from(&self.ledger.without_jobs())
    }

    /// The parts that are `wanted`, by their places among all. O(jobs).
    #[must_use]
    pub fn parts(&self, wanted: &BTreeSet<usize>) -> BTreeMap<usize, StoredPart> {
        let mut parts: BTreeMap<_, _> =
            wanted.iter().map(|place| (*place, (Shares::new(), StoredPart::default()))).collect();
        for ((job, record), place) in self.ledger.cells.jobs.iter().zip(&self.places) {
            let Some((shares, part)) = parts.get_mut(place) else { continue };
            put(shares, part, job, record);
        }
        let finish = |(place, (shares, mut part)): (usize, (Shares<'_>, StoredPart))| {
            part.holders = shares.into_values().collect();
            (place, part)
        };
        parts.into_iter().map(finish).collect()
    }
}

type Shares<'a> = BTreeMap<&'a SessionId, StoredShare>;

fn put<'a>(
    shares: &mut Shares<'a>,
    part: &mut StoredPart,
    job: &JobName,
    Record { cell, strikes }: &'a Record,
) {
    if *strikes > 0 {
        part.strikes.insert(job.to_string(), *strikes);
    }
    match cell {
        Cell::Granted { session, token } => {
            share(shares, session).jobs.insert(job.to_string(), token.0);
        }
        Cell::Releasing { session, token, since } => {
            let release = Releasing { token: token.0, since: *since };
            share(shares, session).releasing.insert(job.to_string(), release);
        }
        Cell::Free { .. }
        | Cell::Hold { .. }
        | Cell::Quarantined { .. }
        | Cell::Done { .. }
        | Cell::Everywhere { .. } => {
            part.waits.extend(stored::waits(cell).map(|waits| (job.to_string(), waits)));
        }
    }
}

fn share<'s, 'a>(shares: &'s mut Shares<'a>, session: &'a SessionId) -> &'s mut StoredShare {
    let new = || StoredShare { session: session.to_stored(), ..StoredShare::default() };
    shares.entry(session).or_insert_with(new)
}

/// The ledger that was divided into this head and these parts.
///
/// # Errors
///
/// [`StoredError`] if they are not those of one ledger.
pub fn join(head: Stored, parts: impl IntoIterator<Item = Part>) -> Result<Ledger, StoredError> {
    let mut ledger = Ledger::try_from(head)?;
    let mut jobs: Vec<_> = std::mem::take(&mut ledger.cells.jobs).into_iter().collect();
    parts.into_iter().for_each(|part| jobs.extend(part.0));
    sort(&mut jobs)?;
    let mut known: BTreeSet<_> = ledger.sessions().into_keys().cloned().collect();
    for holder in jobs.iter().filter_map(|(_, record)| record.cell.holder()) {
        if !known.contains(holder) {
            // It can only let go, as in a ledger of one piece.
            known.insert(holder.clone());
            ledger.former.insert(holder.clone(), Slot::NOBODY);
        }
    }
    ledger.cells.jobs = jobs.into_iter().collect();
    Ok(ledger)
}

/// The part of a job among `count`.
fn place(job: &JobName, count: usize) -> usize {
    // As many low bits as the count has, whatever the width of a pointer.
    usize::try_from(hash_job(job) & (count as u64 - 1)).unwrap_or_default()
}

/// The digest of jobs up to `job`, by that of those before it.
fn continued(digest: u64, job: &JobName, record: &Record, bytes: &mut Vec<u8>) -> u64 {
    bytes.clear();
    let Record { cell, strikes } = record;
    let (kind, holder, numbers): (u8, Option<&SessionId>, [u64; 3]) = match cell {
        Cell::Free { token } => (0, None, [token.0, 0, 0]),
        Cell::Granted { session, token } => (1, Some(session), [token.0, 0, 0]),
        Cell::Releasing { session, token, since } => (2, Some(session), [token.0, *since, 0]),
        Cell::Hold { slot, span, token } => {
            (3, None, [token.0, slot.0.into(), stored::millis(*span)])
        }
        Cell::Quarantined { span, token } => (4, None, [token.0, stored::millis(*span), 0]),
        Cell::Done { token } => (5, None, [token.0, 0, 0]),
        Cell::Everywhere { token } => (6, None, [token.0, 0, 0]),
    };
    bytes.push(kind);
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    bytes.extend(strikes.to_le_bytes());
    bytes.extend(job.as_str().as_bytes());
    if let Some(session) = holder {
        // No name has this byte in it.
        bytes.push(0);
        bytes.push(u8::from(session.is_plain()));
        bytes.extend(session.nonce().unwrap_or_default().to_le_bytes());
        bytes.extend(session.pod_uid().as_bytes());
    }
    mix(digest ^ digest_bytes(bytes))
}

impl Ledger {
    fn without_jobs(&self) -> Self {
        let Self { cells, version, slots, former } = self;
        let Cells { incarnation, revision, first_token, jobs: _ } = *cells;
        Self {
            cells: Cells { incarnation, revision, first_token, jobs: BTreeMap::new() },
            version: *version,
            slots: slots.clone(),
            former: former.clone(),
        }
    }

    /// About how many bytes the ledger has as JSON in one piece. O(jobs).
    #[must_use]
    pub fn stored_bytes(&self) -> usize {
        let digits = |number: u64| number.checked_ilog10().map_or(1, |log| log as usize + 1);
        let job = |(job, Record { cell, strikes }): (&JobName, &Record)| {
            // Its name in quotation marks, a colon and a comma, and what follows the colon.
            let name = job.as_str().len() + 4;
            let blamed = if *strikes > 0 { name + 2 } else { 0 };
            let value = match cell {
                Cell::Granted { .. } => 0,
                Cell::Releasing { since, .. } => 19 + digits(*since),
                Cell::Free { .. } | Cell::Done { .. } => 19,
                Cell::Hold { slot, span, .. } => {
                    36 + digits(slot.0.into()) + digits(stored::millis(*span))
                }
                Cell::Quarantined { span, .. } => 36 + digits(stored::millis(*span)),
                Cell::Everywhere { .. } => 25,
            };
            name + blamed + value + digits(cell.token().0)
        };
        let session = |session: &SessionId, slot: Slot| {
            let text = session.pod_uid().len() + if session.is_plain() { 6 } else { 17 };
            33 + text + digits(slot.0.into())
        };
        let slots = self.slots.iter().map(|(slot, record)| {
            let gave = if record.gave > 0 { 8 + digits(record.gave) } else { 0 };
            session(&record.session, *slot)
                + 23
                + record.worker.len()
                + digits(record.version)
                + gave
        });
        let former = self.former.iter().map(|(holder, slot)| session(holder, *slot));
        self.cells.jobs.iter().map(job).chain(slots).chain(former).sum()
    }
}

#[cfg(test)]
mod tests;
