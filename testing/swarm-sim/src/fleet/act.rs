//! The acts in a fleet. Numbers name everything, modulo the number of things there are. So every
//! list of acts is a run, and so is every part of it.

use std::sync::Arc;

use swarm_core::handover::{Ack, Holder, Lease, Policy, SessionView};
use swarm_core::overseer::Fact;
use swarm_core::session::SessionEvent;
use swarm_core::{Ledger, Replication, Share};

use super::{BOUNDS, Fleet, Honesty, Lie, Operator, StoreCopy, Stuck, grace};
use crate::ProcessState;
use crate::bounds::TICK;
use crate::wanted;
use crate::worker::{Ask, Worker};

/// An act in a fleet. An act that cannot happen now changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// A worker does everything it can: writes, answers, the newest view, joins.
    Calm(usize),
    /// A worker's writes reach the store and are answered, and so are its reads.
    Report(usize),
    /// A worker's write reaches the store.
    Apply(usize),
    /// A worker's write is lost.
    Drop(usize),
    /// A worker reads the answer to its write.
    Reply(usize),
    /// A worker's read of the ledger arrives, from this number of reads ago.
    Read(usize, usize),
    /// A worker stops waiting for the answer.
    Lose(usize),
    /// A worker reads the view of this number of publications ago.
    View(usize, usize),
    /// A job that was to stop has ended.
    Join(usize),
    /// A run-to-completion job has ended well.
    Finish(usize),
    /// A worker crashes; one of its jobs may be the culprit.
    Crash(usize, Option<usize>),
    /// A worker is frozen.
    Freeze(usize),
    /// A frozen worker runs again.
    Resume(usize),
    /// A worker is asked to end.
    Terminate(usize),
    /// A worker continues to renew its Lease, but neglects one duty.
    Stick(usize, Stuck),
    /// A slot gets a new worker. If the previous worker still runs, it is cut off, which no
    /// operator sees.
    Start(u32),
    /// A worker's readiness changes.
    Flip(usize),
    /// The workload is scaled to this number of slots.
    Scale(u32),
    /// A job is wanted, or no longer.
    Toggle(usize),
    /// A job is pinned to a slot, or freed.
    Pin(usize, Option<u32>),
    /// A job reserves a share of a worker, in percent, or none.
    Share(usize, Option<u8>),
    /// A job runs to completion from now on, or no longer does.
    RunOnce(usize),
    /// A job is suspended, or resumed.
    Suspend(usize),
    /// All jobs are suspended, or follow their own settings again.
    SuspendAll(bool),
    /// The worker in a slot has this percentage of the largest worker's size, or all of it.
    Size(u32, Option<u8>),
    /// A pause of the Swarm begins or ends.
    Pause(bool),
    /// The Swarm fixes the number of slots, or lets the workload decide.
    Replicas(Option<u32>),
    /// A job becomes more or less important than the others.
    Priority(usize, i32),
    /// Changes within this number of seconds after a change are collected.
    Batch(u32),
    /// Ownerships end by this policy from now on.
    Change(Policy),
    /// The Leases of workers that start from now on last four ticks and this number of ticks.
    Lease(u32),
    /// Each job is for one worker from now on, or for all workers.
    Replicate(Replication),
    /// A worker may have this number of jobs, or any number.
    MaxJobs(Option<u32>),
    /// Time passes. The clocks of the workers in the set of bits miss it, if they may. The two
    /// highest bits are for the clocks of operators.
    Tick(u32),
    /// An operator reads all Leases of this number of versions ago.
    Observe(usize, usize),
    /// An operator is notified of the processes that have ended.
    LearnEnds(usize),
    /// An operator revokes silent sessions; the answers may be lost.
    Revoke(usize, bool),
    /// An operator takes a turn from the ledger of this number of writes ago, and may end in the
    /// middle.
    Turn(usize, usize, Option<Stop>),
    /// A watch or a request of an operator fails.
    Fail(usize),
    /// An operator restarts.
    Restart(usize),
    /// An operator deletes the leases of sessions that have ended and hold nothing.
    Sweep(usize),
    /// A user deletes a Lease by hand.
    DeleteLease(usize),
    /// A session writes anything into its Lease, and keeps no rule afterwards.
    Lie(usize, Lie),
    /// The store is copied.
    Copy,
    /// The ledger is rolled back by one write and this number more. An operator that has seen the
    /// newest ledger runs meanwhile, and takes the next turn.
    RollBack(usize, usize),
    /// The store is rolled back to its copy, after it was away for one tick and this number more.
    /// This follows the instructions: no operator runs meanwhile, and the ledger is left out.
    RestoreWithoutLedger(u32),
    /// The whole store is rolled back to its copy, with the ledger. Before that, it was away for
    /// one tick and this number more. The operators in the set of bits restart meanwhile. The
    /// others notice the rollback and continue.
    Restore(u32, u32),
}

