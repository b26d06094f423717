//! A ledger in parts, for stores that limit the size of an object. The head has everything but the
//! jobs. The hash of a job's name selects its part, so that a change of one job touches one part.
//!
//! A part is identified by the [digest](Part::digest) of its content, so that a store neither
//! writes nor reads unchanged parts. Both the hash and the digest are frozen, since stored ledgers
//! depend on them.

use std::collections::{BTreeMap, BTreeSet};

use super::Ledger;
use super::stored::{self, Releasing, Stored, StoredError, Waits};
use crate::handover::{Cell, Cells, Record, SessionId};
use crate::hash::{digest_bytes, mix};
use crate::{JobName, SharedMap, Slot, hash_job};

/// The largest size in bytes of a ledger that is stored in one piece.
pub const WHOLE_BYTES_MAX: usize = 900_000;
/// The size in bytes up to which a ledger in parts becomes one piece again. Between the two limits
/// it stays as it is, so that a few jobs more or fewer do not rewrite the whole ledger.
pub const WHOLE_AGAIN_BYTES_MAX: usize = 600_000;
/// The largest average size in bytes of a part when a ledger is divided.
const PART_BYTES: usize = 300_000;
/// The average size in bytes of a part above which the ledger gets more parts.
const PART_BYTES_MAX: usize = 400_000;
/// The average size in bytes of a part below which the ledger gets fewer parts.
const PART_BYTES_MIN: usize = 30_000;

/// Returns the number of parts for a ledger of about `bytes` bytes that now has `now` parts. 0
/// means one piece; any other result is a power of two.
///
/// ```
/// use swarm_core::parts::count;
///
/// assert_eq!(count(900_000, 0), 0);
/// assert_eq!(count(1_000_000, 0), 4);
/// assert_eq!(count(800_000, 4), 4); // one piece would do, but would rewrite everything
/// assert_eq!(count(600_000, 4), 0);
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

/// The jobs of one part, in types that any format can represent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase", deny_unknown_fields))]
pub struct StoredPart {
    /// The sessions with their jobs of this part. The head has the slots that they fill.
    #[cfg_attr(feature = "serde", serde(default))]
    pub holders: Vec<StoredShare>,
    /// The jobs without a holder.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "BTreeMap::is_empty"))]
    pub waits: BTreeMap<String, Waits>,
    /// The number of crashes that each job is blamed for; jobs without any are left out.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "BTreeMap::is_empty"))]
    pub strikes: BTreeMap<String, u32>,
}

/// The jobs of one session in one part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase", deny_unknown_fields))]
pub struct StoredShare {
    /// The session, as text.
    pub session: String,
    /// The granted jobs, each with its token.
    #[cfg_attr(feature = "serde", serde(default))]
    pub jobs: BTreeMap<String, u64>,
    /// The jobs that it was asked to release.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "BTreeMap::is_empty"))]
    pub releasing: BTreeMap<String, Releasing>,
}

/// The jobs of one part, in the order of their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part(Vec<(JobName, Record)>);

impl Part {
    /// Returns the digest of the content: equal parts have equal digests, independently of their
    /// writer.
    ///
    /// ```
    /// use swarm_core::parts::{Part, StoredPart};
    ///
    /// let empty = Part::try_from(StoredPart::default())?;
    /// assert_eq!(empty.digest(), 0); // a part without jobs needs no object
    /// # Ok::<(), swarm_core::stored::StoredError>(())
    /// ```
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

/// Sorts jobs, and refuses a job that occurs twice.
fn sort(jobs: &mut [(JobName, Record)]) -> Result<(), StoredError> {
    // The input is a few sorted runs, which the stable sort detects and merges.
    jobs.sort_by(|(a, _), (b, _)| a.cmp(b));
    match jobs.windows(2).find(|two| two[0].0 == two[1].0) {
        None => Ok(()),
        Some(two) => Err(StoredError::TwoHolders(two[0].0.clone())),
    }
}

/// A ledger that is divided into parts.
#[derive(Clone, Debug)]
pub struct Split<'a> {
    ledger: &'a Ledger,
    /// The index of each job's part, in the order of the jobs' names.
    places: Vec<usize>,
    digests: Vec<u64>,
}

