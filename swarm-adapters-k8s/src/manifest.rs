//! One `Swarm` out of a file: the same manifest that `kubectl apply` takes, checked offline.
//!
//! A file may hold other documents too. The StatefulSet that is the Swarm's pool tells how many
//! workers there are; all others are passed over with a note.

use serde::Deserialize as _;
use serde_json::Value;
use swarm_core::{Desired, JobsError};

use crate::api::{API_VERSION, Swarm, crds};
use crate::{convert, schema};

/// What a file asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The Swarm's name.
    pub name: String,
    /// What it asks for.
    pub desired: Desired,
    /// How many workers the pool's workload in the same file has, if it stands there.
    pub replicas: Option<u32>,
    /// The pool's name; its workers are called by it and their slot, as in `swarm-worker-0`.
    pub worker_name: String,
    /// What the workers do with a job, by the runner's name.
    pub runner: String,
    /// What was passed over, a sentence each.
    pub notes: Vec<String>,
}

/// Why a text is not a usable manifest. Every message is a sentence for a person.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// A document is not YAML.
    #[error("document {document} does not parse")]
    Syntax {
        /// Which document of the file, from 1.
        document: usize,
        /// Where and why.
        source: serde_yaml::Error,
    },
    /// No document is a Swarm.
    #[error("no Swarm in it; a Swarm starts with `apiVersion: {API_VERSION}` and `kind: Swarm`")]
    NoSwarm,
    /// The Swarm asked for is not there, or it is not said which of several is meant.
    #[error("it holds the Swarms {}; say which one with --name", found.join(", "))]
    WhichSwarm {
        /// Those that are there.
        found: Vec<String>,
    },
    /// The Swarm is of an API version that this program does not know.
    #[error("Swarm in document {document} has apiVersion `{found}`; write `{API_VERSION}`")]
    ApiVersion {
        /// Which document of the file, from 1.
        document: usize,
        /// What stands there.
        found: String,
    },
    /// A field is unknown, missing or of the wrong type.
    #[error("Swarm `{swarm}`: {reason}")]
    Field {
        /// Which Swarm.
        swarm: String,
        /// A sentence that names the field.
        reason: String,
    },
    /// The list of jobs cannot be used.
    #[error("Swarm `{swarm}`: spec.jobs")]
    Jobs {
        /// Which Swarm.
        swarm: String,
        /// Why.
        source: JobsError,
    },
}

/// Reads the Swarm called `name` (or the only one) from YAML or JSON documents.
///
/// The limit of 2,000 inline jobs, which protects the API server, does not apply here.
///
/// # Errors
///
/// [`ManifestError`] says what is wrong, where, and what to write instead.
///
/// ```
/// let text = r#"
/// apiVersion: swarm.k8slab.info/v1alpha1
/// kind: Swarm
/// metadata: {name: streams}
/// spec:
///   jobs: [{name: "stream:cars:new"}]
///   pool: {statefulSet: {name: swarm-worker}}
/// "#;
/// let manifest = swarm_adapters_k8s::manifest::parse(text, None)?;
/// assert_eq!(manifest.worker_name, "swarm-worker");
///
/// let misspelt = text.replace("jobs:", "job:");
/// let error = swarm_adapters_k8s::manifest::parse(&misspelt, None).unwrap_err();
/// assert_eq!(error.to_string(), "Swarm `streams`: unknown field `spec.job`; did you mean `jobs`?");
/// # Ok::<(), swarm_adapters_k8s::manifest::ManifestError>(())
/// ```
pub fn parse(text: &str, name: Option<&str>) -> Result<Manifest, ManifestError> {
    let documents = documents(text)?;
    let (document, swarm) = choose(&documents, name)?;
    let swarm_name = name_of(swarm);
    if text_at(swarm, "/apiVersion") != API_VERSION {
        let found = text_at(swarm, "/apiVersion").to_owned();
        return Err(ManifestError::ApiVersion { document, found });
    }
    let field = |reason| ManifestError::Field { swarm: swarm_name.clone(), reason };
    schema::check(&crds()[0], swarm).map_err(field)?;
    let swarm: Swarm = serde_path_to_error::deserialize(swarm)
        .map_err(|error| field(format!("field `{}`: {}", error.path(), error.inner())))?;
    let desired = convert::desired(&swarm)
        .map_err(|source| ManifestError::Jobs { swarm: swarm_name.clone(), source })?;
    let (replicas, notes) = others(&documents, &swarm);
    let worker_name = swarm.pool_name().to_owned();
    Ok(Manifest { name: swarm_name, desired, replicas, worker_name, runner: "log".into(), notes })
}

/// Every document that is not empty, with its number.
fn documents(text: &str) -> Result<Vec<(usize, Value)>, ManifestError> {
    let mut documents = Vec::new();
    for (index, document) in serde_yaml::Deserializer::from_str(text).enumerate() {
        let number = index + 1;
        let syntax = |source| ManifestError::Syntax { document: number, source };
        // YAML's own value first: it refuses doubled keys, which a JSON value would swallow.
        let yaml = serde_yaml::Value::deserialize(document).map_err(syntax)?;
        let value: Value = serde_yaml::from_value(yaml).map_err(syntax)?;
        if !value.is_null() {
            documents.push((number, value));
        }
    }
    Ok(documents)
}

