//! The spec of a Swarm: what a user asks for, in a file or on a cluster.
//!
//! The schema and the CEL rules of the CRD come from these types; the doc comments are what
//! `kubectl explain` shows.

mod autoscale;
mod handover;
mod managed;
mod pool;
mod refresh;
mod runner;
mod source;
mod worker;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use swarm_core::session::JobOutput;

pub use autoscale::AutoscaleSpec;
pub use handover::{HandoverSpec, LeaseTermsSpec, PolicySpec, ProtocolSpec, SESSION_CLOSE};
pub use managed::{
    DisruptionMode, DisruptionSpec, EnvVarSpec, FilesSpec, IntOrString, MANAGED_NAME_MAX,
    ManagedKind, ManagedSpec, ResourcesSpec, ServiceSpec, ServiceType, managed_name_fits,
    managed_name_rule,
};
pub use pool::{Kind, Meant, PodsRef, PoolSpec, WORKLOAD_NAME_MAX, WorkloadRef};
pub use refresh::{RefreshMode, RefreshSpec, VersionEndpoint};
pub use runner::{
    LogRunnerSpec, ParamFromSpec, PingRunnerSpec, ReadySpec, RestartSpec, RunnerSpec,
    SecretKeyRefSpec,
};
pub(crate) use runner::{WORD_MAX, WORDS_MAX};
pub use source::{ConfigMapKey, JobSource, SourceFormat, SourceSelector};
pub use worker::{CapacitySpec, WorkerSpec};

use crate::duration::{self, Duration};
use crate::rule::Rule;

/// Group and version of the resources.
pub const API_VERSION: &str = "swarm.k8slab.info/v1alpha1";

/// The most workers that a manifest may ask for.
pub const WORKERS_MAX: u32 = 100_000;
/// The most characters of a Swarm's name: views of sessions have it as a label.
pub const NAME_MAX: usize = 63;

/// The most jobs in a Swarm itself: more would make each of its writes expensive for the API server.
const INLINE_JOBS_MAX: usize = 2_000;

/// What the user asks for.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[schemars(extend("x-kubernetes-validations" = [
    exclusive_needs_sessions(),
    run_once_needs_sessions(),
    adoption_is_of_views(),
    lists_are_for_views(),
    lists_say_nothing_of_workers(),
    one_job_is_no_different_for_all(),
    all_jobs_fit_everywhere(),
    pool::nobody_scales_pods(),
    autoscale::one_decides(),
    autoscale::nobody_scales_pods(),
    autoscale::more_take_nothing(),
    pool::pods_keep_their_names(),
    managed::image_needs_protocol(),
]))]
#[serde(rename_all = "camelCase")]
pub struct SwarmSpec {
    /// The jobs, each with a name of its own. At most 2000; `jobSources` takes more.
    #[serde(default, deserialize_with = "or_default")]
    #[schemars(
        length(max = 100_000),
        extend(
            "x-kubernetes-list-type" = "map",
            "x-kubernetes-list-map-keys" = ["name"],
            "x-kubernetes-validations" = [jobs_fit_into_an_object()]
        )
    )]
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

    /// How the number of workers follows the jobs: the Swarm scales the workload by itself, in place of
    /// `replicas`. Workers that are too many are emptied before they go. Not with `pool.pods`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscale: Option<AutoscaleSpec>,

    /// Whether nobody is to run any job for now: all are released, and granted again once this is
    /// false. The workers stay. To keep everything where it is, use `rebalance.paused` instead, which
    /// comes before this. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,

    /// The workers that share the jobs. Which ones cannot be changed later.
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

    /// By how many workers each job is run. It can be changed at any time: a job that one worker ran is
    /// released by it, and one that all ran by all of them, before it is granted anew. With `All`
    /// nothing is shared out: priorities have no effect, and jobs can have no `share`, `pin` or
    /// `runOnce`, nor workers `maxJobs` or a `capacity`. Default: `One`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication: Option<ReplicationSpec>,
}

/// By how many workers each job is run. It can be changed at any time.
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

fn exclusive_needs_sessions() -> Rule {
    needs_sessions(
        "!has(self.handover) || !has(self.handover.policy) || self.handover.policy != 'Exclusive'",
        "handover.policy: Exclusive needs workers that acknowledge what they are told: \
         write worker.protocol: Session, or leave the policy out",
    )
}

fn run_once_needs_sessions() -> Rule {
    needs_sessions(
        "!has(self.jobs) || !self.jobs.exists(job, has(job.runOnce) && job.runOnce)",
        "a job with runOnce needs workers that tell when it is done: write worker.protocol: Session, \
         or leave runOnce out",
    )
}

/// Whether workers take part in sessions.
const IN_SESSIONS: &str = "has(self.worker) && has(self.worker.protocol) \
                           ? self.worker.protocol == 'Session' \
                           : has(self.pool.managed) && !has(self.pool.managed.image)";

fn adoption_is_of_views() -> Rule {
    Rule::new(
        format!("!has(self.view) || !has(self.view.adopt) || !self.view.adopt || !({IN_SESSIONS})"),
        "view.adopt is for workers that read a view: write worker.protocol: Plain, or leave adopt out",
    )
}

fn lists_are_for_views() -> Rule {
    let is_list = "has(self.view) && has(self.view.format) && self.view.format == 'hostports'";
    let adopts = "has(self.view.adopt) && self.view.adopt";
    Rule::new(
        format!("!({is_list}) || (!({adopts}) && !({IN_SESSIONS}))"),
        "view.format: hostports is a list for workers that read a view, and does not say who runs \
         what: write worker.protocol: Plain, and leave view.adopt out",
    )
}

