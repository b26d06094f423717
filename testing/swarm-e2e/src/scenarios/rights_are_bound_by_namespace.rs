//! The operator has its rights to write only in a list of namespaces. A pool in the list is served
//! as usual. A Swarm elsewhere is left as it is, since the operator has no right to write anything
//! there.

use anyhow::{Result, ensure};
use swarm_client::api::Swarm;

use super::pool::sample;
use crate::binaries::repository;
use crate::operator::{self, ACCOUNT, SAMPLES_NAMESPACE};
use crate::scenario::Context;
use crate::until::until;

/// The bindings for all namespaces, which are deleted first. The role of a binding cannot be
/// changed.
const BOUND: [&str; 2] = ["swarm-operator", "swarm-operator-managed-pools"];

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let listed = Context::new(&context.cluster, SAMPLES_NAMESPACE).await?;
    let outcome = served(&context, &listed).await;
    // Restores the rights also after a failure: later scenarios share the operator.
    unbind(&context).await?;
    operator::install(&context.cluster).await?;
    outcome?;
    let namespace = ["delete", "namespace", SAMPLES_NAMESPACE, "--timeout=5m"];
    context.cluster.kubectl(&namespace).await.map(drop)
}

async fn unbind(context: &Context) -> Result<()> {
    let delete = ["delete", "clusterrolebinding", "--ignore-not-found"];
    context.cluster.kubectl(&[&delete[..], &BOUND].concat()).await.map(drop)
}

async fn served(context: &Context, listed: &Context) -> Result<()> {
    unbind(context).await?;
    operator::apply(&context.cluster, &repository().join("deploy/overlays/listed")).await?;
    for (verb, resource) in [("patch", "pods"), ("create", "configmaps"), ("delete", "leases")] {
        let may = ["auth", "can-i", verb, resource, "--as", ACCOUNT];
        ensure!(listed.kubectl(&may).await.is_ok(), "it may not {verb} {resource} in the list");
        ensure!(context.kubectl(&may).await.is_err(), "it may {verb} {resource} elsewhere");
    }
    context.apply(&sample(2)?).await?;
    listed.apply(&sample(2)?).await?;
    until("the Swarm of the list to be ready", || async {
        let swarm = listed.api::<Swarm>().get("streams").await?;
        let ready = swarm.status.is_some_and(|status| status.ready == "2/2");
        Ok(ready.then_some(()))
    })
    .await?;
    listed.kubectl(&["wait", "--for=condition=Ready", "swarm/streams", "--timeout=5m"]).await?;
    let elsewhere = context.api::<Swarm>().get("streams").await?;
    ensure!(elsewhere.status.is_none(), "it has touched {:?}", elsewhere.status);
    ensure!(elsewhere.metadata.finalizers.is_none(), "it holds a Swarm that it cannot release");
    context.kubectl(&["delete", "swarm", "streams", "--timeout=5m"]).await?;
    listed.kubectl(&["delete", "swarm", "streams", "--timeout=5m"]).await?;
    context.laps.lap("a pool in the list is served, and a Swarm elsewhere is left alone");
    Ok(())
}
