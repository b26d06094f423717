//! `jobs` (`ps` on one machine) and `who`: a line for each job.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swarm_core::{FailingJob, FailingState, Params};

use crate::age::age;
use crate::life::JobLife;
use crate::pool::{Home, PoolName};
use crate::shell;
use crate::status::RUNS_WELL;
use crate::table::{EVERY_WORKER, Table, columns};
use crate::waits::Wait;
use crate::words::{Word, counted, quoted, word};

/// The state of a job that every worker runs.
pub const EVERYWHERE: Word = "everywhere";

/// Number of rows of one machine that determine the widths of the columns.
const MEASURED: usize = 1_000;

/// A job. Times are in seconds of Unix time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Job")]
pub struct JobEntry<S> {
    /// The name of the job.
    #[serde(rename = "job")]
    pub name: S,
    /// Title of the job, if it has one.
    #[serde(default)]
    pub title: Option<S>,
    /// Its state in the ledger.
    #[serde(deserialize_with = "word")]
    pub state: Word,
    /// The slot that holds it.
    pub slot: Option<u32>,
    /// Name of the worker in that slot.
    pub worker: Option<S>,
    /// Whether every worker runs it.
    #[serde(default)]
    pub everywhere: bool,
    /// Time since which that worker is silent; the phase may be old then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_silent_since_unix_s: Option<u64>,
    /// The token of its grant.
    pub token: u64,
    /// Phase of the job, as its worker reports it.
    #[serde(default, deserialize_with = "word")]
    pub phase: Word,
    /// Name of the worker that gets the job once its present worker has stopped it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves_to: Option<S>,
    /// Reason for which its worker stops the job, while it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves_for: Option<S>,
    /// The things that the job waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<Wait>,
    /// Version of the job that runs, on one machine: `newest`, `previous` while it waits for its
    /// restart, or `failed` if the newest version failed.
    #[serde(default, deserialize_with = "word", skip_serializing_if = "str::is_empty")]
    pub version: Word,
    /// First process of the job, if it is a program that runs.
    #[serde(default)]
    pub pid: Option<i32>,
    /// On one machine, the time of its last start, if it runs. On a cluster, the time since which it
    /// fails, or since which its worker has it, as far as the history goes back.
    #[serde(default)]
    pub since_unix_s: Option<u64>,
    /// Number of its runs that ended by themselves, over all its workers. A cluster knows it of a
    /// failing job only, since its worker got it.
    #[serde(default)]
    pub restarts: Option<u64>,
    /// Last end of a run by itself; part of a sentence.
    #[serde(default)]
    pub last_exit: Option<String>,
    /// Last lines of output before the last end of a failing job, unless output is hidden.
    #[serde(default)]
    pub last_output: Option<Vec<String>>,
    /// Reason why no worker runs the job, if none does.
    pub unassigned: Option<S>,
    /// That reason in a sentence.
    #[serde(default)]
    pub unassigned_message: Option<String>,
    /// Counts of the job over all its workers. A list has them only for jobs with an event, and no
    /// document has them if they are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life: Option<JobLife>,
    /// Failure of the job, if it is one of the listed failures.
    pub failing: Option<JobFailure<S>>,
    /// Reason why it is where it is, as a sentence. Only a document of one job has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Params of the job, for the user of the pool.
    #[serde(default, skip_serializing_if = "is_none")]
    #[schemars(with = "BTreeMap<String, String>")]
    pub params: Params,
    /// Name of its runner, if it names one, for the user of the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<String>,
}

impl<S: AsRef<str>> JobEntry<S> {
    /// Whether every worker runs the job.
    #[must_use]
    pub fn is_everywhere(&self) -> bool {
        // An answer of an earlier version has the state only.
        self.everywhere || self.state == EVERYWHERE
    }

    /// Returns the worker as tables show it.
    #[must_use]
    pub fn shown_worker(&self) -> &str {
        if self.is_everywhere() {
            return EVERY_WORKER;
        }
        self.worker.as_ref().map_or("-", AsRef::as_ref)
    }
}

