//! The model of the screen: the known state and the selection. This module neither draws nor reads
//! the clock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use swarm_adapters_host::clock::unix_s;
use swarm_view::jobs::{EVERYWHERE, JobEntry};
use swarm_view::message::Message;
use swarm_view::status::Status;
use swarm_view::workers::WorkerRow;

use super::questions::{Note, Question};
use super::reader::JobLog;
use crate::scene::{Ends, Paths, Scene};

/// Maximum number of stored events.
const EVENTS_MAX: usize = 1_000;

/// All data that the screen shows.
#[derive(Debug)]
pub(super) struct Model {
    /// The documents of the pool.
    pub(super) scene: Arc<Scene>,
    /// Events, newest first.
    pub(super) events: VecDeque<Entry>,
    /// Number of events above the visible ones.
    pub(super) events_above: usize,
    /// Paths of the pool.
    pub(super) paths: Paths,
    /// Whether the workers are being ended.
    pub(super) is_ending: bool,
    /// The effect of the end of the screen.
    pub(super) ends: Ends,
    /// The question that the next key answers.
    pub(super) asks: Option<Question>,
    /// The result of an action, until the next key.
    pub(super) note: Option<Note>,
    pub(super) page: Page,
    /// The focused part of the pool's page.
    pub(super) focus: Focus,
    /// Whether keys are typed text: a filter, or a search in a log.
    pub(super) is_typing: bool,
    /// The listed jobs.
    pub(super) jobs: Jobs,
    /// The slot of the selected worker, which may no longer exist.
    pub(super) selected: u32,
}

/// The page on the screen.
#[derive(Debug, Default)]
pub(super) enum Page {
    /// The pool: workers, jobs, events.
    #[default]
    Pool,
    /// The keys.
    Help,
    /// One job, and its log.
    Job(JobPage),
}

/// A part of the pool's page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Focus {
    Workers,
    Jobs,
    Events,
}

/// Selection of the listed jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Which {
    /// Jobs of the selected worker.
    #[default]
    OfWorker,
    /// Jobs with this text in their names.
    Named(String),
    /// Jobs without a worker.
    Unassigned,
    /// Failing jobs, the worst first.
    Failing,
}

/// The list of jobs.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    pub(super) which: Which,
    /// Indexes of the listed jobs among all jobs.
    pub(super) places: Vec<usize>,
    /// Index of the selected job in the list.
    pub(super) at: usize,
}

/// A page about one job.
#[derive(Debug)]
pub(super) struct JobPage {
    pub(super) job: String,
    pub(super) log: Arc<JobLog>,
    /// The number of the bottom line; `None` follows the last line.
    pub(super) bottom: Option<u64>,
    /// The searched text.
    pub(super) search: String,
}

/// An event, with its time.
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

impl Model {
    pub(super) fn new(paths: Paths) -> Self {
        Self {
            scene: Arc::default(),
            events: VecDeque::new(),
            events_above: 0,
            paths,
            is_ending: false,
            ends: Ends::Pool,
            asks: None,
            note: None,
            page: Page::default(),
            focus: Focus::Workers,
            is_typing: false,
            jobs: Jobs::default(),
            selected: 0,
        }
    }

    /// Stores the state, and returns the previous one, whose deallocation may take a while. O(jobs).
    pub(super) fn on_scene(&mut self, scene: Arc<Scene>) -> Arc<Scene> {
        let selected = self.selected_job().map(|job| job.name.clone());
        let before = std::mem::replace(&mut self.scene, scene);
        // A view that another operator feeds has no other sign of the end.
        if self.ends != Ends::Pool {
            self.is_ending = self.scene.status.ending.is_some();
        }
        self.list_jobs();
        if let Some(name) = selected {
            self.select_job(&name);
        }
        before
    }

