//! The main loop: runs a turn after every change, and reports when the pool is settled.

mod requests;

use std::collections::BTreeMap;
use std::mem::{Discriminant, discriminant};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use swarm_adapters_host::channel::Versions;
use swarm_adapters_host::job_log::{self, Pruned};
use swarm_adapters_host::ledger::FileLedgerStore;
use swarm_adapters_host::timer;
use swarm_core::handover::{Evidence, SessionId};
use swarm_core::ports::{LedgerStore as _, StoreError};
use swarm_core::session::JobOutput;
use swarm_core::verdict::{Summary, displaced};
use swarm_core::{
    Autoscaler, Decider, Decision, Desired, Failing, Failover, JobName, Ledger, Needs, Observed,
    Presence, Progress, Relocation, Slot, Turn, Unassigned, WorkerSeen, turn,
};
use tokio::sync::{mpsc, watch};

use super::by_hand::{self, ByHand};
use super::ending::{self, Cause, Granted, report_killed};
use super::failures::{Failures, News};
use super::input::{self, Edit, Input, Wanted};
use super::outlets::{Origin, Outlets};
use super::run_log::RunLogSize;
use super::sessions::Sessions;
use super::shutdown::Shutdown;
use super::snapshot::{InvalidFile, Snapshot};
use super::text::{self, Placed, Settled};
use super::until::{self, End, Until};
use super::worker::WorkerProgram;
use crate::pool_views::PoolViews;
use crate::processes::{Phase, Processes, Workers};

/// Delay before a failed request to a store is retried.
const RETRY: Duration = Duration::from_secs(1);

/// Time between two checks of `--until-settled`.
const LOOK: Duration = Duration::from_millis(200);

/// Exit code for a settled pool with a job that has no worker or is not restarted any more. `plan`
/// uses the same code.
const UNASSIGNED: u8 = 3;

/// Time between two rounds that rotate or remove growing files.
const TIDY: Duration = Duration::from_secs(10);

/// A Swarm that runs on this machine.
pub(super) struct Operation {
    input: Input,
    requests: mpsc::Receiver<by_hand::Request>,
    by_hand: ByHand,
    wanted: Wanted,
    dir: PathBuf,
    run_log: RunLogSize,
    ledgers: FileLedgerStore,
    views: PoolViews,
    processes: Processes,
    workers: watch::Receiver<Workers>,
    sessions: Sessions,
    outlets: Outlets,
    /// Inputs of the last turn; the same inputs would give the same result.
    seen: Option<ObservationKey>,
    /// The ledger of this operator, if the file held another ledger.
    known: Option<Ledger>,
    decider: Decider,
    /// The number of workers that the jobs need, before and after smoothing.
    needs: Needs,
    scaler: Autoscaler,
    started: Instant,
    /// The decision of the last turn, and its observations.
    decision: Option<(Decision, Observed)>,
    /// The desired state that was last delivered to the workers.
    delivered: Option<Desired>,
    /// Time since which the pool is not settled; `None` while it is.
    unsettled_since: Option<Instant>,
    /// The jobs' workers when the pool was last settled, for the report of moves.
    settled: Placed,
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

/// Reason why the desired state is not delivered to the workers; a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Problem {
    /// A store did not answer; the turn is repeated.
    Unavailable(String),
    /// The desired state is too large for this number of workers, or for the ledger. Only an edit
    /// or more workers can help.
    TooLarge(String, usize),
}

impl Problem {
    fn sentence(&self) -> &str {
        match self {
            Self::Unavailable(sentence) | Self::TooLarge(sentence, _) => sentence,
        }
    }
}

/// The inputs of a turn, except for the manifest and the time.
type ObservationKey = (
    Vec<(Slot, Discriminant<Presence>, Option<SessionId>)>,
    BTreeMap<SessionId, Evidence>,
    BTreeMap<JobName, Relocation>,
);

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
pub(super) struct Sources {
    pub(super) input: Input,
    pub(super) requests: mpsc::Receiver<by_hand::Request>,
}

