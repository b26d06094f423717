//! The pods that were seen to have terminated. Termination is final, so this record outlives the
//! pod.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;

use crate::locks::unpoisoned;

/// The number of pods to remember. Forgetting one costs only time: the grace of its Lease has to
/// elapse.
const REMEMBERED: usize = 20_000;

/// The pods whose processes were seen to have ended, by UID. Its clones share one state.
#[derive(Clone, Default)]
pub(crate) struct Ended(Arc<Mutex<Remembered>>);

#[derive(Default)]
struct Remembered {
    pods: BTreeSet<String>,
    order: VecDeque<String>,
}

impl Ended {
    /// Records whether a pod has terminated. For a deleted pod, `pod` is its last known state.
    pub(crate) fn note(&self, pod: &Pod) {
        if let Some(uid) = pod.uid().filter(|_| has_terminated(pod)) {
            unpoisoned(&self.0).note(uid, REMEMBERED);
        }
    }

    pub(crate) fn contains(&self, pod_uid: &str) -> bool {
        unpoisoned(&self.0).pods.contains(pod_uid)
    }
}

impl Remembered {
    fn note(&mut self, uid: String, most: usize) {
        if self.pods.insert(uid.clone()) {
            self.order.push_back(uid);
        }
        while most < self.order.len() {
            let oldest = self.order.pop_front();
            oldest.map(|oldest| self.pods.remove(&oldest));
        }
    }
}

/// Whether the kubelet reports that all containers of the pod have terminated. The phase alone
/// proves nothing: Kubernetes also sets it for pods on unreachable nodes.
pub(crate) fn has_terminated(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let is_over = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    let mut containers = status.container_statuses.iter().flatten().peekable();
    is_over && containers.peek().is_some() && containers.all(is_terminated)
}

fn is_terminated(container: &ContainerStatus) -> bool {
    container.state.as_ref().is_some_and(|state| state.terminated.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(phase: &str, states: &[&str]) -> Pod {
        let containers = states.iter().map(|state| {
            let detail = if *state == "terminated" { json!({"exitCode": 0}) } else { json!({}) };
            json!({
                "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": {*state: detail},
            })
        });
        let containers: Vec<_> = containers.collect();
        let said = json!({"phase": phase, "containerStatuses": containers});
        serde_json::from_value(json!({"metadata": {"uid": "u"}, "status": said})).unwrap()
    }

    #[test]
    fn a_pod_has_ended_only_if_all_its_containers_have() {
        for phase in ["Succeeded", "Failed"] {
            assert!(has_terminated(&pod(phase, &["terminated", "terminated"])));
            assert!(!has_terminated(&pod(phase, &["terminated", "running"])));
            assert!(!has_terminated(&pod(phase, &[])), "nobody speaks of containers");
        }
        assert!(!has_terminated(&pod("Running", &["terminated"])), "it starts again");
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_oldest_goes_first() {
        let mut remembered = Remembered::default();
        for uid in ["a", "b", "a", "c"] {
            remembered.note(uid.to_owned(), 2);
        }
        assert_eq!(remembered.pods.iter().map(String::as_str).collect::<Vec<_>>(), ["b", "c"]);
    }
}
