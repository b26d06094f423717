//! The fields of a manifest.
//!
//! More than the CRD has: a field enters the CRD only when it works in a cluster, and some work on
//! one machine first. So these types stand apart from those of [`api`](crate::api), which describe
//! what a cluster takes; a test sees to it that whatever the CRD knows is known here too.

use std::collections::BTreeMap;

use kube::core::Duration;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::api::{
    JobSource, LogRunnerSpec, ModeSpec, RefreshSpec, VersionEndpoint, ViewSpec, WorkloadRef,
};
use crate::duration;

/// The Swarm, without what every object has.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Document {
    pub(super) spec: Spec,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spec {
    /// `jobs:` with nothing behind it is an empty list, as for the API server.
    pub(super) jobs: Option<Vec<Job>>,
    pub(super) job_sources: Option<Vec<JobSource>>,
    pub(super) replicas: Option<i64>,
    pub(super) pool: Pool,
    pub(super) worker: Option<Worker>,
    /// Read so that a mistake in it is told; nothing here depends on it.
    #[expect(dead_code, reason = "only its structure is checked")]
    pub(super) view: Option<ViewSpec>,
    pub(super) handover: Option<Handover>,
    /// On one machine every worker follows its own view, so there it changes nothing.
    #[expect(dead_code, reason = "only its structure is checked")]
    pub(super) refresh: Option<RefreshSpec>,
    pub(super) rebalance: Option<Rebalance>,
    pub(super) replication: Option<Replication>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) share: Option<i32>,
    pub(super) pin: Option<i32>,
    pub(super) priority: Option<i32>,
    pub(super) run_once: Option<bool>,
    pub(super) params: Option<BTreeMap<String, String>>,
}

/// The workload whose pods are the workers.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pool {
    pub(super) stateful_set: Option<WorkloadRef>,
    pub(super) deployment: Option<WorkloadRef>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Worker {
    /// On one machine every worker speaks the protocol, so there it changes nothing.
    pub(super) protocol: Option<Protocol>,
    pub(super) runner: Option<Runner>,
    /// On one machine workers acknowledge what they do, so nobody asks them.
    #[expect(dead_code, reason = "only its structure is checked")]
    pub(super) version_endpoint: Option<VersionEndpoint>,
    pub(super) max_jobs: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub(super) enum Protocol {
    Plain,
    Session,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Runner {
    pub(super) log: Option<LogRunnerSpec>,
    pub(super) command: Option<Vec<String>>,
    pub(super) ping: Option<Ping>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Ping {
    #[serde(default, deserialize_with = "duration::read")]
    pub(super) interval: Option<Duration>,
    #[serde(default, deserialize_with = "duration::read")]
    pub(super) timeout: Option<Duration>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Handover {
    pub(super) policy: Option<Policy>,
    #[serde(default, deserialize_with = "duration::read")]
    pub(super) release_timeout: Option<Duration>,
    #[serde(default, deserialize_with = "duration::read")]
    pub(super) stop_timeout: Option<Duration>,
    pub(super) lease: Option<Lease>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub(super) enum Policy {
    AtLeastOnce,
    Exclusive,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(super) struct Lease {
    #[serde(default, deserialize_with = "duration::read")]
    pub(super) duration: Option<Duration>,
    #[serde(default, deserialize_with = "duration::read")]
    pub(super) renew: Option<Duration>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rebalance {
    pub(super) mode: Option<ModeSpec>,
    pub(super) max_moves_in_flight: Option<u32>,
    #[serde(default, deserialize_with = "duration::read")]
    pub(super) initial_wait: Option<Duration>,
    #[serde(default, deserialize_with = "duration::read")]
    pub(super) return_grace: Option<Duration>,
    #[serde(default, deserialize_with = "duration::read")]
    pub(super) batch_window: Option<Duration>,
    pub(super) paused: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub(super) enum Replication {
    #[default]
    One,
    All,
}
