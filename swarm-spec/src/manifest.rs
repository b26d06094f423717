//! Reads one `Swarm` from a file: the same manifest as for `kubectl apply`, checked offline. A file
//! may also have the short form, which [`expand`] writes in full.
//!
//! A file may have more documents. ConfigMaps serve the Swarm's sources of jobs, and the workload
//! of its pool has the number of workers. A note names each document that is ignored.
//!
//! The result has only terms of the core, so its readers need no knowledge of Kubernetes.

mod alive;
mod documents;
mod error;
mod files;
mod jobs;
mod location;
mod online;
mod pool;
mod record;
mod runner;
mod secret;
mod short;
mod stop;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use swarm_core::handover::LeaseTerms;
use swarm_core::session::{JobOutput, Pace};
use swarm_core::{Desired, Ledger, Need, RunnerName};

pub use alive::{Alive, Sign};
pub use error::{Explained, ManifestError, in_full};
pub use files::{Detail, FILES_BYTES_MAX, Files};
pub use jobs::Gathered;
pub use location::Location;
pub use online::{
    SOURCE_BYTES_MAX, SOURCE_JOBS_MAX, SOURCE_MAPS_MAX, SourceError, jobs_in_namespace,
};
pub use record::SourceRecord;
pub use runner::{Check, Probe, Program, Ready, Restart, Runner};
pub(crate) use secret::check_keys;
pub use secret::{SecretParam, is_secret_key, param_variable};
pub use short::expand;
pub(crate) use short::{COMMAND, short_path};
pub use stop::Stop;

use crate::convert::{self, Home};
use crate::error::SpecError;
use crate::fields::Fields;
use crate::params;
use crate::schema::{self, Source, ValueSchema};
use crate::spec::{self, LogLimits, RunnerSpec, SwarmSpec, WORKERS_MAX};
use crate::yaml::{self, Document, printable};
use documents::{Object, Objects};
use jobs::SourceLimits;
use pool::WorkerPool;

/// The contents of a file with a Swarm.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The Swarm's name.
    pub name: String,
    /// The Swarm in terms of the core. `rules.moves_max` is `rebalance.maxMovesInFlight`.
    pub desired: Desired,
    /// The number of workers. Sources in order: `spec.replicas`, `spec.autoscale` with the jobs,
    /// the replicas of the pool's workload in the same file, the number of its pods in the file.
    pub replicas: Option<u32>,
    /// The lowest slot: 0, or the first ordinal of the pool's StatefulSet in the same file.
    pub first_slot: u32,
    /// The name of the pool, or of the Swarm if the pool selects pods by labels. Workers are named
    /// after it and their slot, as in `swarm-worker-0`.
    pub worker_name: String,
    /// The runner of the workers; [`Runner::read`] accepts it.
    pub runner: RunnerSpec,
    /// The runners of the jobs that name one; [`Runner::read`] accepts each.
    pub runners: BTreeMap<RunnerName, RunnerSpec>,
    /// Whether output of jobs is shown outside of the log of their worker.
    pub output: JobOutput,
    /// Limits of the files with the output of jobs.
    pub logs: LogLimits,
    /// Number of jobs that a worker starts and restarts at a time.
    pub pace: Pace,
    /// The timing of the workers' sessions.
    pub lease: LeaseTerms,
    /// The fields that are set, without the jobs.
    pub fields: Fields,
    /// One sentence for each document that is ignored.
    pub notes: Vec<String>,
}

/// Reads the Swarm `name`, or the only Swarm, from YAML or JSON documents, to be run in `home`.
///
/// A cluster has at most 2,000 inline jobs. On one machine a note names the limit. Time is O(bytes +
/// jobs · log jobs).
///
/// # Errors
///
/// [`ManifestError`] describes the mistake, its place, and the text to write instead.
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
/// use swarm_spec::convert::Home;
/// use swarm_spec::manifest::parse;
///
/// let manifest = parse(text, None, Home::Cluster)?;
/// assert_eq!(manifest.worker_name, "swarm-worker");
///
/// let misspelt = text.replace("jobs:", "job:");
/// let error = parse(&misspelt, None, Home::Cluster).unwrap_err();
/// assert_eq!(error.to_string(), "Swarm `streams`: unknown field `spec.job`; did you mean `jobs`?");
/// # Ok::<(), swarm_spec::manifest::ManifestError>(())
/// ```
pub fn parse(text: &str, name: Option<&str>, home: Home) -> Result<Manifest, ManifestError> {
    parse_in(text, name, None, home)
}

/// Works like [`parse`], with the objects in `namespace` and the objects without a namespace.
///
/// # Errors
///
/// As [`parse`].
pub fn parse_in(
    text: &str,
    name: Option<&str>,
    namespace: Option<&str>,
    home: Home,
) -> Result<Manifest, ManifestError> {
    parse_documents(yaml::manifests(text)?, name, namespace, home)
}