/// The point in a turn at which an operator ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Before it wrote the ledger.
    BeforeSave,
    /// Between writing the ledger and publishing it.
    BeforePublish,
}

impl Fleet {
    /// Carries out an act, and checks that all invariants still hold.
    pub fn take(&mut self, act: Act) {
        self.carry_out(act);
        self.judge_permits();
        self.judge_state();
    }

    fn carry_out(&mut self, act: Act) {
        let pods = self.pods.len();
        match act {
            Act::Calm(n) => self.calm(n % pods),
            Act::Report(n) => {
                for _ in 0..2 {
                    self.apply(n % pods);
                    self.reply(n % pods);
                    self.read(n % pods);
                }
            }
            Act::Apply(n) => self.apply(n % pods),
            Act::Drop(n) => {
                let requests = &mut self.pods[n % pods].worker.requests;
                requests.truncate(requests.len().saturating_sub(1));
            }
            Act::Reply(n) => self.reply(n % pods),
            Act::Read(n, back) => {
                let reads = &mut self.pods[n % pods].reads;
                let newest = reads.len().saturating_sub(1);
                if let Some(read) = reads.get(newest.saturating_sub(back)).cloned() {
                    self.feed(n % pods, read);
                }
            }
            Act::Lose(n) => self.lose(n % pods),
            Act::View(n, back) => self.view(n % pods, back),
            Act::Join(n) => self.join(n % pods),
            Act::Finish(n) => self.finish(n % pods),
            Act::Crash(n, culprit) => self.crash(n % pods, culprit),
            Act::Freeze(n) => {
                if self.pods[n % pods].is_up() {
                    self.pods[n % pods].worker.process = ProcessState::Paused;
                }
            }
            Act::Resume(n) => self.resume(n % pods),
            Act::Terminate(n) => self.feed(n % pods, SessionEvent::Terminate { grace: grace() }),
            Act::Stick(n, stuck) => self.pods[n % pods].stuck = Some(stuck),
            Act::Start(slot) => {
                let slot = self.slot(slot % self.wanted.max(1));
                if self.is_wanted(slot) {
                    self.start_pod(slot);
                }
            }
            Act::Flip(n) => self.pods[n % pods].is_ready ^= true,
            Act::Scale(wanted) => self.wanted = wanted % 5,
            Act::Toggle(n) => self.toggle_job(n % 8),
            Act::Pin(n, slot) => {
                let slot = slot.map(|n| self.slot(n % 5));
                wanted::change(&mut self.desired, n, |job| job.pin = slot);
            }
            Act::Share(n, share) => wanted::change(&mut self.desired, n, |job| {
                job.share = share.and_then(|percent| Share::new(percent).ok());
            }),
            Act::RunOnce(n) => wanted::change(&mut self.desired, n, |job| job.run_once ^= true),
            Act::Suspend(n) => wanted::change(&mut self.desired, n, |job| job.suspend ^= true),
            Act::SuspendAll(is_suspended) => self.desired.suspend = is_suspended,
            Act::Size(slot, size) => {
                let (slot, size) =
                    (self.slot(slot % 5), size.and_then(|percent| Share::new(percent).ok()));
                self.desired.capacity_by_slot.remove(&slot);
                self.desired.capacity_by_slot.extend(size.map(|size| (slot, size)));
            }
            Act::Pause(is_paused) => self.desired.paused = is_paused,
            Act::Replicas(count) => self.desired.replicas = count.map(|count| count % 5),
            Act::Priority(n, priority) => {
                wanted::change(&mut self.desired, n, |job| job.priority = priority);
            }
            Act::Batch(ticks) => self.desired.batch_window = TICK * (ticks % 4),
            Act::Change(policy) => self.desired.policy = policy,
            Act::Lease(ticks) => self.ask_for_leases(BOUNDS.lease + ticks % 5),
            Act::Replicate(replication) => self.desired.replication = replication,
            Act::MaxJobs(max) => self.desired.max_jobs = max,
            Act::Tick(slow) => self.tick(slow),
            Act::Observe(o, back) => self.observe(o % 2, back),
            Act::LearnEnds(o) => self.learn_ends(o % 2),
            Act::Revoke(o, is_lost) => self.revoke(o % 2, is_lost),
            Act::Turn(o, back, stop) => self.turn(o % 2, back, stop),
            Act::Fail(o) => self.fail(o % 2),
            Act::Restart(o) => self.restart(o % 2),
            Act::Sweep(o) => self.sweep(o % 2),
            Act::DeleteLease(n) => self.delete_lease(n % pods),
            Act::Lie(n, lie) => self.lie(n % pods, lie),
            Act::Copy => self.copy(),
            Act::RollBack(o, back) => self.roll_back(o % 2, back),
            Act::RestoreWithoutLedger(outage) => self.restore_without_ledger(outage),
            Act::Restore(outage, restarts) => self.restore(outage, restarts),
        }
    }

