//! One turn of one Swarm, in stages: what it asks for is resolved, what there is to know is learned
//! and observed, the core decides, what it decided is saved and published, workers are refreshed, and
//! what came of it is reported. Each stage takes what the one before it made.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::runtime::controller::Action;
use swarm_client::api::Swarm;
use swarm_core::overseer::PoolFacts;
use swarm_core::ports::{LedgerStore as _, StoreError};
use swarm_core::session::Details;
use swarm_core::{Decider, Desired, Need, Observed, Progress, Turn};
use swarm_spec::convert::{check_jobs, size_workers};
use tokio::time::Instant;

use super::memory::Memory;
use super::report::{Done, Outcome};
use crate::clock;
use crate::fairness::background;
use crate::jobs::convert;
use crate::jobs::sources::Loaded;
use crate::ledger::LARGE_POOL_JOBS;
use crate::ledger::stores::Stores;
use crate::managed::keep::Kept;
use crate::metrics::TurnLabels;
use crate::plain::refresh::{Refreshing, note_started};
use crate::plain::refresh_order::RefreshTerms;
use crate::plain::view::ConfigMapViewStore;
use crate::pool::rollout::RolloutReport;
use crate::pool::slots::Slots;
use crate::pool::workload::{Kind, Workload};
use crate::requests::{CHANGED_RETRY, REFUSED_RETRY};
use crate::services::Services;
use crate::sessions::SessionSummary;
use crate::sessions::alarms::Alarm;
use crate::sessions::silent::Silence;
use crate::sessions::worker_views::PoolViews;
use crate::status::{self, Reason, Refreshed, Refusals, RefusedRequest, SessionReport, Verdict};

/// A net under the watches.
const RESYNC: Duration = Duration::from_mins(10);

/// The first stage: what a Swarm asks for, and the pool it is for.
struct Resolved {
    pool: Workload,
    desired: Desired,
    /// What is wrong with the newest list of jobs, so that an older one is used.
    complaint: Option<Verdict>,
}

/// The last stage before the report: what carrying out a turn came to.
pub(crate) struct Carried {
    pub(crate) turn: Turn,
    pub(crate) observed: Observed,
    pub(crate) progress: Progress,
    pub(crate) refreshed: Refreshed,
    pub(crate) sessions: SessionReport,
    /// Why pods do not run or are not made, if that is known.
    pub(crate) trouble: Option<String>,
    /// Pods that open no session, and the time until another look.
    pub(crate) silence: Silence,
    /// Progress of the workload with its newest template.
    pub(crate) rollout: RolloutReport,
    /// After which time to look at sessions again.
    pub(crate) requeue_after: Option<Duration>,
    /// After which time the pool is to have fewer workers, if nothing changes.
    pub(crate) scale_in: Option<Duration>,
    /// How many workers the jobs need.
    pub(crate) need: Option<Need>,
    /// What makes that look unnecessary: nothing is under way.
    pub(crate) alarm: Option<Alarm>,
}

impl Services {
    /// Brings a Swarm that is wanted closer to what it asks for, and reports what came of it.
    pub(crate) async fn apply(
        &self,
        swarm: &Swarm,
        memory: &mut Memory,
    ) -> Result<Action, StoreError> {
        let started = Instant::now();
        let mut outcome = self.outcome(swarm, memory).await;
        // A report that fails is the end of a turn like any other.
        if let Ok(done) = &outcome
            && let Err(error) =
                self.report_turn(swarm, done, &mut memory.reports, memory.epoch).await
        {
            outcome = Err(error);
        }
        let result = match &outcome {
            Ok(Outcome::Done(_)) => "ok",
            Ok(Outcome::Refused(_) | Outcome::Awaited { .. }) => "refused",
            Err(StoreError::Conflict { .. }) => "conflict",
            Err(_) => "unavailable",
        };
        self.metrics.turns.get_or_create(&TurnLabels { result }).inc();
        self.metrics.turn_duration.observe(started.elapsed().as_secs_f64());
        let outcome = outcome?;
        let requeue_after = match outcome {
            Outcome::Done(done) => {
                let namespace = swarm.namespace().unwrap_or_default();
                self.alarms.set(&namespace, &swarm.name_any(), done.alarm);
                done.next.unwrap_or(RESYNC).min(RESYNC)
            }
            Outcome::Refused(_) => REFUSED_RETRY,
            Outcome::Awaited { requeue_after, .. } => requeue_after,
        };
        let event_in = memory.reports.event_in();
        Ok(Action::requeue(event_in.map_or(requeue_after, |event_in| event_in.min(requeue_after))))
    }