/// Works like [`parse_in`], with documents of several texts that [`yaml::manifests`] read.
///
/// # Errors
///
/// As [`parse`]. The location of an error has the index of its document.
pub fn parse_documents(
    documents: Vec<Document<'_>>,
    name: Option<&str>,
    namespace: Option<&str>,
    home: Home,
) -> Result<Manifest, ManifestError> {
    if documents.is_empty() {
        return Err(ManifestError::Empty);
    }
    let objects = Objects::of(documents, namespace);
    let swarm = objects.swarm(name)?;
    read_swarm(swarm, &objects, home).map_err(|error| error.in_swarm(&|path| swarm.at(path)))
}

/// The objects of the documents, each in its long form, as `kubectl apply` takes it. Items of a `List`
/// count as objects.
///
/// # Errors
///
/// [`ManifestError`] for a Swarm with two forms of one field.
pub fn objects(documents: Vec<Document<'_>>) -> Result<Vec<Value>, ManifestError> {
    Objects::of(documents, None).in_full()
}

fn read_swarm(
    swarm: &Object<'_>,
    objects: &Objects<'_>,
    home: Home,
) -> Result<Manifest, ManifestError> {
    let name = swarm.name().to_owned();
    let wrong = |source| ManifestError::Spec { swarm: name.clone(), at: None, source };
    let (schema, mut spec) = read_spec(swarm)?;
    convert::name_fits(&name).map_err(wrong)?;
    if home == Home::Machine {
        // The API server treats a field without a value as missing.
        swarm.has_lists().map_err(wrong)?;
    }
    let inline = std::mem::take(&mut spec.jobs);
    let mut notes = Vec::new();
    if let Err(reason) = spec::inline_jobs_fit(inline.len()) {
        match home {
            Home::Cluster => {
                return Err(wrong(SpecError { place: "spec.jobs".to_owned(), reason }));
            }
            Home::Machine => notes.push(format!("on a cluster, spec.jobs: {reason}")),
        }
    }
    // A file is complete: removing a document from it is an edit.
    let (gone, limits) = (SourceRecord::default(), SourceLimits::NONE);
    let Gathered { jobs, record: _ } = jobs::read(swarm, objects, inline, &spec, &gone, limits)?;
    let mut desired = convert::with_jobs(&spec, jobs, home).map_err(wrong)?;
    let lease = convert::lease_terms(&spec, home).map_err(wrong)?;
    let (output, logs, pace) = (spec.output(), spec.log_limits(), spec.pace());
    let runners = spec.runners();
    let runner = spec.worker.as_mut().and_then(|worker| worker.runner.take());
    let runner = runner.unwrap_or_else(RunnerSpec::log);
    let WorkerPool { name: worker_name, workers, first_slot } =
        WorkerPool::read(objects, swarm, spec.pool)?;
    // Fields that nothing reads here: the API server would refuse wrong values in them.
    schema::check_bounds(&schema, &swarm.value).map_err(|reason| ManifestError::Field {
        swarm: name.clone(),
        at: None,
        reason,
    })?;
    notes.extend(objects.notes());
    notes.extend(params::note(&desired.jobs));
    // The workers of a file are scaled by the file only.
    let replicas = desired.replicas.take();
    let replicas = replicas.or_else(|| asked_for(&desired, first_slot)).or(workers);
    Ok(Manifest {
        replicas,
        desired,
        first_slot,
        worker_name,
        runner,
        runners,
        output,
        logs,
        pace,
        lease,
        fields: swarm.fields(),
        notes,
        name,
    })
}

/// The number of workers that `autoscale` requests for the jobs.
fn asked_for(desired: &Desired, first_slot: u32) -> Option<u32> {
    let terms = desired.autoscale?;
    let need = Need::of(&Ledger::new(0), desired, first_slot)?;
    Some(terms.bounded(need.workers))
}

/// The Swarm without the fields that every object has.
#[derive(Deserialize, JsonSchema)]
struct SwarmObject {
    spec: SwarmSpec,
}

/// The spec and its schema, after a check of the structure.
fn read_spec(swarm: &Object<'_>) -> Result<(ValueSchema, SwarmSpec), ManifestError> {
    let field = |reason| ManifestError::Field { swarm: swarm.name().to_owned(), at: None, reason };
    if swarm.name().is_empty() {
        return Err(field("field `metadata.name` is missing".to_owned()));
    }
    let known = schema::of::<SwarmObject>().map_err(|error| field(error.to_string()))?;
    let source = Source { reader: "Kubernetes", written: &|path| swarm.written(path) };
    if let Err(mistakes) = schema::check_object(&known, &swarm.value, source) {
        mistakes.map(field).check()?;
    }
    let document: SwarmObject =
        serde_path_to_error::deserialize(&swarm.value).map_err(|error| {
            field(printable(&format!("field `{}`: {}", error.path(), error.inner())))
        })?;
    Ok((known, document.spec))
}

/// Checks a number of workers.
fn bounded(count: i64, place: &str) -> Result<u32, SpecError> {
    let count = u32::try_from(count).ok().filter(|count| *count <= WORKERS_MAX);
    count.ok_or_else(|| SpecError {
        place: place.to_owned(),
        reason: format!("write a whole number from 0 to {WORKERS_MAX}"),
    })
}

#[cfg(test)]
mod tests;
