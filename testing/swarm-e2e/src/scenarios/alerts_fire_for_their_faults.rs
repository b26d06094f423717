//! A real Prometheus fires the alert of each fault of a pool, and no alert of another fault.
//!
//! The faults are a release that lasts, a worker that ends slowly or is missing, jobs that keep moving,
//! and a large view.

use anyhow::Result;
use serde_json::json;

use super::prometheus_reads_a_pool::Prometheus;
use super::session_pool::{Kind, Protocol, SessionPool};
use crate::figures::large::write;
use crate::scenario::Context;

/// The job that ignores SIGTERM, and the job that is moved again and again.
const STUBBORN: &str = "alert:stubborn";
const RESTLESS: &str = "alert:restless";
/// A pool that changes is not ready at once, and the rules wait for nothing here.
const NOT_READY: &str = "SwarmNotReady";
/// Rules whose thresholds a scenario cannot reach in time.
const SHORTER: [(&str, &str); 2] = [
    (
        "swarm_pool_oldest_release_seconds[3m])) > 600",
        "swarm_pool_oldest_release_seconds[3m])) > 3",
    ),
    ("|removed|suspended\"}[1h]", "|removed|suspended\"}[1m]"),
];
/// The number of edits of a pin. Each moves one of two jobs.
const FLIPS: usize = 12;
/// The number of jobs of the large view, and the length of each name.
const MANY: usize = 3_500;
const LONG: usize = 220;

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let mut pool = SessionPool::new(&context, "alert");
    pool.kind = Kind::ManagedSet;
    pool.managed = json!({"image": "busybox:stable"});
    let script = format!("[ $SWARM_JOB = {STUBBORN} ] && trap '' TERM; exec sleep 1000");
    pool.says = json!({"command": ["sh", "-c", script]});
    pool.spec = json!({"handover": {"stopTimeout": "7s"}});
    pool.jobs = [STUBBORN, RESTLESS].map(str::to_owned).into();
    pool.pins.insert(STUBBORN.to_owned(), 0);
    pool.apply().await?;
    let prometheus = Prometheus::start(&context, &SHORTER)?;
    let quiet = async || prometheus.fires(&[], &[], "running").await;
    quiet().await?;

    pool.pins.insert(STUBBORN.to_owned(), 1);
    pool.apply_swarm().await?;
    prometheus.fires(&["SwarmReleaseUnacknowledged"], &[NOT_READY], "").await?;
    quiet().await?;
    context.laps.lap("a release that lasts fires its alert");

    context.kubectl(&["delete", "pod", "alert-1", "--wait=false"]).await?;
    // The job is pinned to the slot of this worker.
    let ending =
        [NOT_READY, "SwarmWorkersNotReady", "SwarmJobsUnassigned", "SwarmReleaseUnacknowledged"];
    prometheus.fires(&["SwarmWorkersStuck"], &ending, "").await?;
    quiet().await?;
    context.laps.lap("a worker that ends slowly fires its alert");

    let quota = ["create", "quota", "full", "--hard=pods=2"];
    context.kubectl(&quota).await?;
    pool.workers = 3;
    pool.apply_swarm().await?;
    prometheus.fires(&["SwarmWorkersNotReady"], &[NOT_READY], "").await?;
    context.kubectl(&["delete", "quota", "full"]).await?;
    quiet().await?;
    context.laps.lap("a worker that is missing fires its alert");

    for n in 0..FLIPS {
        pool.pins.insert(RESTLESS.to_owned(), n % 2);
        pool.apply_swarm().await?;
        prometheus.fires(&[], &["SwarmJobsKeepMoving"], "running").await?;
    }
    prometheus.fires(&["SwarmJobsKeepMoving"], &[NOT_READY], "").await?;
    context.laps.lap("jobs that keep moving fire their alert");

    let mut wide = SessionPool::new(&context, "wide");
    (wide.protocol, wide.asks_for) = (Protocol::Plain, Protocol::Plain);
    let jobs: Vec<_> = (0..MANY).map(|n| format!("{n:0LONG$}")).collect();
    write(&context, "wide", &jobs).await?;
    let list = json!({"configMap": {"name": "wide", "key": "jobs"}});
    wide.spec = json!({"jobs": null, "jobSources": [list]});
    wide.apply().await?;
    let others = [NOT_READY, "SwarmWorkersNotReady", "SwarmWorkersStale", "SwarmJobsKeepMoving"];
    prometheus.fires(&["SwarmViewNearLimit"], &others, "").await?;
    context.laps.lap("a large view fires its alert");
    Ok(())
}
