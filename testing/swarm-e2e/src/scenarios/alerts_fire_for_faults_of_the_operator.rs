//! A real Prometheus fires the alert of each fault around the operator, and no alert of another fault.
//!
//! Workers get a stale or broken view, or start a job late. The API server refuses writes, is away,
//! or is slow. A ledger is large. `SwarmTurnsPanicked` needs a defect of the operator, which a
//! scenario cannot cause, so promtool covers it.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use swarm_client::api::Swarm;

use super::prometheus_reads_a_pool::Prometheus;
use super::session_pool::{Kind, Policy, Protocol, SessionPool};
use crate::figures::large::write;
use crate::operator;
use crate::run_log::Moment;
use crate::scenario::Context;
use crate::until::{until, until_within};

/// The pool of most faults.
const POOL: &str = "plain";
/// A pool that changes, or whose worker does not answer, is not ready, and the rules wait for nothing
/// here.
const NOT_READY: [&str; 2] = ["SwarmNotReady", "SwarmWorkersNotReady"];
/// A time after which a worker that answers is not stale any more.
const LASTING: Duration = Duration::from_secs(8);
/// The component that is away or slow.
const SERVER: &str = "apiserver";
/// Rules whose thresholds a scenario cannot reach in time.
const SHORTER: [(&str, &str); 3] = [
    ("swarm_lease_age_seconds) > 60", "swarm_lease_age_seconds) > 12"),
    (
        "swarm_job_standstill_seconds_bucket[30m]))\n            ) > 60",
        "swarm_job_standstill_seconds_bucket[30m]))\n            ) > 5",
    ),
    ("swarm_pool_ledger_bytes[3m])) > 960000", "swarm_pool_ledger_bytes[3m])) > 300000"),
];
/// A time without the API server in which every turn under way ends. The ranges of the rules then
/// see no turn any more.
const AWAY: Duration = Duration::from_secs(32);
/// A pause of the API server that makes a turn slow, and ends before the Lease of the replica does.
const PAUSE: Duration = Duration::from_millis(6_500);
/// The largest number of pauses until one of them meets a turn.
const PAUSES: usize = 12;
/// The longest time from the end of a slow turn until its alert.
const SHOWN_WITHIN: Duration = Duration::from_secs(4);
/// The time for which no worker runs a job: its next worker is frozen, and keeps its Lease.
const STANDSTILL: Duration = Duration::from_secs(8);
/// The number of jobs of the large ledger, and the length of each name. The view stays below its own
/// limit.
const MANY: usize = 2_000;
const LONG: usize = 220;

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let mut pool = SessionPool::new(&context, POOL);
    pool.kind = Kind::ManagedSet;
    (pool.protocol, pool.asks_for) = (Protocol::Plain, Protocol::Plain);
    // A worker that does not answer for a moment keeps its jobs.
    pool.return_grace = "60s";
    pool.spec = json!({"worker": {"versionEndpoint": {"port": 9090}}});
    pool.apply().await?;
    let mut prometheus = Prometheus::start(&context, &SHORTER)?.about_operator();
    quiet(&prometheus).await?;
    context.laps.lap("a settled pool fires no alert");

    stale(&mut pool, &prometheus).await?;
    unreadable(&context, &prometheus).await?;
    refused(&context, &prometheus).await?;
    away(&context, &mut prometheus).await?;
    slow(&context, &prometheus).await?;
    late(&context, &prometheus).await?;
    large(&context, &prometheus).await
}

/// Waits until no alert fires.
async fn quiet(prometheus: &Prometheus) -> Result<()> {
    prometheus.fires(&[], &[], "published").await
}

/// Freezes a worker, and gives it another job.
async fn stale(pool: &mut SessionPool, prometheus: &Prometheus) -> Result<()> {
    let context = pool.context.clone();
    let frozen = context.cluster.freeze_pod(&pool.pod(0).await?).await?;
    let job = format!("{POOL}:more");
    pool.pins.insert(job.clone(), 0);
    pool.jobs.insert(job);
    pool.apply_swarm().await?;
    prometheus.fires(&["SwarmWorkersStale"], &NOT_READY, "").await?;
    // After any edit a worker is stale for a moment.
    Moment::now().passed(LASTING).await?;
    prometheus.fires(&["SwarmWorkersStale"], &NOT_READY, "").await?;
    frozen.thaw()?;
    quiet(prometheus).await?;
    context.laps.lap("a worker without its newest jobs fires its alert");
    Ok(())
}

/// Writes garbage into the view while no operator repairs it.
async fn unreadable(context: &Context, prometheus: &Prometheus) -> Result<()> {
    operator::stop(&context.cluster).await?;
    let garbage = Patch::Merge(json!({"data": {"config.yml": "workloads: ]"}}));
    let view = format!("{POOL}-config");
    context.api::<ConfigMap>().patch(&view, &PatchParams::default(), &garbage).await?;
    // The kubelet reads the mounts of a pod again once an annotation changes.
    let pod = format!("{POOL}-0");
    context.kubectl(&["annotate", "pod", &pod, "example.com/looked-at=now"]).await?;
    prometheus.fires(&["SwarmWorkerViewUnreadable"], &["SwarmOperatorAbsent"], "").await?;
    operator::go_on(&context.cluster).await?;
    quiet(prometheus).await?;
    context.laps.lap("a view that is garbage fires its alert");
    Ok(())
}

