//! A pool that the operator makes: the workload, and all that it needs.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::rule::Rule;

/// The most characters of the name of a Swarm with a managed pool: the names of its pods are longer,
/// and a label of them holds the name and eleven characters more.
pub const MANAGED_NAME_MAX: usize = 52;

/// The port of workers unless another is written.
const MANAGED_PORT: i32 = 9090;

/// A pool that the operator makes and keeps in shape: a Deployment or a StatefulSet called like the
/// Swarm, its service account, disruption budget and Services. All of it goes with the Swarm. The
/// operator needs rights for this, which `deploy/components/managed-pools` gives it.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManagedSpec {
    /// What makes the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ManagedKind>,
    /// The image of the workers. With it `worker.protocol` must be written, too. Without `command`, and
    /// with `worker.protocol: Session`, `swarm-worker` is put into its container and runs there, so
    /// that `worker.runner` can use the programs of the image. Default: that of `swarm-worker` of the
    /// same release as the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = "^[!-~]+$"))]
    pub image: Option<String>,
    /// The program of the container, in place of that of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256), inner(length(max = 4096)))]
    pub command: Option<Vec<String>>,
    /// Its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), inner(length(max = 4096)))]
    pub args: Option<Vec<String>>,
    /// Variables of the container, beside those by which a worker is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 256),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub env: Option<Vec<EnvVarSpec>>,
    /// Resources of a worker and its jobs. Default: requests of `10m` CPU and `16Mi` memory, and a
    /// memory limit of `64Mi`; with an `image`, whose programs jobs may run, `128Mi` more for each of
    /// 16 jobs (`2112Mi`), or of the most jobs that `worker.maxJobs` or `capacity` allow, if these are
    /// more, rounded up to a power of two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesSpec>,
    /// The port on which a worker serves its health, what it runs and its metrics. Default: 9090.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024, max = 65_535))]
    pub port: Option<i32>,
    /// A Service called like the Swarm, for all workers. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceSpec>,
    /// Files for the workers. A change of them replaces the pods, as a rollout does. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<FilesSpec>,
    /// How many workers an eviction may take at a time, as when a node is drained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption: Option<DisruptionSpec>,
    /// The service account of the pods; nothing is bound to it. Workers of sessions need the
    /// `ClusterRole` `swarm-session-worker`. Default: one called like the Swarm, which has that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,
    /// Merged over the pod template that the operator makes: fields are set, entries of lists are
    /// added or merged by their names, nothing can be taken away. The container of the worker is
    /// called `worker`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "free_form")]
    pub pod_template: Option<Value>,
}

/// What makes the pods; it cannot be changed later. `Deployment`, the default: in a rollout a new pod
/// takes over from an old one before that goes. `StatefulSet`: pods keep their names, and one goes
/// before its successor comes.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ManagedKind {
    /// Pods of any names.
    #[default]
    Deployment,
    /// Pods that keep their names.
    StatefulSet,
}

/// One variable.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [Rule::new(
    "!has(self.value) || !has(self.valueFrom)",
    "write either value or valueFrom, not both"
)]))]
pub struct EnvVarSpec {
    /// Its name.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[-._a-zA-Z][-._a-zA-Z0-9]*$"))]
    pub name: String,
    /// Its value. Default: empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32_768))]
    pub value: Option<String>,
    /// Where its value comes from, as in a Pod: `secretKeyRef`, `configMapKeyRef`, `fieldRef` or
    /// `resourceFieldRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "free_form")]
    pub value_from: Option<Value>,
}

/// What a worker may use, as in a Pod.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourcesSpec {
    /// What is set aside for it, as `cpu: 10m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 32))]
    pub requests: Option<BTreeMap<String, IntOrString>>,
    /// What it must not exceed, as `memory: 64Mi`.
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

/// A Service for all workers.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceSpec {
    /// From where it is reached.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<ServiceType>,
    /// Its port. Default: that of the workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65_535))]
    pub port: Option<i32>,
    /// The port of the workers that it leads to. Default: `port` of the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65_535))]
    pub target_port: Option<i32>,
}

/// From where the Service is reached: from within the cluster, with `ClusterIP`, the default; by a port of
/// every node, too; or also from outside, by what the cluster has for this.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServiceType {
    /// From within.
    #[default]
    ClusterIP,
    /// By nodes, too.
    NodePort,
    /// From outside, too.
    LoadBalancer,
}

/// Files for the workers, in a `ConfigMap` called like the Swarm and `-files`.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FilesSpec {
    /// Their contents by name; at most 1 MiB in all.
    #[schemars(extend("maxProperties" = 256))]
    pub data: BTreeMap<String, String>,
    /// The directory in which workers find them. Default: `/config`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 1024), regex(pattern = "^/[^:]+$"))]
    pub mount_path: Option<String>,
}

/// How many workers an eviction may take.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DisruptionSpec {
    /// Whether the operator makes a budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<DisruptionMode>,
    /// How many workers, or what percentage of them, may be missing. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
}

/// Whether the operator makes a disruption budget: `Budget`, the default, or `None`, for whoever has one
/// already. Two budgets for one pod forbid every eviction.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DisruptionMode {
    /// It does.
    #[default]
    Budget,
    /// It does not.
    None,
}

/// What Kubernetes checks, by its own schema.
fn free_form(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

impl ManagedSpec {
    /// The port of the workers.
    #[must_use]
    pub fn port(&self) -> i32 {
        self.port.unwrap_or(MANAGED_PORT)
    }

    /// What the schema refuses, too, and does not show in a field alone.
    pub(crate) fn check_env(&self) -> Result<(), String> {
        let mut names = BTreeSet::new();
        for EnvVarSpec { name, value, value_from } in self.env.iter().flatten() {
            if !names.insert(name) {
                return Err(format!("variable `{name}` stands twice; remove one"));
            }
            if value.is_some() && value_from.is_some() {
                return Err(format!("variable `{name}` has value and valueFrom; remove one"));
            }
        }
        Ok(())
    }

    /// Whether the container runs `swarm-worker`, in its own image or put into that of the user.
    #[must_use]
    pub fn runs_our_worker(&self, protocol: super::ProtocolSpec) -> bool {
        let is_ours = self.image.is_none() || protocol == super::ProtocolSpec::Session;
        is_ours && self.command.is_none()
    }
}

/// Whoever brings a program decides how it is spoken to.
pub(super) fn image_needs_protocol() -> Rule {
    Rule::new(
        "!has(self.pool.managed) || !has(self.pool.managed.image) \
         || (has(self.worker) && has(self.worker.protocol))",
        "an image of your own in pool.managed needs worker.protocol: write Plain if its program reads \
         its jobs from a file, or Session if swarm-worker is to run its programs",
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

/// What the name of a Swarm with a managed pool is like: Services are called like it.
#[must_use]
pub fn managed_name_rule() -> String {
    format!(
        "the name of a Swarm with pool.managed has at most {MANAGED_NAME_MAX} characters of a-z, 0-9 \
         and dashes, begins with a letter and does not end with a dash"
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
