//! What is known of the objects of managed pools: by whom, and in which state, they were last seen.
//!
//! Of each only metadata is watched. Whoever changes a field that the operator applied takes it over, and
//! the operator's entry in `managedFields` shrinks: so an object is in shape while that entry is as it was
//! after the last apply. The watches begin when the first Swarm asks for such a pool: nobody else needs the
//! rights for them.

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
use crate::version;
use crate::watch::followed::Followed;
use crate::watch::on_demand::OnDemand;
use crate::watch::rollback::Rollbacks;
use crate::watch::streams;
use crate::watch::strip::{self, Cut, Slim};

/// An object of a managed pool as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) uid: String,
    pub(crate) version: u64,
    /// Whether it is being deleted.
    pub(crate) is_going: bool,
    /// Which fields are the operator's: digests of their paths, in order.
    pub(crate) ours: Box<[u32]>,
    /// Who else changed a field last: one of the operator's, if that can be told.
    pub(crate) other: Option<String>,
    /// Of a workload, what it was made of.
    pub(crate) made_of: Option<String>,
}

impl Seen {
    /// An object as it is now, which was last seen as `before`.
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

/// Who of the `others` changed a field last: one that was the operator's, since `before` it was. Whoever
/// was found to have done that stays the one while the operator has not put it back.
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
    // A field that was removed is nobody's.
    newest(&takers).or_else(|| newest(others))
}

/// Digests of the paths of all fields of a manager, in order. They stand in place of the fields where an
/// object was cut down.
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

/// How many fields of others are looked at, for each manager: an honest one has some dozens.
const PATHS_MAX: usize = 4_096;

/// Leaves what [`Seen`] is about.
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

/// Where an object is: its kind, namespace and name.
pub(crate) type Place = (ObjectKind, String, String);
/// A namespace and the name of a Swarm.
type Owner = (String, String);

/// The objects of all managed pools. Its clones share one state.
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
    of_swarm: BTreeMap<Owner, BTreeSet<(ObjectKind, String)>>,
    rolls: Rolls,
}

impl MadeObjects {
    /// Begins to watch, unless that has begun.
    pub(crate) fn ask(&self) {
        self.asked.ask();
    }

    /// Whether all kinds were listed.
    pub(crate) fn is_filled(&self) -> bool {
        self.followed.is_filled()
    }

    /// Returns once all kinds were listed.
    pub(crate) async fn wait_until_filled(&self) {
        self.followed.wait_until_filled().await;
    }

    /// An object that was made for the Swarm of this name.
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

    /// Whether the workload at this place may roll now because of the operator, which is one of so many
    /// `replicas`. Then it counts until it `has_rolled`.
    pub(crate) fn may_roll(
        &self,
        place: &Place,
        replicas: usize,
        has_rolled: impl Fn(&Place) -> bool,
    ) -> bool {
        self.followed.state().rolls.may_begin(place, replicas, has_rolled)
    }

    /// All that was made for the Swarm of this name.
    pub(crate) fn of_swarm(&self, namespace: &str, swarm: &str) -> Vec<(ObjectKind, String)> {
        let owner = (namespace.to_owned(), swarm.to_owned());
        self.followed.state().of_swarm.get(&owner).into_iter().flatten().cloned().collect()
    }

    /// Every Swarm, there or not, for which something was made.
    pub(crate) fn owners(&self) -> Vec<Owner> {
        self.followed.state().of_swarm.keys().cloned().collect()
    }

    /// Follows all kinds in `scope` once somebody asks, for as long as the stream is polled, which gives
    /// the Swarms of those that changed.
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
                    Vec::new()
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
                if state.listed.len() == ObjectKind::ALL.len() {
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
}

fn place(kind: ObjectKind, object: &impl ResourceExt) -> Place {
    (kind, object.namespace().unwrap_or_default(), object.name_any())
}

/// The Swarm that an object was made for.
fn swarm_of(object: &impl ResourceExt) -> String {
    object.labels().get(SWARM_LABEL).cloned().unwrap_or_default()
}

impl State {
    fn before(&self, place: &Place) -> Option<&Seen> {
        self.there.get(place).map(|(_, seen)| seen)
    }

    /// An object is there. Whose turn it is if a turn could see a difference.
    fn seen(&mut self, place: Place, swarm: String, seen: Seen) -> Vec<ObjectRef<Swarm>> {
        self.note_roll(&place, &seen);
        let before = self.there.get(&place);
        let is_news = before.is_none_or(|(of, before)| *of != swarm || !before.is_as(&seen));
        let is_moved = before.is_some_and(|(of, _)| *of != swarm);
        // The Swarm that it was made for may have been robbed of it.
        let mut meant = Vec::from_iter(is_moved.then(|| self.gone(&place)).flatten());
        let owner = (place.1.clone(), swarm.clone());
        self.of_swarm.entry(owner).or_default().insert((place.0, place.2.clone()));
        meant.extend(is_news.then(|| ObjectRef::new(&swarm).within(&place.1)));
        self.there.insert(place, (swarm, seen));
        meant
    }

    /// Notes that a workload rolls because of an operator, this one or another: it was made of something
    /// else before. Of what is there when this one starts that cannot be told.
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

    /// An object is gone. Whose turn it is.
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
