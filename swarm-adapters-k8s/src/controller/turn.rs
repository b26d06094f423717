//! One turn of one Swarm: gather what the core decides on, then carry out what it decided.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::events::{Event, EventType};
use kube::{Resource, ResourceExt};
use serde_json::json;
use swarm_core::handover::SessionId;
use swarm_core::overseer::PoolFacts;
use swarm_core::ports::{LedgerStore as _, StoreError};
use swarm_core::session::details;
use swarm_core::{Desired, Observed, Turn, Waiting};
use tokio::time::Instant;

use super::clock;
use super::context::{Context, Memory};
use super::pools::{as_scaled, note_takeover};
use super::refresh::note_started;
use super::sessions::{Alarm, SessionSummary};
use super::worker_views::PoolViews;
use crate::api::{API_VERSION, FIELD_MANAGER, Swarm, SwarmStatus};
use crate::convert;
use crate::ledger::{REQUEST_TIMEOUT, bounded};
use crate::metrics::TurnLabels;
use crate::refresh::RefreshTerms;
use crate::rollback::Epoch;
use crate::slots::Slots;
use crate::status::{
    self, NOT_READY_TOO_LONG, NotReadyTooLong, Reason, Refreshed, Refusals, RefusedRequest,
    SessionReport, TurnSummary, Verdict,
};
use crate::version;
use crate::workload::{Kind, Workload};

/// How long a refusal stands before it is looked at again: what refused may have gone unseen.
pub(super) const REFUSED_AGAIN: Duration = Duration::from_secs(30);
/// A net under the watches.
const RESYNC: Duration = Duration::from_mins(10);

/// What a turn came to, for the status.
enum Outcome {
    Done(Box<Done>),
    Refused(Verdict),
}

/// A turn that was carried out.
struct Done {
    turn: Turn,
    desired: Desired,
    observed: Observed,
    pool: Workload,
    refreshed: Refreshed,
    sessions: SessionReport,
    /// What was refused while the turn went on.
    refusals: Refusals,
    next: Option<Duration>,
    alarm: Option<Alarm>,
    /// What is wrong with the newest list of jobs, so that an older one was used.
    complaint: Option<Verdict>,
}

impl Done {
    fn summary(&self) -> TurnSummary<'_> {
        let Self { turn, desired, observed, pool, refreshed, sessions, refusals, .. } = self;
        let decision = &turn.decision;
        TurnSummary { decision, desired, observed, pool, refreshed, sessions, refusals }
    }
}

/// What carrying out a turn came to.
pub(super) struct Carried {
    pub(super) turn: Turn,
    pub(super) observed: Observed,
    pub(super) refreshed: Refreshed,
    pub(super) sessions: SessionReport,
    /// After which time to look at sessions again.
    pub(super) look_in: Option<Duration>,
    /// What makes that look unnecessary: nothing is under way.
    pub(super) alarm: Option<Alarm>,
}

/// One look at a pool. All of a turn goes by the same one.
pub(super) struct Seen {
    pub(super) slots: Slots,
    pub(super) observed: Observed,
}

/// That look, and what there is to report of it.
struct Looked {
    seen: Seen,
    summary: SessionSummary,
}

