//! Fills a cache from the events of its watch, and reports what has changed in it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};

use kube::ResourceExt;
use kube::runtime::reflector::store;
use kube::runtime::reflector::store::Writer;
use kube::runtime::watcher::Event;

use super::{Cache, Cached, Name};
use crate::version;
use crate::watch::rollback::{Epoch, Rollbacks};

/// The writer of a cache.
pub(crate) struct Keeper<K: Cached + 'static> {
    cache: Cache<K>,
    writer: Writer<K>,
    rollbacks: Rollbacks,
    /// The epoch in which the current list began.
    listing: Epoch,
    /// The epoch of the list that last filled the cache.
    listed: Epoch,
    /// Whether a list is being read. It shows the moment at which it began.
    pub(crate) is_listing: bool,
}

impl<K: Cached> Keeper<K> {
    /// Returns an empty cache and its keeper.
    pub(crate) fn of_new_cache(rollbacks: &Rollbacks) -> (Cache<K>, Self) {
        let (store, writer) = store();
        let cache = Cache { store, index: Arc::default() };
        let (epoch, rollbacks) = (rollbacks.epoch(), rollbacks.clone());
        let is_listing = false;
        (
            cache.clone(),
            Self { cache, writer, rollbacks, listing: epoch, listed: epoch, is_listing },
        )
    }

    /// The cached object with the name of `object`.
    pub(crate) fn get(&self, object: &K) -> Option<Arc<K>> {
        let (namespace, name) = object.name();
        self.cache.get(&namespace, &name)
    }

    /// All cached objects.
    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        self.cache.store.state()
    }

    /// Applies an event and returns the changed objects. If a kind is found by labels and the
    /// labels of an object changed, also returns the previous object.
    ///
    /// A list changes only the objects that differ from the cached ones, so a repeated list changes
    /// nothing. O(objects · log objects) at its end.
    pub(crate) fn apply(&mut self, event: Event<K>) -> Vec<K> {
        let before = if K::IS_FOUND_BY_LABELS { self.replaced_by(&event) } else { Vec::new() };
        let mut changed = self.take_in(event);
        let before: BTreeMap<_, _> = before.into_iter().map(|it| (it.name(), it)).collect();
        let old = |now: &K| before.get(&now.name()).filter(|old| old.labels() != now.labels());
        let old: Vec<_> = changed.iter().filter_map(old).map(|old| (**old).clone()).collect();
        changed.extend(old);
        changed
    }

    /// The cached objects that an event replaces.
    fn replaced_by(&self, event: &Event<K>) -> Vec<Arc<K>> {
        match event {
            Event::Init | Event::InitApply(_) => Vec::new(),
            Event::Apply(object) | Event::Delete(object) => self.get(object).into_iter().collect(),
            Event::InitDone => self.all(),
        }
    }

    fn take_in(&mut self, event: Event<K>) -> Vec<K> {
        let before = match &event {
            Event::Init => {
                self.listing = self.rollbacks.epoch();
                self.is_listing = true;
                Vec::new()
            }
            Event::InitDone => {
                self.is_listing = false;
                self.cache.store.state()
            }
            Event::InitApply(_) | Event::Apply(_) | Event::Delete(_) => Vec::new(),
        };
        let mut index = self.cache.index.write().unwrap_or_else(PoisonError::into_inner);
        index.note(&event);
        self.writer.apply_watcher_event(&event);
        drop(index);
        match event {
            Event::Init | Event::InitApply(_) => Vec::new(),
            Event::Apply(object) | Event::Delete(object) => vec![object],
            Event::InitDone => self.differences(before),
        }
    }

    /// The changes of a complete list. An object in an older version than the cached one is
    /// evidence that the store was rolled back.
    fn differences(&mut self, before: Vec<Arc<K>>) -> Vec<K> {
        let seen_in = std::mem::replace(&mut self.listed, self.listing);
        let mut before: BTreeMap<_, _> = before.into_iter().map(|it| (it.name(), it)).collect();
        let mut changed = Vec::new();
        for object in self.cache.store.state() {
            let old = before.remove(&object.name()).filter(|old| old.uid() == object.uid());
            match old {
                Some(old) if old.resource_version() == object.resource_version() => {}
                Some(old) => {
                    let (seen, answered) = (version::of(&*old), version::of(&*object));
                    self.rollbacks.compare(seen_in, seen, answered, || {
                        format!("{} `{}`", K::kind(&()), object.name_any())
                    });
                    changed.push((*object).clone());
                }
                None => changed.push((*object).clone()),
            }
        }
        changed.extend(before.into_values().map(|gone| (*gone).clone()));
        changed
    }
}

