//! The objects of a Swarm are deleted with it, after its workers have released their jobs. They are
//! also deleted with a Swarm that was removed without a release.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use swarm_client::api::Swarm;

use super::objects;
use crate::scenario::Context;
use crate::scenarios::session_pool::{Kind, Policy, Protocol, SessionPool};
use crate::until::until;

pub(crate) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    for (name, params) in
        [("background", DeleteParams::background()), ("foreground", DeleteParams::foreground())]
    {
        let mut pool = SessionPool::new(&context, name);
        (pool.kind, pool.policy) = (Kind::Managed, Policy::Exclusive);
        pool.managed = json!({"files": {"data": {"a": "b"}}, "service": {}});
        pool.apply().await?;
        pool.at_rest().await?;
        context.api::<Swarm>().delete(name, &params).await?;
        all_gone(&context, name).await?;
        released_first(&pool)?;
    }
    the_view_of_a_plain_pool_goes_too(&context).await?;
    a_namespace_goes_halfway(&context).await?;
    a_removed_finalizer_leaves_nothing(&context).await
}

/// Checks that every job was stopped by its worker, which logs the stop. A worker whose pod is
/// killed logs no stop.
fn released_first(pool: &SessionPool) -> Result<()> {
    let log = std::fs::read_to_string(pool.log())?;
    for job in &pool.jobs {
        let mut events = log.lines().filter(|line| line.contains(&format!("\"{job}\"")));
        let last = events.next_back().unwrap_or_default();
        ensure!(last.contains("\"stop\""), "the last of {job} is {last}");
    }
    Ok(())
}

async fn the_view_of_a_plain_pool_goes_too(context: &Context) -> Result<()> {
    let mut pool = SessionPool::new(context, "plain");
    pool.kind = Kind::Managed;
    (pool.protocol, pool.asks_for) = (Protocol::Plain, Protocol::Plain);
    pool.apply().await?;
    pool.at_rest().await?;
    let maps = context.api::<ConfigMap>();
    maps.get("plain-config").await?;
    context.api::<Swarm>().delete("plain", &DeleteParams::default()).await?;
    all_gone(context, "plain").await?;
    ensure!(maps.get_opt("plain-config").await?.is_none(), "the view is left");
    Ok(())
}

/// Deletes a namespace while a pool is being made. All of the pool is deleted, and nothing is
/// recreated.
async fn a_namespace_goes_halfway(context: &Context) -> Result<()> {
    let name = format!("{}-halfway", context.namespace);
    let other = Context::new(&context.cluster, &name).await?;
    let spec = json!({
        "replicas": 2, "pool": {"managed": {"service": {}}}, "jobs": [{"name": "a"}],
    });
    let swarm = json!({
        "apiVersion": "swarm.k8slab.info/v1alpha1", "kind": "Swarm",
        "metadata": {"name": "halfway"}, "spec": spec,
    });
    other.apply(&swarm.to_string()).await?;
    until("something to be made", || async {
        Ok((!objects(&other, "halfway").await?.is_empty()).then_some(()))
    })
    .await?;
    let namespaces: Api<Namespace> = Api::all(context.client.clone());
    namespaces.delete(&name, &DeleteParams::default()).await?;
    until("the namespace to go", || async {
        Ok(namespaces.get_opt(&name).await?.is_none().then_some(()))
    })
    .await
}

async fn all_gone(context: &Context, name: &str) -> Result<()> {
    until(&format!("all of {name} to go"), || async {
        let left = objects(context, name).await?;
        ensure!(left.is_empty(), "left: {left:?}");
        let swarm = context.api::<Swarm>().get_metadata_opt(name).await?;
        ensure!(swarm.is_none(), "the Swarm is left");
        Ok(Some(()))
    })
    .await
}

async fn a_removed_finalizer_leaves_nothing(context: &Context) -> Result<()> {
    let mut pool = SessionPool::new(context, "forced");
    pool.kind = Kind::ManagedSet;
    pool.apply().await?;
    pool.at_rest().await?;
    let swarms = context.api::<Swarm>();
    // A user who does not want to wait removes the finalizer like this.
    let force = json!({"metadata": {"finalizers": null}});
    swarms.delete("forced", &DeleteParams::default()).await?;
    // The operator may already have released the Swarm.
    swarms.patch("forced", &PatchParams::default(), &Patch::Merge(&force)).await.ok();
    all_gone(context, "forced").await
}
