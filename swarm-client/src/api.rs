//! The resource `Swarm`: the request of a user, and the status that the operator reports.
//!
//! [`swarm_spec::spec`] has the types of the spec and their rules. This module makes them a
//! resource, with a status and columns.

#![allow(
    unreachable_pub,
    clippy::duplicated_attributes,
    reason = "KubeSchema makes a hidden twin of every struct, and columns repeat their types"
)]

mod history;
mod ledger;
mod nulls;
mod part;
mod worker_view;

use std::collections::BTreeMap;
use std::ops::Deref;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swarm_spec::spec::{self, Kind, MANAGED_NAME_MAX, Meant, RunnerSpec, managed_name_rule};

pub use history::{HISTORY_BYTES_MAX, SwarmHistory, SwarmHistorySpec};
pub use ledger::{Claimant, Holdings, SwarmLedger, SwarmLedgerSpec, Writer};
pub use part::{PartHoldings, PartName, PartNameError, SwarmLedgerPart, SwarmLedgerPartSpec};
pub use swarm_spec::spec::{
    API_VERSION, JobSource, NAME_MAX, PolicySpec, ProtocolSpec, RefreshMode, VersionEndpoint,
    ViewFormat, WorkloadRef,
};
pub use worker_view::{GOES_BACK, GrantedJob, WorkerView, WorkerViewSpec};

/// Name of the operator as a writer, in `managedFields` and Events.
pub const FIELD_MANAGER: &str = "swarm-operator";

/// Desired state of a Swarm: the jobs, the workers that share them, and rules for moving jobs.
#[derive(CustomResource, JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "swarm.k8slab.info",
    version = "v1alpha1",
    kind = "Swarm",
    namespaced,
    shortname = "sw",
    doc = "Jobs and the pool of workers that shares them. Each job runs on exactly one worker.",
    validation = name_fits(),
    validation = managed_name_fits(),
    status = "SwarmStatus",
    derive = "PartialEq",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(
        json_path = ".status.conditions[?(@.type=='Ready')].status",
        name = "Ready",
        type_ = "string"
    ),
    printcolumn(json_path = ".status.progress", name = "Jobs", type_ = "string"),
    printcolumn(json_path = ".status.ready", name = "Workers", type_ = "string"),
    printcolumn(json_path = ".status.failing", name = "Failing", type_ = "integer"),
    printcolumn(json_path = ".status.moving", name = "Moving", type_ = "integer"),
    printcolumn(
        json_path = ".status.conditions[?(@.type=='Ready')].reason",
        name = "Reason",
        type_ = "string"
    ),
    printcolumn(json_path = ".status.asOf", name = "As Of", type_ = "date"),
    printcolumn(json_path = ".metadata.creationTimestamp", name = "Age", type_ = "date"),
    printcolumn(json_path = ".status.assigned", name = "Assigned", type_ = "integer", priority = 1),
    printcolumn(json_path = ".metadata.generation", name = "Edit", type_ = "integer", priority = 1),
    printcolumn(
        json_path = ".status.observedGeneration",
        name = "Seen",
        type_ = "integer",
        priority = 1
    ),
    printcolumn(
        json_path = ".status.revision",
        name = "Revision",
        type_ = "integer",
        priority = 1
    ),
    printcolumn(json_path = ".status.version", name = "Version", type_ = "integer", priority = 1),
    printcolumn(
        json_path = ".status.conditions[?(@.type=='Ready')].message",
        name = "Message",
        type_ = "string",
        priority = 1
    )
)]
pub struct SwarmSpec(pub spec::SwarmSpec);

impl Deref for SwarmSpec {
    type Target = spec::SwarmSpec;

    fn deref(&self) -> &spec::SwarmSpec {
        &self.0
    }
}

/// The rule for names. A name from before this rule may stay: otherwise the Swarm's finalizer could
/// not be removed.
fn name_fits() -> kube::core::Rule {
    kube::core::Rule::new(format!(
        "oldSelf.hasValue() || self.metadata.name.size() <= {NAME_MAX}"
    ))
    .optional_old_self(true)
    .message(format!(
        "the name of a Swarm has at most {NAME_MAX} characters, since it is a label of other \
         objects"
    ).as_str())
}

