//! The report of a worker: `{"version":7,"jobs":["stream:xxrtve1"]}`. `notRunning` lists its jobs
//! that do not run, if there are any.
//!
//! `/internal/version` serves the report. An operator on the same machine gets it as a line.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use swarm_core::JobName;

/// The jobs of a worker, and the version of the view's entry that assigned them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    /// The version of the worker's own entry; 0 if it has none.
    pub(crate) version: u64,
    /// The jobs it has, sorted. An operator compares them with its view.
    #[serde(with = "names")]
    pub(crate) jobs: BTreeSet<JobName>,
    /// The jobs that ended by themselves and do not run now: they wait for their next run, or are
    /// no longer restarted.
    #[serde(default, with = "names", skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) not_running: BTreeSet<JobName>,
}

impl Report {
    /// Creates the report about the jobs of an entry of this version; `down` has all jobs that do
    /// not run.
    #[must_use]
    pub(crate) fn new(version: u64, jobs: BTreeSet<JobName>, down: &BTreeSet<JobName>) -> Self {
        let not_running = down.intersection(&jobs).cloned().collect();
        Self { version, jobs, not_running }
    }

    /// Returns the number of running jobs.
    #[must_use]
    pub(crate) fn running(&self) -> usize {
        self.jobs.len() - self.not_running.len()
    }
}

/// Job names as a list of strings.
mod names {
    use serde::de::{Deserialize as _, Deserializer, Error as _};
    use serde::ser::Serializer;

    use super::{BTreeSet, JobName};

    pub(super) fn serialize<S: Serializer>(
        jobs: &BTreeSet<JobName>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(jobs.iter().map(JobName::as_str))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeSet<JobName>, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        names.iter().map(|name| JobName::new(name).map_err(D::Error::custom)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_the_documented_json_both_ways() {
        let jobs = swarm_core::jobs(["stream:b", "stream:a"]).unwrap().into_keys().collect();
        let report = Report::new(7, jobs, &BTreeSet::new());
        let json = r#"{"version":7,"jobs":["stream:a","stream:b"]}"#;
        assert_eq!(serde_json::to_string(&report).unwrap(), json);
        assert_eq!(serde_json::from_str::<Report>(json).unwrap(), report);
    }

    #[test]
    fn jobs_that_do_not_run_are_named_and_not_counted() {
        let jobs = |names: &[&str]| -> BTreeSet<JobName> {
            swarm_core::jobs(names.iter().copied()).unwrap().into_keys().collect()
        };
        let report = Report::new(7, jobs(&["a", "b"]), &jobs(&["b", "another"]));
        let json = r#"{"version":7,"jobs":["a","b"],"notRunning":["b"]}"#;
        assert_eq!(serde_json::to_string(&report).unwrap(), json);
        assert_eq!(serde_json::from_str::<Report>(json).unwrap(), report);
        assert_eq!(report.running(), 1);
    }
}
