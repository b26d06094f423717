//! The stored form of a history that has little room: each name, and each word of a cause, stands once.
//!
//! A list of [`Kept`] is a history. If that has room, all episodes are as they are. Otherwise only
//! the newest ones are, and older ones are packed into one item, whose other fields are a summary of
//! them. A program that does not know this form, or a later one, reads the summary: moves that have
//! no details.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use super::size::{self, text};
use super::{Episode, JobEdit, JobMove};
use crate::JobName;

/// The form that this program writes, and the newest that it reads.
const FORMAT: u64 = 1;

/// In a history without room for all, the newest episodes stay as they are until they need this part of it.
const PLAIN_SHARE: usize = 8;

/// The bytes of an episode, of an edit and of a move in the packed form, without numbers and texts.
const EPISODE: usize = 44;
const EDIT: usize = 10;
const MOVE: usize = 14;
/// The bytes of a missing value.
const NULL: usize = 4;
/// The bytes of the begin of an episode and of its revision, which count from the episode before.
const START: usize = 8;
/// The bytes of a field with a number that is seldom there.
const FIELD: usize = 6;
/// The bytes of an index with its comma, for less than a thousand names.
const INDEX: usize = 4;

/// An item of a stored history: an episode, or several packed ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The episode, or a summary of the packed ones.
    #[serde(flatten)]
    episode: Episode,
    #[serde(default, deserialize_with = "known", skip_serializing_if = "Option::is_none")]
    packed: Option<Packed>,
}

/// Episodes whose texts are indexes of `names`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Packed {
    format: u64,
    names: Vec<String>,
    episodes: Vec<Row>,
}

/// An episode. Fields with the value 0 are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Row {
    /// Time from the end of the row before to the begin, in milliseconds.
    #[serde(rename = "s", skip_serializing_if = "crate::wire::is_default")]
    start: i64,
    #[serde(rename = "d", skip_serializing_if = "crate::wire::is_default")]
    duration_ms: i64,
    /// Each with its words.
    #[serde(rename = "c", skip_serializing_if = "crate::wire::is_default")]
    causes: Vec<Vec<usize>>,
    /// Revisions from the end of the row before to the begin.
    #[serde(rename = "r", skip_serializing_if = "crate::wire::is_default")]
    revision: i64,
    /// Revisions from the begin to the end.
    #[serde(rename = "l", skip_serializing_if = "crate::wire::is_default")]
    revisions: i64,
    #[serde(rename = "n", skip_serializing_if = "crate::wire::is_default")]
    counts: Vec<(usize, u64)>,
    #[serde(rename = "m", skip_serializing_if = "crate::wire::is_default")]
    moves: Vec<Step>,
    #[serde(rename = "e", skip_serializing_if = "crate::wire::is_default")]
    edits: Vec<Edit>,
    #[serde(rename = "x", skip_serializing_if = "crate::wire::is_default")]
    edits_omitted: u64,
    #[serde(rename = "o", skip_serializing_if = "crate::wire::is_default")]
    omitted: u64,
    /// The cause of an outage.
    #[serde(rename = "u", skip_serializing_if = "Option::is_none")]
    outage: Option<usize>,
    /// [`CUT`], [`OPEN`] and [`GAP`].
    #[serde(rename = "f", skip_serializing_if = "crate::wire::is_default")]
    flags: u8,
}

const CUT: u8 = 1;
const OPEN: u8 = 2;
const GAP: u8 = 4;

/// A move: the job, both workers, the reason, the revision from the begin of the episode, and the times
/// of release, acknowledgement, grant and run.
type Step = (usize, Option<usize>, Option<usize>, usize, i64, [Option<i64>; 4]);

/// An edit: the time from the begin of the episode, the fields, and the jobs.
type Edit = (i64, Vec<usize>, Vec<usize>);

/// Reads packed episodes of a known form; `None` for another one.
fn known<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Packed>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Any {
        Known(Packed),
        Other(IgnoredAny),
    }
    Ok(match Any::deserialize(from)? {
        Any::Known(packed) if packed.format == FORMAT => Some(packed),
        Any::Known(_) | Any::Other(_) => None,
    })
}

