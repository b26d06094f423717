//! Last seen states of the objects of managed pools, and the clients that changed them.
//!
//! The watches read only metadata. A client that changes a field of the operator takes over its
//! ownership, and the operator's entry in `managedFields` shrinks. So an object is in shape as long
//! as that entry is as it was after the last apply.
//!
//! The watches begin when the first Swarm asks for a managed pool. An operator without managed
//! pools does not need the rights for them. If the rights are missing, or are taken away, the API
//! server refuses the watches. Then the state is old, and each pool has a [complaint](MadeObjects::forbidden).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use kube::core::{NamespaceResourceScope, PartialObjectMeta};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::{self, Event};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;
use swarm_client::annotations::{SELECTOR, SWARM_LABEL};
use swarm_client::api::Swarm;
use twox_hash::XxHash3_64;

use super::rolls::Rolls;
use super::wanted::{MANAGER, MadeOf, ObjectKind};
use crate::annotations::MADE_ANNOTATION;
use crate::scope::Scope;
use crate::status::{Reason, Verdict};
use crate::version;
use crate::watch::followed::Followed;
use crate::watch::on_demand::OnDemand;
use crate::watch::rollback::Rollbacks;
use crate::watch::streams;
use crate::watch::strip::{self, Cut, Slim};

/// The last seen state of an object of a managed pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) uid: String,
    pub(crate) version: u64,
    /// Whether it is being deleted.
    pub(crate) is_going: bool,
    /// Digests of the paths of the fields that the operator owns, in order.
    pub(crate) ours: Box<[u32]>,
    /// The other client that last changed a field, preferably a field of the operator.
    pub(crate) other: Option<String>,
    /// The annotation of a workload that says which spec it was created from.
    pub(crate) made_of: Option<String>,
}

impl Seen {
    /// The current state of an object whose last seen state was `before`.
    pub(crate) fn of(object: &impl Resource, before: Option<&Self>) -> Self {
        let meta = object.meta();
        let uid = meta.uid.clone().unwrap_or_default();
        let fields = meta.managed_fields.as_deref().unwrap_or_default();
        let (ours, others): (Vec<_>, Vec<_>) = fields
            .iter()
            .filter(|entry| entry.subresource.is_none())
            .partition(|entry| entry.manager.as_deref() == Some(MANAGER));
        let ours = ours.first().map(|entry| paths(entry)).unwrap_or_default();
        let before = before.filter(|before| before.uid == uid);
        Self {
            uid,
            version: version::of(object),
            is_going: meta.deletion_timestamp.is_some(),
            other: other(&ours, &others, before),
            ours: ours.into(),
            made_of: object.annotations().get(MADE_ANNOTATION).cloned(),
        }
    }

    /// Whether a turn would see no difference.
    fn is_as(&self, other: &Self) -> bool {
        let (version, by) = (other.version, other.other.clone());
        Self { version, other: by, ..self.clone() } == *other
    }
}

/// The one of `others` that last changed a field, preferably a field that the operator has lost
/// since `before`. A client that was found stays the result until the operator has restored the
/// field.
fn other(ours: &[u32], others: &[&ManagedFieldsEntry], before: Option<&Seen>) -> Option<String> {
    let newest = |all: &[&ManagedFieldsEntry]| {
        let newest = all.iter().max_by_key(|entry| entry.time.as_ref().map(|time| time.0));
        newest.and_then(|entry| entry.manager.clone())
    };
    let Some(before) = before else { return newest(others) };
    if *before.ours == *ours {
        return before.other.clone();
    }
    let is_lost =
        |path: &u32| before.ours.binary_search(path).is_ok() && ours.binary_search(path).is_err();
    let mut takers = others.to_vec();
    takers.retain(|entry| paths(entry).iter().any(is_lost));
    // A removed field has no owner.
    newest(&takers).or_else(|| newest(others))
}

