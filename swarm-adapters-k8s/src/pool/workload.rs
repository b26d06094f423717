//! Workload of a pool: the fields of a StatefulSet, of a Deployment, or of labelled pods, in one
//! form.

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;
use kube::{Resource, ResourceExt};

pub use swarm_spec::spec::Kind;

use swarm_client::api::{Claimant, Swarm};

use super::fit::Misfit;
use super::rollout::Rollout;
use super::trouble;

/// The condition of a Deployment whose pods are refused.
pub(crate) const FAILURE: &str = "ReplicaFailure";

/// The workload of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The kind of the workload.
    pub kind: Kind,
    /// The namespace of the workload.
    pub namespace: String,
    /// The name of the workload; the Swarm's name for labelled pods.
    pub name: String,
    /// The UID of the workload; the Swarm's UID for labelled pods.
    pub uid: String,
    /// Number of pods that it should have.
    pub replicas: u32,
    /// Number of pods that it reports.
    pub pods: i32,
    /// The lowest slot.
    pub first_slot: u32,
    /// The label selector of its pods.
    pub selector: Option<String>,
    /// The version that was read; `None` for labelled pods.
    pub resource_version: Option<String>,
    /// The reason why pods are missing or do not run, if known.
    pub trouble: Option<String>,
    /// Ways in which its pods do not suit their Swarm.
    pub misfits: Vec<Misfit>,
    /// Progress of its pods with its newest template.
    pub rollout: Rollout,
}

impl Workload {
    /// The claimant to which a ledger is bound.
    #[must_use]
    pub fn claimant(&self) -> Claimant {
        let (kind, name, uid) = (self.kind.to_string(), self.name.clone(), self.uid.clone());
        Claimant { kind, name, uid }
    }

    /// The labelled pods of `swarm`. `pods` is the number of pods that stay.
    #[must_use]
    pub fn of_pods(swarm: &Swarm, pods: usize) -> Self {
        let labels = swarm.spec.pool.pods.iter().flat_map(|pods| &pods.match_labels);
        let labels: Vec<_> = labels.map(|(key, value)| format!("{key}={value}")).collect();
        Self {
            kind: Kind::Pods,
            namespace: swarm.namespace().unwrap_or_default(),
            name: swarm.name_any(),
            uid: swarm.uid().unwrap_or_default(),
            replicas: u32::try_from(pods).unwrap_or(u32::MAX),
            pods: i32::try_from(pods).unwrap_or(i32::MAX),
            first_slot: 0,
            selector: Some(labels.join(",")),
            resource_version: None,
            trouble: None,
            misfits: Vec::new(),
            rollout: Rollout::Done,
        }
    }

    /// A deleted workload. Only its `claim` on a ledger remains.
    #[must_use]
    pub fn gone(kind: Kind, namespace: &str, claim: Claimant) -> Self {
        Self {
            kind,
            namespace: namespace.to_owned(),
            name: claim.name,
            uid: claim.uid,
            replicas: 0,
            pods: 0,
            first_slot: 0,
            selector: None,
            resource_version: None,
            trouble: None,
            misfits: Vec::new(),
            rollout: Rollout::Done,
        }
    }

    fn named(kind: Kind, object: &impl Resource, replicas: Option<i32>) -> Self {
        Self {
            kind,
            namespace: object.meta().namespace.clone().unwrap_or_default(),
            name: object.meta().name.clone().unwrap_or_default(),
            uid: object.meta().uid.clone().unwrap_or_default(),
            replicas: replicas.map_or(1, |count| u32::try_from(count).unwrap_or(0)),
            pods: 0,
            first_slot: 0,
            selector: None,
            resource_version: object.meta().resource_version.clone(),
            trouble: None,
            misfits: Vec::new(),
            rollout: Rollout::Done,
        }
    }
}

impl From<&StatefulSet> for Workload {
    fn from(set: &StatefulSet) -> Self {
        let spec = set.spec.as_ref();
        let start = spec.and_then(|spec| spec.ordinals.as_ref()?.start);
        Self {
            pods: set.status.as_ref().map_or(0, |status| status.replicas),
            trouble: missing_pods(set),
            rollout: Rollout::of_set(set),
            first_slot: start.and_then(|start| u32::try_from(start).ok()).unwrap_or(0),
            selector: spec.and_then(|spec| selector(&spec.selector)),
            ..Self::named(Kind::StatefulSet, set, spec.and_then(|spec| spec.replicas))
        }
    }
}

