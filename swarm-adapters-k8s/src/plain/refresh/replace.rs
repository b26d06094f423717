//! Replaces pods that run old jobs, by eviction, which respects disruption budgets, or by deletion.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use kube::core::Status;
use serde_json::json;
use swarm_client::api::RefreshMode;
use swarm_core::ports::StoreError;
use tokio::time::Instant;

use super::{KnownPods, PlainWorkers};
use crate::metrics::RefreshLabels;
use crate::plain::filled_slots::Live;
use crate::plain::refresh_order::Refresh;
use crate::plain::view::Published;
use crate::pool::workload::Workload;
use crate::requests::bounded;

/// The pause after a pod could not be replaced.
const BLOCKED_FOR: Duration = Duration::from_secs(5);

/// The result of a replacement.
enum Outcome {
    Replaced,
    /// The pod no longer exists, or another one has its name.
    Past,
    /// A budget or a rule of the API server forbids the replacement. The text is a sentence that
    /// says why.
    Blocked(String),
}

/// The replacements of one turn.
#[derive(Clone, Copy)]
pub(super) struct Replacing<'a> {
    pub(super) mode: RefreshMode,
    pub(super) plan: &'a Refresh,
    /// The publication that the new pods have to read.
    pub(super) version: u64,
}

impl PlainWorkers {
    /// Replaces pods until a replacement fails. Returns the time until the next attempt.
    pub(super) async fn replace(
        &self,
        pool: &Workload,
        live: &[Live],
        Replacing { mode, plan, version }: Replacing<'_>,
        pods: &mut KnownPods,
    ) -> Result<Option<Duration>, StoreError> {
        pods.replaced.retain(|_, (_, of)| *of == version);
        if plan.replace.is_empty() {
            // While the most allowed workers are unavailable, nothing is known about the budget.
            pods.blocked.take_if(|_| !plan.is_full);
            return Ok(None);
        }
        let blocked = pods.blocked.as_ref();
        let left = blocked.map(|(at, _)| BLOCKED_FOR.saturating_sub(at.elapsed()));
        if let Some(left) = left.filter(|left| !left.is_zero()) {
            return Ok(Some(left));
        }
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pool.namespace);
        let stale = |slot| live.iter().find(|it| it.slot == slot);
        for it in plan.replace.iter().filter_map(|slot| stale(*slot)) {
            let outcome = replace(&api, mode, it).await?;
            let result = match &outcome {
                Outcome::Replaced if mode == RefreshMode::Delete => "deleted",
                Outcome::Replaced => "evicted",
                Outcome::Past => "past",
                Outcome::Blocked(_) => "blocked",
            };
            self.metrics.refreshes.get_or_create(&RefreshLabels { result }).inc();
            if let Outcome::Blocked(why) = outcome {
                pods.blocked = Some((Instant::now(), why));
                return Ok(Some(BLOCKED_FOR));
            }
            pods.blocked = None;
            pods.by_uid.entry(it.uid.clone()).or_default().is_replaced = true;
            pods.replaced.insert(it.pod.name_any(), (it.uid.clone(), version));
            tracing::info!(pod = it.pod.name_any(), result, "pod replaced, to read its new jobs");
        }
        Ok(None)
    }
}