impl Context {
    /// Brings a Swarm that is wanted closer to what it asks for.
    pub(super) async fn apply(&self, swarm: &Swarm) -> Result<Action, StoreError> {
        let started = Instant::now();
        let memory = self.memory(swarm);
        let mut memory = memory.lock().await;
        self.forget_undone(swarm, &mut memory);
        memory.refusals = Refusals::default();
        let outcome = self.outcome(swarm, &mut memory).await;
        let result = match &outcome {
            Ok(Outcome::Done(_)) => "ok",
            Ok(Outcome::Refused(_)) => "refused",
            Err(StoreError::Conflict { .. }) => "conflict",
            Err(_) => "unavailable",
        };
        self.metrics.turns.get_or_create(&TurnLabels { result }).inc();
        self.metrics.turn_duration.observe(started.elapsed().as_secs_f64());
        let outcome = outcome?;
        self.forget_failures(swarm);
        self.tell(swarm, &outcome, &mut memory).await?;
        if let Outcome::Done(done) = &outcome {
            self.tell_quarantined(swarm, &done.sessions.quarantined, &mut memory).await;
            self.report_not_ready(swarm, done, &mut memory).await;
        }
        Ok(Action::requeue(match outcome {
            Outcome::Done(done) => {
                let namespace = swarm.namespace().unwrap_or_default();
                self.alarms.set(&namespace, &swarm.name_any(), done.alarm);
                done.next.unwrap_or(RESYNC).min(RESYNC)
            }
            Outcome::Refused(_) => REFUSED_AGAIN,
        }))
    }

    /// Observes and carries out; a refusal is an outcome, since the last good state keeps running.
    async fn outcome(&self, swarm: &Swarm, memory: &mut Memory) -> Result<Outcome, StoreError> {
        let mut desired = match convert::desired(swarm) {
            Ok(desired) => desired,
            Err(error) => {
                let message = error.to_string();
                return Ok(Outcome::Refused(Verdict { reason: Reason::InvalidSpec, message }));
            }
        };
        let pool = match self.caches.pool_of(swarm) {
            Ok(pool) => pool,
            Err(verdict) => return Ok(Outcome::Refused(verdict)),
        };
        let mut complaint = None;
        if pool.kind == Kind::Pods {
            let members = self.caches.members(swarm);
            self.claim(swarm, &members.free, &mut memory.refusals).await?;
            complaint = members.complaint();
        }
        if !swarm.spec.job_sources.is_empty() {
            match self.jobs(swarm, memory).await? {
                (Some(jobs), why_not_newer) => {
                    desired.jobs = jobs;
                    complaint = why_not_newer.or(complaint);
                }
                // Without any list the workers go on with what they have.
                (None, Some(verdict)) => return Ok(Outcome::Refused(verdict)),
                (None, None) => {}
            }
        }
        match self.carry_out(swarm, &pool, &desired, memory).await {
            Ok(Carried { turn, observed, refreshed, sessions, look_in, alarm }) => {
                // That another Swarm is gone, or that something is allowed now, no watch shows.
                let is_refused = complaint.is_some() || !memory.refusals.is_empty();
                let again = is_refused.then_some(REFUSED_AGAIN);
                let look_in = look_in.filter(|_| alarm.is_none());
                let next = [look_in, refreshed.look_in, turn.decision.recheck_in, again];
                let next = next.into_iter().flatten().min();
                Ok(Outcome::Done(Box::new(Done {
                    turn,
                    desired,
                    observed,
                    pool,
                    refreshed,
                    sessions,
                    refusals: std::mem::take(&mut memory.refusals),
                    next,
                    alarm,
                    complaint,
                })))
            }
            Err(StoreError::Refused { code, reason }) => {
                self.count_refused(RefusedRequest::Turn);
                let verdict = Verdict { reason: Reason::Refused(code), message: reason };
                Ok(Outcome::Refused(verdict))
            }
            Err(error) => Err(error),
        }
    }

