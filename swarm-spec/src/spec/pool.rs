//! The pool of a Swarm: the pods that are its workers.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::{ManagedKind, ManagedSpec};
use crate::rule::Rule;

const CANNOT_CHANGE: &str =
    "spec.pool cannot be changed: create another Swarm for the other pool and delete this one";

/// Pods that are the workers. Write exactly one of these fields.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    Rule::new(
        "[has(self.statefulSet), has(self.deployment), has(self.pods), has(self.managed)]\
         .filter(it, it).size() == 1",
        "write exactly one of statefulSet, deployment, pods and managed"
    ),
    Rule::new(
        "has(self.statefulSet) == has(oldSelf.statefulSet) \
         && has(self.deployment) == has(oldSelf.deployment) \
         && has(self.pods) == has(oldSelf.pods) && has(self.managed) == has(oldSelf.managed)",
        CANNOT_CHANGE
    ),
    Rule::new(
        "!has(self.managed) || !has(oldSelf.managed) \
         || (has(self.managed.kind) ? self.managed.kind : 'Deployment') \
         == (has(oldSelf.managed.kind) ? oldSelf.managed.kind : 'Deployment')",
        "pool.managed.kind cannot be changed: create another Swarm with the other kind and delete \
         this one"
    ),
]))]
pub struct PoolSpec {
    /// StatefulSet in the namespace of the Swarm. Pod *n* is the worker in slot *n*.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stateful_set: Option<WorkloadRef>,
    /// Deployment in the namespace of the Swarm. Each pod is bound to a slot; in a rollout a new
    /// pod takes the slot and jobs of an old pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<WorkloadRef>,
    /// Pods in the namespace of the Swarm with these labels, except pods of StatefulSets and of
    /// other Swarms. Each pod is a worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<PodsRef>,
    /// Pods that the operator creates. `pool: {managed: {}}` is enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed: Option<ManagedSpec>,
}

/// A selected workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meant<'a> {
    /// The workload with this name.
    Named(&'a str),
    /// The only workload with these labels.
    Labelled(&'a BTreeMap<String, String>),
}

impl PoolSpec {
    /// The pool of a Swarm that names none: the operator creates the pods.
    #[must_use]
    pub fn ours() -> Self {
        Self { managed: Some(ManagedSpec::default()), ..Self::default() }
    }

    /// The kind of the pool of the Swarm with this name, and the pool's workload if it has one.
    #[must_use]
    pub fn workload<'a>(&'a self, swarm: &'a str) -> (Kind, Option<Meant<'a>>) {
        match (&self.stateful_set, &self.deployment, &self.managed) {
            (Some(set), _, _) => (Kind::StatefulSet, Some(set.meant())),
            (None, Some(deployment), _) => (Kind::Deployment, Some(deployment.meant())),
            (None, None, Some(managed)) => {
                let kind = match managed.kind.unwrap_or_default() {
                    ManagedKind::Deployment => Kind::Deployment,
                    ManagedKind::StatefulSet => Kind::StatefulSet,
                };
                (kind, Some(Meant::Named(swarm)))
            }
            (None, None, None) => (Kind::Pods, None),
        }
    }
}

/// Reads a pool without a value as a missing one, like the API server.
pub(super) fn or_ours<'de, D: Deserializer<'de>>(from: D) -> Result<PoolSpec, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_else(PoolSpec::ours))
}

/// The kind of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A StatefulSet: pod *n* fills slot *n*.
    StatefulSet,
    /// A Deployment: its pods are bound to slots.
    Deployment,
    /// Any pods with some labels, bound to slots.
    Pods,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::StatefulSet, Self::Deployment, Self::Pods];

    /// The name of the kind in ledgers and messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::StatefulSet => "StatefulSet",
            Self::Deployment => "Deployment",
            Self::Pods => "Pods",
        }
    }

    /// The kind and the name of the pool, from the name of its ledger.
    #[must_use]
    pub fn of_ledger(name: &str) -> Option<(Self, &str)> {
        let (kind, pool) = name.split_once('.')?;
        let kind = Self::ALL.into_iter().find(|it| it.as_str().to_lowercase() == kind)?;
        Some((kind, pool))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Workload, by its name or by labels that exactly one workload has.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    Rule::new(
        "has(self.name) != has(self.matchLabels)",
        "write exactly one of name and matchLabels"
    ),
    Rule::new("self == oldSelf", CANNOT_CHANGE),
]))]
pub struct WorkloadRef {
    /// Name of the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[a-z0-9][-.a-z0-9]*$"))]
    #[schemars(extend("x-kubernetes-validations" = [workload_name_fits()]))]
    pub name: Option<String>,
    /// Labels of the workload itself (not of its pods), for generated names. Exactly one workload
    /// in the namespace must have all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minProperties" = 1, "maxProperties" = 16))]
    pub match_labels: Option<BTreeMap<String, String>>,
}

impl WorkloadRef {
    /// The selected workload.
    fn meant(&self) -> Meant<'_> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        match &self.name {
            Some(name) => Meant::Named(name),
            None => Meant::Labelled(self.match_labels.as_ref().unwrap_or(&NONE)),
        }
    }
}

/// The most characters of a workload's name. The names of the ledger and its parts begin with the
/// kind and this name, and the name of an object has at most 253 characters.
pub const WORKLOAD_NAME_MAX: usize = 203;

/// Bounds the name of a workload. A name from before this rule may stay.
fn workload_name_fits() -> Rule {
    let rule = format!("oldSelf.hasValue() || self.size() <= {WORKLOAD_NAME_MAX}");
    let message = format!(
        "the name of a workload has at most {WORKLOAD_NAME_MAX} characters, since names of other \
         objects are derived from it"
    );
    Rule::new(rule, message).with_optional_old_self()
}

/// Pods by their labels.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [Rule::new("self == oldSelf", CANNOT_CHANGE)]))]
pub struct PodsRef {
    /// Labels that a pod must have, all of them.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 16))]
    pub match_labels: BTreeMap<String, String>,
}

/// Refuses to scale pods that are selected by labels.
pub(super) fn nobody_scales_pods() -> Rule {
    Rule::new(
        "!has(self.replicas) || !has(self.pool.pods)",
        "replicas and pool.pods exclude each other: nothing scales pods that labels select; leave \
         replicas out and add or delete pods, or name a statefulSet or a deployment",
    )
}

/// Refuses to replace pods that do not keep their names: only a pod of a StatefulSet has the name
/// of its predecessor.
pub(super) fn pods_keep_their_names() -> Rule {
    Rule::new(
        "!has(self.refresh) || !has(self.refresh.mode) || has(self.pool.statefulSet) \
         || (has(self.pool.managed) && has(self.pool.managed.kind) \
         && self.pool.managed.kind == 'StatefulSet') || !(self.refresh.mode in ['Evict', 'Delete'])",
        "refresh.mode Evict and Delete need a StatefulSet: in other pools a new pod has a new \
         name, for which the view has no jobs yet; write HotReload or None",
    )
}