/// Digests of the paths of all fields of a manager, in order. In a stripped object they replace the
/// fields.
fn paths(entry: &ManagedFieldsEntry) -> Vec<u32> {
    fn walk(fields: &Value, outer: u64, found: &mut Vec<u32>) {
        for (name, inner) in fields.as_object().into_iter().flatten() {
            let path = XxHash3_64::oneshot_with_seed(outer, name.as_bytes());
            if inner.as_object().is_some_and(|inner| !inner.is_empty()) {
                walk(inner, path, found);
            } else {
                let [a, b, c, d, ..] = path.to_le_bytes();
                found.push(u32::from_le_bytes([a, b, c, d]));
            }
        }
    }
    let mut found = Vec::new();
    let Some(FieldsV1(fields)) = &entry.fields_v1 else { return found };
    if let Some(digests) = fields.as_array() {
        let digests = digests.iter().filter_map(Value::as_u64);
        return digests.filter_map(|digest| u32::try_from(digest).ok()).collect();
    }
    walk(fields, 0, &mut found);
    found.sort_unstable();
    found
}

/// The most fields of each other manager that are read: a normal manager has some dozens.
const PATHS_MAX: usize = 4_096;

/// Strips an object to the fields that [`Seen`] reads.
struct ObjectCut;

impl<K: Resource> Cut<K> for ObjectCut {
    fn cut(object: &mut K) {
        let meta = object.meta_mut();
        let managed = meta.managed_fields.take();
        strip::metadata(meta, &[MADE_ANNOTATION]);
        meta.managed_fields = managed;
        for entry in meta.managed_fields.iter_mut().flatten() {
            let is_ours = entry.manager.as_deref() == Some(MANAGER);
            let mut paths = paths(entry);
            if !is_ours {
                paths.truncate(PATHS_MAX);
            }
            entry.fields_v1 = Some(FieldsV1(paths.into()));
        }
    }
}

/// Kind, namespace and name of an object.
pub(crate) type Place = (ObjectKind, String, String);
/// Namespace and name of a Swarm.
type Owner = (String, String);

/// The objects of all managed pools. Clones share the state.
#[derive(Clone, Default)]
pub(crate) struct MadeObjects {
    followed: Followed<State>,
    asked: OnDemand,
}

#[derive(Default)]
struct State {
    there: BTreeMap<Place, (String, Seen)>,
    /// The complete state of one kind while it is being listed.
    fresh: BTreeMap<Place, (String, Seen)>,
    listed: BTreeSet<ObjectKind>,
    /// The kinds whose watches the API server refuses, since the operator lacks the right.
    denied: BTreeSet<ObjectKind>,
    of_swarm: BTreeMap<Owner, BTreeSet<(ObjectKind, String)>>,
    rolls: Rolls,
}

impl MadeObjects {
    /// Starts the watches, unless they have started.
    pub(crate) fn ask(&self) {
        self.asked.ask();
    }

    /// Whether all kinds were listed, and none is refused.
    pub(crate) fn is_filled(&self) -> bool {
        self.followed.is_filled() && self.followed.state().denied.is_empty()
    }

    /// Waits until each kind was listed or refused.
    pub(crate) async fn wait_until_answered(&self) {
        self.followed.wait_until_filled().await;
    }

    /// The verdict on a managed pool while the operator may not see its objects, and so cannot keep
    /// it. A refusal ends with the next complete list.
    pub(crate) fn forbidden(&self) -> Option<Verdict> {
        let denied: Vec<_> =
            self.followed.state().denied.iter().map(|kind| kind.resource().plural).collect();
        let (last, others) = denied.split_last()?;
        let denied = match others {
            [] => last.clone(),
            others => format!("{} and {last}", others.join(", ")),
        };
        let message = format!(
            "the operator has no rights for managed pools: it may not list and watch {denied}, so it \
             does not keep this pool in shape; jobs go on. Set managedPools.enabled=true in the Helm \
             chart, or apply deploy/components/managed-pools with the operator, as \
             deploy/overlays/managed does, or name a statefulSet or a deployment in spec.pool of \
             another Swarm"
        );
        Some(Verdict { reason: Reason::ManagedForbidden, message })
    }

    /// The state of an object that was created for the Swarm of this name.
    pub(crate) fn get(
        &self,
        kind: ObjectKind,
        namespace: &str,
        name: &str,
        swarm: &str,
    ) -> Option<Seen> {
        let place = (kind, namespace.to_owned(), name.to_owned());
        let state = self.followed.state();
        let found = state.there.get(&place).filter(|(of, _)| of == swarm);
        found.map(|(_, seen)| seen.clone())
    }

