//! Attempts with the token of a worker's pod. The jobs of the worker have the same token.

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use swarm_client::api::{Swarm, WorkerView};

use crate::operator;
use crate::scenario::Context;
use crate::scenarios::session::as_account;
use crate::scenarios::vault::{LEAK, VAULT};

fn refused<T>(what: &str, answer: kube::Result<T>, because: &str) -> Result<()> {
    match answer {
        Err(kube::Error::Api(status)) if status.message.contains(because) => Ok(()),
        Err(other) => bail!("{what}: refused, but not because `{because}`: {other}"),
        Ok(_) => bail!("{what} was accepted"),
    }
}

pub(super) async fn run(context: &Context) -> Result<()> {
    let token = as_account(context, VAULT, Some("vault-0")).await?;
    let secrets = Api::<Secret>::namespaced(token.clone(), &context.namespace);
    refused("a Secret", secrets.get(VAULT).await, "cannot get resource \"secrets\"")?;
    let swarms = Api::<Swarm>::namespaced(token.clone(), &context.namespace);
    let leak = json!({"spec": {"worker": {"runner": {"command": LEAK}}}});
    let (params, leak) = (PatchParams::default(), Patch::Merge(leak));
    refused("a runner", swarms.patch(VAULT, &params, &leak).await, "cannot patch")?;
    refused("a status", swarms.patch_status(VAULT, &params, &leak).await, "cannot patch")?;
    refused("all Swarms", swarms.list(&ListParams::default()).await, "cannot list")?;
    let pods = Api::<Pod>::namespaced(token.clone(), &context.namespace);
    let mark = json!({"metadata": {"annotations": {"swarm.k8slab.info/pool": "x"}}});
    let marked = pods.patch("vault-0", &params, &Patch::Merge(mark)).await;
    refused("its own pod", marked, "cannot patch resource \"pods\"")?;
    let views = Api::<WorkerView>::all(token.clone());
    refused("views of all", views.list(&ListParams::default()).await, "at the cluster scope")?;

    // The Lease of a replica of the operator, in this namespace and in the operator's namespace.
    let card = |name: &str| Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some([("replicas.k8slab.info/group".into(), "swarm-operator".into())].into()),
            ..ObjectMeta::default()
        },
        ..Lease::default()
    };
    let here = Api::<Lease>::namespaced(token.clone(), &context.namespace);
    let made = here.create(&PostParams::default(), &card("swarm-operator-0")).await;
    refused("a replica here", made, "a worker writes no other")?;
    let there = Api::<Lease>::namespaced(token.clone(), operator::NAMESPACE);
    let made = there.create(&PostParams::default(), &card("swarm-operator-0")).await;
    refused("a replica there", made, "cannot create resource \"leases\"")?;
    let accounts =
        format!("/api/v1/namespaces/{}/serviceaccounts/{VAULT}/token", context.namespace);
    let body =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let request = http::Request::post(accounts)
        .header("content-type", "application/json")
        .body(body.to_string().into_bytes())?;
    let made = token.request::<serde_json::Value>(request).await;
    refused("another token", made, "cannot create resource \"serviceaccounts/token\"")?;
    // `docs/threat-model.md` allows a worker to read all views of its namespace.
    let views = Api::<WorkerView>::namespaced(token, &context.namespace);
    ensure!(!views.list(&ListParams::default()).await?.items.is_empty(), "its own view is there");
    context.laps.lap("9 attempts with the token of a worker were refused");
    Ok(())
}
