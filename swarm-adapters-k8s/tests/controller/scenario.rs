//! One scenario: a server, an operator, facts that a test states, and what the operator wrote.
//!
//! ```ignore
//! #[tokio::test(start_paused = true)]
//! async fn a_sentence_about_behaviour() {
//!     let mut s = Scenario::start().await;
//!     s.stateful_set("w", 1);
//!     s.pod("w-0");
//!     s.swarm("s", json!({"pool": {"statefulSet": {"name": "w"}}, "jobs": [{"name": "a"}]}));
//!     s.until("it is settled", |s| s.is_settled("s")).await;
//!     insta::assert_snapshot!(s.transcript());
//! }
//! ```
//!
//! The clock is tokio's, and paused: time passes when nothing else can happen, so waiting costs
//! nothing. [`Scenario::pass`] lets time pass. Nothing here sleeps in real time, and every wait is
//! bounded.

use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use swarm_adapters_k8s::health::Health;
use swarm_adapters_k8s::metrics::{Metrics, PoolSeries};
use swarm_adapters_k8s::run::{self, Background, Options, Probes};
use swarm_adapters_k8s::scope::Scope;
use swarm_adapters_k8s::sharing::types::DEFAULT_TYPE;
use swarm_adapters_k8s::sharing::{Replica, Sharing};
use swarm_apiserver::ApiServer;
use swarm_client::api::SwarmStatus;
use swarm_client::client::Clients;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::transcript::Transcript;

/// The namespace of everything.
pub(crate) const NAMESPACE: &str = "n";
/// A second namespace.
pub(crate) const OTHER: &str = "other";
/// The bound on every wait for a condition, by the scenario's own clock.
const WITHIN: Duration = Duration::from_mins(5);

/// A Swarm on StatefulSet `w`, with these jobs.
pub(crate) fn on_w(jobs: &[&str]) -> Value {
    let jobs: Vec<_> = jobs.iter().map(|name| json!({"name": name})).collect();
    json!({"pool": {"statefulSet": {"name": "w"}}, "jobs": jobs})
}

/// The resources, by the server's names.
pub(crate) const SWARMS: &str = "swarms.swarm.k8slab.info";
pub(crate) const LEDGERS: &str = "swarmledgers.swarm.k8slab.info";
pub(crate) const VIEWS: &str = "workerviews.swarm.k8slab.info";
pub(crate) const LEASES: &str = "leases.coordination.k8s.io";

pub(crate) struct Scenario {
    pub(crate) server: ApiServer,
    /// The health of the operator.
    pub(crate) health: Health,
    /// The metrics of the operator that was started last.
    registry: Registry,
    operator: Option<Operator>,
    transcript: Transcript,
}

struct Operator {
    task: JoinHandle<()>,
    stop: oneshot::Sender<()>,
}

/// An operator that shares the Swarms with others.
pub(crate) struct Sharer {
    replica: Replica,
    operator: Operator,
}

impl Sharer {
    /// The name of its Lease.
    pub(crate) fn name(&self) -> String {
        self.replica.name()
    }

    /// Whether the replica owns any object.
    pub(crate) fn has_some(&self) -> bool {
        self.replica.status().controllers.values().any(|it| 0 < it.owned)
    }

    /// Returns once the replica has lost its Lease.
    pub(crate) async fn lost(&self) {
        self.replica.lost().await;
    }

    /// Ends the replica as a signal does.
    pub(crate) async fn leave(self) {
        self.replica.leave().await;
        drop(self.operator.stop);
        tokio::time::timeout(WITHIN, self.operator.task).await.unwrap().unwrap();
    }

    /// Ends the replica at once, even in the middle of a turn.
    pub(crate) async fn kill(self) {
        self.operator.task.abort();
        let _ = self.operator.task.await;
    }
}

impl Scenario {
    /// A cluster with one node, and an operator that serves all of it.
    pub(crate) async fn start() -> Self {
        let mut scenario = Self::without_operator();
        scenario.start_operator().await;
        scenario
    }

    /// A Swarm `s` with the jobs a, b and c, which are settled on two workers.
    pub(crate) async fn settled() -> Self {
        let mut s = Self::start().await;
        s.stateful_set("w", 2);
        s.pod("w-0");
        s.pod("w-1");
        s.swarm("s", on_w(&["a", "b", "c"]));
        s.until("it is settled", |s| s.is_settled("s")).await;
        s
    }

