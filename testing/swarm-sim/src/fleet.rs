//! A whole pool: ledger, leases and views as stored, operators that decide for themselves, workers
//! that come and go. Too large to walk through; random runs drive it.
//!
//! What is under test is the join of the shipped parts: [`decide`](swarm_core::decide) with its
//! ledger, [`Watches`], [`Ages`] and [`Session`](swarm_core::session::Session). What an adapter
//! does between them (to see pods, to read leases, to publish) is done here in its simplest form.

mod act;
mod heal;
mod judge;
mod overseer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub use act::{Act, Stop};

use swarm_core::handover::{
    Ages, Lease, LeaseTerms, LeaseVersion, Moment, Policy, Rule, SessionId, SessionView, Watches,
};
use swarm_core::{Desired, Job, JobName, Ledger, Mode, Replication, Rules, Slot, Timing, Token};

use crate::bounds::TICK;
use crate::worker::Worker;
use crate::{Bounds, Life};

/// What stays the same in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetTerms {
    /// What it takes to end an ownership.
    pub policy: Policy,
    /// By how many workers each job is run.
    pub replication: Replication,
    /// How many voluntary moves may be under way.
    pub moves_max: Option<usize>,
    /// What the past counts for.
    pub mode: Mode,
    /// Which rule of sessions and their watches is broken on purpose.
    pub broken: Option<Rule>,
}

impl Default for FleetTerms {
    fn default() -> Self {
        Self {
            policy: Policy::Exclusive,
            replication: Replication::One,
            moves_max: None,
            mode: Mode::Sticky,
            broken: None,
        }
    }
}

/// Leases of four ticks, renewed with every tick; a worker's clock may miss one tick per lease.
const BOUNDS: Bounds = Bounds {
    versions: usize::MAX,
    sessions: 0,
    jobs: 0,
    operators: 2,
    lease: 4,
    renew: 1,
    drift: 1,
    stop: 1,
    in_flight: 2,
    starts_empty: false,
    faults: &[],
    broken: None,
};

const TIMING: Timing = Timing {
    initial_wait: Duration::from_secs(5),
    return_grace: Duration::from_secs(3),
    release_timeout: Duration::from_secs(6),
    fence_wait: Duration::from_secs(5),
};

/// The state of a run.
#[derive(Clone, Debug)]
pub struct Fleet {
    pub(crate) bounds: Bounds,
    pub(crate) desired: Desired,
    /// How many slots are wanted.
    pub(crate) wanted: u32,
    /// The ledger as it was and is.
    history: Vec<Arc<Ledger>>,
    /// Every worker there ever was, the latest of a slot last.
    pods: Vec<Pod>,
    overseers: [Overseer; 2],
    now: Moment,
    /// How many versions of leases there were.
    lease_versions: u64,
    /// What may run twice: ownerships that ended by waiting, which at least once allows.
    excused: BTreeSet<(JobName, SessionId)>,
    /// The highest token of each job, kept when the job goes.
    tokens: BTreeMap<JobName, Token>,
    /// What the store held for each worker when somebody copied it.
    copy: Option<Vec<(Option<Lease>, Option<SessionView>)>>,
    /// How many workers there were when the store was set back.
    elders: usize,
    /// The first thing that went wrong.
    wrong: Option<String>,
}

/// A worker, and what the store holds for it.
#[derive(Clone, Debug)]
struct Pod {
    slot: Slot,
    worker: Worker,
    /// Its lease as it was and is; a read may be old.
    leases: Vec<Option<Lease>>,
    /// Its view as it was published; any of them may arrive, in any order.
    views: Vec<SessionView>,
    is_ready: bool,
}

/// An operator's knowledge; all of it is lost when it restarts.
#[derive(Clone, Debug, Default)]
struct Overseer {
    watches: Watches,
    ages: Ages,
    began: Moment,
    /// Since when a slot's worker is away or leaving.
    away: BTreeMap<Slot, Moment>,
    /// Since when a session's worker is gone.
    gone: BTreeMap<SessionId, Moment>,
}

impl Fleet {
    /// An empty ledger, three workers that have just started, six jobs, two operators.
    #[must_use]
    pub fn new(terms: FleetTerms) -> Self {
        let now = Moment(Duration::from_secs(1_000));
        let overseer = Overseer { began: now, ..Overseer::default() };
        let mut fleet = Self {
            bounds: Bounds { broken: terms.broken, ..BOUNDS },
            desired: Desired {
                replication: terms.replication,
                rules: Rules { mode: terms.mode, moves_max: terms.moves_max },
                policy: terms.policy,
                timing: TIMING,
                ..Desired::default()
            },
            wanted: 3,
            history: vec![Arc::new(Ledger::new(100))],
            pods: Vec::new(),
            overseers: [overseer.clone(), overseer],
            now,
            lease_versions: 0,
            excused: BTreeSet::new(),
            tokens: BTreeMap::new(),
            copy: None,
            elders: 0,
            wrong: None,
        };
        (0..6).for_each(|n| fleet.toggle_job(n));
        (0..3).for_each(|n| fleet.start_pod(Slot(n)));
        fleet
    }

    /// The first thing that went wrong, if anything did.
    #[must_use]
    pub fn wrong(&self) -> Option<&str> {
        self.wrong.as_deref()
    }

    /// How often the ledger was written.
    #[must_use]
    pub fn writes(&self) -> usize {
        self.history.len() - 1
    }

    fn ledger(&self) -> &Arc<Ledger> {
        // There always is a first one.
        &self.history[self.history.len() - 1]
    }

    fn is_wrong(&mut self, what: impl FnOnce() -> String) {
        if self.wrong.is_none() {
            self.wrong = Some(what());
        }
    }

    fn lease_terms(&self) -> LeaseTerms {
        self.bounds.lease_terms()
    }

    /// Tokens rise by one a move, and there are fewer moves than milliseconds.
    fn unix_time(&self) -> u64 {
        self.now.0.as_millis().try_into().unwrap_or(u64::MAX)
    }

    fn next_lease_version(&mut self) -> LeaseVersion {
        self.lease_versions += 1;
        LeaseVersion(self.lease_versions)
    }

    /// The latest worker of a slot.
    fn in_slot(&self, slot: Slot) -> Option<usize> {
        self.pods.iter().rposition(|pod| pod.slot == slot)
    }

    fn is_latest(&self, n: usize) -> bool {
        self.in_slot(self.pods[n].slot) == Some(n)
    }

    fn start_pod(&mut self, slot: Slot) {
        let nonce = self.pods.len() as u64;
        let id = SessionId::new(&format!("pod-{}", slot.0), nonce);
        self.pods.push(Pod {
            slot,
            worker: Worker::open(id, &self.bounds),
            leases: vec![None],
            views: Vec::new(),
            is_ready: true,
        });
    }

    fn toggle_job(&mut self, n: usize) {
        let Ok(name) = JobName::new(&format!("job-{n}")) else { return };
        if self.desired.jobs.remove(&name).is_none() {
            self.desired.jobs.insert(name, Job::default());
        }
    }
}

impl Pod {
    fn id(&self) -> &SessionId {
        self.worker.session.id()
    }

    fn lease(&self) -> Option<&Lease> {
        self.leases.last().and_then(Option::as_ref)
    }

    fn is_up(&self) -> bool {
        self.worker.life == Life::Up
    }

    fn is_dead(&self) -> bool {
        self.worker.life == Life::Dead
    }
}

fn grace() -> Duration {
    TICK * (BOUNDS.stop + 3)
}
