//! One turn of one Swarm, in stages: resolve the spec, learn facts and observe, decide in the core,
//! save and publish the decision, refresh workers, and report the result. Each stage takes the
//! result of the previous one.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::runtime::controller::Action;
use swarm_client::api::Swarm;
use swarm_core::handover::{Cell, Policy, Record};
use swarm_core::history::{Episode, JobMove, Outage, OutageCause, Turned};
use swarm_core::overseer::PoolFacts;
use swarm_core::ports::{LedgerStore as _, StoreError};
use swarm_core::{Decider, Desired, JobName, Ledger, Need, Observed, Progress};
use swarm_spec::convert::{check_jobs, size_workers};
use tokio::time::Instant;

use super::Operator;
use super::memory::Memory;
use super::pool_state::pool_state;
use super::report::{Done, Outcome};
use crate::clock;
use crate::fairness::background;
use crate::history::{Recorded, lives};
use crate::jobs::sources::Loaded;
use crate::jobs::{KnownJobs, convert};
use crate::ledger::LARGE_POOL_JOBS;
use crate::ledger::stores::OpenStores;
use crate::managed::keep::Kept;
use crate::metrics::TurnLabels;
use crate::plain::refresh::{Refreshing, note_started};
use crate::plain::refresh_order::RefreshTerms;
use crate::plain::view::ConfigMapViewStore;
use crate::pool::deletion_cost::Shrink;
use crate::pool::observe::unix_time_us;
use crate::pool::rollout::RolloutReport;
use crate::pool::slots::Slots;
use crate::pool::workload::{Kind, Workload};
use crate::requests::{CHANGED_RETRY, REFUSED_RETRY};
use crate::services::Services;
use crate::sessions::SessionSummary;
use crate::sessions::alarms::Alarm;
use crate::sessions::silent::Silence;
use crate::sessions::worker_views::PoolViews;
use crate::status::{self, EventReason, Reason, Refreshed, RefusedRequest, SessionReport, Verdict};
use crate::turn::Turn;

/// The interval of the resync, in case a watch missed a change.
const RESYNC: Duration = Duration::from_mins(10);

/// The result of the first stage: the wishes of a Swarm, and its pool.
struct Resolved {
    pool: Workload,
    desired: Desired,
    /// The fault of the newest list of jobs, if the turn therefore uses an older list.
    complaint: Option<Verdict>,
}

/// The reason that ends a turn before the core decides.
enum Stop {
    /// The Swarm cannot be carried out in its present state. The last good assignment keeps
    /// running.
    Refused(Verdict),
    /// A request failed.
    Failed(StoreError),
}

impl From<Verdict> for Stop {
    fn from(verdict: Verdict) -> Self {
        Self::Refused(verdict)
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

/// The result of the last stage before the report.
pub(crate) struct Carried {
    /// The decision of the core, as it was saved.
    pub(crate) decided: swarm_core::Turn,
    pub(crate) observed: Observed,
    pub(crate) progress: Progress,
    pub(crate) refreshed: Refreshed,
    pub(crate) sessions: SessionReport,
    /// The reason why pods do not run or are not created, if known.
    pub(crate) trouble: Option<String>,
    /// Pods that open no session, and the time until another look.
    pub(crate) silence: Silence,
    /// Progress of the workload with its newest template.
    pub(crate) rollout: RolloutReport,
    /// The time until sessions are checked again.
    pub(crate) requeue_after: Option<Duration>,
    /// The time until the first failing job that moved does not fail any more.
    pub(crate) well_in: Option<Duration>,
    /// The time until the pool shrinks, if nothing changes.
    pub(crate) scale_in: Option<Duration>,
    /// The number of workers that the jobs need.
    pub(crate) need: Option<Need>,
    /// The alarm that replaces `requeue_after` while nothing is under way.
    pub(crate) alarm: Option<Alarm>,
    /// The episode of the history that ended with this turn.
    pub(crate) episode: Option<Episode>,
}

/// The stages of one turn, with the data that they work on.
pub(super) struct Stages<'a> {
    pub(super) operator: &'a Operator,
    pub(super) services: &'a Services,
    pub(super) turn: Turn<'a>,
    pub(super) memory: &'a mut Memory,
}

impl<'a> Stages<'a> {
    /// Begins a turn of `swarm`.
    pub(super) fn of(operator: &'a Operator, swarm: &'a Swarm, memory: &'a mut Memory) -> Self {
        Self { operator, services: &operator.services, turn: Turn::of(swarm), memory }
    }

