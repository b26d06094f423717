//! A managed pool: the operator creates the workload and everything that the workload needs.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use swarm_core::session::Portion;

use super::IN_SESSIONS;
use crate::rule::Rule;

/// The most characters of the name of a Swarm with a managed pool. A label of the pods holds the
/// name and eleven more characters.
pub const MANAGED_NAME_MAX: usize = 52;

/// Default port of the workers.
const MANAGED_PORT: i32 = 9090;

/// Pool that the operator creates and reconciles: a Deployment or StatefulSet named like the Swarm,
/// its service account, disruption budget and Services. They are deleted with the Swarm. The
/// operator needs the rights in `deploy/components/managed-pools`.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManagedSpec {
    /// Workload that creates the pods. Default: `Deployment`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ManagedKind>,
    /// Image of the workers; needs `worker.protocol` or a runner. With `Session` and without
    /// `command`, the operator adds `swarm-worker` to the container, and `worker.runner` can use the
    /// programs of the image. Default: `swarm-worker` of the operator's release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = "^[!-~]+$"))]
    pub image: Option<String>,
    /// Program of the container. Default: the entrypoint of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256), inner(length(max = 4096)))]
    pub command: Option<Vec<String>>,
    /// Arguments of the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), inner(length(max = 4096)))]
    pub args: Option<Vec<String>>,
    /// Additional environment variables of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 256),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub env: Option<Vec<EnvVarSpec>>,
    /// Resources of a worker and its jobs. Default: requests `10m` CPU and `16Mi` memory, limit
    /// `64Mi` memory. With `image` the limit grows by `128Mi` a job, for 16 jobs (`2112Mi`) or more
    /// if `worker.maxJobs` or `capacity` allow more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesSpec>,
    /// Port at which a worker serves its health, its jobs and its metrics. Default: 9090.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024, max = 65_535))]
    pub port: Option<i32>,
    /// Service named like the Swarm, for all workers. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceSpec>,
    /// Files for the workers. A change replaces the pods in a rollout. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<FilesSpec>,
    /// Limit for evictions of workers, such as while a node is drained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption: Option<DisruptionSpec>,
    /// Service account of the pods. The operator grants it no rights; sessions need the
    /// `ClusterRole` `swarm-session-worker`. Default: an account named like the Swarm, with that
    /// role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,
    /// Fields to merge over the generated pod template: values are set, list entries are added or
    /// merged by name, nothing is removed. The worker's container is named `worker`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "free_form")]
    pub pod_template: Option<Value>,
}

/// Workload that creates the pods; it cannot be changed later. `Deployment`: in a rollout a new pod
/// takes over before the old one ends. `StatefulSet`: pods keep their names, and each ends before
/// its replacement starts. Default: `Deployment`.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ManagedKind {
    /// Pods with generated names.
    #[default]
    Deployment,
    /// Pods that keep their names.
    StatefulSet,
}

/// An environment variable.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [Rule::new(
    "!has(self.value) || !has(self.valueFrom)",
    "write either value or valueFrom, not both"
)]))]
pub struct EnvVarSpec {
    /// Name of the variable.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[-._a-zA-Z][-._a-zA-Z0-9]*$"))]
    pub name: String,
    /// Value of the variable. Default: empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32_768))]
    pub value: Option<String>,
    /// Source of the value, as in a Pod: `secretKeyRef`, `configMapKeyRef`, `fieldRef` or
    /// `resourceFieldRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "free_form")]
    pub value_from: Option<Value>,
}

/// Resources of a container, as in a Pod.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourcesSpec {
    /// Reserved amounts, such as `cpu: 10m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 32))]
    pub requests: Option<BTreeMap<String, IntOrString>>,
    /// Maximum amounts, such as `memory: 64Mi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 32))]
    pub limits: Option<BTreeMap<String, IntOrString>>,
}

/// A number, or a text such as `10m`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IntOrString {
    /// A number.
    Int(i32),
    /// A text.
    String(String),
}

impl fmt::Display for IntOrString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(number) => number.fmt(f),
            Self::String(text) => text.fmt(f),
        }
    }
}

/// Writes a number where a person would.
impl From<Portion> for IntOrString {
    fn from(portion: Portion) -> Self {
        match portion {
            Portion::Count(count) => Self::Int(i32::try_from(count).unwrap_or(i32::MAX)),
            Portion::Percent(_) => Self::String(portion.to_string()),
        }
    }
}

/// Reads a number or a percentage; a number in quotes is refused, as on a cluster.
impl TryFrom<&IntOrString> for Portion {
    type Error = String;

    fn try_from(written: &IntOrString) -> Result<Self, String> {
        let text = written.to_string();
        match (text.parse()?, written) {
            (Portion::Count(_), IntOrString::String(_)) => {
                Err(format!("`{text}` is a text; write it without quotes, or a part such as 10%"))
            }
            (portion, _) => Ok(portion),
        }
    }
}

