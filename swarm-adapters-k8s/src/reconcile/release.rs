//! Releases deleted Swarms. Their workers stop first, with proof if the policy requires it.
//!
//! The ConfigMap of the view has no owner reference, and stays with empty lists. Without it,
//! running pods would keep the old file for ever, and restarted pods would hang. The ledger has no
//! owner reference either, since foreground deletion would remove it before the release. Its
//! deletion follows the removal of the finalizer.
//!
//! A Swarm whose namespace is being deleted loses its finalizer at once. The operator and its
//! rights may go with the same command, and then nothing could remove the finalizer.

use std::time::Duration;

use kube::ResourceExt;
use swarm_client::api::{PolicySpec, Swarm};
use swarm_core::handover::Policy;
use swarm_core::ports::{LedgerStore as _, StoreError, ViewStore};
use swarm_core::{Desired, Ledger, Waiting};
use swarm_spec::spec::Meant;
use tokio::time::Instant;

use super::turn::{Carried, Stages};
use crate::jobs::convert;
use crate::ledger::Claim;
use crate::managed::wanted;
use crate::plain::refresh_order::{RELEASE_TIMEOUT, RefreshTerms};
use crate::plain::view::Occupant;
use crate::pool::workload::Workload;
use crate::status::{RefusedRequest, Verdict};
use crate::turn::Turn;

/// The longest wait for another nudge before a deleted Swarm is finalized.
const RELEASE_WAIT_MAX: Duration = Duration::from_secs(1);

/// The longest time for which the workers of a released managed pool keep their rights. It covers the
/// default termination grace of a pod, and the time until the kubelet asks the pod to end.
const RIGHTS_KEPT_MAX: Duration = Duration::from_secs(40);

/// The progress of a release.
pub(crate) enum Released {
    /// Workers have not stopped yet.
    NotYet {
        /// The time until the next check.
        requeue_after: Duration,
        /// The refusal of the API server that delays the release.
        refused: Option<Verdict>,
    },
    /// The Swarm holds nothing any more.
    Entirely,
}

