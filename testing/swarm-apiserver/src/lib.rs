//! An API server in memory: a [`tower::Service`] below a [`kube::Client`], in this process. It has
//! no sockets, no threads and no clock of its own.
//!
//! The server answers the requests of our adapters as the real API server does, and only these:
//!
//! - get, list (pages, selectors, metadata only) and watch (resume, bookmarks, 410);
//! - create, replace, merge patch, JSON patch and server-side apply with field managers;
//! - compare-and-set by `resourceVersion`, preconditions by UID, `generation`;
//! - deletion with preconditions, finalizers and the grace of pods;
//! - the subresources `status`, `scale` and `eviction`.
//!
//! `testing/swarm-e2e` runs the same contract and the same random operations on this server and on
//! the real one.
//!
//! The server has no schemas: it validates, prunes and defaults nothing. It has no strategic merge
//! patches, admission or rights. It has no dry runs of deletions and of `scale`. It has no garbage
//! collection, so owner references are recorded only. It has no controllers and no kubelets. Lists
//! are atomic in server-side apply. UIDs are readable: `NAME.N` is the *n*th object of this name.
//!
//! A test can script [faults](fault::Fault), roll the store back to a [`Snapshot`], and change
//! objects behind the clients. It can read the requests as a list of [`Exchange`]s.
//!
//! The clock is tokio's. With paused time, timeouts pass as soon as nothing else can happen.
#![expect(clippy::panic, reason = "a test that sends an invalid request is to fail")]

mod apply;
pub mod fault;
mod kinds;
mod managed;
mod record;
mod route;
mod select;
mod service;
mod status;
mod store;
mod watch;
mod write;

pub use record::{Exchange, changes};
pub use route::Verb;
pub use store::Snapshot;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde_json::Value;
use tokio::time::Instant;

use fault::{Fault, Faults, Rule};
use store::{Key, Store};
use watch::Watches;

/// The time at which every run begins.
const EPOCH: Timestamp = Timestamp::constant(1_790_000_000, 0);

/// The server. Its clones are the same server.
#[derive(Clone)]
pub struct ApiServer(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Wakes watches and waiting tests after every change.
    changed: tokio::sync::watch::Sender<u64>,
    began: Instant,
}

#[derive(Default)]
struct State {
    store: Store,
    faults: Faults,
    watches: Watches,
    exchanges: Vec<Exchange>,
}

impl Default for ApiServer {
    fn default() -> Self {
        Self::new()
    }
}

impl ApiServer {
    /// Creates an empty server.
    #[must_use]
    pub fn new() -> Self {
        let (changed, _) = tokio::sync::watch::channel(0);
        Self(Arc::new(Shared { state: Mutex::default(), changed, began: Instant::now() }))
    }

    /// Returns a client of the server. Must be called within a tokio runtime.
    #[must_use]
    pub fn client(&self, namespace: &str) -> Client {
        Client::new(self.clone(), namespace)
    }

    /// Returns the time, by tokio's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.0.began.elapsed()).unwrap_or_default();
        EPOCH.saturating_add(passed).unwrap_or(EPOCH)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes watches and waiting tests.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let outcome = change(&mut self.state());
        self.0.changed.send_modify(|count| *count += 1);
        outcome
    }

    /// Waits until `is_so` holds. Asks again after every change.
    pub async fn wait_until(&self, mut is_so: impl FnMut(&Self) -> bool) {
        let mut changed = self.0.changed.subscribe();
        while !is_so(self) {
            // The sender lives as long as this server.
            let _ = changed.changed().await;
        }
    }

    /// Returns the stored object. `resource` is `pods` or `swarms.swarm.k8slab.info`. The namespace
    /// is empty for objects without one.
    #[must_use]
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let found = self.state().store.get(&key(resource, namespace, name));
        found.map(|object| (*object).clone())
    }

    /// Returns all objects of a resource, by namespace and name.
    #[must_use]
    pub fn all(&self, resource: &str) -> Vec<Value> {
        let state = self.state();
        state.store.of(resource).map(|(_, object)| (**object).clone()).collect()
    }

    /// Stores an object as if permitted writers had written all of it: status, annotations,
    /// everything. Fields that the server itself keeps stay as they are, or are created.
    ///
    /// # Panics
    ///
    /// If the kind of the object is not served, or the object has no name.
    pub fn put(&self, object: Value) {
        let now = self.now();
        self.change(|state| write::put(&mut state.store, object, now));
    }

    /// Changes an object behind all clients.
    ///
    /// # Panics
    ///
    /// If the object does not exist.
    pub fn edit(&self, resource: &str, namespace: &str, name: &str, edit: impl FnOnce(&mut Value)) {
        let found = self.get(resource, namespace, name);
        let mut object = found.unwrap_or_else(|| panic!("no {resource} `{namespace}/{name}`"));
        edit(&mut object);
        self.put(object);
    }

    /// Removes an object behind all clients, regardless of its finalizers.
    ///
    /// # Panics
    ///
    /// If the object does not exist.
    pub fn remove(&self, resource: &str, namespace: &str, name: &str) {
        let removed = self.change(|state| state.store.remove(&key(resource, namespace, name)));
        assert!(removed.is_some(), "no {resource} `{namespace}/{name}`");
    }

    /// Returns the stored objects and the counter of versions.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.state().store.snapshot()
    }

    /// Rolls the store back, as a restored copy of etcd does. Objects, their versions and the
    /// counter of versions are as they were, and every watch ends. A watch may resume from a
    /// version of the time in between. It then shows nothing before the counter has passed that
    /// version again.
    pub fn roll_back(&self, to: &Snapshot) {
        self.change(|state| {
            state.store.roll_back(to);
            state.watches.end_all(watch::End::Closed);
        });
    }

    /// Forgets the history. A watch that resumes from an earlier version now gets 410.
    pub fn compact(&self) {
        self.change(|state| state.store.compact());
    }

    /// Adds a fault for the requests of a rule. Rules are tried in the order in which they were
    /// added.
    pub fn inject(&self, rule: Rule, fault: Fault) {
        self.state().faults.add(rule, fault);
    }

    /// Ends all faults.
    pub fn heal(&self) {
        self.change(|state| state.faults = Faults::default());
    }

    /// Stalls the watches of a resource: they show nothing until
    /// [`resume_watches`](Self::resume_watches).
    pub fn stall_watches(&self, resource: &str) {
        self.change(|state| state.watches.stall(resource));
    }

    /// Ends [`stall_watches`](Self::stall_watches). The watches then show the missed changes.
    pub fn resume_watches(&self, resource: &str) {
        self.change(|state| state.watches.resume(resource));
    }

    /// Ends the watches of a resource with 410, so that their clients list again.
    pub fn expire_watches(&self, resource: &str) {
        self.change(|state| state.watches.end(resource, watch::End::Expired));
    }

    /// Ends the watches of a resource as if the connection was closed.
    pub fn drop_watches(&self, resource: &str) {
        self.change(|state| state.watches.end(resource, watch::End::Closed));
    }

    /// Sends a bookmark to the watches of a resource that ask for bookmarks.
    pub fn bookmark(&self, resource: &str) {
        self.change(|state| state.watches.bookmark(resource));
    }

    /// Returns the requests and answers since the last call, in order. A watch appears when it
    /// begins.
    #[must_use]
    pub fn take_exchanges(&self) -> Vec<Exchange> {
        std::mem::take(&mut self.state().exchanges)
    }
}

fn key(resource: &str, namespace: &str, name: &str) -> Key {
    Key { resource: resource.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
}

/// Names of resources, and how many times each name was used, to make UIDs.
type Names = BTreeMap<String, u64>;