    /// The stages of a turn; a refusal is an outcome, since the last good state keeps running.
    async fn outcome(&self, swarm: &Swarm, memory: &mut Memory) -> Result<Outcome, StoreError> {
        let mut refusals = Refusals::default();
        let kept = self.keep_pool(swarm, &mut memory.making, &mut memory.scaling).await?;
        if memory.loaded.is_costly() {
            background::go_on().await;
        }
        let Resolved { mut pool, mut desired, complaint } =
            match self.resolve(swarm, memory, &mut refusals).await? {
                Ok(resolved) => resolved,
                Err(verdict) if swarm.spec.pool.managed.is_some() => {
                    return Ok(not_made(verdict, kept));
                }
                Err(verdict) => return Ok(Outcome::Refused(verdict)),
            };
        self.note_listed(swarm, &pool, &desired, memory).await?;
        let complaint = kept.complaint.or(complaint);
        let large_turn_slot = self.large_turn_slot(swarm, desired.jobs.len()).await;
        let carrying = Instant::now();
        let carried = self.carry_out(swarm, &pool, &mut desired, memory, &mut refusals).await;
        if large_turn_slot.is_some() {
            self.note_cost(swarm, &mut memory.loaded, carrying.elapsed());
        }
        let carried = match carried {
            Ok(carried) => carried,
            Err(StoreError::Refused { code, reason }) => {
                self.metrics.count_refused(RefusedRequest::Turn);
                let verdict = Verdict { reason: Reason::Refused(code), message: reason };
                return Ok(Outcome::Refused(verdict));
            }
            Err(error) => return Err(error),
        };
        let Carried { turn, observed, progress, refreshed, sessions, trouble, .. } = carried;
        let Carried { requeue_after, scale_in, need, alarm, silence, rollout, .. } = carried;
        let unbound = silence.misfit.as_ref().map(|it| it.message.clone());
        pool.trouble = trouble.or(unbound);
        pool.misfits = self.caches.misfits(swarm, &pool);
        pool.misfits.extend(silence.misfit);
        // That another Swarm is gone, or that something is allowed now, no watch shows.
        let is_refused = complaint.is_some() || !refusals.is_empty();
        let again = is_refused.then_some(REFUSED_RETRY);
        let requeue_after = requeue_after.filter(|_| alarm.is_none());
        let looks = [requeue_after, refreshed.requeue_after, rollout.requeue_after];
        let next = looks.into_iter().chain([scale_in, turn.decision.recheck_in, again]);
        let rest = self.sources_rest_for(swarm, &memory.loaded);
        let views_contest = memory.stores.views_contest();
        let contest_ends = views_contest.as_ref().map(|(ends_in, _)| *ends_in);
        let others = [kept.requeue_after, rest, contest_ends, silence.requeue_after];
        let next = next.chain(others).flatten().min();
        let scaling = memory.scaling.contest(swarm, &pool);
        let contest = scaling.or(views_contest.map(|(_, verdict)| verdict));
        let done = Done {
            swarm: swarm.name_any(),
            turn,
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
        };
        let facts = done.summary();
        let (workers, jobs) = (status::desired_workers(&facts), done.desired.jobs.len());
        let namespace = swarm.namespace().unwrap_or_default();
        memory.asked.set(&namespace, &swarm.name_any(), workers, jobs);
        Ok(Outcome::Done(Box::new(done)))
    }

