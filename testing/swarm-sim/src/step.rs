//! What may happen in a world, and what follows from it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use swarm_core::JobName;
use swarm_core::Slot;
use swarm_core::handover::{
    Holder, Lease, Life as Seen, Place, Rule, Sight, Watch, WatchEffect, WatchEvent, advance,
    check_step,
};
use swarm_core::session::SessionEvent;

use crate::bounds::TICK;
use crate::invariant::of_write;
use crate::worker::Ask;
use crate::world::{jobs, session_id};
use crate::{Fault, Invariant, Life, Operator, Worker, World};

/// Something that may happen. Sessions and operators are told by number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The next worker starts. Only at the beginning.
    Open,
    /// A worker ends without a word.
    Crash(usize),
    /// A worker is frozen.
    Pause(usize),
    /// A frozen worker runs again.
    Resume(usize),
    /// A worker is told to end.
    Terminate(usize),
    /// A worker that has nothing to do renews its lease, and all operators see it, in one step.
    Refresh(usize),
    /// A job that was to stop has ended.
    Join(usize, JobName),
    /// A finite job has ended well.
    Finish(usize, JobName),
    /// A worker reads a view: the ledger's state of that place in its history, for that session.
    View(usize, usize, usize),
    /// A worker's write reaches the store.
    Apply(usize, usize),
    /// A worker's write is lost on its way.
    Drop(usize, usize),
    /// A worker reads the answer to its latest write.
    Reply(usize),
    /// A worker stops waiting for the answer.
    Lose(usize),
    /// Time passes; the clocks of the workers in the set of bits miss it.
    Tick(u32),
    /// An operator reads a session's lease.
    Observe(usize, usize),
    /// An operator learns that a worker's process has ended.
    LearnEnd(usize, usize),
    /// An operator revokes a silent session, and gets the answer or does not.
    Revoke(usize, usize, Answer),
    /// An operator takes a turn from that place in the history, towards a goal: per job a session.
    Turn(usize, usize, Vec<Option<usize>>),
    /// An operator ends and starts anew.
    Restart(usize),
}

/// Whether an answer arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It does.
    Arrives,
    /// It does not; what was asked for has happened all the same.
    IsLost,
}

