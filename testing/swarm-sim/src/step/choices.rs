//! The steps that may happen next in a world.

use swarm_core::handover::{Rule, Watch, WatchStage};
use swarm_core::overseer::Proofs;

use crate::{Answer, Copied, Fault, Goal, ProcessState, Step, Waited, Worker, World};

impl World {
    /// All steps that may happen next.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (n, worker) in self.workers.iter().enumerate().filter(|(n, _)| self.is_active(*n)) {
            self.worker_steps(n, worker, &mut steps);
        }
        for (n, worker) in self.workers.iter().enumerate().filter(|(n, _)| !self.is_active(*n)) {
            let may_be_chosen = worker.process == ProcessState::Up && !self.is_last();
            steps.extend(may_be_chosen.then_some(Step::Refresh(n)));
        }
        for (o, proofs) in self.operators.iter().enumerate().filter(|_| !self.is_last()) {
            self.operator_steps(o, proofs, &mut steps);
        }
        let has_died =
            self.workers.last().is_some_and(|worker| worker.process == ProcessState::Dead);
        let may_open = self.bounds.may(Fault::Restart) && self.workers.len() < self.bounds.sessions;
        // A new worker could receive no jobs once the ledger cannot change any more.
        steps.extend((may_open && has_died && !self.is_last()).then_some(Step::Open));
        if self.bounds.may(Fault::Delete) {
            let stored = (0..self.leases.len()).filter(|n| self.leases[*n].is_some());
            steps.extend(stored.filter(|n| self.is_active(*n)).map(Step::Delete));
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
            // With one message at a time, losing it and no longer waiting for its answer are one
            // step.
            let is_own_step = 1 < self.bounds.in_flight || !worker.is_waiting;
            steps.extend(is_own_step.then_some(Step::Drop(n, i)));
        }
        match worker.process {
            ProcessState::Dead => return,
            ProcessState::Paused => {
                steps.push(Step::Resume(n));
                steps.extend(self.bounds.may(Fault::Crash).then_some(Step::Crash(n)));
                return;
            }
            ProcessState::Up => (),
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

    fn operator_steps(&self, o: usize, proofs: &Proofs, steps: &mut Vec<Step>) {
        for (n, lease) in self.leases.iter().enumerate().filter(|(n, _)| self.is_active(*n)) {
            let watch = proofs.get(self.bounds.session(n));
            if watch.is_some_and(|watch| matches!(watch.stage, WatchStage::Ended(_))) {
                continue;
            }
            let is_news = lease.is_some() || watch.is_some();
            steps.extend(is_news.then_some(Step::Observe(o, n)));
            steps.extend(self.copies[n].as_ref().map(|_| Step::ReadCopy(o, n, Copied::Old)));
            let is_foreign = lease.is_some() && self.bounds.may(Fault::ForeignLease);
            steps.extend(is_foreign.then_some(Step::ReadCopy(o, n, Copied::Foreign)));
            if watch.is_some_and(|watch| watch.is_silent(self.now, &self.bounds.lease_terms())) {
                steps.push(Step::Revoke(o, n, Answer::Arrives));
                steps.push(Step::Revoke(o, n, Answer::IsLost));
            }
            let may_restart = self.bounds.may(Fault::Restart);
            if watch.is_some() && self.workers[n].process == ProcessState::Dead && !may_restart {
                steps.push(Step::LearnEnd(o, n));
            }
        }
        if self.bounds.may(Fault::Crash) && proofs.iter().next().is_some() {
            steps.push(Step::Restart(o));
        }
        let newest = self.history.len() - 1;
        let first = if self.bounds.keeps(Rule::CompareAndSet) { newest } else { 0 };
        for base in first..=newest {
            let waits = self.bounds.may(Fault::Timeout)
                || self.bounds.may(Fault::Hold)
                || self.bounds.may(Fault::Poison);
            for goal in self.goals(proofs) {
                if waits {
                    steps.push(Step::Turn(o, base, goal.clone(), Waited::Long));
                }
                steps.push(Step::Turn(o, base, goal, Waited::Nothing));
            }
        }
    }

    /// All ways to place all jobs: each on a session that the operator considers alive, in a slot,
    /// or nowhere.
    fn goals(&self, proofs: &Proofs) -> Vec<Vec<Goal>> {
        let alive = |watch: &Watch| !matches!(watch.stage, WatchStage::Ended(_));
        let is_alive = |n: &usize| proofs.get(self.bounds.session(*n)).is_some_and(alive);
        let sessions = (0..self.workers.len()).filter(is_alive).map(Goal::Session);
        let slots = if self.bounds.may(Fault::Hold) { 0..self.workers.len() } else { 0..0 };
        let places: Vec<_> =
            std::iter::once(Goal::Nowhere).chain(sessions).chain(slots.map(Goal::Slot)).collect();
        let mut goals = vec![Vec::new()];
        for _ in 0..self.bounds.jobs {
            let longer = |goal: Vec<Goal>| {
                let with = move |place: &Goal| {
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
}
