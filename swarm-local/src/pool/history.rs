//! Keeps the moves of a pool in its state directory, for people.
//!
//! Each line of the file is one episode as JSON. The file is rotated, so that there are at most two
//! of [`BYTES_MAX`]. A disk that is full costs history, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use swarm_adapters_host::clock::unix_ms;
use swarm_adapters_host::file::{self, ReadError};
use swarm_adapters_host::ledger::FileLedgerStore;
use swarm_core::handover::{Cell, Record, SessionId};
use swarm_core::history::{
    Episode, Outage, OutageCause, Outages, Recorded, Recorder, Scope, Turned, catch_up, fit,
};
use swarm_core::ports::StoreError;
use swarm_core::{Decision, Desired, JobName, JobPhase, Ledger, Observed, Phases, Unacknowledged};
use swarm_view::history::read_episode;

/// The file in the state directory, and its name after a rotation.
const NAMES: [&str; 2] = ["history.jsonl", "history.1.jsonl"];
/// The size above which the file is rotated: 1 MiB.
const BYTES_MAX: u64 = 1 << 20;
/// The most bytes of one episode: 64 KiB.
const EPISODE_BYTES_MAX: usize = 64 << 10;

/// The history of a pool.
#[derive(Debug)]
pub(super) struct History {
    dir: PathBuf,
    recorder: Recorder,
    unacknowledged: Unacknowledged,
    /// The last episode in the file, until the first turn.
    last: Option<Episode>,
    is_written: bool,
    /// The end of the previous operator that was not asked to end, until the first turn.
    away_since_ms: Option<u64>,
    /// The failed writes.
    outages: Outages,
    /// The outages that have ended and were not reported yet.
    ended: Vec<Outage>,
}

impl History {
    /// Continues the history in `dir`. `away_since_ms` is the end of a previous operator that was not
    /// asked to end.
    pub(super) fn open(dir: &Path, away_since_ms: Option<u64>) -> Self {
        let last = NAMES.iter().find_map(|name| {
            let text = file::read_regular_lossy(&dir.join(name), 2 * BYTES_MAX).ok()?;
            text.lines().rev().find_map(parse)
        });
        let (recorder, unacknowledged) = (Recorder::default(), Unacknowledged::default());
        let (outages, ended) = (Outages::default(), Vec::new());
        let (dir, is_written) = (dir.to_owned(), true);
        Self { dir, recorder, unacknowledged, last, is_written, away_since_ms, outages, ended }
    }

    /// Learns what the sessions have acknowledged. `granted` are the jobs that the last turn granted,
    /// and `acknowledged` returns the revision up to which a session has acknowledged a job.
    pub(super) fn acknowledge(
        &mut self,
        ledger: &Ledger,
        granted: &BTreeSet<JobName>,
        acknowledged: impl Fn(&SessionId, &str) -> u64,
    ) {
        self.unacknowledged.observe(ledger, granted, acknowledged);
    }

    /// Records the state after a turn, or while no turn is needed. `edits` are the edited fields of
    /// the file since the last call. Returns the moves that ended, and the times for which moved jobs
    /// ran nowhere.
    pub(super) fn observe(
        &mut self,
        now_ms: u64,
        before: &Ledger,
        (decision, desired, observed): (&Decision, &Desired, &Observed),
        edits: &[String],
        is_settled: bool,
    ) -> Recorded {
        let unacknowledged = &self.unacknowledged;
        let turned =
            Turned { before, decision, desired, edits, observed, unacknowledged, is_settled };
        let mut recorded = self.recorder.observe(now_ms, &turned);
        let gap = self.last.take().zip(self.recorder.begin());
        let gap = gap.and_then(|(last, begin)| begin.gap_after(&last));
        let away = self.away_since_ms.take().map(|from_ms| {
            let granted = |record: &&Record| matches!(record.cell, Cell::Granted { .. });
            let jobs = before.cells.jobs.values().filter(granted).count() as u64;
            Outage { cause: OutageCause::Operators, from_ms, to_ms: now_ms, jobs }
        });
        if let Some(gap) = gap {
            self.append(gap);
        }
        if let Some(away) = away {
            self.end(away, before);
        }
        if let Some(episode) = recorded.episode.take() {
            self.append(episode);
        }
        recorded
    }

