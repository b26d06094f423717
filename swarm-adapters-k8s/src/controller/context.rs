//! What turns share: clients, caches, and what this process remembers of each Swarm.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::core::PartialObjectMeta;
use kube::runtime::events::Recorder;
use kube::runtime::reflector::store::WriterDropped;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Client, ResourceExt};
use swarm_core::ports::Seen;
use tokio::sync::{Mutex, watch};

use super::cached::{Cache, with_uid};
use super::gone::{LedgerMeta, NamespaceMeta};
use super::pools::{Pools, Scaled};
use super::refresh::Told;
use super::sessions::{Alarms, Ended, Leases, Sessions};
use super::sources::Loaded;
use super::worker_views::{Details, Views};
use crate::api::{Claimant, Swarm, SwarmStatus};
use crate::ledger::KubeLedgerStore;
use crate::metrics::{Counted, Metrics};
use crate::observe::Sightings;
use crate::view::ConfigMapViewStore;
use crate::workload::{Kind, Workload};

/// The caches that watches keep.
pub(super) struct Caches {
    pub(super) swarms: Cache<Swarm>,
    pub(super) pools: Pools,
    /// The pods of StatefulSets.
    pub(super) pods: Cache<Pod>,
    pub(super) views: Cache<ConfigMap>,
    /// Namespaces by name only, where the operator serves them all: those that are going matter.
    pub(super) namespaces: Store<NamespaceMeta>,
    /// Nodes by name and taints, where the operator serves all namespaces: those that are lost matter.
    pub(super) nodes: Store<Node>,
    /// Ledgers by name and version only: which there are, and which were written by somebody else.
    pub(super) ledgers: Store<LedgerMeta>,
    /// All ConfigMaps, by name, labels and version only.
    pub(super) sources: Cache<PartialObjectMeta<ConfigMap>>,
}

impl Caches {
    /// Returns when every cache has its first complete state whose absences are taken for true. For
    /// that of the Swarms the controller itself waits.
    ///
    /// To be awaited by one task only: a second waiter would take the place of the first, which
    /// would then never wake.
    pub(super) async fn wait_until_filled(&self) -> Result<(), WriterDropped> {
        self.pools.sets.store.wait_until_ready().await?;
        self.pods.store.wait_until_ready().await?;
        self.views.store.wait_until_ready().await?;
        self.sources.store.wait_until_ready().await
    }

    /// Whether the `ConfigMap` that `swarm` names holds a view.
    pub(super) fn has_view_of(&self, swarm: &Swarm) -> bool {
        let namespace = swarm.namespace().unwrap_or_default();
        self.views.get(&namespace, &swarm.view_config_map()).is_some()
    }

    /// Whether the namespace of `swarm` is known to be on its way out.
    pub(super) fn is_going(&self, swarm: &Swarm) -> bool {
        let namespace =
            self.namespaces.get(&ObjectRef::new(&swarm.namespace().unwrap_or_default()));
        namespace.is_some_and(|namespace| namespace.metadata.deletion_timestamp.is_some())
    }
}

/// What watches show of sessions.
pub(super) struct SeenSessions {
    pub(super) leases: Leases,
    pub(super) views: Views,
    pub(super) ended: Ended,
}

/// What all turns share.
pub(super) struct Context {
    /// Never retries on its own.
    pub(super) client: Client,
    pub(super) caches: Arc<Caches>,
    pub(super) recorder: Recorder,
    pub(super) metrics: Metrics,
    /// The Leases of sessions.
    pub(super) leases: Leases,
    /// The views of sessions.
    pub(super) views: Views,
    /// The pods that were seen to have ended.
    pub(super) ended: Ended,
    /// What wakes pools at rest.
    pub(super) alarms: Alarms,
    /// Whether the caches are filled.
    pub(super) filled: watch::Sender<bool>,
    /// Whether those are that only pools other than StatefulSets need.
    pub(super) filled_wide: watch::Sender<bool>,
    memories: std::sync::Mutex<HashMap<String, Arc<Mutex<Memory>>>>,
    failures: std::sync::Mutex<HashMap<String, u32>>,
}

/// What this process remembers of one Swarm. All of it can be lost: that only costs time.
pub(super) struct Memory {
    pub(super) sightings: Sightings,
    pub(super) ledgers: Option<KubeLedgerStore>,
    pub(super) views: Option<ConfigMapViewStore>,
    /// What is known of its sessions.
    pub(super) sessions: Sessions,
    /// The jobs that were told to be kept away from workers.
    pub(super) quarantined: BTreeSet<String>,
    /// How many of them are counted among all.
    pub(super) counted: Counted,
    /// What sessions are told of its jobs.
    pub(super) details: Details,
    /// When this process began to look after it.
    pub(super) since: Instant,
    /// Since when the workers of a deleted Swarm are told to stop.
    pub(super) releasing: Option<Instant>,
    /// What each pod was told, by UID.
    pub(super) told: BTreeMap<String, Told>,
    /// Why a pod could not be replaced, and when.
    pub(super) blocked: Option<(Instant, String)>,
    /// The status as it was last written, while the cache may lag behind.
    pub(super) status: Option<SwarmStatus>,
    /// What the sources of jobs said.
    pub(super) loaded: Loaded,
    /// The view's version, and when this process changed it.
    pub(super) version: u64,
    pub(super) changed: Option<Instant>,
    /// When plain workers were last told to let go of jobs; at first, when watching began, since an
    /// earlier process may have told them.
    pub(super) handed_over: Instant,
    /// Our own last scaling of the pool.
    pub(super) scaled: Option<Scaled>,
    /// How many replicas the pool had when it was last looked at.
    pub(super) replicas_seen: Option<u32>,
    /// What somebody else scaled the pool to, until that is put right.
    pub(super) taken_over: Option<u32>,
    /// When that was put right, lately.
    pub(super) takeovers: Vec<Instant>,
}