impl Kept {
    /// Returns the stored form of a history that needs at most about `bytes_max` bytes of JSON. The
    /// newest episodes come last. Older episodes lose their details and are left out first.
    /// O(episodes + moves · log names).
    ///
    /// ```
    /// use swarm_core::history::{Episode, Kept};
    ///
    /// let mut episodes = vec![Episode::default(); 90];
    /// let kept = Kept::of(&mut episodes, 16 * 1024);
    /// assert!(kept.len() < 20);
    /// let read: Vec<_> = kept.into_iter().flat_map(Kept::into_episodes).collect();
    /// assert_eq!(read, episodes);
    /// ```
    #[must_use]
    pub fn of(episodes: &mut Vec<Episode>, bytes_max: usize) -> Vec<Self> {
        let plain = fit(episodes, bytes_max);
        let (packed, plain) = episodes.split_at(episodes.len() - plain);
        // An operator that does not know the form leaves out an open episode.
        let open = packed.iter().rposition(|it| it.is_open).unwrap_or(packed.len());
        let (closed, open) = packed.split_at(open);
        let groups = [closed, open].into_iter().filter(|group| !group.is_empty());
        let plain = plain.iter().map(|it| Self { episode: it.clone(), packed: None });
        groups.map(Self::packed).chain(plain).collect()
    }

    fn packed(episodes: &[Episode]) -> Self {
        let mut names = Names::default();
        let mut before = (0, 0);
        let rows = episodes.iter().map(|it| names.row(it, &mut before)).collect();
        let names = names.list;
        Self {
            episode: summary(episodes),
            packed: Some(Packed { format: FORMAT, names, episodes: rows }),
        }
    }

    /// Returns the episodes. Packed ones that are damaged are left out, and their summary stays.
    #[must_use]
    pub fn into_episodes(self) -> Vec<Episode> {
        let Self { episode, packed } = self;
        let unpacked = packed.and_then(|packed| {
            let mut episodes = packed.unpacked()?;
            // Only the end of the newest one is compared with a ledger.
            episodes.last_mut()?.holders.clone_from(&episode.holders);
            Some(episodes)
        });
        unpacked.unwrap_or_else(|| vec![episode])
    }
}

