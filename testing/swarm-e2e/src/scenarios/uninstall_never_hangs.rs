//! Every uninstallation ends: of a namespace with Swarms, of an operator for one namespace, and of
//! the operator before its Swarms. An operator for one namespace has no right beyond it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use swarm_client::api::Swarm;

use super::pool::sample;
use crate::binaries::repository;
use crate::cluster::FOLDER;
use crate::operator;
use crate::scenario::Context;
use crate::until::until;

/// A namespace that is deleted with everything in it.
const DOOMED: &str = "doomed";
/// A namespace with a managed pool under the default terms: its pods have 30 seconds to end.
const MANAGED: &str = "doomed-pool";
/// The longest allowed time to delete such a namespace, on a machine that is busy with two
/// clusters. The namespace controller alone waits five seconds, and six seconds are usual. Pods
/// that keep their grace need 42.
const MANAGED_WITHIN: Duration = Duration::from_secs(20);
/// A managed pool of sessions.
const POOL: &str = "
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: streams}
spec:
  replicas: 2
  jobs: [{name: a}, {name: b}, {name: c}]
  pool: {managed: {}}
";
/// A namespace with an operator of its own.
const ALONE: &str = "alone";

/// Swarms that were never ready: without a pool, and with the pool of another Swarm.
const FUTILE: &str = "
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: orphan}
spec:
  jobs: [{name: a}]
  pool: {statefulSet: {name: nobody}}
---
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: second}
spec:
  jobs: [{name: a}]
  pool: {statefulSet: {name: swarm-worker}}
";

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    namespace_with_swarms_goes(&context).await?;
    namespace_with_a_managed_pool_goes(&context).await?;

    // The other operator would do the work of the operator under test.
    operator::stop(&context.cluster).await?;
    let outcome = operator_of_one_namespace(&context).await;
    // Starts the other operator also after a failure: later scenarios share it.
    operator::go_on(&context.cluster).await?;
    outcome?;

    let outcome = base_goes_first(&context).await;
    operator::install(&context.cluster).await?;
    outcome
}

/// Deletes in the wrong order: the operator and its namespace first, while Swarms exist there and
/// elsewhere.
async fn base_goes_first(context: &Context) -> Result<()> {
    let cluster = &context.cluster;
    cluster.apply(operator::NAMESPACE, &sample(2)?).await?;
    ready(context, operator::NAMESPACE).await?;
    ready(context, &context.namespace).await?;
    let base = repository().join("deploy/overlays/managed").display().to_string();
    let change = Instant::now();
    let deleted = cluster.kubectl(&["delete", "--kustomize", &base, "--timeout=40s"]).await;
    let took = change.elapsed().as_millis();
    match deleted {
        Ok(_) => {
            context.laps.lap(format!("base with a Swarm in its namespace was gone in {took} ms"));
        }
        Err(error) => {
            context.laps.lap(format!("base was deleted too fast for its operator: {error:#}"));
            remove_finalizer(context, operator::NAMESPACE).await?;
        }
    }
    let namespaces: Api<Namespace> = Api::all(context.client.clone());
    until("the operator's namespace to go", || async {
        Ok(namespaces.get_opt(operator::NAMESPACE).await?.is_none().then_some(()))
    })
    .await?;

    let delete = ["delete", "swarm", "streams", "--wait=false"];
    context.kubectl(&delete).await?;
    let left = context.api::<Swarm>().get_opt("streams").await?;
    ensure!(left.is_some(), "no operator was left to finalize it");
    remove_finalizer(context, &context.namespace).await?;
    until("the Swarm to go", || async {
        Ok(context.api::<Swarm>().get_opt("streams").await?.is_none().then_some(()))
    })
    .await
}

/// Runs the documented command for a Swarm that no operator will finalize.
async fn remove_finalizer(context: &Context, namespace: &str) -> Result<()> {
    let page = std::fs::read_to_string(repository().join("docs/operations.md"))?;
    let uninstall = page.split("## Uninstall").nth(1).context("a chapter")?;
    let line = uninstall.lines().find(|line| line.starts_with("kubectl -n NAMESPACE patch"));
    let line =
        line.context("a command")?.replace("NAMESPACE", namespace).replace("NAME", "streams");
    let words: Vec<_> = line.split(' ').skip(1).map(|word| word.trim_matches('\'')).collect();
    context.cluster.kubectl(&words).await.map(drop)
}

