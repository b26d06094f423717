//! The resource `Swarm`: what a user asks for and what the operator tells back.
//!
//! The schema, the CEL rules and the printer columns of the CRD come from these types; the doc
//! comments are what `kubectl explain` shows.

#![allow(
    unreachable_pub,
    clippy::duplicated_attributes,
    reason = "KubeSchema makes a hidden twin of every struct, and columns repeat their types"
)]

mod handover;
mod ledger;
mod part;
mod pool;
mod refresh;
mod source;
mod worker;
mod worker_view;

pub use handover::{HandoverSpec, LeaseTermsSpec, PolicySpec, ProtocolSpec};
pub use ledger::{Claimant, Holdings, SwarmLedger, SwarmLedgerSpec};
pub use part::{PartName, PartNameError, SwarmLedgerPart, SwarmLedgerPartSpec};
pub use pool::{PodsRef, PoolSpec, WORKLOAD_NAME_MAX, WorkloadRef};
pub use refresh::{RefreshMode, RefreshSpec, VersionEndpoint};
pub use source::{ConfigMapKey, JobSource, SourceFormat, SourceSelector};
pub use worker::{LogRunnerSpec, PingRunnerSpec, RunnerSpec, WorkerSpec};
pub(crate) use worker::{WORD_MAX, WORDS_MAX};
pub use worker_view::{GrantedJob, WorkerView, WorkerViewSpec};

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::core::Duration;
use kube::{CustomResource, CustomResourceExt, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::duration;

/// Group and version of the resources.
pub const API_VERSION: &str = "swarm.k8slab.info/v1alpha1";
/// The name under which the operator writes, in `managedFields` and Events.
pub const FIELD_MANAGER: &str = "swarm-operator";

/// The most characters of a Swarm's name: views of sessions have it as a label.
pub const NAME_MAX: usize = 63;

/// What the user asks for.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "swarm.k8slab.info",
    version = "v1alpha1",
    kind = "Swarm",
    namespaced,
    shortname = "sw",
    doc = "Jobs, and the pool of workers that shares them: each job is run by exactly one worker.",
    validation = name_fits(),
    status = "SwarmStatus",
    derive = "PartialEq",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(json_path = ".status.jobs", name = "Jobs", type_ = "integer"),
    printcolumn(json_path = ".status.assigned", name = "Assigned", type_ = "integer"),
    printcolumn(json_path = ".status.workersDesired", name = "Workers", type_ = "integer"),
    printcolumn(json_path = ".status.workersReady", name = "Up", type_ = "integer"),
    printcolumn(
        json_path = ".status.conditions[?(@.type=='Ready')].status",
        name = "Ready",
        type_ = "string"
    ),
    printcolumn(
        json_path = ".status.conditions[?(@.type=='Ready')].reason",
        name = "Reason",
        type_ = "string"
    ),
    printcolumn(
        json_path = ".status.conditions[?(@.type=='Ready')].message",
        name = "Message",
        type_ = "string",
        priority = 1
    ),
    printcolumn(
        json_path = ".status.revision",
        name = "Revision",
        type_ = "integer",
        priority = 1
    ),
    printcolumn(json_path = ".status.version", name = "Version", type_ = "integer", priority = 1),
    printcolumn(json_path = ".metadata.creationTimestamp", name = "Age", type_ = "date")
)]
#[x_kube(validation = needs_sessions(
    "!has(self.handover) || !has(self.handover.policy) || self.handover.policy != 'Exclusive'",
    "handover.policy: Exclusive needs workers that acknowledge what they are told: \
     write worker.protocol: Session, or leave the policy out"
))]
#[x_kube(validation = needs_sessions(
    "!has(self.jobs) || !self.jobs.exists(job, has(job.runOnce) && job.runOnce)",
    "a job with runOnce needs workers that tell when it is done: write worker.protocol: Session, \
     or leave runOnce out"
))]
#[x_kube(validation = pool::nobody_scales_pods(), validation = pool::pods_keep_their_names())]
#[serde(rename_all = "camelCase")]
pub struct SwarmSpec {
    /// The jobs, each with a name of its own. At most 2000; `jobSources` takes more.
    #[serde(default, deserialize_with = "or_default")]
    #[schemars(length(max = 2000))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub jobs: Vec<Job>,

