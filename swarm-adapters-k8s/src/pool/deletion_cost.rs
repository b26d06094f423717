//! Order in which a Deployment removes pods when it scales down: emptied pods first. Kubernetes
//! reads an annotation for that, and follows it if possible.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use swarm_core::Slot;
use swarm_core::ports::StoreError;

use super::Workloads;
use super::slots::Slots;
use super::workload::{Kind, Workload};
use crate::annotations::{COST_BEFORE, DELETION_COST};
use crate::plain::refresh::KnownPods;
use crate::requests::bounded;
use crate::version;

/// The lowest cost that Kubernetes accepts.
const LOWEST: &str = "-2147483648";

/// The new deletion cost of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Price {
    /// The lowest cost: the pod is removed first. `before` is its previous cost.
    Lowest { before: String },
    /// The previous cost again.
    Before(Option<String>),
}

impl Price {
    /// The change for a pod in `slot`, if it needs one. Slots from `end` on are to be emptied. If
    /// `is_emptied`, they are empty and the pool is scaled down.
    fn of(pod: &Pod, slot: Slot, end: Option<u32>, is_emptied: bool) -> Option<Self> {
        let annotation = |key| pod.annotations().get(key).map(String::as_str);
        let is_beyond = end.is_some_and(|end| end <= slot.0);
        match annotation(COST_BEFORE) {
            None if is_beyond && is_emptied => {
                let before = annotation(DELETION_COST).unwrap_or_default().to_owned();
                Some(Self::Lowest { before })
            }
            Some(before) if !is_beyond => {
                Some(Self::Before(Some(before.to_owned()).filter(|cost| !cost.is_empty())))
            }
            None | Some(_) => None,
        }
    }

    fn annotations(&self) -> Value {
        match self {
            Self::Lowest { before } => json!({DELETION_COST: LOWEST, COST_BEFORE: before}),
            Self::Before(cost) => json!({DELETION_COST: cost, COST_BEFORE: null}),
        }
    }
}

/// The wanted size of a pool, and the size that this turn gives it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shrink {
    /// The number of workers that the Swarm asks for; `None` if the workload decides.
    pub(crate) wanted: Option<u32>,
    /// The number of pods that this turn gives the pool; `None` if it keeps its size.
    pub(crate) replicas: Option<u32>,
}

impl Workloads {
    /// Marks emptied pods as the first to be removed, right before `pool` is scaled down. Restores
    /// the cost of pods that stay after all. Returns whether all pods are done: a pod that has
    /// changed meanwhile needs another look.
    ///
    /// # Errors
    ///
    /// Errors of single pods count too: without their annotations the pool must not be scaled.
    pub(crate) async fn set_deletion_cost(
        &self,
        pool: &Workload,
        slots: &Slots,
        Shrink { wanted, replicas }: Shrink,
        pods: &mut KnownPods,
    ) -> Result<bool, StoreError> {
        if pool.kind != Kind::Deployment {
            return Ok(true);
        }
        let is_emptied = replicas.is_some_and(|count| count < pool.replicas);
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pool.namespace);
        let mut is_done = true;
        for (slot, pod) in &slots.pods {
            let Some(price) = Price::of(pod, *slot, wanted, is_emptied) else { continue };
            let (name, uid) = (pod.name_any(), pod.uid().unwrap_or_default());
            let patch = Patch::Merge(json!({
                "metadata": {
                    "uid": uid,
                    "resourceVersion": pods.version_of(pod),
                    "annotations": price.annotations(),
                },
            }));
            let params = PatchParams::default();
            let patched = api.patch_metadata(&name, &params, &patch);
            match bounded(format!("pod `{name}`"), patched).await {
                Ok(written) => pods.wrote(&uid, version::of(&written)),
                // The pod was removed or changed since it was read.
                Err(StoreError::Conflict { .. }) => {
                    pods.wrote(&uid, 0);
                    is_done = false;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(is_done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, conflict};

    fn pod(annotations: &Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"annotations": annotations}})).unwrap()
    }

    #[test]
    fn a_pod_goes_first_once_it_was_emptied_and_not_before() {
        let plain = pod(&json!({}));
        assert_eq!(Price::of(&plain, Slot(2), Some(2), false), None);
        assert_eq!(Price::of(&plain, Slot(1), Some(2), true), None);
        assert_eq!(Price::of(&plain, Slot(2), None, true), None);
        let lowest = Price::Lowest { before: String::new() };
        assert_eq!(Price::of(&plain, Slot(2), Some(2), true), Some(lowest));
    }

    #[test]
    fn a_cost_that_another_client_wrote_is_put_back() {
        let theirs = pod(&json!({DELETION_COST: "7"}));
        let price = Price::of(&theirs, Slot(2), Some(2), true).unwrap();
        let marked = pod(&price.annotations());
        assert_eq!(marked.annotations()[DELETION_COST], LOWEST);
        assert_eq!(Price::of(&marked, Slot(2), Some(2), true), None, "once");
        let back = Price::Before(Some("7".into()));
        assert_eq!(Price::of(&marked, Slot(2), Some(3), false), Some(back));
        let ours = pod(&json!({DELETION_COST: LOWEST, COST_BEFORE: ""}));
        let back = Price::of(&ours, Slot(2), None, false).unwrap();
        assert_eq!(back.annotations(), json!({DELETION_COST: null, COST_BEFORE: null}));
    }

    #[tokio::test]
    async fn a_pod_that_has_changed_is_no_error_and_nothing_is_scaled_before_it_was_looked_at() {
        let scene = World::default().with(|_| conflict());
        let mut pool = Workload::from(&k8s_openapi::api::apps::v1::Deployment::default());
        pool.replicas = 2;
        let mut emptied = pod(&json!({}));
        emptied.metadata.name = Some("p".into());
        emptied.metadata.uid = Some("u".into());
        emptied.metadata.resource_version = Some("5".into());
        let pods = [(Slot(1), std::sync::Arc::new(emptied))].into();
        let (mut slots, mut known) = (Slots::default(), KnownPods::default());
        slots.pods = pods;
        let workloads = &scene.services.workloads;
        let shrink = Shrink { wanted: Some(1), replicas: Some(1) };
        let is_done = workloads.set_deletion_cost(&pool, &slots, shrink, &mut known).await;
        assert!(!is_done.unwrap());
        assert_eq!(scene.asked()[0].body["metadata"]["resourceVersion"], "5");
    }
}
