//! With the token of the operator's account nobody can do what the operator never does: write fields of
//! pods, Leases and `ConfigMaps` of others, run a pod of his own, or reach into the cluster itself. What
//! the operator does is allowed, beside each.

use anyhow::{Result, bail};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use swarm_adapters_k8s::api::Swarm;

use super::session::SOON;
use crate::operator;
use crate::scenario::Context;
use crate::until::until;

/// What others have in the namespace. The pod is never run.
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
data: {nginx.conf: "listen 8080;", empty: "", view: "workloads:\n  w-0: {jobs: [a]}\n", lines: "a,1\nb,2\n"}
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
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: theirs}
spec: {jobs: [{name: a}], pool: {deployment: {name: nobody}}}
"#;

/// The labels of what the operator makes for managed pools.
const MADE: [(&str, &str); 2] =
    [("swarm.k8slab.info/swarm", "made"), ("app.kubernetes.io/managed-by", "swarm-operator")];

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    context.apply(THEIRS).await?;
    let client = operator::client(&context.cluster).await?;
    let account = Account { client, namespace: context.namespace.clone() };
    // The policies are in force a moment after they were applied.
    until("the fence", SOON, || async {
        let label = json!({"metadata": {"labels": {"a": "b"}}});
        account
            .refused::<Pod>("a label", label, "changes nothing of a pod but annotations")
            .await?;
        Ok(Some(()))
    })
    .await?;
    pods(&context, &account).await?;
    leases(&context, &account).await?;
    config_maps(&context, &account).await?;
    workloads(&context, &account).await?;
    let edit = json!({"spec": {"jobs": []}});
    account.refused::<Swarm>("a Swarm", edit, "nothing of a Swarm but its finalizers").await?;
    context.laps.lap("no Swarm is edited");
    Ok(())
}

/// Who holds the operator's token.
struct Account {
    client: Client,
    namespace: String,
}

/// What is written with it.
trait Object:
    Resource<Scope = NamespaceResourceScope, DynamicType: Default>
    + Clone
    + std::fmt::Debug
    + DeserializeOwned
    + Serialize
{
}

impl<K> Object for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType: Default>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Serialize
{
}

impl Account {
    fn api<K: Object>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Nothing is ever stored.
    fn dry() -> PatchParams {
        PatchParams { dry_run: true, ..PatchParams::default() }
    }

    async fn patch<K: Object>(&self, name: &str, patch: Value) -> kube::Result<()> {
        let api = self.api::<K>(&self.namespace);
        api.patch_metadata(name, &Self::dry(), &Patch::Merge(patch)).await.map(drop)
    }

    /// A change of what others have is refused for this reason.
    async fn refused<K: Object>(&self, what: &str, patch: Value, because: &str) -> Result<()> {
        refused(what, self.patch::<K>("theirs", patch).await, because)
    }

    async fn create<K: Object>(&self, namespace: &str, object: Value) -> kube::Result<()> {
        let params = PostParams { dry_run: true, ..PostParams::default() };
        let object = K::deserialize(object).map_err(kube::Error::SerdeError)?;
        self.api::<K>(namespace).create(&params, &object).await.map(drop)
    }

    async fn delete<K: Object>(&self, namespace: &str, name: &str) -> kube::Result<()> {
        let params = DeleteParams { dry_run: true, ..DeleteParams::default() };
        self.api::<K>(namespace).delete(name, &params).await.map(drop)
    }
}

fn refused(what: &str, answer: kube::Result<()>, because: &str) -> Result<()> {
    match answer {
        Err(kube::Error::Api(status)) if status.message.contains(because) => Ok(()),
        Err(other) => bail!("{what}: refused, but not because `{because}`: {other}"),
        Ok(()) => bail!("{what} was accepted"),
    }
}

