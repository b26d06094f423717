//! The resource `Swarm`: what a user asks for and what the operator tells back.
//!
//! The types of the spec, with their rules, are those of [`swarm_spec::spec`]; here they become a
//! resource, with a status and columns.

#![allow(
    unreachable_pub,
    clippy::duplicated_attributes,
    reason = "KubeSchema makes a hidden twin of every struct, and columns repeat their types"
)]

mod ledger;
mod nulls;
mod part;
mod worker_view;

use std::collections::BTreeMap;
use std::ops::Deref;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swarm_spec::spec::{self, Kind, MANAGED_NAME_MAX, Meant, RunnerSpec, managed_name_rule};

pub use ledger::{Claimant, Holdings, SwarmLedger, SwarmLedgerSpec, Writer};
pub use part::{PartHoldings, PartName, PartNameError, SwarmLedgerPart, SwarmLedgerPartSpec};
pub use swarm_spec::spec::{
    API_VERSION, JobSource, NAME_MAX, PolicySpec, ProtocolSpec, RefreshMode, VersionEndpoint,
    ViewFormat, WorkloadRef,
};
pub use worker_view::{GOES_BACK, GrantedJob, WorkerView, WorkerViewSpec};

/// The name under which the operator writes, in `managedFields` and Events.
pub const FIELD_MANAGER: &str = "swarm-operator";

/// What the user asks for.
#[derive(CustomResource, JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "swarm.k8slab.info",
    version = "v1alpha1",
    kind = "Swarm",
    namespaced,
    shortname = "sw",
    doc = "Jobs, and the pool of workers that shares them: each job is run by exactly one worker.",
    validation = name_fits(),
    validation = managed_name_fits(),
    status = "SwarmStatus",
    derive = "PartialEq",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(json_path = ".status.jobs", name = "Jobs", type_ = "integer"),
    printcolumn(json_path = ".status.assigned", name = "Assigned", type_ = "integer"),
    printcolumn(json_path = ".status.ready", name = "Ready", type_ = "string"),
    printcolumn(
        json_path = ".status.conditions[?(@.type=='Ready')].reason",
        name = "Reason",
        type_ = "string"
    ),
    printcolumn(json_path = ".status.failing", name = "Failing", type_ = "integer"),
    printcolumn(json_path = ".metadata.generation", name = "Edit", type_ = "integer"),
    printcolumn(json_path = ".status.observedGeneration", name = "Seen", type_ = "integer"),
    printcolumn(json_path = ".metadata.creationTimestamp", name = "Age", type_ = "date"),
    printcolumn(
        json_path = ".status.conditions[?(@.type=='Ready')].message",
        name = "Message",
        type_ = "string"
    ),
    printcolumn(
        json_path = ".status.revision",
        name = "Revision",
        type_ = "integer",
        priority = 1
    ),
    printcolumn(json_path = ".status.version", name = "Version", type_ = "integer", priority = 1)
)]
pub struct SwarmSpec(pub spec::SwarmSpec);

impl Deref for SwarmSpec {
    type Target = spec::SwarmSpec;

    fn deref(&self) -> &spec::SwarmSpec {
        &self.0
    }
}

/// A name that was taken before this rule may stay, or its Swarm could never drop its finalizer.
fn name_fits() -> kube::core::Rule {
    kube::core::Rule::new(format!(
        "oldSelf.hasValue() || self.metadata.name.size() <= {NAME_MAX}"
    ))
    .optional_old_self(true)
    .message(format!(
        "the name of a Swarm has at most {NAME_MAX} characters: it is a label of what is made for it"
    ).as_str())
}

/// What is made for a managed pool has longer names, and those of Services are the strictest.
fn managed_name_fits() -> kube::core::Rule {
    let rule = format!(
        "!has(self.spec.pool.managed) || (self.metadata.name.size() <= {MANAGED_NAME_MAX} \
         && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$'))"
    );
    kube::core::Rule::new(rule).message(managed_name_rule().as_str())
}