    /// Whether the workload at this place may roll now because of a change of the operator, which
    /// has this many `replicas`. If so, it counts as rolling until it `has_rolled`.
    pub(crate) fn may_roll(
        &self,
        place: &Place,
        replicas: usize,
        has_rolled: impl Fn(&Place) -> bool,
    ) -> bool {
        self.followed.state().rolls.may_begin(place, replicas, has_rolled)
    }

    /// All objects that were created for the Swarm of this name.
    pub(crate) fn of_swarm(&self, namespace: &str, swarm: &str) -> Vec<(ObjectKind, String)> {
        let owner = (namespace.to_owned(), swarm.to_owned());
        self.followed.state().of_swarm.get(&owner).into_iter().flatten().cloned().collect()
    }

    /// Every Swarm for which objects were created, even if it no longer exists.
    pub(crate) fn owners(&self) -> Vec<Owner> {
        self.followed.state().of_swarm.keys().cloned().collect()
    }

    /// Watches all kinds in `scope` once [`ask`](Self::ask) was called. The stream drives the
    /// watches, and yields the Swarms of changed objects.
    pub(crate) fn follow(
        &self,
        scope: &Scope,
        client: &Client,
        rollbacks: &Rollbacks,
    ) -> impl Stream<Item = ObjectRef<Swarm>> + Send + use<> {
        let all = ObjectKind::ALL.map(|kind| match kind {
            ObjectKind::ServiceAccount => {
                self.follow_kind::<ServiceAccount>(kind, scope, client, rollbacks)
            }
            ObjectKind::RoleBinding => {
                self.follow_kind::<RoleBinding>(kind, scope, client, rollbacks)
            }
            ObjectKind::ConfigMap => self.follow_kind::<ConfigMap>(kind, scope, client, rollbacks),
            ObjectKind::Service => self.follow_kind::<Service>(kind, scope, client, rollbacks),
            ObjectKind::Budget => {
                self.follow_kind::<PodDisruptionBudget>(kind, scope, client, rollbacks)
            }
            ObjectKind::Deployment => {
                self.follow_kind::<Deployment>(kind, scope, client, rollbacks)
            }
            ObjectKind::StatefulSet => {
                self.follow_kind::<StatefulSet>(kind, scope, client, rollbacks)
            }
        });
        stream::select_all(all)
    }

    fn follow_kind<K>(
        &self,
        kind: ObjectKind,
        scope: &Scope,
        client: &Client,
        rollbacks: &Rollbacks,
    ) -> BoxStream<'static, ObjectRef<Swarm>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + Sync
            + 'static,
    {
        let noted = self.clone();
        let labelled = watcher::Config::default().labels(SELECTOR);
        let api = scope.api::<Slim<PartialObjectMeta<K>, ObjectCut>>(client);
        let events = streams::events(api, labelled, rollbacks).flat_map(move |event| {
            stream::iter(match event {
                Ok(event) => noted.note(kind, event),
                Err(error) => {
                    tracing::warn!(%error, %kind, "a watch failed and is tried again");
                    noted.failed(kind, &error)
                }
            })
        });
        self.asked.once_asked(events)
    }

    fn note<K>(&self, kind: ObjectKind, event: Event<PartialObjectMeta<K>>) -> Vec<ObjectRef<Swarm>>
    where
        K: Resource<DynamicType = ()>,
        PartialObjectMeta<K>: Resource,
    {
        let mut guard = self.followed.state();
        let state = &mut *guard;
        match event {
            Event::Init => {
                state.fresh.retain(|(of, _, _), _| *of != kind);
                Vec::new()
            }
            Event::InitApply(object) => {
                let place = place(kind, &object);
                let seen = Seen::of(&object, state.before(&place));
                state.fresh.insert(place, (swarm_of(&object), seen));
                Vec::new()
            }
            Event::InitDone => {
                let is_of = |(of, _, _): &Place| *of == kind;
                let fresh: Vec<_> = state.fresh.extract_if(.., |place, _| is_of(place)).collect();
                let kept: BTreeSet<_> = fresh.iter().map(|(place, _)| place.clone()).collect();
                let gone = state.there.keys().filter(|it| is_of(it) && !kept.contains(*it));
                let gone: Vec<_> = gone.cloned().collect();
                let mut changed: Vec<_> =
                    gone.iter().filter_map(|place| state.gone(place)).collect();
                for (place, (swarm, seen)) in fresh {
                    changed.extend(state.seen(place, swarm, seen));
                }
                state.listed.insert(kind);
                if state.denied.remove(&kind) {
                    changed.extend(state.all_swarms());
                }
                if state.has_answers() {
                    self.followed.fill();
                }
                changed
            }
            Event::Apply(object) => {
                let place = place(kind, &object);
                let seen = Seen::of(&object, state.before(&place));
                state.seen(place, swarm_of(&object), seen)
            }
            Event::Delete(object) => state.gone(&place(kind, &object)).into_iter().collect(),
        }
    }

