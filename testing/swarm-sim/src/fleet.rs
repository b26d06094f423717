//! A whole pool: ledger, leases and views as stored, operators that decide for themselves, workers
//! that come and go. Too large to walk through; random runs drive it.
//!
//! What is under test is the join of the shipped parts: [`decide`](swarm_core::decide) with its
//! ledger, the [`Overseer`] and [`Session`](swarm_core::session::Session). What an adapter does
//! between them (to see pods, to read leases, to write views) is done here in its simplest form.

mod act;
mod heal;
mod judge;
mod lie;
mod operator;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub use act::{Act, Stop};
pub use lie::{Edge, Extent, Lie};

use swarm_core::handover::{
    Ack, Lease, LeaseTerms, LeaseVersion, Moment, Policy, Rule, SessionId, SessionView,
};
use swarm_core::overseer::Overseer;
use swarm_core::session::SessionEvent;
use swarm_core::{
    Decider, Desired, Job, JobName, Ledger, Mode, Replication, Rules, Slot, Timing, Token,
};

use crate::bounds::TICK;
use crate::wanted;
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
    /// The lowest slot.
    pub first_slot: u32,
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
            first_slot: 0,
            broken: None,
        }
    }
}

/// Leases of four ticks, renewed with every tick; a worker's clock may miss one tick per lease.
const BOUNDS: Bounds = Bounds {
    versions: usize::MAX,
    sessions: 0,
    jobs: 0,
    max_jobs: None,
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
    initial_wait: Duration::from_secs(1),
    return_grace: Duration::from_secs(3),
    not_ready_grace: None,
    release_timeout: Duration::from_secs(6),
    fence_wait: Duration::from_secs(5),
};

/// The state of a run.
#[derive(Clone, Debug)]
pub struct Fleet {
    pub(crate) bounds: Bounds,
    pub(crate) desired: Desired,
    first_slot: u32,
    /// How many slots are wanted.
    pub(crate) wanted: u32,
    /// The longest Lease that was ever asked for.
    longest_lease: u32,
    /// The ledger as it was and is.
    history: Vec<Arc<Ledger>>,
    /// Every worker there ever was, the latest of a slot last.
    pods: Vec<Pod>,
    operators: [Operator; 2],
    now: Moment,
    /// How many versions of leases there were.
    lease_versions: u64,
    /// What may run twice: ownerships that ended by waiting, which at least once allows, and what all
    /// ran.
    excused: BTreeSet<(JobName, Token, SessionId)>,
    /// The highest token of each job, kept when the job goes.
    tokens: BTreeMap<JobName, Token>,
    /// The copy of the store, if it was copied.
    copy: Option<StoreCopy>,
    /// The oldest ledger that a read may still give: none from before a rollback.
    oldest: usize,
    /// How many workers there were when the ledger was lost.
    elders: usize,
    /// The highest token of each job then: under these, elders may still run what they were granted.
    elder_tokens: BTreeMap<JobName, Token>,
    /// The jobs that were granted since, at least once: nobody waited for elders.
    unawaited: BTreeSet<JobName>,
    /// The first thing that went wrong.
    wrong: Option<String>,
}

/// A copy of the store.
#[derive(Clone, Debug)]
struct StoreCopy {
    ledger: Arc<Ledger>,
    /// The Lease and the view of each worker.
    workers: Vec<(Option<Lease>, Option<SessionView>)>,
}

/// A worker, and what the store holds for it.
#[derive(Clone, Debug)]
struct Pod {
    slot: Slot,
    worker: Worker,
    /// Its lease as it was and is; a read may be old.
    leases: Vec<Option<Lease>>,
    /// Its acknowledgements in Leases that a rollback lost, of revisions that the copy has, too.
    lost_acks: Vec<Ack>,
    /// Its view as it was published; any of them may arrive, in any order.
    views: Vec<SessionView>,
    /// What it read of the ledger, and what has not arrived yet.
    reads: Vec<SessionEvent>,
    is_ready: bool,
    stuck: Option<Stuck>,
    /// How long it claims that it may act after a renewal.
    claims: Duration,
    /// The job that it believes to have crashed the one before it in its pod.
    blames: Option<JobName>,
    honesty: Honesty,
}

/// Whether a worker keeps to the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Honesty {
    /// It does.
    Honest,
    /// It writes what it likes into its Lease. Its process counts as running.
    Lies,
    /// It lied, and another session of its pod goes on with that.
    Lied,
    /// It lied, and its pod was deleted and has ended.
    Removed,
}

/// What a worker that renews its lease does not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// It reads no view.
    Reading,
    /// Its jobs never end.
    Stopping,
}

/// When a fleet begins, by its own clock.
const BEGINNING: Moment = Moment(Duration::from_secs(1_000));

/// An operator's knowledge; all of it is lost when it restarts, but for its clock.
#[derive(Clone, Debug)]
struct Operator {
    overseer: Overseer,
    decider: Decider,
    /// Its own clock. It may be slow: whoever waits longer does no harm.
    clock: Moment,
    began: Moment,
    /// When it last wrote the ledger.
    changed: Option<Moment>,
    /// When a watch or a request of it last failed.
    failed: Option<Moment>,
    /// Since when a slot's worker is away or leaving.
    away: BTreeMap<Slot, Moment>,
}