fn lists_say_nothing_of_workers() -> Rule {
    Rule::new(
        "!has(self.view) || !has(self.view.format) || self.view.format != 'hostports' || \
         (has(self.replication) && self.replication == 'All')",
        "view.format: hostports is a list that is the same for all workers: write replication: All \
         as well, or leave view.format out",
    )
}

/// A pin, a share and the end of a job are about one worker.
fn one_job_is_no_different_for_all() -> Rule {
    Rule::new(
        "!has(self.replication) || self.replication != 'All' || !has(self.jobs) || \
         !self.jobs.exists(job, has(job.pin) || has(job.share) || (has(job.runOnce) && job.runOnce))",
        "with replication: All every worker runs every job, so no job can have a pin, a share or \
         runOnce: leave them out, or write replication: One",
    )
}

/// The bound of inline jobs. The schema's own bound is higher, since an API server words that one itself.
fn jobs_fit_into_an_object() -> Rule {
    Rule::new(
        format!("self.size() <= {INLINE_JOBS_MAX}"),
        format!(
            "spec.jobs has at most {INLINE_JOBS_MAX} jobs; write more of them into ConfigMaps, and name \
             these in spec.jobSources"
        ),
    )
}

fn all_jobs_fit_everywhere() -> Rule {
    Rule::new(
        "!has(self.replication) || self.replication != 'All' || !has(self.worker) || \
         (!has(self.worker.maxJobs) && !has(self.worker.capacity))",
        "with replication: All every worker runs every job, whatever worker.maxJobs and \
         worker.capacity say: leave them out, or write replication: One",
    )
}

/// What only workers of sessions can do.
fn needs_sessions(unless: &str, message: &str) -> Rule {
    Rule::new(format!("{unless} || ({IN_SESSIONS})"), message)
}

/// One job.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// Whether nobody is to run the job for now: it is released, and granted again once this is false.
    /// A job that is done stays done. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// What the worker is told beside the job's name; workers that read a file are not. A job that runs
    /// begins again when they change. Names are of `a-z`, `A-Z`, `0-9` and `_`. Whoever may read the
    /// Swarm, its ledger or its views can read them: secrets belong to `worker.runner.paramsFrom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 32))]
    pub params: Option<BTreeMap<String, String>>,
}

/// Where workers read their jobs.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ViewSpec {
    /// The ConfigMap, in the namespace of the Swarm. Default: the Swarm's name and `-config`. It may
    /// exist already; only the key below is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[a-z0-9][-.a-z0-9]*$"))]
    pub config_map_name: Option<String>,
    /// Whether the first assignment takes over what the running workers run by the view that is there
    /// already, of a former operator or of this one: then only those jobs move that balance requires
    /// elsewhere. It counts until the pool has a ledger, and is for `worker.protocol: Plain`.
    /// Default: false, and all jobs are assigned anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopt: Option<bool>,
    /// How it is written. `workloads`, the default: the jobs of each worker, by the names of the workers.
    /// `hostports`: lines `host,port`, one for each job `host:port`, for programs that run all of
    /// them; it needs `replication: All`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<ViewFormat>,
    /// The key in it. Default: `config.yml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[-._a-zA-Z0-9]+$"))]
    pub key: Option<String>,
}

/// How a view is written. `workloads`, the default: the jobs of each worker. `hostports`: lines
/// `host,port`.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ViewFormat {
    /// The jobs of each worker.
    #[default]
    Workloads,
    /// Lines `host,port`.
    Hostports,
}

/// When jobs move. Durations are texts such as `30s` or `1m30s`.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// By how many percent of a worker the parts of two workers that jobs with a `share` reserve may
    /// differ before some of those jobs move to make them more alike, within `maxMovesInFlight`. Has
    /// no effect with `mode: Canonical`. Default: any number; such jobs move only to make room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub share_tolerance: Option<i32>,
    /// A pool that never had jobs gets them when all its workers are ready, or after this time;
    /// then every pod that exists counts, ready or not. Default: `60s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [duration::bounded()]))]
    pub initial_wait: Option<Duration>,
    /// How long the jobs of a worker that is gone wait for its slot to be filled again before they
    /// move. Default: `30s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [duration::bounded()]))]
    pub return_grace: Option<Duration>,
    /// How long a plain worker that is not ready keeps jobs that a ready one can take; `0s` for ever.
    /// Then they move, at most `maxMovesInFlight` at a time, and both may run a job for a moment.
    /// Workers in sessions are judged by their leases instead. Default: `5m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [duration::bounded()]))]
    pub not_ready_grace: Option<Duration>,
    /// The first change is acted on at once; those that follow within this time are gathered and
    /// acted on together. Default: `1s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [duration::bounded()]))]
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

impl SwarmSpec {
    /// How its workers are spoken to. Those that the operator makes in its own image take part in
    /// sessions unless the spec says otherwise.
    #[must_use]
    pub fn protocol(&self) -> ProtocolSpec {
        let written = self.worker.as_ref().and_then(|worker| worker.protocol);
        let is_ours = self.pool.managed.as_ref().is_some_and(|managed| managed.image.is_none());
        written.unwrap_or(if is_ours { ProtocolSpec::Session } else { ProtocolSpec::default() })
    }

    /// Whether what jobs print is shown outside of the log of their worker.
    #[must_use]
    pub fn output(&self) -> JobOutput {
        JobOutput::shown_if(self.worker.as_ref().and_then(|worker| worker.show_output))
    }

    /// What workers of sessions are told to do with their jobs, if they ask for it. Those that the
    /// operator makes are told in any case, since nobody else tells them anything.
    #[must_use]
    pub fn runner(&self) -> Option<RunnerSpec> {
        let written = self.worker.as_ref().and_then(|worker| worker.runner.clone());
        written.or_else(|| self.pool.managed.as_ref().map(|_| RunnerSpec::log()))
    }
}
