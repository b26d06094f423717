//! The loop: whatever changes, take a turn; tell a person when everything runs where it should.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use swarm_adapters_host::ledger::FileLedgerStore;
use swarm_adapters_host::processes::{Phase, Processes, WorkerCommand, Workers};
use swarm_adapters_host::view::FileViewStore;
use swarm_core::handover::SessionId;
use swarm_core::ports::{LedgerStore as _, StoreError};
use swarm_core::{Assignment, Decision, Observed, Presence, Slot, View, WorkerSeen, turn};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::Until;
use super::input::{Edit, Input, Wanted};
use super::text::{self, Settled};

/// How long to wait before a store that gave no answer is asked again.
const RETRY: Duration = Duration::from_secs(1);

/// A Swarm that runs on this machine.
pub(super) struct Operation {
    input: Input,
    wanted: Wanted,
    ledgers: FileLedgerStore,
    views: FileViewStore,
    processes: Processes,
    workers: watch::Receiver<Workers>,
    watched_since: Instant,
    /// Since when the pool is on its way to what is wanted; `None` while it is settled.
    unsettled_since: Option<Instant>,
    /// Who held what when the pool was last settled, for telling what moved.
    settled: Assignment,
    /// How many ends of workers were told.
    deaths_told: BTreeMap<Slot, u32>,
    /// The complaint about a store that was made last, which is not made again every second.
    complaint: Option<String>,
}

/// Why the loop waits no longer.
enum Woken {
    Again,
    Edited(Edit),
    Told,
}

impl Operation {
    /// Prepares to run `wanted` with its state in `dir`; the time until the pool is first settled
    /// is counted from `since`.
    pub(super) async fn start(
        dir: &Path,
        input: Input,
        wanted: Wanted,
        since: Instant,
    ) -> anyhow::Result<Self> {
        let cannot = || format!("the state directory {} cannot be used", dir.display());
        let ledgers = FileLedgerStore::open(dir).with_context(cannot)?;
        let views = FileViewStore::open(dir).with_context(cannot)?;
        let processes = Processes::open(dir, worker_command(views.path(), &wanted)?);
        let processes = processes.with_context(cannot)?;
        let settled = ledgers.load().await?.map(|(ledger, _)| ledger.assignment());
        Ok(Self {
            workers: processes.watch(),
            input,
            wanted,
            ledgers,
            views,
            processes,
            watched_since: Instant::now(),
            unsettled_since: Some(since),
            settled: settled.unwrap_or_default(),
            deaths_told: BTreeMap::new(),
            complaint: None,
        })
    }

    /// Runs until a signal, or until the pool is settled if that is what is waited for; then ends
    /// the workers.
    pub(super) async fn run(
        mut self,
        until: Until,
        shutdown: &CancellationToken,
    ) -> anyhow::Result<ExitCode> {
        let outcome = self.follow(until, shutdown).await;
        let (since, workers) = (Instant::now(), self.workers.borrow().len());
        self.processes.end().await;
        text::say(&text::ending(workers, since.elapsed()));
        if until == Until::Settled && outcome.is_ok() && self.unsettled_since.is_some() {
            anyhow::bail!("ended by a signal before the pool was settled");
        }
        outcome.map(|()| ExitCode::SUCCESS)
    }

    async fn follow(&mut self, until: Until, shutdown: &CancellationToken) -> anyhow::Result<()> {
        while !shutdown.is_cancelled() {
            self.fill_slots();
            let workers = self.workers.borrow_and_update().clone();
            self.tell_deaths(&workers);
            let observed = observed(&self.wanted, &workers, self.watched_since.elapsed());
            let recheck_in = match self.turn(&observed).await? {
                Some(decision) => {
                    self.tell_settled(&decision, &workers);
                    decision.recheck_in
                }
                None => Some(RETRY),
            };
            if until == Until::Settled && self.unsettled_since.is_none() {
                return Ok(());
            }
            match self.wait(recheck_in, shutdown).await {
                Woken::Again => {}
                Woken::Edited(Edit::Good(wanted, noticed)) => {
                    self.wanted = *wanted;
                    self.unsettled_since.get_or_insert(noticed);
                }
                Woken::Edited(Edit::Bad(sentence)) => {
                    text::complain(&format!("{sentence}; the last good state stays"));
                }
                Woken::Told => break,
            }
        }
        Ok(())
    }

    /// Takes a turn and returns what was decided, or `None` if it is to be tried again.
    async fn turn(&mut self, observed: &Observed) -> anyhow::Result<Option<Decision>> {
        match turn(&self.ledgers, &self.views, &self.wanted.desired, observed).await {
            Ok(turn) => {
                self.complaint = None;
                Ok(Some(turn.decision))
            }
            Err(StoreError::Conflict { .. }) => Ok(None),
            Err(error @ StoreError::Unavailable { .. }) => {
                let complaint = format!("{:#}; trying again", anyhow::Error::from(error));
                if self.complaint.as_ref() != Some(&complaint) {
                    text::complain(&complaint);
                    self.complaint = Some(complaint);
                }
                Ok(None)
            }
            Err(error @ StoreError::Refused { .. }) => Err(error.into()),
        }
    }

