//! A pool of plain workers: programs that read the view that they share, and answer nothing.
//!
//! Nothing proves that such a worker has released a job, so two workers may run one job for a
//! while. Jobs must move in small steps, and nothing may move in a pause. No worker may go while its
//! entry of the view has jobs. In the end the pool must recover completely. One operator decides; it
//! may restart at any time.

mod judge;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use swarm_core::handover::{LeaseTerms, Moment, Policy};
use swarm_core::overseer::{
    Containers, Fact, Overseer, PodFacts, PoolFacts, Protocol, WorkerFacts,
};
use swarm_core::{
    Decider, Desired, Job, JobName, Ledger, Observed, Presence, Replication, Rules, Share, Slot,
    Timing, View,
};

use crate::bounds::TICK;
use crate::wanted;

/// An act in the pool. Numbers name everything, modulo the number of things there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainAct {
    /// A tick passes.
    Tick,
    /// A worker reads the view that was published this number of publications ago.
    Read(usize, usize),
    /// A slot gets a new pod, which replaces any pod in it.
    Start(u32),
    /// A slot's pod ends.
    Crash(u32),
    /// The readiness of a slot's pod changes.
    Flip(u32),
    /// The workload is scaled to this number of slots.
    Scale(u32),
    /// The Swarm fixes the number of slots, or lets the workload decide.
    Replicas(Option<u32>),
    /// A job is wanted, or no longer.
    Toggle(usize),
    /// A job is pinned to a slot, or freed.
    Pin(usize, Option<u32>),
    /// A job reserves a share of a worker, in percent, or none.
    Share(usize, Option<u8>),
    /// A worker may have this number of jobs, or any number.
    MaxJobs(Option<u32>),
    /// A pause of the Swarm begins or ends.
    Pause(bool),
    /// Changes within this number of seconds after a change are collected.
    Batch(u32),
    /// Each job is for one worker from now on, or for all workers.
    Replicate(Replication),
    /// Ownerships end by this policy from now on.
    Change(Policy),
    /// The operator takes a turn from the ledger of this number of writes ago, and may end before
    /// it publishes.
    Turn(usize, bool),
    /// The operator restarts.
    Restart,
}

const TIMING: Timing = Timing {
    initial_wait: Duration::from_secs(1),
    return_grace: Duration::from_secs(3),
    not_ready_grace: Some(Duration::from_secs(4)),
    release_timeout: Duration::from_secs(6),
    fence_wait: Duration::from_secs(5),
};

/// The state of a run.
#[derive(Clone, Debug)]
pub struct PlainPool {
    desired: Desired,
    wanted: u32,
    history: Vec<Arc<Ledger>>,
    /// The published views, the latest last; a read may be old.
    views: Vec<View>,
    /// All pods so far. The latest pod of a slot is the last.
    pods: Vec<Pod>,
    operator: Operator,
    now: Moment,
    /// The moment when jobs were last taken from workers that would have kept them.
    moved: Option<Moment>,
    wrong: Option<String>,
}

#[derive(Clone, Debug)]
struct Pod {
    slot: Slot,
    uid: String,
    is_up: bool,
    is_ready: bool,
    /// The number of the publication that it read last. It takes no older publication.
    version: u64,
    runs: BTreeSet<JobName>,
}

#[derive(Clone, Debug)]
struct Operator {
    overseer: Overseer,
    decider: Decider,
    began: Moment,
    changed: Option<Moment>,
    handed_over: Moment,
    /// The state of each slot's worker, and the moment when that state began.
    since: BTreeMap<Slot, (State, Moment)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    NotReady,
    Away,
    Leaving,
}

impl Operator {
    fn new(now: Moment) -> Self {
        let overseer = Overseer::new(LeaseTerms::default());
        let (decider, changed, since) = Default::default();
        Self { overseer, decider, began: now, changed, handed_over: now, since }
    }
}

