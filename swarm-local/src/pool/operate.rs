//! The main loop: runs a turn after every change, and reports when the pool is settled.

mod again;
mod report;
mod requests;
mod turns;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use swarm_adapters_host::channel::Versions;
use swarm_adapters_host::clock::unix_s;
use swarm_adapters_host::http::Socket;
use swarm_adapters_host::ledger::FileLedgerStore;
use swarm_adapters_host::timer;
use swarm_core::ports::LedgerStore as _;
use swarm_core::{
    Autoscaler, Decider, Decision, Desired, Failing, Failover, JobName, Ledger, Needs, Observed,
    Slot, Unassigned,
};
use swarm_view::status::InvalidFile;
use tokio::sync::{mpsc, watch};
use tokio::time::Interval;

use self::turns::{ObservationKey, Problem};
use super::by_hand::{self, ByHand};
use super::ending::{self, Cause, Granted, report_killed};
use super::failures::{Failures, News};
use super::history::History;
use super::outlets::Outlets;
use super::pool_views::PoolViews;
use super::sessions::Sessions;
use super::shutdown::Shutdown;
use super::until::{self, End, Until};
use crate::print::text::{self, Moves, Placed};
use crate::processes::worker::WorkerProgram;
use crate::processes::{Processes, Workers};
use crate::settings::input::{self, Edit, Input, Wanted};
use crate::state_dir::state::StateDir;

/// Time between two checks of `--until-settled`.
const LOOK: Duration = Duration::from_millis(200);

/// The time for which requests of one command are gathered before a turn.
const GATHER: Duration = Duration::from_millis(50);

/// The longest time until that turn.
const GATHER_MAX: Duration = Duration::from_millis(500);

/// Maximum time for the workers of a new run to join before the first turn. They join within
/// milliseconds, and each turn without some of them would move jobs that the next one moves back.
const JOINED_WITHIN: Duration = Duration::from_secs(1);

/// Exit code for a settled pool with a job that has no worker or is not restarted any more. `plan`
/// uses the same code.
const UNASSIGNED: u8 = 3;

/// Time between two rounds that rotate or remove growing files.
const TIDY: Duration = Duration::from_secs(10);

/// A Swarm that runs on this machine.
pub(crate) struct Operation {
    input: Input,
    requests: mpsc::Receiver<by_hand::Request>,
    by_hand: ByHand,
    wanted: Wanted,
    dir: StateDir,
    /// The socket in the directory, if it could be made.
    socket: Option<Arc<Socket>>,
    /// The times of the checks whether the state directory is lost.
    dir_checks: Interval,
    worker: WorkerProgram,
    ledgers: FileLedgerStore,
    views: PoolViews,
    processes: Processes,
    workers: watch::Receiver<Workers>,
    sessions: Sessions,
    outlets: Outlets,
    /// Latest time of the first turn of this run; `None` after it.
    joined_by: Option<Instant>,
    /// Inputs of the last turn; the same inputs would give the same result.
    seen: Option<ObservationKey>,
    /// The ledger of this operator, if the file held another ledger.
    known: Option<Ledger>,
    decider: Decider,
    /// The number of workers that the jobs need, before and after smoothing.
    needs: Needs,
    scaler: Autoscaler,
    started: Instant,
    /// The history of moves.
    history: History,
    /// The wishes of the user in the last turn.
    decided: Desired,
    /// The edited fields of the file that the history does not have.
    edits: Vec<String>,
    /// The ledger before the last turn and the jobs that the turn granted, until it is recorded.
    turned: Option<(Ledger, BTreeSet<JobName>)>,
    /// The decision of the last turn, and its observations.
    decision: Option<(Decision, Observed)>,
    /// The desired state that was last delivered to the workers.
    delivered: Option<Desired>,
    /// Time since which the pool is not settled; `None` while it is.
    unsettled_since: Option<Instant>,
    /// The jobs' workers when the pool was last settled, for the report of moves.
    settled: Placed,
    /// The moves since then.
    moves: Moves,
    /// Time since which each run of a job has been stopping, in seconds of Unix time.
    stopping: BTreeMap<(String, u64), u64>,
    /// Workers that may be frozen, and the times since which they are silent.
    silent: BTreeMap<Slot, Instant>,
    /// Failing jobs that the workers report.
    failing: BTreeMap<Slot, Arc<Failing>>,
    /// Jobs that try another worker.
    failover: Failover,
    /// Versions of jobs that the workers report.
    versions: BTreeMap<Slot, Versions>,
    /// Failures that were reported to the user.
    failures: Failures,
    /// News of the workers.
    news: News,
    /// Number of killed jobs and workers that were already reported.
    killed_reported: usize,
    /// Number of reported ends of each worker.
    deaths_reported: BTreeMap<Slot, u32>,
    /// Reason why the desired state is not delivered to the workers.
    problem: Option<Problem>,
    /// The error of the file, while it is invalid.
    invalid_file: Option<InvalidFile>,
}

