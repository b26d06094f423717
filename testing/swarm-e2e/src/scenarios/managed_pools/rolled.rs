//! A rollout of a managed pool moves each job once. A change that needs no new pods makes none.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use swarm_adapters_host::runlog::judge::RunName;

use super::{made_for, pods_of};
use crate::images::NEXT_WORKER;
use crate::run_log::Moment;
use crate::scenario::Context;
use crate::scenarios::session_pool::{GRACEFUL, Kind, Policy, SessionPool, TICK};
use crate::until::until;

/// The longest allowed pause of a job whose session ends before its pod is replaced, because the
/// token of the session is void.
const UNTIL_RENEWED: Duration = Duration::from_secs(20);

pub(crate) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    for (name, kind) in [("deployment", Kind::Managed), ("set", Kind::ManagedSet)] {
        let mut pool = SessionPool::new(&context, name);
        (pool.kind, pool.policy, pool.workers) = (kind, Policy::Exclusive, 3);
        // A successor may take a while to be ready.
        pool.return_grace = "30s";
        pool.apply().await?;
        let runs = pool.at_rest().await?;
        let before = pods_of(&context, name).await?;
        pool.managed = json!({"service": {"port": 80}});
        pool.apply().await?;
        until("the Service to be made", || async {
            context.kubectl(&["get", "service", name]).await.map(Some)
        })
        .await?;
        ensure!(pods_of(&context, name).await? == before, "a Service needs no new pods");
        let runs =
            rolls(&mut pool, json!({"service": {"port": 80}, "port": 9191}), runs, "port").await?;
        let after = pods_of(&context, name).await?;
        ensure!(before.is_disjoint(&after), "some pods are the old ones");
        let files = json!({"port": 9191, "files": {"data": {"a": "b"}}});
        let runs = rolls(&mut pool, files, runs, "files").await?;
        let runs = restarts(&pool, name, runs).await?;
        renews_its_account(&pool, name, runs).await?;
    }
    changes_while_it_rolls(&context).await
}

/// Changes port, files and image one after the other, each while the pods of the previous change
/// still start. Each job ends up on a pod of the last change, and no job pauses meanwhile.
async fn changes_while_it_rolls(context: &Context) -> Result<()> {
    let mut pool = SessionPool::new(context, "hasty");
    (pool.kind, pool.policy, pool.workers) = (Kind::Managed, Policy::Exclusive, 3);
    pool.return_grace = "30s";
    pool.apply().await?;
    let runs = pool.at_rest().await?;
    let (mut before, mark) = (pods_of(context, "hasty").await?, Moment::now());
    let changes = [
        ("port", json!(9191)),
        ("files", json!({"data": {"a": "b"}})),
        ("image", json!(NEXT_WORKER)),
    ];
    for (field, value) in changes {
        pool.managed[field] = value;
        pool.apply().await?;
        before = until(&format!("pods with another {field}"), || {
            let before = before.clone();
            async move {
                let now = pods_of(context, "hasty").await?;
                ensure!(!now.is_subset(&before), "there are none");
                Ok(Some(now))
            }
        })
        .await?;
    }
    until("the last rollout to end", || async {
        let pods = context.api::<Pod>().list(&made_for("hasty")).await?;
        let image = |pod: &Pod| pod.spec.as_ref()?.containers.first()?.image.clone();
        let old = pods.iter().filter(|pod| image(pod).as_deref() != Some(NEXT_WORKER));
        ensure!(pods.items.len() == 3, "there are {} pods", pods.items.len());
        ensure!(old.count() == 0, "some are of another image");
        Ok(Some(()))
    })
    .await?;
    let after = pool.at_rest().await?;
    pool.judge("changes while it rolls", mark, GRACEFUL)?;
    let most = runs.iter().map(|(job, was)| after[job].token.saturating_sub(was.token)).max();
    context.laps.lap(format!("three changes in a row: a job was granted {most:?} times at most"));
    ensure!(most.is_some_and(|most| (1..=3).contains(&most)), "{most:?} grants: {after:?}");
    Ok(())
}

/// Changes the pool, and judges the rollout that follows.
async fn rolls(
    pool: &mut SessionPool,
    managed: Value,
    runs: BTreeMap<String, RunName>,
    what: &str,
) -> Result<BTreeMap<String, RunName>> {
    let mark = Moment::now();
    pool.managed = managed;
    pool.apply().await?;
    judged(pool, &runs, mark, GRACEFUL, what).await
}

async fn restarts(
    pool: &SessionPool,
    name: &str,
    runs: BTreeMap<String, RunName>,
) -> Result<BTreeMap<String, RunName>> {
    let kind = if pool.kind == Kind::Managed { "deployment" } else { "statefulset" };
    let mark = Moment::now();
    pool.context.kubectl(&["rollout", "restart", &format!("{kind}/{name}")]).await?;
    judged(pool, &runs, mark, GRACEFUL, "kubectl rollout restart").await
}

/// Deletes the account of the pool. It is recreated as another account, and Kubernetes refuses the
/// tokens of the previous account some ten seconds later. The pods are replaced, and the jobs run
/// on.
async fn renews_its_account(
    pool: &SessionPool,
    name: &str,
    runs: BTreeMap<String, RunName>,
) -> Result<()> {
    let (before, mark) = (pods_of(&pool.context, name).await?, Moment::now());
    pool.context.kubectl(&["delete", "serviceaccount", name]).await?;
    judged(pool, &runs, mark, UNTIL_RENEWED, "another account").await?;
    let after = pods_of(&pool.context, name).await?;
    ensure!(before.is_disjoint(&after), "some pods are the old ones");
    Ok(())
}

/// Waits until every job runs elsewhere. Checks that each job was granted once, and paused for no
/// longer than `idle`.
async fn judged(
    pool: &SessionPool,
    runs: &BTreeMap<String, RunName>,
    mark: Moment,
    idle: Duration,
    what: &str,
) -> Result<BTreeMap<String, RunName>> {
    let after = until(&format!("every job to have moved: {what}"), || async {
        let after = pool.at_rest().await?;
        let stays = |(job, was): (&String, &RunName)| after[job].session == was.session;
        ensure!(!runs.iter().any(stays), "some jobs are where they were: {after:?}");
        Ok(Some(after))
    })
    .await?;
    pool.judge(what, mark, idle + TICK)?;
    // Each pod of a StatefulSet ends before its successor starts. Its jobs go to other pods
    // meanwhile, so they may be granted more than once.
    for (job, was) in runs.iter().filter(|_| pool.kind == Kind::Managed) {
        let grants = after[job].token.saturating_sub(was.token);
        ensure!(grants == 1, "{what}: {job} was granted {grants} times: {was:?}, {:?}", after[job]);
    }
    Ok(after)
}