    /// Logs a message at `now`.
    pub(super) fn on_message(&mut self, message: Message, now: Instant) {
        let (tone, text) = match message {
            Message::Info(text) => (Tone::Plain, text),
            Message::Problem(text) => (Tone::Bad, text),
            Message::Moved(text) => (Tone::Move, text),
            Message::Settled(text) => (Tone::Good, text),
        };
        self.log(Entry { at: now, tone, text });
    }

    /// Stores a log that was read.
    pub(super) fn on_log(&mut self, log: Arc<JobLog>) {
        if let Page::Job(page) = &mut self.page
            && page.job == log.job
        {
            page.log = log;
        }
    }

    fn log(&mut self, entry: Entry) {
        self.events.push_front(entry);
        self.events.truncate(EVENTS_MAX);
        // Visible events stay in place while the user scrolls.
        if 0 < self.events_above {
            self.events_above = (self.events_above + 1).min(self.events.len() - 1);
        }
    }

    /// Returns the index of the selected worker, or of its successor.
    pub(super) fn position(&self) -> usize {
        let workers = &self.scene.status.workers;
        let at = workers.partition_point(|worker| worker.slot < self.selected);
        at.min(workers.len().saturating_sub(1))
    }

    /// Returns the selected worker, if any.
    pub(super) fn selected(&self) -> Option<&WorkerRow> {
        self.scene.status.workers.get(self.position())
    }

    /// Returns the selected job, if any.
    pub(super) fn selected_job(&self) -> Option<&JobEntry<String>> {
        self.scene.jobs.get(*self.jobs.places.get(self.jobs.at)?)
    }

    /// Selects a job if it is listed; otherwise the selection stays at about the same place.
    fn select_job(&mut self, name: &str) {
        let (all, jobs) = (&self.scene.jobs, &mut self.jobs);
        let named = |place: &usize| all.get(*place).is_some_and(|job| job.name == name);
        if let Some(at) = jobs.places.iter().position(named) {
            jobs.at = at;
        }
        jobs.at = jobs.at.min(jobs.places.len().saturating_sub(1));
    }

    /// Updates the listed jobs. O(jobs).
    pub(super) fn list_jobs(&mut self) {
        let slot = self.selected().map(|worker| worker.slot);
        let Status { unassigned, failing, .. } = &self.scene.status;
        let all = self.scene.jobs.iter().enumerate();
        self.jobs.places = match &self.jobs.which {
            Which::OfWorker => {
                let is_its_own = |job: &JobEntry<String>| {
                    slot.is_some() && (job.slot == slot || job.state == EVERYWHERE)
                };
                all.filter(|(_, job)| is_its_own(job)).map(|(place, _)| place).collect()
            }
            Which::Named(text) => {
                let named = all.filter(|(_, job)| job.has(text));
                named.map(|(place, _)| place).collect()
            }
            Which::Unassigned => {
                unassigned.iter().filter_map(|row| self.scene.place(&row.job)).collect()
            }
            Which::Failing => failing.iter().filter_map(|row| self.scene.place(&row.job)).collect(),
        };
        self.jobs.at = self.jobs.at.min(self.jobs.places.len().saturating_sub(1));
    }

    /// Returns the job whose log is read: the job whose page is open.
    pub(super) fn log_wanted(&self) -> Option<String> {
        match &self.page {
            Page::Job(page) => Some(page.job.clone()),
            _ => None,
        }
    }

    /// Returns the delay after which the displayed ages change.
    pub(super) fn ages_in(&self, now: Instant) -> Duration {
        if self.is_ending {
            return Duration::from_secs(1);
        }
        let event = self.events.front().map(|entry| now.saturating_duration_since(entry.at));
        let workers = self.scene.status.workers.iter();
        let silent = workers.filter_map(|worker| worker.silent_for(unix_s()));
        match event.into_iter().chain(silent).min() {
            Some(age) if age < Duration::from_mins(1) => Duration::from_secs(1),
            Some(_) | None => Duration::from_secs(10),
        }
    }
}
