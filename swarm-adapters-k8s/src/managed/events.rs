//! What only Events tell of a managed pool whose pods do not run: which pull secret is missing, and why a
//! StatefulSet makes no pods. They are read once for each trouble, by the rights that managed pools have:
//! a cluster has many Events, and a pool that runs needs none of them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use tracing::debug;

use super::ManagedPools;
use crate::pool::trouble;
use crate::pool::workload::{Kind, Workload};
use crate::turn::Turn;

/// Of one object and for one reason there are few, since repeats are counted in one Event.
const EVENTS_MAX: u32 = 50;
/// Of a kubelet that looks for the pull secrets of a pod.
const NO_SECRET: &str = "FailedToRetrieveImagePullSecret";
/// Of a controller whose pods are refused.
const NOT_MADE: &str = "FailedCreate";

/// The trouble of a pool that Events were read for, and what they say. Whoever has lost it reads them
/// once more.
#[derive(Debug, Default)]
pub(crate) struct Explained {
    of: Option<Trouble>,
    says: Option<String>,
}

/// Why pods do not run, or are not made.
#[derive(Debug, PartialEq, Eq)]
struct Trouble {
    /// What is known without Events.
    sentence: String,
    /// The UID of the object, and the reason, of Events that tell more.
    told_by: Option<(String, &'static str)>,
}

impl Explained {
    /// The trouble with what Events say of it.
    fn shown(&self) -> Option<String> {
        let sentence = self.of.as_ref()?.sentence.clone();
        Some(match &self.says {
            Some(says) => format!("{sentence}; an Event says: {says}"),
            None => sentence,
        })
    }
}

impl Trouble {
    /// The trouble of a pool, if there is any.
    fn of<'a>(pool: &Workload, pods: impl Iterator<Item = &'a Pod>) -> Option<Self> {
        if let Some((pod, sentence)) = trouble::shown(pods) {
            let uid = pod.uid().filter(|_| trouble::may_lack_a_secret(pod));
            return Some(Self { sentence, told_by: uid.map(|uid| (uid, NO_SECRET)) });
        }
        let sentence = pool.trouble.clone()?;
        let is_told = pool.kind == Kind::StatefulSet;
        Some(Self { sentence, told_by: is_told.then(|| (pool.uid.clone(), NOT_MADE)) })
    }
}

impl ManagedPools {
    /// Why pods of `pool` do not run, or are not made, if that is known.
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
        let told_by = trouble.as_ref().and_then(|trouble| trouble.told_by.as_ref());
        let told_by = told_by.filter(|_| turn.swarm.spec.pool.managed.is_some());
        let says = match told_by {
            Some((uid, reason)) => self.events(&pool.namespace, uid, reason).await,
            None => Ok(None),
        };
        match says {
            Ok(says) => *explained = Explained { of: trouble, says },
            // It is only an explanation: the turn goes on, and the next one asks again.
            Err(error) => {
                debug!("Events of {} were not read: {error}", pool.name);
                *explained = Explained::default();
                return trouble.map(|trouble| trouble.sentence);
            }
        }
        explained.shown()
    }

    /// What the latest Event with this reason says of an object.
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

/// What the latest of some Events says.
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
        assert_eq!(of_set.told_by, Some(("set".to_owned(), NOT_MADE)));

        let lacks =
            pod("image `x` cannot be pulled, its pull secrets are `a`: each must exist here");
        let of_pod = Trouble::of(&pool, [&lacks].into_iter()).unwrap();
        assert_eq!(of_pod.told_by, Some(("u0".to_owned(), NO_SECRET)));
        let full = pod("no node takes it: full");
        let full = Trouble::of(&pool, [&full].into_iter()).unwrap();
        assert_eq!(full.told_by, None, "the pod tells it itself");
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