impl Operation {
    /// Prepares to run `wanted` with its state in `dir`. The time until the pool is first settled
    /// counts from `since`.
    pub(super) async fn start(
        dir: &Path,
        sources: Sources,
        mut wanted: Wanted,
        worker: WorkerProgram,
        since: Instant,
        outlets: Outlets,
    ) -> anyhow::Result<Self> {
        let cannot = || format!("the state directory {} cannot be used", dir.display());
        let Sources { input, requests } = sources;
        let mut by_hand = ByHand::open(dir).map_err(anyhow::Error::msg)?;
        by_hand.apply(&mut wanted.desired.jobs);
        let ledgers = FileLedgerStore::open(dir).with_context(cannot)?;
        let views = PoolViews::open(dir).with_context(cannot)?;
        views.set_details(wanted.details());
        let sessions = Sessions::open(dir, wanted.lease).with_context(cannot)?;
        let run_log = worker.run_log();
        run_log.begin(dir).with_context(cannot)?;
        let command = worker.command(dir, sessions.terms());
        let processes =
            Processes::open(dir, command, wanted.lease.stop_timeout, outlets.reports.clone())
                .with_context(cannot)?;
        wanted.job_logs().write(&processes.job_logs()).with_context(cannot)?;
        let news = News::of(&processes);
        let settled = ledgers.load().await?.map(|(ledger, _)| Placed::of(&ledger));
        Ok(Self {
            workers: processes.watch(),
            input,
            requests,
            by_hand,
            wanted,
            dir: dir.to_owned(),
            run_log,
            ledgers,
            views,
            processes,
            sessions,
            outlets,
            seen: None,
            known: None,
            decider: Decider::default(),
            needs: Needs::default(),
            scaler: Autoscaler::default(),
            started: Instant::now(),
            decision: None,
            delivered: None,
            unsettled_since: Some(since),
            settled: settled.unwrap_or_default(),
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
    pub(super) async fn run(
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
        for row in &snapshot.workers {
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
            self.sessions.revoke_silent(&self.processes, &workers, &self.outlets.voice);
            let due = recheck_at.is_some_and(|at| at <= Instant::now());
            let turned = self.turn_if_needed(&workers, due).await?;
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
                    self.invalid_file = Some(InvalidFile::now(explained));
                    recheck_at = Some(Instant::now());
                }
                Woken::Asked(request) => {
                    if self.act(request) {
                        self.unsettled_since.get_or_insert_with(Instant::now);
                        recheck_at = Some(Instant::now());
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
        let end = until::end(&snapshot, not_up.as_ref(), self.started.elapsed(), limit);
        end.map_err(anyhow::Error::msg)
    }

    /// Runs a turn if one is `due` or if its inputs changed. Returns the delay until the next turn,
    /// if a turn ran.
    async fn turn_if_needed(
        &mut self,
        workers: &Workers,
        due: bool,
    ) -> anyhow::Result<Option<Option<Duration>>> {
        let ledger = match self.load().await {
            Ok(ledger) => ledger.unwrap_or_else(|| Ledger::new(0)),
            Err(error) => return self.failed(error).map(Some),
        };
        let Wanted { desired, slots, .. } = &self.wanted;
        let mut observed = self.sessions.observed(&ledger, desired, workers, slots);
        let reports = self.failing.iter().map(|(slot, failing)| (*slot, &**failing));
        self.failover.observe(desired, &ledger, reports, self.started.elapsed());
        observed.relocations = self.failover.relocations();
        let key = key(&observed);
        if !due && self.seen.as_ref() == Some(&key) {
            return Ok(None);
        }
        match self.turn(&observed).await {
            Ok(turn) => {
                self.seen = Some(key);
                let Some(turn) = turn else { return Ok(Some(None)) };
                let recheck_in = turn.decision.recheck_in;
                self.sessions.published(self.views.marks());
                self.decision = Some((turn.decision, observed));
                Ok(Some(recheck_in))
            }
            Err(error) => {
                if matches!(error, StoreError::Conflict { .. }) {
                    self.known = Some(ledger);
                }
                self.failed(error).map(Some)
            }
        }
    }

    /// Runs a turn. If the desired state cannot be delivered, it is not saved, and the last
    /// delivered state is used instead. So the jobs of a worker that ends continue. Returns `None`
    /// if that state cannot be delivered either.
    async fn turn(&mut self, observed: &Observed) -> Result<Option<Turn>, StoreError> {
        let wanted = self.wanted.desired.clone();
        let takers = takers(observed);
        // With fewer workers the plan would assign fewer jobs and stop running ones.
        let is_hopeless =
            matches!(self.problem, Some(Problem::TooLarge(_, most)) if takers <= most);
        if !is_hopeless {
            match self.turn_for(&wanted, observed).await {
                Err(StoreError::Refused { code, reason }) if is_too_large(code) => {
                    self.complain(Problem::TooLarge(reason, takers), "what ran before stays");
                }
                turned => {
                    let turn = turned?;
                    self.problem = None;
                    // While the turn waits for something, it assigns nothing of the new state.
                    if turn.decision.waiting.is_none() {
                        self.delivered = Some(wanted);
                    }
                    return Ok(Some(turn));
                }
            }
        }
        // Before the first delivery nothing moves.
        let mut stays = self.delivered.as_ref().unwrap_or(&wanted).clone();
        stays.paused |= self.delivered.is_none();
        self.views.set_details(self.wanted.details_of(&stays.jobs));
        let turned = self.turn_for(&stays, observed).await;
        self.views.set_details(self.wanted.details());
        match turned {
            Err(StoreError::Refused { code, .. }) if is_too_large(code) => Ok(None),
            turned => turned.map(Some),
        }
    }

    /// Runs a turn for this desired state.
    async fn turn_for(
        &mut self,
        desired: &Desired,
        observed: &Observed,
    ) -> Result<Turn, StoreError> {
        let started = Instant::now();
        let turned = turn(&self.ledgers, &self.views, &mut self.decider, desired, observed).await;
        self.outlets.turned(started.elapsed(), &turned);
        if let Ok(Turn { decision, changed: true, .. }) = &turned
            && let Some(sentence) = displaced(decision, desired)
        {
            self.outlets.voice.say(&sentence);
        }
        turned
    }

    /// Loads the ledger. If the file was removed or rolled back during this run, it is written
    /// again unchanged. Workers run the jobs that the ledger grants, and an older ledger would
    /// grant them twice.
    async fn load(&mut self) -> Result<Option<Ledger>, StoreError> {
        let stored = self.ledgers.load().await?;
        let Some(known) = &self.known else { return Ok(stored.map(|(ledger, _)| ledger)) };
        let (ledger, seen) = stored.unzip();
        let is_newer = |ledger: &Ledger| known.revision() <= ledger.revision();
        if let Some(ledger) = ledger.filter(is_newer) {
            self.known = None;
            return Ok(Some(ledger));
        }
        self.ledgers.save(known, seen.as_ref()).await?;
        self.outlets
            .voice
            .complain("the ledger was removed or rolled back; it is written again as it was");
        Ok(self.known.take())
    }

    /// Reports a failed store, and returns the delay before a retry. An error means that a retry
    /// cannot help.
    fn failed(&mut self, error: StoreError) -> anyhow::Result<Option<Duration>> {
        self.seen = None;
        match error {
            // The pool may not be settled any more; the next turn detects it.
            StoreError::Conflict { .. } => Ok(Some(Duration::ZERO)),
            error @ StoreError::Unavailable { .. } => {
                let sentence = format!("{:#}", anyhow::Error::from(error));
                self.complain(Problem::Unavailable(sentence), "retrying");
                Ok(Some(RETRY))
            }
            error @ StoreError::Refused { .. } => Err(error.into()),
        }
    }

    /// Reports a problem and its remedy, once instead of at every turn.
    fn complain(&mut self, problem: Problem, remedy: &str) {
        if self.problem.as_ref() != Some(&problem) {
            self.outlets.voice.complain(&format!("{}; {remedy}", problem.sentence()));
            self.problem = Some(problem);
        }
    }

    /// Waits for an event that may change the decision.
    async fn wait(&mut self, recheck_at: Option<Instant>, shutdown: &Shutdown) -> Woken {
        let overseer_at =
            self.sessions.wakes_in().and_then(|span| Instant::now().checked_add(span));
        tokio::select! {
            () = shutdown.ends() => Woken::Signalled,
            edit = self.input.edited(&self.wanted) => Woken::Edited(edit),
            Some(request) = self.requests.recv() => Woken::Asked(request),
            () = self.sessions.changed() => Woken::Observed,
            _ = self.workers.changed() => Woken::Observed,
            () = self.news.heard() => Woken::Observed,
            () = timer::until(overseer_at.map(Into::into)) => Woken::Observed,
            () = timer::until(recheck_at.map(Into::into)) => Woken::Due,
        }
    }

    /// Returns the failing jobs of each worker from its events, or from its written reports if it
    /// has no channel.
    fn failing_now(&self, workers: &Workers) -> BTreeMap<Slot, Arc<Failing>> {
        let mut failing = self.sessions.failing(workers);
        for (slot, reported) in self.processes.reported().iter() {
            let up = workers.get(slot).filter(|worker| worker.phase == Phase::Up);
            if up.is_none_or(|worker| worker.instance != reported.instance) {
                continue;
            }
            if reported.failing.count == 0 {
                failing.remove(slot);
            } else {
                failing.insert(*slot, Arc::clone(&reported.failing));
            }
        }
        match self.wanted.output {
            JobOutput::Shown => failing,
            // A worker of an earlier library reports output even if it is hidden.
            JobOutput::Hidden => {
                let silent = |it: Arc<Failing>| Arc::new(Arc::unwrap_or_clone(it).without_output());
                failing.into_iter().map(|(slot, reported)| (slot, silent(reported))).collect()
            }
        }
    }

    /// Rotates large logs, and removes files of sessions that the ledger does not list.
    fn tidy(&mut self) {
        if let Err(error) = self.run_log.rotate(&self.dir) {
            tracing::warn!(%error, "the run log cannot be rotated and keeps growing");
        }
        self.processes.rotate_logs();
        self.prune_job_logs();
        let Some((decision, _)) = &self.decision else { return };
        if let Err(error) = self.sessions.collect_garbage(&decision.ledger, &self.workers) {
            tracing::warn!(%error, "files of ended sessions cannot be removed");
        }
    }

    /// Tells all workers the settings of the jobs' logs.
    fn set_job_logs(&self) {
        if let Err(error) = self.wanted.job_logs().write(&self.processes.job_logs()) {
            tracing::warn!(%error, "the settings of the jobs' logs cannot be written and stay");
        }
    }

    /// Removes old logs of jobs, first of removed jobs, while all logs together are too large.
    fn prune_job_logs(&self) {
        let jobs = self.wanted.desired.jobs.keys();
        match job_log::prune(&self.processes.job_logs(), self.wanted.logs.total_max, jobs) {
            Ok(Pruned { files: 0, .. }) => {}
            Ok(Pruned { files, bytes }) => {
                tracing::info!(
                    files,
                    bytes,
                    "removed old logs of jobs, since all need too much room"
                );
            }
            Err(error) => tracing::warn!(%error, "old logs of jobs cannot be removed"),
        }
    }

    /// Updates the number of workers if it depends on the jobs. Returns the delay until the number
    /// falls if nothing changes.
    fn follow_jobs(&mut self) -> Option<Duration> {
        let Wanted { desired, slots, .. } = &mut self.wanted;
        let Some(terms) = desired.autoscale else {
            self.scaler = Autoscaler::default();
            return None;
        };
        let none = Ledger::new(0);
        let ledger = self.decision.as_ref().map_or(&none, |(decision, _)| &decision.ledger);
        let need = self.needs.of(ledger, desired, slots.start)?;
        let present = slots.end.saturating_sub(slots.start);
        let scale = self.scaler.step(&terms, need.workers, present, self.started.elapsed());
        slots.end = slots.start.saturating_add(scale.workers);
        scale.requeue_after
    }

    /// Starts missing workers, and asks surplus workers to end.
    fn fill_slots(&mut self) {
        let surplus = |slot: &Slot| !self.wanted.slots.contains(&slot.0);
        let leaving: Vec<_> = self.workers.borrow().keys().copied().filter(surplus).collect();
        for slot in leaving {
            self.processes.leave(slot, self.wanted.desired.timing.release_timeout);
        }
        for slot in self.wanted.slots.clone() {
            self.processes.start(Slot(slot), &format!("{}-{slot}", self.wanted.worker_name));
        }
    }

    /// Reports workers that ended without a request.
    fn report_deaths(&mut self, workers: &Workers) {
        self.deaths_reported.retain(|slot, _| workers.contains_key(slot));
        for (slot, worker) in workers {
            let reported = self.deaths_reported.insert(*slot, worker.deaths).unwrap_or_default();
            if reported < worker.deaths {
                self.unsettled_since.get_or_insert_with(Instant::now);
                let end = worker.last_death.as_deref().unwrap_or("ended");
                self.outlets.voice.say(&format!("{} {end}; restarting it", worker.name));
            }
        }
    }

    /// Publishes the state of the pool, and reports when it becomes settled.
    fn report(&mut self, workers: &Workers) {
        let Some((decision, observed)) = &self.decision else { return };
        let progress = self.sessions.progress(decision, &self.wanted.desired, observed);
        let is_settled = self.is_settled(&progress, workers);
        let mut snapshot =
            Snapshot::of(&self.wanted.name, decision, workers, &progress, is_settled);
        let Origin { file, since_unix_s } = &self.outlets.origin;
        (snapshot.file, snapshot.since_unix_s) = (file.clone(), *since_unix_s);
        snapshot.undelivered = self.problem.as_ref().map(|it| it.sentence().to_owned());
        snapshot.invalid_file.clone_from(&self.invalid_file);
        snapshot.by_hand = self.by_hand.applied().map(ToString::to_string).collect();
        snapshot.mark_silent(&self.silent);
        snapshot.mark_stopping(&mut self.stopping);
        snapshot.mark_failing(&self.failing);
        snapshot.mark_versions(&self.versions);
        let turn = Summary::of(decision, &self.wanted.desired, observed, &progress);
        snapshot.judge(&turn, workers);
        for sentence in self.failures.news(&snapshot) {
            self.outlets.voice.say(&sentence);
        }
        snapshot.explain(decision, &self.wanted.desired, observed);
        let failing = snapshot.jobs.failing;
        self.outlets.snapshots.send_replace(Arc::new(snapshot));
        if !is_settled {
            self.unsettled_since.get_or_insert_with(Instant::now);
            return;
        }
        let Some(since) = self.unsettled_since.take() else { return };
        let now = Placed::of(&decision.ledger);
        let settled = Settled {
            took: since.elapsed(),
            before: &self.settled,
            view: &decision.ledger.view(),
            now: &now,
            unassigned: &decision.plan.unassigned,
            examples: turn.examples_without_worker(),
            failing,
        };
        self.outlets.voice.settled(&settled);
        self.settled = now;
    }

    /// Returns the problem that keeps the pool from becoming settled although all workers are up.
    fn lasting_problem(&self) -> Option<&str> {
        let Some(Problem::TooLarge(sentence, takers)) = &self.problem else { return None };
        (*takers == self.wanted.workers()).then_some(sentence)
    }

    /// Whether the pool is settled with the desired state, all its workers are up, and no other
    /// worker's process remains. This process starts and ends the workers, so it can wait for them.
    /// After a failed turn its last observations are old, so this method checks the workers directly.
    fn is_settled(&self, progress: &Progress, workers: &Workers) -> bool {
        // The progress belongs to the last completed turn, which may have been for other jobs.
        let is_delivered = self.seen.is_some() && self.problem.is_none();
        let has_no_other = workers.len() == self.wanted.workers();
        let are_up = workers.values().all(|worker| worker.phase == Phase::Up);
        let has_settled = progress.is_settled() && progress.has_all_workers();
        is_delivered && has_settled && has_no_other && are_up
    }
}

/// Whether a store refused a request because of its size.
fn is_too_large(code: &str) -> bool {
    matches!(code, "ViewTooLarge" | "LedgerTooLarge")
}

/// Returns the number of workers that can be given jobs.
fn takers(observed: &Observed) -> usize {
    let takes = |seen: &&WorkerSeen| seen.presence == Presence::Ready && seen.session.is_some();
    observed.workers.values().filter(takes).count()
}

fn key(observed: &Observed) -> ObservationKey {
    let workers = observed.workers.iter();
    let workers = workers
        .map(|(slot, seen)| (*slot, discriminant(&seen.presence), seen.session.clone()))
        .collect();
    (workers, observed.evidence.clone(), observed.relocations.clone())
}
