//! The main loop: runs a turn after every change, and reports when the pool is settled.

mod again;
mod health;
mod inputs;
mod removed;
mod report;
mod requests;
mod said;
mod stores;
mod turns;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use swarm_adapters_host::clock::{unix_ms, unix_s};
use swarm_adapters_host::http::Socket;
use swarm_adapters_host::timer;
use swarm_core::ports::LedgerStore as _;
use swarm_core::{Ledger, Slot};
use swarm_terminal::hands::Request;
use swarm_terminal::shutdown::Shutdown;

use self::again::Claim;
use self::health::Health;
use self::inputs::Inputs;
use self::said::Said;
use self::stores::Stores;
use self::turns::Turns;
use super::ending::{self, Cause, Granted};
use super::history::History;
use super::lives::LivesFile;
use super::outlets::Outlets;
use super::until::{self, End, Until};
use crate::print::text::{self, Placed};
use crate::processes::Workers;
use crate::processes::worker::WorkerProgram;
use crate::settings::input::{Edit, Wanted};
use crate::state_dir::state::{self, StateDir};

pub(crate) use self::inputs::Sources;

/// Time between two checks of `--until-settled`.
const LOOK: Duration = Duration::from_millis(200);

/// The time for which requests of one command are gathered before a turn.
const GATHER: Duration = Duration::from_millis(50);

/// The longest time until that turn.
const GATHER_MAX: Duration = Duration::from_millis(500);

/// Exit code for a settled pool with a job that has no worker or is not restarted any more. `plan`
/// uses the same code.
const UNASSIGNED: u8 = 3;

/// Time between two rounds that rotate or remove growing files.
const TIDY: Duration = Duration::from_secs(10);

/// A Swarm that runs on this machine.
pub(crate) struct Operation {
    inputs: Inputs,
    claim: Claim,
    worker: WorkerProgram,
    stores: Stores,
    turns: Turns,
    health: Health,
    said: Said,
    /// The history of moves.
    history: History,
    /// The counts of the jobs.
    lives: LivesFile,
    outlets: Outlets,
    started: Instant,
    /// Time since which the pool is not settled; `None` while it is.
    unsettled_since: Option<Instant>,
}

/// Reason for waking the loop.
enum Woken {
    /// An observation changed; it may need a turn.
    Observed,
    /// A turn is due.
    Due,
    Edited(Edit),
    /// A person acts on a job.
    Asked(Request),
    Signalled,
}

impl Operation {
    /// Prepares to run `wanted` with its state in `dir`. The time until the pool is first settled
    /// counts from `since`.
    pub(crate) async fn start(
        (dir, socket): (StateDir, Option<Arc<Socket>>),
        sources: Sources,
        wanted: Wanted,
        worker: WorkerProgram,
        since: Instant,
        outlets: Outlets,
    ) -> anyhow::Result<Self> {
        let inputs = Inputs::open(sources, wanted, dir.path())?;
        let stores = Stores::open(dir.path(), &inputs.wanted, &worker, &outlets)?;
        let settled = stores.ledgers.load().await?.map(|(ledger, _)| Placed::of(&ledger));
        let (lives, unread) = LivesFile::open(dir.path(), &outlets.reports);
        if let Some(sentence) = unread {
            outlets.voice.complain(&sentence);
        }
        Ok(Self {
            inputs,
            history: History::open(dir.path(), outlets.origin.away_since_ms),
            lives,
            claim: Claim::new(dir, socket),
            worker,
            stores,
            turns: Turns::begin(),
            health: Health::default(),
            said: Said::after(settled.unwrap_or_default()),
            outlets,
            started: Instant::now(),
            unsettled_since: Some(since),
        })
    }

    /// Runs until a signal or until the pool is settled, depending on `until`; then ends the
    /// workers.
    pub(crate) async fn run(
        mut self,
        until: Until,
        shutdown: &Shutdown,
    ) -> anyhow::Result<ExitCode> {
        let outcome = self.follow(until, shutdown).await;
        let (since, workers) = (Instant::now(), self.stores.workers.borrow().len());
        let killed = self.end_workers(shutdown).await;
        if self.lives.due_at(&self.outlets.reports).is_some() {
            self.lives.write(&self.outlets.reports);
        }
        let sentence = text::ending(workers, since.elapsed(), &killed);
        self.outlets.ended(&sentence);
        match (outcome?, until) {
            (End::Signalled, Until::Settled(_)) => {
                anyhow::bail!("ended by a signal before the pool was settled");
            }
            (End::Signalled, Until::Signalled) => return Ok(ExitCode::SUCCESS),
            (End::GivenUp(sentence), _) => {
                self.outlets.voice.complain(&sentence);
                return Ok(ExitCode::from(UNASSIGNED));
            }
            (End::Settled, _) => {}
        }
        Ok(if 0 < self.turns.without_worker() {
            ExitCode::from(UNASSIGNED)
        } else {
            ExitCode::SUCCESS
        })
    }