impl PlainPool {
    /// A pool with an empty ledger, three ready workers, six jobs, and a budget of `moves_max`.
    #[must_use]
    pub fn new(moves_max: Option<usize>) -> Self {
        let now = Moment(Duration::from_secs(1_000));
        let mut desired = Desired::default();
        desired.rules = Rules { moves_max, ..Rules::default() };
        (desired.policy, desired.timing) = (Policy::AtLeastOnce, TIMING);
        let mut pool = Self {
            desired,
            wanted: 3,
            history: vec![Arc::new(Ledger::new(100))],
            views: Vec::new(),
            pods: Vec::new(),
            operator: Operator::new(now),
            now,
            moved: None,
            wrong: None,
        };
        (0..6).for_each(|n| wanted::toggle(&mut pool.desired, n, Job::default()));
        (0..3).for_each(|n| pool.start(Slot(n)));
        pool
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

    /// Carries out an act, and checks that all invariants still hold.
    pub fn take(&mut self, act: PlainAct) {
        let desired = &mut self.desired;
        match act {
            PlainAct::Tick => self.now = self.now.after(TICK),
            PlainAct::Read(n, back) => self.read(n % self.pods.len(), back),
            PlainAct::Start(slot) if 0 < self.wanted => self.start(Slot(slot % self.wanted)),
            PlainAct::Start(_) => {}
            PlainAct::Crash(slot) => self.crash(Slot(slot % 5)),
            PlainAct::Flip(slot) => {
                if let Some(n) = self.in_slot(Slot(slot % 5)) {
                    self.pods[n].is_ready ^= true;
                }
            }
            PlainAct::Scale(wanted) => self.wanted = wanted % 5,
            PlainAct::Replicas(count) => desired.replicas = count.map(|count| count % 5),
            PlainAct::Toggle(n) => wanted::toggle(desired, n % 8, Job::default()),
            PlainAct::Pin(n, slot) => {
                wanted::change(desired, n, |job| job.pin = slot.map(|n| Slot(n % 5)));
            }
            PlainAct::Share(n, share) => wanted::change(desired, n, |job| {
                job.share = share.and_then(|percent| Share::new(percent).ok());
            }),
            PlainAct::MaxJobs(max) => desired.max_jobs = max,
            PlainAct::Pause(is_paused) => desired.paused = is_paused,
            PlainAct::Batch(ticks) => desired.batch_window = TICK * (ticks % 4),
            PlainAct::Replicate(replication) => desired.replication = replication,
            PlainAct::Change(policy) => desired.policy = policy,
            PlainAct::Turn(back, ends) => self.turn(back, ends),
            PlainAct::Restart => self.operator = Operator::new(self.now),
        }
    }

    fn is_wrong(&mut self, what: impl FnOnce() -> String) {
        if self.wrong.is_none() {
            self.wrong = Some(what());
        }
    }

    fn ledger(&self) -> &Arc<Ledger> {
        // The first ledger always exists.
        &self.history[self.history.len() - 1]
    }

    /// The pod that fills a slot now.
    fn in_slot(&self, slot: Slot) -> Option<usize> {
        self.pods.iter().rposition(|pod| pod.slot == slot).filter(|n| self.pods[*n].is_up)
    }

    fn start(&mut self, slot: Slot) {
        self.crash(slot);
        let uid = format!("pod-{}", self.pods.len());
        let (version, runs) = Default::default();
        self.pods.push(Pod { slot, uid, is_up: true, is_ready: true, version, runs });
    }

    fn crash(&mut self, slot: Slot) {
        if let Some(n) = self.in_slot(slot) {
            self.pods[n].is_up = false;
            self.pods[n].runs.clear();
        }
    }

    fn read(&mut self, n: usize, back: usize) {
        let newest = self.views.len().saturating_sub(1);
        let Some(view) = self.views.get(newest.saturating_sub(back)) else { return };
        let pod = &mut self.pods[n];
        if pod.is_up && pod.version < view.version {
            pod.version = view.version;
            let entry = view.workers.get(&format!("w-{}", pod.slot));
            pod.runs = entry.map(|entry| entry.jobs.clone()).unwrap_or_default();
        }
    }

    fn turn(&mut self, back: usize, ends: bool) {
        let newest = self.history.len() - 1;
        let base = newest.saturating_sub(back);
        let ledger = Arc::clone(&self.history[base]);
        self.operator.overseer.note(self.now, &ledger);
        let observed = self.observed();
        let decision = self.operator.decider.decide(&ledger, &self.desired, &observed);
        if decision.ledger != *ledger {
            // Another process wrote the ledger meanwhile, as this operator sees it.
            if base != newest {
                return;
            }
            self.judge_write(&ledger, &decision);
            self.history.push(Arc::new(decision.ledger.clone()));
            self.operator.overseer.note(self.now, &decision.ledger);
            if decision.ledger.version != ledger.version {
                self.operator.changed = Some(self.now);
            }
            if decision.plan.moves.iter().any(|step| step.from.is_some()) {
                self.operator.handed_over = self.now;
            }
        } else if base == newest {
            self.judge_wake(&decision);
        }
        if ends {
            self.operator = Operator::new(self.now);
            return;
        }
        let view = decision.ledger.view();
        if self.views.last().is_none_or(|last| last.version < view.version) {
            self.views.push(view);
        }
        if base == newest
            && let Some(count) = decision.replicas
        {
            self.judge_size(count);
            self.wanted = count;
        }
    }

    /// The operator's observations of the pool.
    fn observed(&mut self) -> Observed {
        let mut operator = self.operator.clone();
        let observed = self.observed_by(&mut operator, self.now);
        self.operator = operator;
        observed
    }

    fn observed_by(&self, operator: &mut Operator, now: Moment) -> Observed {
        for (n, pod) in self.pods.iter().enumerate() {
            let is_lost = self.in_slot(pod.slot) != Some(n);
            let facts = PodFacts {
                is_lost,
                has_terminated: !pod.is_up,
                is_node_off: false,
                containers: Containers::One,
            };
            operator.overseer.learn(now, Fact::Pod(pod.uid.clone(), facts));
        }
        let slots =
            (0..5).map(Slot).filter(|slot| slot.0 < self.wanted || self.in_slot(*slot).is_some());
        let workers: Vec<_> = slots.map(|slot| (slot, self.worker(operator, now, slot))).collect();
        let pool = PoolFacts {
            workers_desired: self.wanted as usize,
            protocol: Protocol::Plain,
            watched_for: now.since(operator.began),
            since_change: operator.changed.map(|changed| now.since(changed)),
            since_handover: Some(now.since(operator.handed_over)),
            ..PoolFacts::new(workers, now.0.as_millis().try_into().unwrap_or(u64::MAX))
        };
        operator.overseer.observed(now, self.desired.policy, pool)
    }

    fn worker(&self, operator: &mut Operator, now: Moment, slot: Slot) -> WorkerFacts {
        let is_wanted = slot.0 < self.wanted;
        let pod = self.in_slot(slot).map(|n| &self.pods[n]);
        let state = match pod {
            None => State::Away,
            Some(_) if !is_wanted => State::Leaving,
            Some(pod) if pod.is_ready => State::Ready,
            Some(_) => State::NotReady,
        };
        let seen = operator.since.entry(slot).or_insert((state, now));
        if seen.0 != state {
            *seen = (state, now);
        }
        let age = now.since(seen.1);
        let presence = match state {
            State::Ready => Presence::Ready,
            State::NotReady => Presence::NotReady(age),
            State::Away => Presence::Away(age),
            State::Leaving => Presence::Leaving(age),
        };
        let pod = pod.map(|pod| pod.uid.clone());
        WorkerFacts { name: format!("w-{slot}"), presence, pod, is_wanted, is_replaced: false }
    }
}