    /// One turn through the core, then the refreshes that follow from it.
    pub(super) async fn carry_out(
        &self,
        swarm: &Swarm,
        pool: &Workload,
        desired: &Desired,
        memory: &mut Memory,
    ) -> Result<Carried, StoreError> {
        let pool = &*as_scaled(pool, memory);
        note_takeover(swarm, pool, memory);
        if memory.ledgers.take_if(|ledgers| pool.uid != ledgers.pool_uid()).is_some() {
            memory.sessions.overseer.forget_ledger();
        }
        memory.views.take_if(|views| !views.is_for(swarm));
        // Before anything new is published: what is there now is what new pods started with.
        let Looked { seen, summary } = self.look(swarm, pool, desired, memory).await?;
        let ledgers = memory.ledgers.get_or_insert_with(|| self.ledger_store(swarm, pool));
        let shared = memory.views.get_or_insert_with(|| self.view_store(swarm));
        let (context, details) = (self, &details(&desired.jobs));
        let sessions = &mut memory.sessions;
        let overseer = &sessions.overseer;
        let views = PoolViews { context, swarm, details, shared, overseer };
        let turn = swarm_core::turn(&*ledgers, &views, desired, &seen.observed).await;
        let turn = turn.inspect_err(|_| sessions.overseer.forget_ledger())?;
        sessions.note(&turn.decision.ledger);
        sessions.overseer.judge_finished(clock::now(), &turn.decision.ledger, &desired.jobs);
        if turn.changed {
            let moves = turn.decision.plan.moves.len();
            let (revision, version) =
                (turn.decision.ledger.revision(), turn.decision.ledger.version);
            let (namespace, name) = (swarm.namespace(), swarm.name_any());
            tracing::info!(namespace, name, revision, version, moves, "ledger written");
            self.metrics.ledger_writes.inc();
            self.metrics.moves.inc_by(moves as u64);
        }
        let ledger = &turn.decision.ledger;
        let (mut look_in, alarm) = (summary.again_in, summary.alarm.clone());
        let namespace = swarm.namespace().unwrap_or_default();
        let published = |session: &SessionId| self.views.revision(&namespace, session);
        let ages = &seen.observed.ages;
        let told = sessions.report(ledger, summary, ages, desired.policy, published);
        memory.counted.set(told.living, told.moving);
        if !turn.changed
            && self.collect_garbage(swarm, ledger, sessions, &mut memory.refusals).await
        {
            look_in = Some(Duration::ZERO);
        }
        let is_idle = !turn.changed && told.moving == 0 && look_in != Some(Duration::ZERO);
        let alarm = alarm.filter(|_| is_idle);
        memory.remember(&turn);
        let mut refreshed = self.refresh_workers(swarm, pool, &seen, &turn, memory).await?;
        refreshed.add_sessions(&told.stale);
        self.set_deletion_cost(swarm, pool, &seen.slots, turn.decision.replicas).await?;
        if let Some(replicas) = turn.decision.replicas {
            self.scale(swarm, pool, replicas, memory).await?;
        }
        Ok(Carried { turn, observed: seen.observed, refreshed, sessions: told, look_in, alarm })
    }

    /// What is seen of `pool` now, and which of its pods started with the view that is there.
    async fn look(
        &self,
        swarm: &Swarm,
        pool: &Workload,
        desired: &Desired,
        memory: &mut Memory,
    ) -> Result<Looked, StoreError> {
        let mut published = None;
        if RefreshTerms::of(swarm).replaces() {
            let views = memory.views.get_or_insert_with(|| self.view_store(swarm));
            published = views.published().await;
        }
        let pods = self.caches.pods_of(swarm, pool);
        let ledgers = memory.ledgers.get_or_insert_with(|| self.ledger_store(swarm, pool));
        let slots = if pool.kind == Kind::StatefulSet {
            Slots::by_ordinal(pool, pods)
        } else {
            let ledger = ledgers.load().await?.map(|(ledger, _)| ledger);
            Slots::by_binding(pool, ledger.as_ref(), pods, desired.replicas)
        };
        if let Some(published) = published {
            note_started(&published, slots.pods.values(), &mut memory.told);
        }
        let terms = convert::lease_terms(swarm).unwrap_or_default();
        let uids = slots.pods.values().filter_map(|pod| pod.uid()).collect();
        let sessions = &mut memory.sessions;
        for reason in self.learn_sessions(swarm, &terms, uids, sessions, &*ledgers).await? {
            memory.refusals.add(RefusedRequest::Revocation, reason);
        }
        let (moment, now) = (clock::now(), Instant::now());
        let overseer = &mut sessions.overseer;
        let is_gone =
            |pod: &Pod| overseer.is_gone(moment, pod.metadata.uid.as_deref().unwrap_or_default());
        let facts = PoolFacts {
            first_slot: pool.first_slot,
            protocol: swarm.protocol().into(),
            since_change: memory.changed.map(|then| now.saturating_duration_since(then)),
            since_handover: Some(now.saturating_duration_since(memory.handed_over)),
            ..memory.sightings.observe(&slots, is_gone, now)
        };
        let observed = overseer.observed(moment, desired.policy, facts.clone());
        let summary = sessions.summary(moment, &facts);
        Ok(Looked { seen: Seen { slots, observed }, summary })
    }