    /// Records a failure of the watch of this kind. Returns the Swarms to reconcile if the operator
    /// lacks the right for it, and had it before.
    fn failed(&self, kind: ObjectKind, error: &watcher::Error) -> Vec<ObjectRef<Swarm>> {
        let is_denied = match error {
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => {
                matches!(error, kube::Error::Api(status) if status.is_forbidden())
            }
            watcher::Error::WatchError(status) => status.is_forbidden(),
            watcher::Error::NoResourceVersion => false,
        };
        let mut state = self.followed.state();
        if !is_denied || !state.denied.insert(kind) {
            return Vec::new();
        }
        if state.has_answers() {
            self.followed.fill();
        }
        state.all_swarms()
    }
}

fn place(kind: ObjectKind, object: &impl ResourceExt) -> Place {
    (kind, object.namespace().unwrap_or_default(), object.name_any())
}

/// The Swarm for which an object was created.
fn swarm_of(object: &impl ResourceExt) -> String {
    object.labels().get(SWARM_LABEL).cloned().unwrap_or_default()
}

impl State {
    /// Whether the API server has answered about each kind: with a list, or with a refusal.
    fn has_answers(&self) -> bool {
        ObjectKind::ALL.iter().all(|kind| self.listed.contains(kind) || self.denied.contains(kind))
    }

    /// The Swarms for which objects were seen.
    fn all_swarms(&self) -> Vec<ObjectRef<Swarm>> {
        let owners = self.of_swarm.keys();
        owners.map(|(namespace, swarm)| ObjectRef::new(swarm).within(namespace)).collect()
    }

    fn before(&self, place: &Place) -> Option<&Seen> {
        self.there.get(place).map(|(_, seen)| seen)
    }

    /// Records a new or changed object. Returns the Swarms to reconcile, if a turn could see a
    /// difference.
    fn seen(&mut self, place: Place, swarm: String, seen: Seen) -> Vec<ObjectRef<Swarm>> {
        self.note_roll(&place, &seen);
        let before = self.there.get(&place);
        let is_news = before.is_none_or(|(of, before)| *of != swarm || !before.is_as(&seen));
        let is_moved = before.is_some_and(|(of, _)| *of != swarm);
        // The previous Swarm of the object may have lost it to another one.
        let mut meant = Vec::from_iter(is_moved.then(|| self.gone(&place)).flatten());
        let owner = (place.1.clone(), swarm.clone());
        self.of_swarm.entry(owner).or_default().insert((place.0, place.2.clone()));
        meant.extend(is_news.then(|| ObjectRef::new(&swarm).within(&place.1)));
        self.there.insert(place, (swarm, seen));
        meant
    }

    /// Records a rollout that this or another replica caused: the workload was created from
    /// something else before. For a workload that exists when this process starts, the cause is
    /// unknown.
    fn note_roll(&mut self, place: &Place, seen: &Seen) {
        if !place.0.is_workload() {
            return;
        }
        let parsed = |seen: &Seen| MadeOf::parse(seen.made_of.as_deref()?);
        match self.there.get(place).map(|(_, before)| parsed(before)) {
            None if !self.listed.contains(&place.0) => self.rolls.found(place),
            None => {}
            Some(before) => {
                let (before, now) = (before.unwrap_or_default(), parsed(seen).unwrap_or_default());
                if now.is_by_operator(before) {
                    self.rolls.begun(place);
                }
            }
        }
    }

    /// Records a removed object. Returns the Swarm to reconcile.
    fn gone(&mut self, place: &Place) -> Option<ObjectRef<Swarm>> {
        let swarm = self.forget(place)?;
        Some(ObjectRef::new(&swarm).within(&place.1))
    }

