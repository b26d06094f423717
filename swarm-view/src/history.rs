//! The history of a pool: its documents, and what is known from it of one job. Tables, and the difference
//! between two revisions, are modules.

mod difference;
mod documents;
mod table;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use swarm_core::history::{Episode, JobEdit, JobMove, Kept};

use crate::age::age;
use crate::life::JobLife;
use crate::pool::PoolName;
use crate::words::counted;

pub use difference::Difference;

/// The reason of a move to no worker, of a job that is not wanted.
const REMOVED: &str = "removed";
/// Number of episodes or moves in a table, if the user names none.
const LAST: usize = 50;

/// The history of a pool, as people and programs read it.
#[derive(Clone, Copy, Debug)]
pub struct Past<'a> {
    /// The episodes, the newest last.
    pub episodes: &'a [Episode],
    /// The present time.
    pub now: Timestamp,
    /// The beginning of the shown part, if not all of it is shown.
    pub since: Option<Timestamp>,
}

/// The moment at which a worker got a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Since {
    /// The revision of the grant.
    pub revision: u64,
    /// The time of the grant.
    pub time: String,
}

/// The move that brought a job to its worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Came {
    /// The reason in a word.
    pub reason: String,
    /// The worker that had it before, if one had.
    pub from: Option<String>,
    /// The causes that name the job or its workers, or else all causes at that time.
    pub causes: Vec<String>,
}

/// An edit of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Edited {
    /// The time at which the operator saw it.
    pub time: String,
    /// The edited fields, as manifests name them.
    pub fields: Vec<String>,
}

/// The history of a pool as a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct History {
    /// The newest episodes: what happened from the moment when the pool was not settled until it was
    /// settled again.
    #[schemars(with = "Vec<documents::Episode>")]
    pub episodes: Vec<Episode>,
    /// The pool; one machine names it where there are several.
    #[serde(flatten)]
    pub pool: Option<PoolName>,
}

/// The history of one job as a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobHistory {
    /// The name of the job.
    pub job: String,
    /// Its newest moves.
    pub moves: Vec<MoveOfJob>,
    /// Its newest edits.
    pub edits: Vec<Edited>,
    /// The begin of the history, in milliseconds of Unix time.
    pub begin_ms: Option<u64>,
    /// The counts and the newest events of the job, over all its workers; missing if they are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life: Option<JobLife>,
    /// The pool, on a cluster.
    #[serde(flatten)]
    pub pool: Option<PoolName>,
}

/// A move of a job, with facts about its episode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MoveOfJob {
    /// The begin of the episode, in milliseconds of Unix time.
    pub start_ms: u64,
    /// The causes of the episode.
    #[serde(default)]
    pub causes: Vec<String>,
    /// The move.
    #[serde(rename = "move")]
    #[schemars(with = "documents::Move")]
    pub it: JobMove,
}

/// An answer about one pool, or about several pools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OneOrSeveral<T> {
    /// Several Swarms of a cluster.
    Swarms {
        /// The answer about each Swarm.
        swarms: Vec<T>,
    },
    /// Several pools of one machine.
    Pools {
        /// The answer about each pool.
        pools: Vec<T>,
    },
    /// One pool.
    One(T),
}

impl<T> OneOrSeveral<T> {
    /// Makes the answer about these Swarms. One Swarm is not in a list.
    #[must_use]
    pub fn swarms(swarms: impl Iterator<Item = T>) -> Self {
        match <[T; 1]>::try_from(swarms.collect::<Vec<_>>()) {
            Ok([one]) => Self::One(one),
            Err(swarms) => Self::Swarms { swarms },
        }
    }
}

/// One move of a job, with its episode.
#[derive(Clone, Copy, Debug)]
struct Moved<'a> {
    episode: &'a Episode,
    it: &'a JobMove,
}

impl Moved<'_> {
    /// Returns the causes that name the job or one of its workers, or else all causes of the episode.
    fn causes(&self) -> Vec<&str> {
        let it = self.it;
        let names = [Some(it.job.as_str()), it.from.as_deref(), it.to.as_deref()];
        let all: Vec<_> = self.episode.causes.iter().map(String::as_str).collect();
        let own = |cause: &&str| {
            // A job can have the name of a field, or of the number of further jobs.
            let shown = cause.split(" (").next().unwrap_or_default();
            let shown = shown.split(" and ").next().unwrap_or_default();
            let mut words = shown.split([' ', ',', ';']);
            words.any(|word| names.contains(&Some(word)))
        };
        let some: Vec<_> = all.iter().copied().filter(own).collect();
        if some.is_empty() { all } else { some }
    }
}

