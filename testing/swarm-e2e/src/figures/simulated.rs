//! Pools that no kubelet runs: StatefulSets, and pods bound to a node that exists only as an
//! object.
//!
//! The controller manager must be frozen meanwhile: it would create pods of its own, and delete the
//! pods of a silent node.

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use swarm_client::api::{Swarm, SwarmLedger};

use super::{Lists, each};

/// The number of pods of a pool.
pub(super) const WORKERS: usize = 3;

/// The name of the node.
const NODE: &str = "nowhere";

/// The name of job `n` of a pool, 26 characters long.
pub(super) fn job(pool: usize, n: usize) -> String {
    format!("stream:c{pool:04}x{n:05}:updated")
}

/// Makes the node of all these pods.
pub(super) async fn node(client: &Client) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({"metadata": {"name": NODE}, "spec": {"unschedulable": true}});
    let node = serde_json::from_value(node)?;
    nodes.create(&PostParams::default(), &node).await.context("no node")?;
    Ok(())
}

/// Makes a Swarm with `jobs` jobs, and its pool with ready pods.
pub(super) async fn pool(
    client: &Client,
    namespace: &str,
    n: usize,
    (lists, jobs): (Lists, usize),
) -> Result<()> {
    let name = format!("pool-{n}");
    let sets: Api<StatefulSet> = Api::namespaced(client.clone(), namespace);
    let set = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "serviceName": name,
            "replicas": WORKERS,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod_spec(&name)},
        },
    }))?;
    let set = sets.create(&PostParams::default(), &set).await.context("no StatefulSet")?;
    let uid = set.uid().context("a StatefulSet has a UID")?;
    for ordinal in 0..WORKERS {
        pod(client, namespace, &name, &uid, ordinal).await?;
    }
    let swarms: Api<Swarm> = Api::namespaced(client.clone(), namespace);
    let mut spec = json!({"pool": {"statefulSet": {"name": name}}});
    match lists {
        Lists::Inline => {
            spec["jobs"] = (0..jobs).map(|job| json!({"name": self::job(n, job)})).collect();
        }
        Lists::ConfigMaps => {
            let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
            let map = serde_json::from_value(json!({
                "metadata": {"name": list_name(n), "labels": {LIST: "true"}},
                "data": {"jobs": list(n, jobs)},
            }))?;
            maps.create(&PostParams::default(), &map).await.context("no list of jobs")?;
            spec["jobSources"] = json!([{"configMap": {"name": list_name(n), "key": "jobs"}}]);
        }
    }
    let swarm = serde_json::from_value(json!({
        "apiVersion": "swarm.k8slab.info/v1alpha1",
        "kind": "Swarm",
        "metadata": {"name": name},
        "spec": spec,
    }))?;
    swarms.create(&PostParams::default(), &swarm).await.context("no Swarm")?;
    Ok(())
}

/// The label of the ConfigMaps with jobs.
const LIST: &str = "figures/list";

fn list_name(pool: usize) -> String {
    format!("pool-{pool}-jobs")
}

fn list(pool: usize, jobs: usize) -> String {
    let lines: Vec<_> = (0..jobs).map(|n| format!("- {}\n", job(pool, n))).collect();
    lines.concat()
}

/// The request that adds one job to the `jobs` of pool `n`.
pub(super) fn one_more(
    namespace: &str,
    n: usize,
    (lists, jobs): (Lists, usize),
) -> Result<http::Request<Vec<u8>>> {
    let (uri, patch) = match lists {
        Lists::Inline => {
            let swarms = format!("/apis/swarm.k8slab.info/v1alpha1/namespaces/{namespace}/swarms");
            let add = json!({"op": "add", "path": "/spec/jobs/-", "value": {"name": job(n, jobs)}});
            (format!("{swarms}/pool-{n}"), add)
        }
        Lists::ConfigMaps => {
            let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
            let longer = list(n, jobs + 1);
            let replace = json!({"op": "replace", "path": "/data/jobs", "value": longer});
            (format!("{maps}/{}", list_name(n)), replace)
        }
    };
    let request = http::Request::patch(uri).header("Content-Type", "application/json-patch+json");
    Ok(request.body(serde_json::to_vec(&[patch])?)?)
}

