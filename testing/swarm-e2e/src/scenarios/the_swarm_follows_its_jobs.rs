//! `spec.autoscale`: the number of workers follows the jobs, from two to ten and back. The number
//! stays within its bounds if the list swings, if jobs find no room, and if the cluster takes no
//! more pods. No job is lost on the way.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::ResourceQuota;
use serde_json::{Value, json};
use swarm_adapters_k8s::status::trouble;
use swarm_client::api::Swarm;

use super::session_pool::{GRACEFUL, Kind, Policy, SessionPool, TICK};
use crate::run_log::Moment;
use crate::scenario::Context;
use crate::until::until;

/// The time for which fewer workers must have been enough.
const COOLDOWN: Duration = Duration::from_secs(8);
/// The number of jobs for each worker.
const PER_WORKER: usize = 3;
/// The smallest and the largest number of workers.
const BOUNDS: [usize; 2] = [2, 10];

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let mut pool = pool(&context, "follows", Kind::Managed);
    pool.apply().await?;
    pool.at_rest_on(BOUNDS[0]).await?;
    grows_and_shrinks(&pool, BOUNDS[1]).await?;
    swings(&pool).await?;
    finds_no_room(&pool).await?;
    gets_no_pods(&pool).await?;
    context.kubectl(&["delete", "swarm", "follows"]).await?;
    of_a_stateful_set(&context, &mut pool).await
}

/// A pool under `Exclusive`, whose six jobs need two workers.
fn pool(context: &Context, name: &str, kind: Kind) -> SessionPool {
    let mut pool = SessionPool::new(context, name);
    (pool.kind, pool.policy) = (kind, Policy::Exclusive);
    pool.spec = json!({"replicas": null, "autoscale": {
        "min": BOUNDS[0], "max": BOUNDS[1], "jobsPerWorker": PER_WORKER,
        "cooldown": format!("{}s", COOLDOWN.as_secs()),
    }});
    pool
}

/// The same pool with this number of jobs.
fn with_jobs(pool: &SessionPool, count: usize) -> SessionPool {
    let jobs: BTreeSet<_> = (0..count).map(|n| format!("{}:{n}", pool.name)).collect();
    SessionPool { jobs, ..pool.clone() }
}

/// The replicas of the workload, and the number of changes of its spec.
async fn workload(pool: &SessionPool) -> Result<(usize, i64)> {
    let (replicas, metadata) = if matches!(pool.kind, Kind::Managed | Kind::Deployment) {
        let found = pool.context.api::<Deployment>().get(&pool.name).await?;
        (found.spec.and_then(|spec| spec.replicas), found.metadata)
    } else {
        let found = pool.context.api::<StatefulSet>().get(&pool.name).await?;
        (found.spec.and_then(|spec| spec.replicas), found.metadata)
    };
    let replicas = usize::try_from(replicas.context("no replicas")?)?;
    Ok((replicas, metadata.generation.unwrap_or_default()))
}

/// Waits until the workload has this number of replicas, and returns the time since `change`.
async fn scaled(pool: &SessionPool, replicas: usize, change: Instant) -> Result<Duration> {
    until(&format!("{} to have {replicas} replicas", pool.name), || async {
        let (found, _) = workload(pool).await?;
        ensure!(found == replicas, "{found}");
        Ok(Some(change.elapsed()))
    })
    .await
}

/// Grows the list until its jobs take `most` workers, and shrinks it again.
async fn grows_and_shrinks(pool: &SessionPool, most: usize) -> Result<()> {
    let (mark, change) = (Moment::now(), Instant::now());
    let large = with_jobs(pool, most * PER_WORKER);
    large.apply_swarm().await?;
    let grown = scaled(pool, most, change).await?;
    large.at_rest_on(most).await?;
    let running = change.elapsed();
    large.judge(&format!("2 → {most} workers"), mark, 2 * GRACEFUL + TICK)?;

    let (back, change) = (Moment::now(), Instant::now());
    pool.apply_swarm().await?;
    let shrunk = scaled(pool, BOUNDS[0], change).await?;
    ensure!(COOLDOWN <= shrunk, "{shrunk:?} is no cooldown of {COOLDOWN:?}");
    pool.at_rest_on(BOUNDS[0]).await?;
    pool.judge(&format!("{most} → 2 workers"), back, GRACEFUL + TICK)?;
    pool.judge(&format!("2 → {most} → 2 workers"), mark, 2 * GRACEFUL + TICK)?;
    let [grown, running, shrunk] = [grown, running, shrunk].map(|it| it.as_millis());
    pool.context.laps.lap(format!(
        "{} {most} asked for after {grown} ms, all run after {running} ms, fewer after {shrunk} ms",
        pool.name
    ));
    let swarm = pool.context.api::<Swarm>().get(&pool.name).await?;
    ensure!(swarm.spec.replicas.is_none(), "the Swarm's own number was written");
    Ok(())
}

