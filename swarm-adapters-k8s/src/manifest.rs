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
mod spec;
mod terms;

use std::collections::{BTreeMap, BTreeSet};

use swarm_core::handover::{LeaseTerms, Policy};
use swarm_core::{Desired, JobName, Rules, Timing};

pub use error::ManifestError;
pub(crate) use online::{SourceError, jobs_in_namespace};
pub use terms::{Handover, Pacing, Runner};

use crate::api::RebalanceSpec;
use crate::convert::{self, SpecError};
use crate::schema;
use crate::yaml::printable;
use documents::{Object, Objects};
pub(crate) use jobs::{JobList, check_params};
use pool::WorkerPool;

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
    /// says, or how many of its pods stand there.
    pub replicas: Option<u32>,
    /// The lowest slot: 0, unless the pool's StatefulSet in the same file counts from elsewhere.
    pub first_slot: u32,
    /// The pool's name, or the Swarm's where its pods go by labels; workers are called by it and
    /// their slot, as in `swarm-worker-0`.
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
        refresh,
    } = read_spec(swarm)?;
    let refresh = refresh.and_then(|refresh| refresh.mode).unwrap_or_default();
    pool::check(&pool, replicas, refresh).map_err(wrong)?;
    let WorkerPool { name: worker_name, workers, first_slot } =
        WorkerPool::read(&objects, swarm, pool)?;
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
    let lease = LeaseTerms { duration: handover.lease_duration, ..LeaseTerms::default() };
    let (release_timeout, fence_wait) = (handover.release_timeout, lease.fence_wait());
    let timing = Timing { release_timeout, fence_wait, ..timing };
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
        replicas: replicas.map_err(wrong)?.or(workers),
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
