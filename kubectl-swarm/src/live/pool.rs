//! The state of one pool of a cluster, read from its objects.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::{SignedDuration, Timestamp};
use swarm_core::handover::{Cell, Record, SessionId};
use swarm_core::history::{Episode, Scope, catch_up};
use swarm_core::life::{Lives, SummedLives, moved};
use swarm_core::parts;
use swarm_core::{Failing, FailingJob, JobName, JobPhase, Ledger, Replication, Slot, Token};
use swarm_view::history::Past;
use swarm_view::picture::{Bounds, Picture, WorkerFacts};
use swarm_view::pool::PoolName;
use swarm_view::replicas::OutOfDate;
use swarm_view::words::Word;

use super::history::{self, Recorded};
use super::objects::{
    LeaseObject, LedgerObject, PartObject, Report, SwarmObject, ViewObject, ViewSpec,
};
use super::operators::Operators;
use super::{paths, unix_s};
use crate::kubectl::check_name;
use crate::kubectl::proxy::{Proxy, Unread};

/// Maximum number of reads of a ledger that changes meanwhile.
const READS_MAX: usize = 5;
/// Number of parts of a ledger that are read at once.
const PARTS_AT_ONCE: usize = 8;

/// End of the name of a part without jobs: its digest is 0.
pub(super) const EMPTY: &str = "-0000000000000000";

/// The jobs of a pool that a command needs.
#[derive(Clone, Copy)]
pub(super) enum Reach<'a> {
    All,
    /// Only these jobs: a large ledger need not be read as a whole.
    Jobs(&'a [JobName]),
}

/// A Swarm and the state of its pool.
pub(super) struct LivePool {
    pub(super) swarm: SwarmObject,
    /// The replica of the operator that writes the ledger, if several share the Swarms.
    pub(super) operator: Option<String>,
    /// The ledger, perhaps only with the jobs of the [`Reach`]; empty before the first turn.
    pub(super) ledger: Ledger,
    /// Time at which the objects were read.
    pub(super) now: Timestamp,
    /// The sessions and plain workers that fill a slot.
    workers: BTreeMap<SessionId, LiveWorker>,
    /// Time after which a session without a renewal is silent.
    silent_after: Duration,
    /// Whether the spec of the Swarm suspends this inline job; made by the first question.
    suspended: OnceCell<Vec<String>>,
    /// The right that the user lacks for Leases or views, in a sentence.
    pub(super) hidden: Option<String>,
    /// The recent episodes, with a [`Reach`] of all jobs; empty if they were not read.
    pub(super) episodes: Vec<Episode>,
    /// The reason why the episodes were not read, in a sentence.
    pub(super) without_episodes: Option<String>,
    /// The reason why the status may be wrong now.
    pub(super) out_of_date: Option<OutOfDate>,
    /// The jobs that fail though no worker names them, since they moved or their workers were replaced.
    moved: BTreeMap<JobName, Moved>,
    /// The lives of the jobs, as the operator wrote them last.
    lives: Lives,
}

/// A job that fails by its life.
struct Moved {
    failing: FailingJob,
    /// The session that has the job now, if one does.
    session: Option<SessionId>,
    /// The name of the worker of its last end.
    last: String,
}

/// A worker that fills a slot, or has left it and still has jobs.
pub(super) struct LiveWorker {
    pub(super) session: SessionId,
    pub(super) slot: Slot,
    /// The name of the worker.
    pub(super) name: String,
    pub(super) is_plain: bool,
    /// Whether another worker fills its slot, or none.
    pub(super) is_former: bool,
    /// The report in its Lease; `None` for a plain worker, and without the right to read Leases.
    pub(super) report: Option<Report>,
    /// Its view, if it is known.
    view: Option<ViewSpec>,
    /// Whether it has acknowledged that view; `None` if that is not known.
    pub(super) is_confirmed: Option<bool>,
}