/// Reason for waking the loop.
enum Woken {
    /// An observation changed; it may need a turn.
    Observed,
    /// A turn is due.
    Due,
    Edited(Edit),
    /// A person acts on a job.
    Asked(by_hand::Request),
    Signalled,
}

/// The sources of requests: the file, and a person.
pub(crate) struct Sources {
    pub(crate) input: Input,
    pub(crate) requests: mpsc::Receiver<by_hand::Request>,
}

/// The stores and processes of a pool, which keep their state in its directory.
struct Stores {
    ledgers: FileLedgerStore,
    views: PoolViews,
    sessions: Sessions,
    processes: Processes,
}

impl Stores {
    fn open(
        dir: &Path,
        wanted: &Wanted,
        worker: &WorkerProgram,
        outlets: &Outlets,
    ) -> anyhow::Result<Self> {
        let cannot = || format!("the state directory {} cannot be used", dir.display());
        let ledgers = FileLedgerStore::open(dir).with_context(cannot)?;
        let views = PoolViews::open(dir).with_context(cannot)?;
        views.set_details(wanted.details());
        let sessions =
            Sessions::open(dir, wanted.lease, outlets.reports.clone()).with_context(cannot)?;
        worker.run_log().begin(dir).with_context(cannot)?;
        let command = worker.command(dir, sessions.terms());
        let processes =
            Processes::open(dir, command, wanted.lease.stop_timeout, outlets.reports.clone())
                .with_context(cannot)?;
        wanted.job_logs().write(&processes.job_logs()).with_context(cannot)?;
        Ok(Self { ledgers, views, sessions, processes })
    }
}

