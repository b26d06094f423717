//! An API server in memory: a [`tower::Service`] below a [`kube::Client`], in this process, without
//! sockets, threads or a clock of its own.
//!
//! It answers as the real API server does what our adapters send, and nothing else:
//! get, list (pages, selectors, metadata only) and watch (resume, bookmarks, 410);
//! create, replace, merge patch, JSON patch and server-side apply with field managers;
//! compare-and-set by `resourceVersion`, preconditions by UID, `generation`;
//! deletion with preconditions, finalizers and the grace of pods;
//! the subresources `status`, `scale` and `eviction`.
//! `testing/swarm-e2e` runs one contract, and the same random operations, on this server and on the
//! real one.
//!
//! What it does not do: schemas (nothing is validated, pruned or defaulted), strategic merge patches,
//! admission, rights, dry runs of deletions and of `scale`, garbage collection (owner references are
//! recorded only), controllers and kubelets. Lists are atomic in server-side apply. UIDs are readable:
//! `NAME.N` is the *n*th object of this name.
//!
//! A test can script [faults](fault::Fault), roll the store back to a [`Snapshot`], change objects
//! underneath everybody, and read what was asked as a list of [`Exchange`]s.
//!
//! The clock is tokio's: with paused time, timeouts pass as soon as nothing else can happen.
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

/// When time begins here: the same in every run.
const EPOCH: Timestamp = Timestamp::constant(1_790_000_000, 0);

/// The server. Its clones are the same server.
#[derive(Clone)]
pub struct ApiServer(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Wakes watches, and whoever waits for a condition, after every change.
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
    /// An empty server.
    #[must_use]
    pub fn new() -> Self {
        let (changed, _) = tokio::sync::watch::channel(0);
        Self(Arc::new(Shared { state: Mutex::default(), changed, began: Instant::now() }))
    }

    /// A client of it; to be made within a tokio runtime.
    #[must_use]
    pub fn client(&self, namespace: &str) -> Client {
        Client::new(self.clone(), namespace)
    }

    /// The time, by tokio's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.0.began.elapsed()).unwrap_or_default();
        EPOCH.saturating_add(passed).unwrap_or(EPOCH)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes whoever waits for that.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let outcome = change(&mut self.state());
        self.0.changed.send_modify(|count| *count += 1);
        outcome
    }

    /// Returns once `is_so` holds, which is asked after every change.
    pub async fn wait_until(&self, mut is_so: impl FnMut(&Self) -> bool) {
        let mut changed = self.0.changed.subscribe();
        while !is_so(self) {
            // The sender lives as long as this server.
            let _ = changed.changed().await;
        }
    }

    /// The object as it is stored. `resource` is `pods` or `swarms.swarm.k8slab.info`; the namespace is
    /// empty for what has none.
    #[must_use]
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let found = self.state().store.get(&key(resource, namespace, name));
        found.map(|object| (*object).clone())
    }

    /// All objects of a resource, by namespace and name.
    #[must_use]
    pub fn all(&self, resource: &str) -> Vec<Value> {
        let state = self.state();
        state.store.of(resource).map(|(_, object)| (**object).clone()).collect()
    }

    /// Stores an object as if whoever may do so had written all of it: status, annotations, everything.
    /// What the server itself keeps stays as it is, or is made.
    ///
    /// # Panics
    ///
    /// If it is no object of a kind that is served, with a name.
    pub fn put(&self, object: Value) {
        let now = self.now();
        self.change(|state| write::put(&mut state.store, object, now));
    }

    /// Changes an object underneath everybody.
    ///
    /// # Panics
    ///
    /// If there is no such object.
    pub fn edit(&self, resource: &str, namespace: &str, name: &str, edit: impl FnOnce(&mut Value)) {
        let found = self.get(resource, namespace, name);
        let mut object = found.unwrap_or_else(|| panic!("no {resource} `{namespace}/{name}`"));
        edit(&mut object);
        self.put(object);
    }

    /// Removes an object underneath everybody, whatever its finalizers say.
    ///
    /// # Panics
    ///
    /// If there is no such object.
    pub fn remove(&self, resource: &str, namespace: &str, name: &str) {
        let removed = self.change(|state| state.store.remove(&key(resource, namespace, name)));
        assert!(removed.is_some(), "no {resource} `{namespace}/{name}`");
    }

    /// What is stored now, and how far its versions are.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.state().store.snapshot()
    }

    /// Rolls the store back, as a restored copy of etcd does: objects, their versions and the counter
    /// of versions are as they were, every watch ends, and one that is resumed from a version of the
    /// time between shows nothing before the counter has passed that version again.
    pub fn roll_back(&self, to: &Snapshot) {
        self.change(|state| {
            state.store.roll_back(to);
            state.watches.end_all(watch::End::Closed);
        });
    }

    /// Forgets the history: a watch that is resumed from before now gets 410.
    pub fn compact(&self) {
        self.change(|state| state.store.compact());
    }

    /// Answers requests otherwise than they ask for. Rules are tried in the order they came.
    pub fn inject(&self, rule: Rule, fault: Fault) {
        self.state().faults.add(rule, fault);
    }

    /// Ends all faults.
    pub fn heal(&self) {
        self.change(|state| state.faults = Faults::default());
    }

    /// The watches of a resource show nothing until [`resume_watches`](Self::resume_watches).
    pub fn stall_watches(&self, resource: &str) {
        self.change(|state| state.watches.stall(resource));
    }

    /// Ends [`stall_watches`](Self::stall_watches): what was missed is shown.
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

    /// Sends a bookmark to the watches of a resource that ask for such.
    pub fn bookmark(&self, resource: &str) {
        self.change(|state| state.watches.bookmark(resource));
    }

    /// What was asked and answered since the last call, in order. A watch appears when it begins.
    #[must_use]
    pub fn take_exchanges(&self) -> Vec<Exchange> {
        std::mem::take(&mut self.state().exchanges)
    }
}

fn key(resource: &str, namespace: &str, name: &str) -> Key {
    Key { resource: resource.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
}

/// Names of resources and how often each name was used, to make UIDs.
type Names = BTreeMap<String, u64>;
