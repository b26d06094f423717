//! The pool of a manifest: the names of its workers, and their number according to the same file.

use serde_json::Value;

use super::documents::{Object, Objects};
use super::{ManifestError, bounded, record};
use crate::error::SpecError;
use crate::spec::{PodsRef, PoolSpec, WorkloadRef, managed_name_fits};

/// The workers of a pool, as described in the file.
pub(super) struct WorkerPool {
    /// The first part of the workers' names; the slot follows.
    pub(super) name: String,
    /// The number of workers; `None` if the file does not contain it.
    pub(super) workers: Option<u32>,
    /// The lowest slot.
    pub(super) first_slot: u32,
}

impl WorkerPool {
    /// Reads the pool of `swarm`.
    pub(super) fn read(
        objects: &Objects<'_>,
        swarm: &Object<'_>,
        pool: PoolSpec,
    ) -> Result<Self, ManifestError> {
        let PoolSpec { stateful_set, deployment, pods, managed } = pool;
        if managed.is_some() {
            return Self::managed(swarm);
        }
        match (stateful_set, deployment, pods) {
            (Some(set), _, _) => Self::of_workload(objects, swarm, "StatefulSet", set),
            (_, Some(deployment), _) => Self::of_workload(objects, swarm, "Deployment", deployment),
            (_, _, pods) => Self::of_pods(objects, swarm, &pods.unwrap_or_default()),
        }
    }

    fn of_workload(
        objects: &Objects<'_>,
        swarm: &Object<'_>,
        kind: &'static str,
        workload: WorkloadRef,
    ) -> Result<Self, ManifestError> {
        let (name, workload) = workload_of(objects, swarm, kind, workload)?;
        let Some(workload) = workload else {
            return Ok(Self { name, workers: None, first_slot: 0 });
        };
        let (workers, first_slot) = size_of(kind, workload).map_err(wrong(swarm))?;
        Ok(Self { name, workers: Some(workers), first_slot })
    }

    /// A managed workload starts with one worker, as in Kubernetes.
    fn managed(swarm: &Object<'_>) -> Result<Self, ManifestError> {
        let fits = managed_name_fits(swarm.name());
        fits.map_err(|reason| wrong(swarm)(SpecError { place: "metadata.name".into(), reason }))?;
        Ok(Self { name: swarm.name().to_owned(), workers: Some(1), first_slot: 0 })
    }

    /// Counts the pods in the same file, if any.
    fn of_pods(
        objects: &Objects<'_>,
        swarm: &Object<'_>,
        pods: &PodsRef,
    ) -> Result<Self, ManifestError> {
        if pods.match_labels.is_empty() {
            let reason = "name at least one label of the pods".to_owned();
            let place = "spec.pool.pods.matchLabels".to_owned();
            return Err(wrong(swarm)(SpecError { place, reason }));
        }
        let found = objects.labelled(swarm, "Pod", &pods.match_labels)?.len();
        let workers = u32::try_from(found).ok().filter(|count| 0 < *count);
        Ok(Self { name: swarm.name().to_owned(), workers, first_slot: 0 })
    }
}

fn wrong(swarm: &Object<'_>) -> impl Fn(SpecError) -> ManifestError {
    let swarm = swarm.name().to_owned();
    move |source| ManifestError::Spec { swarm: swarm.clone(), at: None, source }
}

/// The name of the pool's workload, and the workload itself if the file has it.
fn workload_of<'a>(
    objects: &'a Objects<'_>,
    swarm: &Object<'_>,
    kind: &'static str,
    workload: WorkloadRef,
) -> Result<(String, Option<&'a Object<'a>>), ManifestError> {
    let wrong = |reason| wrong(swarm)(SpecError { place: "spec.pool".into(), reason });
    match (workload.name, workload.match_labels.filter(|labels| !labels.is_empty())) {
        (Some(name), None) if !name.is_empty() => {
            let found = objects.named(swarm, kind, &name)?;
            Ok((name, found))
        }
        (None, Some(labels)) => {
            let found = objects.labelled(swarm, kind, &labels)?;
            let [one] = found.as_slice() else {
                let (count, labels) = (found.len(), record::labels(&labels));
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

/// The number of workers of a workload, and its first slot.
fn size_of(kind: &str, workload: &Object<'_>) -> Result<(u32, u32), SpecError> {
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