    /// Reports what a turn came to.
    async fn tell(
        &self,
        swarm: &Swarm,
        outcome: &Outcome,
        memory: &mut Memory,
    ) -> Result<(), StoreError> {
        let before = memory.status.as_ref().or(swarm.status.as_ref());
        let generation = swarm.metadata.generation;
        let (status, verdict) = match outcome {
            Outcome::Done(done) => {
                let Done { complaint, refreshed, turn: Turn { decision, .. }, .. } = &**done;
                let is_unclear = decision.waiting == Some(Waiting::Gathering)
                    || (refreshed.is_under_way() && before.is_some());
                if is_unclear && complaint.is_none() {
                    // The plan is not carried out yet; until then the last status is true.
                    return Ok(());
                }
                let facts = done.summary();
                let verdict = match complaint.clone() {
                    Some(complaint) => complaint,
                    None => match Verdict::of(&facts) {
                        of if matches!(of.reason, Reason::Settled | Reason::Scaling) => {
                            memory.contest(swarm, &done.pool).unwrap_or(of)
                        }
                        of => of,
                    },
                };
                (status::after_turn(generation, before, &facts, &verdict), verdict)
            }
            Outcome::Refused(verdict) => {
                (status::after_refusal(generation, before, verdict), verdict.clone())
            }
        };
        self.report(swarm, status, verdict, memory).await
    }

    /// Reports why a turn was not carried out; the counts of the last good one stay.
    pub(super) async fn report_refusal(
        &self,
        swarm: &Swarm,
        verdict: Verdict,
        memory: &mut Memory,
    ) -> Result<Action, StoreError> {
        let before = memory.status.as_ref().or(swarm.status.as_ref());
        let status = status::after_refusal(swarm.metadata.generation, before, &verdict);
        self.report(swarm, status, verdict, memory).await?;
        Ok(Action::requeue(REFUSED_AGAIN))
    }