impl Fleet {
    /// An empty ledger, three workers that have just started, six jobs, two operators.
    #[must_use]
    pub fn new(terms: FleetTerms) -> Self {
        let now = BEGINNING;
        let bounds = Bounds { broken: terms.broken, ..BOUNDS };
        let operator = Operator::new(now, &bounds);
        let mut desired = Desired::default();
        desired.replication = terms.replication;
        desired.rules = Rules { mode: terms.mode, moves_max: terms.moves_max, ..Rules::default() };
        (desired.policy, desired.timing) = (terms.policy, TIMING);
        let mut fleet = Self {
            bounds,
            desired,
            first_slot: terms.first_slot,
            wanted: 3,
            longest_lease: bounds.lease,
            history: vec![Arc::new(Ledger::new(100))],
            pods: Vec::new(),
            operators: [operator.clone(), operator],
            now,
            lease_versions: 0,
            excused: BTreeSet::new(),
            tokens: BTreeMap::new(),
            copy: None,
            oldest: 0,
            elders: 0,
            elder_tokens: BTreeMap::new(),
            unawaited: BTreeSet::new(),
            wrong: None,
        };
        (0..6).for_each(|n| fleet.toggle_job(n));
        fleet.slots().for_each(|slot| fleet.start_pod(slot));
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

    /// For how long the fleet has run by its own clock, which needs almost no time outside.
    #[must_use]
    pub fn simulated(&self) -> Duration {
        self.now.0.saturating_sub(BEGINNING.0)
    }

    /// The incarnation of the ledger.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.ledger().cells.incarnation
    }

    /// What a worker runs, with the tokens it runs it under.
    #[must_use]
    pub fn runs(&self, n: usize) -> &BTreeMap<JobName, Token> {
        &self.pods[n].worker.running
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

    /// The slot that comes so many after the first.
    fn slot(&self, n: u32) -> Slot {
        Slot(self.first_slot + n)
    }

    /// The slots that are wanted.
    fn slots(&self) -> impl Iterator<Item = Slot> + use<> {
        (self.first_slot..self.first_slot + self.wanted).map(Slot)
    }

    fn is_wanted(&self, slot: Slot) -> bool {
        slot < self.slot(self.wanted)
    }

    /// Another ledger begins: whoever runs what was granted so far stops now.
    fn is_lost(&mut self) {
        self.elders = self.pods.len();
        for (job, token) in &self.tokens {
            let highest = self.elder_tokens.entry(job.clone()).or_insert(*token);
            *highest = (*token).max(*highest);
        }
        self.unawaited.clear();
    }

    /// Whether a ledger that was lost may have granted a job to a worker under this token.
    fn is_elders(&self, n: usize, job: &JobName, token: Token) -> bool {
        n < self.elders && self.elder_tokens.get(job).is_some_and(|highest| token <= *highest)
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

    /// A new worker for a slot: a container that is started again in its pod, or a new pod.
    fn start_pod(&mut self, slot: Slot) {
        let nonce = self.pods.len() as u64;
        let former = self.in_slot(slot).filter(|n| self.may_restart(*n));
        let uid = former.map(|n| self.pods[n].uid());
        let uid = uid.unwrap_or_else(|| format!("pod-{}-{nonce}", slot.0));
        let id = SessionId::new(&uid, nonce);
        self.pods.push(Pod {
            slot,
            worker: Worker::open(id, &self.bounds),
            leases: vec![None],
            lost_acks: Vec::new(),
            views: Vec::new(),
            reads: Vec::new(),
            is_ready: true,
            stuck: None,
            claims: self.lease_terms().duration,
            blames: former.and_then(|n| self.pods[n].worker.culprit.clone()),
            honesty: Honesty::Honest,
        });
    }

    /// Whether the worker that follows this one is started in the same pod.
    fn may_restart(&self, n: usize) -> bool {
        n % 4 == 3
            && self.pods[n].is_dead()
            && self.is_latest(n)
            && self.pods[n].honesty != Honesty::Removed
    }

    fn toggle_job(&mut self, n: usize) {
        let first = Job { run_once: n.is_multiple_of(2), ..Job::default() };
        wanted::toggle(&mut self.desired, n, first);
    }
}

impl Operator {
    fn new(now: Moment, bounds: &Bounds) -> Self {
        let overseer = Overseer::new(bounds.lease_terms());
        let (decider, changed, failed, away) = Default::default();
        Self { overseer, decider, clock: now, began: now, changed, failed, away }
    }
}

impl Pod {
    fn uid(&self) -> String {
        self.id().pod_uid().to_owned()
    }

    fn id(&self) -> &SessionId {
        self.worker.session.id()
    }

    fn lease(&self) -> Option<&Lease> {
        self.leases.last().and_then(Option::as_ref)
    }

    fn is_up(&self) -> bool {
        self.worker.life == Life::Up
    }

    /// Whether its jobs may do something: they run on while the worker is frozen, until its
    /// deadline.
    fn may_run(&self) -> bool {
        let Worker { life, session, clock, .. } = &self.worker;
        match life {
            Life::Up => true,
            Life::Paused => *clock < session.deadline(),
            Life::Dead => false,
        }
    }

    /// Whether its jobs can end.
    fn can_stop(&self) -> bool {
        self.is_up() && self.stuck.is_none()
    }

    fn is_dead(&self) -> bool {
        self.worker.life == Life::Dead && self.honesty != Honesty::Lies
    }
}

fn grace() -> Duration {
    TICK * (BOUNDS.stop + 3)
}