    /// What the Swarm asks for, and for which pool; a sentence if that cannot be used. Of a pool by
    /// labels the pods are claimed that nobody has.
    async fn resolve(
        &self,
        swarm: &Swarm,
        memory: &mut Memory,
        refusals: &mut Refusals,
    ) -> Result<Result<Resolved, Verdict>, StoreError> {
        let mut desired = match convert::desired(swarm) {
            Ok(desired) => desired,
            Err(error) => {
                let message = error.to_string();
                return Ok(Err(Verdict { reason: Reason::InvalidSpec, message }));
            }
        };
        let pool = match self.caches.pool_of(swarm) {
            Ok(pool) => pool,
            Err(verdict) => return Ok(Err(verdict)),
        };
        let mut complaint = None;
        if pool.kind == Kind::Pods {
            let members = self.caches.members(swarm);
            self.claim(swarm, &members.free, refusals).await?;
            complaint = members.complaint();
        }
        memory.drop_other_stores(swarm, &pool);
        let Memory { loaded, stores, .. } = memory;
        if swarm.spec.job_sources.is_empty() {
            *loaded = Loaded::none();
        } else {
            match self.jobs(swarm, &pool, loaded, stores).await? {
                (Some(jobs), why_not_newer) => {
                    desired.jobs = jobs;
                    complaint = why_not_newer.or(complaint);
                }
                // Without any list the workers go on with what they have.
                (None, Some(verdict)) => return Ok(Err(verdict)),
                (None, None) => {}
            }
        }
        // An older list may not suit what the rest of the spec asks for by now.
        if let Err(error) = check_jobs(&desired.jobs, &swarm.spec) {
            let message = error.to_string();
            return Ok(Err(Verdict { reason: Reason::InvalidSpec, message }));
        }
        Ok(Ok(Resolved { pool, desired, complaint }))
    }

