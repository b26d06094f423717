//! Plain lines for the user, which can be read, piped and stored.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use swarm_core::handover::Cell;
use swarm_core::history::{JobMove, RETURNED};
use swarm_core::verdict::WithoutWorker;
use swarm_core::{Assignment, JobName, Ledger, Unassigned, View, ViewEntry};
use swarm_view::printable::{Form, printable};
use swarm_view::table::wrapped;
use swarm_view::words::{counted, number, span};

use crate::settings::input::Wanted;
use crate::settings::writers::Writer;

/// Maximum number of workers in a table.
const WORKERS_MAX: usize = 20;

/// Prints lines on standard output.
pub(crate) fn say(lines: &str) {
    let mut stdout = io::stdout().lock();
    // A reader that closes the pipe, as `head` does, does not end the workers.
    let lines = printable(lines.trim_end(), Form::Lines);
    let _ = writeln!(stdout, "{lines}").and_then(|()| stdout.flush());
}

/// Prints progress messages on standard error.
pub(crate) fn remark(lines: &str) {
    let _ = writeln!(io::stderr(), "{}", printable(lines, Form::Lines));
}

/// Returns the first lines: the pool that starts, and its directories.
pub(crate) fn opening(
    wanted: &Wanted,
    dir: &Path,
    advice: Option<String>,
    http: Option<SocketAddr>,
    other_file: Option<&str>,
) -> String {
    let Wanted { name, desired, notes, .. } = wanted;
    let (jobs, workers) = (counted(desired.jobs.len(), "job"), counted(wanted.workers(), "worker"));
    let dir = dir.display();
    let mut lines = format!("{name}: {jobs} for {workers} on this machine\n");
    let _ = writeln!(lines, "state: {dir}\nlogs:  {dir}/logs");
    if let Some(http) = http {
        let _ = writeln!(lines, "http:  http://{http}");
    }
    if let Some(advice) = advice {
        let _ = writeln!(lines, "{advice}");
    }
    for note in notes.iter().map(String::as_str).chain(other_file) {
        let _ = writeln!(lines, "note: {note}");
    }
    lines
}

/// Returns the advice to edit the file of a pool.
pub(crate) fn advice(file: &str, is_detached: bool) -> String {
    let ends = if is_detached { "" } else { "; Ctrl-C ends" };
    format!("edit {file} and see what moves{ends}")
}

/// Describes an edit that waits for its writer to close the file.
pub(crate) fn waiting_edit(shown: &str, writer: &Writer) -> String {
    let Writer { pid, program } = writer;
    format!(
        "{shown}: its edit waits, since process {pid} (`{program}`) has the file open for writing; \
         it takes effect once the file is closed"
    )
}

/// Returns the last line. `killed` describes killed jobs and workers, if any.
pub(crate) fn ending(workers: usize, took: Duration, killed: &str) -> String {
    let workers = counted(workers, "worker");
    let killed = if killed.is_empty() { String::new() } else { format!("; {killed}") };
    format!("ended in {}: {workers} stopped, no process is left{killed}", span(took))
}

/// A pool that became settled, and the changes since it was last settled.
pub(crate) struct Settled<'a> {
    pub(crate) took: Duration,
    pub(crate) before: &'a Placed,
    pub(crate) view: &'a View,
    pub(crate) now: &'a Placed,
    pub(crate) moves: &'a Moves,
    pub(crate) unassigned: &'a BTreeMap<JobName, Unassigned>,
    /// One of these jobs for each reason.
    pub(crate) examples: Vec<WithoutWorker>,
    /// Number of failing jobs.
    pub(crate) failing: usize,
}

/// The jobs' workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Jobs that one worker runs.
    pub(super) assignment: Assignment,
    /// Jobs that every worker runs.
    pub(super) everywhere: BTreeSet<JobName>,
    /// Jobs that have run to completion.
    pub(super) done: BTreeSet<JobName>,
}

impl Placed {
    /// Reads the jobs' workers from `ledger`. O(jobs).
    pub(crate) fn of(ledger: &Ledger) -> Self {
        let mut placed = Self { assignment: ledger.assignment(), ..Self::default() };
        for (job, record) in &ledger.cells.jobs {
            match &record.cell {
                Cell::Everywhere { .. } => placed.everywhere.insert(job.clone()),
                Cell::Done { .. } => placed.done.insert(job.clone()),
                Cell::Granted { .. }
                | Cell::Releasing { .. }
                | Cell::ReleasingAll { .. }
                | Cell::Hold { .. }
                | Cell::Free { .. }
                | Cell::Quarantined { .. } => continue,
            };
        }
        placed
    }

    /// Returns the running jobs.
    fn running(&self) -> impl Iterator<Item = &JobName> {
        self.assignment.iter().map(|(job, _)| job).chain(&self.everywhere)
    }