    /// Ends the workers. Returns a clause about killed jobs and workers.
    async fn end_workers(&mut self, shutdown: &Shutdown) -> String {
        let mut granted = Granted::new();
        let snapshot = Arc::clone(&self.outlets.snapshots.borrow());
        for row in &snapshot.status.workers {
            granted.insert(Slot(row.slot), row.jobs + row.releasing);
        }
        let end = ending::End {
            processes: &mut self.stores.processes,
            workers: &self.stores.workers,
            outlets: &self.outlets,
            granted,
            reported: self.said.killed,
            cause: Cause::Late,
        };
        end.run(shutdown).await
    }

    async fn follow(&mut self, until: Until, shutdown: &Shutdown) -> anyhow::Result<End> {
        let mut recheck_at = Some(Instant::now());
        let mut tidy_at = Instant::now() + TIDY;
        // Time of the first request since the last turn. A command about several jobs sends one for
        // each, and a turn in between would move other jobs for nothing.
        let mut gathered_since = None;
        while !shutdown.is_ending() {
            if tidy_at <= Instant::now() {
                tidy_at = Instant::now() + TIDY;
                self.tidy();
            }
            let slots = self.inputs.wanted.slots.clone();
            let elapsed = self.started.elapsed();
            let scale_in = self.turns.follow_jobs(&mut self.inputs.wanted, elapsed);
            let scale_at = scale_in.map(|scale_in| Instant::now() + scale_in);
            if slots != self.inputs.wanted.slots {
                self.unsettled_since.get_or_insert_with(Instant::now);
                recheck_at = Some(Instant::now());
            }
            let Self { inputs: Inputs { wanted, .. }, stores, outlets, .. } = self;
            stores.fill_slots(wanted);
            let has_changed = stores.workers.has_changed().unwrap_or(true);
            let workers = stores.workers.borrow_and_update().clone();
            self.said.killed(&stores.processes, outlets, Cause::Late);
            self.said.warned(stores.processes.warnings(), &outlets.voice);
            let is_new = self.health.look(stores, &workers, wanted.output, &outlets.reports);
            let is_over = self.inputs.removed.forget_late(unix_s());
            let is_new = is_new || is_over;
            self.report_deaths(&workers);
            self.replace_silent(&workers);
            // The turn must not write into another directory.
            if self.claim.dir.is_lost() {
                self.start_again(shutdown).await;
                recheck_at = Some(Instant::now());
                continue;
            }
            let due = recheck_at.is_some_and(|at| at <= Instant::now());
            let is_gathering = gathered_since.is_some() && !due;
            let turned = if is_gathering {
                None
            } else {
                gathered_since = None;
                let Self { inputs: Inputs { wanted, .. }, stores, outlets, .. } = self;
                let seen = (&workers, &self.health);
                self.turns.turn_if_needed(stores, wanted, seen, outlets, (due, elapsed)).await?
            };
            if let Some(recheck_in) = turned {
                recheck_at = recheck_in.map(|recheck_in| Instant::now() + recheck_in);
            }
            if turned.is_some() || has_changed || is_new || self.unsettled_since.is_some() {
                self.report(&workers);
            }
            let mut look_at = None;
            if let Until::Settled(limit) = until {
                if let Some(end) = self.settled_end(limit)? {
                    return Ok(end);
                }
                look_at = Some(Instant::now() + LOOK);
            }
            let forgets_at = self.inputs.removed.left(unix_s()).map(|left| Instant::now() + left);
            let wake_at = recheck_at.into_iter().chain(scale_at).chain(look_at);
            let wake_at = wake_at.chain(forgets_at).chain(self.lives_at()).min();
            match self.wait(wake_at, shutdown).await {
                Woken::Observed => {}
                Woken::Due => recheck_at = Some(Instant::now()),
                Woken::Edited(edit) => {
                    if self.edit(edit) {
                        recheck_at = Some(Instant::now());
                    }
                }
                Woken::Asked(request) => {
                    if self.act(request) {
                        self.unsettled_since.get_or_insert_with(Instant::now);
                        let first = gathered_since.get_or_insert_with(Instant::now);
                        recheck_at = Some((Instant::now() + GATHER).min(*first + GATHER_MAX));
                    }
                }
                Woken::Signalled => break,
            }
        }
        Ok(End::Signalled)
    }

