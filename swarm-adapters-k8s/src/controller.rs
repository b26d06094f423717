//! The operator on Kubernetes: what triggers a turn, and one turn of one Swarm.
//!
//! Watches feed caches, and every change of a Swarm, of its workload, pods or view triggers a turn:
//! observe, decide, write the ledger, publish the views, refresh the workers it concerns, write the
//! status. What a session tells with its Lease triggers one, too, and that it has fallen silent; that
//! it lives does not. A turn that finds everything as it should be writes nothing.

mod cached;
mod claims;
mod clock;
mod context;
mod cost;
mod followed;
mod gone;
mod pools;
mod refresh;
mod release;
mod sessions;
mod sources;
mod turn;
mod wide;
mod worker_views;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::core::PartialObjectMeta;
use kube::runtime::controller::{Action, Config as ControllerConfig, Controller};
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::finalizer::{Error as FinalizerError, Event, finalizer};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{Predicate, PredicateConfig, WatchStreamExt, predicates, watcher};
use kube::{Api, Client, Config, Resource, ResourceExt};
use swarm_core::ports::StoreError;
use tokio::sync::watch;

use crate::api::{FIELD_MANAGER, Swarm};
use crate::metrics::Metrics;
use crate::view::{OWNER_ANNOTATION, VIEW_LABEL};
use crate::workload::Kind;
use cached::cached;
use context::Context;
use pools::{Pools, with_pool};
use sessions::{Ended, Leases};
use worker_views::Views;

/// Keeps a Swarm until its workers were told that they have no jobs any more.
const FINALIZER: &str = "swarm.k8slab.info/release";
/// How many Swarms are worked on at a time.
const CONCURRENCY: u16 = 16;
/// When to look again whether what a Swarm needs was listed.
const LISTED_IN: Duration = Duration::from_secs(1);
/// The label of all StatefulSet pods since Kubernetes 1.28; other pods are cached only where some
/// Swarm asks for them.
const STATEFUL_PODS: &str = "apps.kubernetes.io/pod-index";

/// Two clients: watches retry on their own, a single request never does. A retried request could
/// hold a turn for minutes, while the next turn would see a fresher state.
#[derive(Clone)]
pub struct Clients {
    watching: Client,
    control: Client,
}

impl Clients {
    /// The one whose requests are sent once.
    pub(crate) fn control(&self) -> &Client {
        &self.control
    }

    /// The one that watches.
    pub(crate) fn watching(&self) -> &Client {
        &self.watching
    }

    /// The namespace that is meant where none is named: in a pod, its own.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.control.default_namespace()
    }
}

/// Finds the cluster: that of `kubeconfig` if one is given, else the one this pod runs in, else
/// that of the user's kubeconfig.
///
/// # Errors
///
/// A sentence that says what was tried.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Clients, ConnectError> {
    let config = match kubeconfig {
        Some(file) => from_file(file).await.map_err(|error| ConnectError(error.into()))?,
        None => Config::infer().await.map_err(|error| ConnectError(error.into()))?,
    };
    let client = |config: Config| {
        Client::try_from(config).map_err(|error: kube::Error| ConnectError(error.into()))
    };
    let mut no_retry = config.clone();
    no_retry.default_retry = false;
    Ok(Clients { watching: client(config)?, control: client(no_retry)? })
}

async fn from_file(file: &Path) -> Result<Config, KubeconfigError> {
    let kubeconfig = Kubeconfig::read_from(file)?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await
}

/// No way to the API server was found.
#[derive(Debug, thiserror::Error)]
#[error(
    "no Kubernetes API to talk to; run in a pod with a service account, \
     or name a kubeconfig with --kubeconfig or $KUBECONFIG"
)]
pub struct ConnectError(#[source] Box<dyn std::error::Error + Send + Sync>);

/// Where the operator looks for Swarms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In all namespaces.
    Cluster,
    /// In one namespace.
    Namespace(String),
}

impl Scope {
    fn api<K>(&self, client: &Client) -> Api<K>
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        match self {
            Self::Cluster => Api::all(client.clone()),
            Self::Namespace(namespace) => Api::namespaced(client.clone(), namespace),
        }
    }
}