    fn runs(&self, job: &JobName) -> bool {
        self.assignment.holder(job).is_some() || self.everywhere.contains(job)
    }
}

/// The jobs that changed hands, as the history has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moves {
    /// Jobs that got another worker.
    moved: BTreeSet<JobName>,
    /// Other jobs that came back to their worker, which had ended.
    returned: BTreeSet<JobName>,
}

impl Moves {
    /// Adds moves. O(moves · log jobs).
    pub(crate) fn add(&mut self, moves: &[JobMove]) {
        for JobMove { job, reason, .. } in moves {
            if reason != RETURNED {
                self.returned.remove(job);
                self.moved.insert(job.clone());
            } else if !self.moved.contains(job) {
                self.returned.insert(job.clone());
            }
        }
    }
}

impl Settled<'_> {
    /// Returns a headline and, if jobs moved, a table of workers, at most `columns` wide if the names
    /// permit it. For a large pool the table has only workers whose jobs changed.
    pub(crate) fn report(&self, columns: usize) -> String {
        let mut lines = self.headline_with(" (marked +)");
        for example in &self.examples {
            let _ = write!(lines, "\n  {example}");
        }
        if self.before == self.now && self.moves.moved.is_empty() {
            return lines;
        }
        let width = self.view.workers.keys().map(String::len).max().unwrap_or_default();
        let by_slot = (self.before.assignment.by_slot(), self.now.assignment.by_slot());
        let is_large = WORKERS_MAX < self.view.workers.len();
        let all_differ = self.before.everywhere != self.now.everywhere;
        let differs = |worker: &str, entry: &ViewEntry| {
            let slot = entry.slot.or_else(|| View::slot_in_name(worker));
            all_differ || slot.is_none_or(|slot| by_slot.0.get(&slot) != by_slot.1.get(&slot))
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

    /// Returns the duration, the changes, and the reasons of jobs without a worker, in one line.
    pub(crate) fn headline(&self) -> String {
        let mut line = self.headline_with("");
        for example in &self.examples {
            let _ = write!(line, "; {example}");
        }
        line
    }

    /// Returns the headline; `mark` explains the mark of moved jobs, and of new jobs among old ones.
    fn headline_with(&self, mark: &str) -> String {
        let Self { took, before, view, now, moves, unassigned, examples: _, failing } = self;
        let jobs = counted(now.running().count(), "job");
        let workers = counted(view.workers.len(), "worker");
        let workers =
            if now.everywhere.is_empty() { workers } else { format!("each of {workers}") };
        let new = now.running().filter(|job| !before.runs(job)).count();
        let [moved, returned] = [&moves.moved, &moves.returned]
            .map(|jobs| jobs.iter().filter(|job| now.runs(job)).count());
        let is_done = |job: &JobName| now.done.contains(job);
        let wanted = |job| now.runs(job) || is_done(job) || unassigned.contains_key(job);
        let removed = before.running().filter(|job| !wanted(job)).count();
        let done = now.done.iter().filter(|job| !before.done.contains(*job)).count();
        let mut changes = vec![
            (new, "new"),
            (removed, "removed"),
            (done, "done"),
            (moved, "moved"),
            (returned, "returned"),
        ];
        changes.retain(|(count, _)| 0 < *count);
        let is_marked = before.running().next().is_some() && 0 < new + moved;
        let mark = if is_marked { mark } else { "" };
        let changes: Vec<_> =
            changes.iter().map(|(count, what)| format!("{} {what}", number(*count))).collect();
        let changes = match changes.join(", ") {
            none if none.is_empty() => none,
            some => format!(", {some}{mark}"),
        };
        let failing = match failing {
            0 => String::new(),
            some => format!("failing: {}; ", counted(*some, "job")),
        };
        let mut line = format!("{failing}settled in {}: {jobs} on {workers}{changes}", span(*took));
        let reasons: BTreeSet<_> = unassigned.values().map(|reason| reason.as_str()).collect();
        for reason in reasons {
            let count = unassigned.values().filter(|r| r.as_str() == reason).count();
            let _ = write!(line, ", {} without a worker ({reason})", number(count));
        }
        if before == now && **moves == Moves::default() && unassigned.is_empty() {
            line.push_str(", nothing moved");
        }
        line
    }

    /// Returns the name of a job, with a mark if it moved, or is new among old ones.
    fn marked(&self, job: &JobName) -> String {
        let is_new = self.before.running().next().is_some() && !self.before.runs(job);
        let mark = if is_new || self.moves.moved.contains(job) { "+" } else { "" };
        format!("{mark}{job}")
    }
}

#[cfg(test)]
mod tests;
