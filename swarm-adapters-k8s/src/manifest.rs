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
mod spec;
mod terms;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use swarm_core::handover::Policy;
use swarm_core::{Desired, JobName, Rules, Timing};

pub use error::ManifestError;
pub(crate) use online::{SourceError, jobs_in_namespace};
pub use terms::{Handover, Pacing, Runner};

use crate::api::{RebalanceSpec, WorkloadRef};
use crate::convert::{self, SpecError};
use crate::schema;
use crate::yaml::printable;
use documents::{Object, Objects};
pub(crate) use jobs::{JobList, check_params};

/// The most workers that a manifest may ask for.
pub const WORKERS_MAX: u32 = 100_000;

/// What a file asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The Swarm's name.
    pub name: String,
    /// What it asks for. `rules.moves_max` is `rebalance.maxMovesInFlight`.
    pub desired: Desired,
    /// The jobs that are done once they have ended by themselves.
    pub run_once: BTreeSet<JobName>,
    /// What jobs are told beside their name. Jobs that are told nothing do not stand here.
    pub params: BTreeMap<JobName, BTreeMap<String, String>>,
    /// How many workers there are: `spec.replicas`, else what the pool's workload in the same file
    /// says, if it stands there.
    pub replicas: Option<u32>,
    /// The lowest slot: 0, unless the pool's StatefulSet in the same file counts from elsewhere.
    pub first_slot: u32,
    /// The pool's name; its workers are called by it and their slot, as in `swarm-worker-0`.
    pub worker_name: String,
    /// What the workers do with a job.
    pub runner: Runner,
    /// How jobs are handed over. Its `release_timeout` is also the one of `desired.timing`.
    pub handover: Handover,
    /// When turns are made.
    pub pacing: Pacing,
    /// What was passed over, a sentence each.
    pub notes: Vec<String>,
}

/// Reads the Swarm called `name` (or the only one) from YAML or JSON documents.
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
/// let manifest = swarm_adapters_k8s::manifest::parse(text, None)?;
/// assert_eq!(manifest.worker_name, "swarm-worker");
///
/// let misspelt = text.replace("jobs:", "job:");
/// let error = swarm_adapters_k8s::manifest::parse(&misspelt, None).unwrap_err();
/// assert_eq!(error.to_string(), "Swarm `streams`: unknown field `spec.job`; did you mean `jobs`?");
/// # Ok::<(), swarm_adapters_k8s::manifest::ManifestError>(())
/// ```
pub fn parse(text: &str, name: Option<&str>) -> Result<Manifest, ManifestError> {
    let objects = Objects::read(text)?;
    let swarm = objects.swarm(name)?;
    let name = swarm.name().to_owned();
    let wrong = |source| ManifestError::Spec { swarm: name.clone(), source };
    let spec::Spec {
        jobs,
        job_sources,
        replicas,
        pool,
        worker,
        view: _,
        handover,
        rebalance,
        replication,
        refresh: _,
    } = read_spec(swarm)?;
    let (kind, workload) = pool_of(pool).map_err(wrong)?;
    let (worker_name, workload) = workload_of(&objects, swarm, kind, workload)?;
    let (of_workload, first_slot) = match workload {
        Some(workload) => {
            let (replicas, first_slot) = size_of(kind, workload).map_err(wrong)?;
            (Some(replicas), first_slot)
        }
        None => (None, 0),
    };
    let replicas = replicas.map(|count| bounded(count, "spec.replicas")).transpose();
    let JobList { jobs, run_once, params } = JobList::read(swarm, &objects, jobs, job_sources)?;
    let handover = Handover::read(handover).map_err(wrong)?;
    let protocol = worker.as_ref().and_then(|worker| worker.protocol);
    let (max_jobs, runner) = worker.map_or((None, None), |worker| (worker.max_jobs, worker.runner));
    let max_jobs = max_jobs.map(convert::max_jobs).transpose().map_err(wrong)?;
    let mut notes = objects.notes();
    if protocol != Some(spec::Protocol::Session) {
        notes.extend(of_sessions(handover.policy, !run_once.is_empty()));
    }
    let (rules, timing, pacing) = pace(&rebalance.unwrap_or_default());
    let timing = Timing { release_timeout: handover.release_timeout, ..timing };
    Ok(Manifest {
        desired: Desired {
            jobs,
            replication: replication.unwrap_or_default().into(),
            rules,
            max_jobs,
            timing,
            policy: handover.policy,
            paused: pacing.paused,
            batch_window: pacing.batch_window,
            replicas: None,
        },
        run_once,
        params,
        replicas: replicas.map_err(wrong)?.or(of_workload),
        first_slot,
        worker_name,
        runner: Runner::read(runner).map_err(wrong)?,
        handover,
        pacing,
        notes,
        name,
    })
}

