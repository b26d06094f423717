//! Objects, their versions, and the history of changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::Names;

/// The key of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// One change of one object.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) key: Key,
    pub(crate) before: Option<Arc<Value>>,
    pub(crate) after: Option<Arc<Value>>,
}

/// A state of the store.
#[derive(Clone, Debug)]
pub struct Snapshot {
    version: u64,
    objects: BTreeMap<Key, Arc<Value>>,
}

/// The objects, by resource, namespace and name.
pub(crate) struct Store {
    version: u64,
    objects: BTreeMap<Key, Arc<Value>>,
    history: Vec<Change>,
    /// Changes up to this version are forgotten.
    compacted: u64,
    names: Names,
}

impl Default for Store {
    /// Begins with version 1, since a watch from 0 asks for any state.
    fn default() -> Self {
        let (objects, history, names) = Default::default();
        Self { version: 1, objects, history, compacted: 0, names }
    }
}

impl Store {
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Value>> {
        self.objects.get(key).cloned()
    }

    /// The objects of a resource.
    pub(crate) fn of<'a>(
        &'a self,
        resource: &'a str,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Value>)> {
        self.objects.iter().filter(move |(key, _)| key.resource == resource)
    }

    /// Returns a UID that no object had before, with the count of objects of this name.
    pub(crate) fn new_uid(&mut self, key: &Key) -> String {
        let name = &key.name;
        let count = self.names.entry(format!("{}/{}/{name}", key.resource, key.namespace));
        let count = count.and_modify(|count| *count += 1).or_insert(1);
        format!("{name}.{count}")
    }

    /// Stores an object under the next version.
    pub(crate) fn set(&mut self, key: &Key, mut object: Value) -> Arc<Value> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Arc::new(object);
        let before = self.objects.insert(key.clone(), object.clone());
        self.note(key, before, Some(object.clone()));
        object
    }

    /// Removes an object, under the next version; returns it as watches report it.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Arc<Value>> {
        let before = self.objects.remove(key)?;
        self.version += 1;
        self.note(key, Some(before.clone()), None);
        let mut last = (*before).clone();
        last["metadata"]["resourceVersion"] = json!(self.version.to_string());
        Some(Arc::new(last))
    }

    fn note(&mut self, key: &Key, before: Option<Arc<Value>>, after: Option<Arc<Value>>) {
        let (version, key) = (self.version, key.clone());
        self.history.push(Change { version, key, before, after });
    }

    /// The changes after `version`, in order.
    pub(crate) fn since(&self, version: u64) -> impl Iterator<Item = &Change> {
        let first = self.history.partition_point(|change| change.version <= version);
        self.history[first..].iter()
    }

    pub(crate) fn compact(&mut self) {
        self.compacted = self.version;
        self.history.clear();
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot { version: self.version, objects: self.objects.clone() }
    }

    /// Restores a snapshot. It keeps the counts of names, so that UIDs are not used twice, since
    /// real UIDs are random.
    pub(crate) fn roll_back(&mut self, to: &Snapshot) {
        self.version = to.version;
        self.objects.clone_from(&to.objects);
        self.history.retain(|change| change.version <= to.version);
        self.compacted = self.compacted.min(to.version);
    }
}