impl Operation {
    /// Prepares to run `wanted` with its state in `dir`. The time until the pool is first settled
    /// counts from `since`.
    pub(crate) async fn start(
        (dir, socket): (StateDir, Option<Arc<Socket>>),
        sources: Sources,
        mut wanted: Wanted,
        worker: WorkerProgram,
        since: Instant,
        outlets: Outlets,
    ) -> anyhow::Result<Self> {
        let Sources { input, requests } = sources;
        let mut by_hand = ByHand::open(dir.path()).map_err(anyhow::Error::msg)?;
        by_hand.apply(&mut wanted.desired.jobs);
        let Stores { ledgers, views, sessions, processes } =
            Stores::open(dir.path(), &wanted, &worker, &outlets)?;
        let news = News::of(&processes);
        let settled = ledgers.load().await?.map(|(ledger, _)| Placed::of(&ledger));
        Ok(Self {
            workers: processes.watch(),
            input,
            requests,
            by_hand,
            wanted,
            history: History::open(dir.path()),
            dir,
            socket,
            dir_checks: again::checks(),
            worker,
            ledgers,
            views,
            processes,
            sessions,
            outlets,
            joined_by: Some(Instant::now() + JOINED_WITHIN),
            seen: None,
            known: None,
            decider: Decider::default(),
            needs: Needs::default(),
            scaler: Autoscaler::default(),
            started: Instant::now(),
            decided: Desired::default(),
            edits: Vec::new(),
            turned: None,
            decision: None,
            delivered: None,
            unsettled_since: Some(since),
            settled: settled.unwrap_or_default(),
            moves: Moves::default(),
            stopping: BTreeMap::new(),
            silent: BTreeMap::new(),
            failing: BTreeMap::new(),
            failover: Failover::default(),
            versions: BTreeMap::new(),
            failures: Failures::default(),
            news,
            killed_reported: 0,
            deaths_reported: BTreeMap::new(),
            problem: None,
            invalid_file: None,
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
        let (since, workers) = (Instant::now(), self.workers.borrow().len());
        let killed = self.end_workers(shutdown).await;
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
        let without = |decision: &Decision| {
            let reasons = decision.plan.unassigned.values();
            reasons.filter(|why| **why != Unassigned::Suspended).count()
        };
        let unassigned = self.decision.map_or(0, |(decision, _)| without(&decision));
        Ok(if 0 < unassigned { ExitCode::from(UNASSIGNED) } else { ExitCode::SUCCESS })
    }

    /// Ends the workers. Returns a clause about killed jobs and workers.
    async fn end_workers(&mut self, shutdown: &Shutdown) -> String {
        let mut granted = Granted::new();
        let snapshot = Arc::clone(&self.outlets.snapshots.borrow());
        for row in &snapshot.status.workers {
            granted.insert(Slot(row.slot), row.jobs + row.releasing);
        }
        let end = ending::End {
            processes: &mut self.processes,
            workers: &self.workers,
            outlets: &self.outlets,
            granted,
            reported: self.killed_reported,
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
            let slots = self.wanted.slots.clone();
            let scale_at = self.follow_jobs().map(|scale_in| Instant::now() + scale_in);
            if slots != self.wanted.slots {
                self.unsettled_since.get_or_insert_with(Instant::now);
                recheck_at = Some(Instant::now());
            }
            self.fill_slots();
            let has_changed = self.workers.has_changed().unwrap_or(true);
            let workers = self.workers.borrow_and_update().clone();
            let silent = self.sessions.silent(&workers);
            let failing = self.failing_now(&workers);
            self.killed_reported =
                report_killed(&self.processes, &self.outlets, self.killed_reported, Cause::Late);
            let versions = self.outlets.reports.versions(&workers);
            let is_new = has_changed
                || silent != self.silent
                || failing != self.failing
                || versions != self.versions;
            (self.silent, self.failing, self.versions) = (silent, failing, versions);
            self.report_deaths(&workers);
            let voice = &self.outlets.voice;
            for cause in self.sessions.revoke_silent(&self.processes, &workers, voice) {
                self.history.note(&cause);
            }
            // The turn must not write into another directory.
            if self.dir.is_lost() {
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
                self.turn_if_needed(&workers, due).await?
            };
            if let Some(recheck_in) = turned {
                recheck_at = recheck_in.map(|recheck_in| Instant::now() + recheck_in);
            }
            if turned.is_some() || is_new || self.unsettled_since.is_some() {
                self.report(&workers);
            }
            let mut look_at = None;
            if let Until::Settled(limit) = until {
                if let Some(end) = self.settled_end(limit)? {
                    return Ok(end);
                }
                look_at = Some(Instant::now() + LOOK);
            }
            let wake_at = recheck_at.into_iter().chain(scale_at).chain(look_at).min();
            match self.wait(wake_at, shutdown).await {
                Woken::Observed => {}
                Woken::Due => recheck_at = Some(Instant::now()),
                Woken::Edited(Edit::Valid(wanted, noticed)) => {
                    let removal = input::announced(self.input.shown(), &self.wanted, &wanted);
                    if let Some(sentence) = removal {
                        self.outlets.voice.complain(&sentence);
                    }
                    self.edits.extend(wanted.fields.edits(&self.wanted.fields));
                    self.wanted = *wanted;
                    self.by_hand.apply(&mut self.wanted.desired.jobs);
                    self.invalid_file = None;
                    self.problem = None;
                    self.views.set_details(self.wanted.details());
                    self.set_job_logs();
                    self.unsettled_since.get_or_insert(noticed);
                    recheck_at = Some(Instant::now());
                }
                Woken::Edited(Edit::Invalid(explained)) => {
                    self.outlets.voice.refuse(&explained);
                    self.invalid_file = Some(InvalidFile::of(explained, unix_s()));
                    recheck_at = Some(Instant::now());
                }
                Woken::Asked(request) => {
                    if self.act(request) {
                        self.unsettled_since.get_or_insert_with(Instant::now);
                        let first = gathered_since.get_or_insert_with(Instant::now);
                        recheck_at = Some((Instant::now() + GATHER).min(*first + GATHER_MAX));
                    }
                }
                Woken::Edited(Edit::Waits(writer)) => {
                    let sentence = text::waiting_edit(self.input.shown(), &writer);
                    self.outlets.voice.complain(&sentence);
                }
                Woken::Signalled => break,
            }
        }
        Ok(End::Signalled)
    }

    /// Checks whether `--until-settled` ends now.
    fn settled_end(&self, limit: Duration) -> anyhow::Result<Option<End>> {
        if let Some(problem) = self.lasting_problem() {
            anyhow::bail!("{problem}");
        }
        let settled = self.decision.as_ref().filter(|_| self.unsettled_since.is_none());
        let marks = || self.views.marks();
        let not_up = settled.map(|(decision, _)| self.sessions.not_up(&decision.ledger, &marks()));
        let snapshot = self.outlets.snapshots.borrow().clone();
        let end = until::end(&snapshot.status, not_up.as_ref(), self.started.elapsed(), limit);
        end.map_err(anyhow::Error::msg)
    }

    /// Waits for an event that may change the decision.
    async fn wait(&mut self, recheck_at: Option<Instant>, shutdown: &Shutdown) -> Woken {
        let overseer_at =
            self.sessions.wakes_in().and_then(|span| Instant::now().checked_add(span));
        tokio::select! {
            () = shutdown.ends() => Woken::Signalled,
            edit = self.input.edited(&self.wanted) => Woken::Edited(edit),
            Some(request) = self.requests.recv() => Woken::Asked(request),
            () = again::lost(&mut self.dir, &mut self.dir_checks) => Woken::Observed,
            () = self.sessions.changed() => Woken::Observed,
            _ = self.workers.changed() => Woken::Observed,
            () = self.news.heard() => Woken::Observed,
            () = timer::until(overseer_at.map(Into::into)) => Woken::Observed,
            () = timer::until(recheck_at.map(Into::into)) => Woken::Due,
        }
    }
}
