//! A Deployment of session workers under `Exclusive`. In a rollout every job moves exactly once,
//! from a pod to its successor, with surge and without. A pod without a successor hands its jobs to
//! the other pods before it ends. Two workers never run one job.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use swarm_adapters_host::runlog::judge::RunName;

use super::session_pool::{Kind, Policy, SessionPool, TICK};
use crate::run_log::Moment;
use crate::scenario::Context;
use crate::until::until;

/// The longest allowed pause of a job while its pod is replaced.
const ROLLOUT: Duration = Duration::from_secs(10);

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let mut pool = SessionPool::new(&context, "rolled");
    (pool.kind, pool.policy, pool.workers) = (Kind::Deployment, Policy::Exclusive, 3);
    // A successor may take a while to be ready: jobs wait for it for a quarter of these times.
    (pool.return_grace, pool.end_grace_s) = ("10m", 600);
    pool.apply().await?;
    let mut runs = pool.at_rest().await?;
    for (surge, unavailable) in [("1", "0"), ("0", "1")] {
        let strategy = format!(
            r#"{{"spec": {{"strategy": {{"type": "RollingUpdate", "rollingUpdate":
                {{"maxSurge": {surge}, "maxUnavailable": {unavailable}}}}}}}}}"#
        );
        context.kubectl(&["patch", "deployment", "rolled", "--patch", &strategy]).await?;
        let mark = Moment::now();
        context.kubectl(&["rollout", "restart", "deployment/rolled"]).await?;
        context.kubectl(&["rollout", "status", "deployment/rolled", "--timeout=5m"]).await?;
        // The last pod may still be handing over when the rollout is reported as done.
        let after = until("every job to have moved", || async {
            let after = pool.at_rest().await?;
            let stays = |(job, was): (&String, &RunName)| after[job].session == was.session;
            ensure!(!runs.iter().any(stays), "some jobs are where they were: {after:?}");
            Ok(Some(after))
        })
        .await?;
        let what = format!("a rollout with surge {surge}, {unavailable} missing");
        pool.judge(&what, mark, ROLLOUT + TICK)?;
        moved_once(&runs, &after)?;
        runs = after;
    }
    is_not_replaced(&context, &mut pool, &runs).await
}

/// Deletes a pod that nothing can replace, since a quota refuses every other pod.
async fn is_not_replaced(
    context: &Context,
    pool: &mut SessionPool,
    runs: &BTreeMap<String, RunName>,
) -> Result<()> {
    pool.return_grace = "8s";
    pool.apply_swarm().await?;
    context.kubectl(&["create", "quota", "full", "--hard=pods=0"]).await?;
    let path = "--output=jsonpath={.status.hard.pods}";
    until("the quota to count", || async {
        Ok((context.kubectl(&["get", "quota", "full", path]).await? == "0").then_some(()))
    })
    .await?;
    let run = runs.values().next().context("no job runs")?;
    let mark = Moment::now();
    context.kubectl(&["delete", "pod", &run.worker, "--wait=false"]).await?;
    pool.at_rest_on(pool.workers - 1).await?;
    pool.judge("a pod without a successor was deleted", mark, ROLLOUT + TICK)?;
    context.kubectl(&["delete", "quota", "full"]).await?;
    pool.at_rest().await?;
    Ok(())
}

fn moved_once(before: &BTreeMap<String, RunName>, after: &BTreeMap<String, RunName>) -> Result<()> {
    for (job, was) in before {
        let is = after.get(job);
        let grants = is.map_or(0, |is| is.token.saturating_sub(was.token));
        ensure!(grants == 1, "{job} was granted {grants} times: {was:?} became {is:?}");
    }
    Ok(())
}