/// Returns one episode for several, without details.
fn summary(episodes: &[Episode]) -> Episode {
    let [first, .., last] = episodes else {
        return episodes.first().map(without_details).unwrap_or_default();
    };
    let mut summary = Episode {
        start_ms: first.start_ms,
        first_revision: first.first_revision,
        causes: Vec::new(),
        counts: BTreeMap::new(),
        is_gap: false,
        outage: String::new(),
        ..without_details(last)
    };
    (summary.omitted, summary.edits_omitted) = (0, 0);
    for it in episodes.iter().map(without_details) {
        summary.omitted = summary.omitted.saturating_add(it.omitted);
        summary.edits_omitted = summary.edits_omitted.saturating_add(it.edits_omitted);
        for (reason, count) in it.counts {
            let sum = summary.counts.entry(reason).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    summary
        .causes
        .push(format!("{} episodes; a newer version of swarm shows them", episodes.len()));
    summary
}

fn without_details(episode: &Episode) -> Episode {
    let Episode { moves, edits, omitted, edits_omitted, .. } = episode;
    let edited: usize = edits.iter().map(|it| it.jobs.len()).sum();
    Episode {
        moves: Vec::new(),
        edits: Vec::new(),
        omitted: omitted.saturating_add(moves.len() as u64),
        edits_omitted: edits_omitted.saturating_add(edited as u64),
        causes: episode.causes.clone(),
        counts: episode.counts.clone(),
        holders: episode.holders.clone(),
        outage: episode.outage.clone(),
        ..*episode
    }
}

/// Shortens a history until its stored form has at most about `bytes_max` bytes. Returns the number of
/// the newest episodes that stay as they are.
///
/// Moves with details need at most three quarters of the room, so that one large episode does not
/// displace all others.
fn fit(episodes: &mut Vec<Episode>, bytes_max: usize) -> usize {
    for episode in &mut *episodes {
        size::fit_edits(episode, bytes_max / size::EDITS_SHARE);
    }
    let (mut kept, mut plain) = (0, 0);
    let mut seen = BTreeSet::new();
    let all: usize = episodes.iter().map(size::whole).sum();
    let (left, mut plain_left) = if all <= bytes_max {
        (bytes_max, bytes_max)
    } else {
        (bytes_max.saturating_sub(size::EPISODE), bytes_max / PLAIN_SHARE)
    };
    let mut room = Room { left, moves: bytes_max / 4 * 3 };
    let mut sizes = Vec::new();
    for episode in episodes.iter().rev() {
        let whole = size::whole(episode);
        if plain == kept && whole <= plain_left && room.take(whole, 0) {
            plain_left -= whole;
            (plain, kept) = (plain + 1, kept + 1);
            sizes.push((usize::MAX, usize::MAX));
            continue;
        }
        let Some(size) = fitting(episode, &mut seen, &mut room) else { break };
        sizes.push(size);
        kept += 1;
    }
    episodes.drain(..episodes.len() - kept);
    for (episode, (moves, edits)) in episodes.iter_mut().rev().zip(sizes) {
        let omitted = episode.moves.len().saturating_sub(moves) as u64;
        episode.omitted = episode.omitted.saturating_add(omitted);
        episode.moves.truncate(moves);
        if edits == 0 {
            episode.keep_edited(|_| 0);
        }
    }
    plain
}

/// The bytes that are left, and those for moves among them.
struct Room {
    left: usize,
    moves: usize,
}

impl Room {
    /// Takes bytes; some of them for a move.
    fn take(&mut self, bytes: usize, of_moves: usize) -> bool {
        let fits = bytes <= self.left && of_moves <= self.moves;
        if fits {
            self.left -= bytes;
            self.moves -= of_moves;
        }
        fits
    }
}

/// Returns how many moves and edits of an episode fit; `None` if the episode does not.
fn fitting<'a>(
    episode: &'a Episode,
    seen: &mut BTreeSet<&'a str>,
    room: &mut Room,
) -> Option<(usize, usize)> {
    let mut cost = |names: &mut dyn Iterator<Item = &'a str>| -> usize {
        names.map(|name| INDEX + if seen.insert(name) { text(name) + 1 } else { 0 }).sum()
    };
    let words = episode.causes.iter().flat_map(|it| it.split(' '));
    let outage = Some(episode.outage.as_str()).filter(|it| !it.is_empty());
    let counted = episode.counts.keys().map(String::as_str);
    let mut header = words.chain(counted).chain(outage);
    let numbers = [
        later(episode.start_ms, episode.end_ms),
        later(episode.first_revision, episode.last_revision),
    ];
    let seldom = [episode.omitted, episode.edits_omitted, u64::from(flags(episode))];
    let seldom = seldom.iter().filter(|it| 0 < **it).map(|it| FIELD + digits(*it));
    let counts = episode.counts.values().map(|n| INDEX + digits(*n));
    let fixed = EPISODE
        + START
        + numbers.map(signed_digits).iter().sum::<usize>()
        + 3 * episode.causes.len();
    if !room.take(fixed + seldom.chain(counts).sum::<usize>() + cost(&mut header), 0) {
        return None;
    }
    let of_edit = |edit: &'a JobEdit| {
        edit.fields.iter().map(String::as_str).chain(edit.jobs.iter().map(JobName::as_str))
    };
    let edits = episode.edits.iter().map(|it| EDIT + signed_digits(it.at)).sum::<usize>()
        + cost(&mut episode.edits.iter().flat_map(of_edit));
    let edits = if room.take(edits, edits) { episode.edits.len() } else { 0 };
    let mut size = |it: &'a JobMove| {
        let workers = it.from.iter().chain(&it.to).map(String::as_str);
        let revision = signed_digits(later(episode.first_revision, it.revision));
        let missing = usize::from(it.from.is_none()) + usize::from(it.to.is_none());
        let numbers: usize = times(it).iter().map(|it| it.map_or(NULL, signed_digits)).sum();
        let names = cost(&mut [it.job.as_str(), &it.reason].into_iter().chain(workers));
        MOVE + revision + numbers + missing * NULL + names
    };
    let fits = |it: &&'a JobMove| {
        let size = size(it);
        room.take(size, size)
    };
    Some((episode.moves.iter().take_while(fits).count(), edits))
}

/// Returns the bytes of a number in JSON.
fn digits(number: u64) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

fn signed_digits(number: i64) -> usize {
    usize::from(number < 0) + digits(number.unsigned_abs())
}

fn times(it: &JobMove) -> [Option<i64>; 4] {
    [it.released, it.acknowledged, it.granted, it.running]
}

fn flags(it: &Episode) -> u8 {
    [(it.is_cut, CUT), (it.is_open, OPEN), (it.is_gap, GAP)]
        .into_iter()
        .fold(0, |all, (is_set, flag)| if is_set { all | flag } else { all })
}

/// The names of packed episodes.
#[derive(Default)]
struct Names {
    list: Vec<String>,
    places: BTreeMap<String, usize>,
}

impl Names {
    fn place(&mut self, name: &str) -> usize {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        let place = self.list.len();
        self.list.push(name.to_owned());
        self.places.insert(name.to_owned(), place);
        place
    }

