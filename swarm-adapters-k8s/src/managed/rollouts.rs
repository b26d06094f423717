//! Decides whether a managed pool may roll because the operator has changed, or waits for other
//! pools.

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};

use super::ManagedPools;
use super::observed::{Place, Seen};
use super::wanted::{MadeOf, ObjectKind, Wanted};
use crate::turn::Turn;

impl ManagedPools {
    /// Whether the rollout of `wanted` has to wait. It waits if the operator caused it and enough
    /// other pools roll for that reason, or if the pool's workers must not move.
    pub(super) fn must_wait_to_roll(
        &self,
        turn: &Turn<'_>,
        wanted: &Wanted,
        there: Option<&Seen>,
    ) -> bool {
        let made_of = there.and_then(|there| MadeOf::parse(there.made_of.as_deref()?));
        let is_by_operator = made_of.is_some_and(|before| wanted.made_of.is_by_operator(before));
        if !is_by_operator || !wanted.kind.is_workload() {
            return false;
        }
        let rebalance = turn.swarm.spec.rebalance.as_ref();
        if rebalance.and_then(|it| it.paused).unwrap_or_default() {
            return true;
        }
        let place = (wanted.kind, turn.namespace.to_owned(), wanted.name.clone());
        !self.made.may_roll(&place, self.sharing.replicas(), |place| self.has_rolled(place))
    }

    /// Whether all pods of a workload have the newest template, or the workload no longer exists.
    fn has_rolled(&self, (kind, namespace, name): &Place) -> bool {
        let pools = &self.caches.pools;
        if *kind == ObjectKind::StatefulSet {
            return pools.sets.get(namespace, name).is_none_or(|it| is_set_rolled_out(&it));
        }
        let found = pools.non_statefulset.deployments.get(namespace, name);
        found.is_none_or(|it| is_rolled_out(&it))
    }
}

/// Whether all pods of a Deployment have its newest template and are available.
pub(super) fn is_rolled_out(deployment: &Deployment) -> bool {
    let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    deployment.status.as_ref().is_some_and(|status| {
        let is_all = |count: Option<i32>| count.unwrap_or_default() == replicas;
        deployment.metadata.generation <= status.observed_generation
            && is_all(status.updated_replicas)
            && is_all(status.replicas)
            && is_all(status.available_replicas)
    })
}

/// Whether all pods of a StatefulSet have its newest template and are available.
pub(super) fn is_set_rolled_out(set: &StatefulSet) -> bool {
    let replicas = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    set.status.as_ref().is_some_and(|status| {
        set.metadata.generation <= status.observed_generation
            && status.current_revision == status.update_revision
            && status.ready_replicas.unwrap_or_default() == replicas
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollout_is_over_when_every_pod_is_of_the_newest_template() {
        let of = |updated: i32, observed: i64| -> Deployment {
            serde_json::from_value(serde_json::json!({
                "metadata": {"generation": 4},
                "spec": {"replicas": 3, "selector": {}, "template": {}},
                "status": {
                    "observedGeneration": observed, "updatedReplicas": updated, "replicas": 3,
                    "availableReplicas": 3,
                },
            }))
            .unwrap()
        };
        assert!(is_rolled_out(&of(3, 4)));
        assert!(!is_rolled_out(&of(2, 4)));
        assert!(!is_rolled_out(&of(3, 3)), "the change was not seen yet");
    }
}
