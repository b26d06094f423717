//! After an upgrade of the operator its pools roll over, five at a time, as in any other rollout.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use swarm_adapters_host::runlog::judge::RunName;

use crate::images::{NEXT_WORKER, WORKER};
use crate::operator;
use crate::run_log::Moment;
use crate::scenario::Context;
use crate::scenarios::session_pool::{GRACEFUL, Kind, Policy, SessionPool};
use crate::until::until;

/// The number of pools, more than may roll over at a time.
const POOLS: usize = 8;
/// The number of pools that may roll over at a time.
const AT_A_TIME: usize = 5;

pub(crate) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let mut pools = Vec::new();
    for n in 0..POOLS {
        let mut pool = SessionPool::new(&context, &format!("pool-{n}"));
        (pool.kind, pool.policy, pool.workers) = (Kind::Managed, Policy::Exclusive, 1);
        pool.return_grace = "30s";
        pool.apply().await?;
        pools.push(pool);
    }
    let mut before = Vec::new();
    for pool in &pools {
        before.push(pool.at_rest().await?);
    }
    makes(&context, NEXT_WORKER).await?;
    let outcome = rolled(&context, &pools, &before).await;
    // Later scenarios need the operator as it was.
    makes(&context, WORKER).await?;
    outcome
}

/// Upgrades the operator to a version with this image of workers.
async fn makes(context: &Context, image: &str) -> Result<()> {
    let env = format!("SWARM_WORKER_IMAGE={image}");
    let of_operator = ["--namespace", operator::NAMESPACE];
    let set = ["set", "env", "deployment/swarm-controller", &env];
    context.cluster.kubectl(&[&set[..], &of_operator].concat()).await?;
    let status = ["rollout", "status", "deployment/swarm-controller", "--timeout=5m"];
    context.cluster.kubectl(&[&status[..], &of_operator].concat()).await.map(drop)
}

async fn rolled(
    context: &Context,
    pools: &[SessionPool],
    before: &[BTreeMap<String, RunName>],
) -> Result<()> {
    let mark = Moment::now();
    let most = AtomicUsize::new(0);
    until("all pools to have rolled over", || async {
        let (rolling, done) = progress(context).await?;
        most.fetch_max(rolling, Ordering::Relaxed);
        ensure!(done == pools.len(), "{done} are done, and {rolling} roll");
        Ok(Some(()))
    })
    .await?;
    let most = most.into_inner();
    context.laps.lap(format!("at most {most} pools rolled at a time"));
    ensure!((2..=AT_A_TIME).contains(&most), "{most} rolled at a time");
    // A Deployment does not count pods that end, although these pods run their jobs for a moment.
    until("the former pods to be gone", || async {
        let pods = context.api::<Pod>().list(&ListParams::default()).await?;
        let ends = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()).count();
        ensure!(ends == 0, "{ends} still end");
        Ok(Some(()))
    })
    .await?;
    for (pool, before) in pools.iter().zip(before) {
        let after = pool.at_rest().await?;
        for (job, was) in before {
            let grants = after[job].token.saturating_sub(was.token);
            ensure!(grants == 1, "{job} was granted {grants} times: {was:?}, {:?}", after[job]);
        }
        pool.judge("an upgrade of the operator", mark, GRACEFUL)?;
    }
    Ok(())
}

/// The number of Deployments that roll over to the next image, and the number of finished ones.
async fn progress(context: &Context) -> Result<(usize, usize)> {
    let (mut rolling, mut done) = (0, 0);
    for deployment in context.api::<Deployment>().list(&ListParams::default()).await? {
        let spec = deployment.spec.unwrap_or_default();
        let pod = spec.template.spec.unwrap_or_default();
        if pod.containers.iter().all(|it| it.image.as_deref() != Some(NEXT_WORKER)) {
            continue;
        }
        let status = deployment.status.unwrap_or_default();
        let is_single = |count: Option<i32>| count == Some(1);
        let is_done = deployment.metadata.generation == status.observed_generation
            && is_single(status.updated_replicas)
            && is_single(status.replicas)
            && is_single(status.available_replicas);
        if is_done { done += 1 } else { rolling += 1 }
    }
    Ok((rolling, done))
}