    /// Reconciles a Swarm that is not deleted, and reports the result.
    pub(super) async fn apply(mut self) -> Result<Action, StoreError> {
        let started = Instant::now();
        let mut outcome = self.outcome().await;
        let Self { operator, services, turn, memory } = self;
        // A failed report ends the turn like any other failure.
        let (reporter, reports) = (&operator.reporter, &mut memory.reports);
        if let Ok(done) = &outcome
            && let Err(error) = reporter.report_turn(&turn, done, reports).await
        {
            outcome = Err(error);
        }
        if let Ok(Outcome::Done(done)) = &outcome
            && let Some(episode) = &done.episode
        {
            operator.reporter.report_episode(turn.swarm, episode).await;
        }
        let result = match &outcome {
            Ok(Outcome::Done(_)) => "ok",
            Ok(Outcome::Refused(_) | Outcome::Awaited { .. }) => "refused",
            Err(StoreError::Conflict { .. }) => "conflict",
            Err(_) => "unavailable",
        };
        services.metrics.turns.get_or_create(&TurnLabels { result }).inc();
        let ready = memory.reports.ready(turn.swarm);
        memory.reports.metrics.count_turn(result, ready);
        services.metrics.turn_duration.observe(started.elapsed().as_secs_f64());
        let requeue_after = match outcome? {
            Outcome::Done(done) => {
                services.sessions.alarms.set(turn.namespace, turn.name, done.alarm);
                done.next.unwrap_or(RESYNC).min(RESYNC)
            }
            Outcome::Refused(_) => REFUSED_RETRY,
            Outcome::Awaited { requeue_after, .. } => requeue_after,
        };
        let event_in = memory.reports.event_in();
        let renewal_in = memory.reports.renewal_in(turn.swarm);
        let renewal_in = if renewal_in.is_zero() { REFUSED_RETRY } else { renewal_in };
        let all = [Some(requeue_after), event_in, Some(renewal_in)].into_iter().flatten();
        Ok(Action::requeue(all.min().unwrap_or(requeue_after)))
    }