    /// Notes that the state directory takes writes, or the moment since which it takes none. `jobs` is the
    /// number of jobs on silent workers.
    pub(super) fn room(&mut self, unwritable_since_ms: Option<u64>, jobs: usize, ledger: &Ledger) {
        match unwritable_since_ms {
            Some(since_ms) => self.outages.failed(OutageCause::Disk, since_ms, jobs as u64),
            None => {
                if let Some(outage) = self.outages.succeeded(unix_ms()) {
                    self.end(outage, ledger);
                }
            }
        }
    }

    /// Returns the outages that have ended since the last call.
    pub(super) fn ended(&mut self) -> Vec<Outage> {
        std::mem::take(&mut self.ended)
    }

    fn end(&mut self, outage: Outage, ledger: &Ledger) {
        let episode = self.recorder.outage(&outage, ledger);
        self.append(episode);
        self.ended.push(outage);
    }

    /// Notes a cause of moves that turns do not show.
    pub(super) fn note(&mut self, cause: &str) {
        self.recorder.note(unix_ms(), cause.to_owned());
    }

    /// Returns the numbers of jobs by phase. Jobs of `unheard` sessions are not known to run. Jobs in
    /// `failing` fail, and `unnamed` others.
    pub(super) fn phases(
        &self,
        decision: &Decision,
        unheard: &BTreeSet<SessionId>,
        failing: &BTreeSet<JobName>,
        unnamed: usize,
    ) -> BTreeMap<JobPhase, usize> {
        let unacknowledged = &self.unacknowledged;
        Phases { decision, unacknowledged, unheard, failing }.counts_with(unnamed)
    }

    /// Returns the moves that go on, each with the reason for which it began. A later plan has another
    /// reason for the same move. O(moves).
    pub(super) fn reasons(&self) -> impl Iterator<Item = (&JobName, &str)> {
        let moves = self.recorder.open().into_iter().flat_map(|open| &open.moves);
        moves.filter(|it| it.granted.is_none()).map(|it| (&it.job, it.reason.as_str()))
    }

    fn append(&mut self, episode: Episode) {
        let is_written = append(&self.dir, episode);
        if let (Err(error), true) = (&is_written, self.is_written) {
            tracing::warn!(%error, "the history cannot be written");
        }
        self.is_written = is_written.is_ok();
    }
}

fn append(dir: &Path, episode: Episode) -> io::Result<()> {
    let [path, rotated] = NAMES.map(|name| dir.join(name));
    if fs::symlink_metadata(&path).is_ok_and(|found| BYTES_MAX < found.len()) {
        fs::rename(&path, rotated)?;
    }
    let mut episodes = vec![episode];
    fit(&mut episodes, EPISODE_BYTES_MAX);
    let Some(episode) = episodes.pop() else { return Ok(()) };
    // A full disk may have cut the last line.
    let mut line = if ends_a_line(&path) { Vec::new() } else { vec![b'\n'] };
    serde_json::to_writer(&mut line, &episode)?;
    line.push(b'\n');
    file::append(&path)?.write_all(&line)
}