/// What the operator tells about a Swarm. Counts only, never one entry per job.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SwarmStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The ledger's revision: counts every change of who holds what. A replica that only takes the Swarm
    /// over counts it up in the ledger alone.
    #[serde(default)]
    pub revision: i64,
    /// The view's version: counts what was published to the workers.
    #[serde(default)]
    pub version: i64,
    /// Tells lists of jobs apart: the same jobs, wherever they stand, have the same digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_digest: Option<String>,
    /// How many jobs there are.
    #[serde(default)]
    pub jobs: i32,
    /// How many of them have a worker.
    #[serde(default)]
    pub assigned: i32,
    /// How many have none, by reason: `no-workers`, `pool-incomplete`, `pin`, `capacity`, `paused`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unassigned: BTreeMap<String, i32>,
    /// How many workers are ready, and how many the pool should have, as in `3/3`: for `kubectl get`.
    #[serde(default)]
    pub ready: String,
    /// How many workers are ready.
    #[serde(default)]
    pub workers_ready: i32,
    /// How many workers the pool is meant to have.
    #[serde(default)]
    pub workers_desired: i32,
    /// How many workers do not have their newest jobs yet, as far as that is known.
    #[serde(default)]
    pub workers_stale: i32,
    /// What jobs with a share reserve of the workers; only while there are such jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares: Option<SharesStatus>,
    /// How many of the jobs are suspended, so that nobody runs them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub suspended: i32,
    /// How many jobs are on their way: their workers were asked to let go and have not answered yet.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub moving: i32,
    /// How many finite jobs are done.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub done: i32,
    /// How many jobs are kept away from workers for a while, since they crashed several.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub quarantined: i32,
    /// How many jobs end by themselves, by what their workers tell, and have not run for half a minute
    /// since.
    #[serde(default)]
    pub failing: i32,
    /// How many workers the pool is to have by `autoscale`. Without it, how many would be enough for all
    /// jobs by their shares, their pins and `worker.maxJobs`: for whoever scales the pool by other means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_workers: Option<i32>,
    /// How many pods the workload has; of the scale subresource.
    #[serde(default)]
    pub replicas: i32,
    /// Which pods these are, as a label selector; of the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// `Ready`, `PoolReady`, `AllJobsAssigned`, `Converged` and `Healthy` always; `Reconciling`,
    /// `Stalled`, `RollingOut`, `AutoscaleLimited`, `RefreshBlocked`, `LeaseTooLong`, `WorkersSuspect`,
    /// `RevocationHeld`, `ReleaseUnanswered`, `PoolMisconfigured` and `SessionsUnprotected` only while
    /// they are true.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["type"]
    ))]
    pub conditions: Vec<Condition>,
}

/// What jobs with a share reserve, in percent of one worker of the largest size: three such workers
/// offer 300.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SharesStatus {
    /// What the workers that take jobs offer.
    pub capacity: i32,
    /// What of that is reserved.
    pub reserved: i32,
    /// What of that is free.
    pub free: i32,
    /// The largest share that a worker has room for: what is free may be spread over many.
    pub largest_free: i32,
    /// The jobs with a share by priority, the most important ones first. Of more than 10 priorities the
    /// last entry has all that are lower, too.
    #[schemars(length(max = 10))]
    pub classes: Vec<ShareClassStatus>,
}

/// The jobs with a share of one priority.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShareClassStatus {
    /// Their priority.
    pub priority: i32,
    /// How many of them have a worker.
    pub jobs: i32,
    /// The sum of their shares.
    pub reserved: i32,
    /// How many have none, since they do not fit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waiting: i32,
    /// The sum of their shares.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waiting_percent: i32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(count: &i32) -> bool {
    *count == 0
}

impl Swarm {
    /// How its workers are spoken to.
    #[must_use]
    pub fn protocol(&self) -> ProtocolSpec {
        self.spec.protocol()
    }

    /// What workers of sessions are told to do with their jobs, if they ask for it.
    #[must_use]
    pub fn runner(&self) -> Option<RunnerSpec> {
        self.spec.runner()
    }

    /// What kind of pool it has, and which workload, where there is one.
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

    /// How the view is written.
    #[must_use]
    pub fn view_format(&self) -> ViewFormat {
        self.spec.view.as_ref().and_then(|view| view.format).unwrap_or_default()
    }

    /// Whether the first ledger takes over what the running workers run by the view that is there.
    #[must_use]
    pub fn adopts(&self) -> bool {
        self.spec.view.as_ref().and_then(|view| view.adopt).unwrap_or_default()
    }
}

/// All custom resource definitions, in the order in which they are applied.
#[must_use]
pub fn crds() -> [CustomResourceDefinition; 4] {
    let all = [Swarm::crd(), SwarmLedger::crd(), SwarmLedgerPart::crd(), WorkerView::crd()];
    all.map(nulls::disallow)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No field is lost between the types that files are read with and the CRD.
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