    fn copy(&mut self) {
        let of = |pod: &super::Pod| (pod.lease().cloned(), pod.views.last().cloned());
        let workers = self.pods.iter().map(of).collect();
        self.copy = Some(StoreCopy { ledger: Arc::clone(self.ledger()), workers });
    }

    fn restore_without_ledger(&mut self, outage: u32) {
        let Some(StoreCopy { workers, .. }) = self.copy.clone() else { return };
        self.be_away(outage, &workers);
        let fresh = Ledger::new(self.unix_time());
        self.put_back(fresh.into(), workers);
        (0..2).for_each(|o| self.restart(o));
    }

    fn restore(&mut self, outage: u32, restarts: u32) {
        let Some(StoreCopy { ledger, workers }) = self.copy.clone() else { return };
        self.be_away(outage, &workers);
        let tokens = ledger.cells.jobs.iter();
        let tokens = tokens.map(|(job, it)| (job.clone(), it.cell.token())).collect();
        self.put_back(ledger, workers);
        // A grant that was lost no longer counts if its session has ended.
        self.tokens = tokens;
        self.oldest = self.history.len() - 1;
        for o in 0..2 {
            if restarts & (1 << o) == 0 {
                let operator = &mut self.operators[o];
                operator.overseer.learn(operator.clock, Fact::StoreRolledBack);
            } else {
                self.restart(o);
            }
            // No operator takes a turn before it has listed all Leases of the restored store.
            self.observe(o, 0);
        }
    }

    /// Makes the store unreachable for `outage` ticks and one. It stays away for longer if a
    /// rollback to this copy would not be noticed otherwise.
    fn be_away(&mut self, outage: u32, workers: &[(Option<Lease>, Option<SessionView>)]) {
        // The ledger does not show that a worker with a view that the copy lacks may act. So this
        // worker must have stopped.
        let is_forgotten = self.pods.iter().enumerate().any(|(n, pod)| {
            !pod.views.is_empty() && workers.get(n).is_none_or(|(_, view)| view.is_none())
        });
        // The durations of Leases that began before an edit are lost with the ledger.
        let asked = self.lease_terms().duration;
        let is_longer = |pod: &super::Pod| {
            !pod.is_dead() && pod.honesty == Honesty::Honest && asked < pod.claims
        };
        let waits = is_forgotten || self.pods.iter().any(is_longer);
        let shortest = if waits { self.longest_lease + BOUNDS.drift } else { 0 };
        // No two ledgers begin at the same moment, or their tokens would begin alike.
        (0..=outage.max(shortest)).for_each(|_| self.tick(0));
    }