/// A job and its holder.
pub(super) struct JobState<'a> {
    pub(super) name: &'a JobName,
    /// Its state in the ledger.
    pub(super) state: Word,
    pub(super) phase: JobPhase,
    pub(super) slot: Option<Slot>,
    /// The session that has it, if one does.
    pub(super) session: Option<&'a SessionId>,
    /// The name of the worker; `None` without a worker, or if it is not known.
    pub(super) worker: Option<&'a str>,
    /// Whether every worker runs it.
    pub(super) is_everywhere: bool,
    pub(super) token: u64,
    /// The report of the worker, if it is one of the worst failing jobs, or the failure by the life of the
    /// job.
    pub(super) failing: Option<&'a FailingJob>,
}

impl LivePool {
    /// Reads the Swarm `name`, and the parts of its ledger in `reach`. Returns `None` if the Swarm
    /// does not exist.
    ///
    /// # Errors
    ///
    /// A sentence about a refused request or an unreadable object.
    pub(super) async fn read(
        proxy: &Proxy,
        namespace: &str,
        name: &str,
        reach: Reach<'_>,
    ) -> Result<Option<Self>, String> {
        let path = format!("{}/{name}", paths::swarms(namespace));
        let history = async {
            match reach {
                Reach::All => history::of_swarm(proxy, namespace, name).await,
                Reach::Jobs(_) => Ok(Recorded::default()),
            }
        };
        let (swarm, ledger, mut history) = tokio::join!(
            proxy.object::<SwarmObject>(&path),
            ledger(proxy, namespace, name, reach),
            history,
        );
        let Some(swarm) = swarm? else { return Ok(None) };
        if matches!(reach, Reach::Jobs(jobs) if !jobs.is_empty()) && 0 < swarm.status.failing {
            // Only their lives tell that jobs fail still after a move.
            let lives = history::of_swarm(proxy, namespace, name).await.unwrap_or_default().lives;
            history = Ok(Recorded { lives, ..Recorded::default() });
        }
        let StoredLedger { operator, ledger, written_ms } = ledger?.unwrap_or_default();
        let sessions = sessions(&ledger, reach);
        let ((leases, hidden), (views, also_hidden)) = if let Some(sessions) = sessions {
            reports_of(proxy, namespace, &sessions).await?
        } else {
            let (leases, views) = (paths::session_leases(namespace), paths::views(namespace));
            let (leases, views) = tokio::join!(proxy.list(&leases), proxy.list(&views));
            (visible(leases)?, visible(views)?)
        };
        let pool = Self::of(swarm, operator, ledger, &leases, views, proxy.now());
        let hidden = hidden.or(also_hidden);
        let (Recorded { mut episodes, lives }, without_episodes) = match history {
            Ok(recorded) => (recorded, None),
            Err(sentence) => (Recorded::default(), Some(sentence)),
        };
        if matches!(reach, Reach::All) && without_episodes.is_none() {
            catch_up(&mut episodes, &pool.ledger, written_ms, Scope::All);
        }
        Ok(Some(Self { hidden, episodes, without_episodes, ..pool }.living(lives)))
    }

    /// Joins the objects. Leases and views of other pools are left out.
    pub(super) fn of(
        swarm: SwarmObject,
        operator: Option<String>,
        ledger: Ledger,
        leases: &[LeaseObject],
        views: Vec<ViewObject>,
        now: Timestamp,
    ) -> Self {
        let mut reports: BTreeMap<_, _> =
            leases.iter().map(|lease| (lease.session(), lease.report())).collect();
        let session = |view: &ViewObject| SessionId::from_stored(&view.metadata.name);
        let mut views: BTreeMap<_, _> =
            views.into_iter().map(|view| (session(&view), view.spec)).collect();
        let worker = |(session, slot): (&SessionId, Slot)| {
            let record = ledger.slots.get(&slot).filter(|record| record.session == *session);
            let report = reports.remove(session);
            let view = views.remove(session).filter(|_| !session.is_plain());
            let both = report.as_ref().zip(view.as_ref());
            let is_confirmed = both.map(|(report, view)| report.has_read(view, None));
            let of_record = record.map(|record| &record.worker);
            // A worker that has left its slot may have no view any more.
            let name = of_record
                .or_else(|| view.as_ref().map(|view| &view.worker).filter(|name| !name.is_empty()))
                .or_else(|| report.as_ref()?.worker.as_ref());
            let worker = LiveWorker {
                session: session.clone(),
                slot,
                name: name.cloned().unwrap_or_default(),
                is_plain: session.is_plain(),
                is_former: record.is_none(),
                report,
                view,
                is_confirmed,
            };
            (session.clone(), worker)
        };
        let workers: BTreeMap<_, _> = ledger.sessions().into_iter().map(worker).collect();
        let silent_after = swarm.silent_after();
        Self {
            silent_after,
            swarm,
            operator,
            ledger,
            now,
            workers,
            suspended: OnceCell::new(),
            hidden: None,
            episodes: Vec::new(),
            without_episodes: None,
            out_of_date: None,
            moved: BTreeMap::new(),
            lives: Lives::default(),
        }
    }

