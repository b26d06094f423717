//! Carries out nudges: which pods are due, in which order, and the patches themselves.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use swarm_core::ports::StoreError;
use swarm_core::{Slot, Turn};

use super::context::{Context, Memory};
use crate::ledger::bounded;
use crate::nudge::{NUDGE_ANNOTATION, Nudge, nudge};
use crate::observe::slot_of;

/// How many pods are nudged at a time.
const NUDGES_AT_A_TIME: usize = 16;

/// One pod that is to be nudged now.
struct Due {
    slot: Slot,
    uid: String,
    name: String,
    annotation: String,
}

impl Context {
    /// Nudges the pods of `pool` that may not have the newest view of their own jobs yet: those
    /// that lose jobs first, then the others. Returns when to look again.
    pub(super) async fn nudge_pods(
        &self,
        pool: &StatefulSet,
        turn: &Turn,
        memory: &mut Memory,
    ) -> Result<Option<Duration>, StoreError> {
        let pods = self.caches.pods_near(pool);
        let (found, waiting) = due(pool, &pods, turn, memory, Instant::now());
        let losers: BTreeSet<Slot> =
            turn.decision.plan.moves.iter().filter_map(|step| step.from).collect();
        let nudged_any = !found.is_empty();
        let (first, then): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|due| losers.contains(&due.slot));
        self.patch_all(pool, first, memory).await?;
        self.patch_all(pool, then, memory).await?;
        if nudged_any {
            // What comes after these attempts, a second look tells.
            return Ok(due(pool, &pods, turn, memory, Instant::now()).1);
        }
        Ok(waiting)
    }

    async fn patch_all(
        &self,
        pool: &StatefulSet,
        due: Vec<Due>,
        memory: &mut Memory,
    ) -> Result<(), StoreError> {
        let namespace = pool.namespace().unwrap_or_default();
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        let patches = due.into_iter().map(|due| {
            let api = api.clone();
            async move {
                let result = patch(&api, &due).await;
                (due, result)
            }
        });
        let mut patches = futures::stream::iter(patches).buffer_unordered(NUDGES_AT_A_TIME);
        while let Some((due, result)) = patches.next().await {
            match result {
                Ok(()) => {
                    self.metrics.nudges.inc();
                }
                // The pod is gone or another one; its successor is nudged when it is seen.
                Err(StoreError::Conflict { .. }) => {}
                // Without the nudge the view arrives all the same, only later.
                Err(StoreError::Refused { reason, .. }) => {
                    tracing::warn!(reason, "a pod was not nudged");
                }
                Err(error) => return Err(error),
            }
            memory.nudged.insert(due.uid, (due.annotation, Instant::now()));
        }
        Ok(())
    }
}

/// The pods that are due at `now`, and when the next one is.
fn due(
    pool: &StatefulSet,
    pods: &[Arc<Pod>],
    turn: &Turn,
    memory: &mut Memory,
    now: Instant,
) -> (Vec<Due>, Option<Duration>) {
    let (mut due, mut waiting, mut alive) = (Vec::new(), None, BTreeSet::new());
    for pod in pods {
        let (Some(slot), Some(uid)) = (slot_of(pool, pod), pod.uid()) else { continue };
        let Some(record) = turn.decision.ledger.slots.get(&slot) else { continue };
        let made = memory.nudged.get(&uid);
        // What an earlier process wrote is as old as can be.
        let since = made.map_or(Duration::MAX, |(_, at)| now.saturating_duration_since(*at));
        let made = made.map(|(annotation, _)| annotation);
        let annotation = made.or_else(|| pod.annotations().get(NUDGE_ANNOTATION));
        match nudge(annotation.map(String::as_str), record.version, since) {
            Nudge::Now(annotation) => {
                due.push(Due { slot, uid: uid.clone(), name: pod.name_any(), annotation });
            }
            Nudge::In(wait) => waiting = waiting.into_iter().chain([wait]).min(),
            Nudge::Done => {}
        }
        alive.insert(uid);
    }
    memory.nudged.retain(|uid, _| alive.contains(uid));
    (due, waiting)
}

async fn patch(api: &Api<Pod>, due: &Due) -> Result<(), StoreError> {
    let Due { slot: _, uid, name, annotation } = due;
    // The UID is a precondition: a pod that took the name meanwhile is not meant.
    let annotations = json!({NUDGE_ANNOTATION: annotation});
    let patch = Patch::Merge(json!({"metadata": {"uid": uid, "annotations": annotations}}));
    let params = PatchParams::default();
    bounded(format!("pod `{name}`"), api.patch_metadata(name, &params, &patch)).await.map(|_| ())
}