/// What a cluster refuses of a Swarm whose workers are not said to speak the protocol. On one machine
/// all of them do.
fn of_sessions(policy: Policy, has_finite: bool) -> Option<String> {
    let what = match policy {
        Policy::Exclusive => "`handover.policy: Exclusive`",
        Policy::AtLeastOnce if has_finite => "`runOnce`",
        Policy::AtLeastOnce => return None,
    };
    Some(format!("a cluster takes {what} only beside `worker.protocol: Session`"))
}

/// The spec, once its structure is sound.
fn read_spec(swarm: &Object) -> Result<spec::Spec, ManifestError> {
    let field = |reason| ManifestError::Field { swarm: swarm.name().to_owned(), reason };
    if swarm.name().is_empty() {
        return Err(field("field `metadata.name` is missing".to_owned()));
    }
    let known = schema::of::<spec::Document>().map_err(|error| field(error.to_string()))?;
    schema::check_object(&known, &swarm.value).map_err(field)?;
    let document: spec::Document =
        serde_path_to_error::deserialize(&swarm.value).map_err(|error| {
            field(printable(&format!("field `{}`: {}", error.path(), error.inner())))
        })?;
    Ok(document.spec)
}

/// The kind and the name of the pool's workload.
fn pool_of(pool: spec::Pool) -> Result<(&'static str, WorkloadRef), SpecError> {
    let spec::Pool { stateful_set, deployment } = pool;
    let (kind, workload) = match (stateful_set, deployment) {
        (Some(workload), None) => ("StatefulSet", workload),
        (None, Some(workload)) => ("Deployment", workload),
        (None, None) | (Some(_), Some(_)) => {
            let reason = "write exactly one of `statefulSet: {name}` and `deployment: {name}`";
            return Err(SpecError { place: "spec.pool".into(), reason: reason.into() });
        }
    };
    Ok((kind, workload))
}

/// The name of the pool's workload, and the workload itself if it stands in the file.
fn workload_of<'a>(
    objects: &'a Objects,
    swarm: &Object,
    kind: &'static str,
    workload: WorkloadRef,
) -> Result<(String, Option<&'a Object>), ManifestError> {
    let wrong = |reason| ManifestError::Spec {
        swarm: swarm.name().to_owned(),
        source: SpecError { place: "spec.pool".into(), reason },
    };
    match (workload.name, workload.match_labels.filter(|labels| !labels.is_empty())) {
        (Some(name), None) if !name.is_empty() => {
            let found = objects.named(swarm, kind, &name)?;
            Ok((name, found))
        }
        (None, Some(labels)) => {
            let found = objects.labelled(swarm, kind, &labels)?;
            let [one] = found.as_slice() else {
                let (count, labels) = (found.len(), jobs::labels(&labels));
                return Err(wrong(format!(
                    "{count} {kind}s in this file have the labels {labels}; exactly one must"
                )));
            };
            Ok((one.name().to_owned(), Some(one)))
        }
        (Some(_), Some(_)) => {
            Err(wrong("write either `name` or `matchLabels`, not both".to_owned()))
        }
        (Some(_) | None, None) => Err(wrong(format!("the {kind} has no name; write one"))),
    }
}

/// How many workers a workload has, and the slot of the first.
fn size_of(kind: &str, workload: &Object) -> Result<(u32, u32), SpecError> {
    let number = |pointer: &str, default: i64| {
        let place = || {
            let field = pointer.trim_start_matches('/').replace('/', ".");
            format!("{kind} `{}`, {field}", workload.name().escape_default())
        };
        let value = workload.value.pointer(pointer).filter(|value| !value.is_null());
        bounded(value.map_or(Some(default), Value::as_i64).unwrap_or(-1), &place())
    };
    Ok((number("/spec/replicas", 1)?, number("/spec/ordinals/start", 0)?))
}

/// A number of workers.
fn bounded(count: i64, place: &str) -> Result<u32, SpecError> {
    let count = u32::try_from(count).ok().filter(|count| *count <= WORKERS_MAX);
    count.ok_or_else(|| SpecError {
        place: place.to_owned(),
        reason: format!("write a whole number from 0 to {WORKERS_MAX}"),
    })
}

/// How and when jobs move.
fn pace(rebalance: &spec::Rebalance) -> (Rules, Timing, Pacing) {
    let pacing = Pacing::read(rebalance);
    let &spec::Rebalance { mode, max_moves_in_flight, initial_wait, return_grace, .. } = rebalance;
    let common = RebalanceSpec { mode, initial_wait, return_grace, ..RebalanceSpec::default() };
    let moves_max = max_moves_in_flight.and_then(|most| usize::try_from(most).ok());
    (Rules { moves_max, ..convert::rules(&common) }, convert::timing(&common), pacing)
}

#[cfg(test)]
mod tests;