    /// Waits for anything that could lead to another decision.
    async fn wait(&mut self, recheck_in: Option<Duration>, shutdown: &CancellationToken) -> Woken {
        let recheck = async {
            match recheck_in {
                Some(recheck_in) => sleep(recheck_in).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => Woken::Told,
            edit = self.input.edited(&self.wanted) => Woken::Edited(edit),
            _ = self.workers.changed() => Woken::Again,
            () = recheck => Woken::Again,
        }
    }

    /// Starts the workers that are missing and tells those that are too many to end.
    fn fill_slots(&mut self) {
        let surplus = |slot: &Slot| self.wanted.workers <= slot.0;
        let leaving: Vec<_> = self.workers.borrow().keys().copied().filter(surplus).collect();
        for slot in leaving {
            self.processes.leave(slot);
        }
        for slot in 0..self.wanted.workers {
            self.processes.start(Slot(slot), &format!("{}-{slot}", self.wanted.worker_name));
        }
    }

    /// Tells which workers ended although nobody told them to.
    fn tell_deaths(&mut self, workers: &Workers) {
        self.deaths_told.retain(|slot, _| workers.contains_key(slot));
        for (slot, worker) in workers {
            let told = self.deaths_told.insert(*slot, worker.deaths).unwrap_or_default();
            if told < worker.deaths {
                self.unsettled_since.get_or_insert_with(Instant::now);
                let end = worker.last_death.as_deref().unwrap_or("ended");
                text::say(&format!("{} {end}; starting it again", worker.name));
            }
        }
    }

    /// Notes whether the pool is settled, and tells it when it has become so.
    fn tell_settled(&mut self, decision: &Decision, workers: &Workers) {
        if !is_settled(&self.wanted, decision, workers) {
            self.unsettled_since.get_or_insert_with(Instant::now);
            return;
        }
        let Some(since) = self.unsettled_since.take() else { return };
        let assignment = decision.ledger.assignment();
        let settled = Settled {
            took: since.elapsed(),
            before: &self.settled,
            view: &decision.ledger.view(),
            assignment: &assignment,
            unassigned: &decision.plan.unassigned,
        };
        text::say(&settled.told(swarm_adapters_host::terminal::columns()));
        self.settled = assignment;
    }
}

/// The program that workers are: this one, started with other arguments.
fn worker_command(view: &Path, wanted: &Wanted) -> anyhow::Result<WorkerCommand> {
    let program = std::env::current_exe().context("this program does not find itself")?;
    let (view, runner) = (view.to_owned(), wanted.runner);
    let arguments = move |name: &str| {
        let mut config_path = std::ffi::OsString::from("--config-path=");
        config_path.push(&view);
        let mut arguments: Vec<std::ffi::OsString> =
            vec!["worker".into(), "run".into(), format!("--name={name}").into(), config_path];
        // Everything that the environment could say as well is said here.
        arguments.push(format!("--runner={runner}").into());
        let fixed = ["--http-address=127.0.0.1", "--http-port=0", "--log-format=text"];
        arguments.extend(fixed.map(Into::into));
        arguments.extend(["--until-stdin-closes", "--report"].map(Into::into));
        arguments
    };
    Ok(WorkerCommand { program, arguments: Box::new(arguments) })
}

/// The workers as the core sees them.
fn observed(wanted: &Wanted, workers: &Workers, watched_for: Duration) -> Observed {
    let presence = |slot: &Slot, phase| match phase {
        Phase::Leaving(since) => Presence::Leaving(since.elapsed()),
        // It was told to end just now and has not noticed yet.
        Phase::Starting | Phase::Running | Phase::Away(_) if wanted.workers <= slot.0 => {
            Presence::Leaving(Duration::ZERO)
        }
        Phase::Starting => Presence::NotReady,
        Phase::Running => Presence::Ready,
        Phase::Away(since) => Presence::Away(since.elapsed()),
    };
    let seen = workers.iter().map(|(slot, worker)| {
        let (name, presence) = (worker.name.clone(), presence(slot, worker.phase));
        let session = Some(SessionId::plain(&name));
        (*slot, WorkerSeen { name, presence, session })
    });
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Observed {
        workers: seen.collect(),
        workers_desired: wanted.workers as usize,
        watched_for,
        unix_time_us: now.as_micros().try_into().unwrap_or(u64::MAX),
        ..Observed::default()
    }
}

/// Whether there is nothing to do and nothing to wait for: all workers are there and each runs
/// exactly the jobs of its entry.
fn is_settled(wanted: &Wanted, decision: &Decision, workers: &Workers) -> bool {
    let View { version: _, workers: entries } = decision.ledger.view();
    let runs_its_jobs = |name: &str, phase: Phase, jobs| {
        phase == Phase::Running && entries.get(name).map(|entry| &entry.jobs) == jobs
    };
    decision.waiting.is_none()
        && workers.len() == wanted.workers as usize
        && workers.values().all(|worker| {
            runs_its_jobs(&worker.name, worker.phase, worker.report.as_ref().map(|r| &r.jobs))
        })
}