    /// Adds the lives of the jobs, and so the jobs that fail still after a move. The operator writes lives
    /// late, and its count of failing jobs at once, so no more jobs fail than it counts.
    /// O(workers + jobs with a life).
    pub(super) fn living(mut self, lives: Option<SummedLives>) -> Self {
        let lives = lives.map(|it| it.lives().clone()).unwrap_or_default();
        let now_ms = u64::try_from(self.now.as_millisecond()).unwrap_or_default();
        let reports = self.workers.values().filter_map(|worker| {
            let report = worker.report.as_ref()?;
            Some((worker.session.clone(), report.failing.held(|job| self.holds(worker, job))))
        });
        let reports: Vec<_> = reports.collect();
        let counted = reports.iter().map(|(_, it)| it.count).fold(0, usize::saturating_add);
        let counted_last = usize::try_from(self.swarm.status.failing).unwrap_or(usize::MAX);
        let fails: Vec<_> = lives.failing(now_ms).map(|(job, _)| job).collect();
        let moved = moved(
            &self.ledger,
            fails,
            reports.iter().map(|(session, report)| (session.clone(), report)),
            |job| self.is_suspended(job) || self.is_unassigned(job),
            SessionId::clone,
        );
        let mut moved: Vec<_> = moved
            .into_iter()
            .filter_map(|(job, session)| {
                let life = lives.of(job.as_str())?;
                let (failing, last) = life.failing_job(job)?;
                let newest = life.events.last().map(|event| event.at_ms);
                Some((newest, Moved { failing, session, last: last.to_owned() }))
            })
            .collect();
        // The operator may have found since that the first ones run well.
        moved.sort_by_key(|(newest, it)| (Reverse(*newest), it.failing.job.clone()));
        moved.truncate(counted_last.saturating_sub(counted));
        let moved = moved.into_iter().map(|(_, it)| (it.failing.job.clone(), it)).collect();
        (self.moved, self.lives) = (moved, lives);
        self
    }

    /// Whether a worker has a job, or all workers have it. O(log jobs).
    fn holds(&self, worker: &LiveWorker, job: &JobName) -> bool {
        let record = self.ledger.cells.jobs.get(job.as_str());
        record.is_some_and(|record| record.cell.is_with(&worker.session))
    }

    /// Whether a job fails that a report or a life names. O(workers + named jobs).
    pub(super) fn names_failing(&self) -> bool {
        let names = |worker: &LiveWorker| {
            let report = worker.report.as_ref();
            report.is_some_and(|it| it.failing.worst.iter().any(|it| self.holds(worker, &it.job)))
        };
        !self.moved.is_empty() || self.workers.values().any(names)
    }

    /// Returns the number of failing jobs of a worker: of its report, and of jobs that moved to it.
    pub(super) fn failing_on(&self, worker: &LiveWorker) -> usize {
        let reported = worker.report.as_ref().map_or(0, |report| report.failing.count);
        let moved = self.moved.values().filter(|it| it.session.as_ref() == Some(&worker.session));
        reported.saturating_add(moved.count())
    }

    /// Returns the name of the worker on which a job has failed last, if the job moved since.
    pub(super) fn moved_from(&self, job: &JobName) -> Option<&str> {
        self.moved.get(job.as_str()).map(|it| it.last.as_str())
    }