    /// Writes a status if it says anything new, and an Event when the reason changed.
    async fn report(
        &self,
        swarm: &Swarm,
        status: SwarmStatus,
        verdict: Verdict,
        memory: &mut Memory,
    ) -> Result<(), StoreError> {
        let before = memory.status.as_ref().or(swarm.status.as_ref());
        if before == Some(&status) {
            return Ok(());
        }
        match self.write_status(swarm, &status, memory.epoch).await {
            Ok(()) => {}
            Err(StoreError::Refused { reason: refused, .. }) => {
                self.count_refused(RefusedRequest::Status);
                let (name, reason) = (swarm.name_any(), verdict.reason.as_str());
                tracing::warn!(swarm = name, refused, reason, verdict.message, "no status");
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        if status::ready_reason(before) != Some(verdict.reason.as_str()) {
            let Verdict { reason, message } = verdict;
            let type_ = if reason.is_warning() { EventType::Warning } else { EventType::Normal };
            self.publish_event(swarm, type_, reason.as_str(), message).await;
        } else if let Some(refused) = status::refused_writes(&status)
            && before.and_then(status::refused_writes).is_none()
        {
            let note = refused.to_owned();
            self.publish_event(swarm, EventType::Warning, "WriteRefused", note).await;
        }
        memory.status = Some(status);
        Ok(())
    }

    /// An Event about workers that have not been ready for too long since the last turn.
    async fn report_not_ready(&self, swarm: &Swarm, done: &Done, memory: &mut Memory) {
        if done.turn.decision.waiting.is_some() {
            return;
        }
        let found = NotReadyTooLong::of(&done.summary());
        let (workers, message) = found.map(|it| (it.workers, it.message)).unwrap_or_default();
        let before = std::mem::replace(&mut memory.not_ready, workers.iter().cloned().collect());
        if workers.iter().any(|worker| !before.contains(worker)) {
            self.publish_event(swarm, EventType::Warning, NOT_READY_TOO_LONG, message).await;
        }
    }

    /// An Event about jobs that are kept away from workers since the last turn.
    async fn tell_quarantined(&self, swarm: &Swarm, jobs: &[String], memory: &mut Memory) {
        let is_new = |job: &&String| !memory.quarantined.contains(*job);
        let new: Vec<_> = jobs.iter().filter(is_new).map(String::as_str).collect();
        if !new.is_empty() {
            let note = format!(
                "these jobs crashed several workers and wait before they are tried again: {}",
                status::shortened(&new)
            );
            self.publish_event(swarm, EventType::Warning, "JobsQuarantined", note).await;
        }
        memory.quarantined = jobs.iter().cloned().collect();
    }

    async fn write_status(
        &self,
        swarm: &Swarm,
        status: &SwarmStatus,
        seen_in: Epoch,
    ) -> Result<(), StoreError> {
        let name = swarm.name_any();
        let api: Api<Swarm> =
            Api::namespaced(self.client.clone(), &swarm.namespace().unwrap_or_default());
        let patch = Patch::Apply(json!({
            "apiVersion": API_VERSION,
            "kind": "Swarm",
            // Without the UID a Swarm that was deleted meanwhile would be made anew.
            "metadata": {"name": name, "uid": swarm.uid()},
            "status": status,
        }));
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let written = api.patch_status(&name, &params, &patch);
        let written = bounded(format!("status of Swarm `{name}`"), written).await?;
        let (seen, answered) = (version::of(swarm), version::of(&written));
        self.caches.rollbacks.compare(seen_in, seen, answered, || format!("Swarm `{name}`"));
        Ok(())
    }

    /// Events are for people; one that is lost changes nothing.
    pub(super) async fn publish_event(
        &self,
        swarm: &Swarm,
        type_: EventType,
        reason: &str,
        note: String,
    ) {
        let event = Event {
            type_,
            reason: reason.into(),
            note: Some(note),
            action: "Reconcile".into(),
            secondary: None,
        };
        let swarm = swarm.object_ref(&());
        let published = self.recorder.publish(&event, &swarm);
        match tokio::time::timeout(REQUEST_TIMEOUT, published).await {
            Ok(Ok(())) => {}
            // A namespace on its way out takes no more Events.
            Ok(Err(kube::Error::Api(status))) if status.is_forbidden() => {
                self.count_refused(RefusedRequest::Event);
                tracing::info!(reason = status.message, "an Event was refused");
            }
            Ok(Err(error)) => tracing::warn!(%error, "an Event was not written"),
            Err(elapsed) => tracing::warn!(%elapsed, "an Event was not written"),
        }
    }
}

impl Memory {
    /// Remembers when what was told to the workers.
    fn remember(&mut self, turn: &Turn) {
        let Turn { decision, changed } = turn;
        if *changed && self.version != decision.ledger.version {
            self.changed = Some(Instant::now());
        }
        self.version = decision.ledger.version;
        if *changed && decision.plan.moves.iter().any(|step| step.from.is_some()) {
            self.handed_over = Instant::now();
        }
    }
}