    /// Takes note of the jobs that the Swarm lists, for an Event if most of them were removed. The first
    /// look compares them with the jobs of the ledger.
    async fn note_listed(
        &self,
        swarm: &Swarm,
        pool: &Workload,
        desired: &Desired,
        memory: &mut Memory,
    ) -> Result<(), StoreError> {
        let Memory { reports, stores, loaded, .. } = memory;
        let listed = &mut reports.listed;
        let ledgers = stores.ledgers(self, swarm, pool);
        if listed.is_first_look() && self.caches.has_ledger(swarm, ledgers.name()) {
            match ledgers.load().await {
                Ok(Some((ledger, _))) => listed.begin(&ledger, &desired.jobs),
                Ok(None) | Err(StoreError::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        listed.note(swarm.metadata.generation, loaded.read(), &desired.jobs);
        Ok(())
    }

    /// One turn through the core, then what follows from it.
    ///
    /// The order matters. What new pods started with is read before anything new is published. What
    /// is learned of sessions comes before what is seen of their pods, since a session that renews
    /// keeps its pod. Revocations are answered before the decision, which may count on them. Nothing
    /// is published before the ledger is saved, nobody is nudged before the view is published, and
    /// the pool is scaled last, when the workers that go were asked to stop. How many workers there are
    /// to be comes before all that goes by it.
    pub(crate) async fn carry_out(
        &self,
        swarm: &Swarm,
        pool: &Workload,
        desired: &mut Desired,
        memory: &mut Memory,
        refusals: &mut Refusals,
    ) -> Result<Carried, StoreError> {
        let pool = &*memory.scaling.as_scaled(pool);
        memory.drop_other_stores(swarm, pool);
        let Memory { autoscaling, stores, .. } = &mut *memory;
        let scale_in = self.autoscale(swarm, pool, desired, autoscaling, stores).await?;
        let desired = &*desired;
        memory.scaling.note_takeover(desired.replicas, pool);
        let pods = self.caches.pods_of(swarm, pool);
        let trouble = self.explain(swarm, pool, &pods, &mut memory.explained).await;
        let rollout = memory.reports.rollout(swarm, pool, &pods);
        let slots = self.slots(swarm, pool, pods, desired, &mut memory.stores).await?;
        let desired = &*sized(swarm, desired, &slots);
        self.note_started(swarm, &slots, memory).await;
        self.learn_sessions(swarm, pool, &slots, &mut memory.sessions, &mut memory.stores).await?;
        self.revoke_due(swarm, &mut memory.sessions, refusals).await?;
        let silence = self.silence(swarm, pool, &slots, &mut memory.silent);
        let (mut observed, summary) = observe(swarm, pool, desired, &slots, memory);
        observed.adoptable = self.adoptable(swarm, pool, &mut memory.stores).await?;
        let turn = self.decide_and_publish(swarm, pool, desired, &observed, memory).await?;
        let ledger = &turn.decision.ledger;
        let (again_in, alarm) = (summary.again_in, summary.alarm.clone());
        let sessions = memory.sessions.report(ledger, summary, &observed.ages, desired.policy);
        // A worker of an earlier version says it in any case.
        let sessions = sessions.with_output(swarm.spec.output());
        let is_more_garbage =
            !turn.changed && self.collect_garbage(swarm, ledger, &memory.sessions, refusals).await;
        let refreshing = Refreshing {
            pool,
            slots: &slots,
            observed: &observed,
            turn: &turn,
            since_change: memory.publications.since_change(),
            repaired_at: memory.stores.views.as_ref().and_then(ConfigMapViewStore::repaired_at),
        };
        let mut refreshed =
            self.refresh_workers(swarm, &refreshing, &mut memory.pods, refusals).await?;
        refreshed.add_sessions(&sessions.stale);
        let progress = Progress::of(&turn.decision, desired, &observed, refreshed.stale.clone());
        let failing = sessions.failing_jobs();
        memory.counted.set(sessions.living, progress.jobs.releasing, failing);
        let (wanted, replicas) = (desired.replicas, turn.decision.replicas);
        let is_priced =
            self.set_deletion_cost(pool, &slots, wanted, replicas, &mut memory.pods).await?;
        if !is_priced {
            refreshed.requeue_after =
                refreshed.requeue_after.into_iter().chain([CHANGED_RETRY]).min();
        } else if let Some(replicas) = replicas {
            self.scale(swarm, pool, replicas, &mut memory.scaling).await?;
        }
        let need = memory.autoscaling.need(&turn.decision.ledger, desired, pool);
        let requeue_after = if is_more_garbage { Some(Duration::ZERO) } else { again_in };
        let is_idle = !turn.changed && progress.jobs.releasing == 0 && !is_more_garbage;
        let alarm = alarm.filter(|_| is_idle);
        Ok(Carried {
            turn,
            observed,
            progress,
            refreshed,
            sessions,
            trouble,
            silence,
            rollout,
            requeue_after,
            scale_in,
            need,
            alarm,
        })
    }

    /// Which of `pods` fills which slot of `pool`.
    async fn slots(
        &self,
        swarm: &Swarm,
        pool: &Workload,
        pods: Vec<Arc<Pod>>,
        desired: &Desired,
        stores: &mut Stores,
    ) -> Result<Slots, StoreError> {
        if pool.kind == Kind::StatefulSet {
            return Ok(Slots::by_ordinal(pool, pods));
        }
        let ledger = stores.ledgers(self, swarm, pool).load().await?;
        let ledger = ledger.map(|(ledger, _)| ledger);
        Ok(Slots::by_binding(pool, ledger.as_ref(), pods, desired.replicas))
    }

    /// Notes which pods started with the view that is there, where pods are replaced to read a new one.
    async fn note_started(&self, swarm: &Swarm, slots: &Slots, memory: &mut Memory) {
        if !RefreshTerms::of(swarm).replaces() {
            return;
        }
        if let Some(published) = memory.stores.views(self, swarm).published().await {
            note_started(&published, slots.pods.values(), &mut memory.pods);
        }
    }

    /// Decides, saves what was decided, and publishes what was saved.
    async fn decide_and_publish(
        &self,
        swarm: &Swarm,
        pool: &Workload,
        desired: &Desired,
        observed: &Observed,
        memory: &mut Memory,
    ) -> Result<Turn, StoreError> {
        let Memory { stores, sessions, publications, decider, loaded, .. } = memory;
        let details = Details::of(&desired.jobs).with_output(swarm.spec.output());
        let details = &match swarm.runner() {
            Some(runner) => details.with_runner(runner.to_json()),
            None => details,
        };
        let (ledgers, shared) = stores.both(self, swarm, pool);
        if let Some(record) = loaded.record() {
            ledgers.record_sources(record);
        }
        let overseer = &mut sessions.overseer;
        let views = PoolViews { services: self, swarm, details, shared, overseer };
        let mut turn = swarm_core::turn(ledgers, &views, decider, desired, observed).await;
        if turn.is_ok() {
            turn = ledgers.keep_sources().await.and(turn);
        }
        if desired.jobs.len() < LARGE_POOL_JOBS {
            // It is decided in no time, and what a decider keeps takes memory for each of many pools.
            *decider = Decider::default();
        }
        let turn = turn.inspect_err(|_| overseer.forget_ledger());
        if let Err(StoreError::Conflict { .. }) = turn {
            // Another operator may have gone on from it, however fresh the watch seems.
            ledgers.distrust().await;
        }
        let turn = turn?;
        let (now, ledger) = (clock::now(), &turn.decision.ledger);
        overseer.note(now, ledger);
        overseer.judge_finished(now, ledger, &desired.jobs);
        let named = overseer.named().filter(|session| !session.is_plain()).cloned().collect();
        self.learn_views(&swarm.namespace().unwrap_or_default(), named, overseer);
        publications.remember(&turn);
        if turn.changed {
            let moves = turn.decision.plan.moves.len();
            let (revision, version) = (ledger.revision(), ledger.version);
            let (namespace, name) = (swarm.namespace(), swarm.name_any());
            tracing::info!(namespace, name, revision, version, moves, "ledger written");
            self.metrics.ledger_writes.inc();
            self.metrics.moves.inc_by(moves as u64);
            if let Some(adoption) = turn.decision.adopted {
                self.report_adoption(swarm, adoption, moves).await;
            }
        }
        Ok(turn)
    }
}

/// What is asked for, with what the workers can take by the labels of their pods.
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

/// What a turn comes to whose managed pool is not there yet.
fn not_made(verdict: Verdict, kept: Kept) -> Outcome {
    if verdict.reason != Reason::PoolNotFound {
        return Outcome::Refused(verdict);
    }
    let requeue_after = kept.requeue_after.unwrap_or(REFUSED_RETRY).min(REFUSED_RETRY);
    let being_made =
        || Verdict { reason: Reason::PoolBeingMade, message: "the pool is being made".to_owned() };
    Outcome::Awaited { verdict: kept.complaint.unwrap_or_else(being_made), requeue_after }
}

/// What a turn goes by, and what there is to report of sessions. Writes nothing.
fn observe(
    swarm: &Swarm,
    pool: &Workload,
    desired: &Desired,
    slots: &Slots,
    memory: &mut Memory,
) -> (Observed, SessionSummary) {
    let Memory { sessions, sightings, publications, .. } = memory;
    let (moment, now) = (clock::now(), Instant::now());
    let uid = |pod: &Pod| pod.metadata.uid.clone().unwrap_or_default();
    let is_gone = |pod: &Pod| sessions.overseer.is_gone(moment, &uid(pod));
    let facts = PoolFacts {
        first_slot: pool.first_slot,
        protocol: swarm.protocol().into(),
        since_change: publications.changed.map(|then| now.saturating_duration_since(then)),
        since_handover: Some(now.saturating_duration_since(publications.handed_over)),
        ..sightings.observe(slots, is_gone, now)
    };
    let observed = sessions.overseer.observed(moment, desired.policy, facts.clone());
    (observed, sessions.summary(moment, &facts))
}
