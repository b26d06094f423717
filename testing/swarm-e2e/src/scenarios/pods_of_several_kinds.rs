//! Pods that are created one by one are sessions of one pool under `Exclusive`. They run the
//! shipped worker, a program of twenty lines around its library, and a worker in Go. Each takes
//! over from the others.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::session_pool::{Kind, Policy, SHORT_GRACEFUL, SILENCE, SessionPool, TICK};
use crate::images::{EMBEDDED, GO_WORKER};
use crate::run_log::Moment;
use crate::scenario::Context;

const POOL: &str = "mixed";

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let mut pool = SessionPool::new(&context, POOL).with_short_leases();
    (pool.kind, pool.policy) = (Kind::Pods, Policy::Exclusive);
    pool.apply().await?;
    pool.make_pod("shipped-a", |_| {}).await?;
    pool.make_pod("embedded-a", into_embedded).await?;
    pool.make_pod("go-a", into_go).await?;
    let three = pool.at_rest_on(3).await?;
    let workers: BTreeSet<_> = three.values().map(|run| run.worker.as_str()).collect();
    ensure!(workers == ["embedded-a", "go-a", "shipped-a"].into(), "{three:?}");

    leaves(&pool, "go-a", 2).await?;
    let mark = Moment::now();
    pool.make_pod("go-b", into_go).await?;
    pool.at_rest_on(3).await?;
    pool.judge("another worker in Go was added", mark, SHORT_GRACEFUL)?;
    leaves(&pool, "shipped-a", 2).await?;
    leaves(&pool, "embedded-a", 1).await?;
    let mark = Moment::now();
    pool.make_pod("embedded-b", into_embedded).await?;
    pool.at_rest_on(2).await?;
    pool.judge("another program was added", mark, SHORT_GRACEFUL)?;

    let mark = Moment::now();
    let go = context.api::<Pod>().get("go-b").await?;
    let frozen = context.cluster.freeze_pod(&go).await?;
    pool.at_rest_on(1).await?;
    pool.judge("the worker in Go is frozen", mark, SILENCE + TICK)?;
    let thawed = Moment::now();
    frozen.thaw()?;
    // The worker in Go ends, and the kubelet restarts it.
    pool.at_rest_on(2).await?;
    pool.judge("it resumed", thawed, SHORT_GRACEFUL)
}

/// Deletes a pod gracefully. The other workers take over its jobs.
async fn leaves(pool: &SessionPool, pod: &str, left: usize) -> Result<()> {
    let mark = Moment::now();
    pool.context.api::<Pod>().delete(pod, &DeleteParams::default()).await?;
    let after = pool.at_rest_on(left).await?;
    ensure!(after.values().all(|run| run.worker != pod), "{pod} still runs: {after:?}");
    pool.judge(&format!("{pod} left"), mark, SHORT_GRACEFUL)
}

/// Makes the pod run the program of a user, which takes the same arguments.
fn into_embedded(pod: &mut Value) {
    let worker = &mut pod["spec"]["containers"][0];
    worker["image"] = EMBEDDED.into();
    if let Some(args) = worker["args"].as_array_mut() {
        args.retain(|arg| arg != "run" && arg != "--runner=log");
    }
}

/// Makes the pod run the worker in Go, which has no probe.
fn into_go(pod: &mut Value) {
    let worker = &mut pod["spec"]["containers"][0];
    worker["image"] = GO_WORKER.into();
    worker["args"] = json!([
        "--lease=6s",
        "--renew=1s",
        "--stop-timeout=1s",
        "--grace=10s",
        format!("--run-log=/run-logs/{POOL}.log"),
    ]);
    worker["env"] = json!([
        {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]);
    worker["readinessProbe"] = Value::Null;
}