/// Lets a quota refuse the view of another pool.
async fn refused(context: &Context, prometheus: &Prometheus) -> Result<()> {
    context.kubectl(&["create", "quota", "full", "--hard=count/configmaps=0"]).await?;
    until("the quota to count", || async {
        let path = "--output=jsonpath={.status.hard.count/configmaps}";
        Ok((context.kubectl(&["get", "quota", "full", path]).await? == "0").then_some(()))
    })
    .await?;
    let mut other = SessionPool::new(context, "refused");
    (other.kind, other.workers) = (Kind::ManagedSet, 1);
    (other.protocol, other.asks_for) = (Protocol::Plain, Protocol::Plain);
    other.apply().await?;
    prometheus.fires(&["SwarmWritesRefused"], &NOT_READY, "").await?;
    context.kubectl(&["delete", "quota", "full"]).await?;
    quiet(prometheus).await?;
    context.kubectl(&["delete", "swarm", "refused"]).await?;
    context.laps.lap("refused writes fire their alert");
    Ok(())
}

/// Takes the API server away for longer than any turn lasts. The alert stays until it is back.
async fn away(context: &Context, prometheus: &mut Prometheus) -> Result<()> {
    let alert = ["SwarmApiServerUnavailable"];
    // Some turns end late.
    let may = ["SwarmTurnsSlow"];
    prometheus.finds_targets = false;
    context.cluster.components.freeze(SERVER)?;
    let mark = Moment::now();
    let lasting = async {
        prometheus.fires(&alert, &may, "").await?;
        mark.passed(AWAY).await?;
        prometheus.fires(&alert, &[], "").await
    };
    let lasted = lasting.await;
    context.cluster.components.thaw(SERVER)?;
    lasted?;
    prometheus.finds_targets = true;
    context.cluster.nodes_ready().await?;
    quiet(prometheus).await?;
    context.laps.lap("an API server that is away fires its alert until it is back");
    Ok(())
}

/// Pauses the API server right after an edit, until a pause meets a turn.
async fn slow(context: &Context, prometheus: &Prometheus) -> Result<()> {
    for pause in 0..PAUSES {
        let grace = format!("{}s", 61 + pause);
        let edit = Patch::Merge(json!({"spec": {"rebalance": {"returnGrace": grace}}}));
        context.api::<Swarm>().patch(POOL, &PatchParams::default(), &edit).await?;
        context.cluster.components.freeze(SERVER)?;
        let waited = Moment::now().passed(PAUSE).await;
        context.cluster.components.thaw(SERVER)?;
        waited?;
        let is_slow = until_within("a slow turn", SHOWN_WITHIN, || async {
            Ok(prometheus.has_fired("SwarmTurnsSlow").await?.then_some(()))
        });
        if is_slow.await.is_ok() {
            context.laps.lap(format!("{} pauses until a turn was slow", pause + 1));
            prometheus.fires(&["SwarmTurnsSlow"], &NOT_READY, "").await?;
            context.cluster.nodes_ready().await?;
            quiet(prometheus).await?;
            context.laps.lap("slow turns fire their alert");
            return Ok(());
        }
    }
    bail!("no turn was slow during {PAUSES} pauses of the API server")
}

/// Moves a job to a worker that starts it late. A lost worker would not fire the alert: the time of
/// its job counts from the end of the Lease only.
async fn late(context: &Context, prometheus: &Prometheus) -> Result<()> {
    let mut pool = SessionPool::new(context, "late");
    pool.policy = Policy::Exclusive;
    pool.return_grace = "60s";
    let job = "late:0".to_owned();
    pool.pins.insert(job.clone(), 0);
    pool.apply().await?;
    pool.runs_on(&job, 0).await?;
    prometheus.fires(&[], &[], "running").await?;
    let frozen = context.cluster.freeze_pod(&pool.pod(1).await?).await?;
    let mark = Moment::now();
    pool.pins.insert(job.clone(), 1);
    pool.apply_swarm().await?;
    mark.passed(STANDSTILL).await?;
    frozen.thaw()?;
    let others = [&NOT_READY[..], &["SwarmWorkersStale"]].concat();
    prometheus.fires(&["SwarmStandstillLong"], &others, "").await?;
    let overlaps = pool.history()?.overlaps()?;
    ensure!(overlaps.is_empty(), "{overlaps:?}");
    prometheus.fires(&[], &[], "running").await?;
    context.laps.lap("a job that starts late fires its alert");
    Ok(())
}

/// Fills a ledger, and removes it again.
async fn large(context: &Context, prometheus: &Prometheus) -> Result<()> {
    let mut wide = SessionPool::new(context, "wide");
    (wide.protocol, wide.asks_for) = (Protocol::Plain, Protocol::Plain);
    let jobs: Vec<_> = (0..MANY).map(|n| format!("{n:0LONG$}")).collect();
    write(context, "wide", &jobs).await?;
    let list = json!({"configMap": {"name": "wide", "key": "jobs"}});
    wide.spec = json!({"jobs": null, "jobSources": [list]});
    wide.apply().await?;
    let others = [&NOT_READY[..], &["SwarmWorkersStale"]].concat();
    prometheus.fires(&["SwarmLedgerNearLimit"], &others, "").await?;
    context.kubectl(&["delete", "swarm/wide", "statefulset/wide"]).await?;
    quiet(prometheus).await?;
    context.laps.lap("a large ledger fires its alert");
    Ok(())
}
