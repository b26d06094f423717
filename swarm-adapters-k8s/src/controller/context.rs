//! What turns share: clients, caches, and what this process remembers of each Swarm.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use kube::runtime::events::Recorder;
use kube::runtime::reflector::ObjectRef;
use kube::{Client, ResourceExt};
use swarm_core::ports::Seen;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use super::cached::with_uid;
use super::pools::Scaled;
use super::refresh::{Questions, Told};
use super::sessions::{Alarms, Ended, Leases, Sessions};
use super::sources::Loaded;
use super::watches::Caches;
use super::worker_views::Views;
use crate::api::{Claimant, Swarm, SwarmStatus};
use crate::health::Health;
use crate::ledger::KubeLedgerStore;
use crate::metrics::{Counted, Metrics, RefusalLabels};
use crate::observe::Sightings;
use crate::rollback::Epoch;
use crate::status::{Refusals, RefusedRequest};
use crate::view::ConfigMapViewStore;
use crate::workload::{Kind, Workload};

/// What watches show of sessions.
#[derive(Default)]
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
    /// What plain workers are asked.
    pub(super) questions: Questions,
    /// Which turns are under way.
    pub(super) health: Health,
    /// Whether the caches are filled.
    pub(super) filled: watch::Sender<bool>,
    /// Whether those are that only pools other than StatefulSets need.
    pub(super) filled_wide: watch::Sender<bool>,
    memories: std::sync::Mutex<HashMap<String, Arc<Mutex<Memory>>>>,
    failures: std::sync::Mutex<HashMap<String, u32>>,
}

/// What this process remembers of one Swarm. All of it can be lost: that only costs time.
pub(super) struct Memory {
    /// Of which epoch of the store it is.
    pub(super) epoch: Epoch,
    pub(super) sightings: Sightings,
    pub(super) ledgers: Option<KubeLedgerStore>,
    pub(super) views: Option<ConfigMapViewStore>,
    /// What is known of its sessions.
    pub(super) sessions: Sessions,
    /// The workers that were reported to be not ready for too long.
    pub(super) not_ready: BTreeSet<String>,
    /// The jobs that were told to be kept away from workers.
    pub(super) quarantined: BTreeSet<String>,
    /// How many of them are counted among all.
    pub(super) counted: Counted,
    /// When this process began to look after it.
    pub(super) since: Instant,
    /// Since when the workers of a deleted Swarm are told to stop.
    pub(super) releasing: Option<Instant>,
    /// What each pod was told, by UID.
    pub(super) told: BTreeMap<String, Told>,
    /// Why a pod could not be replaced, and when.
    pub(super) blocked: Option<(Instant, String)>,
    /// What was refused in this turn while it went on.
    pub(super) refusals: Refusals,
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
    /// Forgets what was remembered of the store before its last rollback. What is known of sessions
    /// stays: it tells how far the ledger was.
    pub(super) fn forget_undone(&self, swarm: &Swarm, memory: &mut Memory) {
        let epoch = self.caches.rollbacks.epoch();
        if std::mem::replace(&mut memory.epoch, epoch) == epoch {
            return;
        }
        self.questions.forget(&swarm.namespace().unwrap_or_default(), &swarm.name_any());
        memory.told.clear();
        (memory.ledgers, memory.views, memory.status) = (None, None, None);
        (memory.scaled, memory.replicas_seen, memory.taken_over) = (None, None, None);
        memory.blocked = None;
    }

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
            questions: Questions::default(),
            health: Health::default(),
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
        self.caches.pools.non_statefulset.ask();
        let mut filled = self.filled_wide.subscribe();
        matches!(tokio::time::timeout(WITHIN, filled.wait_for(|filled| *filled)).await, Ok(Ok(_)))
    }

    /// What is remembered of `swarm`, by its UID.
    pub(super) fn memory(&self, swarm: &Swarm) -> Arc<Mutex<Memory>> {
        let fresh = || Memory {
            epoch: self.caches.rollbacks.epoch(),
            sightings: Sightings::new(Instant::now()),
            ledgers: None,
            views: None,
            sessions: Sessions::default(),
            not_ready: BTreeSet::new(),
            quarantined: BTreeSet::new(),
            counted: Counted::of(&self.metrics),
            since: Instant::now(),
            releasing: None,
            told: BTreeMap::new(),
            blocked: None,
            refusals: Refusals::default(),
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
        let (namespace, name) = (swarm.namespace().unwrap_or_default(), swarm.name_any());
        self.alarms.set(&namespace, &name, None);
        self.questions.forget(&namespace, &name);
        self.forget_failures(swarm);
    }

    /// Forgets the Swarms that vanished without our release: somebody removed the finalizer by hand, or
    /// the watch missed their end. What they added to the gauges goes with them.
    pub(super) fn forget_vanished(&self) {
        let exists = |uid: &String| !self.caches.swarms.with(&with_uid(uid)).is_empty();
        unpoisoned(&self.memories).retain(|uid, _| exists(uid));
        unpoisoned(&self.failures).retain(|uid, _| exists(uid));
        self.alarms.retain(|namespace, name| self.caches.swarms.get(namespace, name).is_some());
    }

    /// Counts that the API server refused a request for good.
    pub(super) fn count_refused(&self, request: RefusedRequest) {
        let request = request.as_str();
        self.metrics.refusals.get_or_create(&RefusalLabels { request }).inc();
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
        .noticing(self.caches.rollbacks.clone())
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