/// Runs the operator on one scope until `shutdown` is done, then finishes the turns under way.
///
/// `ready` becomes true when all caches are filled.
pub async fn run(
    clients: Clients,
    scope: Scope,
    metrics: Metrics,
    ready: watch::Sender<bool>,
    shutdown: impl Future<Output = ()> + Send + Sync + 'static,
) {
    let client = &clients.watching;
    let everything = watcher::Config::default;
    let (swarms, swarm_stream) = cached::<Swarm>(scope.api(client), everything());
    let (sets, set_stream) = cached::<StatefulSet>(scope.api(client), everything());
    let stateful = everything().labels(STATEFUL_PODS);
    let (pods, pod_stream) = cached::<Pod>(scope.api(client), stateful);
    let (wide, wide_streams) = wide::wide(&scope, client);
    let pools = Pools { sets, wide };
    let labelled = everything().labels(VIEW_LABEL);
    let (views, view_stream) = cached::<ConfigMap>(scope.api(client), labelled);
    // Any ConfigMap may be a source of jobs: only names, labels and versions are kept. Content is
    // fetched where a Swarm asks for it.
    let (sources, source_stream) =
        cached::<PartialObjectMeta<ConfigMap>>(scope.api(client), everything());

    let (ledgers, lost_ledgers) = gone::ledgers(scope.api(client));
    let (namespaces, namespace_stream) = gone::namespaces(&scope, client);
    let (nodes, node_stream) = gone::nodes(&scope, client);

    let reporter = Reporter { controller: FIELD_MANAGER.into(), instance: None };
    let recorder = Recorder::new(clients.control.clone(), reporter);
    let (pod_pools, set_pools, told_pools) = (pools.clone(), pools.clone(), pools.clone());
    let (ledger_pools, node_pools) = (pools.clone(), pools.clone());
    let pods_anywhere = [pods.store.clone(), pools.wide.pods.store.clone()];
    let caches = context::Caches {
        swarms: swarms.clone(),
        pools,
        pods,
        views,
        namespaces,
        nodes,
        ledgers,
        sources,
    };
    let seen = context::SeenSessions {
        leases: Leases::default(),
        views: Views::default(),
        ended: Ended::default(),
    };
    let (leases, views_of_sessions, ended) =
        (seen.leases.clone(), seen.views.clone(), seen.ended.clone());
    let context = Arc::new(Context::new(clients.control, caches, recorder, metrics, seen, ready));
    tokio::spawn(announce(context.clone()));
    let sweep = context.clone();
    let sweep = AbortOnDrop(tokio::spawn(async move { sweep.sweep().await }));
    let pod_stream = stream::select(pod_stream, wide_streams.pods);
    let pod_stream = pod_stream.inspect_ok(move |pod| ended.note(pod));
    let told = context.clone();
    let lease_stream = leases
        .follow(scope.api(client))
        .flat_map(move |named| stream::iter(told.concerned_by(&named, &told_pools)));
    tokio::spawn(announce_wide(context.clone()));

    // The status is written by ourselves and must not trigger a turn; finalizers and annotations
    // are not part of the generation.
    let relevant = predicates::generation.combine(predicates::finalizers);
    let relevant = swarm_stream.predicate_filter(relevant, PredicateConfig::default());
    let (of_set, of_pod, of_source) = (swarms.clone(), swarms.clone(), swarms.clone());
    let (of_deployment, of_replica_set) = (swarms.clone(), swarms.clone());
    let (of_ledger, of_namespace, on_node) = (swarms.clone(), swarms.clone(), swarms.clone());
    Controller::for_stream(relevant, swarms.store)
        .with_config(ControllerConfig::default().concurrency(CONCURRENCY))
        .watches_stream(set_stream, move |set| with_pool(&of_set, Kind::StatefulSet, &set))
        .watches_stream(wide_streams.deployments, move |deployment| {
            with_pool(&of_deployment, Kind::Deployment, &deployment)
        })
        .watches_stream(wide_streams.replica_sets, move |set| {
            set_pools.of_replica_set(&of_replica_set, &set)
        })
        .watches_stream(pod_stream, move |pod| pod_pools.of_pod(&of_pod, &pod))
        .watches_stream(node_stream, move |node| {
            let mut pods: Vec<_> = pods_anywhere.iter().flat_map(Store::state).collect();
            let name = node.metadata.name;
            pods.retain(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name == name));
            let (swarms, pools) = (on_node.clone(), node_pools.clone());
            pods.into_iter().flat_map(move |pod| pools.of_pod(&swarms, &pod))
        })
        .watches_stream(namespace_stream, move |namespace| {
            let swarms = of_namespace.store.state().into_iter().filter(move |swarm| {
                namespace.metadata.deletion_timestamp.is_some()
                    && swarm.namespace() == namespace.metadata.name
            });
            swarms.map(|swarm| ObjectRef::from_obj(&*swarm)).collect::<Vec<_>>()
        })
        .watches_stream(lost_ledgers, move |ledger| {
            let (namespace, name) = (ledger.namespace().unwrap_or_default(), ledger.name_any());
            ledger_pools.of_ledger(&of_ledger, &namespace, &name)
        })
        .reconcile_on(lease_stream)
        .reconcile_on(views_of_sessions.follow(scope.api(client)))
        .reconcile_on(context.alarms.follow(&context.leases))
        .watches_stream(source_stream, move |map| sources::with_source(&of_source, &map))
        .watches_stream(view_stream, |view| {
            let owner = view.annotations().get(OWNER_ANNOTATION)?;
            Some(ObjectRef::new(owner).within(view.namespace().as_deref()?))
        })
        .graceful_shutdown_on(shutdown)
        .run(reconcile, error_policy, context)
        .for_each(|outcome| async {
            if let Err(error) = outcome {
                // Turns log their own failures; this is about triggers of objects that are gone.
                tracing::debug!(%error, "a trigger led to nothing");
            }
        })
        .await;
    drop(sweep);
}

