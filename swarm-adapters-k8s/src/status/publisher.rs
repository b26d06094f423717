//! Writes Events about Swarms.

use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::events::EventType;
use kube::{Client, Resource as _};
use serde_json::json;
use swarm_client::api::Swarm;

use super::events::{Due, Recorder, Says};
use super::{EventReason, RefusedRequest, Verdict};
use crate::metrics::Metrics;
use crate::requests::REQUEST_TIMEOUT;
use crate::turn::named;

/// Writes Events about Swarms, as many as the recorder allows.
pub(crate) struct EventPublisher {
    client: Client,
    recorder: Recorder,
    metrics: Metrics,
}

impl EventPublisher {
    /// Publishes as `member`, the name of this replica.
    pub(crate) fn new(client: Client, member: String, metrics: Metrics) -> Self {
        Self { client, recorder: Recorder::new(member), metrics }
    }

    /// Publishes an Event about `swarm`. Events are for people, so a lost Event is no error.
    pub(crate) async fn publish(&self, swarm: &Swarm, reason: EventReason, note: String) {
        self.write(swarm, reason.type_(), reason.as_str(), note).await;
    }

    /// Publishes an Event about the condition `Ready`.
    pub(crate) async fn publish_verdict(&self, swarm: &Swarm, verdict: Verdict) {
        let Verdict { reason, message } = verdict;
        let type_ = if reason.is_warning() { EventType::Warning } else { EventType::Normal };
        self.write(swarm, type_, reason.as_str(), message).await;
    }

    async fn write(&self, swarm: &Swarm, type_: EventType, reason: &str, note: String) {
        let says = Says { type_, reason: reason.into(), note };
        let (namespace, name) = named(swarm);
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let due = self.recorder.due(swarm.object_ref(&()), says.clone());
        let published = async {
            match due {
                Due::Create(event) => api.create(&PostParams::default(), &event).await.map(drop),
                Due::Repeat { name, series } => {
                    let patch = Patch::Merge(json!({"series": series}));
                    api.patch(&name, &PatchParams::default(), &patch).await.map(drop)
                }
                Due::Nothing => {
                    tracing::info!(swarm = name, reason, "too many Events; one was dropped");
                    Ok(())
                }
            }
        };
        let published = tokio::time::timeout(REQUEST_TIMEOUT, published).await;
        if !matches!(published, Ok(Ok(()))) {
            self.recorder.forget(swarm.metadata.uid.as_deref().unwrap_or_default(), &says);
        }
        match published {
            Ok(Ok(())) => {}
            // A namespace that is being deleted accepts no Events.
            Ok(Err(kube::Error::Api(status))) if status.is_forbidden() => {
                self.metrics.count_refused(RefusedRequest::Event);
                tracing::info!(reason = status.message, "an Event was refused");
            }
            Ok(Err(error)) => tracing::warn!(%error, "an Event was not written"),
            Err(elapsed) => tracing::warn!(%elapsed, "an Event was not written"),
        }
    }
}