/// The rule for names of Swarms with a managed pool. Derived names are longer, and names of
/// Services have the strictest rule.
fn managed_name_fits() -> kube::core::Rule {
    let rule = format!(
        "!has(self.spec.pool.managed) || (self.metadata.name.size() <= {MANAGED_NAME_MAX} \
         && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$'))"
    );
    kube::core::Rule::new(rule).message(managed_name_rule().as_str())
}

/// A job without a worker.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnassignedJob {
    /// Name of the job.
    #[schemars(length(max = 253))]
    pub job: String,
    /// Reason, a word of `unassigned`.
    #[schemars(length(max = 63))]
    pub reason: String,
}

/// A worker that the pool should have, and that is not ready.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingWorker {
    /// Name of the worker that fills the slot, or filled it last; empty if none has.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub worker: String,
    /// Its slot.
    pub slot: u32,
    /// Time at which an operator first saw that it is not ready.
    pub since: Time,
}

/// Maximum number of workers that [`SwarmStatus::missing_workers`] names.
pub const MISSING_WORKERS_MAX: usize = 100;

/// Maximum number of jobs that [`SwarmStatus::unassigned_jobs`] names.
pub const UNASSIGNED_JOBS_MAX: usize = 100;

/// State of a Swarm, as the operator reports it. It has counts, and names at most a hundred jobs.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SwarmStatus {
    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Time of the last write of this status. An operator writes it again after ten minutes at the
    /// latest, so with an older time no operator works on the Swarm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Time>,
    /// Number of changes of the ledger, which records the holder of each job. Takeovers by another
    /// replica count in the ledger only.
    #[serde(default)]
    pub revision: i64,
    /// Number of publications of the view to the workers.
    #[serde(default)]
    pub version: i64,
    /// Digest of the list of jobs. Equal lists have equal digests, also from different sources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_digest: Option<String>,
    /// Number of jobs.
    #[serde(default)]
    pub jobs: i32,
    /// Number of jobs that have a worker.
    #[serde(default)]
    pub assigned: i32,
    /// Number of jobs without a worker, by reason: `no-workers`, `pool-incomplete`, `pin`,
    /// `capacity`, `paused`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unassigned: BTreeMap<String, i32>,
    /// Jobs without a worker with their reasons: the first hundred by name. `unassigned` counts all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub unassigned_jobs: Vec<UnassignedJob>,
    /// Ready and desired workers, such as `3/3`, for `kubectl get`.
    #[serde(default)]
    pub ready: String,
    /// Number of ready workers.
    #[serde(default)]
    pub workers_ready: i32,
    /// Number of workers that the pool should have.
    #[serde(default)]
    pub workers_desired: i32,
    /// Number of workers that do not have their newest jobs yet, if known.
    #[serde(default)]
    pub workers_stale: i32,
    /// Workers that are not ready: the first hundred by slot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub missing_workers: Vec<MissingWorker>,
    /// Parts of the workers that jobs with a share reserve; missing without such jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares: Option<SharesStatus>,
    /// Running jobs of all jobs to run, such as `118/120`, for `kubectl get`. For plain workers, which
    /// confirm nothing, it is `120 published`.
    #[serde(default)]
    pub progress: String,
    /// Number of suspended jobs, which run nowhere.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub suspended: i32,
    /// Number of jobs whose workers acknowledged the grant, are not silent, and do not report them as
    /// failing.
    #[serde(default)]
    pub running: i32,
    /// Number of jobs whose workers have not acknowledged the grant, or are silent. Plain workers
    /// never acknowledge.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub published: i32,
    /// Number of jobs that their workers were asked to release and have not released yet. They are
    /// stopping.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub moving: i32,
    /// Number of run-to-completion jobs that are done.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub done: i32,
    /// Number of jobs that get no worker for a while because they crashed several workers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub quarantined: i32,
    /// Number of jobs that ended by themselves and have not run for half a minute since.
    #[serde(default)]
    pub failing: i32,
    /// Number of workers that `autoscale` requests. Without `autoscale`: the number that is enough
    /// for all jobs by shares, pins and `worker.maxJobs`, for other autoscalers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_workers: Option<i32>,
    /// Number of pods of the workload, for the scale subresource.
    #[serde(default)]
    pub replicas: i32,
    /// Label selector of the pods, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Conditions. Always present: `Ready`, `PoolReady`, `AllJobsAssigned`, `Converged`, `Healthy`.
    /// Only while true: `Reconciling`, `Stalled`, `RollingOut`, `JobsRemoved`, `Degraded`. The
    /// message of `Degraded` has a line `REASON: SENTENCE` for each problem.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["type"]
    ))]
    pub conditions: Vec<Condition>,
}

