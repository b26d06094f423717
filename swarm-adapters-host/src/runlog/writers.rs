//! Follows the writers of run logs: expands their lines to lines of jobs, and finds missing lines.
//!
//! The lines of a writer are numbered, so a missing number is a missing line. The `session` line at
//! the beginning of each file names every job that the writer has run since a time in it. So a file
//! without its predecessor is complete from the first line on, and lines that were lost before a
//! `session` line leave only the time before `since` unknown.

use std::collections::{BTreeMap, HashMap};

use super::judge::{Event, Line, SILENCE_NS};
use super::record::{Body, Record, Run};

/// The largest number of listed gaps.
const LISTED_MAX: usize = 1_000;

/// The time that run logs cover.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// The beginning, in nanoseconds since boot; `None` without any line.
    pub from: Option<u64>,
    /// The last line, on the clock of the last boot.
    pub until: u64,
    /// The number of reboots in between.
    pub reboots: u32,
    /// The first thousand times with missing lines.
    pub gaps: Vec<Missing>,
    /// The number of further times.
    pub gaps_left_out: u64,
    /// The number of writers that stopped without their last line, as when they are killed.
    pub without_end: u64,
    /// The time after which a pool runs without a run log.
    pub off_since: Option<u64>,
}

/// A time with missing lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The session whose lines are missing; `None` if it is not known.
    pub session: Option<String>,
    /// The beginning, in nanoseconds since boot.
    pub from: u64,
    /// The end, on the same clock.
    pub until: u64,
}

impl Coverage {
    /// Returns whether lines of each run in the whole time are there.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.gaps.is_empty() && self.off_since.is_none()
    }

    /// Ends the time without a run log.
    fn record_again(&mut self, at: u64) {
        if let Some(since) = self.off_since.take() {
            self.miss(None, since, at);
        }
    }

    fn miss(&mut self, session: Option<&str>, from: u64, until: u64) {
        if self.gaps.len() < LISTED_MAX {
            self.gaps.push(Missing { session: session.map(str::to_owned), from, until });
        } else {
            self.gaps_left_out += 1;
        }
    }
}

/// All writers since the last boot.
#[derive(Debug, Default)]
pub(super) struct Writers {
    known: HashMap<u32, Writer>,
    coverage: Coverage,
    /// The time of the first and of the last line since the last boot.
    first: Option<u64>,
    last: u64,
}

#[derive(Debug, Default)]
struct Writer {
    /// `None` until the `session` line.
    session: Option<Box<str>>,
    first: u64,
    last: u64,
    /// The number of the next line.
    next: u64,
    /// Its running jobs, and the start of each.
    running: BTreeMap<Run, u64>,
    /// The running jobs before the last `session` line.
    before: BTreeMap<Run, u64>,
    has_ended: bool,
}

impl Writers {
    /// Takes the next record, and passes on its lines of jobs.
    pub(super) fn take(&mut self, record: &Record, mut pass: impl FnMut(Line<'_>)) {
        let at = record.at;
        self.cover(at);
        if let Some((id, n)) = record.by {
            self.number(id, n, record);
        }
        let writer = record.by.and_then(|(id, _)| self.known.get_mut(&id));
        match (&record.body, writer) {
            (Body::Off, _) => self.coverage.off_since = Some(at),
            (Body::Start(run), writer) => {
                self.coverage.record_again(at);
                pass(run.line(at, Event::Start));
                if let Some(writer) = writer {
                    writer.running.insert(run.clone(), at);
                }
            }
            (Body::Running(run, since), Some(writer)) => {
                let is_known = writer.before.remove(run) == Some(*since);
                if !is_known {
                    pass(run.line(*since, Event::Start));
                }
                // The lines between may be in a file that was removed.
                pass(run.line(at, if is_known { Event::Tick } else { Event::Continued }));
                writer.running.insert(run.clone(), *since);
            }
            (Body::Held(run), _) => pass(run.line(at, Event::Held)),
            (Body::Tick(run), _) => pass(run.line(at, Event::Tick)),
            (Body::Alive, Some(writer)) => {
                writer.running.keys().for_each(|run| pass(run.line(at, Event::Tick)));
            }
            (Body::Stop(run), writer) => {
                pass(run.line(at, Event::Stop));
                if writer.is_none_or(|writer| writer.running.remove(run).is_none()) {
                    // Another process of the session reports the end, since the writer was killed.
                    self.known.values_mut().for_each(|writer| _ = writer.running.remove(run));
                }
            }
            (Body::End, Some(writer)) => writer.has_ended = true,
            (Body::Session { .. }, Some(_)) => self.coverage.record_again(at),
            (Body::Running(..) | Body::Alive | Body::End | Body::Session { .. }, None) => {}
        }
    }

    /// Records a reboot: all writers have ended.
    pub(super) fn machine_started(&mut self) {
        self.retire(None);
        (self.first, self.last) = (None, 0);
        self.coverage.reboots += 1;
    }

    /// Returns the covered time. Call this at the end of the logs.
    pub(super) fn coverage(mut self) -> Coverage {
        self.retire(Some(self.last));
        self.coverage.until = self.last;
        self.coverage
    }

    fn cover(&mut self, at: u64) {
        self.first.get_or_insert(at);
        self.coverage.from.get_or_insert(at);
        self.last = self.last.max(at);
    }

    /// Compares the number of a line with the expected one.
    fn number(&mut self, id: u32, n: u64, record: &Record) {
        let at = record.at;
        if n == 0
            && let Some(before) = self.known.remove(&id)
        {
            // Another writer has the same random number.
            self.end(&before, Some(at));
        }
        let is_new = !self.known.contains_key(&id);
        let writer = self.known.entry(id).or_default();
        if is_new {
            (writer.first, writer.last, writer.next) = (at, at, n);
        }
        let is_unknown = writer.session.is_none();
        let (last, is_next) = (writer.last, writer.next == n);
        (writer.last, writer.next) = (writer.last.max(at), n.saturating_add(1));
        if let Body::Session { session, since } = &record.body {
            writer.session = Some(session.clone());
            writer.before = std::mem::take(&mut writer.running);
            if !is_next && last < *since {
                self.coverage.miss(Some(session), last, *since);
            }
            if is_unknown && 0 < n {
                self.begin(session, *since);
            }
        } else if !is_next {
            let session = writer.session.clone();
            self.coverage.miss(session.as_deref(), last, at);
        }
    }

    /// Records that the lines of a writer before `since` are missing. Writers notice a new file one
    /// after the other, so the covered time begins up to a few seconds after the first line.
    fn begin(&mut self, session: &str, since: u64) {
        let first = self.first.unwrap_or_default();
        if since <= first {
            return;
        }
        if since - first <= SILENCE_NS && self.coverage.reboots == 0 {
            self.coverage.from = self.coverage.from.max(Some(since));
        } else {
            self.coverage.miss(Some(session), first, since);
        }
    }

    fn retire(&mut self, now: Option<u64>) {
        for writer in std::mem::take(&mut self.known).values() {
            self.end(writer, now);
        }
    }

    /// Judges the end of a writer; `None` means that the machine was rebooted.
    fn end(&mut self, writer: &Writer, now: Option<u64>) {
        if writer.session.is_none() {
            self.coverage.miss(None, writer.first, writer.last);
        }
        let is_silent = now.is_none_or(|now| SILENCE_NS < now.saturating_sub(writer.last));
        self.coverage.without_end += u64::from(!writer.has_ended && is_silent);
    }
}

#[cfg(test)]
mod tests;
