//! The cluster is restored from a copy of etcd that is older than a handover. Ledger, Leases and
//! views go back together, while the workers continue. Under `Exclusive` no job is then run by two
//! workers. No token falls under any policy, and the operator uses the restored Swarms.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;

use super::pool::{at_rest, jobs_of, sample};
use super::session_pool::{SILENCE, SessionPool, TICK};
use crate::run_log::Moment;
use crate::scenario::Context;

/// The job that has moved since the copy.
const MOVED: &str = "moved";
/// The longest allowed time until each job runs again: a job may have to wait for the grace twice.
const AGAIN: Duration = Duration::from_secs(2 * SILENCE.as_secs() + TICK.as_secs());

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let mut pools = SessionPool::of_both_policies(&context, 2).map(SessionPool::with_short_leases);
    for pool in &mut pools {
        pool.jobs = BTreeSet::from([MOVED.to_owned(), "stays".to_owned()]);
        pool.pins = [(MOVED.to_owned(), 0), ("stays".to_owned(), 1)].into();
        pool.apply().await?;
    }
    for pool in &pools {
        pool.runs_on(MOVED, 0).await?;
    }
    let plain = sample(1)?;
    let jobs = jobs_of(&plain);
    context.apply(&plain).await?;
    at_rest(&context, &jobs, 1, Instant::now()).await?;
    let mut witnesses = Vec::new();
    for pool in &pools {
        witnesses.push(pool.runs_on("stays", 1).await?.session);
    }
    context.cluster.make_etcd_sync().await?;
    let copy = context.cluster.copy_etcd().await?;
    context.laps.lap("etcd syncs, and was copied");

    for pool in &mut pools {
        pool.pins.insert(MOVED.to_owned(), 1);
        pool.apply().await?;
    }
    let [exclusive, patient] = &pools;
    let before = [exclusive.runs_on(MOVED, 1).await?, patient.runs_on(MOVED, 1).await?];
    // A session that the copy has, and that saw the ledger after the copy, shows that the ledger
    // went back. If that session ended meanwhile, the operator cannot notice the rollback.
    for (before, witness) in before.iter().zip(&witnesses) {
        ensure!(before.session == *witness, "{before:?} did not live on: a slow machine?");
    }
    // An edit after the copy, which is not made again after the restore.
    let undone = r#"[{"op": "add", "path": "/spec/jobs/-", "value": {"name": "stream:undone"}}]"#;
    context.kubectl(&["patch", "swarm", "streams", "--type=json", "--patch", undone]).await?;
    let more = jobs.iter().cloned().chain(["stream:undone".to_owned()]).collect();
    at_rest(&context, &more, 1, Instant::now()).await?;
    let newest = newest(&context).await?;
    let mark = Moment::now();
    context.cluster.restore_etcd(copy).await?;
    let served = Moment::now();
    context.laps.lap("etcd was rolled back");
    for (pool, before) in pools.iter().zip(before) {
        // The restored Swarm pins the job to slot 0.
        let after = pool.runs_on(MOVED, 0).await?;
        ensure!(before.token < after.token, "{}: {before:?}, then {after:?}", pool.name);
        pool.judge("the cluster was rolled back", mark, served.since(mark) + AGAIN)?;
    }
    // From here on a resumed watch shows changes, and never the undone changes.
    let mut writes = 0;
    while self::newest(&context).await? <= newest {
        writes += 1;
        let again = format!("example.com/write={writes}");
        context.kubectl(&["annotate", "serviceaccount", "default", "--overwrite", &again]).await?;
    }
    let change = Instant::now();
    context.kubectl(&["scale", "statefulset", "swarm-worker", "--replicas=2"]).await?;
    at_rest(&context, &jobs, 2, change).await?;
    context.laps.lap("the jobs run as in the restored Swarm");
    Ok(())
}

/// The position of the store: the version of a list from it.
async fn newest(context: &Context) -> Result<u64> {
    let list = context.api::<ConfigMap>().list(&ListParams::default().limit(1)).await?;
    let version = list.metadata.resource_version.context("a list without a version")?;
    Ok(version.parse()?)
}
