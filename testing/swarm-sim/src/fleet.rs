//! A whole pool: the stored ledger, Leases and views, independent operators, and workers that come
//! and go. It is too large to explore, so random runs drive it.
//!
//! The runs test the shipped parts together: [`decide`](swarm_core::decide) with its ledger, the
//! [`Overseer`] and [`Session`](swarm_core::session::Session). This module does the work of an
//! adapter between them in its simplest form: it sees pods, reads Leases and writes views.

mod act;
mod fair;
mod heal;
mod judge;
mod lie;
mod operator;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub use act::{Act, Stop};
pub use fair::Delay;
pub use lie::{Edge, Extent, Lie, Numbers};

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
use crate::{Bounds, ProcessState};

/// The settings that stay the same in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetTerms {
    /// The policy that ends an ownership.
    pub policy: Policy,
    /// The number of workers that run each job.
    pub replication: Replication,
    /// The number of voluntary moves that may be under way.
    pub moves_max: Option<usize>,
    /// The mode of rebalancing: how much previous placements count.
    pub mode: Mode,
    /// The lowest slot.
    pub first_slot: u32,
    /// The rule of sessions and their watches that is broken on purpose.
    pub broken: Option<Rule>,
    /// The mistake of operators that lets one worker hold up the others.
    pub delay: Option<Delay>,
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
            delay: None,
        }
    }
}

/// Leases of four ticks, renewed with every tick. A worker's clock may miss one tick per Lease.
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
    delay: Option<Delay>,
    /// The number of wanted slots.
    pub(crate) wanted: u32,
    /// The longest duration of a Lease that was ever asked for.
    longest_lease: u32,
    /// The states of the ledger, the latest last.
    history: Vec<Arc<Ledger>>,
    /// Every worker so far, the latest of a slot last.
    pods: Vec<Pod>,
    operators: [Operator; 2],
    now: Moment,
    /// The number of versions of Leases so far.
    lease_versions: u64,
    /// The runs that may overlap: their ownership ended by waiting, which `AtLeastOnce` allows,
    /// or all workers ran the job.
    excused: BTreeSet<(JobName, Token, SessionId)>,
    /// The highest token of each job, kept when the job goes.
    tokens: BTreeMap<JobName, Token>,
    /// The copy of the store, if it was copied.
    copy: Option<StoreCopy>,
    /// The position of the oldest ledger that a read may still return: none from before a rollback.
    oldest: usize,
    /// The number of workers when the ledger was lost: the elders.
    elders: usize,
    /// The highest token of each job when the ledger was lost. Under tokens up to these, elders may
    /// still run jobs.
    elder_tokens: BTreeMap<JobName, Token>,
    /// The jobs that were granted since then under `AtLeastOnce`. These grants did not wait for
    /// elders.
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

/// A worker, and the objects that the store holds for it.
#[derive(Clone, Debug)]
struct Pod {
    slot: Slot,
    worker: Worker,
    /// The states of its Lease, the latest last; a read may be old.
    leases: Vec<Option<Lease>>,
    /// The acknowledgements in its Leases that a rollback lost, of revisions that the copy also
    /// has.
    lost_acks: Vec<Ack>,
    /// Its published views, the latest last. Any of them may arrive, in any order.
    views: Vec<SessionView>,
    /// Its reads of the ledger that have not arrived yet.
    reads: Vec<SessionEvent>,
    is_ready: bool,
    stuck: Option<Stuck>,
    /// The time for which it claims that it may act after a renewal.
    claims: Duration,
    /// The longest time that it ever claimed.
    longest_claim: Duration,
    /// The job that it believes to have crashed its predecessor in the same pod.
    blames: Option<JobName>,
    /// The numbers of its lies.
    numbers: Numbers,
    honesty: Honesty,
}

/// Whether a worker keeps to the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Honesty {
    /// It does.
    Honest,
    /// It writes anything into its Lease. Its process counts as running.
    Lies,
    /// It lied. Another session of its pod continues the lies, or it has ended unnoticed.
    Lied,
    /// It lied, and its pod was deleted and has ended.
    Removed,
}

/// The duty that a stuck worker neglects while it renews its Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// It reads no views.
    Reading,
    /// Its jobs never end.
    Stopping,
}

/// The time at which a fleet begins, by its own clock.
const BEGINNING: Moment = Moment(Duration::from_secs(1_000));

/// An operator's knowledge. It loses everything except its clock when it restarts.
#[derive(Clone, Debug)]
struct Operator {
    overseer: Overseer,
    decider: Decider,
    /// Its own clock. It may be slow, since a longer wait does no harm.
    clock: Moment,
    began: Moment,
    /// The moment when it last wrote the ledger.
    changed: Option<Moment>,
    /// The moment when one of its watches or requests last failed.
    failed: Option<Moment>,
    /// The moment since when each slot's worker is away or leaving.
    away: BTreeMap<Slot, Moment>,
}

impl Fleet {
    /// A fleet with an empty ledger, three workers that have just started, six jobs and two
    /// operators.
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
            delay: terms.delay,
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

    /// The number of writes of the ledger.
    #[must_use]
    pub fn writes(&self) -> usize {
        self.history.len() - 1
    }

    /// The time for which the fleet has run by its own clock. Real time hardly passes meanwhile.
    #[must_use]
    pub fn simulated(&self) -> Duration {
        self.now.0.saturating_sub(BEGINNING.0)
    }

    /// The incarnation of the ledger.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.ledger().cells.incarnation
    }

    /// The jobs that a worker runs, each with its token.
    #[must_use]
    pub fn runs(&self, n: usize) -> &BTreeMap<JobName, Token> {
        &self.pods[n].worker.running
    }

    fn ledger(&self) -> &Arc<Ledger> {
        // The first ledger always exists.
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

    /// The slot with this distance from the first.
    fn slot(&self, n: u32) -> Slot {
        Slot(self.first_slot + n)
    }

    /// The wanted slots.
    fn slots(&self) -> impl Iterator<Item = Slot> + use<> {
        (self.first_slot..self.first_slot + self.wanted).map(Slot)
    }

    fn is_wanted(&self, slot: Slot) -> bool {
        slot < self.slot(self.wanted)
    }

    /// Notes that the ledger was lost. Workers that run jobs of the lost ledger now count as
    /// elders.
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

    /// The time that a new ledger's tokens start from. Tokens rise by one with each move, and there
    /// are fewer moves than milliseconds.
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

    /// Starts a new worker for a slot: a restarted container in the same pod, or a new pod.
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
            longest_claim: self.lease_terms().duration,
            blames: former.and_then(|n| self.pods[n].worker.culprit.clone()),
            numbers: Numbers::Rising,
            honesty: Honesty::Honest,
        });
    }

    /// Whether the worker that follows this one starts in the same pod.
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
        self.worker.process == ProcessState::Up
    }

    /// Whether its jobs may act. They run on while the worker is frozen, until its deadline.
    fn may_run(&self) -> bool {
        let Worker { process, session, clock, .. } = &self.worker;
        match process {
            ProcessState::Up => true,
            ProcessState::Paused => *clock < session.deadline(),
            ProcessState::Dead => false,
        }
    }

    /// Whether its jobs can end.
    fn can_stop(&self) -> bool {
        self.is_up() && self.stuck.is_none()
    }

    fn is_dead(&self) -> bool {
        self.worker.process == ProcessState::Dead && self.honesty != Honesty::Lies
    }
}

fn grace() -> Duration {
    TICK * (BOUNDS.stop + 3)
}
