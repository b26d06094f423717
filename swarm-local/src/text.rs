//! Plain lines for a person, which can be read, piped and stored.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use swarm_core::{Assignment, JobName, Slot, Unassigned, View, ViewEntry};

use super::input::{STANDARD_INPUT, Wanted};

/// How many workers are shown at once.
const WORKERS_MAX: usize = 20;

/// How many lines of jobs are shown of one worker.
const LINES_MAX: usize = 8;

/// Prints lines on standard output.
pub(super) fn say(lines: &str) {
    let mut stdout = io::stdout().lock();
    // A reader that closes the pipe, as `head` does, does not end the workers.
    let _ = writeln!(stdout, "{}", lines.trim_end()).and_then(|()| stdout.flush());
}

/// Prints a sentence on standard error.
pub(super) fn complain(sentence: &str) {
    let _ = writeln!(io::stderr(), "swarm-operator: {sentence}");
}

/// The first lines: the pool that is about to run, and its directories.
pub(super) fn opening(
    wanted: &Wanted,
    dir: &Path,
    file: &Path,
    http: Option<SocketAddr>,
) -> String {
    let Wanted { name, desired, notes, .. } = wanted;
    let (jobs, workers) = (counted(desired.jobs.len(), "job"), counted(wanted.workers(), "worker"));
    let dir = dir.display();
    let mut lines = format!("{name}: {jobs} for {workers} on this machine\n");
    let _ = writeln!(lines, "state: {dir}\nlogs:  {dir}/logs");
    if let Some(http) = http {
        let _ = writeln!(lines, "http:  http://{http}");
    }
    if file != Path::new(STANDARD_INPUT) {
        let _ = writeln!(lines, "edit {} and see what moves; Ctrl-C ends", file.display());
    }
    for note in notes {
        let _ = writeln!(lines, "note: {note}");
    }
    lines
}

/// The last line.
pub(super) fn ending(workers: usize, took: Duration) -> String {
    let took = took.as_millis();
    format!("ended in {took} ms: {} stopped, no process is left", counted(workers, "worker"))
}

/// A pool that became settled, and the changes since it was settled before.
pub(super) struct Settled<'a> {
    pub(super) took: Duration,
    pub(super) before: &'a Assignment,
    pub(super) view: &'a View,
    pub(super) assignment: &'a Assignment,
    pub(super) unassigned: &'a BTreeMap<JobName, Unassigned>,
}

impl Settled<'_> {
    /// A headline and, if anything moved, a table of workers, at most `columns` wide where names
    /// permit it. For a large pool it shows only workers whose jobs changed.
    pub(super) fn report(&self, columns: usize) -> String {
        let mut lines = self.headline_with(" (marked +)");
        if self.before == self.assignment {
            return lines;
        }
        let width = self.view.workers.keys().map(String::len).max().unwrap_or_default();
        let by_slot = (self.before.by_slot(), self.assignment.by_slot());
        let is_large = WORKERS_MAX < self.view.workers.len();
        let differs = |worker: &str, entry: &ViewEntry| {
            let slot = entry.slot.or_else(|| View::slot_in_name(worker));
            slot.is_none_or(|slot| by_slot.0.get(&slot) != by_slot.1.get(&slot))
        };
        let mut shown: Vec<_> = self.view.workers.iter().collect();
        shown.retain(|(worker, entry)| !is_large || differs(worker, entry));
        shown.truncate(WORKERS_MAX);
        for (worker, entry) in &shown {
            let count = entry.jobs.len();
            let start = format!("\n  {worker:width$} {count:>5}  ");
            let jobs = entry.jobs.iter().map(|job| self.marked(job)).collect::<Vec<_>>();
            lines.push_str(if jobs.is_empty() { start.trim_end() } else { &start });
            lines.push_str(&wrapped(&jobs, start.len() - 1, columns));
        }
        let rest = self.view.workers.len() - shown.len();
        if 0 < rest {
            let _ = write!(lines, "\n  … and {}", counted(rest, "more worker"));
        }
        lines
    }

    /// The time it took and the changes, in one line.
    pub(super) fn headline(&self) -> String {
        self.headline_with("")
    }

    /// `mark` explains the mark of jobs that are new among old ones or have moved.
    fn headline_with(&self, mark: &str) -> String {
        let Self { took, before, view, assignment, unassigned } = self;
        let jobs = counted(assignment.len(), "job");
        let workers = counted(view.workers.len(), "worker");
        let new = assignment.iter().filter(|(job, _)| before.holder(job).is_none()).count();
        let moved = assignment.iter().filter(|(job, _)| self.is_moved(job)).count();
        let wanted = |job| assignment.holder(job).is_some() || unassigned.contains_key(job);
        let removed = before.iter().filter(|(job, _)| !wanted(job)).count();
        let mut changes = vec![(new, "new"), (removed, "removed"), (moved, "moved")];
        changes.retain(|(count, _)| 0 < *count);
        let is_marked = !before.is_empty() && 0 < new + moved;
        let mark = if is_marked { mark } else { "" };
        let changes: Vec<_> =
            changes.iter().map(|(count, what)| format!("{count} {what}")).collect();
        let changes = match changes.join(", ") {
            none if none.is_empty() => none,
            some => format!(", {some}{mark}"),
        };
        let took = took.as_millis();
        let mut line = format!("settled in {took} ms: {jobs} on {workers}{changes}");
        let reasons: BTreeSet<_> = unassigned.values().map(|reason| reason.as_str()).collect();
        for reason in reasons {
            let count = unassigned.values().filter(|r| r.as_str() == reason).count();
            let _ = write!(line, ", {count} without a worker ({reason})");
        }
        if before == assignment && unassigned.is_empty() {
            line.push_str(", nothing moved");
        }
        line
    }

    /// The name of a job, marked if it moved or is new among old ones.
    fn marked(&self, job: &JobName) -> String {
        let is_new = !self.before.is_empty() && self.before.holder(job).is_none();
        let mark = if is_new || self.is_moved(job) { "+" } else { "" };
        format!("{mark}{job}")
    }

    fn is_moved(&self, job: &JobName) -> bool {
        let differs = |before: Slot| self.assignment.holder(job).is_some_and(|now| now != before);
        self.before.holder(job).is_some_and(differs)
    }
}

/// Words in lines that begin at column `indent`, at most [`LINES_MAX`] of them.
pub(super) fn wrapped(words: &[String], indent: usize, columns: usize) -> String {
    let mut lines = vec![String::new()];
    for (shown, word) in words.iter().enumerate() {
        let line = lines.last().map_or(0, String::len);
        if line == 0 || indent + line + 1 + word.len() <= columns {
            let gap = if line == 0 { "" } else { " " };
            let _ = lines.last_mut().map(|last| write!(last, "{gap}{word}"));
        } else if lines.len() < LINES_MAX {
            lines.push(word.clone());
        } else {
            lines.push(format!("… and {} more", words.len() - shown));
            break;
        }
    }
    lines.join(&format!("\n{}", " ".repeat(indent)))
}

/// A number with its noun.
pub(super) fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

#[cfg(test)]
mod tests;
