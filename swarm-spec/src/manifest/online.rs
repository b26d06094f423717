//! Reads the jobs of a Swarm in a cluster, from the Swarm and the ConfigMaps that were fetched for
//! it.

use std::error::Error;

use serde_json::{Value, json};

use super::ManifestError;
use super::documents::{Object, Objects};
use super::jobs::{self, Gathered, SourceLimits};
use super::record::SourceRecord;
use crate::convert;
use crate::spec::SwarmSpec;

/// The most bytes in the sources of one Swarm on a cluster, where one operator reads the sources of
/// all Swarms. The program that fetches the ConfigMaps counts the bytes before it keeps any.
pub const SOURCE_BYTES_MAX: usize = 8 << 20;
/// The most ConfigMaps in the sources of one Swarm.
pub const SOURCE_MAPS_MAX: usize = 256;
/// The most jobs of a Swarm with sources, on a cluster.
pub const SOURCE_JOBS_MAX: usize = 200_000;
/// The most lists, maps and values of one text: three for each job.
const SOURCE_VALUES_MAX: usize = 3 * SOURCE_JOBS_MAX;

/// An error in the sources of a Swarm. Each message is a sentence for a person.
#[derive(Debug, PartialEq, Eq)]
pub enum SourceError {
    /// A ConfigMap or a key is missing.
    Missing(String),
    /// The text of a source is invalid.
    Invalid(String),
    /// The sources exceed a limit.
    TooLarge(String),
}

/// All jobs of the Swarm `name`: its inline jobs, and the jobs of its sources among `config_maps`,
/// which are objects of its namespace. `gone` are ConfigMaps of an earlier list that no longer
/// exist. O(bytes + jobs · log jobs).
///
/// # Errors
///
/// [`SourceError`] names the missing or wrong part, and the remedy.
pub fn jobs_in_namespace(
    name: &str,
    spec: &SwarmSpec,
    config_maps: impl IntoIterator<Item = Value>,
    gone: &SourceRecord,
) -> Result<Gathered, SourceError> {
    let objects = Objects::of_namespace(config_maps);
    let value = json!({"kind": "Swarm", "metadata": {"name": name}});
    let owner = Object::alone(value);
    let inline = spec.jobs.clone();
    let limits = SourceLimits { values_max: SOURCE_VALUES_MAX, jobs_max: SOURCE_JOBS_MAX };
    let gathered = jobs::read(&owner, &objects, inline, spec, gone, limits);
    let gathered = gathered.map_err(classify_error)?;
    let checked = convert::check_jobs(&gathered.jobs, spec);
    checked.map_err(|error| SourceError::Invalid(error.reason))?;
    Ok(gathered)
}