/// The keys of all objects. It follows the same events as the cache, a moment earlier.
#[derive(Default)]
pub(super) struct Index {
    pub(super) current: Keys,
    /// The complete state while it is being listed.
    fresh: Keys,
    /// Whether a complete state was seen.
    pub(super) is_filled: bool,
}

#[derive(Default)]
pub(super) struct Keys {
    pub(super) objects: BTreeMap<String, BTreeSet<Name>>,
    /// The keys of each object, to find what a change took away.
    of: BTreeMap<Name, Vec<String>>,
}

impl Index {
    fn note<K: Cached>(&mut self, event: &Event<K>) {
        match event {
            Event::Init => self.fresh = Keys::default(),
            Event::InitApply(object) => self.fresh.set(object.name(), object.keys()),
            Event::InitDone => {
                self.current = std::mem::take(&mut self.fresh);
                self.is_filled = true;
            }
            Event::Apply(object) => self.current.set(object.name(), object.keys()),
            Event::Delete(object) => self.current.set(object.name(), Vec::new()),
        }
    }
}

impl Keys {
    fn set(&mut self, name: Name, keys: Vec<String>) {
        if self.of.get(&name).is_some_and(|before| *before == keys) {
            return;
        }
        for key in self.of.remove(&name).unwrap_or_default() {
            if let Entry::Occupied(mut found) = self.objects.entry(key) {
                found.get_mut().remove(&name);
                if found.get().is_empty() {
                    found.remove();
                }
            }
        }
        for key in &keys {
            self.objects.entry(key.clone()).or_default().insert(name.clone());
        }
        if !keys.is_empty() {
            self.of.insert(name, keys);
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::{ObjectMeta, PartialObjectMeta};
    use serde_json::json;
    use swarm_client::api::Swarm;

    use super::*;
    use crate::pool::workload::Kind;
    use crate::watch::cached::with_pool;

    fn swarm(name: &str, pool: &str) -> Swarm {
        serde_json::from_value(json!({
            "apiVersion": "swarm.k8slab.info/v1alpha1",
            "kind": "Swarm",
            "metadata": {"name": name, "namespace": "n", "uid": name},
            "spec": {"pool": {"statefulSet": {"name": pool}}},
        }))
        .unwrap()
    }

    fn with(index: &Index, pool: &str) -> Vec<String> {
        let found = index.current.objects.get(&with_pool(Kind::StatefulSet, "n", Some(pool)));
        found.into_iter().flatten().map(|(_, name)| name.clone()).collect()
    }

    #[test]
    fn what_a_change_took_away_is_found_no_more() {
        let mut index = Index::default();
        index.note(&Event::Apply(swarm("a", "p")));
        index.note(&Event::Apply(swarm("b", "p")));
        index.note(&Event::Apply(swarm("b", "q")));
        assert_eq!((with(&index, "p"), with(&index, "q")), (vec!["a".into()], vec!["b".into()]));
        index.note(&Event::Delete(swarm("a", "p")));
        assert_eq!(with(&index, "p"), Vec::<String>::new());
        assert_eq!((index.current.objects.len(), index.current.of.len()), (2, 1));
    }

    #[test]
    fn a_new_list_replaces_all_at_its_end_and_not_before() {
        let mut index = Index::default();
        index.note(&Event::Apply(swarm("a", "p")));
        index.note::<Swarm>(&Event::Init);
        index.note(&Event::InitApply(swarm("b", "p")));
        assert_eq!(with(&index, "p"), ["a"]);
        index.note::<Swarm>(&Event::InitDone);
        assert_eq!(with(&index, "p"), ["b"]);
    }

    fn keeper(rollbacks: &Rollbacks) -> Keeper<Swarm> {
        Keeper::of_new_cache(rollbacks).1
    }

    fn at_version(name: &str, version: u64) -> Swarm {
        let mut swarm = swarm(name, "p");
        swarm.metadata.resource_version = Some(version.to_string());
        swarm
    }

    /// The names of the objects that a list changes.
    fn list(keeper: &mut Keeper<Swarm>, listed: &[Swarm]) -> Vec<String> {
        assert_eq!(keeper.apply(Event::Init).len(), 0);
        for swarm in listed {
            let changed = keeper.apply(Event::InitApply(swarm.clone()));
            assert_eq!(changed.len(), 0, "the cache does not have it yet");
        }
        let changed = keeper.apply(Event::InitDone);
        let changed: BTreeSet<_> = changed.iter().map(ResourceExt::name_any).collect();
        changed.into_iter().collect()
    }

    #[test]
    fn a_list_changes_what_differs_from_what_was_there() {
        let rollbacks = Rollbacks::default();
        let mut keeper = keeper(&rollbacks);
        let [a, b, c] = ["a", "b", "c"].map(|name| at_version(name, 5));
        assert_eq!(list(&mut keeper, &[a.clone(), b.clone()]), ["a", "b"]);
        assert!(list(&mut keeper, &[a.clone(), b.clone()]).is_empty(), "a list that is repeated");
        let changed = list(&mut keeper, &[at_version("a", 7), c]);
        assert_eq!(changed, ["a", "b", "c"], "changed, gone, new");
        assert_eq!(keeper.cache.store.len(), 2);
        assert_eq!(rollbacks.epoch(), Epoch::default());
    }

    #[test]
    fn a_change_of_labels_reports_the_previous_labels_as_well() {
        let labelled = |version: u64, label: Option<&str>| {
            let labels = label.map(|label| BTreeMap::from([("l".to_owned(), label.to_owned())]));
            let metadata = ObjectMeta {
                name: Some("a".into()),
                namespace: Some("n".into()),
                resource_version: Some(version.to_string()),
                labels,
                ..ObjectMeta::default()
            };
            PartialObjectMeta { metadata, ..PartialObjectMeta::default() }
        };
        let (_, mut keeper) =
            Keeper::<PartialObjectMeta<ConfigMap>>::of_new_cache(&Rollbacks::default());
        let mut changed = |event| {
            let changed = keeper.apply(event);
            changed.iter().map(|it| it.labels().get("l").cloned()).collect::<Vec<_>>()
        };
        let is = |label: &str| Some(label.to_owned());
        assert_eq!(changed(Event::Apply(labelled(1, Some("x")))), [is("x")]);
        assert_eq!(changed(Event::Apply(labelled(2, Some("x")))), [is("x")], "the same labels");
        assert_eq!(changed(Event::Apply(labelled(3, Some("y")))), [is("y"), is("x")]);
        assert_eq!(changed(Event::Init).len(), 0);
        assert_eq!(changed(Event::InitApply(labelled(4, None))).len(), 0);
        assert_eq!(changed(Event::InitDone), [None, is("y")]);
        assert_eq!(changed(Event::Delete(labelled(5, None))), [None]);
    }

    #[test]
    fn an_older_version_in_a_list_is_evidence_of_a_rollback_once() {
        let rollbacks = Rollbacks::default();
        let (mut one, mut other) = (keeper(&rollbacks), keeper(&rollbacks));
        for keeper in [&mut one, &mut other] {
            list(keeper, &[at_version("a", 5)]);
        }
        assert_eq!(list(&mut one, &[at_version("a", 3)]), ["a"]);
        let noticed = rollbacks.epoch();
        assert_ne!(noticed, Epoch::default());
        assert_eq!(list(&mut other, &[at_version("a", 3)]), ["a"]);
        assert_eq!(rollbacks.epoch(), noticed, "the same rollback");
        assert_eq!(list(&mut other, &[at_version("a", 2)]), ["a"]);
        assert_ne!(rollbacks.epoch(), noticed, "another one");
    }

    #[test]
    fn an_object_that_was_recreated_is_another_one() {
        let rollbacks = Rollbacks::default();
        let mut keeper = keeper(&rollbacks);
        list(&mut keeper, &[at_version("a", 5)]);
        let mut another = at_version("a", 3);
        another.metadata.uid = Some("another".to_owned());
        assert_eq!(list(&mut keeper, &[another]), ["a"]);
        assert_eq!(rollbacks.epoch(), Epoch::default());
    }
}
