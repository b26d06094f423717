//! A pool that is worth an attack. A Secret is mounted in its pods, which have a shell and run the
//! commands of the Swarm.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::images::{SHELL, WORKER};
use crate::scenario::Context;
use crate::until::until;

/// The content of the Secret.
pub(super) const SECRET: &str = "correct-horse-battery";
/// The name of the Swarm, its workload and its account.
pub(super) const VAULT: &str = "vault";
/// Prints the Secret and fails, so that the Secret is the last line of output. The image has only a
/// shell.
pub(super) const LEAK: [&str; 3] =
    ["sh", "-c", r#"read -r it < /secret/password; echo "$it"; exit 3"#];

/// A tenant who may write only Swarms, and an editor through the `ClusterRole` `edit` of every
/// cluster.
pub(super) const TENANTS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: swarms-only}
rules:
  - {apiGroups: ["swarm.k8slab.info"], resources: ["swarms", "swarms/scale"], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: swarms-only}
subjects: [{kind: User, name: tenant, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: editor}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{kind: User, name: editor, apiGroup: rbac.authorization.k8s.io}]
"#;

/// Makes the pool, with one worker and one job that sleeps, and waits for the worker.
pub(super) async fn open(context: &Context) -> Result<()> {
    let items = [secret(), account(), binding(context), workload(), swarm()];
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    context.apply(&list.to_string()).await?;
    until("the job to run", || async {
        let ready =
            context.kubectl(&["get", "swarm", VAULT, "-o=jsonpath={.status.ready}"]).await?;
        let leases = context.kubectl(&["get", "workerviews", "-o=jsonpath={..count}"]).await?;
        ensure!(ready == "1/1" && leases == "1", "ready {ready}, {leases} jobs");
        Ok(Some(()))
    })
    .await
}

fn secret() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": VAULT},
        "stringData": {"password": SECRET},
    })
}

fn account() -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": VAULT}})
}

fn binding(context: &Context) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": VAULT},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "swarm-session-worker",
        },
        "subjects": [
            {"kind": "ServiceAccount", "name": VAULT, "namespace": context.namespace},
        ],
    })
}

/// The Swarm, whose job sleeps.
pub(super) fn swarm() -> Value {
    json!({
        "apiVersion": "swarm.k8slab.info/v1alpha1", "kind": "Swarm", "metadata": {"name": VAULT},
        "spec": {
            "jobs": [{"name": "job"}],
            "pool": {"statefulSet": {"name": VAULT}},
            "worker": {"protocol": "Session", "runner": {"command": ["sleep", "100000"]}},
            "handover": {"stopTimeout": "1s"},
        },
    })
}

fn workload() -> Value {
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let labels = json!({"app": VAULT});
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": VAULT},
        "spec": {
            "replicas": 1, "serviceName": VAULT, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {
                "serviceAccountName": VAULT,
                "terminationGracePeriodSeconds": 5,
                "initContainers": [{
                    "name": "install", "image": WORKER, "imagePullPolicy": "Never",
                    "args": ["install", "/swarm"],
                    "volumeMounts": [{"name": "swarm", "mountPath": "/swarm"}],
                }],
                "containers": [{
                    "name": "worker", "image": SHELL, "imagePullPolicy": "Never",
                    "command": ["/swarm/swarm-worker", "run", "--runner=swarm",
                        "--protocol=session", "--stop-timeout=1s", "--grace=5s"],
                    "env": [
                        field("POD_UID", "metadata.uid"),
                        field("POD_NAMESPACE", "metadata.namespace"),
                        {"name": "HTTP_ADDRESS", "value": "0.0.0.0"},
                    ],
                    "readinessProbe": {
                        "httpGet": {"path": "/internal/health", "port": 9090}, "periodSeconds": 1,
                    },
                    "volumeMounts": [
                        {"name": "swarm", "mountPath": "/swarm"},
                        {"name": "secret", "mountPath": "/secret", "readOnly": true},
                    ],
                }],
                "volumes": [
                    {"name": "swarm", "emptyDir": {}},
                    {"name": "secret", "secret": {"secretName": VAULT}},
                ],
            }},
        },
    })
}