impl<S: Display> JobEntry<S> {
    /// Returns a sentence about the worker of the job at a time in seconds of Unix time, if the worker is
    /// silent.
    #[must_use]
    pub fn unanswered(&self, now_unix_s: u64) -> Option<String> {
        let since = self.worker_silent_since_unix_s?;
        let silent_for = age(Duration::from_secs(now_unix_s.saturating_sub(since)));
        Some(format!("{} has not answered for {silent_for}", self.worker.as_ref()?))
    }
}

impl JobEntry<String> {
    /// Whether its name or title contains a text.
    #[must_use]
    pub fn has(&self, text: &str) -> bool {
        self.name.contains(text) || self.title.as_ref().is_some_and(|title| title.contains(text))
    }

    /// Whether it is a job of this worker.
    #[must_use]
    pub fn is_on(&self, worker: &str) -> bool {
        self.is_everywhere() || self.worker.as_deref() == Some(worker)
    }

    /// Returns the phase at a time in seconds of Unix time, and notes about it in brackets.
    #[must_use]
    pub fn shown_phase(&self, now_unix_s: u64) -> String {
        let reason = self.unassigned.as_deref().filter(|reason| *reason != self.phase);
        let version = match self.version {
            "previous" => Some("previous version"),
            "failed" => Some("new version"),
            _ => None,
        };
        let notes = reason.or(version).map(str::to_owned).into_iter();
        let notes = notes.chain(self.unanswered(now_unix_s)).collect::<Vec<_>>().join("; ");
        if notes.is_empty() { self.phase.to_owned() } else { format!("{} ({notes})", self.phase) }
    }

    /// Describes the failures of the job at a time in seconds of Unix time, if it fails. A pool that is
    /// only read cannot retry a job.
    #[must_use]
    pub fn failures(&self, home: Home, now_unix_s: u64) -> Option<String> {
        let JobFailure { restarts, last_exit, last_line, state, since_unix_s } =
            self.failing.as_ref()?;
        let restarts = counted(usize::try_from(*restarts).unwrap_or(usize::MAX), "restart");
        let since = since_unix_s.map(|since| now_unix_s.saturating_sub(since));
        let since = since.map(|since| format!(" for {}", age(Duration::from_secs(since))));
        let last = last_line.as_ref().map(|line| format!(": {line:?}")).unwrap_or_default();
        let is_failed = [*state, self.phase].contains(&FailingState::Failed.as_str());
        let course = match home {
            Home::Machine if is_failed => {
                format!("; not restarted any more; swarm retry {}", shell::operand(&self.name))
            }
            Home::Cluster if is_failed => "; not restarted any more".to_owned(),
            Home::Machine | Home::Cluster => String::new(),
        };
        Some(format!("{restarts}{}, {last_exit}{last}{course}", since.unwrap_or_default()))
    }

    /// Describes the last end of the job by itself, and the state of a failing one. A pool that is only
    /// read cannot retry a job.
    fn last_end(&self, home: Home) -> String {
        let Some(failing) = &self.failing else {
            return self.last_exit.clone().unwrap_or_default();
        };
        let exit = self.last_exit.as_ref().unwrap_or(&failing.last_exit);
        let course = match (self.phase, home) {
            ("failed", Home::Machine) => {
                format!("; not restarted any more; swarm retry {}", shell::word(&self.name))
            }
            ("running" | "ready", _) => format!("; {RUNS_WELL}"),
            _ => String::new(),
        };
        format!("{exit}{}{course}", quoted(failing.last_line.as_deref()))
    }
}

/// Whether a job has no params.
fn is_none(params: &Params) -> bool {
    params.is_empty()
}

/// Failure of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "JobFailure")]
pub struct JobFailure<S> {
    /// Number of its runs that ended by themselves.
    pub restarts: u64,
    /// Description of its last end.
    pub last_exit: S,
    /// Last line of output before that end, unless output is hidden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_line: Option<S>,
    /// `restarting`, or `failed` if it is not restarted any more.
    #[serde(default, deserialize_with = "word")]
    pub state: Word,
    /// Time of its first end.
    #[serde(default)]
    pub since_unix_s: Option<u64>,
}

impl<'a> JobFailure<&'a str> {
    /// Makes the failure that a worker reports.
    #[must_use]
    pub fn of(failing: &'a FailingJob) -> Self {
        let FailingJob { restarts, last_exit, last_output, state, since_unix_s, .. } = failing;
        Self {
            restarts: *restarts,
            last_exit,
            last_line: last_output.last().map(String::as_str),
            state: state.as_str(),
            since_unix_s: Some(*since_unix_s),
        }
    }
}