    /// Writes the counts of the wanted jobs if that is due. Returns the time at which it is due next, or
    /// at which a job does not fail any more.
    fn lives_at(&mut self) -> Option<Instant> {
        let Self { inputs: Inputs { wanted, .. }, lives, outlets: Outlets { reports, .. }, .. } =
            self;
        reports.lives().retain(|job| wanted.desired.jobs.contains_key(job));
        if lives.due_at(reports).is_some_and(|at| at <= Instant::now()) {
            lives.write(reports);
        }
        let well_in = reports.lives().well_in(unix_ms());
        let well_at = well_in.map(|ms| Instant::now() + Duration::from_millis(ms));
        well_at.into_iter().chain(lives.due_at(reports)).min()
    }

    /// Takes over an edit. Returns whether the next turn is due.
    fn edit(&mut self, edit: Edit) -> bool {
        let is_due = !matches!(edit, Edit::Waits(_));
        let revision = self.turns.ledger().map_or(0, Ledger::revision);
        let diff = format!("swarm diff{} {revision}", state::options(self.claim.dir.path()));
        if let Some(noticed) = self.inputs.edit(edit, &diff, &self.outlets.voice) {
            self.turns.problem = None;
            self.stores.set_details(&self.inputs.wanted);
            self.unsettled_since.get_or_insert(noticed);
        }
        is_due
    }

    /// Rotates large logs, and removes files without a use.
    fn tidy(&mut self) {
        if let Err(error) = self.worker.run_log().rotate(self.claim.dir.path()) {
            tracing::warn!(%error, "the run log cannot be rotated and keeps growing");
        }
        self.stores.tidy(&self.inputs.wanted, self.turns.ledger());
    }

    /// Reports workers that ended without a request.
    fn report_deaths(&mut self, workers: &Workers) {
        for (slot, worker) in self.said.died(workers) {
            self.unsettled_since.get_or_insert_with(Instant::now);
            let end = worker.last_death.as_deref().unwrap_or("ended");
            self.outlets.voice.say(&format!("{} {end}; restarting it", worker.name));
            self.history.note(&format!("worker {} {end}", worker.name));
            let snapshot = Arc::clone(&self.outlets.snapshots.borrow());
            let noted = self.stores.note_death((slot, worker), end, &self.inputs.wanted, &snapshot);
            if let Err(error) = noted {
                tracing::warn!(%error, "the logs of jobs do not say that their worker ended");
            }
        }
    }

    /// Kills silent workers, which may be frozen.
    fn replace_silent(&mut self, workers: &Workers) {
        let Stores { sessions, processes, .. } = &mut self.stores;
        for cause in sessions.revoke_silent(processes, workers, &self.outlets.voice) {
            self.history.note(&cause);
        }
    }

    /// Checks whether `--until-settled` ends now.
    fn settled_end(&self, limit: Duration) -> anyhow::Result<Option<End>> {
        if let Some(problem) = self.turns.lasting_problem(self.inputs.wanted.workers()) {
            anyhow::bail!("{problem}");
        }
        let settled = self.turns.ledger().filter(|_| self.unsettled_since.is_none());
        let not_up = settled.map(|ledger| self.stores.not_up(ledger));
        let snapshot = self.outlets.snapshots.borrow().clone();
        let end = until::end(&snapshot.status, not_up.as_ref(), self.started.elapsed(), limit);
        end.map_err(anyhow::Error::msg)
    }

    /// Waits for an event that may change the decision.
    async fn wait(&mut self, recheck_at: Option<Instant>, shutdown: &Shutdown) -> Woken {
        let Self { inputs: Inputs { sources, wanted, .. }, claim, stores, .. } = self;
        let Stores { sessions, workers, news, .. } = stores;
        let overseer_at = sessions.wakes_in().and_then(|span| Instant::now().checked_add(span));
        tokio::select! {
            () = shutdown.ends() => Woken::Signalled,
            edit = sources.input.edited(wanted) => Woken::Edited(edit),
            Some(request) = sources.requests.recv() => Woken::Asked(request),
            () = claim.lost() => Woken::Observed,
            () = sessions.changed() => Woken::Observed,
            _ = workers.changed() => Woken::Observed,
            () = news.heard() => Woken::Observed,
            () = timer::until(overseer_at.map(Into::into)) => Woken::Observed,
            () = timer::until(recheck_at.map(Into::into)) => Woken::Due,
        }
    }
}