    /// A cluster with one node, without an operator.
    pub(crate) fn without_operator() -> Self {
        let server = ApiServer::new();
        server
            .put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}));
        server.put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}}));
        let (health, transcript) = (Health::default(), Transcript::default());
        Self { server, health, registry: Registry::default(), operator: None, transcript }
    }

    /// Starts an operator without memory, and waits until its caches are filled.
    pub(crate) async fn start_operator(&mut self) {
        let client = self.server.client(NAMESPACE);
        self.registry = Registry::default();
        let metrics = Metrics::register(&mut self.registry, PoolSeries::All);
        let (ready, mut is_ready) = watch::channel(false);
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move { drop(stopped.await) };
        let clients = Clients::new(client.clone(), client);
        let health = self.health.clone();
        let worker_image = "registry.example.com/swarm-worker:1".into();
        let options = Options { worker_image, background: Background::default() };
        let alone = Sharing::alone(&clients, Scope::Cluster);
        let run = run::run(clients, alone, options, Probes { metrics, health, ready }, shutdown);
        let task = tokio::spawn(run);
        tokio::time::timeout(WITHIN, is_ready.wait_for(|ready| *ready)).await.unwrap().unwrap();
        self.operator = Some(Operator { task, stop });
    }

    /// Starts an operator that shares the Swarms with others, and waits until it has its share.
    pub(crate) async fn start_replica(&mut self, id: &str) -> Sharer {
        self.start_replica_in(NAMESPACE, id).await
    }

    /// Starts a replica as [`Self::start_replica`] does, with its Lease in this namespace.
    pub(crate) async fn start_replica_in(&mut self, namespace: &str, id: &str) -> Sharer {
        self.start_replica_with(namespace, id, "worker:1").await
    }

    /// Starts a replica as [`Self::start_replica_in`] does, with this image for workers.
    pub(crate) async fn start_replica_with(
        &mut self,
        namespace: &str,
        id: &str,
        worker_image: &str,
    ) -> Sharer {
        let client = self.server.client(namespace);
        let clients = Clients::new(client.clone(), client);
        let replica = Replica::join(&clients, DEFAULT_TYPE, id, Some(id)).await.unwrap();
        let of_types = clients.clone();
        let sharing = replica.share(Scope::Cluster).unwrap();
        let (ready, mut is_ready) = watch::channel(false);
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move { drop(stopped.await) };
        let metrics = Metrics::register(&mut Registry::default(), PoolSeries::All);
        let worker_image = worker_image.into();
        let options = Options { worker_image, background: Background::default() };
        let health = Health::default();
        replica.publish_status("test".into(), health.clone());
        let run = run::run(clients, sharing, options, Probes { metrics, health, ready }, shutdown);
        let follower = replica.clone();
        let task = tokio::spawn(async move {
            tokio::select! {
                () = run => {}
                () = follower.follow_types(&of_types) => {}
            }
        });
        tokio::time::timeout(WITHIN, is_ready.wait_for(|ready| *ready)).await.unwrap().unwrap();
        Sharer { replica, operator: Operator { task, stop } }
    }

    /// The series of the pools that the operator serves, as `name{labels} value`.
    pub(crate) fn pool_metrics(&self) -> Vec<String> {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("swarm_pool_"));
        lines.map(ToOwned::to_owned).collect()
    }

    /// The value of the series of this name, which has no labels.
    pub(crate) fn metric(&self, name: &str) -> Option<u64> {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }

    /// Ends the operator between two turns.
    pub(crate) async fn stop_operator(&mut self) {
        let Operator { task, stop } = self.operator.take().unwrap();
        drop(stop);
        tokio::time::timeout(WITHIN, task).await.unwrap().unwrap();
    }

    /// Ends the operator at once, even in the middle of a turn.
    pub(crate) async fn kill_operator(&mut self) {
        let Operator { task, .. } = self.operator.take().unwrap();
        task.abort();
        let _ = task.await;
    }

    /// Writes a line about the next step, below the exchanges so far.
    pub(crate) fn note(&mut self, what: &str) {
        self.transcript.take_in(&self.server);
        self.transcript.note(what);
    }

    /// Applies a Swarm as its user does: a new one, or another spec.
    pub(crate) fn swarm(&mut self, name: &str, spec: Value) {
        self.note(&format!("apply Swarm {name} {spec}"));
        if self.server.get(SWARMS, NAMESPACE, name).is_some() {
            return self.server.edit(SWARMS, NAMESPACE, name, |it| it["spec"] = spec);
        }
        let metadata = json!({"name": name, "namespace": NAMESPACE});
        let api_version = swarm_client::api::API_VERSION;
        self.server.put(json!({
            "apiVersion": api_version, "kind": "Swarm", "metadata": metadata, "spec": spec,
        }));
    }

    /// Deletes an object as `kubectl delete` does: it stays while it has finalizers.
    pub(crate) async fn delete<K>(&mut self, name: &str)
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        self.note(&format!("delete {} {name}", K::kind(&())));
        let api = kube::Api::<K>::namespaced(self.server.client(NAMESPACE), NAMESPACE);
        api.delete(name, &kube::api::DeleteParams::default()).await.unwrap();
    }

    /// Creates a StatefulSet with this number of replicas, without its pods.
    pub(crate) fn stateful_set(&mut self, name: &str, replicas: u32) {
        self.note(&format!("StatefulSet {name} has {replicas} replicas"));
        let labels = json!({"app": name});
        let spec = json!({
            "replicas": replicas, "serviceName": name, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": []}},
        });
        self.server.put(json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "spec": spec,
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
            "status": {"replicas": replicas},
        }));
    }

    /// Creates a ready pod of a StatefulSet.
    pub(crate) fn pod(&mut self, name: &str) {
        self.pod_that_is(name, true);
    }

    /// Creates or updates a pod of a StatefulSet, ready or not.
    pub(crate) fn pod_that_is(&mut self, name: &str, is_ready: bool) {
        self.note(&format!("pod {name} is {}", if is_ready { "ready" } else { "not ready" }));
        let (set, ordinal) = name.rsplit_once('-').unwrap();
        let owned_by = self.server.get("statefulsets.apps", NAMESPACE, set).unwrap();
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "name": set, "controller": true,
            "uid": owned_by["metadata"]["uid"],
        });
        let mut labels = owned_by["spec"]["template"]["metadata"]["labels"].clone();
        labels["apps.kubernetes.io/pod-index"] = json!(ordinal);
        let ready = if is_ready { "True" } else { "False" };
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": NAMESPACE, "ownerReferences": [owner], "labels": labels,
            },
            "spec": {"nodeName": "node", "containers": []},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
        });
        if let Some(before) = self.server.get("pods", NAMESPACE, name) {
            let owners = pod["metadata"]["ownerReferences"].take();
            pod["metadata"] = before["metadata"].clone();
            pod["metadata"]["ownerReferences"] = owners;
        }
        self.server.put(pod);
    }

    /// Removes a pod with its containers.
    pub(crate) fn pod_ends(&mut self, name: &str) {
        self.note(&format!("pod {name} ends"));
        self.server.remove("pods", NAMESPACE, name);
    }

    /// Writes an object as another client does.
    pub(crate) fn put(&mut self, what: &str, object: Value) {
        self.note(what);
        self.server.put(object);
    }

    /// The value in an object at a pointer such as `/data/config.yml`, or null.
    pub(crate) fn at(&self, resource: &str, name: &str, pointer: &str) -> Value {
        let found = self.server.get(resource, NAMESPACE, name).unwrap_or_default();
        found.pointer(pointer).cloned().unwrap_or_default()
    }

    /// The view of plain workers.
    pub(crate) fn view(&self, swarm: &str) -> String {
        let text = self.at("configmaps", &format!("{swarm}-config"), "/data/config.yml");
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Waits for a condition, with a bound. The condition is checked after every change in the
    /// store.
    pub(crate) async fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let server = self.server.clone();
        let waiting = server.wait_until(|_| is_so(self));
        if tokio::time::timeout(WITHIN, waiting).await.is_err() {
            let transcript = self.transcript();
            panic!("not within {WITHIN:?}: {what}\n{transcript}");
        }
    }

    /// Lets time pass, and with it everything that is due within it.
    pub(crate) async fn pass(&mut self, time: Duration) {
        self.note(&format!("{time:?} pass"));
        tokio::time::sleep(time).await;
    }

    /// The status of a Swarm, or null.
    pub(crate) fn status(&self, swarm: &str) -> Value {
        let found = self.server.get(SWARMS, NAMESPACE, swarm).unwrap_or_default();
        found["status"].clone()
    }

    /// The condition of a Swarm as `Status/Reason`.
    pub(crate) fn condition(&self, swarm: &str, type_: &str) -> String {
        let swarm = self.server.get(SWARMS, NAMESPACE, swarm).unwrap_or_default();
        let all = swarm["status"]["conditions"].as_array().into_iter().flatten();
        let found = all.into_iter().find(|condition| condition["type"] == type_);
        let text = |field: &str| found.map_or("", |it| it[field].as_str().unwrap_or_default());
        format!("{}/{}", text("status"), text("reason"))
    }

    /// The sentence about a problem in the condition `Degraded` of a Swarm.
    pub(crate) fn trouble(&self, swarm: &str, reason: &str) -> Option<String> {
        let status: SwarmStatus = serde_json::from_value(self.status(swarm)).ok()?;
        swarm_adapters_k8s::status::trouble(&status, reason).map(ToOwned::to_owned)
    }

    /// Whether the status covers the newest spec and reports that nothing is left to do.
    pub(crate) fn is_settled(&self, swarm: &str) -> bool {
        let found = self.server.get(SWARMS, NAMESPACE, swarm).unwrap_or_default();
        found["status"]["observedGeneration"] == found["metadata"]["generation"]
            && self.condition(swarm, "Ready") == "True/Settled"
    }

    /// The transcript since the last call.
    pub(crate) fn transcript(&mut self) -> String {
        self.transcript.take_in(&self.server);
        self.transcript.take()
    }
}
