//! The model of the screen, and the effect of keys on it. Draws nothing and reads no clock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::moves::{Move, Moves};
use super::super::outlets::Message;
use super::super::snapshot::{JobRow, Snapshot, Word, WorkerRow};
use super::super::terminal::Key;
use super::super::text::counted;

/// How many entries the log keeps.
const LOG_MAX: usize = 1_000;

/// How many workers a page has, whatever fits on the screen.
const PAGE: usize = 10;

/// Everything the screen shows.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) snapshot: Arc<Snapshot>,
    /// The newest first.
    pub(super) log: VecDeque<Entry>,
    /// How many jobs have no worker, by reason.
    pub(super) unassigned: BTreeMap<Word, usize>,
    /// The length of the longest name of a job.
    pub(super) longest_job: usize,
    /// The most jobs of any worker, including those that it is releasing.
    pub(super) most: usize,
    /// The file to edit, as the user wrote it.
    pub(super) file: Option<String>,
    /// Whether the workers are being ended.
    pub(super) is_ending: bool,
    /// The slot of the selected worker, which may have gone since.
    selected: u32,
    moves: Moves,
}

/// A log entry, with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) at: Instant,
    pub(super) tone: Tone,
    pub(super) text: String,
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Good,
    Bad,
    Move,
}

/// What a key asks for beyond the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Nothing,
    End,
}

impl Model {
    pub(super) fn new(file: Option<String>) -> Self {
        Self {
            snapshot: Arc::default(),
            log: VecDeque::new(),
            unassigned: BTreeMap::new(),
            longest_job: 0,
            most: 0,
            file,
            is_ending: false,
            selected: 0,
            moves: Moves::default(),
        }
    }

    /// Stores the state of the pool at `now`, and logs the moves. O(jobs).
    pub(super) fn on_snapshot(&mut self, snapshot: Arc<Snapshot>, now: Instant) {
        let moved = self.moves.seen(&snapshot);
        let before = std::mem::replace(&mut self.snapshot, snapshot);
        let names = self.snapshot.holders.iter().map(|job| job.name.chars().count());
        self.longest_job = names.max().unwrap_or_default();
        let loads = self.snapshot.workers.iter().map(|worker| worker.jobs + worker.releasing);
        self.most = loads.max().unwrap_or_default();
        self.unassigned = self.snapshot.unassigned_by_reason();
        // The newest come first, so the last is logged first.
        let rest = moved.count - moved.first.len();
        if 0 < rest {
            let text = format!("… and {} moved", counted(rest, "more job"));
            self.log(Entry { at: now, tone: Tone::Move, text });
        }
        for one in moved.first.iter().rev() {
            let text = described(one, &[&self.snapshot, &before]);
            self.log(Entry { at: now, tone: Tone::Move, text });
        }
    }

    /// Logs a message of `now`.
    pub(super) fn on_message(&mut self, message: Message, now: Instant) {
        let (tone, text) = match message {
            Message::Info(text) => (Tone::Plain, text),
            Message::Problem(text) => (Tone::Bad, text),
            Message::Settled(text) => (Tone::Good, text),
        };
        self.log(Entry { at: now, tone, text });
    }

    fn log(&mut self, entry: Entry) {
        self.log.push_front(entry);
        self.log.truncate(LOG_MAX);
    }

    /// Handles a key.
    pub(super) fn pressed(&mut self, key: Key) -> Wish {
        let last = self.snapshot.workers.len().saturating_sub(1);
        let at = self.position();
        let wanted = match key {
            Key::Interrupt | Key::Char('q') => return Wish::End,
            Key::Up | Key::Char('k') => at.saturating_sub(1),
            Key::Down | Key::Char('j') => at + 1,
            Key::PageUp => at.saturating_sub(PAGE),
            Key::PageDown => at + PAGE,
            Key::Home => 0,
            Key::End => last,
            Key::Redraw | Key::Char(_) => at,
        };
        if let Some(worker) = self.snapshot.workers.get(wanted.min(last)) {
            self.selected = worker.slot;
        }
        Wish::Nothing
    }

    /// The index of the selected worker, or of the one that took its place.
    pub(super) fn position(&self) -> usize {
        let workers = &self.snapshot.workers;
        let at = workers.partition_point(|worker| worker.slot < self.selected);
        at.min(workers.len().saturating_sub(1))
    }

    /// The selected worker, if there are any.
    pub(super) fn selected(&self) -> Option<&WorkerRow> {
        self.snapshot.workers.get(self.position())
    }

    /// The jobs of the selected worker, by name. O(jobs).
    pub(super) fn jobs(&self) -> impl Iterator<Item = &JobRow> {
        let slot = self.selected().map(|worker| worker.slot);
        let is_its_own =
            move |job: &&JobRow| slot.is_some() && (job.slot == slot || job.state == "everywhere");
        self.snapshot.holders.iter().filter(is_its_own)
    }

    /// The delay after which the displayed ages are outdated.
    pub(super) fn ages_in(&self, now: Instant) -> Duration {
        let silent = self.snapshot.workers.iter().filter_map(|worker| worker.silent_since);
        let newest = self.log.front().map(|entry| entry.at).into_iter().chain(silent).max();
        match newest.map(|at| now.saturating_duration_since(at)) {
            Some(age) if age < Duration::from_mins(1) => Duration::from_secs(1),
            Some(_) | None => Duration::from_secs(10),
        }
    }
}

/// A move in words; the names of workers are those in the first of the `snapshots` that has them.
fn described(one: &Move, snapshots: &[&Snapshot]) -> String {
    let name = |slot: u32| {
        let rows = snapshots.iter().flat_map(|snapshot| &snapshot.workers);
        let mut named = rows.filter(|worker| worker.slot == slot).map(|worker| &worker.name);
        named.next().cloned().unwrap_or_else(|| format!("slot {slot}"))
    };
    format!("{}: {} → {}", one.job, name(one.from), name(one.to))
}