async fn pods(context: &Context, account: &Account) -> Result<()> {
    let annotate = |key: &str, value: Value| json!({"metadata": {"annotations": {key: value}}});
    for key in ["swarm.k8slab.info/nudge", "controller.kubernetes.io/pod-deletion-cost"] {
        account.patch::<Pod>("theirs", annotate(key, json!("1"))).await?;
    }
    let others = "changes no annotations of a pod but those";
    for value in [json!("2"), Value::Null] {
        account.refused::<Pod>("a note", annotate("example.com/note", value), others).await?;
    }
    let but = "changes nothing of a pod but annotations";
    let image = json!({"spec": {"containers": [{"name": "c", "image": "example.com/evil"}]}});
    let (pods, dry) = (account.api::<Pod>(&account.namespace), Account::dry());
    let changed = pods.patch_metadata("theirs", &dry, &Patch::Strategic(image)).await.map(drop);
    refused("an image", changed, but)?;
    let kept = json!({"metadata": {"finalizers": ["example.com/kept"]}});
    account.refused::<Pod>("a finalizer", kept, but).await?;
    account.delete::<Pod>(&account.namespace, "theirs").await?;
    let gated = in_kube_system(context).await?;
    refused(
        "a pod of the cluster",
        account.delete::<Pod>("kube-system", &gated).await,
        "changes no pod in a namespace of the cluster itself",
    )?;
    let delete = ["delete", "pod", &gated, "--namespace", "kube-system", "--wait=false"];
    context.cluster.kubectl(&delete).await?;
    context.laps.lap("of a pod, the operator's account writes annotations of its own only");
    Ok(())
}

/// A pod that is never run, in a namespace of the cluster.
async fn in_kube_system(context: &Context) -> Result<String> {
    let pod = json!({
        "metadata": {"name": "fenced"},
        "spec": {
            "schedulingGates": [{"name": "example.com/never"}],
            "containers": [{"name": "c", "image": "example.com/theirs"}],
        },
    });
    let api: Api<Pod> = Api::namespaced(context.client.clone(), "kube-system");
    if api.get_opt("fenced").await?.is_none() {
        api.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    }
    Ok("fenced".to_owned())
}

async fn leases(context: &Context, account: &Account) -> Result<()> {
    let holder = |holder: &str| json!({"spec": {"holderIdentity": holder}});
    let no_other = "is neither of a session nor";
    let taken = account.patch::<Lease>("election", holder("revoked")).await;
    refused("an election", taken, no_other)?;
    let labelled = json!({
        "metadata": {"labels": {"swarm.k8slab.info/session": "true"}},
        "spec": {"holderIdentity": "revoked"},
    });
    let claimed = account.patch::<Lease>("election", labelled).await;
    refused("an election with a label", claimed, no_other)?;
    let deleted = account.delete::<Lease>(&account.namespace, "election").await;
    refused("the deletion of an election", deleted, no_other)?;
    let only = "revokes the Lease of a session or deletes it";
    refused("another holder", account.patch::<Lease>("session", holder("me")).await, only)?;
    let answer = json!({
        "metadata": {"annotations": {"swarm.k8slab.info/ack": "{}"}},
        "spec": {"holderIdentity": "revoked"},
    });
    refused("another's answer", account.patch::<Lease>("session", answer).await, only)?;
    let member =
        json!({"metadata": {"name": "member", "labels": {"replicas.k8slab.info/group": "g"}}});
    account.create::<Lease>(operator::NAMESPACE, member).await?;
    let unlabelled = json!({"metadata": {"name": "member"}});
    let created = account.create::<Lease>(operator::NAMESPACE, unlabelled).await;
    refused("a Lease of no replica", created, no_other)?;
    account.patch::<Lease>("session", holder("revoked")).await?;
    account.delete::<Lease>(&account.namespace, "session").await?;
    context.laps.lap("it revokes and deletes Leases of sessions, and writes no other");
    Ok(())
}