async fn pod(
    client: &Client,
    namespace: &str,
    pool: &str,
    uid: &str,
    ordinal: usize,
) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let name = format!("{pool}-{ordinal}");
    let mut spec = pod_spec(pool);
    spec["nodeName"] = NODE.into();
    spec["hostname"] = name.clone().into();
    let pod = serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "generateName": format!("{pool}-"),
            "labels": {
                "app": pool,
                "apps.kubernetes.io/pod-index": ordinal.to_string(),
                "controller-revision-hash": format!("{pool}-6b9c8f7d5c"),
                "statefulset.kubernetes.io/pod-name": name,
            },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "StatefulSet", "name": pool, "uid": uid,
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": spec,
    }))?;
    pods.create(&PostParams::default(), &pod).await.context("no pod")?;
    let patch = Patch::Merge(json!({"status": pod_status()}));
    pods.patch_status(&name, &PatchParams::default(), &patch).await.context("no status")?;
    Ok(())
}

/// The spec of a pod, as large as in the shipped sample.
fn pod_spec(pool: &str) -> Value {
    let probe = json!({"httpGet": {"path": "/internal/health", "port": "http"}});
    json!({
        "automountServiceAccountToken": false,
        "terminationGracePeriodSeconds": 15,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [{
            "name": "swarm-worker",
            "image": "swarm-worker:dev",
            "args": ["run", "--runner=log"],
            "env": [
                {"name": "CONFIG_PATH", "value": "/app/config"},
                {"name": "HTTP_ADDRESS", "value": "0.0.0.0"},
                {"name": "HTTP_PORT", "value": "9090"},
            ],
            "ports": [{"name": "http", "containerPort": 9090}],
            "readinessProbe": probe,
            "livenessProbe": probe,
            "resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "64Mi"}},
            "volumeMounts": [{"name": "config", "mountPath": "/app/config", "readOnly": true}],
        }],
        "volumes": [{"name": "config", "configMap": {"name": format!("{pool}-config")}}],
    })
}

fn pod_status() -> Value {
    let now = "2026-01-01T00:00:00Z";
    let types = ["PodReadyToStartContainers", "Initialized", "ContainersReady", "PodScheduled"];
    let conditions: Vec<_> = types
        .iter()
        .chain(&["Ready"])
        .map(|type_| json!({"type": type_, "status": "True", "lastTransitionTime": now}))
        .collect();
    json!({
        "phase": "Running",
        "conditions": conditions,
        "hostIP": "10.90.0.9",
        "podIP": "10.88.9.9",
        "podIPs": [{"ip": "10.88.9.9"}],
        "startTime": now,
        "containerStatuses": [{
            "name": "swarm-worker", "image": "swarm-worker:dev", "ready": true, "started": true,
            "restartCount": 0, "imageID": format!("sha256:{}", "0".repeat(64)),
            "containerID": format!("containerd://{}", "0".repeat(64)),
            "state": {"running": {"startedAt": now}},
        }],
    })
}

/// Removes all objects that [`pool`] and the operator made in `namespaces`. The operator must not
/// run.
pub(super) async fn clear(client: &Client, namespaces: &[String]) -> Result<()> {
    for namespace in namespaces {
        let swarms: Api<Swarm> = Api::namespaced(client.clone(), namespace);
        let names = swarms.list_metadata(&ListParams::default()).await?;
        let names: Vec<_> = names.iter().map(kube::ResourceExt::name_any).collect();
        let (all, count) = (swarms.clone(), names.len());
        each(count, move |n| {
            let (swarms, name) = (all.clone(), names[n].clone());
            async move {
                let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                swarms.patch_metadata(&name, &PatchParams::default(), &patch).await?;
                Ok(())
            }
        })
        .await?;
        let every = ListParams::default();
        let at_once = DeleteParams::background().grace_period(0);
        swarms.delete_collection(&at_once, &every).await?;
        let ledgers: Api<SwarmLedger> = Api::namespaced(client.clone(), namespace);
        ledgers.delete_collection(&at_once, &every).await?;
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        pods.delete_collection(&at_once, &every).await?;
        let sets: Api<StatefulSet> = Api::namespaced(client.clone(), namespace);
        sets.delete_collection(&at_once, &every).await?;
        let views: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        for label in ["swarm.k8slab.info/view", LIST] {
            views.delete_collection(&at_once, &every.clone().labels(label)).await?;
        }
    }
    Ok(())
}
