//! `workers`: the workers of pools.

use std::iter;
use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::age::age;
use crate::pool::{Home, PoolName};
use crate::table::{columns, whole_table};
use crate::words::{Word, counted, word};

/// Maximum number of titles of a worker.
pub const TITLES_MAX: usize = 3;

/// One worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerRow {
    /// The name of the worker.
    pub name: String,
    /// The slot that it fills.
    pub slot: u32,
    /// The node or machine that it runs on.
    #[serde(default)]
    pub node: Option<String>,
    /// `ready`, `starting`, `leaving` or `away`. A document of the pool also has `silent`.
    #[serde(deserialize_with = "word")]
    pub state: Word,
    /// Its session, once it has one.
    pub session: Option<String>,
    /// Number of granted jobs.
    pub jobs: usize,
    /// Number of jobs that it is asked to release.
    pub releasing: usize,
    /// The same number. Only a document of the pool has it.
    #[serde(default)]
    pub stopping: usize,
    /// Number of failing jobs.
    pub failing: usize,
    /// Number of jobs that still run a previous version, on one machine.
    #[serde(default)]
    pub previous: Option<usize>,
    /// A job whose new version failed, so that those jobs wait.
    #[serde(default)]
    pub held_back_by: Option<String>,
    /// Number of ends without a request, on one machine.
    #[serde(default)]
    pub restarts: Option<u32>,
    /// Whether it has confirmed its newest jobs, on a cluster.
    #[serde(default)]
    pub confirmed: Option<bool>,
    /// Time at which its session began, on a cluster.
    #[serde(default)]
    pub since_unix_s: Option<u64>,
    /// Sum of the shares of its jobs, in hundredths of a worker, if a job has one.
    #[serde(default)]
    pub load: Option<u64>,
    /// Time of the last lease renewal, if the worker may be frozen.
    pub silent_since_unix_s: Option<u64>,
    /// Time since which it is not ready, if the pool should have it, on a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_since_unix_s: Option<u64>,
    /// Time since its oldest request to stop a job that it has not acknowledged. Only a document of the
    /// pool has it.
    #[serde(default)]
    pub oldest_release_ms: Option<u64>,
    /// The time within which it is replaced, if it is silent. Only a document of the pool has it.
    #[serde(default)]
    pub replaced_within_ms: Option<u64>,
    /// Time since its last sign: an event, or a renewal of its lease. Only a document of the pool has it.
    #[serde(default)]
    pub last_heard_ms: Option<u64>,
    /// Its process.
    #[serde(default)]
    pub pid: Option<i32>,
    /// Titles of its jobs in the order of the jobs' names, at most [`TITLES_MAX`]. Only a document of the
    /// pool has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub titles: Vec<String>,
}

/// Adds the title of a worker's next job to the `titles` of its row, unless they are complete.
pub fn add_title(titles: &mut Vec<String>, title: &str) {
    if titles.len() < TITLES_MAX {
        titles.push(title.to_owned());
    }
}

impl WorkerRow {
    /// Returns the state, or that the worker is silent, so that its state may be old.
    #[must_use]
    pub fn shown_state(&self) -> Word {
        if self.silent_since_unix_s.is_some() { "silent" } else { self.state }
    }

    /// Returns the duration of the silence at a time in seconds of Unix time, if the worker is silent:
    /// since its last sign, as `last heard` has it. Without that time, as in an answer of an earlier
    /// version, it is the time since its last lease renewal.
    #[must_use]
    pub fn silent_for(&self, now_unix_s: u64) -> Option<Duration> {
        let renewed = Duration::from_secs(now_unix_s.saturating_sub(self.silent_since_unix_s?));
        Some(self.last_heard_ms.map_or(renewed, Duration::from_millis))
    }

    /// Returns unusual facts about a worker, if any.
    #[must_use]
    pub fn remarks(&self, silent_for: Option<Duration>) -> String {
        let some = |count: usize, word| (0 < count).then(|| format!("{count} {word}"));
        let counts = [some(self.releasing, "releasing"), some(self.failing, "failing")];
        self.notes(silent_for, counts.into_iter().flatten())
    }