impl Context {
    pub(super) fn new(
        client: Client,
        caches: Caches,
        recorder: Recorder,
        metrics: Metrics,
        seen: SeenSessions,
        filled: watch::Sender<bool>,
    ) -> Self {
        let (memories, failures) = Default::default();
        let SeenSessions { leases, views, ended } = seen;
        let (caches, filled_wide) = (Arc::new(caches), watch::Sender::new(false));
        Self {
            client,
            caches,
            recorder,
            metrics,
            leases,
            views,
            ended,
            alarms: Alarms::default(),
            filled,
            filled_wide,
            memories,
            failures,
        }
    }

    /// Returns when the caches are filled that all Swarms need.
    pub(super) async fn wait_until_filled(&self) {
        // The sender lives as long as this context, so the wait cannot fail.
        let _ = self.filled.subscribe().wait_for(|filled| *filled).await;
    }

    /// Whether the caches are filled that only `swarm` may need. It waits for them a little: not
    /// longer, since a turn that waits keeps others from theirs.
    pub(super) async fn is_filled_for(&self, swarm: &Swarm) -> bool {
        const WITHIN: Duration = Duration::from_millis(500);
        if swarm.spec.pool.workload().0 == Kind::StatefulSet {
            return true;
        }
        self.caches.pools.wide.ask();
        let mut filled = self.filled_wide.subscribe();
        matches!(tokio::time::timeout(WITHIN, filled.wait_for(|filled| *filled)).await, Ok(Ok(_)))
    }

    /// What is remembered of `swarm`, by its UID.
    pub(super) fn memory(&self, swarm: &Swarm) -> Arc<Mutex<Memory>> {
        let fresh = || Memory {
            sightings: Sightings::new(Instant::now()),
            ledgers: None,
            views: None,
            sessions: Sessions::default(),
            quarantined: BTreeSet::new(),
            counted: Counted::of(&self.metrics),
            details: Details::default(),
            since: Instant::now(),
            releasing: None,
            told: BTreeMap::new(),
            blocked: None,
            status: None,
            loaded: Loaded::default(),
            version: 0,
            changed: None,
            handed_over: Instant::now(),
            scaled: None,
            replicas_seen: None,
            taken_over: None,
            takeovers: Vec::new(),
        };
        let mut memories = unpoisoned(&self.memories);
        let memory = memories.entry(swarm.uid().unwrap_or_default());
        memory.or_insert_with(|| Arc::new(Mutex::new(fresh()))).clone()
    }

    /// Forgets a Swarm that is gone.
    pub(super) fn forget(&self, swarm: &Swarm) {
        unpoisoned(&self.memories).remove(&swarm.uid().unwrap_or_default());
        self.alarms.set(&swarm.namespace().unwrap_or_default(), &swarm.name_any(), None);
        self.forget_failures(swarm);
    }

    /// Counts a failure of `swarm` and tells how many there were in a row before.
    pub(super) fn count_failure(&self, swarm: &Swarm) -> u32 {
        let mut failures = unpoisoned(&self.failures);
        let count = failures.entry(swarm.uid().unwrap_or_default()).or_default();
        *count = count.saturating_add(1);
        *count - 1
    }

    pub(super) fn forget_failures(&self, swarm: &Swarm) {
        unpoisoned(&self.failures).remove(&swarm.uid().unwrap_or_default());
    }

    /// The ledger store for `swarm` on `pool`, claimed under both UIDs.
    pub(super) fn ledger_store(&self, swarm: &Swarm, pool: &Workload) -> KubeLedgerStore {
        let claimant = Claimant {
            kind: "Swarm".into(),
            name: swarm.name_any(),
            uid: swarm.uid().unwrap_or_default(),
        };
        let swarms = self.caches.swarms.clone();
        let is_alive = move |uid: &str| !swarms.with(&with_uid(uid)).is_empty();
        let namespace = swarm.namespace().unwrap_or_default();
        let (known, within) = (self.caches.ledgers.clone(), namespace.clone());
        let is_current = move |name: &str, seen: &Seen| {
            let found = known.get(&ObjectRef::new(name).within(&within));
            let found = found.and_then(|ledger| ledger.resource_version());
            let number = |version: &str| version.parse::<u64>().unwrap_or(u64::MAX);
            // One that is older only lags behind our own write.
            found.is_some_and(|found| number(&found) <= number(&seen.0))
        };
        KubeLedgerStore::new(
            self.client.clone(),
            &namespace,
            claimant,
            pool.claimant(),
            Box::new(is_alive),
            Box::new(is_current),
        )
    }

    /// The view store for `swarm`.
    pub(super) fn view_store(&self, swarm: &Swarm) -> ConfigMapViewStore {
        let (swarms, namespace) = (self.caches.swarms.clone(), swarm.namespace());
        let exists =
            move |name: &str| swarms.get(namespace.as_deref().unwrap_or_default(), name).is_some();
        let views = self.caches.views.store.clone();
        ConfigMapViewStore::new(self.client.clone(), swarm, views, Box::new(exists))
    }
}

/// The content of a mutex whatever became of its last holder: what the controller keeps in one is
/// never left half changed.
pub(super) fn unpoisoned<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