async fn config_maps(context: &Context, account: &Account) -> Result<()> {
    let view = "swarm.k8slab.info/view";
    let claim = |key: &str| {
        let metadata = json!({"labels": {view: "true"}});
        json!({"metadata": metadata, "data": {key: "workloads: {}\n"}})
    };
    for key in ["new", "empty", "view", "lines"] {
        account.patch::<ConfigMap>("theirs", claim(key)).await?;
    }
    let over = "writes over nothing in a ConfigMap but views";
    account.refused::<ConfigMap>("a file", claim("nginx.conf"), over).await?;
    let unlabelled = json!({"data": {"new": "workloads: {}\n"}});
    let neither = "is neither a view nor the files of a managed pool";
    account.refused::<ConfigMap>("one without the label", unlabelled, neither).await?;
    let certificates = account.patch::<ConfigMap>("kube-root-ca.crt", claim("new")).await;
    refused("the certificates of the cluster", certificates, "writes no ConfigMap of the cluster")?;
    let object = json!({"metadata": {"name": "new", "labels": {view: "true"}}});
    let created = account.create::<ConfigMap>("kube-system", object).await;
    refused("one of the cluster", created, "writes no ConfigMap of the cluster itself")?;
    context.laps.lap("it writes no ConfigMap but views, and over nothing in them but views");
    Ok(())
}

async fn workloads(context: &Context, account: &Account) -> Result<()> {
    let not_made = "was not made for a managed pool";
    let image = json!({"spec": {"template": {"spec": {
        "containers": [{"name": "c", "image": "example.com/evil"}],
    }}}});
    let deployments = account.api::<Deployment>(&account.namespace);
    let (dry, image) = (Account::dry(), Patch::Strategic(image));
    let changed = deployments.patch_metadata("theirs", &dry, &image).await.map(drop);
    refused("an image", changed, not_made)?;
    let labels = json!({"metadata": {"labels": labels(&MADE)}});
    account.refused::<Deployment>("the labels", labels, not_made).await?;
    let deleted = account.delete::<Deployment>(&account.namespace, "theirs").await;
    refused("the deletion of a Deployment", deleted, not_made)?;
    let scaled = Patch::Merge(json!({"spec": {"replicas": 0}}));
    deployments.patch_scale("theirs", &dry, &scaled).await?;
    let bare = json!({"metadata": {"name": "made"}});
    let created = account.create::<ServiceAccount>(&account.namespace, bare).await;
    refused("an account", created, not_made)?;
    account.create::<Deployment>(&account.namespace, deployment("made")).await?;
    let of_cluster = account.create::<Deployment>("kube-system", deployment("made")).await;
    refused(
        "a workload of the cluster",
        of_cluster,
        "writes nothing in a namespace of the cluster",
    )?;
    let itself =
        account.create::<Deployment>(operator::NAMESPACE, deployment("swarm-operator")).await;
    refused("a pool with its own account", itself, "no pool runs with the account")?;
    account.create::<RoleBinding>(&account.namespace, binding(&account.namespace)).await?;
    let elsewhere = account.create::<RoleBinding>(&account.namespace, binding("default")).await;
    refused("rights for others", elsewhere, "gives rights to nobody but accounts of the same")?;
    context.laps.lap("it makes managed pools, scales others, and writes nothing else of them");
    Ok(())
}

fn labels(all: &[(&str, &str)]) -> Value {
    all.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect()
}

fn deployment(account: &str) -> Value {
    let pod = json!({
        "serviceAccountName": account,
        "containers": [{"name": "c", "image": "example.com/made"}],
    });
    json!({
        "metadata": {"name": "made", "labels": labels(&MADE)},
        "spec": {
            "selector": {"matchLabels": {"app": "made"}},
            "template": {"metadata": {"labels": {"app": "made"}}, "spec": pod},
        },
    })
}

fn binding(namespace: &str) -> Value {
    json!({
        "metadata": {"name": "made", "labels": labels(&MADE)},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "swarm-session-worker",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "made", "namespace": namespace}],
    })
}
