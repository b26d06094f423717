//! A pool that never had jobs is assigned nothing until it is complete or a minute has passed.
//! Then every existing pod counts, since some pods are ready only once they have work.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use swarm_adapters_k8s::status::ready_reason;
use swarm_client::api::Swarm;

use super::pool::{at_rest, jobs_of, reports, sample};
use crate::scenario::Context;
use crate::until::until;

const INITIAL_WAIT: Duration = Duration::from_mins(1);

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    // The probe's port never answers, so the pods never become ready.
    let manifest = sample(2)?.replacen("path: /internal/health", "path: /nothing-here", 1);
    let jobs = jobs_of(&manifest);
    let start = Instant::now();
    context.apply(&manifest).await?;
    until("the Swarm to wait for its pool", || async {
        let swarm = context.api::<Swarm>().get("streams").await?;
        Ok((ready_reason(swarm.status.as_ref()) == Some("PoolIncomplete")).then_some(()))
    })
    .await?;
    let before = until("both workers to answer", || async {
        let reports = reports(&context).await?;
        Ok((reports.len() == 2).then_some(reports))
    })
    .await?;
    if start.elapsed() < INITIAL_WAIT {
        ensure!(before.values().all(|report| report.jobs.is_empty()), "too early: {before:?}");
    }
    at_rest(&context, &jobs, 2, start).await?;
    ensure!(start.elapsed() >= INITIAL_WAIT, "assigned after {:?} already", start.elapsed());
    Ok(())
}
