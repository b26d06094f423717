//! The memory of this process about each Swarm, from one turn to the next: one small state per
//! concern, in the file of that concern. Losing all of it costs only time.

use std::collections::HashMap;
use std::sync::Arc;

use swarm_client::api::Swarm;
use swarm_core::Decider;
use swarm_core::history::Recorder;
use swarm_core::overseer::Fact;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::report::Reports;
use crate::clock;
use crate::history::RecordedSpec;
use crate::jobs::sources::Loaded;
use crate::ledger::stores::Stores;
use crate::locks::unpoisoned;
use crate::managed::events::Explained;
use crate::managed::keep::Making;
use crate::metrics::{Counted, Metrics, SwarmMetrics};
use crate::plain::publications::Publications;
use crate::plain::refresh::KnownPods;
use crate::pool::autoscale::Autoscaling;
use crate::pool::observe::FirstSeen;
use crate::pool::scaling::Scaling;
use crate::pool::workload::Workload;
use crate::sessions::KnownSessions;
use crate::sessions::silent::Silent;
use crate::turn::Turn;
use crate::watch::rollback::Epoch;

/// The memory of this process about one Swarm.
pub(crate) struct Memory {
    /// The epoch of the store to which this memory belongs.
    pub(crate) epoch: Epoch,
    pub(crate) stores: Stores,
    pub(crate) first_seen: FirstSeen,
    pub(crate) sessions: KnownSessions,
    pub(crate) decider: Decider,
    /// The sessions and releases of this Swarm that the gauges include.
    pub(crate) counted: Counted,
    /// The metrics of this Swarm.
    pub(crate) metrics: SwarmMetrics,
    pub(crate) loaded: Loaded,
    pub(crate) publications: Publications,
    pub(crate) pods: KnownPods,
    pub(crate) scaling: Scaling,
    pub(crate) autoscaling: Autoscaling,
    pub(crate) making: Making,
    pub(crate) explained: Explained,
    pub(crate) silent: Silent,
    pub(crate) reports: Reports,
    pub(crate) recorder: Recorder,
    pub(crate) recorded_spec: RecordedSpec,
    /// The moment at which the workers of a deleted Swarm were first asked to stop.
    pub(crate) releasing: Option<Instant>,
    /// The moment at which the workload of a released managed pool was removed.
    pub(crate) ending: Option<Instant>,
}

impl Memory {
    pub(crate) fn new(epoch: Epoch, metrics: &Metrics, swarm: &Swarm) -> Self {
        let Turn { namespace, name, .. } = Turn::of(swarm);
        let now = Instant::now();
        Self {
            epoch,
            stores: Stores::default(),
            first_seen: FirstSeen::new(now),
            sessions: KnownSessions::default(),
            decider: Decider::default(),
            counted: Counted::of(metrics),
            metrics: metrics.of_swarm(namespace, name),
            loaded: Loaded::default(),
            publications: Publications::since(now),
            pods: KnownPods::default(),
            scaling: Scaling::default(),
            autoscaling: Autoscaling::default(),
            making: Making::default(),
            explained: Explained::default(),
            silent: Silent::default(),
            reports: Reports::default(),
            recorder: Recorder::default(),
            recorded_spec: RecordedSpec::default(),
            releasing: None,
            ending: None,
        }
    }

    /// Drops the stores of another pool or view.
    pub(crate) fn drop_other_stores(&mut self, swarm: &Swarm, pool: &Workload) {
        if self.stores.drop_others(swarm, pool) {
            self.sessions.overseer.forget_ledger();
        }
    }

    /// Forgets observations of the store from before its last rollback. Returns whether the store
    /// was rolled back. Knowledge about sessions stays, since it includes how far the ledger was.
    /// Their ends are in doubt until every Lease was read again.
    pub(crate) fn forget_undone(&mut self, epoch: Epoch) -> bool {
        if std::mem::replace(&mut self.epoch, epoch) == epoch {
            return false;
        }
        self.stores = Stores::default();
        self.sessions.overseer.learn(clock::now(), Fact::StoreRolledBack);
        self.pods = KnownPods::default();
        self.scaling.forget_undone();
        self.making.forget_undone();
        self.reports.forget_status();
        self.ending = None;
        true
    }
}

/// The memory about each Swarm, the number of its failed turns in a row, and the term in which this
/// operator owns it, all by UID.
#[derive(Default)]
pub(crate) struct Memories {
    of_swarm: std::sync::Mutex<HashMap<String, Arc<Mutex<Memory>>>>,
    failures: std::sync::Mutex<HashMap<String, u32>>,
    terms: std::sync::Mutex<HashMap<String, u64>>,
}

impl Memories {
    /// The memory of the Swarm with this UID; `fresh` makes a missing one.
    pub(crate) fn of(&self, uid: String, fresh: impl FnOnce() -> Memory) -> Arc<Mutex<Memory>> {
        let mut memories = unpoisoned(&self.of_swarm);
        memories.entry(uid).or_insert_with(|| Arc::new(Mutex::new(fresh()))).clone()
    }

    /// Whether a new term of ownership of this Swarm has begun. Memory of an earlier term is
    /// outdated.
    pub(crate) fn is_new_term(&self, uid: &str, term: u64) -> bool {
        unpoisoned(&self.terms).insert(uid.to_owned(), term) != Some(term)
    }

    /// Whether the Swarm with this UID had a turn in this term.
    pub(crate) fn knows_term(&self, uid: &str, term: u64) -> bool {
        unpoisoned(&self.terms).get(uid) == Some(&term)
    }

    /// Drops the entries of all Swarms that no longer exist according to `exists`.
    pub(crate) fn retain(&self, exists: impl Fn(&str) -> bool) {
        unpoisoned(&self.of_swarm).retain(|uid, _| exists(uid));
        unpoisoned(&self.failures).retain(|uid, _| exists(uid));
        unpoisoned(&self.terms).retain(|uid, _| exists(uid));
    }

    pub(crate) fn forget(&self, uid: &str) {
        unpoisoned(&self.of_swarm).remove(uid);
        self.forget_failures(uid);
    }

    /// Counts a failed turn. Returns the number of earlier failures in a row.
    pub(crate) fn count_failure(&self, uid: String) -> u32 {
        let mut failures = unpoisoned(&self.failures);
        let count = failures.entry(uid).or_default();
        *count = count.saturating_add(1);
        *count - 1
    }

    pub(crate) fn forget_failures(&self, uid: &str) {
        unpoisoned(&self.failures).remove(uid);
    }
}
