//! One turn of one Swarm: gather what the core decides on, then carry out what it decided.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::StatefulSet;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::events::{Event, EventType};
use kube::{Resource, ResourceExt};
use serde_json::json;
use swarm_core::ports::{StoreError, ViewStore};
use swarm_core::{Desired, Ledger, Observed, Turn, turn};

use super::context::{Context, Memory};
use crate::api::{API_VERSION, FIELD_MANAGER, Swarm, SwarmStatus};
use crate::convert;
use crate::ledger::bounded;
use crate::metrics::TurnLabels;
use crate::status::{self, Reason, Verdict};

/// How long a refusal stands before it is looked at again: what refused may have gone unseen.
const REFUSED_AGAIN: Duration = Duration::from_secs(30);
/// The longest wait for another nudge before a deleted Swarm lets go.
const RELEASE_WAIT_MAX: Duration = Duration::from_secs(1);
/// A net under the watches.
const RESYNC: Duration = Duration::from_mins(10);

/// What a turn came to, for the status.
enum Outcome {
    Done { turn: Box<Turn>, observed: Observed, next: Option<Duration> },
    Refused(Verdict),
}

impl Context {
    /// Brings a Swarm that is wanted closer to what it asks for.
    pub(super) async fn apply(&self, swarm: &Swarm) -> Result<Action, StoreError> {
        let started = Instant::now();
        let memory = self.memory(swarm);
        let mut memory = memory.lock().await;
        let outcome = self.outcome(swarm, &mut memory).await;
        let result = match &outcome {
            Ok(Outcome::Done { .. }) => "ok",
            Ok(Outcome::Refused(_)) => "refused",
            Err(StoreError::Conflict { .. }) => "conflict",
            Err(_) => "unavailable",
        };
        self.metrics.turns.get_or_create(&TurnLabels { result }).inc();
        self.metrics.turn_duration.observe(started.elapsed().as_secs_f64());
        let outcome = outcome?;
        self.forget_failures(swarm);
        self.tell(swarm, &outcome, &mut memory).await?;
        Ok(Action::requeue(match outcome {
            Outcome::Done { next, .. } => next.unwrap_or(RESYNC).min(RESYNC),
            Outcome::Refused(_) => REFUSED_AGAIN,
        }))
    }

    /// Observes and carries out; a refusal is an outcome, since the last good state keeps running.
    async fn outcome(&self, swarm: &Swarm, memory: &mut Memory) -> Result<Outcome, StoreError> {
        let desired = match convert::desired(swarm) {
            Ok(desired) => desired,
            Err(error) => {
                let message = error.to_string();
                return Ok(Outcome::Refused(Verdict { reason: Reason::InvalidSpec, message }));
            }
        };
        let Some(pool) = self.caches.pool_of(swarm) else {
            let name = swarm.pool_name();
            let message = format!("no StatefulSet `{name}` in this namespace; create it");
            return Ok(Outcome::Refused(Verdict { reason: Reason::PoolNotFound, message }));
        };
        match self.carry_out(swarm, &pool, &desired, memory).await {
            Ok((turn, observed, next)) => {
                Ok(Outcome::Done { turn: Box::new(turn), observed, next })
            }
            Err(StoreError::Refused { code, reason }) => {
                let verdict = Verdict { reason: Reason::Refused(code), message: reason };
                Ok(Outcome::Refused(verdict))
            }
            Err(error) => Err(error),
        }
    }

    /// One turn through the core, then the nudges that follow from it.
    async fn carry_out(
        &self,
        swarm: &Swarm,
        pool: &StatefulSet,
        desired: &Desired,
        memory: &mut Memory,
    ) -> Result<(Turn, Observed, Option<Duration>), StoreError> {
        let pods = self.caches.pods_near(pool);
        let observed =
            memory.sightings.observe(pool, pods.iter().map(|pod| &**pod), Instant::now());
        memory.ledgers.take_if(|ledgers| pool.uid().as_deref() != Some(ledgers.pool_uid()));
        memory.views.take_if(|views| !views.is_for(swarm));
        let ledgers = memory.ledgers.get_or_insert_with(|| self.ledger_store(swarm, pool));
        let views = memory.views.get_or_insert_with(|| self.view_store(swarm));
        let turn = turn(ledgers, views, desired, &observed).await?;
        if turn.changed {
            let moves = turn.decision.plan.moves.len();
            let (revision, version) =
                (turn.decision.ledger.revision(), turn.decision.ledger.version);
            let (namespace, name) = (swarm.namespace(), swarm.name_any());
            tracing::info!(namespace, name, revision, version, moves, "ledger written");
            self.metrics.ledger_writes.inc();
            self.metrics.moves.inc_by(moves as u64);
        }
        let again = self.nudge_pods(pool, &turn, memory).await?;
        let next = again.into_iter().chain(turn.decision.recheck_in).min();
        Ok((turn, observed, next))
    }