/// The Swarm that is meant.
fn choose<'a>(
    documents: &'a [(usize, Value)],
    name: Option<&str>,
) -> Result<(usize, &'a Value), ManifestError> {
    let swarms: Vec<_> =
        documents.iter().filter(|(_, document)| text_at(document, "/kind") == "Swarm").collect();
    let meant = |document: &&&(usize, Value)| name.is_none_or(|name| name_of(&document.1) == name);
    match (swarms.iter().filter(meant).collect::<Vec<_>>().as_slice(), swarms.is_empty()) {
        (_, true) => Err(ManifestError::NoSwarm),
        ([(number, swarm)], _) => Ok((*number, swarm)),
        _ => {
            let found = swarms.iter().map(|(_, swarm)| format!("`{}`", name_of(swarm))).collect();
            Err(ManifestError::WhichSwarm { found })
        }
    }
}

/// The replicas of the pool's StatefulSet, and a note for every document that is not used.
fn others(documents: &[(usize, Value)], swarm: &Swarm) -> (Option<u32>, Vec<String>) {
    let (mut replicas, mut notes) = (None, Vec::new());
    for (_, document) in documents {
        let (kind, name) = (text_at(document, "/kind"), name_of(document));
        let of_default = Value::from(1);
        if kind == "StatefulSet" && name == swarm.pool_name() {
            let count = document.pointer("/spec/replicas").unwrap_or(&of_default).as_u64();
            replicas = count.and_then(|count| u32::try_from(count).ok());
        } else if kind != "Swarm" || swarm.metadata.name.as_deref() != Some(&name) {
            let kind = if kind.is_empty() { "a document without a kind" } else { kind };
            notes.push(format!("{kind} `{name}` is passed over"));
        }
    }
    (replicas, notes)
}

fn text_at<'a>(document: &'a Value, pointer: &str) -> &'a str {
    document.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn name_of(document: &Value) -> String {
    text_at(document, "/metadata/name").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r"
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: streams}
spec:
  jobs:
    - name: stream:cars:new
    - name: stream:cars:updated
  pool: {statefulSet: {name: swarm-worker}}
  worker: {runner: {log: {}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: swarm-worker}
spec: {replicas: 3}
---
apiVersion: v1
kind: Service
metadata: {name: swarm-worker}
";

    fn message(text: &str) -> String {
        let error = parse(text, None).unwrap_err();
        let mut message = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            message = format!("{message}: {error}");
            cause = error.source();
        }
        message
    }

    #[test]
    fn a_swarm_and_its_statefulset_are_read_and_the_rest_is_noted() {
        let manifest = parse(GOOD, None).unwrap();
        assert_eq!((manifest.desired.jobs.len(), manifest.replicas), (2, Some(3)));
        assert_eq!(manifest.notes, ["Service `swarm-worker` is passed over"]);
    }

    #[test]
    fn every_mistake_is_named_in_one_sentence() {
        let mistakes = [
            ("jobs:", "jbos:"),
            ("statefulSet:", "statefulset:"),
            ("name: stream:cars:updated", "nam: stream:cars:updated"),
            ("stream:cars:updated", "stream:cars:new"),
            ("stream:cars:updated", "\"two words\""),
            ("log: {}", "logg: {}"),
            ("pool: {statefulSet: {name: swarm-worker}}", "pool: {}"),
            ("pool: {statefulSet: {name: swarm-worker}}", "pool: 7"),
            ("v1alpha1", "v9"),
            ("kind: Swarm", "kind: Storm"),
            ("metadata: {name: streams}", "metadata: {name: streams"),
            ("spec:\n  jobs", "spec:\n  jobs: []\n  jobs"),
            ("worker: {runner: {log: {}}}", "rebalance: {initialWait: soon}"),
        ];
        let messages = mistakes.map(|(right, wrong)| message(&GOOD.replacen(right, wrong, 1)));
        insta::assert_snapshot!(messages.join("\n"), @r#"
        Swarm `streams`: unknown field `spec.jbos`; did you mean `jobs`?
        Swarm `streams`: unknown field `spec.pool.statefulset`; did you mean `statefulSet`?
        Swarm `streams`: unknown field `spec.jobs[1].nam`; did you mean `name`?
        Swarm `streams`: spec.jobs: job `stream:cars:new` stands twice, as number 1 and as number 2; remove one
        Swarm `streams`: spec.jobs: job number 2: job name `two words` has the character ' ' at position 3; use printable ASCII without spaces
        Swarm `streams`: unknown field `spec.worker.runner.logg`; did you mean `log`?
        Swarm `streams`: field `spec.pool.statefulSet` is missing
        Swarm `streams`: field `spec.pool` must be a map of fields, not a number
        Swarm in document 1 has apiVersion `swarm.k8slab.info/v9`; write `swarm.k8slab.info/v1alpha1`
        no Swarm in it; a Swarm starts with `apiVersion: swarm.k8slab.info/v1alpha1` and `kind: Swarm`
        document 1 does not parse: did not find expected ',' or '}' at line 5 column 5, while parsing a flow mapping at line 4 column 11
        document 1 does not parse: spec: duplicate entry with key "jobs" at line 6 column 3
        Swarm `streams`: field `spec.rebalance.initialWait`: `soon` is not a duration; write for example 30s or 1m30s
        "#);
    }

    #[test]
    fn a_yaml_bomb_is_refused() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for n in 1..12 {
            let before = format!("*a{}", n - 1);
            let line = format!("a{n}: &a{n} [{}]\n", [before.as_str(); 10].join(", "));
            bomb.push_str(&line);
        }
        assert!(message(&bomb).contains("repetition limit"), "{}", message(&bomb));
    }

    #[test]
    fn two_swarms_need_a_name() {
        let second = GOOD.replace("name: streams", "name: other");
        let both = format!("{GOOD}\n---{second}");
        assert_eq!(
            message(&both),
            "it holds the Swarms `streams`, `other`; say which one with --name"
        );
        assert_eq!(parse(&both, Some("other")).unwrap().name, "other");
    }
}
