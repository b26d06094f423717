//! Jobs and whole Swarms are suspended and go on later, under `Exclusive`. Busy run-to-completion
//! jobs are not moved for balance.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use swarm_client::api::Swarm;

use super::session_pool::{Policy, SessionPool};
use crate::run_log::Moment;
use crate::scenario::Context;
use crate::until::until;

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let mut pool = SessionPool::new(&context, "feeds");
    pool.policy = Policy::Exclusive;
    pool.apply().await?;
    let before = pool.at_rest().await?;

    let all = pool.jobs.clone();
    let rest: BTreeSet<_> = all.iter().skip(2).cloned().collect();
    let start = Instant::now();
    pool.patch_swarm(&json!({"jobs": jobs(&all, &rest)})).await?;
    pool.runs_exactly(&rest).await?;
    let ms = start.elapsed().as_millis();
    pool.counts(2, "Settled", "4 jobs on 2 workers; 2 are suspended").await?;
    context.laps.lap(format!("two jobs suspended: nobody runs them after {ms} ms"));
    pool.patch_swarm(&json!({"jobs": jobs(&all, &all)})).await?;
    let after = pool.at_rest().await?;
    let rose = all.iter().take(2).all(|job| before[job].token < after[job].token);
    ensure!(rose, "{before:?} -> {after:?}");
    context.laps.lap("they run again, under higher tokens");

    pool.patch_swarm(&json!({"suspend": true})).await?;
    pool.runs_exactly(&BTreeSet::new()).await?;
    pool.counts(6, "Suspended", "all 6 jobs are suspended").await?;
    let quiet = Moment::now();
    context.kubectl(&["delete", "pod", "feeds-0"]).await?;
    context.kubectl(&["rollout", "status", "statefulset/feeds", "--timeout=5m"]).await?;
    pool.settles_on(2).await?;
    ensure!(pool.history()?.since(quiet).next().is_none(), "a worker that began runs something");
    let start = Instant::now();
    pool.patch_swarm(&json!({"suspend": false})).await?;
    pool.at_rest().await?;
    let ms = start.elapsed().as_millis();
    context.laps.lap(format!("the Swarm was suspended, and goes on: at rest after {ms} ms"));

    busy_jobs_stay(&pool).await?;
    let verdict = pool.verified(&[]).await?;
    context.laps.lap(format!("swarm verify: {verdict}"));
    Ok(())
}

/// All jobs for a spec; the jobs that are not in `run` are suspended.
fn jobs(all: &BTreeSet<String>, run: &BTreeSet<String>) -> Vec<Value> {
    let job = |name: &String| json!({"name": name, "suspend": !run.contains(name)});
    all.iter().map(job).collect()
}

/// Adds a worker, which gets no run-to-completion job that has begun. Then removes workers, whose
/// jobs move.
async fn busy_jobs_stay(pool: &SessionPool) -> Result<()> {
    let once = |name: &String| json!({"name": name, "runOnce": true});
    let finite: Vec<_> = pool.jobs.iter().map(once).collect();
    pool.patch_swarm(&json!({"jobs": finite})).await?;
    pool.at_rest().await?;
    let (before, mark) = (pool.history()?.running(&pool.jobs)?, Moment::now());
    pool.context.kubectl(&["scale", "statefulset/feeds", "--replicas=3"]).await?;
    pool.context.kubectl(&["rollout", "status", "statefulset/feeds", "--timeout=5m"]).await?;
    pool.settles_on(3).await?;
    let after = pool.history()?.running(&pool.jobs)?;
    ensure!(before == after, "busy jobs moved for balance: {before:?} -> {after:?}");
    pool.context.kubectl(&["scale", "statefulset/feeds", "--replicas=1"]).await?;
    until("all jobs to run on the last worker", || async {
        let runs = pool.history()?.running(&pool.jobs)?;
        ensure!(runs.values().all(|run| run.worker == "feeds-0"), "{runs:?}");
        Ok(Some(()))
    })
    .await?;
    let stayed = before.iter().filter(|(_, run)| run.worker == "feeds-0").count();
    let events = pool.history()?.since(mark).cloned().collect::<Vec<_>>();
    ensure!(0 < stayed && !events.is_empty(), "{before:?}");
    pool.context.laps.lap("busy run-to-completion jobs moved only when their worker went");
    Ok(())
}

impl SessionPool {
    async fn patch_swarm(&self, spec: &Value) -> Result<()> {
        let patch = json!({"spec": spec}).to_string();
        let args = ["patch", "swarm", &self.name, "--type=merge", "--patch", &patch];
        self.context.kubectl(&args).await.map(drop)
    }

    async fn runs_exactly(&self, jobs: &BTreeSet<String>) -> Result<()> {
        until(&format!("exactly {} jobs to run", jobs.len()), || async {
            self.history()?.running(jobs).map(|_| Some(()))
        })
        .await
    }

    /// Waits until the Swarm is ready with this reason, message and number of suspended jobs.
    async fn counts(&self, suspended: i32, reason: &str, message: &str) -> Result<()> {
        until(message, || async {
            let status = self.context.api::<Swarm>().get(&self.name).await?.status;
            let status = status.context("no status")?;
            let ready = status.conditions.iter().find(|it| it.type_ == "Ready");
            let ready = ready.context("not ready")?;
            let is_said = (&*ready.reason, &*ready.message) == (reason, message);
            let counts = (status.suspended, status.jobs, status.assigned);
            let is_counted = counts == (suspended, 6, 6 - suspended);
            ensure!(is_said && ready.status == "True" && is_counted, "{status:?}");
            Ok(Some(()))
        })
        .await
    }

    /// Waits until the Swarm is settled with this number of workers.
    async fn settles_on(&self, workers: i32) -> Result<()> {
        until(&format!("{workers} workers to settle"), || async {
            let status = self.context.api::<Swarm>().get(&self.name).await?.status;
            let status = status.context("no status")?;
            let is_ready =
                status.conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True");
            Ok((is_ready && status.workers_ready == workers).then_some(()))
        })
        .await
    }
}