/// A job and its pool. Its fields are the fields of both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobLine {
    /// The job.
    #[serde(flatten)]
    pub entry: JobEntry<String>,
    /// Its pool.
    #[serde(flatten)]
    pub pool: PoolName,
}

/// The jobs of one pool or of all pools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Jobs {
    /// The jobs of each pool, by name.
    pub jobs: Vec<JobLine>,
}

/// The columns of a table of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// The home of the pools.
    pub home: Home,
    /// Whether it lists several pools.
    pub is_of_all: bool,
    /// Whether it has all columns.
    pub is_wide: bool,
    /// Whether it lists jobs without a worker only, with the reason of each in a sentence.
    pub is_of_unassigned: bool,
}

/// Memory and processor time that a job uses, in words.
pub type Used = (String, String);

/// A table of jobs whose columns fit the first of them, since a pool may have many.
#[derive(Debug)]
pub struct JobTable {
    columns: Columns,
    now_unix_s: u64,
    table: Table,
}

impl JobTable {
    /// Begins a table at a time in seconds of Unix time.
    #[must_use]
    pub fn new(columns: Columns, now_unix_s: u64) -> Self {
        let Columns { home, is_of_all, is_wide, is_of_unassigned } = columns;
        let is_machine = home == Home::Machine;
        let mut heads = if is_of_all { home.heads().to_vec() } else { Vec::new() };
        if is_of_unassigned {
            heads.extend([columns::JOB, columns::PHASE, columns::REASON]);
        } else {
            heads.extend([columns::JOB, columns::TITLE, columns::WORKER, columns::PHASE]);
            heads.extend(if is_machine { &["PID", "UP"][..] } else { &["SINCE"] });
            heads.extend(if is_wide { &["SLOT", "TOKEN"][..] } else { &[] });
            heads.extend(if is_wide && is_machine { &["MEMORY", "CPU"][..] } else { &[] });
            heads.extend(["RESTARTS", columns::LAST_EXIT]);
        }
        let heads = heads.into_iter().map(str::to_owned).collect();
        // A later job of one machine may have the value that the first ones lack.
        let table = match home {
            Home::Machine => Table::new(heads, &[columns::TITLE], MEASURED),
            Home::Cluster => Table::whole(heads),
        };
        Self { columns, now_unix_s, table }
    }

    /// Adds a job, whose line is appended now or later. Its pool and the resources that it uses have
    /// columns in some tables.
    pub fn put(
        &mut self,
        text: &mut String,
        entry: &JobEntry<String>,
        pool: Option<&PoolName>,
        used: Option<Used>,
    ) {
        let Columns { home, is_of_all, is_wide, is_of_unassigned } = self.columns;
        let is_machine = home == Home::Machine;
        let unknown = if is_machine { "-" } else { "" };
        let known = |text: Option<String>| text.unwrap_or_else(|| unknown.to_owned());
        let mut row = pool.filter(|_| is_of_all).map(PoolName::cells).unwrap_or_default();
        let phase = entry.shown_phase(self.now_unix_s);
        if is_of_unassigned {
            let reason = entry.unassigned_message.as_ref().or(entry.unassigned.as_ref());
            row.extend([entry.name.clone(), phase, known(reason.cloned())]);
            return self.table.put(text, row);
        }
        let since = entry.since_unix_s.map(|since| self.now_unix_s.saturating_sub(since));
        let title = entry.title.clone().unwrap_or_default();
        row.extend([entry.name.clone(), title, entry.shown_worker().to_owned(), phase]);
        row.extend(is_machine.then(|| known(entry.pid.map(|pid| pid.to_string()))));
        row.push(known(since.map(|since| age(Duration::from_secs(since)))));
        if is_wide {
            row.extend([known(entry.slot.map(|slot| slot.to_string())), entry.token.to_string()]);
        }
        if is_wide && is_machine {
            let (memory, cpu) = used.unzip();
            row.extend([known(memory), known(cpu)]);
        }
        row.push(known(entry.restarts.map(|restarts| restarts.to_string())));
        row.push(entry.last_end(home));
        self.table.put(text, row);
    }

