//! Claims of pods that a Swarm selects by labels. An annotation claims each pod before it gets
//! jobs, so two Swarms with overlapping labels never share a pod.

use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use swarm_client::annotations::CLAIM_ANNOTATION;
use swarm_client::api::Swarm;
use swarm_core::ports::StoreError;

use super::Workloads;
use super::observe::is_terminal;
use super::workload::Kind;
use crate::requests::bounded;
use crate::status::{Reason, RefusedRequest, Verdict};
use crate::turn::Turn;
use crate::watch::cached::{has_labels, with_pool, with_uid};
use crate::watch::caches::Caches;

/// The number of pods that are claimed at a time.
const AT_A_TIME: usize = 16;

/// The pods with the labels that a Swarm selects.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// The pods of this Swarm.
    pub(crate) own: Vec<Arc<Pod>>,
    /// The pods that no Swarm has claimed yet.
    pub(crate) free: Vec<Arc<Pod>>,
    /// The pods of other Swarms: the names of the pod and of its Swarm.
    pub(crate) foreign: Vec<(String, String)>,
}

impl Caches {
    /// The pods with the labels that `swarm` selects. O(pods of the namespace).
    pub(crate) fn members(&self, swarm: &Swarm) -> Members {
        let mut members = Members::default();
        for pod in self.pools.non_statefulset.pods_in(&swarm.namespace().unwrap_or_default()) {
            // A pod that has ended is not a worker any longer, whichever Swarm had it.
            if !is_meant(swarm, &pod) || is_terminal(&pod) {
                continue;
            }
            match self.other_swarm(swarm, &pod) {
                Some(other) => members.foreign.push((pod.name_any(), other)),
                None if is_claimed(swarm, &pod) => members.own.push(pod),
                None => members.free.push(pod),
            }
        }
        members
    }

    /// The name of another Swarm that has this pod, by its claim or because the pod's workload is
    /// its pool.
    fn other_swarm(&self, swarm: &Swarm, pod: &Pod) -> Option<String> {
        let is_other = |other: &Arc<Swarm>| other.metadata.uid != swarm.metadata.uid;
        let claim = pod.annotations().get(CLAIM_ANNOTATION);
        let mut others = claim.map(|uid| self.swarms.with(&with_uid(uid))).unwrap_or_default();
        others.retain(|other| is_meant(other, pod));
        if let Some((name, _)) = self.pools.non_statefulset.deployment_of(pod) {
            let namespace = pod.namespace().unwrap_or_default();
            let named = with_pool(Kind::Deployment, &namespace, Some(&name));
            others.extend(self.swarms.with(&named));
            let mut labelled = self.swarms.with(&with_pool(Kind::Deployment, &namespace, None));
            labelled.retain(|other| self.pool_of(other).is_ok_and(|pool| pool.name == name));
            others.extend(labelled);
        }
        others.iter().find(|other| is_other(other)).map(|other| other.name_any())
    }
}

/// Whether a pod has the labels that `swarm` selects.
fn is_meant(swarm: &Swarm, pod: &Pod) -> bool {
    let labels = swarm.spec.pool.pods.as_ref().map(|pods| &pods.match_labels);
    labels.is_some_and(|labels| !labels.is_empty() && has_labels(pod, labels))
}

fn is_claimed(swarm: &Swarm, pod: &Pod) -> bool {
    pod.annotations().get(CLAIM_ANNOTATION) == swarm.metadata.uid.as_ref()
}

/// Whether a change of this pod may concern `swarm`: the pod has the labels, or had them.
pub(crate) fn may_concern(swarm: &Swarm, pod: &Pod) -> bool {
    is_meant(swarm, pod) || is_claimed(swarm, pod)
}

