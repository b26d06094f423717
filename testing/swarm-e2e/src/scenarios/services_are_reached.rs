//! Services really work: a pod of each node reaches pods of both nodes. It does so by the name of a
//! Service, a node port, a headless Service, and the name of one pod of a `StatefulSet`. When this
//! fails, the cluster is at fault and not the product.
//!
//! The pods contain only one static binary, which is enough to resolve names.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;

use super::nodes::node_of;
use crate::cluster::{NODES, node_address};
use crate::scenario::Context;
use crate::until::until;

/// The longest allowed time until a ping is denied: less than any timeout of a resolver.
const DENIED_WITHIN: Duration = Duration::from_secs(3);

const MANIFEST: &str = "
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec:
  replicas: 2
  podManagementPolicy: Parallel
  serviceName: web-pods
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: DoNotSchedule
          labelSelector: {matchLabels: {app: web}}
      containers:
        - name: worker
          image: swarm-worker:dev
          imagePullPolicy: Never
          ports: [{containerPort: 9090}]
          readinessProbe: {httpGet: {path: /ping, port: 9090}, periodSeconds: 1}
          volumeMounts: [{name: view, mountPath: /app/config}]
      volumes: [{name: view, configMap: {name: view}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: view}
data:
  config.yml: |
    workloads: {web-0: {jobs: [], version: 1}, web-1: {jobs: [], version: 1}}
    version: 1
---
apiVersion: v1
kind: Service
metadata: {name: web-pods}
spec: {clusterIP: None, selector: {app: web}, ports: [{port: 9090}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  selector: {app: web}
  ports: [{port: 80, targetPort: 9090}]
";

pub(super) async fn run(context: Context) -> Result<()> {
    context.apply(MANIFEST).await?;
    let pods = ["web-0", "web-1"];
    let status = ["rollout", "status", "statefulset/web", "--timeout=5m"];
    context.kubectl(&status).await?;
    let mut nodes = BTreeSet::new();
    for pod in pods {
        nodes.insert(node_of(&context.api::<Pod>().get(pod).await?)?);
    }
    ensure!(nodes == NODES.into(), "the pods are on {nodes:?}");
    context.laps.lap("a pod on each node");
    let ports = ["get", "service", "web", "--output=jsonpath={.spec.ports[0].nodePort}"];
    let port = context.kubectl(&ports).await?;

    for pod in pods {
        for target in targets(&context.namespace, &port) {
            reached(&context, pod, &target).await?;
        }
        denied(&context, pod).await?;
        context.laps.lap(format!("{pod} reaches all of them"));
    }
    Ok(())
}

/// The targets that a pod can address: the Service with fewer and fewer search domains, each node's
/// port, the headless Service, and each pod. One of these pods is the pod that asks.
fn targets(namespace: &str, port: &str) -> Vec<String> {
    let domain = format!("{namespace}.svc.cluster.local");
    let mut targets =
        vec!["web:80".into(), format!("web.{namespace}:80"), format!("web.{domain}:80")];
    targets.extend(NODES.map(|node| format!("{}:{port}", node_address(node))));
    targets.push("web-pods:9090".into());
    targets.extend(["web-0.web-pods:9090".into(), format!("web-1.web-pods.{domain}:9090")]);
    targets
}

async fn ping(context: &Context, pod: &str, target: &str) -> Result<String> {
    context.kubectl(&["exec", pod, "--", "/swarm-worker", "ping", target]).await
}

async fn reached(context: &Context, pod: &str, target: &str) -> Result<()> {
    until(&format!("{pod} to reach {target}"), || async {
        ping(context, pod, target).await.map(Some)
    })
    .await
    .map(drop)
}

/// Checks that a name that does not exist is denied at once.
async fn denied(context: &Context, pod: &str) -> Result<()> {
    for name in ["nobody", "web-7.web-pods", "example.org"] {
        let start = Instant::now();
        let result = ping(context, pod, &format!("{name}:80")).await;
        ensure!(result.is_err(), "{pod} reaches {name}, which does not exist");
        let took = start.elapsed();
        ensure!(took < DENIED_WITHIN, "{pod} knew after {took:?} only that {name} does not exist");
    }
    Ok(())
}