impl World {
    /// Everything that may happen next.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (n, worker) in self.workers.iter().enumerate().filter(|(n, _)| self.is_active(*n)) {
            self.worker_steps(n, worker, &mut steps);
        }
        for (n, worker) in self.workers.iter().enumerate().filter(|(n, _)| !self.is_active(*n)) {
            let may_be_chosen = worker.life == Life::Up && !self.is_last();
            steps.extend(may_be_chosen.then_some(Step::Refresh(n)));
        }
        for (o, operator) in self.operators.iter().enumerate().filter(|_| !self.is_last()) {
            self.operator_steps(o, operator, &mut steps);
        }
        let slow = |bits: &u32| {
            let is_slow = |n: usize| bits & (1 << n) != 0;
            let all = (0..self.workers.len()).filter(|n| is_slow(*n));
            all.clone().all(|n| self.workers[n].may_be_slow(&self.bounds))
        };
        steps.extend((0..1_u32 << self.workers.len()).filter(slow).map(Step::Tick));
        steps
    }

    fn worker_steps(&self, n: usize, worker: &Worker, steps: &mut Vec<Step>) {
        for i in 0..worker.requests.len() {
            steps.push(Step::Apply(n, i));
            // With one message at a time, losing one and no longer waiting for it are one step.
            let is_own_step = 1 < self.bounds.in_flight || !worker.is_waiting;
            steps.extend(is_own_step.then_some(Step::Drop(n, i)));
        }
        match worker.life {
            Life::Dead => return,
            Life::Paused => {
                steps.push(Step::Resume(n));
                steps.extend(self.bounds.may(Fault::Crash).then_some(Step::Crash(n)));
                return;
            }
            Life::Up => (),
        }
        steps.extend(self.bounds.may(Fault::Crash).then_some(Step::Crash(n)));
        steps.extend(self.bounds.may(Fault::Pause).then_some(Step::Pause(n)));
        steps.extend(self.bounds.may(Fault::Terminate).then_some(Step::Terminate(n)));
        steps.extend(worker.stopping.iter().map(|job| Step::Join(n, job.clone())));
        if self.bounds.may(Fault::Finish) {
            let running = worker.running.keys().filter(|job| !worker.stopping.contains(*job));
            steps.extend(running.map(|job| Step::Finish(n, job.clone())));
        }
        if worker.is_waiting {
            steps.push(Step::Lose(n));
            steps.extend(worker.reply.map(|_| Step::Reply(n)));
        }
        let keeps = self.bounds.keeps(Rule::NewerViewsOnly);
        let is_new = |k: &usize| !keeps || worker.seen < self.history[*k].revision;
        for k in (0..self.history.len()).filter(is_new) {
            let whose =
                if self.bounds.may(Fault::ForeignView) { 0..self.workers.len() } else { n..n + 1 };
            steps.extend(whose.map(|whose| Step::View(n, k, whose)));
        }
    }

    fn operator_steps(&self, o: usize, operator: &Operator, steps: &mut Vec<Step>) {
        for (n, lease) in self.leases.iter().enumerate().filter(|(n, _)| self.is_active(*n)) {
            let watch = operator.watches.get(&n);
            if watch.is_some_and(|watch| matches!(watch.life, Seen::Ended(_))) {
                continue;
            }
            let is_news = lease.is_some() || watch.is_some();
            steps.extend(is_news.then_some(Step::Observe(o, n)));
            if watch.is_some_and(|watch| watch.is_silent(self.now, &self.bounds.lease_terms())) {
                steps.push(Step::Revoke(o, n, Answer::Arrives));
                steps.push(Step::Revoke(o, n, Answer::IsLost));
            }
            if watch.is_some() && self.workers[n].life == Life::Dead {
                steps.push(Step::LearnEnd(o, n));
            }
        }
        if self.bounds.may(Fault::Crash) && !operator.watches.is_empty() {
            steps.push(Step::Restart(o));
        }
        let newest = self.history.len() - 1;
        let first = if self.bounds.keeps(Rule::CompareAndSet) { newest } else { 0 };
        for base in first..=newest {
            let goals = self.goals(operator).into_iter();
            steps.extend(goals.map(|goal| Step::Turn(o, base, goal)));
        }
    }

    /// Every way to place all jobs on the sessions an operator takes for alive, or nowhere.
    fn goals(&self, operator: &Operator) -> Vec<Vec<Option<usize>>> {
        let alive = |watch: &Watch| !matches!(watch.life, Seen::Ended(_));
        let sessions = operator.watches.iter().filter(|(_, watch)| alive(watch));
        let places: Vec<_> = std::iter::once(None).chain(sessions.map(|(n, _)| Some(*n))).collect();
        let mut goals = vec![Vec::new()];
        for _ in 0..self.bounds.jobs {
            let longer = |goal: Vec<Option<usize>>| {
                let with = move |place: &Option<usize>| {
                    let mut goal = goal.clone();
                    goal.push(*place);
                    goal
                };
                places.iter().map(with).collect::<Vec<_>>()
            };
            goals = goals.into_iter().flat_map(longer).collect();
        }
        goals
    }

    /// The world after `step`, or `None` if it changes nothing.
    #[must_use]
    pub fn after(&self, step: &Step) -> Option<Self> {
        let mut next = self.clone();
        next.take(step).then_some(next)
    }

    /// Lets `step` happen; tells whether it changed anything.
    pub fn take(&mut self, step: &Step) -> bool {
        match step {
            Step::Open => {
                let id = session_id(self.workers.len());
                self.workers.push(Arc::new(Worker::open(id, &self.bounds)));
            }
            Step::Crash(n) => self.worker(*n).die(),
            Step::Pause(n) => self.worker(*n).life = Life::Paused,
            Step::Resume(n) => {
                self.worker(*n).life = Life::Up;
                self.feed(*n, SessionEvent::Resumed);
            }
            Step::Terminate(n) => {
                let grace = TICK * (self.bounds.stop + 1);
                self.feed(*n, SessionEvent::Terminate { grace });
            }
            Step::Refresh(n) => return self.refresh(*n),
            Step::Join(n, job) => {
                self.worker(*n).running.remove(job);
                self.worker(*n).stopping.remove(job);
                self.feed(*n, SessionEvent::Joined(job.clone()));
            }
            Step::Finish(n, job) => {
                self.worker(*n).running.remove(job);
                self.feed(*n, SessionEvent::Finished(job.clone()));
            }
            Step::View(n, k, whose) => {
                let view = self.history[*k].view(&session_id(*whose));
                if whose == n {
                    self.worker(*n).seen = view.revision;
                }
                let before = self.workers[*n].session.clone();
                self.feed(*n, SessionEvent::View(view));
                return before != self.workers[*n].session;
            }
            Step::Apply(n, i) => self.apply(*n, *i),
            Step::Drop(n, i) => {
                self.worker(*n).requests.remove(*i);
            }
            Step::Reply(n) => self.reply(*n),
            Step::Lose(n) => {
                if self.bounds.in_flight == 1 {
                    self.worker(*n).requests.clear();
                }
                self.worker(*n).is_waiting = false;
                self.worker(*n).reply = None;
                let number = self.workers[*n].sent;
                self.feed(*n, SessionEvent::Lost { number });
            }
            Step::Tick(slow) => self.tick(*slow),
            Step::Observe(o, n) => return self.observe(*o, *n),
            Step::LearnEnd(o, n) => self.tell(*o, *n, &WatchEvent::ProcessEnded),
            Step::Revoke(o, n, answer) => return self.revoke(*o, *n, *answer),
            Step::Turn(o, base, goal) => return self.turn(*o, *base, goal),
            Step::Restart(o) => self.operator(*o).watches.clear(),
        }
        true
    }

    fn worker(&mut self, n: usize) -> &mut Worker {
        Arc::make_mut(&mut self.workers[n])
    }

    fn operator(&mut self, o: usize) -> &mut Operator {
        Arc::make_mut(&mut self.operators[o])
    }

    fn feed(&mut self, n: usize, event: SessionEvent) {
        let bounds = Arc::clone(&self.bounds);
        let asks = self.worker(n).feed(event, &bounds);
        self.answer(n, asks);
    }

    /// Reads for a worker what it wants to know from the store itself.
    fn answer(&mut self, n: usize, asks: Vec<Ask>) {
        for ask in asks {
            let event = match ask {
                Ask::Lease => SessionEvent::LeaseRead(self.leases[n].as_deref().cloned()),
                Ask::Ledger => SessionEvent::LedgerRead {
                    incarnation: self.cells().incarnation,
                    revision: self.cells().revision,
                },
            };
            self.feed(n, event);
        }
    }

    fn refresh(&mut self, n: usize) -> bool {
        let is_held = |lease: &Arc<Lease>| lease.holder == Holder::Session;
        if !self.leases[n].as_ref().is_some_and(is_held) || self.workers[n].session.is_over() {
            return false;
        }
        self.worker(n).requests.clear();
        if self.workers[n].is_waiting {
            self.take(&Step::Lose(n));
        }
        // An unanswered write may have landed before: then the first attempt is refused.
        for _ in 0..2 {
            if !self.workers[n].requests.is_empty() {
                self.apply(n, 0);
                self.reply(n);
            }
        }
        for o in 0..self.operators.len() {
            self.observe(o, n);
        }
        true
    }

    fn apply(&mut self, n: usize, i: usize) {
        let write = self.worker(n).requests.remove(i);
        let version = self.next_version();
        let was_final = self.leases[n].as_ref().is_some_and(|held| held.holder != Holder::Session);
        let result = write.onto(self.leases[n].as_deref(), version);
        let worker = self.worker(n);
        if worker.is_waiting && worker.sent == write.number {
            worker.reply = Some(result.as_ref().map(|lease| lease.version).map_err(|_| ()));
        }
        if let Ok(lease) = result {
            if was_final {
                self.broken = Some(Invariant::EndsAreFinal);
            }
            self.leases[n] = Some(Arc::new(lease));
        }
    }

    fn reply(&mut self, n: usize) {
        let worker = self.worker(n);
        let number = worker.sent;
        worker.is_waiting = false;
        let event = match worker.reply.take() {
            Some(Ok(version)) => SessionEvent::Written { number, version },
            Some(Err(())) => SessionEvent::Conflict { number },
            None => return,
        };
        self.feed(n, event);
    }

    fn tick(&mut self, slow: u32) {
        let bounds = Arc::clone(&self.bounds);
        self.now = self.now.after(TICK);
        for n in 0..self.workers.len() {
            let asks = self.worker(n).tick(slow & (1 << n) != 0, &bounds);
            self.answer(n, asks);
        }
        for o in 0..self.operators.len() {
            for n in 0..self.leases.len() {
                self.tell(o, n, &WatchEvent::Tick);
            }
        }
    }

    fn observe(&mut self, o: usize, n: usize) -> bool {
        let Some(lease) = self.leases[n].as_deref().cloned() else { return false };
        let before = self.operators[o].watches.get(&n).cloned();
        if before.is_none() {
            let watch = Watch::begin(self.now, &lease);
            self.operator(o).watches.insert(n, watch);
        } else {
            self.tell(o, n, &WatchEvent::Seen(lease));
        }
        before.as_ref() != self.operators[o].watches.get(&n)
    }

    fn tell(&mut self, o: usize, n: usize, event: &WatchEvent) {
        let (now, terms) = (self.now, self.bounds.lease_terms());
        if let Some(watch) = self.operator(o).watches.get_mut(&n) {
            let _ = watch.step(now, event, &terms);
        }
    }

    fn revoke(&mut self, o: usize, n: usize, answer: Answer) -> bool {
        let terms = self.bounds.lease_terms();
        let now = self.now;
        let Some(watch) = self.operator(o).watches.get_mut(&n) else { return false };
        let asked = watch.step(now, &WatchEvent::Suspect, &terms);
        let Some(WatchEffect::Revoke(version)) = asked else { return false };
        let next = self.next_version();
        let stored = self.leases[n].as_ref();
        let revoked = stored.and_then(|lease| lease.revoke(version, next, terms.rules).ok());
        let is_known = revoked.is_some() && answer == Answer::Arrives;
        let has_changed = revoked.is_some();
        if has_changed {
            self.leases[n] = revoked.map(Arc::new);
        }
        let event = if is_known {
            WatchEvent::RevocationWritten(version)
        } else {
            WatchEvent::RevocationFailed
        };
        self.tell(o, n, &event);
        has_changed
    }

    fn turn(&mut self, o: usize, base: usize, goal: &[Option<usize>]) -> bool {
        let cells = Arc::clone(&self.history[base]);
        let place = |to: &Option<usize>| match to {
            Some(n) => Place::Session(slot(*n), session_id(*n)),
            None => Place::Nowhere,
        };
        let goal = jobs(&self.bounds).zip(goal.iter().map(place)).collect();
        let watches = self.operators[o].watches.iter();
        let evidence =
            watches.map(|(n, watch)| (session_id(*n), watch.evidence(cells.incarnation))).collect();
        let ages: BTreeMap<JobName, Duration> = BTreeMap::new();
        let sight = Sight { goal: &goal, evidence: &evidence, ages: &ages };
        let terms = self.bounds.handover_terms();
        let Some(save) = advance(&cells, &sight, &terms) else { return false };
        let Ok(next) = save.onto(self.cells(), terms.rules) else { return false };
        self.broken = self.broken.or_else(|| of_write(self, &next));
        if self.broken.is_none() && check_step(&cells, &next, &sight, &terms).is_err() {
            self.broken = Some(Invariant::StepIsJudgedGood);
        }
        self.history.push(Arc::new(next));
        true
    }
}

fn slot(n: usize) -> Slot {
    Slot(u32::try_from(n).unwrap_or(u32::MAX))
}