    /// Appends the lines that are not appended yet.
    pub fn end(&mut self, text: &mut String) {
        self.table.end(text);
    }
}

impl Jobs {
    /// Makes a table at a time in seconds of Unix time. Columns without values are left out.
    #[must_use]
    pub fn text(&self, columns: Columns, now_unix_s: u64) -> String {
        let (mut table, mut text) = (JobTable::new(columns, now_unix_s), String::new());
        for JobLine { entry, pool } in &self.jobs {
            table.put(&mut text, entry, Some(pool), None);
        }
        table.end(&mut text);
        text
    }

    /// Makes the table of `who`: the holder of each job. Jobs of a Swarm have its name, and its namespace
    /// if `has_namespace`.
    #[must_use]
    pub fn holders(&self, home: Home, has_namespace: bool, now_unix_s: u64) -> String {
        let is_machine = home == Home::Machine;
        let mut heads = vec![columns::JOB, columns::WORKER, columns::PHASE];
        heads.extend(is_machine.then_some("PID"));
        heads.extend(["SLOT", "TOKEN"]);
        heads.extend((!is_machine).then_some(columns::SWARM));
        heads.extend((!is_machine && has_namespace).then_some(columns::NAMESPACE));
        let mut text = String::new();
        if self.jobs.is_empty() {
            return text;
        }
        let mut table = Table::whole(heads.into_iter().map(str::to_owned).collect());
        for JobLine { entry, pool } in &self.jobs {
            let known = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
            let phase = entry.shown_phase(now_unix_s);
            let mut row = vec![entry.name.clone(), entry.shown_worker().to_owned(), phase];
            row.extend(is_machine.then(|| known(entry.pid.map(|pid| pid.to_string()))));
            row.extend([known(entry.slot.map(|slot| slot.to_string())), entry.token.to_string()]);
            if let PoolName::Cluster { namespace, swarm } = pool {
                row.extend([swarm.clone(), namespace.clone()]);
            }
            table.put(&mut text, row);
        }
        table.end(&mut text);
        text
    }
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;
    use serde_json::json;

    use super::*;

    const NOW: u64 = 1_795_000_000;

    fn columns(home: Home) -> Columns {
        Columns { home, is_of_all: false, is_wide: false, is_of_unassigned: false }
    }

    /// A job that runs, one that fails, and one that no worker runs.
    fn jobs(pool: &PoolName) -> Jobs {
        let entry = |name: &str, phase| JobEntry {
            name: name.to_owned(),
            state: "granted",
            slot: Some(0),
            worker: Some("w-0".to_owned()),
            token: 7,
            phase,
            restarts: Some(0),
            ..JobEntry::default()
        };
        let failing = JobFailure {
            restarts: 4,
            last_exit: "ended with exit code 3".to_owned(),
            last_line: Some("no such\u{1b}camera".to_owned()),
            state: "restarting",
            since_unix_s: Some(NOW - 40),
        };
        let failing = JobEntry {
            restarts: Some(4),
            last_exit: Some(failing.last_exit.clone()),
            failing: Some(failing),
            ..entry("bad", "restarting")
        };
        let homeless = JobEntry {
            slot: None,
            worker: None,
            unassigned: Some("capacity".to_owned()),
            unassigned_message: Some("every worker is full".to_owned()),
            ..entry("rest", "unassigned")
        };
        let everywhere =
            JobEntry { everywhere: true, slot: None, worker: None, ..entry("all", "running") };
        let line = |entry| JobLine { entry, pool: pool.clone() };
        Jobs { jobs: [entry("good", "running"), failing, homeless, everywhere].map(line).into() }
    }

    fn machine() -> PoolName {
        PoolName::Machine { pool: "cams".to_owned() }
    }

    fn cluster() -> PoolName {
        PoolName::Cluster { namespace: "media".to_owned(), swarm: "cams".to_owned() }
    }

    fn shown(text: &str) -> String {
        strip_str(text).to_string()
    }