    /// ConfigMaps that hold more jobs, in the namespace of the Swarm. A name that stands in two
    /// places is a mistake, and a source that is missing or wrong is one too: then the condition
    /// `Stalled` says what to write instead, and the last good list of jobs stays.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub job_sources: Vec<JobSource>,

    /// How many workers. Without it the workload decides and the Swarm follows. With it the Swarm
    /// scales the workload: `kubectl scale swarm` and a horizontal autoscaler set it, and workers that
    /// are too many are emptied before they go. Not with `pool.pods`, which nothing scales.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub replicas: Option<i32>,

    /// The workers that share the jobs. Cannot be changed later.
    #[x_kube(validation = kube::core::Rule::new("self == oldSelf").message(
        "spec.pool cannot be changed: create another Swarm for the other pool and delete this one"
    ))]
    pub pool: PoolSpec,

    /// What the workers are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerSpec>,

    /// Where workers read their jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<ViewSpec>,

    /// How jobs are handed over, and how long workers wait for each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<HandoverSpec>,

    /// How workers are brought to read what is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh: Option<RefreshSpec>,

    /// When jobs move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebalance: Option<RebalanceSpec>,

    /// By how many workers each job is run. Default: `One`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication: Option<ReplicationSpec>,
}

/// Fields of the spec that only `swarm-operator local` knows so far: the CRD has none of them, and a
/// field leaves this list in the change that makes it work in a cluster.
pub const ONLY_LOCAL: [&str; 1] = ["replication"];

/// By how many workers each job is run.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicationSpec {
    /// By exactly one.
    #[default]
    One,
    /// By every one.
    All,
}

/// What a list without entries is read as: `jobs:` with nothing behind it is empty, as for the API
/// server.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
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

/// What only workers of sessions can do.
fn needs_sessions(unless: &str, message: &'static str) -> kube::core::Rule {
    let session =
        "has(self.worker) && has(self.worker.protocol) && self.worker.protocol == 'Session'";
    kube::core::Rule::new(format!("{unless} || ({session})")).message(message)
}

/// One job.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// The job's name: printable ASCII without spaces, as in `stream:cctv0:updated`.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[!-~]+$"))]
    pub name: String,
    /// The percentage of one worker that the job reserves; 100 takes a worker for itself. A job
    /// without a share takes what is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub share: Option<i32>,
    /// The only slot that may run it, as the 2 of pod `swarm-worker-2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub pin: Option<i32>,
    /// Where workers cannot take all jobs, those with lower numbers give way first. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1_000_000_000, max = 1_000_000_000))]
    pub priority: Option<i32>,
    /// Whether the job is done, and never run again, once it has ended well. It needs
    /// `worker.protocol: Session`. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_once: Option<bool>,
    /// What the worker is told beside the job's name; workers that read a file are not. Names are of
    /// `a-z`, `A-Z`, `0-9` and `_`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 32))]
    pub params: Option<BTreeMap<String, String>>,
}

/// Where workers read their jobs.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ViewSpec {
    /// The ConfigMap, in the namespace of the Swarm. Default: the Swarm's name and `-config`. It may
    /// exist already; only the key below is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub config_map_name: Option<String>,
    /// The key in it. Default: `config.yml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[-._a-zA-Z0-9]+$"))]
    pub key: Option<String>,
}