/// Returns the last moment at which a pool wrote one of these files in `dir`, in milliseconds since the
/// Unix epoch. Workers renew their leases there, and end with their operator.
pub(crate) fn last_sign(dir: &Path) -> Option<u64> {
    let leases = fs::read_dir(dir.join("leases")).into_iter().flatten().flatten();
    let files =
        leases.map(|entry| entry.path()).chain([dir.join("ledger.json"), dir.join(NAMES[0])]);
    let written =
        |path: PathBuf| fs::symlink_metadata(path).and_then(|found| found.modified()).ok();
    let since = files.filter_map(written).max()?.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

/// Whether the file is empty, or missing, or ends with a line break.
fn ends_a_line(path: &Path) -> bool {
    let last = || {
        let mut file = file::regular(path)?;
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        io::Result::Ok(last)
    };
    last().map_or(true, |last| last == *b"\n")
}

/// Reads the history of the pool in `dir`, the newest episode last. An episode that goes on is not in the
/// file, so its moves come from the ledger. The second result is a sentence about a file that exists and
/// was not read, or about damaged lines: a full disk cuts lines.
pub(crate) fn read(dir: &Path) -> (Vec<Episode>, Option<String>) {
    let (mut episodes, mut unread) = (Vec::new(), None);
    for name in NAMES.iter().rev() {
        let path = dir.join(name);
        match file::read_regular_lossy(&path, 2 * BYTES_MAX) {
            Ok(text) => {
                let (lines, before) = (text.lines().count(), episodes.len());
                episodes.extend(text.lines().filter_map(parse));
                let cut = lines - (episodes.len() - before);
                if 0 < cut {
                    let path = path.display();
                    unread = Some(format!(
                        "a part of the history was not read: {cut} of the lines of {path} are cut or \
                         damaged"
                    ));
                }
            }
            Err(ReadError::Missing) => {}
            Err(error) => {
                let path = path.display();
                unread = Some(format!("a part of the history was not read: {path}: {error}"));
            }
        }
    }
    if let Err(error) = follow_ledger(dir, &mut episodes) {
        unread.get_or_insert_with(|| format!("the newest moves were not read: {error}"));
    }
    (episodes, unread)
}

/// Adds the moves that the ledger has and the history lacks.
fn follow_ledger(dir: &Path, episodes: &mut Vec<Episode>) -> Result<(), StoreError> {
    let written =
        |name| fs::symlink_metadata(dir.join(name)).and_then(|found| found.modified()).ok();
    // An episode is written after the ledger. A large ledger costs nothing at rest.
    if written("ledger.json") <= written(NAMES[0]) {
        return Ok(());
    }
    if let Some((ledger, written)) = FileLedgerStore::peek(dir)? {
        let written = written.duration_since(UNIX_EPOCH).unwrap_or_default();
        let written_ms = u64::try_from(written.as_millis()).unwrap_or_default();
        catch_up(episodes, &ledger, written_ms, Scope::All);
    }
    Ok(())
}

/// Reads a line of the file; `None` for a line that was cut.
fn parse(line: &str) -> Option<Episode> {
    read_episode(serde_json::from_str(line).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn episode(start_ms: u64) -> Episode {
        let mut episode = Episode::default();
        episode.start_ms = start_ms;
        episode.causes = vec!["a long cause ".repeat(1_000)];
        episode
    }

    #[test]
    fn a_history_is_kept_in_two_files_of_bounded_size() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()), (Vec::new(), None));
        for n in 0..250 {
            append(dir.path(), episode(n)).unwrap();
        }
        let starts: Vec<_> = read(dir.path()).0.iter().map(|it| it.start_ms).collect();
        let first = starts[0];
        assert!(0 < first && 80 < starts.len(), "{first}");
        assert_eq!(starts, (first..250).collect::<Vec<_>>());
        let size = |name| fs::metadata(dir.path().join(name)).unwrap().len();
        assert!(NAMES.iter().all(|name| size(name) < BYTES_MAX + 20_000));
    }

    #[test]
    fn a_line_that_was_cut_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        append(dir.path(), episode(1)).unwrap();
        let path = dir.path().join(NAMES[0]);
        let text = fs::read(&path).unwrap();
        // The cut may be in the middle of a character.
        fs::write(&path, [&text[..], &text[..50], b"\xc3"].concat()).unwrap();
        append(dir.path(), episode(2)).unwrap();
        let (episodes, unread) = read(dir.path());
        let starts: Vec<_> = episodes.iter().map(|it| it.start_ms).collect();
        let cut = "1 of the lines of ";
        assert!(starts == [1, 2] && unread.is_some_and(|it| it.contains(cut)), "{starts:?}");
        assert_eq!(History::open(dir.path(), None).last.unwrap().start_ms, 2);
    }

    #[test]
    fn a_file_that_cannot_be_read_hides_only_its_own_episodes() {
        let dir = tempfile::tempdir().unwrap();
        append(dir.path(), episode(1)).unwrap();
        let [path, rotated] = NAMES.map(|name| dir.path().join(name));
        fs::rename(&path, rotated).unwrap();
        fs::create_dir(&path).unwrap();
        let (episodes, unread) = read(dir.path());
        let sentence = unread.unwrap();
        assert_eq!(episodes.len(), 1);
        assert!(sentence.ends_with("history.jsonl: it cannot be read: it is not a regular file"));
    }

    #[test]
    fn an_episode_with_an_invalid_move_loses_that_move_alone() {
        let dir = tempfile::tempdir().unwrap();
        let line = r#"{"startMs":1,"counts":{"new":2},"moves":[{"job":"a","reason":"new","revision":1},{"job":"","reason":"new","revision":1}]}"#;
        fs::write(dir.path().join(NAMES[0]), line).unwrap();
        let (episodes, _) = read(dir.path());
        let [episode] = &episodes[..] else { panic!("{episodes:?}") };
        assert_eq!((episode.moves.len(), episode.omitted), (1, 1));
    }
}