    fn put_back(
        &mut self,
        ledger: Arc<Ledger>,
        workers: Vec<(Option<Lease>, Option<SessionView>)>,
    ) {
        // A session that runs jobs of earlier grants stops, or still holds them.
        self.is_lost();
        let position = ledger.position();
        self.history.push(ledger);
        let is_of_copy = |ack: &Ack| {
            let furthest = ack.revision.max(ack.stopping.reads);
            ack.incarnation == position.incarnation && furthest <= position.revision
        };
        let mut workers = workers.into_iter();
        for pod in &mut self.pods {
            let (lease, view) = workers.next().unwrap_or_default();
            pod.lost_acks.extend(pod.leases.drain(..).flatten().map(|lease| lease.ack));
            pod.lost_acks.retain(is_of_copy);
            // Stale reads do not return anything from before the rollback, since the API server has
            // restarted, too.
            pod.leases = vec![None, lease];
            match view {
                Some(view) => pod.views.push(view),
                None => pod.views.clear(),
            }
        }
    }

    /// Rolls back the ledger alone in its store. The operator that wrote it last notices.
    fn roll_back(&mut self, o: usize, back: usize) {
        // No two ledgers begin at the same moment, or their tokens would begin alike.
        self.tick(0);
        let (now, newest) = (self.operators[o].clock, Arc::clone(self.ledger()));
        self.operators[o].overseer.note(now, &newest);
        let before = (self.history.len() - 1).saturating_sub(1 + back).max(self.oldest);
        let older = Arc::clone(&self.history[before]);
        // No operator can remember a ledger that was never written.
        if 0 < newest.revision() && older.position() < newest.position() {
            self.history.push(older);
            self.is_lost();
            self.turn(o, 0, None);
        }
    }

    fn ask_for_leases(&mut self, ticks: u32) {
        self.bounds.lease = ticks;
        self.longest_lease = self.longest_lease.max(ticks);
        let terms = self.lease_terms();
        self.desired.timing.fence_wait = terms.fence_wait();
        for operator in &mut self.operators {
            operator.overseer.set_terms(terms);
        }
    }

    fn delete_lease(&mut self, n: usize) {
        if self.pods[n].lease().is_some() {
            self.pods[n].leases.push(None);
        }
    }

    pub(super) fn restart(&mut self, o: usize) {
        self.operators[o] = Operator::new(self.operators[o].clock, &self.bounds);
    }

    fn fail(&mut self, o: usize) {
        let operator = &mut self.operators[o];
        operator.overseer.learn(operator.clock, Fact::StoreFailed);
        operator.failed = Some(operator.clock);
    }

    pub(super) fn feed(&mut self, n: usize, event: SessionEvent) {
        if !self.pods[n].is_up() {
            return;
        }
        let asks = self.pods[n].worker.feed(event, &self.bounds);
        for ask in asks {
            match ask {
                Ask::Lease => {
                    let lease = self.pods[n].lease().cloned();
                    self.feed(n, SessionEvent::LeaseRead(lease));
                }
                // A worker in a cluster may read its view, but no ledger.
                Ask::Ledger(number) => {
                    let read = self.pods[n].views.last().map(|view| SessionEvent::LedgerRead {
                        number,
                        incarnation: view.incarnation,
                        revision: view.revision,
                    });
                    self.pods[n].reads.extend(read);
                }
            }
        }
    }

    /// Delivers all reads of the ledger by a worker.
    fn read(&mut self, n: usize) {
        for read in std::mem::take(&mut self.pods[n].reads) {
            self.feed(n, read);
        }
    }

    /// Carries out all pending messages and joins of a worker. It takes several rounds, since
    /// answers lead to new writes.
    pub(super) fn calm(&mut self, n: usize) {
        for _ in 0..3 {
            self.apply(n);
            self.reply(n);
            self.read(n);
            self.view(n, 0);
            while self.pods[n].can_stop() && !self.pods[n].worker.stopping.is_empty() {
                self.join(n);
            }
        }
    }

    fn apply(&mut self, n: usize) {
        if self.pods[n].worker.requests.is_empty() {
            return;
        }
        let version = self.next_lease_version();
        let pod = &mut self.pods[n];
        let write = pod.worker.requests.remove(0);
        let was_final = pod.lease().is_some_and(|lease| lease.holder != Holder::Session);
        let result = write.onto(pod.lease(), version);
        if pod.worker.is_waiting && pod.worker.sent == write.number {
            pod.worker.reply = Some(result.as_ref().map(|lease| lease.version).map_err(|_| ()));
        }
        if let Ok(lease) = result {
            pod.leases.push(Some(lease));
            if was_final {
                self.is_wrong(|| format!("the lease of worker {n} came back"));
            }
        }
    }