/// When jobs move. Durations are texts such as `30s` or `1m30s`.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RebalanceSpec {
    /// Nothing moves while this is true, whatever happens: no job, no worker. For repairs. The
    /// workers go on with what they have. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// What the past counts for. Default: `Sticky`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ModeSpec>,
    /// The most jobs that move at a time for the sake of balance. Plain workers are told of a batch
    /// of at most so many; the next follows 2 seconds later. Moves that cannot wait, such as those
    /// of a worker that is gone, are made all and at once. Default: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub max_moves_in_flight: Option<i32>,
    /// A pool that never had jobs gets them when all its workers are ready, or after this time;
    /// then every pod that exists counts, ready or not. Default: `60s`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "duration::read")]
    #[x_kube(validation = bounded_duration())]
    pub initial_wait: Option<Duration>,
    /// How long the jobs of a worker that is gone wait for its slot to be filled again before they
    /// move. Default: `30s`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "duration::read")]
    #[x_kube(validation = bounded_duration())]
    pub return_grace: Option<Duration>,
    /// How long a plain worker that is not ready keeps jobs that a ready one can take; `0s` for ever.
    /// Then they move, at most `maxMovesInFlight` at a time, and both may run a job for a moment.
    /// Workers in sessions are judged by their leases instead. Default: `5m`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "duration::read")]
    #[x_kube(validation = bounded_duration())]
    pub not_ready_grace: Option<Duration>,
    /// The first change is acted on at once; those that follow within this time are gathered and
    /// acted on together. Default: `1s`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "duration::read")]
    #[x_kube(validation = bounded_duration())]
    pub batch_window: Option<Duration>,
}

/// What the past counts for. `Sticky`, the default: every job stays where it is unless balance needs
/// it elsewhere. `Canonical`: nothing, so that the same jobs and workers always give the same
/// assignment, at the price of more moves.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModeSpec {
    /// The fewest moves.
    #[default]
    Sticky,
    /// No memory.
    Canonical,
}

/// Durations are neither negative nor longer than a day.
pub(crate) fn bounded_duration() -> kube::core::Rule {
    kube::core::Rule::new("duration(self) >= duration('0s') && duration(self) <= duration('24h')")
        .message("write a duration from 0s to 24h, for example 30s or 1m30s")
}

/// What the operator tells about a Swarm. Counts only, never one entry per job.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SwarmStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The ledger's revision: counts every change of who holds what.
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
    /// How many workers are ready.
    #[serde(default)]
    pub workers_ready: i32,
    /// How many workers the pool is meant to have.
    #[serde(default)]
    pub workers_desired: i32,
    /// How many workers do not have their newest jobs yet, as far as that is known.
    #[serde(default)]
    pub workers_stale: i32,
    /// How many jobs are on their way: their workers were asked to let go and have not answered yet.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub moving: i32,
    /// How many finite jobs are done.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub done: i32,
    /// How many jobs are kept away from workers for a while, since they crashed several.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub quarantined: i32,
    /// While jobs have no worker: how many workers would be enough for all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_workers: Option<i32>,
    /// How many pods the workload has; of the scale subresource.
    #[serde(default)]
    pub replicas: i32,
    /// Which pods these are, as a label selector; of the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// `Ready`, `PoolReady`, `AllJobsAssigned` and `Converged` always; `Reconciling`, `Stalled`,
    /// `RefreshBlocked`, `LeaseTooLong`, `WorkersSuspect`, `RevocationHeld` and `ReleaseUnanswered` only while they are
    /// true.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["type"]
    ))]
    pub conditions: Vec<Condition>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(count: &i32) -> bool {
    *count == 0
}

impl SwarmSpec {
    /// How its workers are spoken to.
    #[must_use]
    pub fn protocol(&self) -> ProtocolSpec {
        self.worker.as_ref().and_then(|worker| worker.protocol).unwrap_or_default()
    }
}

impl Swarm {
    /// How its workers are spoken to.
    #[must_use]
    pub fn protocol(&self) -> ProtocolSpec {
        self.spec.protocol()
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
}

/// All custom resource definitions, in the order in which they are applied.
#[must_use]
pub fn crds() -> [CustomResourceDefinition; 4] {
    let mut swarm = Swarm::crd();
    let schemas = swarm.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut());
    let roots =
        schemas.filter_map(|schema| schema.open_api_v3_schema.as_mut()?.properties.as_mut());
    for spec in roots.filter_map(|fields| fields.get_mut("spec")?.properties.as_mut()) {
        spec.retain(|field, _| !ONLY_LOCAL.contains(&field.as_str()));
    }
    [swarm, SwarmLedger::crd(), SwarmLedgerPart::crd(), WorkerView::crd()]
}