    /// Returns the lives of the jobs; empty if they were not read.
    pub(super) fn lives(&self) -> &Lives {
        &self.lives
    }

    /// Adds what is known of the operators.
    pub(super) fn beside(self, operators: &Operators) -> Self {
        let writer = self.operator.as_deref();
        let mut open = self.workers.values().filter(|worker| self.unheard_for(worker).is_some());
        let are_silent = open.clone().next().is_some() && open.all(|it| self.is_lost(it));
        let out_of_date = operators.out_of_date(&self.swarm, writer, are_silent, self.now);
        Self { out_of_date, ..self }
    }

    /// Returns the namespace and the name of the Swarm.
    pub(super) fn place(&self) -> (&str, &str) {
        (&self.swarm.metadata.namespace, &self.swarm.metadata.name)
    }

    /// Returns the recent moves of the Swarm.
    pub(super) fn past(&self) -> Past<'_> {
        Past { episodes: &self.episodes, now: self.now, since: None }
    }

    /// Returns what is known of the pool, but for the loads of its workers.
    pub(super) fn picture(&self) -> Picture {
        let swarm = &self.swarm;
        Picture {
            bounds: Bounds {
                stop: swarm.stop_timeout(),
                release: (!swarm.is_exclusive()).then(|| swarm.release_timeout()),
                fence: swarm.fence_wait(),
                return_grace: swarm.return_grace(),
            },
            ends_within: None,
            is_suspended: swarm.spec["suspend"] == true,
            is_paused: swarm.spec["rebalance"]["paused"] == true,
            loads: None,
        }
    }

    /// Returns the smallest and the largest number of jobs of a worker. O(jobs · log workers).
    pub(super) fn loads(&self) -> Option<(usize, usize)> {
        let mut counts: BTreeMap<_, _> =
            self.ledger.slots.values().map(|record| (&record.session, 0_usize)).collect();
        for record in self.ledger.cells.jobs.values() {
            if let Some(count) = record.cell.holder().and_then(|holder| counts.get_mut(holder)) {
                *count += 1;
            }
        }
        counts.values().copied().min().zip(counts.values().copied().max())
    }

    /// Returns what is known of a worker.
    pub(super) fn facts_of<'a>(&self, worker: &'a LiveWorker) -> WorkerFacts<'a> {
        WorkerFacts {
            name: &worker.name,
            heard: self.unheard_for(worker),
            silent: self.silent_for(worker),
            silent_since_unix_s: self.silent_since(worker),
            has_ended: self.is_lost(worker),
            // Without the reports, the user cannot know whether the worker has confirmed its jobs.
            confirms: !worker.is_plain && self.hidden.is_none(),
        }
    }

    /// Returns the worker of a session. O(log workers).
    pub(super) fn worker(&self, session: &SessionId) -> Option<&LiveWorker> {
        self.workers.get(session)
    }

    /// Returns the same as a part of a document.
    pub(super) fn named(&self) -> PoolName {
        let (namespace, swarm) = self.place();
        PoolName::Cluster { namespace: namespace.to_owned(), swarm: swarm.to_owned() }
    }

    /// Returns the time at which the objects were read, in seconds of Unix time.
    pub(super) fn now_unix_s(&self) -> u64 {
        unix_s(self.now).unwrap_or_default()
    }

    /// Returns the workers that fill a slot, in the order of their slots. O(workers · log workers).
    pub(super) fn workers(&self) -> Vec<&LiveWorker> {
        let slots = self.ledger.slots.values();
        slots.filter_map(|record| self.workers.get(&record.session)).collect()
    }

    /// Returns these workers, and then the workers that have left their slot and still have jobs.
    pub(super) fn all_workers(&self) -> impl Iterator<Item = &LiveWorker> {
        let is_known = |it: &&LiveWorker| it.is_former && !it.name.is_empty();
        self.workers().into_iter().chain(self.workers.values().filter(is_known))
    }

    /// Returns the jobs of the ledger with their holders. O(jobs · log workers).
    pub(super) fn jobs(&self) -> impl Iterator<Item = JobState<'_>> {
        self.ledger.cells.jobs.iter().map(|(name, record)| self.state(name, record))
    }

    /// Returns the number of failing jobs that their workers count and do not name.
    pub(super) fn unnamed_failing(&self) -> usize {
        let all = self.swarm.spec["replication"] == "All";
        let replication = if all { Replication::All } else { Replication::One };
        let reports = self.workers.values().filter_map(|it| Some(&it.report.as_ref()?.failing));
        Failing::unnamed(reports, replication)
    }

    /// Returns the time since the last renewal of a session that lives. It compares two clocks.
    pub(super) fn unheard_for(&self, worker: &LiveWorker) -> Option<Duration> {
        let renewed = worker.report.as_ref().filter(|report| report.is_open)?.renewed?;
        self.now.duration_since(renewed).max(SignedDuration::ZERO).try_into().ok()
    }

    /// Returns that time of a worker that is silent.
    pub(super) fn silent_for(&self, worker: &LiveWorker) -> Option<Duration> {
        self.unheard_for(worker).filter(|silence| self.silent_after <= *silence)
    }

    /// Whether the session of a worker is silent or over, so that its reports prove nothing any more.
    pub(super) fn is_lost(&self, worker: &LiveWorker) -> bool {
        match &worker.report {
            _ if worker.is_plain => false,
            Some(report) => !report.is_open || self.silent_for(worker).is_some(),
            // Without the right to read Leases it is not known.
            None => self.hidden.is_none(),
        }
    }

    /// Returns the workers whose sessions are silent or over, and that still have jobs.
    pub(super) fn lost(&self) -> Vec<&LiveWorker> {
        let lost = self.workers().into_iter().filter(|worker| self.is_lost(worker));
        lost.collect()
    }

    /// Returns the time of that renewal, in seconds of Unix time.
    pub(super) fn silent_since(&self, worker: &LiveWorker) -> Option<u64> {
        let now = self.now_unix_s();
        self.silent_for(worker).map(|silence| now.saturating_sub(silence.as_secs()))
    }

    /// Returns one job; `None` if the ledger does not have it. O(log jobs).
    pub(super) fn job(&self, name: &JobName) -> Option<JobState<'_>> {
        let (name, record) = self.ledger.cells.jobs.get_key_value(name.as_str())?;
        Some(self.state(name, record))
    }

    /// Whether the author of the Swarm has suspended it, or an inline job.
    fn is_suspended(&self, job: &JobName) -> bool {
        if self.swarm.spec["suspend"] == true {
            return true;
        }
        let suspended = self.suspended.get_or_init(|| {
            let inline = self.swarm.inline_jobs().into_iter();
            let inline = inline.filter(|(_, job)| job["suspend"].as_bool() == Some(true));
            inline.map(|(name, _)| name.to_owned()).collect()
        });
        // The names of a map are sorted.
        suspended.binary_search_by(|name| name.as_str().cmp(job.as_str())).is_ok()
    }

    /// Whether the operator says that a job without a worker gets none.
    fn is_unassigned(&self, job: &JobName) -> bool {
        let status = &self.swarm.status;
        let is_other = || status.names_all_unassigned() && status.reason_of(job.as_str()).is_none();
        !status.unassigned.is_empty() && !is_other()
    }

    fn state<'a>(&'a self, name: &'a JobName, record: &'a Record) -> JobState<'a> {
        let cell = &record.cell;
        let holder = cell.holder().and_then(|holder| self.workers.get(holder));
        let is_everywhere = matches!(cell, Cell::Everywhere { .. });
        let failing_on = |worker: &'a LiveWorker| {
            let worst = worker.report.as_ref().map(|report| &report.failing.worst);
            worst.into_iter().flatten().find(|it| it.job == *name)
        };
        let failing = if is_everywhere {
            self.workers().into_iter().find_map(failing_on)
        } else {
            let moved = || self.moved.get(name).map(|it| &it.failing);
            holder.and_then(failing_on).or_else(moved)
        };
        let confirmed = |is_confirmed: bool| {
            if is_confirmed { JobPhase::Running } else { JobPhase::Published }
        };
        let phase = match cell {
            Cell::Releasing { .. } | Cell::ReleasingAll { .. } => JobPhase::Stopping,
            Cell::Granted { .. } | Cell::Everywhere { .. } if failing.is_some() => {
                JobPhase::Failing
            }
            Cell::Granted { .. } => {
                confirmed(holder.is_some_and(|it| it.runs(name, cell.token()) && !self.is_lost(it)))
            }
            Cell::Everywhere { .. } => {
                let runs =
                    |worker: &&LiveWorker| worker.runs(name, cell.token()) && !self.is_lost(worker);
                let workers = self.workers();
                confirmed(!workers.is_empty() && workers.iter().all(runs))
            }
            Cell::Free { .. } if self.is_suspended(name) => JobPhase::Suspended,
            Cell::Free { .. } if self.is_unassigned(name) => JobPhase::Unassigned,
            Cell::Quarantined { .. } if record.is_quarantined() => JobPhase::Quarantined,
            Cell::Free { .. } | Cell::Hold { .. } | Cell::Quarantined { .. } => JobPhase::Waiting,
            Cell::Done { .. } => JobPhase::Done,
        };
        JobState {
            name,
            state: cell.state(),
            phase,
            session: holder.map(|holder| &holder.session),
            slot: holder.map(|holder| holder.slot).filter(|slot| *slot != Slot::NOBODY),
            worker: holder.map(|holder| holder.name.as_str()).filter(|name| !name.is_empty()),
            is_everywhere,
            token: cell.token().0,
            failing,
        }
    }
}

