//! The token of the operator's account allows only the writes that the operator makes. The fence
//! refuses writes to other fields of pods, Leases and `ConfigMaps` of others. It refuses pods of an
//! attacker, bindings of rights, and writes to the cluster itself. Neither one request nor several
//! get around the fence. Next to each refused write, the operator's own write is allowed.

mod steps;
mod table;
mod write;

use anyhow::Result;
use serde_json::json;

use crate::operator;
use crate::scenario::Context;
use crate::until::until;
use write::{Account, Write};

/// The objects of others in the namespace. The pod never runs.
const THEIRS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: theirs, labels: {app: theirs}, annotations: {example.com/note: "1"}}
spec:
  schedulingGates: [{name: example.com/never}]
  containers: [{name: c, image: example.com/theirs}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: theirs}
data:
  nginx.conf: "listen 8080;"
  logging.yml: "version: 1\nhandlers: {}\n"
  text: "what runs these workloads: nginx"
  empty: ""
  view: "workloads:\n  w-0: {jobs: [a]}\n"
  lines: "a,1\nb,2\n"
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: election}
spec: {holderIdentity: somebody}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: session, labels: {swarm.k8slab.info/session: "true"}}
spec: {holderIdentity: session}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: theirs}
spec:
  replicas: 0
  selector: {matchLabels: {app: theirs}}
  template:
    metadata: {labels: {app: theirs}}
    spec: {containers: [{name: c, image: example.com/theirs}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: theirs}
spec:
  replicas: 0
  serviceName: theirs
  selector: {matchLabels: {app: theirs}}
  template:
    metadata: {labels: {app: theirs}}
    spec: {containers: [{name: c, image: example.com/theirs}]}
---
apiVersion: v1
kind: Service
metadata: {name: theirs}
spec: {selector: {app: theirs}, ports: [{port: 80}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: theirs}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: theirs}}}
---
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: theirs}
spec: {jobs: [{name: a}], pool: {deployment: {name: nobody}}}
"#;

/// Objects of the cluster itself, and an account that has rights everywhere. None of them ever
/// runs.
const OF_CLUSTER: &str = "
apiVersion: v1
kind: Pod
metadata: {name: fenced, namespace: kube-system}
spec:
  schedulingGates: [{name: example.com/never}]
  containers: [{name: c, image: example.com/theirs}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: fenced, namespace: kube-system}
spec:
  replicas: 0
  selector: {matchLabels: {app: fenced}}
  template:
    metadata: {labels: {app: fenced}}
    spec: {containers: [{name: c, image: example.com/theirs}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: fenced-steward}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: steward, namespace: NAMESPACE}]
";

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    context.apply(THEIRS).await?;
    let of_cluster = OF_CLUSTER.replace("NAMESPACE", &context.namespace);
    let file = tempfile::NamedTempFile::new_in(crate::cluster::FOLDER)?;
    std::fs::write(file.path(), of_cluster)?;
    let file = format!("--filename={}", file.path().display());
    context.cluster.kubectl(&["apply", &file]).await?;
    let outcome = fenced(&context).await;
    // Deletes the objects also after a failure: they are in a namespace of the cluster.
    let delete = ["delete", "--ignore-not-found", "--wait=false", &file];
    context.cluster.kubectl(&delete).await?;
    outcome
}

async fn fenced(context: &Context) -> Result<()> {
    let client = operator::client(&context.cluster).await?;
    let account = Account { client, namespace: context.namespace.clone() };
    // The policies are in force only a moment after they were applied.
    until("the fence", || async {
        let label = Write::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
        let because = Some("changes nothing of a pod but annotations");
        account.tries_pod("theirs", [("a label", label, because)]).await?;
        Ok(Some(()))
    })
    .await?;
    table::pods(context, &account).await?;
    table::leases(context, &account).await?;
    table::config_maps(context, &account).await?;
    table::workloads(context, &account).await?;
    table::other_than_workloads(context, &account).await?;
    table::swarms(context, &account).await?;
    steps::run(context, &account).await
}
