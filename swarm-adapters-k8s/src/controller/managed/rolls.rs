//! Bounds how many pools roll at a time because the operator has changed, as after its upgrade. A change
//! by a user never waits.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use tokio::time::Instant;

use super::super::locks::unpoisoned;

/// How many pools roll at a time.
const AT_A_TIME: usize = 5;
/// How long a pool may hold up others.
const ROLLS_WITHIN: Duration = Duration::from_mins(10);
/// How long the caches may take to show that a rollout has begun.
const SHOWN_WITHIN: Duration = Duration::from_secs(5);

/// The pools that roll because of the operator, by the UIDs of their Swarms.
#[derive(Debug, Default)]
pub(in crate::controller) struct Rolls(Mutex<BTreeMap<String, Instant>>);

impl Rolls {
    /// Whether the pool of this Swarm may roll now. Then it counts until it `has_rolled`.
    pub(super) fn may_begin(&self, uid: &str, has_rolled: impl Fn(&str) -> bool) -> bool {
        let mut rolls = unpoisoned(&self.0);
        rolls.retain(|uid, since| {
            let age = since.elapsed();
            age < SHOWN_WITHIN || (age < ROLLS_WITHIN && !has_rolled(uid))
        });
        if AT_A_TIME <= rolls.len() && !rolls.contains_key(uid) {
            return false;
        }
        rolls.insert(uid.to_owned(), Instant::now());
        true
    }
}

/// Whether all pods of a Deployment are of its newest template and available.
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

/// The same of a StatefulSet.
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

    #[tokio::test(start_paused = true)]
    async fn five_pools_roll_at_a_time_and_a_broken_one_does_not_hold_up_others_for_ever() {
        let rolls = Rolls::default();
        let never = |_: &str| false;
        assert!((0..5).all(|n| rolls.may_begin(&n.to_string(), never)));
        assert!(!rolls.may_begin("5", never));
        assert!(rolls.may_begin("0", never), "it counts once");
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(rolls.may_begin("5", |uid| uid == "3"));
        assert!(!rolls.may_begin("6", never));
        tokio::time::advance(ROLLS_WITHIN).await;
        assert!(rolls.may_begin("6", never));
    }

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