impl LiveWorker {
    /// Whether it has confirmed this grant of a job. The ledger, the view and the Lease are read one
    /// after another, so the view must have the token of the ledger.
    fn runs(&self, job: &JobName, token: Token) -> bool {
        let granted = self.view.as_ref().and_then(|view| view.jobs.get(job.as_str()));
        let is_granted = granted.is_some_and(|granted| granted.token == token.0);
        let is_read = self
            .report
            .as_ref()
            .zip(self.view.as_ref())
            .is_some_and(|(report, view)| report.has_read(view, Some(job.as_str())));
        is_granted && is_read
    }
}

/// Returns the newest time at which one of these pools was read, in seconds of Unix time.
pub(super) fn newest_read(pools: &[LivePool]) -> u64 {
    pools.iter().map(LivePool::now_unix_s).max().unwrap_or_default()
}

/// Returns the sessions that hold the jobs in reach; `None` for all sessions.
fn sessions(ledger: &Ledger, reach: Reach<'_>) -> Option<BTreeSet<SessionId>> {
    let Reach::Jobs(jobs) = reach else { return None };
    let records = jobs.iter().filter_map(|job| ledger.cells.jobs.get(job.as_str()));
    let holder = |record: &Record| match &record.cell {
        Cell::Everywhere { .. } | Cell::ReleasingAll { .. } => None,
        cell => Some(cell.holder().cloned()),
    };
    let holders: Option<Vec<_>> = records.map(holder).collect();
    Some(holders?.into_iter().flatten().collect())
}