    /// Runs all stages except the report. A refusal is an outcome, since the last good state keeps
    /// running.
    async fn outcome(&mut self) -> Result<Outcome, StoreError> {
        let Memory { managed, pool, .. } = &mut *self.memory;
        let (making, scaling) = (&mut managed.making, &mut pool.scaling);
        let kept = self.services.managed.keep(&self.turn, making, scaling).await?;
        if self.memory.jobs.loaded.is_costly() {
            background::go_on().await;
        }
        let mut resolved = match self.resolve().await {
            Ok(resolved) => resolved,
            Err(Stop::Refused(verdict)) if self.turn.swarm.spec.pool.managed.is_some() => {
                return Ok(not_made(verdict, kept));
            }
            Err(Stop::Refused(verdict)) => return Ok(Outcome::Refused(verdict)),
            Err(Stop::Failed(error)) => return Err(error),
        };
        let Resolved { pool, desired, .. } = &mut resolved;
        let Memory { jobs: known, stores, .. } = &mut *self.memory;
        let ledgers = self.services.ledgers.open(&self.turn, pool, stores).ledgers;
        self.services.jobs.note_listed(&self.turn, known, ledgers, &desired.jobs).await?;
        let jobs = desired.jobs.len();
        let large_turn_slot = self.services.slots.large(&self.turn, jobs).await;
        let carrying = Instant::now();
        let carried = self.carry_out(pool, desired).await;
        if large_turn_slot.is_some() {
            let took = carrying.elapsed();
            self.services.jobs.note_cost(&self.turn, &mut self.memory.jobs.loaded, took);
        }
        match carried {
            Ok(carried) => Ok(Outcome::Done(Box::new(self.done(kept, resolved, carried)))),
            Err(StoreError::Refused { code, reason }) => {
                self.services.metrics.count_refused(RefusedRequest::Turn);
                let verdict = Verdict { reason: Reason::Refused(code), message: reason };
                Ok(Outcome::Refused(verdict))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the facts for the report, and publishes the needs that other autoscalers read.
    fn done(&mut self, kept: Kept, resolved: Resolved, carried: Carried) -> Done {
        let Self { services, turn, memory, .. } = self;
        let Resolved { mut pool, desired, complaint } = resolved;
        let Carried { decided, observed, progress, refreshed, sessions, trouble, .. } = carried;
        let Carried { requeue_after, well_in, scale_in, need, alarm, .. } = carried;
        let Carried { silence, rollout, episode, .. } = carried;
        let complaint = kept.complaint.or(complaint);
        let unbound = silence.misfit.as_ref().map(|it| it.message.clone());
        pool.trouble = trouble.or(unbound);
        pool.misfits = services.caches.misfits(turn.swarm, &pool);
        pool.misfits.extend(silence.misfit);
        let refusals = std::mem::take(&mut turn.refusals);
        // No watch shows the deletion of another Swarm, or that a refused write is allowed now.
        let is_refused = complaint.is_some() || !refusals.is_empty();
        let again = is_refused.then_some(REFUSED_RETRY);
        let requeue_after = requeue_after.filter(|_| alarm.is_none());
        let looks = [requeue_after, refreshed.requeue_after, rollout.requeue_after];
        let next = looks.into_iter().chain([scale_in, decided.decision.recheck_in, again]);
        let rest = services.jobs.rest_for(turn, &memory.jobs.loaded);
        let views_contest = memory.stores.views_contest();
        let contest_ends = views_contest.as_ref().map(|(ends_in, _)| *ends_in);
        let removal = memory.jobs.listed.announced(&diff(turn, &decided));
        let (removed, shown_for) = memory.jobs.listed.shown().unzip();
        let others = [kept.requeue_after, rest, contest_ends, silence.requeue_after, shown_for];
        let next = next.chain(others).chain([well_in]).flatten().min();
        let scaling = memory.pool.scaling.contest(turn.swarm, &pool);
        let contest = scaling.or(views_contest.map(|(_, verdict)| verdict));
        let done = Done {
            swarm: turn.name.to_owned(),
            decided,
            desired,
            need,
            observed,
            progress,
            pool,
            rollout,
            refreshed,
            sessions,
            refusals,
            next,
            alarm,
            contest,
            complaint,
            removal,
            removed,
            episode,
        };
        let workers = status::desired_workers(&done.summary());
        memory.reports.metrics.set_needs(workers, done.desired.jobs.len());
        memory.reports.metrics.set_state(pool_state(services, turn, memory, &done));
        done
    }

    /// Returns the desired state of the Swarm and its pool. Claims the unclaimed pods of a pool
    /// that is selected by labels.
    async fn resolve(&mut self) -> Result<Resolved, Stop> {
        let Self { services, turn, memory, .. } = self;
        let swarm = turn.swarm;
        let invalid = |message| Verdict { reason: Reason::InvalidSpec, message };
        let mut desired = convert::desired(swarm).map_err(|error| invalid(error.to_string()))?;
        let pool = services.caches.pool_of(swarm)?;
        let mut complaint = None;
        if pool.kind == Kind::Pods {
            let members = services.caches.members(swarm);
            services.workloads.claim(turn, &members.free).await?;
            complaint = members.complaint();
        }
        memory.drop_other_stores(swarm, &pool);
        let Memory { jobs: KnownJobs { loaded, .. }, stores, .. } = &mut **memory;
        if swarm.spec.job_sources.is_empty() {
            *loaded = Loaded::none();
        } else {
            let ledgers = services.ledgers.open(turn, &pool, stores).ledgers;
            let list = services.jobs.resolve(turn, loaded, ledgers).await?;
            if let Some(jobs) = list.jobs {
                desired.jobs = jobs;
                complaint = list.complaint.or(complaint);
            } else if let Some(verdict) = list.complaint {
                // Without any list the workers keep their present jobs.
                return Err(verdict.into());
            }
        }
        // An older list may contradict newer parts of the spec.
        check_jobs(&desired.jobs, &swarm.spec).map_err(|error| invalid(error.to_string()))?;
        Ok(Resolved { pool, desired, complaint })
    }

    /// Runs one turn through the core and carries out its decision.
    ///
    /// The order matters:
    ///
    /// - The versions that new pods started with are read before anything new is published.
    /// - Facts about sessions come before observations of their pods, since a session that renews
    ///   keeps its pod.
    /// - Revocations are answered before the decision, which may rely on them.
    /// - The ledger is saved before anything is published, and the view is published before any
    ///   nudge.
    /// - The target size of the pool is known before all stages that use it.
    /// - The pool is scaled last, after the surplus workers were asked to stop.
    pub(super) async fn carry_out(
        &mut self,
        pool: &Workload,
        desired: &mut Desired,
    ) -> Result<Carried, StoreError> {
        let (services, swarm) = (self.services, self.turn.swarm);
        let pool = &*self.memory.pool.scaling.as_scaled(pool);
        self.memory.drop_other_stores(swarm, pool);
        let Memory { pool: known, stores, .. } = &mut *self.memory;
        let ledgers = services.ledgers.open(&self.turn, pool, stores).ledgers;
        let scale_in = known.decide_size(ledgers, pool, desired).await?;
        let pods = services.caches.pods_of(swarm, pool);
        let explained = &mut self.memory.managed.explained;
        let trouble = services.managed.explain(&self.turn, pool, &pods, explained).await;
        let rollout = self.memory.reports.rollout(swarm, pool, &pods);
        let slots = self.slots(pool, pods, desired.replicas).await?;
        let planned = &*sized(swarm, desired, &slots);
        let silence = self.learn(pool, &slots).await?;
        let (mut observed, summary) = observe(swarm, pool, planned, &slots, self.memory);
        let mut stores = services.ledgers.open(&self.turn, pool, &mut self.memory.stores);
        observed.relocations = self.memory.sessions.relocations();
        observed.adoptable = services.ledgers.adoptable(&self.turn, &mut stores).await?;
        let decided = self.decide_and_publish(pool, planned, &observed).await?;
        let (again_in, alarm) = (summary.again_in, summary.alarm.clone());
        let ledger = &decided.decision.ledger;
        let has_failed_over = self.memory.sessions.observe_failures(clock::now(), planned, ledger);
        let mut sessions =
            self.memory.sessions.report(ledger, summary, &observed.ages, planned.policy);
        self.memory.sessions.acknowledge(&decided);
        let carried = self.learn_lives(&decided);
        let well_in = carried.well_in;
        sessions.carry(&decided.decision, carried.jobs);
        self.memory.sessions.count_phases(&decided.decision, planned.replication, &mut sessions);
        // A worker of an earlier version reports the output of jobs even if the Swarm hides it.
        let sessions = sessions.with_output(swarm.spec.output());
        let known = &self.memory.sessions;
        let is_more_garbage = !decided.changed
            && services.sessions.collect_garbage(&mut self.turn, ledger, known).await;
        let refreshing = Refreshing {
            pool,
            slots: &slots,
            observed: &observed,
            decision: &decided.decision,
            since_change: self.memory.plain.publications.since_change(),
            repaired_at: self
                .memory
                .stores
                .views
                .as_ref()
                .and_then(ConfigMapViewStore::repaired_at),
        };
        let pods = &mut self.memory.plain.pods;
        let mut refreshed = services.plain.refresh(&mut self.turn, &refreshing, pods).await?;
        refreshed.add_sessions(&sessions.stale);
        let progress = Progress::of(&decided.decision, planned, &observed, refreshed.stale.clone());
        let failing = sessions.failing_jobs();
        self.memory.reports.counted.set(sessions.living, progress.jobs.releasing, failing);
        let (episode, moves) = self.record(&decided, planned, &observed, progress.is_settled());
        self.record_outages(ledger, planned.policy, sessions.lease).await;
        let events = services.histories.failed_over(&self.turn, &moves);
        self.memory.reports.metrics.set_job_events(&events);
        let shrink = Shrink { wanted: planned.replicas, replicas: decided.decision.replicas };
        if !self.scale(pool, &slots, shrink).await? {
            let soon = refreshed.requeue_after.into_iter().chain([CHANGED_RETRY]);
            refreshed.requeue_after = soon.min();
        }
        let need = self.memory.pool.autoscaling.need(&decided.decision.ledger, planned, pool);
        let is_due = is_more_garbage || has_failed_over;
        let requeue_after = if is_due { Some(Duration::ZERO) } else { again_in };
        // A worker becomes steady by time alone, and renewals put an alarm off.
        let is_idle = !decided.changed
            && progress.jobs.releasing == 0
            && !is_due
            && observed.unsteady.is_empty();
        let alarm = alarm.filter(|_| is_idle);
        Ok(Carried {
            decided,
            observed,
            progress,
            refreshed,
            sessions,
            trouble,
            silence,
            rollout,
            requeue_after,
            well_in,
            scale_in,
            need,
            alarm,
            episode,
        })
    }

    /// Records the moves of a turn. Returns the episode that ended with it, and its moves.
    fn record(
        &mut self,
        decided: &swarm_core::Turn,
        desired: &Desired,
        observed: &Observed,
        is_settled: bool,
    ) -> (Option<Episode>, Vec<JobMove>) {
        let Self { services, turn, memory, .. } = self;
        let Memory { recorded: Recorded { recorder, spec, .. }, sessions, .. } = &mut **memory;
        let (before, decision) = (&decided.before, &decided.decision);
        let unacknowledged = sessions.unacknowledged();
        let edits = &spec.edits(turn.swarm);
        let turned =
            Turned { before, decision, desired, edits, observed, unacknowledged, is_settled };
        let recorded = recorder.observe(unix_time_us() / 1_000, &turned);
        for standstill in recorded.standstills {
            services.metrics.standstill.observe(standstill.as_secs_f64());
        }
        services.histories.note(turn, recorder, recorded.episode.clone());
        (recorded.episode, recorded.moves)
    }

    /// Takes what sessions report about the lives of their jobs. Returns the jobs that fail.
    fn learn_lives(&mut self, decided: &swarm_core::Turn) -> lives::Carried {
        let Self { services, turn, memory, .. } = self;
        let sessions = &memory.sessions;
        let (before, ledger) = (&decided.before, &decided.decision.ledger);
        let runs = |job: &JobName| !sessions.unacknowledged().has(job);
        let told = lives::Reports::of(&sessions.lives, before);
        services.histories.live(turn, told, ledger, runs)
    }

    /// Records the outages since the last turn. All sessions of `Exclusive` stop their jobs once their
    /// Leases, which last for `lease`, have ended.
    async fn record_outages(&mut self, ledger: &Ledger, policy: Policy, lease: Duration) {
        let Self { services, turn, memory, .. } = self;
        let made = turn.swarm.metadata.creation_timestamp.as_ref();
        let made_ms = made.and_then(|at| u64::try_from(at.0.as_millisecond()).ok());
        let Memory { recorded: Recorded { recorder, .. }, reports, .. } = &mut **memory;
        let (uid, made_ms) = (turn.swarm.uid().unwrap_or_default(), made_ms.unwrap_or_default());
        let watches = services.health.refused();
        for outage in services.outages.news(&services.sharing, &watches, (&uid, made_ms)) {
            let stops = policy == Policy::Exclusive
                && outage.cause == OutageCause::ApiServer
                && lease.as_secs() < outage.seconds();
            let is_of_session = |record: &&Record| matches!(&record.cell, Cell::Granted { session, .. } if !session.is_plain());
            let jobs = ledger.cells.jobs.values().filter(is_of_session).count() as u64;
            let outage = Outage { jobs: if stops { jobs } else { 0 }, ..outage };
            services.histories.note(turn, recorder, Some(recorder.outage(&outage, ledger)));
            reports.metrics.count_outage(&outage);
            services.events.publish(turn.swarm, EventReason::Outage, outage.to_string()).await;
        }
    }

    /// Returns which of `pods` fills each slot of `pool`.
    async fn slots(
        &mut self,
        pool: &Workload,
        pods: Vec<Arc<Pod>>,
        replicas: Option<u32>,
    ) -> Result<Slots, StoreError> {
        if pool.kind == Kind::StatefulSet {
            return Ok(Slots::by_ordinal(pool, pods));
        }
        let stores = self.services.ledgers.open(&self.turn, pool, &mut self.memory.stores);
        let ledger = stores.ledgers.load().await?.map(|(ledger, _)| ledger);
        Ok(Slots::by_binding(pool, ledger.as_ref(), pods, replicas))
    }

    /// Reads the state of pods and sessions, and revokes the Leases of silent sessions.
    async fn learn(&mut self, pool: &Workload, slots: &Slots) -> Result<Silence, StoreError> {
        let Self { services, turn, memory, .. } = self;
        let Memory { stores, sessions, plain, .. } = &mut **memory;
        let stores = services.ledgers.open(turn, pool, stores);
        // Where pods are replaced to read a new view, they started with the published view.
        if RefreshTerms::of(turn.swarm).replaces()
            && let Some(published) = stores.views.published().await
        {
            note_started(&published, slots.pods.values(), &mut plain.pods);
        }
        services.sessions.learn(turn, slots, sessions, stores.ledgers).await?;
        services.sessions.revoke_due(turn, sessions).await?;
        Ok(services.sessions.silence(turn, pool, slots, sessions))
    }

    /// Scales the pool to the decided number of pods, once the pods that are removed first are
    /// marked. Returns false if a pod changed during the write; the next turn tries again.
    async fn scale(
        &mut self,
        pool: &Workload,
        slots: &Slots,
        shrink: Shrink,
    ) -> Result<bool, StoreError> {
        let Self { services, turn, memory, .. } = self;
        let pods = &mut memory.plain.pods;
        let is_marked = services.workloads.set_deletion_cost(pool, slots, shrink, pods).await?;
        if is_marked && let Some(replicas) = shrink.replicas {
            services.workloads.scale(turn, pool, replicas, &mut memory.pool.scaling).await?;
        }
        Ok(is_marked)
    }

    /// Decides, saves the decision, and publishes the saved ledger.
    async fn decide_and_publish(
        &mut self,
        pool: &Workload,
        desired: &Desired,
        observed: &Observed,
    ) -> Result<swarm_core::Turn, StoreError> {
        let Self { services, turn, memory, .. } = self;
        let swarm = turn.swarm;
        let Memory { stores, sessions, plain, jobs, reports, .. } = &mut **memory;
        let details = &sessions.details(&swarm.spec, &desired.jobs);
        let OpenStores { ledgers, views: shared, decider } =
            services.ledgers.open(turn, pool, stores);
        let (ledgers, shared) = (&*ledgers, &*shared);
        if let Some(record) = jobs.loaded.record() {
            ledgers.record_sources(record);
        }
        let overseer = &mut sessions.overseer;
        let views = PoolViews { sessions: &services.sessions, turn, details, shared, overseer };
        let mut decided = swarm_core::turn(ledgers, &views, decider, desired, observed).await;
        if decided.is_ok() {
            decided = ledgers.keep_sources().await.and(decided);
        }
        if desired.jobs.len() < LARGE_POOL_JOBS {
            // The decision for a small pool is quick to compute, and a decider's cache would use
            // memory for each of many pools.
            *decider = Decider::default();
        }
        let decided = decided.inspect_err(|_| overseer.forget_ledger());
        if let Err(StoreError::Conflict { .. }) = decided {
            // Another operator may have written the ledger since, however fresh the watch seems.
            ledgers.distrust().await;
        }
        let decided = decided?;
        let (now, ledger) = (clock::now(), &decided.decision.ledger);
        overseer.note(now, ledger);
        overseer.judge_finished(now, ledger, &desired.jobs);
        sessions.note_waiting(ledger, details);
        let overseer = &mut sessions.overseer;
        let named = overseer.named().filter(|session| !session.is_plain()).cloned().collect();
        services.sessions.learn_views(turn.namespace, named, overseer);
        plain.publications.remember(&decided);
        if decided.changed {
            let reasons = decided.decision.plan.moves.iter().map(|it| it.reason.as_str());
            reports.metrics.count_moves(reasons);
            self.note_written(&decided).await;
        }
        Ok(decided)
    }

    /// Counts and logs the write of a ledger.
    async fn note_written(&self, decided: &swarm_core::Turn) {
        let (services, Turn { namespace, name, .. }) = (self.services, &self.turn);
        let moves = decided.decision.plan.moves.len();
        let ledger = &decided.decision.ledger;
        let (revision, version) = (ledger.revision(), ledger.version);
        tracing::info!(namespace, name, revision, version, moves, "ledger written");
        services.metrics.ledger_writes.inc();
        services.metrics.moves.inc_by(moves as u64);
        if let Some(adoption) = decided.decision.adopted {
            services.ledgers.report_adoption(&self.turn, adoption, moves).await;
        }
    }
}

/// Returns the desired state, with the capacities of the workers from the labels of their pods.
fn sized<'a>(swarm: &Swarm, desired: &'a Desired, slots: &Slots) -> Cow<'a, Desired> {
    let listed = swarm.spec.worker.as_ref().and_then(|worker| worker.capacity.as_ref());
    if !listed.is_some_and(|all| all.iter().any(|it| it.match_labels.is_some())) {
        return Cow::Borrowed(desired);
    }
    let mut sized = desired.clone();
    let workers = slots.pods.iter().map(|(slot, pod)| (*slot, Some(pod.labels())));
    size_workers(&mut sized, &swarm.spec, workers);
    Cow::Owned(sized)
}

/// Returns the command that shows what came and went since the ledger before this turn.
fn diff(turn: &Turn<'_>, decided: &swarm_core::Turn) -> String {
    let Turn { namespace, name, .. } = turn;
    format!("kubectl swarm diff {} --swarm {name} -n {namespace}", decided.before.revision())
}

/// The outcome of a turn whose managed pool does not exist yet.
fn not_made(verdict: Verdict, kept: Kept) -> Outcome {
    if verdict.reason != Reason::PoolNotFound {
        return Outcome::Refused(verdict);
    }
    let requeue_after = kept.requeue_after.unwrap_or(REFUSED_RETRY).min(REFUSED_RETRY);
    let being_made =
        || Verdict { reason: Reason::PoolBeingMade, message: "the pool is being made".to_owned() };
    Outcome::Awaited { verdict: kept.complaint.unwrap_or_else(being_made), requeue_after }
}

/// Collects the facts for the decision, and the summary of the sessions for the report. Writes
/// nothing.
fn observe(
    swarm: &Swarm,
    pool: &Workload,
    desired: &Desired,
    slots: &Slots,
    memory: &mut Memory,
) -> (Observed, SessionSummary) {
    let Memory { sessions, pool: known, plain, .. } = memory;
    let publications = &plain.publications;
    let (moment, now) = (clock::now(), Instant::now());
    let uid = |pod: &Pod| pod.metadata.uid.clone().unwrap_or_default();
    let is_gone = |pod: &Pod| sessions.overseer.is_gone(moment, &uid(pod));
    let facts = PoolFacts {
        first_slot: pool.first_slot,
        protocol: swarm.protocol().into(),
        since_change: publications.changed.map(|then| now.saturating_duration_since(then)),
        since_handover: Some(now.saturating_duration_since(publications.handed_over)),
        ..known.first_seen.observe(slots, is_gone, now)
    };
    let observed = sessions.overseer.observed(moment, desired.policy, facts.clone());
    (observed, sessions.summary(moment, &facts))
}
