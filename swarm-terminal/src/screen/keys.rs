//! The effect of keys on the model.

use std::sync::Arc;

use super::model::{Focus, JobPage, Model, Page, Which};
use super::questions::{Question, Wish};
use super::window::Key;
use crate::scene::Ends;

/// Number of entries of a page, independent of the screen.
const PAGE: usize = 10;

impl Model {
    /// Handles a key.
    pub(super) fn pressed(&mut self, key: Key) -> Wish {
        match key {
            Key::Interrupt => return Wish::Interrupt,
            Key::Suspend => return Wish::Suspend,
            _ => {}
        }
        self.note = None;
        if let Some(wish) = self.answered(key) {
            return wish;
        }
        if !self.is_typing
            && !matches!(self.page, Page::Help)
            && let Some(wish) = self.steered(key)
        {
            return wish;
        }
        match &mut self.page {
            Page::Help => self.page = Page::Pool,
            Page::Job(page) if self.is_typing => self.is_typing = page.typed(key),
            Page::Job(_) => return self.pressed_on_job(key),
            Page::Pool if self.is_typing => self.typed(key),
            Page::Pool => return self.pressed_on_pool(key),
        }
        Wish::Nothing
    }

    /// Whether ending the pool would stop jobs that are not stopping already.
    fn runs_jobs(&self) -> bool {
        let jobs = self.scene.status.jobs;
        self.ends == Ends::Pool && !self.is_ending && 0 < jobs.granted + jobs.moving
    }

    fn pressed_on_pool(&mut self, key: Key) -> Wish {
        match key {
            Key::Char('q') if self.runs_jobs() => self.asks = Some(Question::End),
            Key::Char('q') => return Wish::End,
            Key::Char('?') => self.page = Page::Help,
            Key::Char('/') => {
                self.list(Which::Named(String::new()));
                self.is_typing = true;
            }
            Key::Char('u') => self.list(Which::Unassigned),
            Key::Char('e') => self.list(Which::Failing),
            Key::Esc => self.list(Which::OfWorker),
            Key::Tab => self.focus = self.focus.next(),
            Key::BackTab => self.focus = self.focus.next().next(),
            Key::Enter => match self.focus {
                Focus::Workers => self.list(Which::OfWorker),
                Focus::Jobs => self.open_job(),
                Focus::Events => {}
            },
            key => self.moved(key),
        }
        Wish::Nothing
    }

    /// Handles a key while the filter is typed.
    fn typed(&mut self, key: Key) {
        let Which::Named(text) = &mut self.jobs.which else {
            self.is_typing = false;
            return;
        };
        match key {
            Key::Char(sign) => {
                text.push(sign);
                self.narrow_jobs();
            }
            Key::Backspace => {
                text.pop();
                self.list_jobs();
            }
            Key::Enter => {
                self.is_typing = false;
                self.open_job();
            }
            Key::Tab | Key::BackTab => self.is_typing = false,
            Key::Esc => {
                self.is_typing = false;
                self.list(Which::OfWorker);
            }
            key => self.moved(key),
        }
    }

    /// Narrows the list to jobs that match the filter, which became longer.
    fn narrow_jobs(&mut self) {
        if let Which::Named(text) = &self.jobs.which {
            let all = &self.scene.jobs;
            let has = |place: &usize| all.get(*place).is_some_and(|job| job.has(text));
            self.jobs.places.retain(has);
            self.jobs.at = 0;
        }
    }

    /// Lists other jobs, from the first one on.
    fn list(&mut self, which: Which) {
        self.jobs.which = which;
        self.jobs.at = 0;
        self.focus = Focus::Jobs;
        self.list_jobs();
    }

    fn open_job(&mut self) {
        if let Some(job) = self.selected_job() {
            self.page = Page::Job(JobPage::of(&job.name));
        }
    }