/// Swings the list with periods of one second to six. The pool keeps eight workers meanwhile, and
/// is scaled up once and down once.
async fn swings(pool: &SessionPool) -> Result<()> {
    let mark = Moment::now();
    let (_, before) = workload(pool).await?;
    let large = with_jobs(pool, 8 * PER_WORKER);
    large.apply_swarm().await?;
    scaled(&large, 8, Instant::now()).await?;
    for (half_ms, times) in [(500, 8), (1_500, 3), (3_000, 2)] {
        let mut ticks = tokio::time::interval(Duration::from_millis(half_ms));
        ticks.tick().await;
        for _ in 0..times {
            for list in [pool, &large] {
                list.apply_swarm().await?;
                ticks.tick().await;
                let (replicas, generation) = workload(pool).await?;
                ensure!(replicas == 8, "{replicas} replicas while the list swings");
                ensure!(generation <= before + 1, "the pool was scaled more than once");
            }
        }
    }
    pool.apply_swarm().await?;
    scaled(pool, BOUNDS[0], Instant::now()).await?;
    pool.at_rest_on(BOUNDS[0]).await?;
    let (_, after) = workload(pool).await?;
    ensure!(after == before + 2, "up once and down once, not {}", after - before);
    pool.judge("a list that swings", mark, 2 * GRACEFUL + TICK)
}

/// Makes jobs that take a whole worker each, more than the pool may have workers.
async fn finds_no_room(pool: &SessionPool) -> Result<()> {
    let whole = |count: usize| {
        let job = |n| json!({"name": format!("{}:{n}", pool.name), "share": 100});
        json!({"spec": {"jobs": (0..count).map(job).collect::<Vec<_>>()}}).to_string()
    };
    let patch = async |patch: String| {
        let args = ["patch", "swarm", &pool.name, "--type=merge", "--patch", &patch];
        pool.context.kubectl(&args).await
    };
    patch(whole(12)).await?;
    scaled(pool, BOUNDS[1], Instant::now()).await?;
    until("ten jobs to run", || async {
        let status = pool.context.api::<Swarm>().get(&pool.name).await?.status.unwrap_or_default();
        let found = (status.desired_workers, status.workers_ready, status.assigned);
        ensure!(found == (Some(10), 10, 10), "{found:?}");
        Ok(Some(()))
    })
    .await?;
    let message = limited(pool, "AtMaximum").await?;
    for part in ["12 jobs need 12 workers", "max is 10", "2 jobs have no worker"] {
        ensure!(message.contains(part), "{part}: {message}");
    }
    // By their number two workers would be enough, but each job takes a whole worker.
    patch(whole(4)).await?;
    scaled(pool, 4, Instant::now()).await?;
    pool.apply_swarm().await?;
    scaled(pool, BOUNDS[0], Instant::now()).await?;
    pool.at_rest_on(BOUNDS[0]).await.map(drop)
}

/// The sentence of the problem `AutoscaleLimited`, once it has this cause.
async fn limited(pool: &SessionPool, cause: &str) -> Result<String> {
    until(&format!("AutoscaleLimited to be {cause}"), || async {
        let swarm = pool.context.api::<Swarm>().get(&pool.name).await?;
        let status = swarm.status.unwrap_or_default();
        let found = trouble(&status, "AutoscaleLimited").context("there is none")?;
        ensure!(found.starts_with(&format!("{cause}: ")), "{found}");
        Ok(Some(found.to_owned()))
    })
    .await
}

/// Allows the namespace four pods. The Swarm asks for six workers, and keeps asking.
async fn gets_no_pods(pool: &SessionPool) -> Result<()> {
    let quota = |hard: Value| {
        json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"},
            "spec": {"hard": hard},
        })
    };
    pool.context.apply(&quota(json!({"pods": "4"})).to_string()).await?;
    // If pods end while the quota is counted for the first time, more than four pods may get in.
    until("the quota to count the two workers alone", || async {
        let quota = pool.context.api::<ResourceQuota>().get("few").await?;
        let used = quota.status.and_then(|status| status.used).unwrap_or_default();
        let used = used.get("pods").map_or("not counted", |used| &used.0);
        ensure!(used == "2", "{used}");
        Ok(Some(()))
    })
    .await?;
    let large = with_jobs(pool, 6 * PER_WORKER);
    let mark = Moment::now();
    large.apply_swarm().await?;
    scaled(pool, 6, Instant::now()).await?;
    let message = limited(pool, "WorkersMissing").await?;
    ensure!(message.contains("autoscale asks for 6 workers and "), "{message}");
    ensure!(
        message.contains("pods are refused: ") && message.contains("exceeded quota"),
        "{message}"
    );
    large.at_rest_on(4).await?;
    let (_, before) = workload(pool).await?;
    tokio::time::sleep(COOLDOWN + Duration::from_secs(3)).await;
    let (replicas, after) = workload(pool).await?;
    ensure!((replicas, after) == (6, before), "{replicas} replicas, changed {}", after - before);
    large.judge("a quota", mark, 2 * GRACEFUL + TICK)?;
    pool.apply_swarm().await?;
    scaled(pool, BOUNDS[0], Instant::now()).await?;
    pool.at_rest_on(BOUNDS[0]).await?;
    pool.context.kubectl(&["delete", "resourcequota", "few"]).await.map(drop)
}

/// Scales a StatefulSet of the user, whose top slots are emptied.
async fn of_a_stateful_set(context: &Context, before: &mut SessionPool) -> Result<()> {
    *before = pool(context, "rows", Kind::StatefulSet);
    before.apply().await?;
    before.at_rest_on(BOUNDS[0]).await?;
    grows_and_shrinks(before, 4).await
}