impl<'a> Past<'a> {
    /// Whether the shown part has a move of the job.
    #[must_use]
    pub fn has_moved(&self, job: &str) -> bool {
        self.shown_of(job, 1).1.next().is_some()
    }

    /// Returns a sentence about the last edit of a job; `None` if the history has none.
    #[must_use]
    pub fn last_edit(&self, job: &str) -> Option<String> {
        let last = self.edits_of(job).last();
        let since = last.map_or(0, |(episode, _)| episode.start_ms);
        let later = self.episodes.iter().filter(|it| since <= it.start_ms);
        let omitted =
            lost_edits(later).map(|edits| format!("{edits}, perhaps a later one of this job"));
        let known = last.map(|(episode, it)| {
            let at = moment(episode, it.at);
            format!("{} ({} ago): {}", shown(at), self.ago(at), it.fields.join(", "))
        });
        match (known, omitted) {
            (Some(known), Some(omitted)) => Some(format!("{known}; {omitted}")),
            (known, omitted) => known.or(omitted),
        }
    }

    /// Returns the last edit of a job in the shown part; `None` if the history has none.
    #[must_use]
    pub fn edited(&self, job: &str) -> Option<Edited> {
        self.edits(job, 1).pop()
    }

    /// Returns the edits of a job in the shown part, the newest last, at most `most` of them.
    fn edits(&self, job: &str, most: usize) -> Vec<Edited> {
        let edits = self.edits_of(job).filter(|(episode, _)| self.shows(episode));
        let edit = |(episode, it): &(&Episode, &JobEdit)| Edited {
            time: shown(moment(episode, it.at)),
            fields: it.fields.clone(),
        };
        newest(edits.collect(), most).1.iter().map(edit).collect()
    }

    fn edits_of(&self, job: &str) -> impl Iterator<Item = (&'a Episode, &'a JobEdit)> {
        let of = |episode: &'a Episode| episode.edits.iter().map(move |it| (episode, it));
        self.episodes
            .iter()
            .flat_map(of)
            .filter(move |(_, it)| it.jobs.iter().any(|it| it.as_str() == job))
    }

    /// Returns the newest moves, at most `most` of them, as sentences with their times in milliseconds
    /// of Unix time; the oldest first. O(moves · log moves).
    #[must_use]
    pub fn newest_moves(&self, most: usize) -> Vec<(u64, String)> {
        let moves = self.episodes.iter().flat_map(|episode| {
            episode
                .moves
                .iter()
                .filter_map(|it| Some((moment(episode, it.granted?), it.sentence()?)))
        });
        let mut moves: Vec<_> = moves.collect();
        moves.sort();
        moves.split_off(moves.len().saturating_sub(most))
    }

    /// Returns the document about the newest episodes, at most `most` of them.
    #[must_use]
    pub fn document(&self, most: usize) -> History {
        let episodes = newest(self.shown(), most).1.into_iter().cloned().collect();
        History { episodes, pool: None }
    }

    /// Returns the names of the jobs that moved in the newest episodes, at most `most` of them.
    pub fn jobs(&self, most: usize) -> impl Iterator<Item = &'a str> + use<'a> {
        let episodes = newest(self.shown(), most).1.into_iter();
        episodes.flat_map(|episode| &episode.moves).map(|it| it.job.as_str())
    }

    /// Returns the document about the newest moves of one job, at most `most` of them.
    #[must_use]
    pub fn document_of(&self, job: &str, most: usize) -> JobHistory {
        let moves = self.shown_of(job, most).1.map(|Moved { episode, it }| MoveOfJob {
            start_ms: episode.start_ms,
            causes: episode.causes.clone(),
            it: it.clone(),
        });
        JobHistory {
            job: job.to_owned(),
            moves: moves.collect(),
            edits: self.edits(job, most),
            begin_ms: self.begin_ms(),
            life: None,
            pool: None,
        }
    }

