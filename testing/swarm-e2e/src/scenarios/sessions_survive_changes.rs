//! Changes of a pool of sessions: edits, scaling, a rolling restart and the drain of a node, under
//! both policies side by side. Two workers never run one job, and no job pauses for long.

use anyhow::Result;

use super::nodes::node_of;
use super::session_pool::{GRACEFUL, SessionPool};
use crate::run_log::Moment;
use crate::scenario::Context;

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let [exclusive, patient] = SessionPool::of_both_policies(&context, 3);
    let (exclusive, patient) = tokio::try_join!(walk(exclusive), walk(patient))?;

    let node = node_of(&exclusive.pod(0).await?)?;
    let mark = Moment::now();
    context.cluster.drain(node, "app in (exclusive,patient)").await?;
    for pool in [&exclusive, &patient] {
        pool.at_rest().await?;
        pool.judge("a node was drained", mark, GRACEFUL)?;
    }
    context.cluster.uncordon(node).await
}

/// Changes the pool step by step, and returns it in its last state.
async fn walk(mut pool: SessionPool) -> Result<SessionPool> {
    let mark = Moment::now();
    pool.apply().await?;
    pool.at_rest().await?;
    pool.judge("began", mark, GRACEFUL)?;
    let jobs = |from: usize, to: usize| (from..to).map(|n| format!("job:{n}")).collect();
    for (what, from, to, workers) in [
        ("twelve other jobs", 0, 12, 3),
        ("three were removed and three added", 3, 15, 3),
        ("a fourth worker", 3, 15, 4),
        ("two workers", 3, 15, 2),
    ] {
        let mark = Moment::now();
        pool.jobs = jobs(from, to);
        pool.workers = workers;
        pool.apply().await?;
        pool.at_rest().await?;
        pool.judge(what, mark, GRACEFUL)?;
    }
    let mark = Moment::now();
    let set = format!("statefulset/{}", pool.name);
    pool.context.kubectl(&["rollout", "restart", &set]).await?;
    pool.context.kubectl(&["rollout", "status", &set, "--timeout=5m"]).await?;
    pool.at_rest().await?;
    pool.judge("a rolling restart", mark, GRACEFUL)?;
    Ok(pool)
}