/// A list, and the right that the user lacks for it.
type Visible<T> = (Vec<T>, Option<String>);

/// Reads the Leases and views of some sessions. Plain workers have none.
async fn reports_of(
    proxy: &Proxy,
    namespace: &str,
    sessions: &BTreeSet<SessionId>,
) -> Result<(Visible<LeaseObject>, Visible<ViewObject>), String> {
    let (mut leases, mut views) = ((Vec::new(), None), (Vec::new(), None));
    for session in sessions.iter().filter(|session| !session.is_plain()) {
        let name = session.to_string();
        check_stored(&name, "a session")?;
        let (lease, view) = (paths::lease(namespace, &name), paths::view(namespace, &name));
        let (lease, view) = tokio::join!(proxy.object(&lease), proxy.object(&view));
        add(&mut leases, lease)?;
        add(&mut views, view)?;
    }
    Ok((leases, views))
}

/// Adds an object that may be missing, or that the user may lack the right to read.
fn add<T>(all: &mut Visible<T>, read: Result<Option<T>, Unread>) -> Result<(), String> {
    let one = read.map(|found| found.map(|object| vec![object]));
    let (objects, hidden) = visible(one)?;
    all.0.extend(objects);
    all.1 = all.1.take().or(hidden);
    Ok(())
}