    /// Returns the episodes that end in the shown part.
    fn shown(&self) -> Vec<&'a Episode> {
        self.episodes.iter().filter(|episode| self.shows(episode)).collect()
    }

    fn shows(&self, episode: &Episode) -> bool {
        let since = self.since.and_then(|since| u64::try_from(since.as_millisecond()).ok());
        episode.is_open || since.is_none_or(|since| since <= episode.end_ms)
    }

    /// Returns the newest moves of a job in the shown part, after the number of the skipped ones.
    fn shown_of(
        &self,
        job: &str,
        most: usize,
    ) -> (usize, impl Iterator<Item = Moved<'a>> + use<'a>) {
        let moves = self.moves_of(job).filter(|of| self.shows(of.episode));
        let (skipped, moves) = newest(moves.collect(), most);
        (skipped, moves.into_iter())
    }

    /// Returns the begin of the history, in milliseconds since the Unix epoch.
    fn begin_ms(&self) -> Option<u64> {
        self.episodes.first().map(|it| it.start_ms)
    }

    fn moves_of(&self, job: &str) -> impl Iterator<Item = Moved<'a>> {
        self.moves().filter(move |it| it.it.job.as_str() == job)
    }

    /// Returns all moves, each once, in order of time.
    fn moves(&self) -> impl Iterator<Item = Moved<'a>> + use<'a> {
        let of = |episode: &'a Episode| episode.moves.iter().map(move |it| Moved { episode, it });
        let all = self.episodes.iter().flat_map(of);
        // A move that went on after a cut is in both pieces; the later one has its end.
        let is_later = |it: &Moved<'_>| !(it.episode.is_cut && it.it.granted.is_none());
        all.filter(is_later)
    }

    /// Returns the moment at which its present worker got each job, in milliseconds since the Unix
    /// epoch. The history may lack the arrival of a job, which is left out then. O(moves · log jobs).
    #[must_use]
    pub fn held_since(&self) -> BTreeMap<&'a str, u64> {
        let mut held = BTreeMap::new();
        for Moved { episode, it } in self.moves() {
            match it.granted {
                Some(granted) => held.insert(it.job.as_str(), moment(episode, granted)),
                None => held.remove(it.job.as_str()),
            };
        }
        held
    }

    /// Returns the moment at which `holder` got a job, in milliseconds since the Unix epoch; `None` if
    /// the last move in the history went elsewhere.
    #[must_use]
    pub fn granted_to(&self, job: &str, holder: &str) -> Option<u64> {
        let Moved { episode, it } = self.moves_of(job).last()?;
        let granted = it.granted.filter(|_| it.to.as_deref() == Some(holder))?;
        Some(moment(episode, granted))
    }

    /// Returns a sentence about the last move of a job. `holder` is the worker that has it now.
    #[must_use]
    pub fn last_move(&self, job: &str, holder: Option<&str>) -> String {
        let Some(Moved { episode, it }) = self.last_of(job, holder) else {
            let omitted = self.omitted();
            if 0 < omitted {
                let moves = counted(usize::try_from(omitted).unwrap_or(usize::MAX), "move");
                return format!("not known: the history has lost the details of {moves}");
            }
            let begin = self.begin_ms().map(shown);
            return match (begin, holder) {
                (Some(begin), Some(_)) => format!("before {begin}, where the history begins"),
                (Some(begin), None) => {
                    format!("no worker has had it since {begin}, where the history begins")
                }
                (None, _) => "not known; the history is empty".to_owned(),
            };
        };
        let names = [it.to.as_deref(), it.from.as_deref().filter(|_| it.granted.is_none())];
        if holder.is_some() && !names.contains(&holder) {
            return "not in the history yet, which gets a move a while after its end".to_owned();
        }
        let at = moment(episode, it.granted.or(it.acknowledged).or(it.released).unwrap_or(0));
        let from = it.from.as_ref().map(|from| format!("from {from}, ")).unwrap_or_default();
        let causes = Moved { episode, it }.causes().join("; ");
        let causes = if causes.is_empty() { String::new() } else { format!(": {causes}") };
        format!(
            "{from}{} ({} ago), with the reason `{}`{causes}",
            shown(at),
            self.ago(at),
            it.reason
        )
    }

    /// Returns when a job was removed from the pool, as the end of a sentence; `None` if the history
    /// does not have that.
    #[must_use]
    pub fn removed(&self, job: &str) -> Option<String> {
        let Moved { episode, it } = self.moves_of(job).last()?;
        if it.reason != REMOVED {
            return None;
        }
        let at = moment(episode, it.acknowledged.or(it.released).unwrap_or_default());
        let from = it.from.as_ref().map(|from| format!(" from {from}")).unwrap_or_default();
        Some(format!("it was removed{from} at {}", shown(at)))
    }

    /// Returns the last move of a job. If its holder still stops it, that is the move that brought it
    /// there.
    fn last_of(&self, job: &str, holder: Option<&str>) -> Option<Moved<'a>> {
        let last = self.moves_of(job).last()?;
        let leaves = last.it.granted.is_none() && last.it.from.as_deref() == holder;
        if holder.is_none() || !leaves {
            return Some(last);
        }
        self.moves_of(job).filter(|moved| moved.it.granted.is_some()).last()
    }

    /// Returns since when a job has been where it is, and how it came there. `holder` is the worker that
    /// has it now.
    #[must_use]
    pub fn came(&self, job: &str, holder: Option<&str>) -> (Option<Since>, Option<Came>) {
        let Some(Moved { episode, it }) = self.last_of(job, holder) else { return (None, None) };
        let since =
            it.granted.map(|at| Since { revision: it.revision, time: shown(moment(episode, at)) });
        let causes = Moved { episode, it }.causes().into_iter().map(str::to_owned).collect();
        let came = Came { reason: it.reason.clone(), from: it.from.clone(), causes };
        (since, Some(came))
    }

    /// Returns the move of a job that goes on: the next worker, the reason, and the time since which
    /// it goes on, in milliseconds.
    #[must_use]
    pub fn under_way(&self, job: &str) -> Option<(Option<&'a str>, &'a str, u64)> {
        let open = self.episodes.last().filter(|it| it.is_open)?;
        let it = open.moves.iter().rfind(|it| it.job.as_str() == job && it.granted.is_none())?;
        let since = moment(open, it.released.or(it.acknowledged)?);
        Some((it.to.as_deref(), &it.reason, self.now_ms().saturating_sub(since)))
    }

    /// Returns the number of moves without details.
    fn omitted(&self) -> u64 {
        omitted(self.episodes.iter())
    }

    /// Returns a sentence about a job without moves in the shown part, and its edits there.
    #[must_use]
    pub fn unmoved(&self, job: &str) -> String {
        self.without_moves(job) + &self.edit_lines(job, LAST)
    }

    fn without_moves(&self, job: &str) -> String {
        if self.moves_of(job).next().is_some() {
            return format!("{job} has not moved since then\n");
        }
        let came = self.last_move(job, Some(""));
        match self.omitted() {
            0 => format!("{job} has not moved: it came {came}\n"),
            _ => format!("{job} has no moves with details; when it came is {came}\n"),
        }
    }

    /// Returns the revision at which the history ends; 0 for an empty one.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.episodes.last().map_or(0, |it| it.last_revision)
    }

    fn ago(&self, at_ms: u64) -> String {
        age(Duration::from_millis(self.now_ms().saturating_sub(at_ms)))
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.now.as_millisecond()).unwrap_or_default()
    }
}