impl<'a> Split<'a> {
    /// Divides `ledger` into `count` parts, a power of two. O(jobs).
    ///
    /// ```
    /// use swarm_core::parts::Split;
    /// use swarm_core::{Assignment, Ledger, Pool, Slot};
    ///
    /// let one = Assignment::from_iter([("a".parse()?, Slot(0))]);
    /// let ledger = Ledger::new(0).next(&one, &Pool::ready(1));
    /// let split = Split::of(&ledger, 4);
    /// let with_jobs = split.digests().iter().filter(|digest| **digest != 0).count();
    /// assert_eq!(with_jobs, 1); // the other three parts are empty
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    #[must_use]
    pub fn of(ledger: &'a Ledger, count: usize) -> Self {
        debug_assert!(count.is_power_of_two(), "{count} is not a valid count of parts");
        let (mut digests, mut bytes) = (vec![0; count], Vec::new());
        let places = ledger.cells.jobs.iter().map(|(job, record)| {
            let place = index(job, count);
            digests[place] = continued(digests[place], job, record, &mut bytes);
            place
        });
        let places = places.collect();
        Self { ledger, places, digests }
    }

    /// Returns the digest of each part, by its index. A store compares these digests with its own,
    /// to write only the parts that changed.
    ///
    /// ```
    /// use swarm_core::Ledger;
    /// use swarm_core::parts::Split;
    ///
    /// let (old, new) = (Ledger::new(0), Ledger::new(1));
    /// assert_ne!(old, new);
    /// assert_eq!(Split::of(&old, 2).digests(), Split::of(&new, 2).digests()); // the same jobs
    /// ```
    #[must_use]
    pub fn digests(&self) -> &[u64] {
        &self.digests
    }

    /// Returns the head: slots, counters and former sessions.
    ///
    /// ```
    /// use swarm_core::parts::Split;
    /// use swarm_core::{Assignment, Ledger, Pool, Slot};
    ///
    /// let one = Assignment::from_iter([("a".parse()?, Slot(0))]);
    /// let ledger = Ledger::new(0).next(&one, &Pool::ready(1));
    /// let head = Split::of(&ledger, 2).head();
    /// assert_eq!((head.revision, head.holders[0].jobs.len()), (1, 0));
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    #[must_use]
    pub fn head(&self) -> Stored {
        Stored::from(&self.ledger.without_jobs())
    }

    /// Returns the `wanted` parts, by index. O(jobs).
    ///
    /// ```
    /// use swarm_core::Ledger;
    /// use swarm_core::parts::Split;
    ///
    /// let ledger = Ledger::new(0);
    /// let parts = Split::of(&ledger, 4).parts(&[1, 3].into());
    /// assert_eq!(parts.into_keys().collect::<Vec<_>>(), [1, 3]);
    /// ```
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
        | Cell::Everywhere { .. }
        | Cell::ReleasingAll { .. } => {
            part.waits.extend(stored::waits(cell).map(|waits| (job.to_string(), waits)));
        }
    }
}

