//! The status of the members of a group in their Leases: for people, and for dashboards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::coordination::v1::Lease as Object;
use kube::ResourceExt as _;
use serde::Serialize;
use serde_json::{Map, Value, json};
use swarm_core::handover::Moment;

use crate::machine::{ControllerStatus, ReplicaStatus};

/// The annotation with the status of a member, as JSON. Each renewal of its Lease writes it.
pub const STATUS_ANNOTATION: &str = "replicas.k8slab.info/status";
/// The largest size of the status that is written and read, in bytes.
const STATUS_BYTES_MAX: usize = 16 << 10;
/// The largest number of named members that keep a share locked.
const NAMED_MAX: usize = 10;

/// A member of a group, as its Lease shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Listed {
    /// The name of its Lease.
    pub member: String,
    /// Whether it holds its Lease. After a crash this stays true until the Lease has ended.
    pub is_alive: bool,
    /// The time of its last renewal, by its own clock.
    pub renewed: Option<String>,
    /// Its status; null if that is not JSON.
    pub status: Value,
}

/// The members whose Leases exist.
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    all: BTreeMap<String, Listed>,
    /// The members in the list that is being read.
    fresh: BTreeSet<String>,
}

impl Registry {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn all(&self) -> Vec<Listed> {
        self.state().all.values().cloned().collect()
    }

    /// Records an existing Lease.
    pub(crate) fn note(&self, object: &Object) {
        let listed = listed(object);
        let mut state = self.state();
        state.fresh.insert(listed.member.clone());
        state.all.insert(listed.member.clone(), listed);
    }

    pub(crate) fn forget(&self, object: &Object) {
        let (mut state, name) = (self.state(), object.name_any());
        state.fresh.remove(&name);
        state.all.remove(&name);
    }

    /// Starts a list of all Leases. Known members stay until the list has ended without them. So
    /// no member seems to have left, or to host no controller, while the list arrives.
    pub(crate) fn list_begins(&self) {
        self.state().fresh.clear();
    }

    /// Ends the list.
    pub(crate) fn list_ends(&self) {
        let mut state = self.state();
        let fresh = std::mem::take(&mut state.fresh);
        state.all.retain(|member, _| fresh.contains(member));
    }
}

fn listed(object: &Object) -> Listed {
    let member = object.name_any();
    let spec = object.spec.as_ref();
    let holder = spec.and_then(|spec| spec.holder_identity.as_deref());
    let renewed = spec.and_then(|spec| spec.renew_time.as_ref()).map(|at| at.0.to_string());
    let status = object.annotations().get(STATUS_ANNOTATION);
    let status = status.filter(|text| text.len() <= STATUS_BYTES_MAX);
    let status = status.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    Listed { is_alive: holder == Some(&*member), member, renewed, status }
}

/// Returns additions to the status of a member.
pub(crate) type StatusDetails = Arc<dyn Fn() -> Map<String, Value> + Send + Sync>;

/// Returns the status of a member at `now`, as text.
pub(crate) fn text(status: &ReplicaStatus, now: Moment, details: Option<&StatusDetails>) -> String {
    let mut all = details.map(|details| details()).unwrap_or_default();
    let controllers = status.controllers.iter();
    let controllers =
        controllers.map(|(name, it)| (String::from(name.clone()), controller(it, now)));
    all.insert("controllers".to_owned(), Value::Object(controllers.collect()));
    if !status.problems.is_empty() {
        all.insert("problems".to_owned(), json!(status.problems));
    }
    let text = Value::Object(all).to_string();
    if text.len() <= STATUS_BYTES_MAX { text } else { "{}".to_owned() }
}

fn controller(it: &ControllerStatus, now: Moment) -> Value {
    let ControllerStatus { owned, stopping, locked, waits_for } = it;
    let mut of = json!({"buckets": owned});
    if 0 < *stopping {
        of["stopping"] = json!(stopping);
    }
    if let Some(since) = locked.values().min() {
        let names: Vec<_> = waits_for.iter().take(NAMED_MAX).map(ToString::to_string).collect();
        of["locked"] = json!({
            "buckets": locked.len(), "forSeconds": now.since(*since).as_secs(), "waitsFor": names,
        });
    }
    of
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::machine::{Bucket, MemberId};

    use super::*;

    #[test]
    fn locked_buckets_are_reported_with_their_time_and_the_members_that_keep_them() {
        let at = |seconds| Moment(Duration::from_secs(seconds));
        let bucket = |number| Bucket::new(number).unwrap();
        let locked = [(bucket(1), at(7)), (bucket(2), at(5))].into();
        let waits_for = [MemberId::new("other", 1).unwrap()].into();
        let of = ControllerStatus { owned: 9, stopping: 0, locked, waits_for };
        let controllers = [("labels".parse().unwrap(), of)].into();
        let status = ReplicaStatus { controllers, ..ReplicaStatus::default() };
        let details: StatusDetails =
            Arc::new(|| Map::from_iter([("version".to_owned(), json!("1"))]));
        let written: Value = serde_json::from_str(&text(&status, at(8), Some(&details))).unwrap();
        let expected = json!({"version": "1", "controllers": {"labels": {"buckets": 9, "locked": {
            "buckets": 2, "forSeconds": 3, "waitsFor": ["other-0000000000000001"],
        }}}});
        assert_eq!(written, expected);
    }

    #[test]
    fn while_a_list_comes_in_nobody_is_gone_who_was_there() {
        let lease = |name: &str| -> Object {
            serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
        };
        let registry = Registry::default();
        let names = || registry.all().into_iter().map(|it| it.member).collect::<Vec<_>>().join(" ");
        for name in ["a", "b"] {
            registry.note(&lease(name));
        }
        registry.list_begins();
        assert_eq!(names(), "a b");
        registry.note(&lease("b"));
        // The list restarts.
        registry.list_begins();
        for name in ["a", "c"] {
            registry.note(&lease(name));
        }
        assert_eq!(names(), "a b c");
        registry.list_ends();
        assert_eq!(names(), "a c");
    }

    #[test]
    fn a_lease_is_listed_whatever_it_says() {
        let mut object: Object = serde_json::from_value(json!({
            "metadata": {"name": "a-1", "annotations": {STATUS_ANNOTATION: "no JSON"}},
            "spec": {"holderIdentity": "a-1"},
        }))
        .unwrap();
        let found = listed(&object);
        assert_eq!((found.is_alive, found.renewed, found.status), (true, None, Value::Null));
        object.spec.as_mut().unwrap().holder_identity = Some(String::new());
        assert!(!listed(&object).is_alive, "it was closed");
        assert!(!listed(&Object::default()).is_alive);
    }
}