impl Members {
    /// The verdict on pods that belong to other Swarms.
    pub(crate) fn complaint(&self) -> Option<Verdict> {
        const SHOWN: usize = 5;
        let mut shown: Vec<_> = self.foreign.iter().collect();
        shown.sort();
        let shown = shown.iter().take(SHOWN).map(|(pod, swarm)| format!("`{pod}` to `{swarm}`"));
        let shown: Vec<_> = shown.collect();
        let more = self.foreign.len().saturating_sub(SHOWN);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let message = format!(
            "{} pods with the labels in spec.pool.pods belong to other Swarms and are left to them: \
             {}{more}; give each Swarm labels that no other pods have",
            self.foreign.len(),
            shown.join(", ")
        );
        (!shown.is_empty()).then_some(Verdict { reason: Reason::PodsClaimed, message })
    }
}

impl Workloads {
    /// Claims the free pods. A claim counts once the watch shows it. A refused claim does not delay
    /// the others.
    pub(crate) async fn claim(
        &self,
        turn: &mut Turn<'_>,
        free: &[Arc<Pod>],
    ) -> Result<(), StoreError> {
        let swarm = turn.swarm;
        let api: Api<Pod> = Api::namespaced(self.client.clone(), turn.namespace);
        let claim = |pod: Arc<Pod>| {
            let (api, owner) = (api.clone(), swarm.uid());
            async move {
                let name = pod.name_any();
                // A concurrent claim changes the version, so one of the two writes conflicts.
                let patch = Patch::Merge(json!({"metadata": {
                    "uid": pod.uid(),
                    "resourceVersion": pod.resource_version(),
                    "annotations": {CLAIM_ANNOTATION: owner},
                }}));
                let params = PatchParams::default();
                bounded(format!("pod `{name}`"), api.patch_metadata(&name, &params, &patch)).await
            }
        };
        let stays = |pod: &&Arc<Pod>| pod.metadata.deletion_timestamp.is_none();
        let due: Vec<_> = free.iter().filter(stays).cloned().map(claim).collect();
        let mut claims = futures::stream::iter(due).buffer_unordered(AT_A_TIME);
        while let Some(claimed) = claims.next().await {
            match claimed {
                // After a conflict the pod was removed, changed or claimed by another Swarm. The
                // watch reports it.
                Ok(_) | Err(StoreError::Conflict { .. }) => {}
                Err(StoreError::Refused { reason, .. }) => {
                    self.metrics.count_refused(RefusedRequest::Claim);
                    turn.refusals.add(RefusedRequest::Claim, reason);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn swarm(uid: &str, labels: &serde_json::Value) -> Swarm {
        let spec = json!({"pool": {"pods": {"matchLabels": labels}}});
        let metadata = json!({"name": uid, "namespace": "n", "uid": uid});
        let (version, kind) = (swarm_client::api::API_VERSION, "Swarm");
        let object =
            json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec});
        serde_json::from_value(object).unwrap()
    }

    fn pod(labels: &serde_json::Value, claim: &str) -> Pod {
        let annotations = json!({CLAIM_ANNOTATION: claim});
        let metadata = json!({"name": "p", "labels": labels, "annotations": annotations});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    #[test]
    fn a_pod_concerns_the_swarm_whose_labels_it_has_or_had() {
        let swarm = swarm("s", &json!({"app": "w", "tier": "x"}));
        assert!(may_concern(&swarm, &pod(&json!({"app": "w", "tier": "x", "more": "y"}), "")));
        assert!(!may_concern(&swarm, &pod(&json!({"app": "w"}), "other")));
        assert!(may_concern(&swarm, &pod(&json!({}), "s")), "it was claimed");
        assert!(!is_meant(&swarm, &pod(&json!({}), "s")), "and is not meant any more");
    }

    #[test]
    fn the_message_about_foreign_pods_is_bounded() {
        let foreign = (0..7).map(|n| (format!("w-{n}"), "a".to_owned())).collect();
        let members = Members { foreign, ..Members::default() };
        let message = members.complaint().unwrap().message;
        assert!(message.starts_with("7 pods with the labels"), "{message}");
        assert!(message.contains("`w-4` to `a` and 2 more; give"), "{message}");
        assert_eq!(Members::default().complaint(), None);
    }
}