    fn reply(&mut self, n: usize) {
        if !self.pods[n].is_up() {
            return;
        }
        let worker = &mut self.pods[n].worker;
        let Some(reply) = worker.reply.take() else { return };
        worker.is_waiting = false;
        let number = worker.sent;
        let event = match reply {
            Ok(version) => SessionEvent::Written { number, version },
            Err(()) => SessionEvent::Conflict { number },
        };
        self.feed(n, event);
    }

    pub(super) fn lose(&mut self, n: usize) {
        let worker = &mut self.pods[n].worker;
        if !worker.is_waiting || worker.process != ProcessState::Up {
            return;
        }
        worker.is_waiting = false;
        worker.reply = None;
        let number = worker.sent;
        self.feed(n, SessionEvent::Lost { number });
    }

    fn view(&mut self, n: usize, back: usize) {
        if self.pods[n].stuck == Some(Stuck::Reading) {
            return;
        }
        let views = &self.pods[n].views;
        let newest = views.len().saturating_sub(1);
        let Some(view) = views.get(newest.saturating_sub(back)).cloned() else { return };
        self.feed(n, SessionEvent::View(view));
    }

    fn join(&mut self, n: usize) {
        if !self.pods[n].can_stop() {
            return;
        }
        let worker = &mut self.pods[n].worker;
        if let Some(job) = worker.stopping.pop_first() {
            worker.running.remove(&job);
            self.feed(n, SessionEvent::Joined(job));
        }
    }

    fn finish(&mut self, n: usize) {
        let ledger = Arc::clone(self.ledger());
        let can_stop = self.pods[n].can_stop();
        let worker = &mut self.pods[n].worker;
        // A job that all workers run never finishes for all of them.
        let is_held = |job: &swarm_core::JobName| {
            ledger.cells.jobs.get(job).is_none_or(|record| record.cell.holder().is_some())
        };
        let is_going = |job: &&swarm_core::JobName| !worker.stopping.contains(*job) && is_held(job);
        let first = worker.running.keys().find(is_going).cloned();
        if let Some(job) = first.filter(|_| can_stop) {
            worker.running.remove(&job);
            self.feed(n, SessionEvent::Finished(job));
        }
    }

    fn crash(&mut self, n: usize, culprit: Option<usize>) {
        let pod = &mut self.pods[n];
        if pod.is_dead() {
            return;
        }
        let count = pod.worker.running.len().max(1);
        let job = culprit.and_then(|k| pod.worker.running.keys().nth(k % count).cloned());
        pod.worker.culprit = job;
        pod.worker.die();
    }

    pub(super) fn resume(&mut self, n: usize) {
        if self.pods[n].worker.process == ProcessState::Paused {
            self.pods[n].worker.process = ProcessState::Up;
            self.feed(n, SessionEvent::Resumed);
        }
    }

    pub(super) fn tick(&mut self, slow: u32) {
        self.now = self.now.after(TICK);
        for (o, operator) in self.operators.iter_mut().enumerate() {
            if slow & (1 << (30 + o)) == 0 {
                operator.clock = operator.clock.after(TICK);
            }
        }
        for n in 0..self.pods.len() {
            let is_asked = slow & (1 << (n % 30)) != 0;
            let may = self.pods[n].worker.may_be_slow(&self.bounds);
            let was_up = self.pods[n].is_up();
            // The session receives its tick below, where its questions are answered.
            if was_up {
                self.pods[n].worker.process = ProcessState::Paused;
            }
            let _ = self.pods[n].worker.tick(is_asked && may, &self.bounds);
            if was_up {
                self.pods[n].worker.process = ProcessState::Up;
                self.wake(n);
            }
        }
    }

    /// Wakes a session when it asks for that. Checks that time alone changes nothing before.
    fn wake(&mut self, n: usize) {
        let Worker { session, clock, .. } = &self.pods[n].worker;
        if session.wakes_at().is_some_and(|at| at <= *clock) {
            return self.feed(n, SessionEvent::Tick);
        }
        let overdue = session.clone().step(*clock, SessionEvent::Tick);
        if !overdue.is_empty() {
            let wakes_at = session.wakes_at();
            self.is_wrong(|| format!("worker {n} wakes at {wakes_at:?}, too late for {overdue:?}"));
        }
    }
}
