//! The state of a pool as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use super::{MovingRow, Status};
use crate::age::age;
use crate::pool::Home;
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
    /// Its home.
    pub home: Home,
    /// Its state directory, on one machine.
    pub dir: Option<&'a Path>,
    /// Options that name it in a command about a job, such as ` --pool streams` or ` -n media`.
    pub options: &'a str,
    /// Words that name it at the end of another command, such as ` streams` or ` cameras -n media`.
    pub words: &'a str,
}

impl Place<'_> {
    /// Returns the program with the commands.
    fn program(&self) -> &'static str {
        match self.home {
            Home::Machine => "swarm",
            Home::Cluster => "kubectl swarm",
        }
    }

    /// Returns the command that prints the output of a job.
    fn logs(&self, job: &str) -> String {
        let place = match self.home {
            Home::Machine => self.words,
            Home::Cluster => self.options,
        };
        format!("{} logs {job}{place}", self.program())
    }
}

impl Status {
    /// Describes a pool at a time in seconds of Unix time. `runs` has the failing jobs that run again.
    /// Control characters are escaped.
    #[must_use]
    pub fn text(&self, place: &Place<'_>, now_unix_s: u64, runs: &Runs, is_wide: bool) -> String {
        let (standing, _) = self.standing(now_unix_s);
        let counts = self.counts(&self.unassigned_by_reason());
        let name = match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.clone(),
        };
        let line = |text: &str| printable(text, Form::Line).into_owned();
        let since = self.since(now_unix_s).map(|since| format!(", for {since}"));
        let standing = line(&format!("{standing}{}", since.unwrap_or_default()));
        let head = format!("{}: {}\n", title(&line(&name)), table::states(&standing));
        let mut text = String::new();
        if self.earlier.is_none() {
            let _ = writeln!(text, "{counts}, revision {}", self.revision);
        }
        for problem in self.problems() {
            let _ = writeln!(text, "✗ {problem}");
        }
        if let Some(excerpt) = self.invalid_file.as_ref().and_then(|file| file.excerpt.as_ref()) {
            let _ = writeln!(text, "{excerpt}");
        }
        if let Some(sentence) = &self.removal {
            let _ = writeln!(text, "{sentence}");
        }
        if let Some(sentence) = self.suspended_by_hand(place) {
            let _ = writeln!(text, "{sentence}");
        }
        if is_wide && !self.guarantee.is_empty() {
            let _ = writeln!(text, "guarantee: {}", self.guarantee);
        }
        if let Some(operator) = self.operator.as_ref().filter(|_| is_wide) {
            let _ = writeln!(text, "operator: {operator}");
        }
        if let Some(dir) = place.dir.map(Path::display) {
            let _ = writeln!(text, "state: {dir}\nlogs:  {dir}/logs");
        }
        text = format!("{head}{}", printable(&text, Form::Lines));
        let width = width_of(self.workers.iter().map(|worker| columns_of(&line(&worker.name))));
        for worker in &self.workers {
            let WorkerRow { name, jobs, .. } = worker;
            let remarks = worker.remarks(worker.silent_for(now_unix_s));
            let gap = if remarks.is_empty() { "" } else { ", " };
            let jobs = counted(*jobs, "job");
            let state = table::state(&line(worker.shown_state()), STATE_COLUMNS);
            let (name, remarks) = (padded(&line(name), width), line(&remarks));
            let runs_at = match (worker.pid, &worker.node) {
                (Some(pid), _) if is_wide => format!("PID {pid}, "),
                (None, Some(node)) if is_wide => format!("on {}, ", line(node)),
                _ => String::new(),
            };
            let _ = writeln!(text, "  {name}  {state}  {runs_at}{jobs}{gap}{remarks}");
        }
        let mut rest = String::new();
        self.add_failing(&mut rest, place, now_unix_s, runs);
        self.add_moving(&mut rest, place);
        self.add_unassigned(&mut rest, place);
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
            let (program, options) = (place.program(), place.options);
            let _ = writeln!(text, "why: {program} explain{options} {}", shell::operand(job));
        }
    }

    /// Adds the command that lists the jobs without a worker, if the author wants them to run.
    fn add_unassigned(&self, text: &mut String, place: &Place<'_>) {
        if !self.unassigned_by_reason().is_empty() {
            let (program, words) = (place.program(), place.words);
            let _ = writeln!(text, "why they do not run: {program} jobs --unassigned{words}");
        }
    }

    /// Returns the time since the condition `Ready` changed, if it is known.
    fn since(&self, now_unix_s: u64) -> Option<String> {
        if self.out_of_date.is_some() {
            return None;
        }
        let ready = self.conditions.iter().find(|it| it.kind == "Ready")?;
        let since = u64::try_from(ready.last_transition_time?.as_second()).ok()?;
        let seconds = now_unix_s.checked_sub(since).filter(|seconds| 0 < *seconds)?;
        Some(age(Duration::from_secs(seconds)))
    }

    /// Adds the failing jobs, and the command that shows their output.
    fn add_failing(&self, text: &mut String, place: &Place<'_>, now_unix_s: u64, runs: &Runs) {
        for failing in self.failing.iter().take(FAILING_MAX) {
            let title = failing.title.as_ref().map(|title| format!(" ({title})"));
            let title = title.unwrap_or_default();
            let sentence = failing.sentence(
                now_unix_s,
                runs.get(&failing.job).copied(),
                place.home == Home::Machine,
            );
            let _ = writeln!(text, "✗ {}{title}: {sentence}{}", failing.job, failing.last_line());
        }
        if FAILING_MAX < self.jobs.failing {
            let rest = counted(self.jobs.failing - FAILING_MAX, "more job");
            let (program, words) = (place.program(), place.words);
            let _ = writeln!(text, "… and {rest}: {program} jobs --failing{words}");
        }
        let _ = match self.failing.as_slice() {
            [] => Ok(()),
            [one] => writeln!(text, "its output: {}", place.logs(&shell::word(&one.job))),
            _ => writeln!(text, "the output of one: {}", place.logs("JOB")),
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

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;
    use jiff::Timestamp;

    use super::*;
    use crate::status::{Condition, FailingRow, JobCounts, UnassignedRow};

    const NOW: u64 = 1_795_000_000;

    /// A pool with a job that moves, one that fails, and one without a worker.
    fn status() -> Status {
        let worker = |name: &str, slot, releasing, failing| WorkerRow {
            name: name.to_owned(),
            slot,
            state: "ready",
            jobs: 20,
            releasing,
            failing,
            ..WorkerRow::default()
        };
        Status {
            name: "cameras".to_owned(),
            revision: 812,
            reason: "Rebalancing".into(),
            message: "1 of 3 moves left".to_owned(),
            guarantee: "Exclusive, lease 20s".to_owned(),
            jobs: JobCounts {
                total: 42,
                moving: 1,
                failing: 1,
                unassigned: 1,
                ..JobCounts::default()
            },
            workers: vec![worker("ingest-0", 0, 1, 0), worker("ingest-1", 1, 0, 1)],
            failing: vec![FailingRow {
                job: "cam 44".to_owned(),
                title: None,
                worker: "ingest-1".to_owned(),
                state: "failed",
                restarts: 12,
                since_unix_s: NOW - 240,
                last_exit: "ended with exit code 1".to_owned(),
                last_output: vec!["401 Unauthorized".to_owned()],
            }],
            moving: vec![MovingRow {
                job: "cam-17".to_owned(),
                from: Some("ingest-0".to_owned()),
                to: Some("ingest-1".to_owned()),
                phase: "stopping".to_owned(),
                reason: Some("balance".to_owned()),
                age_ms: Some(2_000),
                at_most_ms: Some(57_000),
            }],
            unassigned: vec![UnassignedRow {
                job: "cam-9".to_owned(),
                reason: "capacity".into(),
                message: None,
            }],
            ..Status::default()
        }
    }

    fn text(status: &Status, place: &Place<'_>, is_wide: bool) -> String {
        strip_str(&status.text(place, NOW, &Runs::new(), is_wide)).to_string()
    }

    #[test]
    fn both_homes_have_one_text_with_the_commands_of_each() {
        let dir = Path::new("/srv/cameras");
        let machine =
            Place { home: Home::Machine, dir: Some(dir), options: " --pool p", words: " p" };
        let of_machine = text(&status(), &machine, false);
        assert_eq!(
            of_machine,
            "cameras: failing: 1 job · Rebalancing: 1 of 3 moves left\n\
             42 jobs on 2 workers · 1 moving · 1 failing · 1 unassigned (capacity 1), revision 812\n\
             state: /srv/cameras\n\
             logs:  /srv/cameras/logs\n\
             \x20 ingest-0  ready     20 jobs, 1 releasing\n\
             \x20 ingest-1  ready     20 jobs, 1 failing\n\
             ✗ cam 44: not restarted any more; swarm retry 'cam 44'; 12 restarts, failing for 4 min: \
             ended with exit code 1 (`401 Unauthorized`)\n\
             its output: swarm logs 'cam 44' p\n\
             → cam-17 stops on ingest-0 to ingest-1 for balance, for 2 s, at most 57 s more\n\
             why: swarm explain --pool p cam-17\n\
             why they do not run: swarm jobs --unassigned p\n"
        );
        let (options, words) = (" -n media", " cameras -n media");
        let cluster = Place { home: Home::Cluster, dir: None, options, words };
        let expected = of_machine
            .replace("state: /srv/cameras\nlogs:  /srv/cameras/logs\n", "")
            .replace(" swarm retry 'cam 44';", "")
            .replace(": swarm ", ": kubectl swarm ")
            .replace(" --pool p", options)
            .replace("'cam 44' p", "'cam 44' -n media")
            .replace("unassigned p", "unassigned cameras -n media");
        assert_eq!(text(&status(), &cluster, false), expected);
    }

    #[test]
    fn a_cluster_adds_the_namespace_the_time_and_in_a_wide_text_the_nodes() {
        let mut status = status();
        let then = Timestamp::from_second(i64::try_from(NOW - 14).unwrap()).unwrap();
        let ready = Condition::new("Ready", false, "Rebalancing", "1 of 3 moves left");
        status.conditions = vec![Condition { last_transition_time: Some(then), ..ready }];
        status.namespace = Some("media".to_owned());
        status.operator = Some("swarm-controller-7d9f".to_owned());
        status.workers[0].node = Some("node-1".to_owned());
        let cluster = Place { home: Home::Cluster, dir: None, options: "", words: "" };
        let shown = text(&status, &cluster, true);
        let first = "media/cameras: failing: 1 job · Rebalancing: 1 of 3 moves left, for 14 s\n";
        assert!(shown.starts_with(first), "{shown}");
        for line in [
            "guarantee: Exclusive, lease 20s\noperator: swarm-controller-7d9f\n",
            "  ingest-0  ready     on node-1, 20 jobs, 1 releasing\n",
        ] {
            assert!(shown.contains(line), "{line}: {shown}");
        }
    }

    #[test]
    fn a_removal_of_many_jobs_is_shown_and_is_no_problem() {
        let name = "cameras".to_owned();
        let settled = Status { name, settled: true, healthy: true, ..Status::default() };
        let settled = Status { reason: "Settled".into(), ..settled };
        let removal = "19 of 20 jobs are removed by an edit of m.yaml".to_owned();
        let status = Status { removal: Some(removal.clone()), ..settled };
        let place = Place { home: Home::Cluster, dir: None, options: "", words: "" };
        let shown = text(&status, &place, false);
        assert!(shown.contains(&format!("\n{removal}\n")), "{shown}");
        assert!(status.is_settled_and_healthy());
    }
}