    /// Moves within the focused part.
    fn moved(&mut self, key: Key) {
        match self.focus {
            Focus::Workers => {
                let at = stepped(self.position(), key, self.scene.status.workers.len());
                if let Some(worker) = self.scene.status.workers.get(at) {
                    self.selected = worker.slot;
                }
                if self.jobs.which == Which::OfWorker {
                    self.jobs.at = 0;
                    self.list_jobs();
                }
            }
            Focus::Jobs => self.jobs.at = stepped(self.jobs.at, key, self.jobs.places.len()),
            Focus::Events => {
                self.events_above = stepped(self.events_above, key, self.events.len());
            }
        }
    }

    fn pressed_on_job(&mut self, key: Key) -> Wish {
        let Page::Job(page) = &mut self.page else { return Wish::Nothing };
        match key {
            Key::Esc | Key::Backspace | Key::Char('q') => self.page = Page::Pool,
            Key::Char('/') => {
                page.search.clear();
                self.is_typing = true;
            }
            Key::Char('c') => return Wish::Text(page.plain()),
            key => page.pressed(key),
        }
        Wish::Nothing
    }
}

impl Focus {
    fn next(self) -> Self {
        match self {
            Self::Workers => Self::Jobs,
            Self::Jobs => Self::Events,
            Self::Events => Self::Workers,
        }
    }
}

/// Returns the new position in a list with `len` entries.
fn stepped(at: usize, key: Key, len: usize) -> usize {
    let last = len.saturating_sub(1);
    let wanted = match key {
        Key::Up | Key::Char('k') => at.saturating_sub(1),
        Key::Down | Key::Char('j') => at + 1,
        Key::PageUp => at.saturating_sub(PAGE),
        Key::PageDown => at + PAGE,
        Key::Home | Key::Char('g') => 0,
        Key::End | Key::Char('G') => last,
        _ => at,
    };
    wanted.min(last)
}

impl JobPage {
    fn of(job: &str) -> Self {
        let (job, log, search) = (job.to_owned(), Arc::default(), String::new());
        Self { job, log, bottom: None, search }
    }

    /// Handles a key while the search text is typed. Returns whether typing continues.
    fn typed(&mut self, key: Key) -> bool {
        match key {
            Key::Char(sign) => self.search.push(sign),
            Key::Backspace => {
                self.search.pop();
            }
            Key::Esc => {
                self.search.clear();
                return false;
            }
            _ => return false,
        }
        self.bottom = None;
        if !self.search.is_empty() && !self.is_found(self.at_bottom()) {
            self.seek(Direction::Older);
        }
        true
    }

    fn pressed(&mut self, key: Key) {
        match key {
            Key::Char('n') => self.seek(Direction::Older),
            Key::Char('N') => self.seek(Direction::Newer),
            key => {
                let at = stepped(self.at_bottom(), key, self.log.lines.len());
                self.go_to(at);
            }
        }
    }

    /// Goes to the next line with the searched text, if any.
    fn seek(&mut self, direction: Direction) {
        let (at, len) = (self.at_bottom(), self.log.lines.len());
        let found = match direction {
            Direction::Older => (0..at.min(len)).rev().find(|line| self.is_found(*line)),
            Direction::Newer => (at + 1..len).find(|line| self.is_found(*line)),
        };
        if let Some(found) = found {
            self.go_to(found);
        }
    }

    /// Whether a line contains the searched text.
    pub(super) fn is_found(&self, line: usize) -> bool {
        let line = self.log.lines.get(line);
        !self.search.is_empty() && line.is_some_and(|line| line.contains(&self.search))
    }

    fn go_to(&mut self, line: usize) {
        let is_last = self.log.lines.len() <= line + 1;
        self.bottom = (!is_last).then_some(self.log.dropped + line as u64);
    }

    /// Returns the index of the bottom line.
    pub(super) fn at_bottom(&self) -> usize {
        let last = self.log.lines.len().saturating_sub(1);
        let kept = |number: u64| usize::try_from(number.saturating_sub(self.log.dropped)).ok();
        self.bottom.and_then(kept).map_or(last, |line| line.min(last))
    }

    /// Returns the log as text.
    fn plain(&self) -> String {
        self.log.lines.iter().flat_map(|line| [line, "\n"]).collect()
    }
}

/// Direction of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Older,
    Newer,
}
