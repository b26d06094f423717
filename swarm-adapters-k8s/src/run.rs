//! The operator on Kubernetes: wires watches, caches and services, and runs the controller.
//!
//! Watches fill caches, and every change of a Swarm, its workload, pods or view triggers a turn. A
//! turn observes, decides, writes the ledger, publishes the views, refreshes the affected workers,
//! and writes the status. An acknowledgement in a Lease triggers a turn, too, and so does a session
//! that has fallen silent; a mere renewal does not. A turn that finds everything up to date writes
//! nothing.

use std::any::Any;
use std::sync::Arc;

pub use crate::fairness::background::Background;
use crate::health::Health;
use crate::metrics::Metrics;
pub use crate::services::Options;
use crate::sharing::Sharing;
use crate::sharing::fence::fenced;
use crate::watch::rollback::Rollbacks;
use futures::{Stream, StreamExt, stream};
use kube::runtime::controller::{Config as ControllerConfig, Controller};
use kube::runtime::reflector::ObjectRef;
use swarm_client::api::Swarm;
use swarm_client::client::Clients;
use swarm_replicas::{Bucket, Buckets};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::reconcile::{Operator, error_policy, reconcile};
use crate::services::{Services, Watched};
use crate::sessions::seen::SeenSessions;

/// The concurrency of kube-rs, where 0 means unbounded.
/// [`FairSlots`](crate::fairness::slots::FairSlots) bounds the turns and chooses the next one, so
/// it must know every waiting turn.
const CONCURRENCY: u16 = 0;

/// The observable state of an operator.
pub struct Probes {
    /// Counts its turns, writes and refusals.
    pub metrics: Metrics,
    /// Knows whether the loop makes progress.
    pub health: Health,
    /// Becomes true when all caches are filled.
    pub ready: watch::Sender<bool>,
}

/// Runs the operator on the scope of `sharing` until `shutdown` is done, then finishes the turns under way. It acts on
/// the Swarms that are its own.
pub async fn run(
    clients: Clients,
    sharing: Sharing,
    options: Options,
    probes: Probes,
    shutdown: impl Future<Output = ()> + Send + Sync + 'static,
) {
    let Probes { metrics, health, ready } = probes;
    metrics.refused_watches.of(health.refused());
    let (scope, rollbacks) = (sharing.scope.clone(), Rollbacks::noting(health.refused()));
    let (caches, mut changes) = crate::watches::begin(&sharing, clients.watching(), &rollbacks);
    let swarms = caches.swarms.store.clone();
    let watched = Watched { caches, seen: SeenSessions::default(), filled: ready };
    let control = fenced(clients.control());
    let mut services = Services::new(control, options, sharing, metrics, watched);
    services.health = health.clone();
    let services = Arc::new(services);
    let operator = Arc::new(Operator::new(services.clone()));
    let (all, share) = (services.caches.swarms.store.clone(), services.sharing.share.clone());
    services.sharing.count_by(move || {
        let uids = all.state().into_iter().filter_map(|swarm| swarm.metadata.uid.clone());
        uids.filter(|uid| share.has(uid)).count()
    });
    let mut background = in_background(&operator);
    let controller = Controller::for_stream(changes.take_swarms(), swarms)
        .with_config(ControllerConfig::default().concurrency(CONCURRENCY));
    let (answered, vanished) = (services.clone(), operator.clone());
    let slots = services.sharing.reconcile_slots.clone();
    let shutdown = async move {
        shutdown.await;
        // Turns under way are finished. The next operator runs the waiting ones.
        slots.close();
    };
    let leases = services
        .sessions
        .leases
        .follow(scope.api(clients.watching()), &rollbacks)
        .flat_map(move |session| stream::iter(answered.sessions.concerned_by(&session)));
    let controller = changes
        .trigger(controller, &services.caches, services.sessions.ended.clone())
        .reconcile_on(leases)
        .reconcile_on(services.sessions.views.follow(scope.api(clients.watching()), &rollbacks))
        .reconcile_on(services.managed.made.follow(&scope, clients.watching(), &rollbacks))
        .reconcile_on(services.sessions.alarms.follow(&services.sessions.leases))
        .reconcile_on(services.plain.version_polls.follow())
        .reconcile_on(health.beats())
        .reconcile_on(gained(&services))
        .graceful_shutdown_on(shutdown)
        .run(reconcile, error_policy, operator)
        .for_each(|outcome| {
            if let Err(error) = outcome {
                // Turns log their own failures. This error is about triggers of deleted objects.
                tracing::debug!(%error, "a trigger found no object");
                vanished.forget_vanished();
            }
            std::future::ready(())
        });
    tokio::select! {
        () = controller => {}
        payload = first_panic(&mut background) => std::panic::resume_unwind(payload),
    }
}

/// The Swarms that this operator has gained.
fn gained(services: &Services) -> impl Stream<Item = ObjectRef<Swarm>> + Send + use<> {
    let swarms = services.caches.swarms.store.clone();
    services.sharing.share.follow().flat_map(move |gained: Buckets| {
        let is_gained = |swarm: &Arc<Swarm>| {
            let uid = swarm.metadata.uid.as_deref();
            uid.is_some_and(|uid| gained.contains(Bucket::of(uid)))
        };
        let found: Vec<_> = swarms.state().into_iter().filter(is_gained).collect();
        stream::iter(found.into_iter().map(|swarm| ObjectRef::from_obj(&*swarm)))
    })
}

/// Starts the tasks in addition to turns.
fn in_background(operator: &Arc<Operator>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(announce(operator.services.clone()));
    tasks.spawn(announce_wide(operator.services.clone()));
    let services = operator.services.clone();
    tasks.spawn(async move {
        services.histories.keep(&services.client, &services.sharing.share).await;
    });
    let services = operator.services.clone();
    tasks.spawn(async move {
        services.outages.watch(&services.sharing, &services.health.refused()).await;
    });
    let sweep = operator.clone();
    tasks.spawn(async move { sweep.sweep().await });
    tasks
}

/// The payload of the first panic in these tasks. Never returns if none panics.
async fn first_panic(tasks: &mut JoinSet<()>) -> Box<dyn Any + Send> {
    while let Some(ended) = tasks.join_next().await {
        if let Some(payload) = ended.err().and_then(|error| error.try_into_panic().ok()) {
            return payload;
        }
    }
    std::future::pending().await
}

/// Reports that the operator is ready once every cache is filled.
async fn announce(services: Arc<Services>) {
    let caches = services.caches.wait_until_filled().await;
    services.sessions.leases.wait_until_filled().await;
    services.sessions.views.wait_until_filled().await;
    if caches.is_ok() {
        tracing::info!("caches are filled");
        // A replica may end as soon as this one is ready, so this one first waits for its share.
        services.sharing.begins().await;
        services.readiness.filled.send_replace(true);
    }
}

/// Reports that the caches for pools other than StatefulSets are filled.
async fn announce_wide(services: Arc<Services>) {
    if services.caches.pools.non_statefulset.wait_until_filled().await.is_ok() {
        tracing::info!("caches of Deployments and their pods are filled");
        services.readiness.filled_wide.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_background_task_that_panics_is_noticed_and_one_that_ends_is_not() {
        let mut tasks = JoinSet::new();
        tasks.spawn(async {});
        tasks.spawn(async { panic!("the sweep is broken") });
        let payload = first_panic(&mut tasks).await;
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"the sweep is broken"));
        tasks.spawn(async {});
        let forever = std::pin::pin!(first_panic(&mut tasks));
        assert!(futures::poll!(forever).is_pending());
    }
}
