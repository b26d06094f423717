//! The state of a pool as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use super::{MovingRow, Status};
use crate::age::age;
use crate::printable::{Form, printable};
use crate::shell;
use crate::table::{self, columns_of, padded, title, width_of};
use crate::words::counted;
use crate::workers::WorkerRow;

/// Maximum number of named jobs that are suspended by hand.
const BY_HAND_MAX: usize = 10;

/// Width of the state of a worker.
const STATE_COLUMNS: usize = 8;

/// Maximum number of failing jobs in the list.
pub const FAILING_MAX: usize = 10;

/// Maximum number of moves in the list.
const MOVING_MAX: usize = 10;

/// The starts of the present runs of failing jobs, in seconds of Unix time.
pub type Runs = BTreeMap<String, u64>;

/// The place of a pool, as commands name it.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Its state directory.
    pub dir: &'a Path,
    /// Options that name it in a command, such as ` --pool streams`.
    pub options: &'a str,
    /// Words that name it at the end of a command, such as ` streams`.
    pub words: &'a str,
}

impl Status {
    /// Describes a pool at a time in seconds of Unix time. `runs` has the failing jobs that run again.
    /// Control characters are escaped.
    #[must_use]
    pub fn text(&self, place: &Place<'_>, now_unix_s: u64, runs: &Runs, is_wide: bool) -> String {
        let (standing, _) = self.standing(now_unix_s);
        let counts = self.counts(&self.unassigned_by_reason());
        let (name, revision, dir) = (&self.name, self.revision, place.dir.display());
        let line = |text: &str| printable(text, Form::Line).into_owned();
        let head = format!("{}: {}\n", title(&line(name)), table::states(&line(&standing)));
        let mut text = String::new();
        if self.earlier.is_none() {
            let _ = writeln!(text, "{counts}, revision {revision}");
        }
        for problem in self.problems() {
            let _ = writeln!(text, "✗ {problem}");
        }
        if let Some(excerpt) = self.invalid_file.as_ref().and_then(|file| file.excerpt.as_ref()) {
            let _ = writeln!(text, "{excerpt}");
        }
        if let Some(sentence) = self.suspended_by_hand(place) {
            let _ = writeln!(text, "{sentence}");
        }
        if is_wide && !self.guarantee.is_empty() {
            let _ = writeln!(text, "guarantee: {}", self.guarantee);
        }
        let _ = writeln!(text, "state: {dir}\nlogs:  {dir}/logs");
        text = format!("{head}{}", printable(&text, Form::Lines));
        let width = width_of(self.workers.iter().map(|worker| columns_of(&line(&worker.name))));
        for worker in &self.workers {
            let WorkerRow { name, jobs, .. } = worker;
            let remarks = worker.remarks(worker.silent_for(now_unix_s));
            let gap = if remarks.is_empty() { "" } else { ", " };
            let jobs = counted(*jobs, "job");
            let state = table::state(&line(worker.shown_state()), STATE_COLUMNS);
            let (name, remarks) = (padded(&line(name), width), line(&remarks));
            let pid = worker.pid.filter(|_| is_wide).map(|pid| format!("PID {pid}, "));
            let pid = pid.unwrap_or_default();
            let _ = writeln!(text, "  {name}  {state}  {pid}{jobs}{gap}{remarks}");
        }
        let mut rest = String::new();
        self.add_failing(&mut rest, place, now_unix_s, runs);
        self.add_moving(&mut rest, place);
        text.push_str(&printable(&rest, Form::Lines));
        text
    }

    /// Adds the jobs that their workers stop, with the next worker and the bound of each.
    fn add_moving(&self, text: &mut String, place: &Place<'_>) {
        for it in self.moving.iter().take(MOVING_MAX) {
            let MovingRow { job, from, to, phase: _, reason, age_ms, at_most_ms } = it;
            let time = |ms: &Option<u64>| ms.map(Duration::from_millis).map(age);
            let from = from.as_deref().unwrap_or_default();
            let to = to.as_ref().map(|to| format!(" to {to}")).unwrap_or_default();
            let reason = reason.as_ref().map(|why| format!(" for {why}")).unwrap_or_default();
            let since = time(age_ms).map(|time| format!(", for {time}")).unwrap_or_default();
            let most = time(at_most_ms).map(|time| format!(", at most {time} more"));
            let line =
                format!("→ {job} stops on {from}{to}{reason}{since}{}", most.unwrap_or_default());
            let _ = writeln!(text, "{}", printable(&line, Form::Line));
        }
        if let Some(more) = self.moving.len().checked_sub(MOVING_MAX).filter(|more| 0 < *more) {
            let _ = writeln!(text, "… and {more} more; `-o json` has them");
        }
        if let Some(MovingRow { job, .. }) = self.moving.first() {
            let _ = writeln!(text, "why: swarm explain{} {}", place.options, shell::operand(job));
        }
    }

    /// Adds the failing jobs, and the command that shows their output.
    fn add_failing(&self, text: &mut String, place: &Place<'_>, now_unix_s: u64, runs: &Runs) {
        for failing in self.failing.iter().take(FAILING_MAX) {
            let title = failing.title.as_ref().map(|title| format!(" ({title})"));
            let title = title.unwrap_or_default();
            let sentence = failing.sentence(now_unix_s, runs.get(&failing.job).copied(), true);
            let _ = writeln!(text, "✗ {}{title}: {sentence}{}", failing.job, failing.last_line());
        }
        if FAILING_MAX < self.jobs.failing {
            let rest = counted(self.jobs.failing - FAILING_MAX, "more job");
            let _ = writeln!(text, "… and {rest}; list them with `ps --failing`");
        }
        let pool = place.words;
        let _ = match self.failing.as_slice() {
            [] => Ok(()),
            [one] => writeln!(text, "its output: swarm logs {}{pool}", shell::word(&one.job)),
            _ => writeln!(text, "the output of one: swarm logs JOB{pool}"),
        };
    }

    /// Returns the jobs that are suspended by hand, and the command that resumes them.
    fn suspended_by_hand(&self, place: &Place<'_>) -> Option<String> {
        let jobs = &self.by_hand;
        let mut undo = String::from("swarm resume");
        for job in jobs.iter().take(BY_HAND_MAX) {
            let _ = write!(undo, " {}", shell::word(job));
        }
        undo.push_str(place.options);
        let rest = match jobs.len().saturating_sub(BY_HAND_MAX) {
            0 => String::new(),
            rest => format!(", {rest} of them not named here"),
        };
        let count = counted(jobs.len(), "job");
        (!jobs.is_empty()).then(|| format!("{count} suspended by hand{rest}; undo: {undo}"))
    }
}