fn share<'s, 'a>(shares: &'s mut Shares<'a>, session: &'a SessionId) -> &'s mut StoredShare {
    let new = || StoredShare { session: session.to_stored(), ..StoredShare::default() };
    shares.entry(session).or_insert_with(new)
}

/// Joins a head and parts into the ledger from which they were divided.
///
/// # Errors
///
/// [`StoredError`] if they do not belong to one ledger.
///
/// ```
/// use swarm_core::parts::{Part, Split, join};
/// use swarm_core::{Assignment, Ledger, Pool, Slot};
///
/// let one = Assignment::from_iter([("a".parse()?, Slot(0))]);
/// let ledger = Ledger::new(0).next(&one, &Pool::ready(1));
/// let split = Split::of(&ledger, 2);
/// let parts = split.parts(&[0, 1].into()).into_values();
/// let parts: Vec<_> = parts.map(Part::try_from).collect::<Result<_, _>>()?;
/// assert_eq!(join(split.head(), parts.clone())?, ledger);
/// assert!(join(split.head(), [parts.clone(), parts].concat()).is_err()); // `a` occurs twice
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn join(head: Stored, parts: impl IntoIterator<Item = Part>) -> Result<Ledger, StoredError> {
    let mut ledger = Ledger::try_from(head)?;
    let mut jobs: Vec<_> = std::mem::take(&mut ledger.cells.jobs).into_iter().collect();
    parts.into_iter().for_each(|part| jobs.extend(part.0));
    sort(&mut jobs)?;
    let mut known: BTreeSet<_> = ledger.sessions().into_keys().cloned().collect();
    for holder in jobs.iter().filter_map(|(_, record)| record.cell.holder()) {
        if !known.contains(holder) {
            // Its slot is unknown, so it can only release jobs, as in a ledger of one piece.
            known.insert(holder.clone());
            ledger.former.insert(holder.clone(), Slot::NOBODY);
        }
    }
    ledger.cells.jobs = jobs.into_iter().collect();
    Ok(ledger)
}

/// Returns the index of a job's part among `count` parts, a power of two. O(length of the name).
///
/// ```
/// use swarm_core::parts::index;
///
/// assert_eq!(index(&"cam-1".parse()?, 1), 0);
/// assert!(index(&"cam-1".parse()?, 8) < 8);
/// # Ok::<(), swarm_core::JobNameError>(())
/// ```
#[must_use]
pub fn index(job: &JobName, count: usize) -> usize {
    // The low bits of the hash, independent of the width of a pointer.
    usize::try_from(hash_job(job) & (count as u64).saturating_sub(1)).unwrap_or_default()
}

/// Returns the digest of the jobs up to `job`, given the digest of the jobs before it.
fn continued(digest: u64, job: &JobName, record: &Record, bytes: &mut Vec<u8>) -> u64 {
    bytes.clear();
    let Record { cell, strikes } = record;
    let (kind, holder, numbers): (u8, Option<&SessionId>, [u64; 3]) = match cell {
        Cell::Free { token } => (0, None, [token.0, 0, 0]),
        Cell::Granted { session, token } => (1, Some(session), [token.0, 0, 0]),
        Cell::Releasing { session, token, since } => (2, Some(session), [token.0, *since, 0]),
        Cell::Hold { slot, span, token } => {
            (3, None, [token.0, slot.0.into(), stored::whole_millis(*span)])
        }
        Cell::Quarantined { span, token } => (4, None, [token.0, stored::whole_millis(*span), 0]),
        Cell::Done { token } => (5, None, [token.0, 0, 0]),
        Cell::Everywhere { token } => (6, None, [token.0, 0, 0]),
        Cell::ReleasingAll { token, since } => (7, None, [token.0, *since, 0]),
    };
    bytes.push(kind);
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    bytes.extend(strikes.to_le_bytes());
    bytes.extend(job.as_str().as_bytes());
    if let Some(session) = holder {
        // No job name contains this byte.
        bytes.push(0);
        bytes.push(u8::from(session.is_plain()));
        bytes.extend(session.nonce().unwrap_or_default().to_le_bytes());
        bytes.extend(session.pod_uid().as_bytes());
    }
    mix(digest ^ digest_bytes(bytes))
}

impl Ledger {
    fn without_jobs(&self) -> Self {
        let Self { cells, version, slots, former, longest_lease } = self;
        let Cells { incarnation, revision, first_token, has_shares, jobs: _ } = *cells;
        Self {
            cells: Cells { incarnation, revision, first_token, has_shares, jobs: SharedMap::new() },
            version: *version,
            slots: slots.clone(),
            former: former.clone(),
            longest_lease: *longest_lease,
        }
    }
}

#[cfg(test)]
mod tests;