    /// Writes the status if it says anything new, and an Event when the reason changed.
    async fn tell(
        &self,
        swarm: &Swarm,
        outcome: &Outcome,
        memory: &mut Memory,
    ) -> Result<(), StoreError> {
        let before = memory.status.as_ref().or(swarm.status.as_ref());
        let generation = swarm.metadata.generation;
        let (status, verdict) = match outcome {
            Outcome::Done { turn, observed, .. } => {
                let decision = &turn.decision;
                let verdict = Verdict::of(decision, observed);
                let status = status::after_turn(generation, before, decision, observed, &verdict);
                (status, verdict)
            }
            Outcome::Refused(verdict) => {
                (status::after_refusal(generation, before, verdict), verdict.clone())
            }
        };
        if before == Some(&status) {
            return Ok(());
        }
        self.write_status(swarm, &status).await?;
        if status::ready_reason(before) != Some(verdict.reason.as_str()) {
            self.publish_event(swarm, &verdict).await;
        }
        memory.status = Some(status);
        Ok(())
    }

    async fn write_status(&self, swarm: &Swarm, status: &SwarmStatus) -> Result<(), StoreError> {
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
        bounded(format!("status of Swarm `{name}`"), written).await.map(|_| ())
    }

    /// Events are for people; one that is lost changes nothing.
    async fn publish_event(&self, swarm: &Swarm, verdict: &Verdict) {
        let type_ =
            if verdict.reason.is_stalled() { EventType::Warning } else { EventType::Normal };
        let event = Event {
            type_,
            reason: verdict.reason.as_str().into(),
            note: Some(verdict.message.clone()),
            action: "Reconcile".into(),
            secondary: None,
        };
        match self.recorder.publish(&event, &swarm.object_ref(&())).await {
            Ok(()) => {}
            // A namespace on its way out takes no more Events.
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                tracing::info!(reason = status.message, "an Event was refused");
            }
            Err(error) => tracing::warn!(%error, "an Event was not written"),
        }
    }

    /// Lets go of everything a Swarm held: publishes empty lists, tells the workers, and returns
    /// when they were told. The pool and the emptied view stay.
    pub(super) async fn release(&self, swarm: &Swarm) -> Result<Action, StoreError> {
        let memory = self.memory(swarm);
        let mut memory = memory.lock().await;
        let timing = convert::desired(swarm).map(|desired| desired.timing).unwrap_or_default();
        let nothing = Desired { timing, ..Desired::default() };
        let released = match self.caches.pool_of(swarm) {
            // Nothing was ever published, or somebody took it away.
            _ if memory.views.is_none() && !self.caches.has_view_of(swarm) => Ok(()),
            Some(pool) => self.release_pool(swarm, &pool, &nothing, &mut memory).await,
            None => self.view_store(swarm).publish(&Ledger::new(0)).await,
        };
        match released {
            Ok(()) => {}
            // Not ours to release, or the namespace is going and takes everything with it.
            Err(StoreError::Refused { reason, .. }) => {
                tracing::info!(swarm = %swarm.name_any(), reason, "nothing to release");
            }
            Err(error) => return Err(error),
        }
        self.forget(swarm);
        Ok(Action::await_change())
    }

    async fn release_pool(
        &self,
        swarm: &Swarm,
        pool: &StatefulSet,
        nothing: &Desired,
        memory: &mut Memory,
    ) -> Result<(), StoreError> {
        let (mut turn, _, _) = self.carry_out(swarm, pool, nothing, memory).await?;
        // Nobody acknowledges. The soon attempts are made; the late net is not waited for.
        turn.decision.plan.moves.clear();
        while let Some(wait) = self.nudge_pods(pool, &turn, memory).await? {
            if wait > RELEASE_WAIT_MAX {
                break;
            }
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }
}