    fn forget(&mut self, place: &Place) -> Option<String> {
        let (swarm, _) = self.there.remove(place)?;
        let owner = (place.1.clone(), swarm.clone());
        if let Some(made) = self.of_swarm.get_mut(&owner) {
            made.remove(&(place.0, place.2.clone()));
            if made.is_empty() {
                self.of_swarm.remove(&owner);
            }
        }
        Some(swarm)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::managed::keep::Making;
    use crate::pool::scaling::Scaling;
    use crate::testing::{World, failure, swarm};
    use crate::turn::Turn;

    fn refused(code: u16, reason: &str) -> watcher::Error {
        let (_, status) = failure(code, reason, "no");
        let status = serde_json::from_value(status).unwrap();
        watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status)))
    }

    fn names(meant: &[ObjectRef<Swarm>]) -> Vec<&str> {
        meant.iter().map(|swarm| swarm.name.as_str()).collect()
    }

    #[tokio::test]
    async fn a_pool_whose_objects_may_not_be_seen_any_more_says_which_right_is_missing() {
        let spec = json!({"pool": {"managed": {}}, "jobs": []});
        let world = World { swarms: vec![swarm("s", &spec)], ..World::default() };
        let scene = world.with(|_| (200, json!({})));
        let (turn, managed) = (scene.swarm("s"), &scene.services.managed);
        let made = &managed.made;
        let kept = async || {
            let (mut making, mut scaling) = (Making::default(), Scaling::default());
            managed.keep(&Turn::of(&turn), &mut making, &mut scaling).await.unwrap().complaint
        };
        let account: PartialObjectMeta<ServiceAccount> = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "s", "namespace": "n", "uid": "u", "labels": {SWARM_LABEL: "s"}},
        }))
        .unwrap();
        let seen = made.note(ObjectKind::ServiceAccount, Event::Apply(account.clone()));
        assert_eq!(names(&seen), ["s"]);

        let away = made.failed(ObjectKind::Service, &refused(500, "InternalError"));
        assert!(away.is_empty() && made.forbidden().is_none(), "it is tried again");
        let denied = |kind| names(&made.failed(kind, &refused(403, "Forbidden"))).len();
        assert_eq!(denied(ObjectKind::ServiceAccount), 1, "its Swarm gets a turn");
        assert_eq!(denied(ObjectKind::ServiceAccount), 0, "the next attempt is no news");
        assert_eq!(denied(ObjectKind::Budget), 1);
        scene.asked();
        let complaint = kept().await.unwrap();
        assert_eq!(complaint.reason, Reason::ManagedForbidden);
        let right =
            "it may not list and watch serviceaccounts and poddisruptionbudgets, so it does";
        for part in [right, "managedPools.enabled=true", "deploy/components/managed-pools"] {
            assert!(complaint.message.contains(part), "{}", complaint.message);
        }
        assert!(scene.asked().is_empty(), "nothing follows from old states");

        made.note::<PodDisruptionBudget>(ObjectKind::Budget, Event::InitDone);
        assert!(made.forbidden().unwrap().message.contains("watch serviceaccounts, so it"));
        made.note(ObjectKind::ServiceAccount, Event::Init::<PartialObjectMeta<ServiceAccount>>);
        made.note(ObjectKind::ServiceAccount, Event::InitApply(account));
        let done = Event::InitDone::<PartialObjectMeta<ServiceAccount>>;
        assert_eq!(names(&made.note(ObjectKind::ServiceAccount, done)), ["s"]);
        assert_eq!(made.forbidden(), None);
    }

    #[tokio::test]
    async fn turns_begin_once_each_kind_was_listed_or_refused() {
        let made = MadeObjects::default();
        for kind in ObjectKind::ALL {
            assert!(!made.followed.is_filled());
            if kind == ObjectKind::Budget {
                made.failed(kind, &refused(403, "Forbidden"));
            } else {
                made.note::<ConfigMap>(kind, Event::InitDone);
            }
        }
        made.wait_until_answered().await;
        assert!(!made.is_filled(), "objects of no Swarm stay while some cannot be seen");
        made.note::<ConfigMap>(ObjectKind::Budget, Event::InitDone);
        assert!(made.is_filled());
    }
}