fn classify_error(error: ManifestError) -> SourceError {
    match error {
        ManifestError::NoSource { source, .. } => SourceError::Missing(source.to_string()),
        ManifestError::SourcesTooLarge { source, .. } => SourceError::TooLarge(source.to_string()),
        ManifestError::Spec { source, .. } => SourceError::Invalid(source.to_string()),
        error => {
            let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            SourceError::Invalid(format!("{error}{cause}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use swarm_core::Jobs;

    fn gathered(
        sources: &str,
        maps: impl IntoIterator<Item = Value>,
        gone: &str,
    ) -> Result<Gathered, SourceError> {
        let spec = format!("pool: {{statefulSet: {{name: w}}}}\njobs: [{{name: own}}]\n{sources}");
        let (spec, gone) = (serde_yaml::from_str(&spec).unwrap(), SourceRecord::parse(gone));
        jobs_in_namespace("streams", &spec, maps, &gone)
    }

    fn jobs_of(sources: &str, maps: impl IntoIterator<Item = Value>) -> Result<Jobs, SourceError> {
        gathered(sources, maps, "").map(|gathered| gathered.jobs)
    }

    fn config_map(name: &str, label: &str, text: &str) -> Value {
        let metadata = json!({"name": name, "labels": {"team": label}});
        json!({"kind": "ConfigMap", "metadata": metadata, "data": {"jobs": text}})
    }

    const BOTH: &str = "jobSources:
- {configMap: {name: more, key: jobs}, shareSuffix: true}
- {selector: {matchLabels: {team: peers}}, key: jobs, format: hostports}";

    #[test]
    fn jobs_of_all_sources_are_gathered() {
        let maps = [
            config_map("more", "x", "[cnbc:50, {name: bbc, priority: 2}]"),
            config_map("peers-5h7k", "peers", "a.example,80"),
            config_map("stranger", "y", "no list"),
        ];
        let jobs = jobs_of(BOTH, maps).unwrap();
        let names: Vec<_> = jobs.keys().map(ToString::to_string).collect();
        assert_eq!(names, ["a.example:80", "bbc", "cnbc", "own"]);
        assert_eq!(jobs["cnbc"].share.map(swarm_core::Share::percent), Some(50));
    }

    #[test]
    fn an_empty_list_is_written_as_one_in_every_format() {
        let maps = || [config_map("more", "x", "[] # none\n"), config_map("p", "peers", "[]\n")];
        assert_eq!(
            jobs_of(BOTH, maps()).unwrap().into_keys().map(|it| it.to_string()).collect::<Vec<_>>(),
            ["own"]
        );
    }

    #[test]
    fn a_selector_misses_a_config_map_that_held_jobs() {
        let peers = || config_map("peers-a", "peers", "a.example,80");
        let more = || config_map("more", "x", "[a]");
        let none = config_map("peers-none", "peers", "[]");
        let record = gathered(BOTH, [more(), peers(), none], "").unwrap().record;
        assert_eq!(record.to_text(), r#"{"team=peers":["peers-a"]}"#, "one with jobs in it");
        let gone = r#"{"team=peers":["peers-b"]}"#;
        let error = gathered(BOTH, [more(), peers()], gone).unwrap_err();
        let SourceError::Missing(message) = error else { panic!("{error:?}") };
        for part in [
            "spec.jobSources[1]: ConfigMap `peers-b`",
            "`team=peers`",
            "was removed",
            "`jobs: \"[]\"`",
            "`optional: true`",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
        let optional = BOTH.replace("hostports}", "hostports, optional: true}");
        let found = gathered(&optional, [more(), peers()], gone).unwrap();
        assert_eq!((found.jobs.len(), found.record.is_empty()), (3, true));
    }

    #[test]
    fn an_optional_source_may_be_missing_and_its_text_may_not_be_empty() {
        let all = BOTH.replace('}', ", optional: true}").replace("jobs, optional: true}", "jobs}");
        let all = all.replace("peers, optional: true}", "peers}");
        let names = |maps: Vec<Value>| -> Result<Vec<_>, _> {
            jobs_of(&all, maps).map(|jobs| jobs.into_keys().map(|it| it.to_string()).collect())
        };
        assert_eq!(names(vec![]).unwrap(), ["own"]);
        let mut without_key = config_map("more", "x", "[a]");
        without_key["data"] = json!({"jobz": "[a]"});
        assert_eq!(names(vec![without_key]).unwrap(), ["own"]);
        let empty = names(vec![config_map("more", "x", "")]).unwrap_err();
        assert!(matches!(empty, SourceError::Invalid(_)), "{empty:?}");
    }

    #[test]
    fn a_key_in_binary_data_is_named_also_where_it_is_optional() {
        let mut map = config_map("more", "x", "[a]");
        map["data"] = Value::Null;
        map["binaryData"] = json!({"jobs": "H4sI"});
        for optional in [false, true] {
            let source = format!(
                "jobSources: [{{configMap: {{name: more, key: jobs}}, optional: {optional}}}]"
            );
            let Err(SourceError::Missing(message)) = jobs_of(&source, [map.clone()]) else {
                panic!()
            };
            let words = "ConfigMap `more`: the key `jobs` is in `binaryData`";
            assert!(message.starts_with(words) && message.contains("UTF-8"), "{message}");
        }
    }

    #[test]
    fn sessions_receive_more_of_a_job_than_its_name() {
        let source = "worker: {protocol: Session}\n\
                      jobSources: [{configMap: {name: more, key: jobs}}]";
        let map = config_map("more", "x", "[{name: a, runOnce: true, params: {b: c}}]");
        let jobs = jobs_of(source, [map]).unwrap();
        assert!(jobs["a"].run_once && !jobs["own"].run_once);
        assert_eq!(jobs["a"].params["b"], "c");
    }

    #[test]
    fn what_is_missing_or_wrong_is_named_with_what_to_do() {
        let peers = || config_map("peers", "peers", "a.example,80");
        let cases = [
            (
                vec![peers()],
                "spec.jobSources[0]: ConfigMap `more` does not exist in this namespace; create it",
            ),
            (
                vec![config_map("more", "x", "[a]")],
                "spec.jobSources[1]: no ConfigMap in this namespace has the labels `team=peers`; create it",
            ),
            (
                vec![config_map("more", "x", "# none any more\n"), peers()],
                "ConfigMap `more`, key `jobs`: it is empty or ",
            ),
            (
                vec![config_map("more", "x", "null"), peers()],
                "ConfigMap `more`, key `jobs`: it is empty or ",
            ),
            (
                vec![config_map("more", "x", "[a]"), config_map("peers", "peers", "\n # none\n")],
                "ConfigMap `peers`, key `jobs`: it is empty or ",
            ),
            (
                vec![config_map("more", "x", "[a"), peers()],
                "ConfigMap `more`, key `jobs`: document 1 does not parse",
            ),
            (
                vec![config_map("more", "x", "[own]"), peers()],
                "job `own` occurs twice: spec.jobs[0] and ConfigMap `more`, key `jobs`, entry 1; remove one",
            ),
            (
                vec![config_map("more", "x", "[{name: a, runOnce: true}]"), peers()],
                "job `a` has `runOnce`",
            ),
            (
                vec![config_map("more", "x", "[{name: a, params: {b-b: c}}]"), peers()],
                "ConfigMap `more`, key `jobs`, entry 1: `b-b` cannot name a param",
            ),
        ];
        for (maps, expected) in cases {
            let message = match jobs_of(BOTH, maps).unwrap_err() {
                SourceError::Missing(message) | SourceError::Invalid(message) => message,
                error @ SourceError::TooLarge(_) => panic!("{error:?}"),
            };
            assert!(message.starts_with(expected), "{message}");
        }
        let key = BOTH.replace("key: jobs}", "key: jobz}");
        let error = jobs_of(&key, [config_map("more", "x", "[a]")]);
        let message = "ConfigMap `more`: `data` has no text under the key `jobz`, only `jobs`; \
                       add it or name another";
        assert_eq!(error, Err(SourceError::Missing(message.into())));
    }

    #[test]
    fn more_jobs_or_values_than_are_read_are_refused_before_they_are() {
        let source =
            "jobSources: [{configMap: {name: more, key: jobs}}, {configMap: {name: x, key: jobs}}]";
        let said = |first: &str, second: &str| {
            let maps = [config_map("more", "x", first), config_map("x", "x", second)];
            match jobs_of(source, maps) {
                Err(SourceError::TooLarge(message)) => message,
                other => format!("{:?}", other.map(|jobs| jobs.len())),
            }
        };
        let list = |from: u32, to: u32| {
            (from..to).map(|n| format!("- j{n}\n")).collect::<Vec<_>>().concat()
        };
        let message = said(&list(0, 100_000), &list(100_000, 200_000));
        for part in ["ConfigMap `x`, key `jobs`: ", " 200001 jobs", " 200000 "] {
            assert!(message.contains(part), "{part}: {message}");
        }
        assert_eq!(said(&list(0, 100_000), &list(100_000, 199_999)), "Ok(200000)");
        let message = said(&format!("[{}]", "[],".repeat(333_000)), "[]");
        assert!(message.contains("it has some 999002 lists, maps and values"), "{message}");
    }

    #[test]
    fn tens_of_thousands_of_jobs_fit_into_sources_ledger_and_view() {
        use swarm_core::{Desired, Ledger, Observed, Presence, Slot, WorkerSeen, decide};
        let lines: Vec<_> = (0..20_000).map(|n| format!("- stream:camera{n:05}:new")).collect();
        let text = lines.join("\n");
        let source = "jobSources: [{configMap: {name: more, key: jobs}}]";
        let map = config_map("more", "x", &text);
        let jobs = jobs_of(source, [map]).unwrap();
        assert_eq!(jobs.len(), 20_001);
        let worker = |n: u32| {
            let name = format!("swarm-worker-{n}");
            let session = Some(swarm_core::handover::SessionId::plain(&format!("3f{n:034}")));
            (Slot(n), WorkerSeen::new(name, Presence::Ready, session))
        };
        let observed = Observed::new((0..100).map(worker), 1, []);
        let desired = Desired::new(jobs);
        let ledger = decide(&Ledger::new(1_790_000_000_000_000), &desired, &observed).ledger;
        assert!(ledger.view().to_yaml().len() < 900_000);
        let stored = swarm_core::stored::Stored::from(&ledger);
        let bytes = serde_json::to_vec(&stored.holders).unwrap().len();
        assert!(bytes < 1_200_000, "{bytes}");
    }
}