async fn replace(api: &Api<Pod>, mode: RefreshMode, it: &Live) -> Result<Outcome, StoreError> {
    let (name, uid) = (it.pod.name_any(), Some(it.uid.clone()));
    // The cache may be stale, so the replacement requires the pod's current state.
    let found = bounded(format!("pod `{name}`"), api.get_metadata_opt(&name)).await?;
    let Some(found) = found.filter(|pod| pod.metadata.uid == uid) else {
        return Ok(Outcome::Past);
    };
    if found.metadata.deletion_timestamp.is_some() {
        return Ok(Outcome::Past);
    }
    let resource_version = found.metadata.resource_version;
    let preconditions = Some(Preconditions { uid, resource_version });
    let params = DeleteParams { preconditions, ..DeleteParams::default() };
    let request = async {
        let answer = match mode {
            RefreshMode::Delete => api.delete(&name, &params).await.map(drop),
            RefreshMode::Evict | RefreshMode::HotReload | RefreshMode::None => {
                evict(api, &name, &params).await
            }
        };
        match answer {
            Err(kube::Error::Api(status)) if status.code == 429 => {
                let why = format!(
                    "pod `{name}` may not be evicted now: {}; loosen the disruption budget, add \
                     workers, or set refresh.mode to Delete",
                    status.message.trim_end_matches('.')
                );
                Ok(Outcome::Blocked(why))
            }
            Err(kube::Error::Api(status)) if status.is_forbidden() || status.is_invalid() => {
                Ok(Outcome::Blocked(format!("pod `{name}` was not replaced: {}", status.message)))
            }
            answer => answer.map(|()| Outcome::Replaced),
        }
    };
    // After a conflict, which is a concurrent change, the next turn sees the pod's state.
    bounded(format!("pod `{name}`"), request).await
}

/// Requests an eviction. The request that kube builds calls the options `delete_options`. The API
/// server does not know that name, so it ignores the options and their preconditions.
async fn evict(api: &Api<Pod>, name: &str, params: &DeleteParams) -> kube::Result<()> {
    let eviction = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name},
        "deleteOptions": params,
    });
    let post = PostParams::default();
    api.create_subresource::<_, Status>("eviction", name, &post, &eviction).await.map(drop)
}

/// Records the pods that were created after the publication `published`, and so started with it.
pub(crate) fn note_started<'a>(
    published: &Published,
    pods: impl IntoIterator<Item = &'a Arc<Pod>>,
    known: &mut KnownPods,
) {
    for pod in pods {
        let (Some(uid), Some(created)) = (pod.uid(), pod.creation_timestamp()) else { continue };
        if pod.annotations().contains_key(crate::annotations::STARTED_ANNOTATION) {
            continue;
        }
        let predecessor = known.replaced.get(&pod.name_any()).filter(|(of, _)| *of != uid);
        // Both times are the API server's, in whole seconds, so the order within one second is
        // unknown. The exception is a pod whose name was in use until its predecessor was replaced.
        let version = match predecessor {
            _ if published.at < created.0 => published.version,
            Some((_, version)) => *version,
            None => continue,
        };
        let known = known.by_uid.entry(uid).or_default();
        if known.has < version {
            known.has = version;
            known.started = Some(version);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: &str = "2026-03-01T12:00:07Z";

    fn pod(uid: &str, created: &str) -> Arc<Pod> {
        let metadata = json!({"name": "plain-0", "uid": uid, "creationTimestamp": created});
        Arc::new(serde_json::from_value(json!({"metadata": metadata})).unwrap())
    }

    fn started(known: &mut KnownPods, pod: &Arc<Pod>) -> u64 {
        let published = Published { version: 4, at: SECOND.parse().unwrap() };
        note_started(&published, [pod], known);
        known.by_uid.get(&pod.uid().unwrap()).map_or(0, |known| known.has)
    }

    #[test]
    fn a_pod_of_the_second_of_a_publication_may_not_have_it() {
        assert_eq!(started(&mut KnownPods::default(), &pod("b", SECOND)), 0);
        assert_eq!(started(&mut KnownPods::default(), &pod("b", "2026-03-01T12:00:08Z")), 4);
    }

    #[test]
    fn the_successor_of_a_replaced_pod_has_what_was_published_before() {
        let mut known = KnownPods::default();
        known.replaced.insert("plain-0".into(), ("a".into(), 4));
        assert_eq!(started(&mut known, &pod("a", SECOND)), 0, "the one that was replaced");
        assert_eq!(started(&mut known, &pod("b", SECOND)), 4);
    }
}
