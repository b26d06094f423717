//! Lets go of Swarms that are deleted: their workers are told first, within bounds.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::StatefulSet;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::controller::Action;
use serde_json::json;
use swarm_core::handover::Policy;
use swarm_core::ports::{StoreError, ViewStore};
use swarm_core::{Desired, Ledger};

use super::FINALIZER;
use super::context::{Context, Memory};
use super::turn::Carried;
use crate::api::Swarm;
use crate::convert;
use crate::ledger::bounded;
use crate::refresh::RefreshTerms;

/// The longest wait for another nudge before a deleted Swarm lets go.
const RELEASE_WAIT_MAX: Duration = Duration::from_secs(1);

impl Context {
    /// Lets go of everything a deleted Swarm held: publishes empty lists and tells the workers; once
    /// they were told, the Swarm goes. The pool and the emptied view stay.
    pub(super) async fn release(&self, swarm: &Swarm) -> Result<Action, StoreError> {
        if !swarm.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
            return Ok(Action::await_change());
        }
        let memory = self.memory(swarm);
        let mut memory = memory.lock().await;
        let desired = convert::desired(swarm).unwrap_or_default();
        let (timing, policy) = (desired.timing, desired.policy);
        let nothing = Desired { timing, policy, ..Desired::default() };
        let released = match self.caches.pool_of(swarm) {
            // Nothing was ever published, or somebody took it away.
            _ if memory.views.is_none() && !self.caches.has_view_of(swarm) => Ok(None),
            Ok(pool) => self.release_pool(swarm, &pool, &nothing, &mut memory).await,
            Err(_) => self.empty_view(swarm).await.map(|()| None),
        };
        match released {
            Ok(None) => {}
            Ok(Some(wait)) => return Ok(Action::requeue(wait)),
            // Not ours to release, or the namespace is going and takes everything with it.
            Err(StoreError::Refused { reason, .. }) => {
                tracing::info!(swarm = %swarm.name_any(), reason, "nothing to release");
            }
            Err(error) => return Err(error),
        }
        drop(memory);
        self.let_go(swarm).await
    }

    /// Tells the workers of `pool` to stop, and how long to wait before another look; `None` once
    /// they were told, as far as that can be known and was waited for.
    async fn release_pool(
        &self,
        swarm: &Swarm,
        pool: &StatefulSet,
        nothing: &Desired,
        memory: &mut Memory,
    ) -> Result<Option<Duration>, StoreError> {
        let since = *memory.releasing.get_or_insert_with(Instant::now);
        let Carried { turn, refreshed, look_in, .. } =
            self.carry_out(swarm, pool, nothing, memory).await?;
        if turn.decision.ledger.version == 0 {
            return self.empty_view(swarm).await.map(|()| None);
        }
        // What sessions hold they let go of, or are proved to have ended: waiting alone is enough only
        // where two may run a job.
        let is_held = !turn.decision.ledger.cells.jobs.is_empty();
        let is_enough = nothing.policy == Policy::AtLeastOnce
            && nothing.timing.release_timeout <= since.elapsed();
        if is_held && !is_enough {
            let wait = look_in.into_iter().chain(turn.decision.recheck_in).min();
            return Ok(Some(wait.unwrap_or(RELEASE_WAIT_MAX).min(RELEASE_WAIT_MAX)));
        }
        let terms = RefreshTerms::of(swarm);
        if terms.knows() {
            let is_over = refreshed.stale.is_empty() || terms.release_timeout <= since.elapsed();
            let wait = refreshed.look_in.unwrap_or(RELEASE_WAIT_MAX).min(RELEASE_WAIT_MAX);
            return Ok((!is_over).then_some(wait));
        }
        // Nobody tells. The soon attempts are made; the late net is not waited for.
        Ok(refreshed.look_in.filter(|wait| *wait <= RELEASE_WAIT_MAX))
    }

    /// Lets a Swarm go: one whose workers were told, or whose namespace takes everything with it, and
    /// perhaps the operator and its rights first.
    pub(super) async fn let_go(&self, swarm: &Swarm) -> Result<Action, StoreError> {
        self.forget(swarm);
        let mut finalizers = swarm.finalizers().to_vec();
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        if finalizers.len() < swarm.finalizers().len() {
            let name = swarm.name_any();
            let api: Api<Swarm> =
                Api::namespaced(self.client.clone(), &swarm.namespace().unwrap_or_default());
            let patch = Patch::Merge(json!({"metadata": {
                "resourceVersion": swarm.resource_version(),
                "finalizers": finalizers,
            }}));
            let params = PatchParams::default();
            let let_go = api.patch_metadata(&name, &params, &patch);
            bounded(format!("Swarm `{name}`"), let_go).await?;
        }
        Ok(Action::await_change())
    }

    /// Empties the view of a Swarm whose ledger cannot do so: its pool is gone, or the ledger was
    /// lost and no pod is there to make one for.
    async fn empty_view(&self, swarm: &Swarm) -> Result<(), StoreError> {
        let views = self.view_store(swarm);
        let version = match views.version().await? {
            0 => 0,
            told => told + 1,
        };
        views.publish(&Ledger { version, ..Ledger::new(0) }).await
    }
}
