//! The spec of a Swarm: the request of a user, in a file or on a cluster.
//!
//! The schema and the CEL rules of the CRD come from these types. `kubectl explain` shows the doc
//! comments.

mod alive;
mod autoscale;
mod handover;
mod logs;
mod managed;
mod pool;
mod refresh;
mod runner;
mod source;
mod stop;
mod worker;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use swarm_core::RunnerName;
use swarm_core::session::{JobOutput, Pace};

pub use alive::{AliveFileSpec, AliveSpec};
pub use autoscale::AutoscaleSpec;
pub(crate) use handover::RENEW_MIN;
pub use handover::{HandoverSpec, PolicySpec, ProtocolSpec, SESSION_CLOSE};
pub use logs::{LogLimits, LogsSpec};
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
pub use runner::{RUNNER_PLACE, runner_place};
pub(crate) use runner::{WORD_MAX, WORDS_MAX};
pub use source::{ConfigMapKey, JobSource, SourceFormat, SourceSelector};
pub use stop::{StopSignal, StopSpec, StopTo};
pub use worker::{CapacitySpec, WorkerSpec};

use crate::duration::{self, Duration};
use crate::rule::Rule;

/// Group and version of the resources.
pub const API_VERSION: &str = "swarm.k8slab.info/v1alpha1";

/// The most workers that a manifest may ask for.
pub const WORKERS_MAX: u32 = 100_000;
/// The most characters of a Swarm's name: views of sessions have it as a label.
pub const NAME_MAX: usize = 63;
/// The longest time between two writes of the status of a Swarm, while an operator works on it. A
/// worker renews its Lease 150 times as often.
pub const STATUS_EVERY: std::time::Duration = std::time::Duration::from_secs(10 * 60);

/// The most jobs in a Swarm itself: more would make each of its writes expensive for the API server.
const INLINE_JOBS_MAX: usize = 2_000;

/// Desired state of a Swarm: the jobs, the workers that share them, and rules for moving jobs.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[schemars(extend("x-kubernetes-validations" = [
    exclusive_needs_sessions(),
    run_once_needs_sessions(),
    runners_need_sessions(),
    runners_exist(),
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
    stop::fits_into_the_handover(),
]))]
#[serde(rename_all = "camelCase")]
pub struct SwarmSpec {
    /// Jobs to run, each with a unique name. At most 2000 here; put more into `jobSources`.
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

    /// ConfigMaps with more jobs, in the namespace of the Swarm. Each job name must be unique
    /// across `jobs` and all sources. If a source is missing or invalid, the condition `Stalled`
    /// explains it, and the last valid list stays in use.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub job_sources: Vec<JobSource>,

    /// Number of workers, to which the operator scales the workload. `kubectl scale swarm` and
    /// autoscalers set it. Surplus workers are emptied before they are removed. Not allowed with
    /// `pool.pods`. Default: the replicas of the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub replicas: Option<i32>,

    /// Scales the workload by the number of jobs or their shares, instead of `replicas`. Surplus
    /// workers are emptied before they are removed. Not allowed with `pool.pods`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscale: Option<AutoscaleSpec>,

    /// Releases all jobs while true, and grants them again afterwards. The workers stay. To keep
    /// jobs running where they are, use `rebalance.paused`, which has precedence. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,

    /// Workers that share the jobs. A Swarm cannot change to another pool. Default:
    /// `{managed: {}}`.
    #[serde(default = "PoolSpec::ours", deserialize_with = "pool::or_ours")]
    pub pool: PoolSpec,

    /// Protocol, runner and limits of the workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerSpec>,

    /// ConfigMap from which plain workers read their jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<ViewSpec>,

    /// Handover of jobs between workers: the proof that a handover needs, and its timeouts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<HandoverSpec>,

    /// Delivery of a changed view to plain workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh: Option<RefreshSpec>,

    /// Rules for moving jobs between workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebalance: Option<RebalanceSpec>,

    /// Number of workers that run each job. Default: `One`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication: Option<ReplicationSpec>,
}

/// Number of workers that run each job: `One`, or `All` workers. It can be changed at any time.
/// `All` ignores priorities, and refuses `share`, `pin`, `runOnce`, `maxJobs` and `capacity`.
/// Default: `One`.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicationSpec {
    /// Exactly one worker.
    #[default]
    One,
    /// Every worker.
    All,
}

/// Reads a list without a value as empty, like the API server reads `jobs:` with nothing behind it.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

fn exclusive_needs_sessions() -> Rule {
    needs_sessions(
        "!has(self.handover) || !has(self.handover.policy) || self.handover.policy != 'Exclusive'",
        "handover.policy: Exclusive needs workers that acknowledge their views: write \
         worker.protocol: Session, or leave the policy out",
    )
}

fn run_once_needs_sessions() -> Rule {
    needs_sessions(
        "!has(self.jobs) || !self.jobs.exists(job, has(job.runOnce) && job.runOnce)",
        "a job with runOnce needs workers that report when it is done: write worker.protocol: Session, \
         or leave runOnce out",
    )
}