impl From<&Deployment> for Workload {
    fn from(deployment: &Deployment) -> Self {
        let spec = deployment.spec.as_ref();
        Self {
            pods: deployment.status.as_ref().and_then(|status| status.replicas).unwrap_or(0),
            trouble: refused_pods(deployment),
            rollout: Rollout::of_deployment(deployment),
            selector: spec.and_then(|spec| selector(&spec.selector)),
            ..Self::named(Kind::Deployment, deployment, spec.and_then(|spec| spec.replicas))
        }
    }
}

/// The sentence about pods that a StatefulSet cannot create, for example because of a quota. Unlike
/// a Deployment it reports that only in Events. Its pods are all ready, and it has seen that it
/// should have more.
fn missing_pods(set: &StatefulSet) -> Option<String> {
    let (spec, status) = (set.spec.as_ref()?, set.status.as_ref()?);
    let (wanted, made) = (spec.replicas.unwrap_or(1), status.replicas);
    let is_seen = set.metadata.generation == status.observed_generation;
    if !is_seen || wanted <= made || status.ready_replicas.unwrap_or_default() < made {
        return None;
    }
    let name = set.metadata.name.as_deref().unwrap_or_default();
    Some(format!(
        "{made} of {} made; if it stays so, `kubectl describe statefulset {name}` says why, \
         such as a quota",
        if wanted == 1 { "1 pod is".to_owned() } else { format!("{wanted} pods are") }
    ))
}

/// The reason why pods of a Deployment are refused, for example by a quota.
fn refused_pods(deployment: &Deployment) -> Option<String> {
    let conditions = deployment.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut failures = conditions.filter(|it| it.type_ == FAILURE && it.status == "True");
    let failure = failures.next()?;
    Some(format!("pods are refused: {}", trouble::quoted(failure.message.as_deref())))
}

fn selector(selector: &LabelSelector) -> Option<String> {
    Selector::try_from(selector.clone()).ok().map(|selector| selector.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_deployment_and_a_statefulset_are_read_into_one_form() {
        let metadata = json!({"name": "w", "namespace": "n", "uid": "u", "resourceVersion": "7"});
        let spec = json!({
            "serviceName": "", "replicas": 3, "ordinals": {"start": 5}, "template": {},
            "selector": {"matchLabels": {"app": "w"}},
        });
        let status = json!({"replicas": 2, "readyReplicas": 1});
        let object = json!({"metadata": metadata, "spec": spec, "status": status});
        let set: StatefulSet = serde_json::from_value(object.clone()).unwrap();
        let deployment: Deployment = serde_json::from_value(object).unwrap();
        let (set, deployment) = (Workload::from(&set), Workload::from(&deployment));
        assert_eq!(
            (set.kind, set.first_slot, set.replicas, set.pods),
            (Kind::StatefulSet, 5, 3, 2)
        );
        assert_eq!(deployment, Workload { kind: Kind::Deployment, first_slot: 0, ..set });
        assert_eq!(deployment.selector.as_deref(), Some("app=w"));
    }

    #[test]
    fn pods_that_a_statefulset_does_not_make_are_missed_once_the_others_are_ready() {
        let trouble = |generation: i64, ready: i32| {
            let object = json!({
                "metadata": {"name": "w", "generation": 2},
                "spec": {"serviceName": "", "replicas": 3, "template": {}, "selector": {}},
                "status": {"replicas": 2, "readyReplicas": ready, "observedGeneration": generation},
            });
            Workload::from(&serde_json::from_value::<StatefulSet>(object).unwrap()).trouble
        };
        assert_eq!((trouble(1, 2), trouble(2, 1)), (None, None));
        let reported = trouble(2, 2).unwrap();
        assert!(reported.starts_with("2 of 3 pods are made; if it stays so"), "{reported}");
    }

    #[test]
    fn the_name_of_a_ledger_says_which_pool_owns_it() {
        assert_eq!(Kind::of_ledger("deployment.a.b"), Some((Kind::Deployment, "a.b")));
        assert_eq!(Kind::of_ledger("pods.streams"), Some((Kind::Pods, "streams")));
        assert_eq!(Kind::of_ledger("daemonset.w"), None);
    }
}