/// Returns a list that the user may lack the right to read, or the refusal.
fn visible<T>(read: Result<Option<Vec<T>>, Unread>) -> Result<Visible<T>, String> {
    match read {
        Ok(list) => Ok((list.unwrap_or_default(), None)),
        Err(Unread { sentence, is_forbidden: true }) => Ok((Vec::new(), Some(sentence))),
        Err(unread) => Err(unread.into()),
    }
}

/// The ledger of a Swarm.
#[derive(Clone, Debug)]
pub(super) struct StoredLedger {
    /// The replica of the operator that writes it, if several share the Swarms.
    operator: Option<String>,
    pub(super) ledger: Ledger,
    /// The time of its last write, in milliseconds of Unix time.
    pub(super) written_ms: u64,
}

impl Default for StoredLedger {
    fn default() -> Self {
        Self { operator: None, ledger: Ledger::new(0), written_ms: 0 }
    }
}

/// Reads the ledger of a Swarm. Returns `None` if the Swarm has no ledger yet.
pub(super) async fn ledger(
    proxy: &Proxy,
    namespace: &str,
    swarm: &str,
    reach: Reach<'_>,
) -> Result<Option<StoredLedger>, String> {
    let all = proxy.table(&paths::ledgers(namespace)).await?.unwrap_or_default();
    let own = all.rows().find(|row| row.text("Swarm") == swarm);
    let Some(own) = own.map(|row| row.text("Name").to_owned()) else { return Ok(None) };
    let path = format!("{}/{own}", paths::ledgers(namespace));
    for _ in 0..READS_MAX {
        let Some(LedgerObject { metadata, spec }) = proxy.object(&path).await? else {
            return Ok(None);
        };
        let names = wanted(&spec.holdings.parts, reach);
        // A part without jobs has no object.
        let names: Vec<_> = names.into_iter().filter(|name| !name.ends_with(EMPTY)).collect();
        names.iter().try_for_each(|name| check_stored(name, "a part of a ledger"))?;
        let part = async |name: String| {
            let path = format!("{}/{own}.{name}", paths::ledger_parts(namespace));
            proxy.object::<PartObject>(&path).await
        };
        let parts = stream::iter(names).map(part).buffered(PARTS_AT_ONCE);
        let parts: Vec<Option<PartObject>> = parts.try_collect().await?;
        // A part is removed once a newer ledger names another one.
        if let Some(parts) = parts.into_iter().collect::<Option<Vec<_>>>() {
            let operator = spec.writer.as_ref().map(|writer| writer.member.clone());
            let (ledger, written_ms) = (spec.ledger(parts)?, metadata.written_ms());
            return Ok(Some(StoredLedger { operator, ledger, written_ms }));
        }
    }
    Err(format!("the ledger {own} changed {READS_MAX} times while it was read; try again"))
}

/// Checks a name from a ledger before it becomes a part of a path.
fn check_stored(name: &str, what: &str) -> Result<(), String> {
    check_name(name).map_err(|_| {
        let name = name.escape_default();
        format!("the ledger names {what} that cannot exist, `{name}`; look at who has written it")
    })
}

/// Returns the names of the parts with the jobs in `reach`.
fn wanted(parts: &[String], reach: Reach<'_>) -> Vec<String> {
    match reach {
        Reach::All => parts.to_vec(),
        Reach::Jobs(_) if !parts.len().is_power_of_two() => parts.to_vec(),
        Reach::Jobs(jobs) => {
            let mut places: Vec<_> =
                jobs.iter().map(|job| parts::index(job, parts.len())).collect();
            places.sort_unstable();
            places.dedup();
            places.iter().filter_map(|place| parts.get(*place).cloned()).collect()
        }
    }
}
