//! Events about a managed pool whose pods do not run. Only they state which pull secret is missing,
//! and why a StatefulSet creates no pods.
//!
//! The operator reads them once for each problem, with its rights for managed pools. A cluster has
//! many Events, and a healthy pool needs none of them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use tracing::debug;

use super::ManagedPools;
use crate::pool::trouble;
use crate::pool::workload::{Kind, Workload};
use crate::turn::Turn;

/// The most Events to read. One object and reason have few, since one Event counts all repeats.
const EVENTS_MAX: u32 = 50;
/// The kubelet's reason if it cannot read a pull secret of a pod.
const NO_SECRET: &str = "FailedToRetrieveImagePullSecret";
/// A controller's reason if its pods are refused.
const NOT_MADE: &str = "FailedCreate";

/// The problem for which Events were read, and their text. A process that has lost it reads them
/// again.
#[derive(Debug, Default)]
pub(crate) struct Explained {
    of: Option<Trouble>,
    says: Option<String>,
}

/// A problem of a pool: its pods do not run, or are not created.
#[derive(Debug, PartialEq, Eq)]
struct Trouble {
    /// The sentence that needs no Events.
    sentence: String,
    /// The UID and the reason of the Events that explain the problem.
    explained_by: Option<(String, &'static str)>,
}

impl Explained {
    /// The sentence about the problem, with the text of its Event.
    fn shown(&self) -> Option<String> {
        let sentence = self.of.as_ref()?.sentence.clone();
        Some(match &self.says {
            Some(says) => format!("{sentence}; an Event says: {says}"),
            None => sentence,
        })
    }
}

impl Trouble {
    /// The problem of a pool, if it has one.
    fn of<'a>(pool: &Workload, pods: impl Iterator<Item = &'a Pod>) -> Option<Self> {
        if let Some((pod, sentence)) = trouble::shown(pods) {
            let uid = pod.uid().filter(|_| trouble::may_lack_a_secret(pod));
            return Some(Self { sentence, explained_by: uid.map(|uid| (uid, NO_SECRET)) });
        }
        let sentence = pool.trouble.clone()?;
        let is_explained = pool.kind == Kind::StatefulSet;
        Some(Self { sentence, explained_by: is_explained.then(|| (pool.uid.clone(), NOT_MADE)) })
    }
}

impl ManagedPools {
    /// Explains why pods of `pool` do not run, or are not created, if known.
    pub(crate) async fn explain(
        &self,
        turn: &Turn<'_>,
        pool: &Workload,
        pods: &[Arc<Pod>],
        explained: &mut Explained,
    ) -> Option<String> {
        let trouble = Trouble::of(pool, pods.iter().map(|pod| &**pod));
        if explained.of == trouble {
            return explained.shown();
        }
        let explained_by = trouble.as_ref().and_then(|trouble| trouble.explained_by.as_ref());
        let explained_by = explained_by.filter(|_| turn.swarm.spec.pool.managed.is_some());
        let says = match explained_by {
            Some((uid, reason)) => self.events(&pool.namespace, uid, reason).await,
            None => Ok(None),
        };
        match says {
            Ok(says) => *explained = Explained { of: trouble, says },
            // The explanation is optional: the turn goes on, and the next turn asks again.
            Err(error) => {
                debug!("Events of {} were not read: {error}", pool.name);
                *explained = Explained::default();
                return trouble.map(|trouble| trouble.sentence);
            }
        }
        explained.shown()
    }

    /// The text of the latest Event about an object with this reason.
    async fn events(
        &self,
        namespace: &str,
        uid: &str,
        reason: &str,
    ) -> kube::Result<Option<String>> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let of_it = format!("involvedObject.uid={uid},reason={reason}");
        let params = ListParams::default().fields(&of_it).limit(EVENTS_MAX);
        Ok(latest(events.list(&params).await?.items))
    }
}

/// The text of the latest of these Events.
fn latest(events: Vec<Event>) -> Option<String> {
    let time = |event: &Event| {
        let last = event.last_timestamp.as_ref().map(|time| time.0);
        last.or_else(|| event.event_time.as_ref().map(|time| time.0))
    };
    let latest = events.into_iter().max_by_key(time)?;
    Some(trouble::quoted(latest.message.as_deref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(why: &str) -> Pod {
        let metadata = json!({"name": "w-0", "uid": "u0"});
        serde_json::from_value(json!({"metadata": metadata, "status": {"message": why}})).unwrap()
    }

    #[test]
    fn events_are_read_of_a_pod_that_may_lack_a_secret_and_of_a_set_without_pods() {
        let set = json!({"metadata": {"name": "w", "namespace": "n", "uid": "set"}});
        let set: k8s_openapi::api::apps::v1::StatefulSet = serde_json::from_value(set).unwrap();
        let mut pool = Workload::from(&set);
        assert_eq!(Trouble::of(&pool, std::iter::empty()), None);
        pool.trouble = Some("0 of 2 pods are made".into());
        let of_set = Trouble::of(&pool, std::iter::empty()).unwrap();
        assert_eq!(of_set.explained_by, Some(("set".to_owned(), NOT_MADE)));

        let lacks = pod("image `x` cannot be pulled, its pull secrets are `a`: each must");
        let of_pod = Trouble::of(&pool, [&lacks].into_iter()).unwrap();
        assert_eq!(of_pod.explained_by, Some(("u0".to_owned(), NO_SECRET)));
        let full = pod("no node takes it: full");
        let full = Trouble::of(&pool, [&full].into_iter()).unwrap();
        assert_eq!(full.explained_by, None, "the pod reports it itself");
    }

    #[test]
    fn the_latest_event_is_quoted() {
        let event = |time: &str, message: &str| -> Event {
            serde_json::from_value(json!({
                "metadata": {}, "involvedObject": {}, "message": message, "lastTimestamp": time,
            }))
            .unwrap()
        };
        let old = event("2024-01-01T00:00:00Z", "quota: old");
        let new = event("2024-01-02T00:00:00Z", "quota: new");
        assert_eq!(latest(vec![new, old]).as_deref(), Some("quota: new"));
        assert_eq!(latest(Vec::new()), None);
    }
}
