//! Support for unit tests: services with caches that a test fills, over an API server whose answers
//! the test chooses.

use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Client;
use kube::client::Body;
use kube::runtime::reflector::store;
use kube::runtime::watcher::Event;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use swarm_client::api::Swarm;
use swarm_client::client::Clients;
use tokio::sync::watch;

use crate::fairness::background::Background;
use crate::locks::unpoisoned;
use crate::metrics::{Metrics, PoolSeries};
use crate::reconcile::Operator;
use crate::scope::Scope;
use crate::services::{Options, Services, Watched};
use crate::sessions::seen::SeenSessions;
use crate::sharing::Sharing;
use crate::watch::cached::Cache;
use crate::watch::caches::{Caches, Pools};
use crate::watch::foreign_swarms::ForeignSwarms;
use crate::watch::non_statefulset::NonStatefulSet;
use crate::watch::on_demand::OnDemand;
use crate::watch::rollback::Rollbacks;

/// The image of workers of managed pools.
pub(crate) const WORKER_IMAGE: &str = "registry.example.com/swarm-worker:1";

/// A request as the API server saw it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    /// The path, without the query.
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) body: Value,
}

impl Asked {
    /// Whether the request has this method, and a path that ends so.
    pub(crate) fn is(&self, method: &str, path: &str) -> bool {
        self.method.as_str() == method && self.path.ends_with(path)
    }
}

/// The objects and services at the beginning of a test.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) swarms: Vec<Value>,
    pub(crate) sets: Vec<Value>,
    /// Pods that no StatefulSet controls.
    pub(crate) pods: Vec<Value>,
    /// The metadata of ConfigMaps with lists of jobs.
    pub(crate) lists: Vec<Value>,
}

/// The services, and the requests that they have sent.
pub(crate) struct Scene {
    pub(crate) services: Arc<Services>,
    pub(crate) operator: Arc<Operator>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Scene {
    /// The requests since the last call, in order.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *unpoisoned(&self.asked))
    }

    /// A Swarm from the cache.
    pub(crate) fn swarm(&self, name: &str) -> Arc<Swarm> {
        self.services.caches.swarms.get("n", name).unwrap()
    }
}

impl World {
    /// The services, over an API server that answers each request with a code and an object.
    pub(crate) fn with(
        self,
        answer: impl Fn(&Asked) -> (u16, Value) + Send + Sync + 'static,
    ) -> Scene {
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let client = client(asked.clone(), answer);
        let (ledgers, mut ledgers_seen) = store();
        ledgers_seen.apply_watcher_event(&Event::Init);
        ledgers_seen.apply_watcher_event(&Event::InitDone);
        let sets = Cache::<StatefulSet>::holding(self.sets.into_iter().map(read));
        let caches = Caches {
            swarms: Cache::holding(self.swarms.into_iter().map(read)),
            foreign_swarms: ForeignSwarms::new().0,
            pools: Pools {
                sets,
                non_statefulset: NonStatefulSet::holding(self.pods.into_iter().map(read)),
            },
            pods: Cache::<Pod>::holding([]),
            views: Cache::<ConfigMap>::holding([]),
            namespaces: store().0,
            nodes: store().0,
            ledgers,
            sources: Cache::holding(self.lists.into_iter().map(read)),
            asked_sources: OnDemand::default(),
            rollbacks: Rollbacks::default(),
        };
        let seen = SeenSessions::default();
        let metrics = Metrics::register(&mut Registry::default(), PoolSeries::All);
        let (options, filled) = (
            Options { worker_image: WORKER_IMAGE.into(), background: Background::default() },
            watch::Sender::new(true),
        );
        let sharing = Sharing::alone(&Clients::new(client.clone(), client.clone()), Scope::Cluster);
        let watched = Watched { caches, seen, filled };
        let services = Services::new(client, options, sharing, metrics, watched);
        let services = Arc::new(services);
        let operator = Arc::new(Operator::new(services.clone()));
        Scene { services, operator, asked }
    }
}

/// The API server's answer to a request that it refuses.
pub(crate) fn failure(code: u16, reason: &str, message: &str) -> (u16, Value) {
    let failure = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": message,
    });
    (code, failure)
}

/// The API server's answer to a write at an outdated version.
pub(crate) fn conflict() -> (u16, Value) {
    failure(409, "Conflict", "the object has been modified")
}

fn read<K: serde::de::DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

fn client(
    asked: Arc<Mutex<Vec<Asked>>>,
    answer: impl Fn(&Asked) -> (u16, Value) + Send + Sync + 'static,
) -> Client {
    let answer = Arc::new(answer);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (asked, answer) = (asked.clone(), answer.clone());
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
            let query = head.uri.query().unwrap_or_default().into();
            let request = Asked { method: head.method, path: head.uri.path().into(), query, body };
            let (code, object) = answer(&request);
            unpoisoned(&asked).push(request);
            let body = Body::from(serde_json::to_vec(&object).unwrap_or_default());
            Ok::<_, kube::Error>(Response::builder().status(code).body(body).unwrap())
        }
    });
    Client::new(service, "n")
}

/// A Swarm in namespace `n` with its finalizer; its UID is its name.
pub(crate) fn swarm(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": swarm_client::api::API_VERSION,
        "kind": "Swarm",
        "metadata": {
            "name": name, "namespace": "n", "uid": name, "generation": 1, "resourceVersion": "1",
            "finalizers": [crate::annotations::FINALIZER],
        },
        "spec": spec,
    })
}