impl Stages<'_> {
    /// Releases all jobs of a deleted Swarm: publishes empty lists, and waits for the workers. Then
    /// it removes the finalizer, and the ledger after it. The pool and the emptied view stay,
    /// unless the operator made them for this Swarm. It removes a pool that it made before the
    /// finalizer, so a Swarm without the finalizer leaves no object behind.
    ///
    /// # Errors
    ///
    /// [`StoreError::Refused`] if workers cannot be asked to stop: the Swarm stays until they can.
    pub(super) async fn release(mut self) -> Result<Released, StoreError> {
        // The workers released all jobs before their pool was removed.
        let is_released = self.memory.releasing.ending.is_some();
        let released = if is_released { Ok(None) } else { self.released().await };
        match released {
            Ok(None) => {}
            Ok(Some(requeue_after)) => {
                let refused = self.turn.refusals.verdict();
                return Ok(Released::NotYet { requeue_after, refused });
            }
            // The pool belongs to another Swarm, so this one never assigned any jobs.
            Err(StoreError::Refused { code: "PoolClaimed", .. }) => {
                self.memory.stores.ledgers = None;
            }
            Err(StoreError::Refused { code, reason }) => {
                self.services.metrics.count_refused(RefusedRequest::Release);
                let reason = format!("the Swarm is deleted and cannot be released: {reason}");
                return Err(StoreError::Refused { code, reason });
            }
            Err(error) => return Err(error),
        }
        if let Some(requeue_after) = self.end_workers().await? {
            return Ok(Released::NotYet { requeue_after, refused: None });
        }
        let Self { operator, services, turn, memory } = self;
        services.managed.remove(&turn).await?;
        operator.finalizers.remove(turn.swarm).await?;
        // The ledger is removed after the finalizer: a ledger that is missing earlier counts as
        // lost, and its Swarm as not released.
        if let Some(ledgers) = memory.stores.ledgers.take()
            && let Err(error) = ledgers.remove().await
        {
            if matches!(error, StoreError::Refused { .. }) {
                services.metrics.count_refused(RefusedRequest::Cleanup);
            }
            tracing::warn!(swarm = turn.name, %error, "the sweep will remove its ledger");
        }
        Ok(Released::Entirely)
    }

    /// Removes the workload of a released managed pool, and waits until no worker needs its
    /// rights. Returns the time until the next check, and `None` once the rights may go.
    ///
    /// The kubelet asks the pods to end some time after the workload was removed. A worker that is
    /// asked to end closes its Lease. Without the right to write it, the worker tries for its whole
    /// termination grace.
    async fn end_workers(&mut self) -> Result<Option<Duration>, StoreError> {
        let Self { services, turn, memory, .. } = self;
        if !wanted::has_rights(turn.swarm) {
            return Ok(None);
        }
        let since = match memory.releasing.ending {
            Some(since) => since,
            None => match services.managed.remove_workloads(turn).await {
                Ok(()) => *memory.releasing.ending.insert(Instant::now()),
                // The removal of the other objects reports the refusal.
                Err(StoreError::Refused { .. }) => return Ok(None),
                Err(error) => return Err(error),
            },
        };
        let pods = services.caches.pods_made_for(turn.namespace, turn.name);
        let is_needed = since.elapsed() < RIGHTS_KEPT_MAX
            && pods.iter().any(|pod| services.sessions.holds_lease(turn.namespace, pod));
        Ok(is_needed.then_some(RELEASE_WAIT_MAX))
    }

    /// Asks the workers of a Swarm whose namespace is being deleted to stop, and removes the
    /// workload that was made for it. Returns the time until the next check.
    ///
    /// The order to stop comes first. Without it, workers that end with their pods keep their jobs
    /// for the whole grace period, since they wait for moves that never come. The operator does not
    /// wait for the answer. The pods end meanwhile, and an ending worker stops its jobs as for an
    /// empty view. The workers keep their rights, since they close their Leases with them.
    ///
    /// # Errors
    ///
    /// [`StoreError`] as the API server answers, which has less and less of the namespace.
    pub(super) async fn close(mut self) -> Result<Option<Duration>, StoreError> {
        let requeue_after = self.released().await?;
        self.services.managed.remove_workloads(&self.turn).await?;
        Ok(requeue_after)
    }

    /// Releases the jobs of the workers. Returns the time until the next check; `None` once all are
    /// released.
    async fn released(&mut self) -> Result<Option<Duration>, StoreError> {
        let swarm = self.turn.swarm;
        let mut nothing = Desired::default();
        // An invalid spec does not allow giving up a worker without proof.
        nothing.policy = asked_policy(swarm);
        if let Ok(desired) = convert::desired(swarm) {
            (nothing.timing, nothing.policy) = (desired.timing, desired.policy);
        }
        let pool = match self.services.caches.pool_of(swarm) {
            Ok(pool) => Some(pool),
            Err(_) => self.pool_that_is_gone().await?,
        };
        let place = self.services.ledgers.view_store(&self.turn).occupant().await?;
        if self.has_published_nothing(pool.as_ref(), place).await? {
            return Ok(None);
        }
        let Some(pool) = pool else {
            return self.empty_view().await.map(|()| None);
        };
        match self.release_pool(&pool, &mut nothing).await {
            // A missing view that may not be created cannot be emptied either.
            Err(StoreError::Refused { .. })
                if place == Occupant::Nobody && !self.has_session_views() =>
            {
                Ok(None)
            }
            released => released,
        }
    }

    /// Returns whether no publication of the Swarm can exist, so that no worker acts on one. A
    /// publication is a view in its `place`, a view of a session, or a grant to a session.
    ///
    /// A ledger alone proves no publication: a turn saves the ledger first, and the write of the
    /// view may still be refused.
    async fn has_published_nothing(
        &mut self,
        pool: Option<&Workload>,
        place: Occupant,
    ) -> Result<bool, StoreError> {
        if place == Occupant::ThisSwarm || self.has_session_views() {
            return Ok(false);
        }
        let Some(pool) = pool else { return Ok(true) };
        let stores = self.services.ledgers.open(&self.turn, pool, &mut self.memory.stores);
        let ledger = match stores.ledgers.load().await {
            Ok(ledger) => ledger.map(|(ledger, _)| ledger),
            // The next Swarm of the pool waits for the sessions that hold jobs of this ledger.
            Err(StoreError::Refused { code: "PoolClaimed" | "LedgerUnreadable", .. }) => {
                self.memory.stores.ledgers = None;
                return Ok(true);
            }
            Err(error) => return Err(error),
        };
        let Some(ledger) = ledger else { return Ok(true) };
        if ledger.slots.values().any(|slot| !slot.session.is_plain()) {
            return Ok(false);
        }
        Ok(match place {
            // A Swarm that adopts a view has nothing to empty until it has taken the view over.
            Occupant::Nobody => ledger.version == 0 && self.turn.swarm.adopts(),
            Occupant::Others | Occupant::ThisSwarm => true,
        })
    }

    /// Returns whether any session has a view of the Swarm.
    fn has_session_views(&self) -> bool {
        !self.services.sessions.views.of_swarm(self.turn.namespace, self.turn.name).is_empty()
    }

    /// The pool from the claimed ledger, if its workload was deleted or cannot be distinguished
    /// from others.
    async fn pool_that_is_gone(&self) -> Result<Option<Workload>, StoreError> {
        let (Self { services, .. }, Turn { swarm, namespace, .. }) = (self, &self.turn);
        let (kind, meant) = swarm.pool();
        let ledgers = match meant {
            Some(Meant::Named(pool)) => vec![format!("{}.{pool}", kind.as_str().to_lowercase())],
            Some(Meant::Labelled(_)) | None => services.caches.ledgers_of(namespace, kind),
        };
        for name in ledgers {
            let claim = Claim::on(&services.client, namespace, &name).await?;
            if let Some(claim) =
                claim.filter(|claim| Some(&claim.swarm.uid) == swarm.uid().as_ref())
            {
                return Ok(Some(Workload::gone(kind, namespace, claim.pool)));
            }
        }
        Ok(None)
    }

    /// Releases the jobs of all workers of `pool`. Returns the time until the next check. `None`
    /// once the workers have stopped, or have had the time to stop.
    async fn release_pool(
        &mut self,
        pool: &Workload,
        nothing: &mut Desired,
    ) -> Result<Option<Duration>, StoreError> {
        let since = *self.memory.releasing.since.get_or_insert_with(Instant::now);
        let Carried { decided, refreshed, requeue_after, .. } =
            self.carry_out(pool, nothing).await?;
        let is_enough = nothing.policy == Policy::AtLeastOnce
            && nothing.timing.release_timeout <= since.elapsed();
        // The ledger was lost. Sessions that may run jobs of the lost ledger have to stop first.
        if decided.decision.waiting == Some(Waiting::LedgerReset) && !is_enough {
            let wait = requeue_after.unwrap_or(RELEASE_WAIT_MAX).min(RELEASE_WAIT_MAX);
            return Ok(Some(wait));
        }
        if decided.decision.ledger.version == 0 {
            return self.empty_view().await.map(|()| None);
        }
        // Sessions release their jobs, or are proved to have ended. Waiting alone is enough only if
        // the policy allows two workers to run a job.
        let is_held = !decided.decision.ledger.cells.jobs.is_empty();
        if is_held && !is_enough {
            let wait = requeue_after.into_iter().chain(decided.decision.recheck_in).min();
            return Ok(Some(wait.unwrap_or(RELEASE_WAIT_MAX).min(RELEASE_WAIT_MAX)));
        }
        let terms = RefreshTerms::of(self.turn.swarm);
        if terms.knows() {
            let is_over = refreshed.stale.is_empty() || RELEASE_TIMEOUT <= since.elapsed();
            let wait = refreshed.requeue_after.unwrap_or(RELEASE_WAIT_MAX).min(RELEASE_WAIT_MAX);
            return Ok((!is_over).then_some(wait));
        }
        // Workers of this Swarm do not report. The early nudges are sent; the release does not wait
        // for the late one.
        Ok(refreshed.requeue_after.filter(|wait| *wait <= RELEASE_WAIT_MAX))
    }

    /// Empties the view of a Swarm whose ledger cannot do so: its pool was deleted, or the ledger
    /// was lost and no pod exists to create one for.
    async fn empty_view(&self) -> Result<(), StoreError> {
        let views = self.services.ledgers.view_store(&self.turn);
        let version = match views.version().await? {
            0 => 0,
            published => published + 1,
        };
        views.publish(&Ledger { version, ..Ledger::new(0) }).await
    }
}

/// The policy that the spec asks for, even if the rest of the spec is invalid.
fn asked_policy(swarm: &Swarm) -> Policy {
    let handover = swarm.spec.handover.as_ref();
    match handover.and_then(|handover| handover.policy).unwrap_or_default() {
        PolicySpec::Exclusive => Policy::Exclusive,
        PolicySpec::AtLeastOnce => Policy::AtLeastOnce,
    }
}