    /// Returns the same facts with other counts of jobs.
    fn notes(&self, silent_for: Option<Duration>, counts: impl Iterator<Item = String>) -> String {
        let mut parts = Vec::new();
        if let Some(silent_for) = silent_for {
            let within = self.replaced_within_ms.map(Duration::from_millis);
            let within = within.map(|time| format!(" (replaced within {})", age(time)));
            parts.push(format!("silent for {}{}", age(silent_for), within.unwrap_or_default()));
        } else if self.confirmed == Some(false) {
            parts.push("has not confirmed its jobs".to_owned());
        }
        if let Some(since) = self.missing_since_unix_s {
            let word = if self.state == "away" { "lost" } else { "not ready" };
            parts.push(format!("{word} since {}", utc(since)));
        }
        parts.extend(counts);
        if let Some(previous) = self.previous.filter(|count| 0 < *count) {
            parts.push(format!("{previous} to restart"));
        }
        if let Some(restarts) = self.restarts.filter(|count| 0 < *count) {
            parts.push(counted(restarts.try_into().unwrap_or(usize::MAX), "restart"));
        }
        parts.join(", ")
    }
}

/// A worker and its pool. Its fields are the fields of both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerLine {
    /// The worker.
    #[serde(flatten)]
    pub worker: WorkerRow,
    /// Its pool.
    #[serde(flatten)]
    pub pool: PoolName,
}

/// The workers of one pool or of all pools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Workers {
    /// The workers of each pool, by slot.
    pub workers: Vec<WorkerLine>,
}

impl Workers {
    /// Makes a table at a time in seconds of Unix time. Columns without values are left out. The pool
    /// has columns in a table of all pools.
    #[must_use]
    pub fn text(&self, home: Home, now_unix_s: u64, is_of_all: bool, is_wide: bool) -> String {
        let mut heads = if is_of_all { home.heads().to_vec() } else { Vec::new() };
        heads.extend([columns::WORKER, columns::STATE, "JOBS", "STOPPING"]);
        heads.extend([columns::OLDEST_RELEASE, "FAILING", "AGE", columns::HEARD]);
        heads.extend(if is_wide {
            &["PID", "SLOT", "NODE", "LOAD", "TITLES", "VIEW", "SESSION"][..]
        } else {
            &[]
        });
        heads.push("INFO");
        let mut rows = vec![heads.into_iter().map(str::to_owned).collect::<Vec<_>>()];
        rows.extend(self.workers.iter().map(|WorkerLine { worker, pool }| {
            let mut row = if is_of_all { pool.cells() } else { Vec::new() };
            row.extend(worker.cells(now_unix_s));
            if is_wide {
                row.extend(worker.wide_cells());
            }
            // The counts have columns of their own.
            row.push(worker.notes(worker.silent_for(now_unix_s), iter::empty()));
            row
        }));
        whole_table(rows)
    }
}

