//! The watches of the operator. They fill the caches, and their changes cause turns of the affected
//! Swarms. This module does not depend on turns.

use std::sync::Arc;

use futures::{Stream, StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::core::PartialObjectMeta;
use kube::runtime::controller::Controller;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Predicate, PredicateConfig, WatchStreamExt, predicates, watcher};
use kube::{Client, ResourceExt};
use swarm_client::annotations::{OWNER_ANNOTATION, VIEW_LABEL};
use swarm_client::api::Swarm;

use crate::annotations::STATEFUL_PODS;
use crate::jobs::sources;
use crate::pool::pools::with_pool;
use crate::pool::workload::Kind;
use crate::sessions::ended::Ended;
use crate::sharing::Sharing;
use crate::watch::cached::{Changes, LedgerMeta, NamespaceMeta, cached};
use crate::watch::caches::{Caches, Pools};
use crate::watch::foreign_swarms::cached_swarms;
use crate::watch::on_demand::OnDemand;
use crate::watch::rollback::Rollbacks;
use crate::watch::{node_health, non_statefulset};

/// The changes that the watches show. A watch sends no request before its stream is polled.
pub(crate) struct Streams {
    swarms: Changes<Swarm>,
    sets: Changes<StatefulSet>,
    pods: Changes<Pod>,
    views: Changes<ConfigMap>,
    sources: Changes<PartialObjectMeta<ConfigMap>>,
    ledgers: Changes<LedgerMeta>,
    namespaces: Changes<NamespaceMeta>,
    nodes: Changes<Node>,
    non_statefulset: non_statefulset::Streams,
}

/// The caches of the scope of `sharing`, and the streams that fill them.
pub(crate) fn begin(
    sharing: &Sharing,
    client: &Client,
    rollbacks: &Rollbacks,
) -> (Caches, Streams) {
    let everything = watcher::Config::default;
    let scope = &sharing.scope;
    let (swarms, foreign_swarms, of_swarms) =
        cached_swarms(scope.api(client), rollbacks, sharing.clone());
    let (sets, of_sets) = cached(scope.api(client), everything(), rollbacks);
    let stateful = everything().labels(STATEFUL_PODS);
    let (pods, of_pods) = cached(scope.api(client), stateful, rollbacks);
    let (others, of_others) = non_statefulset::non_statefulset(scope, client, rollbacks);
    let (views, of_views) = cached(scope.api(client), everything().labels(VIEW_LABEL), rollbacks);
    // Any ConfigMap may be a source of jobs, so only names, labels and versions are kept. A turn
    // fetches the content for its Swarm. The watch begins when the first Swarm has sources.
    let asked_sources = OnDemand::default();
    let (sources, of_sources) = cached(scope.api(client), everything(), rollbacks);
    let (ledgers, of_ledgers) = node_health::ledgers(scope.api(client), rollbacks);
    let (namespaces, of_namespaces) = node_health::namespaces(scope, client, rollbacks);
    let (nodes, of_nodes) = node_health::nodes(scope, client, rollbacks);
    let pools = Pools { sets, non_statefulset: others };
    let rollbacks = rollbacks.clone();
    let caches = Caches {
        swarms,
        foreign_swarms,
        pools,
        pods,
        views,
        namespaces,
        nodes,
        ledgers,
        sources,
        asked_sources: asked_sources.clone(),
        rollbacks,
    };
    let streams = Streams {
        swarms: of_swarms.boxed(),
        sets: of_sets.boxed(),
        pods: of_pods.boxed(),
        views: of_views.boxed(),
        sources: asked_sources.once_asked(of_sources),
        ledgers: of_ledgers,
        namespaces: of_namespaces,
        nodes: of_nodes,
        non_statefulset: of_others,
    };
    (caches, streams)
}

impl Streams {
    /// Takes out the changes of Swarms that cause a turn: another generation, or other finalizers.
    /// The operator's own writes of the status change neither.
    pub(crate) fn take_swarms(
        &mut self,
    ) -> impl Stream<Item = Result<Swarm, watcher::Error>> + Send + use<> {
        let swarms = std::mem::replace(&mut self.swarms, stream::empty().boxed());
        let relevant = predicates::generation.combine(predicates::finalizers);
        swarms.predicate_filter(relevant, PredicateConfig::default())
    }

    /// Makes every other change cause a turn of each affected Swarm.
    pub(crate) fn trigger(
        self,
        controller: Controller<Swarm>,
        caches: &Arc<Caches>,
        ended: Ended,
    ) -> Controller<Swarm> {
        let caches = || Arc::clone(caches);
        let (of_set, of_deployment, of_replica_set) = (caches(), caches(), caches());
        let (of_pod, of_node, of_namespace) = (caches(), caches(), caches());
        let (of_ledger, of_source) = (caches(), caches());
        let others = self.non_statefulset;
        let pods = stream::select(self.pods, others.pods);
        let pods = pods.inspect_ok(move |pod| ended.note(pod));
        controller
            .watches_stream(self.sets, move |set| {
                with_pool(&of_set.swarms, Kind::StatefulSet, &set)
            })
            .watches_stream(others.deployments, move |deployment| {
                with_pool(&of_deployment.swarms, Kind::Deployment, &deployment)
            })
            .watches_stream(others.replica_sets, move |set| {
                of_replica_set.pools.of_replica_set(&of_replica_set.swarms, &set)
            })
            .watches_stream(pods, move |pod| of_pod.pools.of_pod(&of_pod.swarms, &pod))
            .watches_stream(self.nodes, move |node| of_node.with_worker_on(&node))
            .watches_stream(self.namespaces, move |namespace| {
                of_namespace.in_terminating(&namespace)
            })
            .watches_stream(self.ledgers, move |ledger| {
                let (namespace, name) = (ledger.namespace().unwrap_or_default(), ledger.name_any());
                of_ledger.pools.of_ledger(&of_ledger.swarms, &namespace, &name)
            })
            .watches_stream(self.sources, move |map| sources::with_source(&of_source.swarms, &map))
            .watches_stream(self.views, |view| {
                let owner = view.annotations().get(OWNER_ANNOTATION)?;
                Some(ObjectRef::new(owner).within(view.namespace().as_deref()?))
            })
    }
}