/// Describes the time for which a moved job ran nowhere. If its worker was not asked to release it,
/// the time counts from the proof of the end only, so the job may have stood still for longer.
fn stood_still(episode: &Episode, it: &JobMove) -> String {
    let is_proven = it.from.is_some() && it.released.is_none();
    match it.standstill().map(seconds) {
        Some(time) if is_proven => format!("≥ {time}"),
        Some(time) => time,
        None if episode.is_open && it.granted.is_none() => "goes on".to_owned(),
        None => String::new(),
    }
}

/// Reads an item of a stored history: an episode, or several that are packed into one item.
#[must_use]
pub fn read_item(document: Value) -> Vec<Episode> {
    match Kept::deserialize(&document) {
        Ok(kept) => kept.into_episodes(),
        Err(_) => read_episode(document).into_iter().collect(),
    }
}

/// Reads an episode. A move or an edit that cannot be read is left out, and counts as one without
/// details.
#[must_use]
pub fn read_episode(mut document: Value) -> Option<Episode> {
    if let Ok(episode) = Episode::deserialize(&document) {
        return Some(episode);
    }
    let moves = readable(&mut document, "moves", |it| JobMove::deserialize(it).is_ok())?;
    let edits = readable(&mut document, "edits", |it| JobEdit::deserialize(it).is_ok())?;
    let mut episode = Episode::deserialize(document).ok()?;
    episode.omitted = episode.omitted.saturating_add(moves);
    episode.edits_omitted = episode.edits_omitted.saturating_add(edits);
    Some(episode)
}