/// Formats seconds of Unix time, up to the largest one.
fn utc(unix_s: u64) -> String {
    let time = i64::try_from(unix_s).ok().and_then(|at| Timestamp::from_second(at).ok());
    time.unwrap_or(Timestamp::MAX).strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

impl WorkerRow {
    fn cells(&self, now_unix_s: u64) -> [String; 8] {
        let some = |count: usize| if count == 0 { String::new() } else { count.to_string() };
        let time = |ms: Option<u64>| ms.map(|ms| age(Duration::from_millis(ms)));
        let since = |since| age(Duration::from_secs(now_unix_s.saturating_sub(since)));
        [
            self.name.clone(),
            self.shown_state().to_owned(),
            self.jobs.to_string(),
            some(self.releasing),
            time(self.oldest_release_ms).unwrap_or_default(),
            some(self.failing),
            self.since_unix_s.map(since).unwrap_or_default(),
            time(self.last_heard_ms).map(|time| format!("{time} ago")).unwrap_or_default(),
        ]
    }

    fn wide_cells(&self) -> [String; 7] {
        let view = match self.confirmed {
            Some(true) => "confirmed",
            Some(false) => "not confirmed",
            // A plain worker confirms nothing.
            None if self.state == "plain" => "published",
            None => "",
        };
        [
            self.pid.map(|pid| pid.to_string()).unwrap_or_default(),
            self.slot.to_string(),
            self.node.clone().unwrap_or_default(),
            self.load.map(|load| load.to_string()).unwrap_or_default(),
            self.titles.join(", "),
            view.to_owned(),
            self.session.clone().unwrap_or_default(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;
    use serde_json::json;

    use super::*;

    const NOW: u64 = 1_795_000_000;

    fn line(name: &str, pool: PoolName) -> WorkerLine {
        let worker = WorkerRow {
            name: name.to_owned(),
            state: "ready",
            jobs: 9,
            last_heard_ms: Some(900),
            pid: Some(70),
            ..WorkerRow::default()
        };
        WorkerLine { worker, pool }
    }

    fn machine(name: &str) -> WorkerLine {
        line(name, PoolName::Machine { pool: "cams".to_owned() })
    }

    fn text(workers: Vec<WorkerLine>, home: Home, is_of_all: bool, is_wide: bool) -> String {
        strip_str(&Workers { workers }.text(home, NOW, is_of_all, is_wide)).to_string()
    }

    #[test]
    fn a_silent_worker_has_the_time_since_its_last_sign_and_no_state_that_it_had() {
        let mut silent = machine("w-0");
        // The last renewal of the lease was earlier than the last event.
        silent.worker.silent_since_unix_s = Some(NOW - 15);
        silent.worker.last_heard_ms = Some(12_400);
        let shown = text(vec![silent, machine("w-1")], Home::Machine, false, false);
        let expected = "WORKER  STATE   JOBS  LAST HEARD  INFO\n\
                        w-0     silent  9     12 s ago    silent for 12 s\n\
                        w-1     ready   9     0 s ago\n";
        assert_eq!(shown, expected);
    }

    #[test]
    fn workers_of_all_pools_have_the_name_of_each_pool() {
        let shown = text(vec![machine("w-1")], Home::Machine, true, true);
        let expected = "POOL  WORKER  STATE  JOBS  LAST HEARD  PID  SLOT\n\
                        cams  w-1     ready  9     0 s ago     70   0\n";
        assert_eq!(shown, expected);
        let (namespace, swarm) = ("media".to_owned(), "cams".to_owned());
        let mut cluster = line("w-0", PoolName::Cluster { namespace, swarm });
        cluster.worker = WorkerRow {
            since_unix_s: Some(NOW - 90),
            confirmed: Some(false),
            load: Some(150),
            titles: vec!["Door".to_owned(), "Yard".to_owned()],
            failing: 2,
            pid: None,
            ..cluster.worker
        };
        let shown = text(vec![cluster], Home::Cluster, true, true);
        assert_eq!(
            shown,
            "NAMESPACE  SWARM  WORKER  STATE  JOBS  FAILING  AGE    LAST HEARD  SLOT  LOAD  TITLES      \
             VIEW           INFO\n\
             media      cams   w-0     ready  9     2        1 min  0 s ago     0     150   Door, Yard  \
             not confirmed  has not confirmed its jobs\n"
        );
    }

    #[test]
    fn a_document_has_the_fields_of_a_worker_and_of_its_pool() {
        let workers = Workers { workers: vec![machine("w-0")] };
        let document = serde_json::to_value(&workers).unwrap();
        let line = &document["workers"][0];
        assert_eq!((&line["pool"], &line["jobs"]), (&json!("cams"), &json!(9)));
        assert_eq!(serde_json::from_value::<Workers>(document).unwrap(), workers);
    }
}