    #[test]
    fn both_homes_list_the_same_jobs_with_the_facts_that_each_home_has() {
        let of_machine = jobs(&machine()).text(columns(Home::Machine), NOW);
        let expected = "\
JOB   WORKER          PHASE                  PID  UP  RESTARTS  LAST EXIT
good  w-0             running                -    -   0
bad   w-0             restarting             -    -   4         ended with exit code 3 (`no such\\u{1b}camera`)
rest  -               unassigned (capacity)  -    -   0
all   (every worker)  running                -    -   0
";
        assert_eq!(shown(&of_machine), expected);
        let of_cluster = shown(&jobs(&cluster()).text(columns(Home::Cluster), NOW));
        assert_eq!(of_cluster, expected.replace("  PID  UP", "").replace("  -    - ", ""));
    }

    #[test]
    fn jobs_without_a_worker_have_their_reason_in_a_sentence() {
        let of_unassigned = Columns { is_of_unassigned: true, ..columns(Home::Machine) };
        let mut rest = jobs(&machine());
        rest.jobs.retain(|line| line.entry.unassigned.is_some());
        let expected = "JOB   PHASE                  REASON\n\
                        rest  unassigned (capacity)  every worker is full\n";
        assert_eq!(shown(&rest.text(of_unassigned, NOW)), expected);
    }

    #[test]
    fn the_holder_of_a_job_has_its_slot_and_token_and_the_name_of_its_swarm() {
        let text = shown(&jobs(&cluster()).holders(Home::Cluster, true, NOW));
        let mut lines = text.lines();
        let head = "JOB   WORKER          PHASE                  SLOT  TOKEN  SWARM  NAMESPACE";
        assert_eq!(lines.next(), Some(head));
        let good = "good  w-0             running                0     7      cams   media";
        assert_eq!(lines.next(), Some(good));
        let without = shown(&jobs(&cluster()).holders(Home::Cluster, false, NOW));
        assert!(without.starts_with(head.trim_end_matches("  NAMESPACE")), "{without}");
        assert!(!without.contains("media"), "{without}");
        let of_machine = shown(&jobs(&machine()).holders(Home::Machine, false, NOW));
        let head = "JOB   WORKER          PHASE                  PID  SLOT  TOKEN\n";
        assert!(of_machine.starts_with(head), "{of_machine}");
        assert_eq!(Jobs { jobs: Vec::new() }.holders(Home::Cluster, true, NOW), "");
    }

    #[test]
    fn a_long_table_needs_no_memory_for_its_later_rows() {
        let mut table = JobTable::new(columns(Home::Machine), NOW);
        let line = &jobs(&machine()).jobs[0];
        let mut put = || {
            let mut text = String::new();
            table.put(&mut text, &line.entry, None, None);
            text.lines().count()
        };
        assert!((0..MEASURED).all(|_| put() == 0));
        assert_eq!((put(), put()), (MEASURED + 2, 1));
    }

    #[test]
    fn failures_have_their_number_their_time_and_the_way_out() {
        let mut failing = jobs(&machine()).jobs.swap_remove(1).entry;
        let sentence =
            "4 restarts for 40 s, ended with exit code 3: \"no such\\u{1b}camera\"".to_owned();
        assert_eq!(failing.failures(Home::Machine, NOW), Some(sentence.clone()));
        failing.phase = "failed";
        let given_up = sentence + "; not restarted any more";
        assert_eq!(failing.failures(Home::Cluster, NOW), Some(given_up.clone()));
        let retry = given_up + "; swarm retry bad";
        assert_eq!(failing.failures(Home::Machine, NOW), Some(retry));
    }

    #[test]
    fn a_document_is_read_back_and_one_of_an_earlier_version_too() {
        let jobs = jobs(&cluster());
        let document = serde_json::to_value(&jobs).unwrap();
        let bad = &document["jobs"][1];
        assert_eq!((&bad["swarm"], &bad["failing"]["restarts"]), (&json!("cams"), &json!(4)));
        assert_eq!(serde_json::from_value::<Jobs>(document).unwrap(), jobs);
        let earlier = json!({"job": "a", "state": "everywhere", "slot": null, "worker": null,
            "token": 3, "restarts": 2, "unassigned": null,
            "failing": {"restarts": 2, "lastExit": "ended with exit code 3"}});
        let earlier: JobEntry<String> = serde_json::from_value(earlier).unwrap();
        assert!(earlier.is_everywhere() && earlier.failing.is_some());
    }
}
