//! Carries out requests of a person: restart, suspend, resume and retry.

use std::sync::Arc;

use swarm_adapters_host::clock::unix_ms;
use swarm_core::life::{Cause, News};
use swarm_core::{JobName, Slot};
use swarm_terminal::hands::{Answer, Request};
use swarm_view::action::Action;
use swarm_view::age::age;
use swarm_view::picture::RUN_AGAIN;

use super::Operation;
use super::inputs::Inputs;
use crate::pool::snapshot::JobRow;

impl Operation {
    /// Carries out an action of a person. Returns whether the desired state changed.
    pub(super) fn act(&mut self, request: Request) -> bool {
        let Request { action, job, answer } = request;
        let done = match JobName::new(&job) {
            Ok(name) if self.inputs.wanted.desired.jobs.contains_key(&name) => {
                self.act_on(action, &name)
            }
            Ok(_) | Err(_) => Err(format!("the pool has no job `{}`", job.escape_default())),
        };
        if let Ok(effect) = &done {
            self.outlets.metrics.ordered(action.as_str());
            self.outlets.voice.say(&format!("by hand: {effect}"));
        }
        let is_edit = done.is_ok() && matches!(action, Action::Suspend | Action::Resume);
        // The person may have lost patience.
        let _ = answer.send(done);
        is_edit
    }

    fn act_on(&mut self, action: Action, name: &JobName) -> Answer {
        let Inputs { by_hand, wanted, .. } = &mut self.inputs;
        let jobs = &mut wanted.desired.jobs;
        match action {
            Action::Suspend => {
                by_hand.suspend(name, jobs).map(|()| format!("{} {name}", action.done()))
            }
            Action::Resume => {
                by_hand.resume(name, jobs).map(|()| format!("{} {name}", action.done()))
            }
            Action::Restart | Action::Retry => {
                let snapshot = Arc::clone(&self.outlets.snapshots.borrow());
                let Some(row) = snapshot.job(name.as_str()) else {
                    return Err(format!("`{name}` has no worker yet"));
                };
                let unassigned = snapshot.status.unassigned(name.as_str()).map(|it| &*it.reason);
                let (phase, _) = row.phase(&self.outlets.reports, unassigned);
                if phase == "done" {
                    return Err(format!("`{name}` is done, since it has `runOnce`; {RUN_AGAIN}"));
                }
                if action == Action::Retry && phase != "failed" {
                    return Err(format!(
                        "`{name}` is {phase}, and retry is for jobs that are not restarted any \
                         more; `restart` begins it again"
                    ));
                }
                self.restart(action, name, row, phase)
            }
        }
    }

    /// Restarts a job on its worker, or on all workers.
    fn restart(&self, action: Action, name: &JobName, row: &JobRow, phase: &str) -> Answer {
        let slots: Vec<_> = match row.slot {
            Some(_) if row.state == "releasing" => {
                return Err(format!("`{name}` is {phase}; try again once it has ended"));
            }
            Some(slot) => vec![Slot(slot)],
            None if row.state == "everywhere" => {
                self.stores.workers.borrow().keys().copied().collect()
            }
            None => return Err(format!("`{name}` is {phase}, and runs on no worker")),
        };
        let asked = |slot: &&Slot| self.stores.processes.restart_job(**slot, name.as_str());
        let asked: Vec<_> = slots.iter().filter(asked).collect();
        if asked.is_empty() {
            return Err(format!("the worker of `{name}` takes no requests now; try again"));
        }
        let workers = self.stores.workers.borrow();
        let names = asked.iter().filter_map(|slot| {
            let worker = &workers.get(slot)?.name;
            let silent = self.health.silent.get(slot).map(|since| age(since.elapsed()));
            let silent = silent.map(|age| format!(" (silent for {age})")).unwrap_or_default();
            Some(format!("{worker}{silent}"))
        });
        let names = names.collect::<Vec<_>>().join(", ");
        let order = News::Event(Cause::ByHand, action.as_str());
        self.outlets.reports.lives().learn(unix_ms(), name, &names, order);
        Ok(format!("asked {names} to {} {name}", action.as_str()))
    }
}
