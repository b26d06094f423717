//! The cost of managed pools: the time from one object to running jobs, writes at rest, and the
//! memory of the operator for many pools.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{from_value, json};
use swarm_client::annotations::SELECTOR;
use swarm_client::api::Swarm;

use super::outside::{self, Operator};
use super::{Times, each, shown};
use crate::binaries::repository;
use crate::cluster::{Cluster, Request};
use crate::operator::{self, ACCOUNT};
use crate::output::say;
use crate::scenario::Context;
use crate::until::until_within;

/// The number of times that the sample is applied.
const TIMES: usize = 5;
/// The number of streams of the sample.
const STREAMS: usize = 27;
/// The number of Swarms without pods.
const SWARMS: usize = 1_000;
/// The bound on every wait.
const WITHIN: Duration = Duration::from_mins(10);

pub(super) async fn measure(cluster: &Arc<Cluster>, program: &Path, rest: Duration) -> Result<()> {
    let context = Context::new(cluster, "figures-managed").await?;
    context.operator().await?;
    let mut times = Vec::new();
    for last in (0..TIMES).rev() {
        times.push(run_once(&context).await?);
        if 0 < last {
            clear(&context).await?;
        }
    }
    let times = Times::new(times);
    let (median, worst) = (shown(times.at(50)), shown(times.at(100)));
    say(format_args!("one object applied → {STREAMS} streams run: p50 {median}, worst {worst}"));

    tokio::time::sleep(Duration::from_secs(10)).await;
    let mark = cluster.audit.now()?;
    tokio::time::sleep(rest).await;
    let requests = cluster.audit.since(mark)?;
    let is_ours = |it: &&Request| it.user == ACCOUNT && it.is_write() && !operator::renews(it);
    let writes = requests.iter().filter(is_ours).count();
    let minutes = rest.as_secs() / 60;
    say(format_args!("writes of the operator in {minutes} minutes at rest: {writes}"));
    clear(&context).await?;

    outside::remove_inside(cluster).await?;
    many(&context, program).await
}

/// Measures the time from applying the sample until all its streams run.
async fn run_once(context: &Context) -> Result<Duration> {
    let sample = std::fs::read_to_string(repository().join("deploy/samples/managed.yaml"))?;
    let start = Instant::now();
    context.apply(&sample).await?;
    until_within("all streams to run", WITHIN, || async {
        let mut running = 0;
        for pod in context.api::<Pod>().list_metadata(&ListParams::default()).await? {
            let log = context.cluster.pod_log(&context.namespace, &pod.name_any()).await?;
            running += log.matches("started job=").count();
        }
        ensure!(running == STREAMS, "{running} run");
        Ok(Some(start.elapsed()))
    })
    .await
}

async fn clear(context: &Context) -> Result<()> {
    let everything = ListParams::default();
    context.api::<Swarm>().delete_collection(&DeleteParams::default(), &everything).await?;
    until_within("all to go", WITHIN, || async {
        let left = context.api::<Deployment>().list_metadata(&everything).await?.items.len();
        let pods = context.api::<Pod>().list_metadata(&everything).await?.items.len();
        ensure!(left + pods == 0, "{left} Deployments and {pods} pods are left");
        Ok(Some(()))
    })
    .await
}

/// Measures the memory of an operator that keeps many pools.
async fn many(context: &Context, program: &Path) -> Result<()> {
    let swarms: Api<Swarm> = context.api();
    let made = swarms.clone();
    each(SWARMS, move |n| {
        let swarms = made.clone();
        async move {
            let spec = json!({
                "replicas": 0, "pool": {"managed": {}}, "jobs": [{"name": format!("job:{n}")}],
            });
            let swarm = Swarm::new(&format!("pool-{n}"), from_value(spec)?);
            swarms.create(&PostParams::default(), &swarm).await?;
            Ok(())
        }
    })
    .await?;
    let operator = Operator::start(&context.cluster, program)?;
    let deployments: Api<Deployment> = context.api();
    until_within("all Deployments to be made", WITHIN, || async {
        let made = deployments.list_metadata(&ListParams::default().labels(SELECTOR)).await?;
        let found = made.items.len();
        if found < SWARMS {
            bail!("{found} made");
        }
        Ok(Some(()))
    })
    .await?;
    let took = operator.started.elapsed();
    operator.quiet(WITHIN).await?;
    let cost = operator.cost()?;
    operator.stop().await?;
    say(format_args!(
        "{SWARMS} managed Swarms without pods: made after {}, memory at rest {} MiB, at its peak {} MiB, \
         {:.1} s of CPU",
        shown(took),
        cost.rss_mib,
        cost.peak_mib,
        cost.cpu_seconds
    ));
    Ok(())
}