impl JsonSchema for IntOrString {
    fn schema_name() -> Cow<'static, str> {
        "IntOrString".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"x-kubernetes-int-or-string": true})
    }
}

/// Service for all workers.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceSpec {
    /// Type of the Service. Default: `ClusterIP`.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<ServiceType>,
    /// Port of the Service. Default: `port` of the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65_535))]
    pub port: Option<i32>,
    /// Port of the workers that receives the traffic. Default: `port` of the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65_535))]
    pub target_port: Option<i32>,
}

/// Type of the Service. `ClusterIP` is reachable in the cluster, `NodePort` also at a port of every
/// node, `LoadBalancer` also by the cluster's load balancer. Default: `ClusterIP`.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServiceType {
    /// Reachable in the cluster.
    #[default]
    ClusterIP,
    /// Also reachable at every node.
    NodePort,
    /// Also reachable by a load balancer.
    LoadBalancer,
}

/// Files for the workers, in a `ConfigMap` named like the Swarm with `-files`.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FilesSpec {
    /// Contents of the files by name, at most 1 MiB in total.
    #[schemars(extend("maxProperties" = 256))]
    pub data: BTreeMap<String, String>,
    /// Directory of the files in the container. Default: `/config`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 1024), regex(pattern = "^/[^:]+$"))]
    pub mount_path: Option<String>,
}

/// Limit for evictions of workers.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DisruptionSpec {
    /// Creation of a disruption budget. Default: `Budget`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<DisruptionMode>,
    /// Number or percentage of workers that may be unavailable. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
}

/// Creation of a disruption budget: `Budget` creates it. Write `None` if you have your own, since
/// two budgets for a pod forbid every eviction. Default: `Budget`.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DisruptionMode {
    /// Creates a budget.
    #[default]
    Budget,
    /// Creates no budget.
    None,
}

/// A field that Kubernetes checks by its own schema.
fn free_form(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

impl ManagedSpec {
    /// The port of the workers.
    #[must_use]
    pub fn port(&self) -> i32 {
        self.port.unwrap_or(MANAGED_PORT)
    }

    /// Checks the variables. The schema refuses the same mistakes in a cluster.
    pub(crate) fn check_env(&self) -> Result<(), String> {
        let mut names = BTreeSet::new();
        for EnvVarSpec { name, value, value_from } in self.env.iter().flatten() {
            if !names.insert(name) {
                return Err(format!("variable `{name}` occurs twice; remove one"));
            }
            if value.is_some() && value_from.is_some() {
                return Err(format!("variable `{name}` has value and valueFrom; remove one"));
            }
        }
        Ok(())
    }

    /// Whether the container runs `swarm-worker`, from its own image or added to the image of the
    /// user.
    #[must_use]
    pub fn runs_our_worker(&self, protocol: super::ProtocolSpec) -> bool {
        let is_ours = self.image.is_none() || protocol == super::ProtocolSpec::Session;
        is_ours && self.command.is_none()
    }
}

/// Requires a protocol or a runner for an image of the user, since only the user knows the program.
pub(super) fn image_needs_protocol() -> Rule {
    Rule::new(
        format!(
            "!has(self.pool.managed) || !has(self.pool.managed.image) \
             || (has(self.worker) && has(self.worker.protocol)) || ({IN_SESSIONS})"
        ),
        "pool.managed.image needs worker.protocol: write Plain if the image's program reads its \
         jobs from a file, or Session and a runner if swarm-worker runs its programs",
    )
}

/// Whether a Swarm may have this name and a managed pool.
///
/// # Errors
///
/// A sentence that says what the name must be like.
pub fn managed_name_fits(name: &str) -> Result<(), String> {
    let is_inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    let fits = name.len() <= MANAGED_NAME_MAX
        && name.bytes().all(is_inner)
        && name.as_bytes().first().is_some_and(u8::is_ascii_lowercase)
        && !name.ends_with('-');
    if fits { Ok(()) } else { Err(managed_name_rule()) }
}

/// The rule for the name of a Swarm with a managed pool, whose Services have the same name.
#[must_use]
pub fn managed_name_rule() -> String {
    format!(
        "the name of a Swarm with pool.managed has at most {MANAGED_NAME_MAX} characters: a-z, 0-9 \
         and dashes. It begins with a letter and does not end with a dash"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_refused_that_no_service_could_have() {
        for fits in ["a", "streams", "a-9", &"a".repeat(MANAGED_NAME_MAX)] {
            assert_eq!(managed_name_fits(fits), Ok(()), "{fits}");
        }
        for wrong in ["", "9a", "-a", "a-", "a.b", "A", &"a".repeat(MANAGED_NAME_MAX + 1)] {
            assert_eq!(managed_name_fits(wrong), Err(managed_name_rule()), "{wrong}");
        }
    }
}
