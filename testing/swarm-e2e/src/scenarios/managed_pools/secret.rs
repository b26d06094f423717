//! A param of a Secret reaches the jobs, and no object or log that other users can read.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::made_for;
use crate::operator;
use crate::scenario::Context;
use crate::until::until;

/// The secret, and the output of the job, which gets the secret in two ways.
const SECRET: &str = "staple-battery";
const FOUND: &str = "found battery battery";

/// The kinds of objects that say something about a Swarm, and that other users can read.
const READABLE: &str = "swarms,swarmledgers,workerviews,leases,configmaps,events,pods,deployments,\
                        replicasets,services,endpointslices";

pub(crate) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "camera"},
        "stringData": {"password": SECRET},
    });
    context.apply(&secret.to_string()).await?;
    // The job fails again and again, so that its last lines and its end are in the status. The
    // image has only a shell.
    let script = r#"IFS=-; set -- $SWARM_PARAM_PASSWORD $PGPASSWORD; echo "found $2 $4"; \
        for name in KUBERNETES_SERVICE_HOST POD_UID SWARM_LEASE; do \
        eval "test -n \"\$$name\" && echo inherited $name"; done; exit 3"#;
    let swarm = json!({
        "apiVersion": "swarm.k8slab.info/v1alpha1", "kind": "Swarm", "metadata": {"name": "secret"},
        "spec": {
            "replicas": 2,
            "pool": {"managed": {"image": "busybox:stable"}},
            "worker": {"protocol": "Session", "runner": {
                "command": ["sh", "-c", script],
                "env": {"PGPASSWORD": "{param.password}"},
                "paramsFrom": [
                    {"name": "password", "secretKeyRef": {"name": "camera", "key": "password"}},
                ],
            }},
            "jobs": [{"name": "camera:0", "params": {"url": "rtsp://camera"}}, {"name": "camera:1"}],
        },
    });
    context.apply(&swarm.to_string()).await?;
    until("the jobs to find the secret", || async {
        let logs = logs(&context).await?;
        ensure!(logs.contains(&format!("{FOUND}\n")), "{logs}");
        Ok(Some(()))
    })
    .await?;
    // The status reports the failing jobs with their last lines.
    until("the status to say how they fail", || async {
        let status = context.kubectl(&["get", "swarm", "secret", "-o=yaml"]).await?;
        ensure!(status.contains(FOUND), "{status}");
        Ok(Some(()))
    })
    .await?;
    let logs = logs(&context).await?;
    let inherited = ["KUBERNETES_SERVICE_HOST", "POD_UID", "SWARM_LEASE"];
    let is_found = |it: &&&str| logs.contains(&format!("inherited {it}\n"));
    let found: Vec<_> = inherited.iter().filter(is_found).collect();
    ensure!(found.is_empty(), "jobs inherit {found:?} from their worker");
    ensure!(!logs.contains(SECRET), "it is in the log of a worker");
    let readable = context.kubectl(&["get", READABLE, "-o=yaml", "--show-managed-fields"]).await?;
    ensure!(readable.contains("rtsp://camera"), "params are where they always were");
    ensure!(!readable.contains(SECRET), "it is in an object");
    let mut said = String::new();
    let operators = Api::<Pod>::namespaced(context.client.clone(), operator::NAMESPACE);
    for pod in operators.list_metadata(&ListParams::default()).await? {
        said += &context.cluster.pod_log(operator::NAMESPACE, &pod.name_any()).await?;
    }
    ensure!(!said.is_empty(), "the operator logs nothing");
    ensure!(!said.contains(SECRET), "it is in the log of the operator");
    Ok(())
}

/// The logs of all workers.
async fn logs(context: &Context) -> Result<String> {
    let mut logs = String::new();
    for pod in context.api::<Pod>().list_metadata(&made_for("secret")).await? {
        logs += &context.cluster.pod_log(&context.namespace, &pod.name_any()).await?;
    }
    Ok(logs)
}