    fn places<'n>(&mut self, names: impl Iterator<Item = &'n str>) -> Vec<usize> {
        names.map(|name| self.place(name)).collect()
    }

    /// `before` has the time and the revision at the end of the row before.
    fn row(&mut self, it: &Episode, before: &mut (u64, u64)) -> Row {
        let (time, revision) = std::mem::replace(before, (it.end_ms, it.last_revision));
        let step = |names: &mut Self, of: &JobMove| {
            let worker =
                |names: &mut Self, name: &Option<String>| name.as_deref().map(|it| names.place(it));
            let (job, from) = (names.place(of.job.as_str()), worker(names, &of.from));
            let (to, reason) = (worker(names, &of.to), names.place(&of.reason));
            let revision = later(it.first_revision, of.revision);
            (job, from, to, reason, revision, times(of))
        };
        Row {
            start: later(time, it.start_ms),
            duration_ms: later(it.start_ms, it.end_ms),
            causes: it.causes.iter().map(|cause| self.places(cause.split(' '))).collect(),
            revision: later(revision, it.first_revision),
            revisions: later(it.first_revision, it.last_revision),
            counts: it.counts.iter().map(|(reason, n)| (self.place(reason), *n)).collect(),
            moves: it.moves.iter().map(|of| step(self, of)).collect(),
            edits: it.edits.iter().map(|of| self.edit(of)).collect(),
            edits_omitted: it.edits_omitted,
            omitted: it.omitted,
            outage: (!it.outage.is_empty()).then(|| self.place(&it.outage)),
            flags: flags(it),
        }
    }

    fn edit(&mut self, it: &JobEdit) -> Edit {
        let fields = self.places(it.fields.iter().map(String::as_str));
        (it.at, fields, self.places(it.jobs.iter().map(JobName::as_str)))
    }
}

/// Returns the way from a number to another one; wraps, as [`u64::wrapping_add_signed`] does.
fn later(from: u64, to: u64) -> i64 {
    i64::from_ne_bytes(to.wrapping_sub(from).to_ne_bytes())
}

impl Packed {
    /// Returns `None` if an index has no name, or a job an invalid one.
    fn unpacked(&self) -> Option<Vec<Episode>> {
        let mut before = (0, 0);
        self.episodes.iter().map(|row| self.episode(row, &mut before)).collect()
    }

    fn name(&self, place: usize) -> Option<&String> {
        self.names.get(place)
    }

    fn all(&self, places: &[usize]) -> Option<Vec<String>> {
        places.iter().map(|place| self.name(*place).cloned()).collect()
    }

    fn jobs(&self, places: &[usize]) -> Option<Vec<JobName>> {
        places.iter().map(|place| JobName::new(self.name(*place)?).ok()).collect()
    }

    fn episode(&self, row: &Row, before: &mut (u64, u64)) -> Option<Episode> {
        let start_ms = before.0.wrapping_add_signed(row.start);
        let end_ms = start_ms.wrapping_add_signed(row.duration_ms);
        let first_revision = before.1.wrapping_add_signed(row.revision);
        let last_revision = first_revision.wrapping_add_signed(row.revisions);
        *before = (end_ms, last_revision);
        let edit = |(at, fields, jobs): &Edit| {
            Some(JobEdit { at: *at, fields: self.all(fields)?, jobs: self.jobs(jobs)? })
        };
        let count = |(reason, n): &(usize, u64)| Some((self.name(*reason)?.clone(), *n));
        Some(Episode {
            start_ms,
            end_ms,
            causes: row
                .causes
                .iter()
                .map(|words| Some(self.all(words)?.join(" ")))
                .collect::<Option<_>>()?,
            first_revision,
            last_revision,
            counts: row.counts.iter().map(count).collect::<Option<_>>()?,
            moves: row
                .moves
                .iter()
                .map(|step| self.step(step, first_revision))
                .collect::<Option<_>>()?,
            edits: row.edits.iter().map(edit).collect::<Option<_>>()?,
            edits_omitted: row.edits_omitted,
            omitted: row.omitted,
            holders: String::new(),
            is_cut: row.flags & CUT != 0,
            is_open: row.flags & OPEN != 0,
            is_gap: row.flags & GAP != 0,
            outage: match row.outage {
                Some(place) => self.name(place)?.clone(),
                None => String::new(),
            },
        })
    }

    fn step(&self, step: &Step, first_revision: u64) -> Option<JobMove> {
        let &(job, from, to, reason, revision, times) = step;
        let worker = |place: Option<usize>| match place {
            Some(place) => self.name(place).cloned().map(Some),
            None => Some(None),
        };
        let [released, acknowledged, granted, running] = times;
        Some(JobMove {
            job: JobName::new(self.name(job)?).ok()?,
            from: worker(from)?,
            to: worker(to)?,
            reason: self.name(reason)?.clone(),
            revision: first_revision.wrapping_add_signed(revision),
            released,
            acknowledged,
            granted,
            running,
        })
    }
}