/// Leaves out the items of a list that cannot be read, and returns the number of these items. Returns
/// `None` if the field has another type.
fn readable(document: &mut Value, field: &str, is_readable: fn(&Value) -> bool) -> Option<u64> {
    let Some(items) = document.get_mut(field) else { return Some(0) };
    let items = items.as_array_mut()?;
    let all = items.len();
    items.retain(is_readable);
    Some(u64::try_from(all - items.len()).unwrap_or(u64::MAX))
}

/// Reads a revision.
///
/// # Errors
///
/// A sentence if the text is not a whole number.
pub fn read_revision(text: &str) -> Result<u64, String> {
    let wrong = || "a revision is a whole number that `history` shows under REVISIONS; write one, for example 12";
    text.parse().map_err(|_| wrong().to_owned())
}

/// Returns the maximum number of rows of a table, and of items of a document, for the number that the
/// user names.
#[must_use]
pub fn limits(last: Option<usize>) -> (usize, usize) {
    (last.unwrap_or(LAST), last.unwrap_or(usize::MAX))
}

/// Reads a number of episodes.
///
/// # Errors
///
/// A sentence if the text is not a whole number.
pub fn read_count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| 0 < *count);
    count.ok_or_else(|| "write a whole number of episodes from 1, for example 20".to_owned())
}

/// Checks that the first revision is not later than the second one.
///
/// # Errors
///
/// A sentence if it is.
pub fn in_order(from: u64, to: Option<u64>) -> Result<(), String> {
    match to.filter(|to| *to < from) {
        Some(to) => Err(format!("revision {from} is later than {to}; write the earlier one first")),
        None => Ok(()),
    }
}

/// Returns the number of moves without details.
fn omitted<'a>(episodes: impl Iterator<Item = &'a Episode>) -> u64 {
    episodes.map(|it| it.omitted).fold(0, u64::saturating_add)
}

/// Returns the beginning of a line about moves without details; `None` without such moves.
fn lost<'a>(episodes: impl Iterator<Item = &'a Episode>) -> Option<String> {
    match omitted(episodes) {
        0 => None,
        1 => Some("1 move has no details any more".to_owned()),
        lost => Some(format!("{lost} moves have no details any more")),
    }
}

/// Returns the beginning of a line about edits without details; `None` without such edits.
fn lost_edits<'a>(episodes: impl Iterator<Item = &'a Episode>) -> Option<String> {
    match episodes.map(|it| it.edits_omitted).fold(0, u64::saturating_add) {
        0 => None,
        1 => Some("1 edit of a job has no details".to_owned()),
        lost => Some(format!("{lost} edits of jobs have no details")),
    }
}

/// Returns the last items, at most `most` of them, after the number of the others.
fn newest<T>(mut all: Vec<T>, most: usize) -> (usize, Vec<T>) {
    let skipped = all.len().saturating_sub(most);
    (skipped, all.split_off(skipped))
}

/// Returns a moment of an episode, in milliseconds since the Unix epoch.
fn moment(episode: &Episode, offset: i64) -> u64 {
    episode.start_ms.saturating_add_signed(offset)
}

/// Formats a time to the second, in UTC.
pub(crate) fn shown(unix_ms: u64) -> String {
    let seconds = i64::try_from(unix_ms / 1_000).ok();
    let time = seconds.and_then(|it| Timestamp::from_second(it).ok());
    time.map_or_else(|| "?".to_owned(), |time| time.to_string())
}

/// Formats a duration: milliseconds below a second, tenths of a second below a minute.
fn seconds(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.subsec_millis()),
        s @ 1..60 => format!("{s}.{} s", time.subsec_millis() / 100),
        s => format!("{} min {} s", s / 60, s % 60),
    }
}

#[cfg(test)]
mod tests;