/// Reserved parts of the workers, in percent of one worker of the largest size: three such workers
/// offer 300.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SharesStatus {
    /// Sum that the workers offer.
    pub capacity: i32,
    /// Reserved part of the sum.
    pub reserved: i32,
    /// Free part of the sum.
    pub free: i32,
    /// Largest share for which one worker has room; free parts may be spread over many workers.
    pub largest_free: i32,
    /// Jobs with a share by priority, the highest first. With more than 10 priorities the last
    /// entry sums up the rest.
    #[schemars(length(max = 10))]
    pub classes: Vec<ShareClassStatus>,
}

/// Jobs with a share and the same priority.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShareClassStatus {
    /// Priority of the jobs.
    pub priority: i32,
    /// Number of these jobs that have a worker.
    pub jobs: i32,
    /// Sum of the shares of these jobs.
    pub reserved: i32,
    /// Number of jobs that have no worker because they do not fit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waiting: i32,
    /// Sum of the shares of waiting jobs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waiting_percent: i32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(count: &i32) -> bool {
    *count == 0
}

impl Swarm {
    /// The protocol of the workers.
    #[must_use]
    pub fn protocol(&self) -> ProtocolSpec {
        self.spec.protocol()
    }

    /// The runner for session workers that are started with `--runner swarm`.
    #[must_use]
    pub fn runner(&self) -> Option<RunnerSpec> {
        self.spec.runner()
    }

    /// The kind of the pool, and its workload if it has one.
    #[must_use]
    pub fn pool(&self) -> (Kind, Option<Meant<'_>>) {
        self.spec.pool.workload(self.metadata.name.as_deref().unwrap_or_default())
    }

    /// The name of the view's ConfigMap.
    #[must_use]
    pub fn view_config_map(&self) -> String {
        let named = self.spec.view.as_ref().and_then(|view| view.config_map_name.clone());
        named.unwrap_or_else(|| {
            format!("{}-config", self.metadata.name.as_deref().unwrap_or_default())
        })
    }

    /// The key of the view in its ConfigMap.
    #[must_use]
    pub fn view_key(&self) -> &str {
        let key = self.spec.view.as_ref().and_then(|view| view.key.as_deref());
        key.unwrap_or("config.yml")
    }

    /// The format of the view.
    #[must_use]
    pub fn view_format(&self) -> ViewFormat {
        self.spec.view.as_ref().and_then(|view| view.format).unwrap_or_default()
    }

    /// Whether the first ledger starts from the view that exists.
    #[must_use]
    pub fn adopts(&self) -> bool {
        self.spec.view.as_ref().and_then(|view| view.adopt).unwrap_or_default()
    }
}

/// All custom resource definitions, in the order in which they are applied.
#[must_use]
pub fn crds() -> [CustomResourceDefinition; 5] {
    let all = [
        Swarm::crd(),
        SwarmLedger::crd(),
        SwarmLedgerPart::crd(),
        WorkerView::crd(),
        SwarmHistory::crd(),
    ];
    all.map(nulls::disallow)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The CRD and the types that read files have the same fields.
    #[test]
    fn the_crd_has_every_field_of_a_file() {
        let [swarm, ..] = crds();
        let schema = swarm.spec.versions.into_iter().next().unwrap().schema.unwrap();
        let root = schema.open_api_v3_schema.unwrap().properties.unwrap();
        let of_crd: Vec<_> = root["spec"].properties.iter().flatten().map(|it| it.0).collect();
        let ours = schemars::schema_for!(spec::SwarmSpec).to_value();
        let mut ours: Vec<_> = ours["properties"].as_object().unwrap().keys().collect();
        ours.sort();
        assert_eq!(of_crd, ours);
    }

    #[test]
    fn no_field_may_be_null() {
        for crd in crds() {
            let crd = serde_json::to_string(&crd).unwrap();
            assert!(!crd.contains("\"nullable\":"), "{crd}");
        }
    }
}
