//! One `Swarm` out of a file: the same manifest that `kubectl apply` takes, checked offline.
//!
//! A file may hold other documents too. ConfigMaps serve the Swarm's sources of jobs, the workload
//! that is its pool tells how many workers there are, all others are passed over with a note.
//!
//! What comes out speaks the core's words and no others, so that whoever runs it need not know
//! Kubernetes.

mod documents;
mod error;
mod jobs;
mod online;
mod pool;
mod record;
mod runner;

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Deserialize;
use swarm_core::handover::LeaseTerms;
use swarm_core::session::JobOutput;
use swarm_core::{Desired, Ledger, Need};

pub use error::{Explained, ManifestError, in_full};
pub use jobs::Gathered;
pub use online::{
    SOURCE_BYTES_MAX, SOURCE_JOBS_MAX, SOURCE_MAPS_MAX, SourceError, jobs_in_namespace,
};
pub use record::SourceRecord;
pub use runner::{Check, Program, Ready, Restart, Runner, param_variable};

use crate::convert::{self, Home};
use crate::error::SpecError;
use crate::schema::{self, ValueSchema};
use crate::spec::{RunnerSpec, SwarmSpec, WORKERS_MAX};
use crate::yaml::printable;
use documents::{Object, Objects};
use jobs::SourceLimits;
use pool::WorkerPool;

/// What a file asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The Swarm's name.
    pub name: String,
    /// What it asks for. `rules.moves_max` is `rebalance.maxMovesInFlight`.
    pub desired: Desired,
    /// How many workers there are: `spec.replicas`, else what the jobs ask for by `spec.autoscale`, else
    /// what the pool's workload in the same file says, or how many of its pods stand there.
    pub replicas: Option<u32>,
    /// The lowest slot: 0, unless the pool's StatefulSet in the same file counts from elsewhere.
    pub first_slot: u32,
    /// The pool's name, or the Swarm's where its pods go by labels; workers are called by it and
    /// their slot, as in `swarm-worker-0`.
    pub worker_name: String,
    /// What the workers do with a job; [`Runner::read`] accepts it.
    pub runner: RunnerSpec,
    /// Whether what the jobs print is shown outside of the log of their worker.
    pub output: JobOutput,
    /// The timing of the sessions of its workers.
    pub lease: LeaseTerms,
    /// The fields of its spec that are set, by path, as in `worker.runner.command[1]`; jobs apart.
    pub fields: BTreeSet<String>,
    /// What was passed over, a sentence each.
    pub notes: Vec<String>,
}

/// Reads the Swarm called `name` (or the only one) from YAML or JSON documents, to be run in `home`.
///
/// The limit of 2,000 inline jobs, which protects the API server, does not apply here. Time is
/// O(bytes + jobs · log jobs).
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

/// As [`parse`], from the objects in `namespace` and those that name no namespace.
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
    let objects = Objects::read(text, namespace)?;
    let swarm = objects.swarm(name)?;
    let name = swarm.name().to_owned();
    let wrong = |source| ManifestError::Spec { swarm: name.clone(), source };
    let (schema, mut spec) = read_spec(swarm)?;
    convert::name_fits(&name).map_err(wrong)?;
    if home == Home::Machine {
        // The API server takes a field without a value for one that is not there.
        swarm.has_lists().map_err(wrong)?;
    }
    let inline = std::mem::take(&mut spec.jobs);
    // A file is whole: a document that somebody takes out of it is an edit.
    let (gone, limits) = (SourceRecord::default(), SourceLimits::NONE);
    let Gathered { jobs, record: _ } =
        jobs::read(swarm, &objects, inline, &spec.job_sources, &gone, limits)?;
    let mut desired = convert::with_jobs(&spec, jobs, home).map_err(wrong)?;
    let lease = convert::lease_terms(&spec, home).map_err(wrong)?;
    let output = spec.output();
    let runner = spec.worker.as_mut().and_then(|worker| worker.runner.take());
    let runner = runner.unwrap_or_else(RunnerSpec::log);
    let WorkerPool { name: worker_name, workers, first_slot } =
        WorkerPool::read(&objects, swarm, spec.pool)?;
    // What nothing here gives a meaning to: the API server would refuse it all the same.
    schema::check_bounds(&schema, &swarm.value)
        .map_err(|reason| ManifestError::Field { swarm: name.clone(), reason })?;
    // Nothing scales the workers of a file but the file.
    let replicas = desired.replicas.take();
    let replicas = replicas.or_else(|| asked_for(&desired, first_slot)).or(workers);
    Ok(Manifest {
        replicas,
        desired,
        first_slot,
        worker_name,
        runner,
        output,
        lease,
        fields: swarm.fields(),
        notes: objects.notes(),
        name,
    })
}

/// How many workers the jobs ask for, where their number follows the jobs.
fn asked_for(desired: &Desired, first_slot: u32) -> Option<u32> {
    let terms = desired.autoscale?;
    let need = Need::of(&Ledger::new(0), desired, first_slot)?;
    Some(terms.bounded(need.workers))
}

/// The Swarm, without what every object has.
#[derive(Deserialize, JsonSchema)]
struct Document {
    spec: SwarmSpec,
}

/// The spec, once its structure is sound, with its schema.
fn read_spec(swarm: &Object) -> Result<(ValueSchema, SwarmSpec), ManifestError> {
    let field = |reason| ManifestError::Field { swarm: swarm.name().to_owned(), reason };
    if swarm.name().is_empty() {
        return Err(field("field `metadata.name` is missing".to_owned()));
    }
    let known = schema::of::<Document>().map_err(|error| field(error.to_string()))?;
    schema::check_object(&known, &swarm.value).map_err(field)?;
    let document: Document = serde_path_to_error::deserialize(&swarm.value).map_err(|error| {
        field(printable(&format!("field `{}`: {}", error.path(), error.inner())))
    })?;
    Ok((known, document.spec))
}

/// A number of workers.
fn bounded(count: i64, place: &str) -> Result<u32, SpecError> {
    let count = u32::try_from(count).ok().filter(|count| *count <= WORKERS_MAX);
    count.ok_or_else(|| SpecError {
        place: place.to_owned(),
        reason: format!("write a whole number from 0 to {WORKERS_MAX}"),
    })
}

#[cfg(test)]
mod tests;