/// Ends a task with whoever began it.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Says that the operator is ready once every cache is.
async fn announce(context: Arc<Context>) {
    let caches = context.caches.wait_until_filled().await;
    context.leases.wait_until_filled().await;
    context.views.wait_until_filled().await;
    if caches.is_ok() {
        tracing::info!("caches are filled");
        context.filled.send_replace(true);
    }
}

/// Says that the caches are filled that only pools other than StatefulSets need.
async fn announce_wide(context: Arc<Context>) {
    if context.caches.pools.wide.wait_until_filled().await.is_ok() {
        tracing::info!("caches of Deployments and their pods are filled");
        context.filled_wide.send_replace(true);
    }
}

async fn reconcile(
    swarm: Arc<Swarm>,
    context: Arc<Context>,
) -> Result<Action, FinalizerError<StoreError>> {
    let api = Api::namespaced(context.client.clone(), &swarm.namespace().unwrap_or_default());
    context.wait_until_filled().await;
    if context.caches.is_going(&swarm) {
        return context.let_go(&swarm).await.map_err(FinalizerError::CleanupFailed);
    }
    if !context.is_filled_for(&swarm).await {
        tracing::info!(swarm = %swarm.name_any(), "Deployments and their pods are not listed yet");
        return Ok(Action::requeue(LISTED_IN));
    }
    // What takes several looks must not hold up other Swarms in between.
    if swarm.metadata.deletion_timestamp.is_some() {
        return context.release(&swarm).await.map_err(FinalizerError::CleanupFailed);
    }
    finalizer(&api, FINALIZER, swarm, |event| async {
        // What is to be cleaned up came out above.
        let (Event::Apply(swarm) | Event::Cleanup(swarm)) = event;
        context.apply(&swarm).await
    })
    .await
}

/// Whether the turn saw a state that is past; fresher ones are on their way.
fn is_conflict(error: &FinalizerError<StoreError>) -> bool {
    match error {
        FinalizerError::ApplyFailed(error) | FinalizerError::CleanupFailed(error) => {
            matches!(error, StoreError::Conflict { .. })
        }
        // The patch tests what it changes; 422 says that the test failed.
        FinalizerError::AddFinalizer(kube::Error::Api(status))
        | FinalizerError::RemoveFinalizer(kube::Error::Api(status)) => {
            status.is_invalid() || status.is_conflict() || status.is_not_found()
        }
        FinalizerError::AddFinalizer(_)
        | FinalizerError::RemoveFinalizer(_)
        | FinalizerError::UnnamedObject
        | FinalizerError::InvalidFinalizer => false,
    }
}

/// When a failed turn is repeated: at once after a lost race, ever later while the API is away.
#[expect(clippy::needless_pass_by_value, reason = "the controller hands out owned references")]
fn error_policy(
    swarm: Arc<Swarm>,
    error: &FinalizerError<StoreError>,
    context: Arc<Context>,
) -> Action {
    const SOON: Duration = Duration::from_millis(50);
    const PAUSE_MAX: Duration = Duration::from_secs(30);
    let failures = context.count_failure(&swarm);
    let conflict = is_conflict(error);
    let doublings = failures.min(10);
    let pause = (SOON * 2_u32.pow(doublings)).min(PAUSE_MAX);
    if !conflict {
        context.leases.failed(clock::now());
        let cause = std::error::Error::source(error).map(ToString::to_string);
        tracing::warn!(swarm = %swarm.name_any(), %error, cause, ?pause, "a turn failed");
    }
    Action::requeue(if conflict && failures < 3 { SOON } else { pause })
}
