//! The memory of this process about each Swarm, from one turn to the next: one state per concern,
//! in the folder of that concern. Losing all of it costs only time.

use std::collections::HashMap;
use std::sync::Arc;

use swarm_client::api::Swarm;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::report::Reports;
use crate::history::Recorded;
use crate::jobs::KnownJobs;
use crate::ledger::stores::Stores;
use crate::locks::unpoisoned;
use crate::managed::KnownManaged;
use crate::metrics::Metrics;
use crate::plain::KnownPlain;
use crate::pool::KnownPool;
use crate::pool::workload::Workload;
use crate::sessions::KnownSessions;
use crate::watch::rollback::Epoch;

/// The memory of this process about one Swarm, by concern. A service gets the part of its concern.
pub(crate) struct Memory {
    pub(crate) stores: Stores,
    pub(crate) jobs: KnownJobs,
    pub(crate) sessions: KnownSessions,
    pub(crate) plain: KnownPlain,
    pub(crate) pool: KnownPool,
    pub(crate) managed: KnownManaged,
    pub(crate) recorded: Recorded,
    pub(crate) reports: Reports,
    pub(crate) releasing: Releasing,
}

impl Memory {
    pub(crate) fn new(epoch: Epoch, metrics: &Metrics, swarm: &Swarm) -> Self {
        let now = Instant::now();
        Self {
            stores: Stores::default(),
            jobs: KnownJobs::default(),
            sessions: KnownSessions::default(),
            plain: KnownPlain::since(now),
            pool: KnownPool::since(now),
            managed: KnownManaged::default(),
            recorded: Recorded::default(),
            reports: Reports::of(swarm, epoch, metrics),
            releasing: Releasing::default(),
        }
    }

    /// Drops the stores of another pool or view.
    pub(crate) fn drop_other_stores(&mut self, swarm: &Swarm, pool: &Workload) {
        if self.stores.drop_others(swarm, pool) {
            self.sessions.overseer.forget_ledger();
        }
    }

    /// Asks each part to forget observations of the store from before its last rollback. Returns
    /// whether the store was rolled back.
    pub(crate) fn forget_undone(&mut self, epoch: Epoch) -> bool {
        let is_undone = self.reports.forget_undone(epoch);
        if is_undone {
            self.stores = Stores::default();
            self.sessions.forget_undone();
            self.plain.forget_undone();
            self.pool.scaling.forget_undone();
            self.managed.making.forget_undone();
            self.releasing.forget_undone();
        }
        is_undone
    }
}

/// Memory of the release of one Swarm.
#[derive(Default)]
pub(crate) struct Releasing {
    /// The moment at which the workers of a deleted Swarm were first asked to stop.
    pub(super) since: Option<Instant>,
    /// The moment at which the workload of a released managed pool was removed.
    pub(super) ending: Option<Instant>,
}

impl Releasing {
    /// Forgets the removal of a workload that a rollback of the store may have restored.
    fn forget_undone(&mut self) {
        self.ending = None;
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