fn runners_need_sessions() -> Rule {
    needs_sessions(
        "!has(self.jobs) || !self.jobs.exists(job, has(job.runner))",
        "a job with runner needs workers that learn its name: write worker.protocol: Session, or \
         leave runner out",
    )
}

/// The rule that inline jobs name runners that exist.
fn runners_exist() -> Rule {
    let exists =
        "has(self.worker) && has(self.worker.runners) && job.runner in self.worker.runners";
    Rule::new(
        format!("!has(self.jobs) || self.jobs.all(job, !has(job.runner) || ({exists}))"),
        "the runner of a job is a name in worker.runners: correct it, or add the runner there",
    )
}

/// The condition that workers take part in sessions, as [`ProtocolSpec::following`] says. A default of the
/// schema cannot depend on other fields.
const IN_SESSIONS: &str = "has(self.worker) && has(self.worker.protocol) \
                           ? self.worker.protocol == 'Session' \
                           : (has(self.pool.managed) && !has(self.pool.managed.image)) \
                           || (!has(self.view) && has(self.worker) && (has(self.worker.runner) \
                           || (has(self.worker.runners) && self.worker.runners.size() > 0)))";

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
        "view.format: hostports lists no workers, and sessions do not read it: write \
         worker.protocol: Plain, and leave view.adopt out",
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

/// Refuses jobs that need a single worker under `replication: All`.
fn one_job_is_no_different_for_all() -> Rule {
    Rule::new(
        "!has(self.replication) || self.replication != 'All' || !has(self.jobs) || \
         !self.jobs.exists(job, has(job.pin) || has(job.share) || (has(job.runOnce) && job.runOnce))",
        "replication: All does not allow pin, share or runOnce in a job, since every worker runs \
         every job: leave them out, or write replication: One",
    )
}

/// Checks the number of inline jobs, as the API server does.
pub(crate) fn inline_jobs_fit(count: usize) -> Result<(), String> {
    if count <= INLINE_JOBS_MAX {
        return Ok(());
    }
    Err(format!(
        "it has {count} jobs, and at most {INLINE_JOBS_MAX} fit; write more jobs into ConfigMaps, \
         and name the ConfigMaps in spec.jobSources"
    ))
}

/// Bounds the inline jobs. The bound of the schema is higher, since the API server writes its own
/// message about that bound.
fn jobs_fit_into_an_object() -> Rule {
    Rule::new(
        format!("self.size() <= {INLINE_JOBS_MAX}"),
        format!(
            "spec.jobs has at most {INLINE_JOBS_MAX} jobs; write more jobs into ConfigMaps, and \
             name the ConfigMaps in spec.jobSources"
        ),
    )
}

fn all_jobs_fit_everywhere() -> Rule {
    Rule::new(
        "!has(self.replication) || self.replication != 'All' || !has(self.worker) || \
         (!has(self.worker.maxJobs) && !has(self.worker.capacity))",
        "replication: All does not allow worker.maxJobs or worker.capacity, since every worker \
         runs every job: leave them out, or write replication: One",
    )
}

/// A rule about a feature that only session workers have.
fn needs_sessions(unless: &str, message: &str) -> Rule {
    Rule::new(format!("{unless} || ({IN_SESSIONS})"), message)
}

/// One job.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// Name of the job: printable ASCII without spaces, such as `stream:cctv0:updated`.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[!-~]+$"))]
    pub name: String,
    /// Title for people, such as `Front Door`: one line of any text. It is shown next to the name.
    /// No worker gets it, and a change restarts nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 100))]
    pub title: Option<String>,
    /// Percentage of one worker that the job reserves; 100 reserves a whole worker. Default: none;
    /// the job shares the unreserved rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub share: Option<i32>,
    /// Only slot that may run the job, such as 2 for pod `swarm-worker-2`. Default: any slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub pin: Option<i32>,
    /// Importance of the job. If workers cannot take all jobs, lower numbers are left out first.
    /// Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1_000_000_000, max = 1_000_000_000))]
    pub priority: Option<i32>,
    /// Runs the job until its program ends with exit code 0, and never again. Needs
    /// `worker.protocol: Session`. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_once: Option<bool>,
    /// Releases the job while true, and grants it again afterwards. A job that is done stays done.
    /// Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Name of the runner in `worker.runners` that runs the job. A change restarts the job. Default:
    /// `worker.runner`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = "^([a-z0-9][-a-z0-9]*)?[a-z0-9]$"))]
    pub runner: Option<String>,
    /// Parameters of the job, by names of `a-z`, `A-Z`, `0-9` and `_`. A change restarts the job.
    /// Workers that read a file do not get them. Users who may read the Swarm can read them; for
    /// secrets use `worker.runner.paramsFrom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 32))]
    pub params: Option<BTreeMap<String, String>>,
}

