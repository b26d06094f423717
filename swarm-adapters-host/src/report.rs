//! A worker's report about itself: `{"version":7,"jobs":["stream:xxrtve1"]}`.
//!
//! `/internal/version` serves it; to an operator on the same machine it is written as a line.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use swarm_core::{JobName, Worker};

/// The jobs that a worker runs, and the version of its entry in the view that they come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The version of the worker's own entry; 0 if it has none.
    pub version: u64,
    /// The jobs it runs, sorted.
    #[serde(with = "names")]
    pub jobs: BTreeSet<JobName>,
}

impl From<&Worker> for Report {
    fn from(worker: &Worker) -> Self {
        let Worker { version, running, publication: _, older_since: _ } = worker;
        Self { version: *version, jobs: running.clone() }
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
        let report = Report { version: 7, jobs };
        let json = r#"{"version":7,"jobs":["stream:a","stream:b"]}"#;
        assert_eq!(serde_json::to_string(&report).unwrap(), json);
        assert_eq!(serde_json::from_str::<Report>(json).unwrap(), report);
    }
}