async fn rolled_out(context: &Context, namespace: &str) -> Result<()> {
    let status = ["rollout", "status", "deployment/swarm-controller", "--timeout=5m"];
    context.cluster.kubectl(&[&status[..], &["--namespace", namespace]].concat()).await.map(drop)
}

async fn namespace_with_swarms_goes(context: &Context) -> Result<()> {
    let cluster = &context.cluster;
    cluster.kubectl(&["create", "namespace", DOOMED]).await?;
    cluster.apply(DOOMED, &sample(2)?).await?;
    ready(context, DOOMED).await?;
    cluster.apply(DOOMED, FUTILE).await?;
    let change = Instant::now();
    cluster.kubectl(&["delete", "namespace", DOOMED, "--timeout=5m"]).await?;
    let took = change.elapsed().as_millis();
    context.laps.lap(format!("a namespace with three Swarms was gone in {took} ms"));
    Ok(())
}

/// Workers are asked to close while their namespace is deleted. They do not wait for moves that
/// never come.
async fn namespace_with_a_managed_pool_goes(context: &Context) -> Result<()> {
    let cluster = &context.cluster;
    cluster.kubectl(&["create", "namespace", MANAGED]).await?;
    cluster.apply(MANAGED, POOL).await?;
    ready(context, MANAGED).await?;
    let change = Instant::now();
    cluster.kubectl(&["delete", "namespace", MANAGED, "--timeout=5m"]).await?;
    let took = change.elapsed();
    context
        .laps
        .lap(format!("a namespace with a managed pool was gone in {} ms", took.as_millis()));
    ensure!(took <= MANAGED_WITHIN, "it took {took:?}");
    Ok(())
}

async fn ready(context: &Context, namespace: &str) -> Result<()> {
    let wait = ["wait", "--for=condition=Ready", "swarm/streams", "--timeout=5m"];
    context.cluster.kubectl(&[&wait[..], &["--namespace", namespace]].concat()).await.map(drop)
}

/// Checks that the overlay serves its own namespace, leaves others alone, and can be deleted in the
/// documented order.
async fn operator_of_one_namespace(context: &Context) -> Result<()> {
    let cluster = &context.cluster;
    // Sets the namespace as a user would. kustomize takes only relative paths.
    let folder = tempfile::tempdir_in(FOLDER)?;
    let up = folder.path().components().skip(1).map(|_| "../").collect::<String>();
    let overlay = repository().join("deploy/overlays/namespaced");
    let overlay = format!("{up}{}", overlay.strip_prefix("/")?.display());
    let text = format!("namespace: {ALONE}\nresources: [\"{overlay}\"]\n");
    std::fs::write(folder.path().join("kustomization.yaml"), text)?;

    cluster.kubectl(&["create", "namespace", ALONE]).await?;
    context.apply(&sample(2)?).await?;
    operator::apply(cluster, folder.path()).await?;
    rolled_out(context, ALONE).await?;
    cluster.apply(ALONE, &sample(2)?).await?;
    ready(context, ALONE).await?;
    let elsewhere = context.api::<Swarm>().get("streams").await?;
    ensure!(elsewhere.status.is_none(), "it has touched {:?}", elsewhere.status);
    let may = ["auth", "can-i", "list", "pods", "--namespace", operator::NAMESPACE];
    let account = format!("--as=system:serviceaccount:{ALONE}:swarm-operator");
    let answer = cluster.kubectl(&[&may[..], &[&account]].concat()).await;
    ensure!(answer.is_err(), "it may look beyond its namespace");

    let change = Instant::now();
    let swarms = ["delete", "swarms", "--all", "--timeout=5m", "--namespace", ALONE];
    cluster.kubectl(&swarms).await?;
    let folder = folder.path().to_str().context("a path is a text")?;
    cluster.kubectl(&["delete", "--kustomize", folder, "--timeout=5m"]).await?;
    cluster.kubectl(&["delete", "namespace", ALONE, "--timeout=5m"]).await?;
    let took = change.elapsed().as_millis();
    context.laps.lap(format!("an operator of one namespace was gone in {took} ms"));
    Ok(())
}