/// ConfigMap from which plain workers read their jobs.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ViewSpec {
    /// ConfigMap in the namespace of the Swarm. It may exist already: the operator writes one key
    /// only. Default: the Swarm's name and `-config`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[a-z0-9][-.a-z0-9]*$"))]
    pub config_map_name: Option<String>,
    /// Makes the first assignment start from the view that exists, for example of another operator.
    /// Only jobs that balance requires elsewhere move. It has no effect once the pool has a ledger.
    /// Needs `worker.protocol: Plain`. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopt: Option<bool>,
    /// Format of the view. Default: `workloads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<ViewFormat>,
    /// Key in the ConfigMap. Default: `config.yml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[-._a-zA-Z0-9]+$"))]
    pub key: Option<String>,
}

/// Format of the view. `workloads` lists the jobs of each worker under the worker's name.
/// `hostports` has a line `host,port` for each job `host:port`, and needs `replication: All`.
/// Default: `workloads`.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ViewFormat {
    /// The jobs of each worker.
    #[default]
    Workloads,
    /// Lines `host,port`.
    Hostports,
}

/// Rules for moving jobs between workers. Durations are texts such as `30s` or `1m30s`.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RebalanceSpec {
    /// Stops all moves of jobs and all scaling while true, for repairs. Workers keep running their
    /// jobs. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Treatment of the current assignment when jobs or workers change. Default: `Sticky`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ModeSpec>,
    /// Number of jobs that may move at a time for balance. For plain workers it is the size of a
    /// batch, one every 2 seconds. Forced moves, such as from a lost worker, are not limited.
    /// Default: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub max_moves_in_flight: Option<i32>,
    /// Difference between the reserved parts of two workers, in percent of a worker, from which
    /// jobs with a `share` move to level them. `maxMovesInFlight` limits these moves. Ignored with
    /// `mode: Canonical`. Default: any difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub share_tolerance: Option<i32>,
    /// Time that the jobs of a lost worker wait for a new worker in its slot, before they move.
    /// Default: `30s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [duration::bounded()]))]
    pub return_grace: Option<Duration>,
}

/// Treatment of the current assignment when jobs or workers change. `Sticky` keeps each job on its
/// worker unless balance requires a move. `Canonical` ignores it: the same jobs and workers give
/// the same assignment, with more moves. Default: `Sticky`.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModeSpec {
    /// Moves as few jobs as possible.
    #[default]
    Sticky,
    /// Ignores the current assignment.
    Canonical,
}

impl SwarmSpec {
    /// The protocol of the workers, as it is written or [follows](ProtocolSpec::following).
    #[must_use]
    pub fn protocol(&self) -> ProtocolSpec {
        let written = self.worker.as_ref().and_then(|worker| worker.protocol);
        let is_ours = self.pool.managed.as_ref().is_some_and(|managed| managed.image.is_none());
        let has_runner = self.written_runners().next().is_some();
        let follows = ProtocolSpec::following(is_ours, has_runner, self.view.is_some());
        written.unwrap_or(follows)
    }

    /// Whether output of jobs is shown outside of the log of their worker.
    #[must_use]
    pub fn output(&self) -> JobOutput {
        JobOutput::shown_if(self.worker.as_ref().and_then(|worker| worker.show_output))
    }

    /// Limits of the files with the output of jobs.
    #[must_use]
    pub fn log_limits(&self) -> LogLimits {
        let logs = self.worker.as_ref().and_then(|worker| worker.logs.as_ref());
        logs.map(LogLimits::from).unwrap_or_default()
    }

    /// Number of jobs that a worker starts and restarts at a time. A value that a check would refuse
    /// counts as missing.
    #[must_use]
    pub fn pace(&self) -> Pace {
        let Some(worker) = &self.worker else { return Pace::default() };
        let max_restarting = worker.max_restarting.as_ref().and_then(|it| it.try_into().ok());
        let max_starting = worker.max_starting.and_then(|most| u32::try_from(most).ok());
        Pace { max_restarting: max_restarting.unwrap_or_default(), max_starting }
    }

    /// The runners that jobs name, by name. Names that a check would refuse are left out.
    #[must_use]
    pub fn runners(&self) -> BTreeMap<RunnerName, RunnerSpec> {
        let written = self.worker.iter().flat_map(|worker| worker.runners.iter().flatten());
        let named = |(name, runner): (&String, &RunnerSpec)| {
            Some((RunnerName::new(name).ok()?, runner.clone()))
        };
        written.filter_map(named).collect()
    }

    /// All runners that are written, each with its path.
    pub fn written_runners(&self) -> impl Iterator<Item = (String, &RunnerSpec)> {
        let worker = self.worker.as_ref();
        let named = worker.into_iter().flat_map(|worker| worker.runners.iter().flatten());
        let named = named.map(|(name, runner)| (runner_place(name), runner));
        let alone = worker.and_then(|worker| worker.runner.as_ref());
        alone.map(|runner| (RUNNER_PLACE.to_owned(), runner)).into_iter().chain(named)
    }

    /// The runner for jobs that name none, in session workers that are started with `--runner swarm`.
    /// Workers that the operator creates always get one.
    #[must_use]
    pub fn runner(&self) -> Option<RunnerSpec> {
        let written = self.worker.as_ref().and_then(|worker| worker.runner.clone());
        written.or_else(|| self.pool.managed.as_ref().map(|_| RunnerSpec::log()))
    }
}
