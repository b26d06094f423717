//! The upgrade from an operator in the namespace of its users' workloads, by the commands of the
//! page on migration. Pools keep running, also a pool in that namespace. No job is ever run by two
//! workers.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt as _};

use super::session_pool::{GRACEFUL, SessionPool};
use crate::binaries::repository;
use crate::operator;
use crate::run_log::Moment;
use crate::scenario::Context;

/// The namespace of earlier operators.
const BEFORE: &str = "swarm";

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let outcome = moved(&context).await;
    // Restores the operator also after a failure: later scenarios share it.
    operator::install(&context.cluster).await?;
    outcome
}

async fn moved(context: &Context) -> Result<()> {
    let cluster = &context.cluster;
    let other = Context::new(cluster, BEFORE).await?;
    as_before(context).await?;
    // One pool is in the namespace that the older base contained.
    let [mut exclusive, _] = SessionPool::of_both_policies(context, 3);
    let [mut other, _] = SessionPool::of_both_policies(&other, 3);
    for pool in [&exclusive, &other] {
        pool.apply().await?;
        pool.at_rest().await?;
    }
    let uid = namespace_uid(context).await?;

    let mark = Moment::now();
    // The pools change while the operator moves.
    for pool in [&mut exclusive, &mut other] {
        pool.workers = 4;
        pool.apply().await?;
    }
    for command in commands()? {
        let words: Vec<_> = command.split(' ').skip(1).collect();
        let paths = words.iter().map(|word| match word.strip_prefix("deploy/") {
            Some(_) => repository().join(word).display().to_string(),
            None => (*word).to_owned(),
        });
        let paths: Vec<_> = paths.collect();
        let words: Vec<_> = paths.iter().map(String::as_str).collect();
        cluster.kubectl(&words).await?;
    }
    for pool in [&exclusive, &other] {
        pool.at_rest().await?;
        pool.judge("the operator moved", mark, GRACEFUL)?;
    }
    ensure!(namespace_uid(context).await? == uid, "the namespace of the workloads is another one");
    let old = ["get", "deployment", "swarm-controller", "--namespace", BEFORE];
    ensure!(cluster.kubectl(&old).await.is_err(), "the former operator is still there");

    let mark = Moment::now();
    for pool in [&mut exclusive, &mut other] {
        pool.workers = 2;
        pool.apply().await?;
        pool.at_rest().await?;
        pool.judge("two workers under the new operator", mark, GRACEFUL)?;
    }
    context.laps.lap("two pools under Exclusive kept running while the operator moved");
    cluster.kubectl(&["delete", "swarms", "--all", "--namespace", BEFORE, "--timeout=5m"]).await?;
    cluster.kubectl(&["delete", "namespace", BEFORE, "--timeout=5m"]).await.map(drop)
}

/// Moves the operator back to the earlier namespace. Its present objects are deleted by name.
async fn as_before(context: &Context) -> Result<()> {
    // The replicas leave before they lose their rights. The others would wait for the Lease of a
    // replica that cannot report its end.
    let deployment = ["delete", "deployment/swarm-controller", "--cascade=foreground"];
    let deployment = [&deployment[..], &["--namespace", operator::NAMESPACE]].concat();
    context.cluster.kubectl(&deployment).await?;
    let objects = [
        "poddisruptionbudget/swarm-controller",
        "networkpolicy/swarm-controller",
        "serviceaccount/swarm-operator",
        "role/swarm-operator-replicas",
        "rolebinding/swarm-operator-replicas",
    ];
    let delete = [&["delete", "--namespace", operator::NAMESPACE][..], &objects].concat();
    context.cluster.kubectl(&delete).await?;
    let original = repository().join("deploy/overlays/original").display().to_string();
    context.cluster.kubectl(&["apply", "--kustomize", &original]).await?;
    let status = ["rollout", "status", "deployment/swarm-controller", "--timeout=5m"];
    context.cluster.kubectl(&[&status[..], &["--namespace", BEFORE]].concat()).await.map(drop)
}

/// The commands of the page without the last one, which waits for a Swarm of the page.
fn commands() -> Result<Vec<String>> {
    let page = std::fs::read_to_string(repository().join("docs/migration.md"))?;
    let chapter = page.split("## A namespace for the operator\n").nth(1).context("a chapter")?;
    let block = chapter.split("```").nth(1).context("commands")?;
    let commands = block.lines().filter(|line| line.starts_with("kubectl "));
    let commands = commands.filter(|line| !line.contains(" wait ")).map(str::to_owned);
    let commands: Vec<_> = commands.collect();
    ensure!(commands.len() == 4, "the page has {commands:?}");
    Ok(commands)
}

async fn namespace_uid(context: &Context) -> Result<Option<String>> {
    Ok(Api::<Namespace>::all(context.client.clone()).get(BEFORE).await?.uid())
}
