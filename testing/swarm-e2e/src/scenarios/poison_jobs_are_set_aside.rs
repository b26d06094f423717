//! A job that crashes every worker is quarantined after three workers, and the other jobs keep
//! running. When very many workers fall silent at once, their Leases are not revoked at first,
//! since the fault is more likely elsewhere.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use swarm_adapters_k8s::status::ready_reason;
use swarm_client::api::Swarm;

use super::session_pool::{Policy, SILENCE, SessionPool, TICK};
use crate::run_log::Moment;
use crate::scenario::Context;
use crate::until::until;

/// The job that crashes its workers.
const POISON: &str = "poison";

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    tokio::try_join!(set_aside(&context), spared(&context)).map(drop)
}

/// Kills each worker that runs the job. The job is pinned to the next worker before the killed
/// worker is back. A job that a worker releases in order is no longer blamed.
async fn set_aside(context: &Context) -> Result<()> {
    let mut pool = SessionPool::new(context, "harmed").with_short_leases();
    pool.workers = 3;
    let others: BTreeSet<_> = (0..3).map(|n| format!("harmless:{n}")).collect();
    pool.jobs = BTreeSet::from([POISON.to_owned()]);
    for slot in 0..3 {
        pool.pins = [(POISON.to_owned(), slot)].into();
        pool.apply().await?;
        pool.runs_on(POISON, slot).await?;
        context.cluster.kill_containers(&pool.pod(slot).await?).await?;
    }
    until("the job to be quarantined", || async {
        let swarm = context.api::<Swarm>().get("harmed").await?;
        let quarantined = swarm.status.map_or(0, |status| status.quarantined);
        Ok((quarantined == 1).then_some(()))
    })
    .await?;
    let events = context.kubectl(&["get", "events", "--output=yaml"]).await?;
    ensure!(events.contains("JobsQuarantined") && events.contains(POISON), "no Event reports it");
    context.laps.lap("after three workers the job is quarantined");

    // The other jobs run although one job is quarantined.
    pool.jobs.extend(others.clone());
    pool.apply().await?;
    let mark = Moment::now();
    until("the other jobs to run", || async {
        let history = pool.history()?;
        let ran: BTreeSet<_> = history.since(mark).map(|event| event.job.clone()).collect();
        ensure!(!ran.contains(POISON), "the quarantined job ran");
        Ok(others.is_subset(&ran).then_some(()))
    })
    .await
}

/// Freezes five workers beyond their leases, and resumes them. At most three of them are revoked.
async fn spared(context: &Context) -> Result<()> {
    let mut pool = SessionPool::new(context, "spared").with_short_leases();
    (pool.workers, pool.policy) = (5, Policy::Exclusive);
    pool.jobs = (0..5).map(|n| format!("spared:{n}")).collect();
    pool.apply().await?;
    pool.at_rest().await?;
    let mark = Moment::now();
    let mut frozen = Vec::new();
    for slot in 0..5 {
        frozen.push(context.cluster.freeze_pod(&pool.pod(slot).await?).await?);
    }
    until("the brake to be reported, and no job to count as running", || async {
        let swarm = context.api::<Swarm>().get("spared").await?;
        let held = ready_reason(swarm.status.as_ref()) == Some("RevocationHeld");
        let running = swarm.status.map_or(0, |status| status.running);
        Ok((held && running == 0).then_some(()))
    })
    .await?;
    context.laps.lap("five of five are silent, and the rest of them are spared");
    for pod in frozen {
        pod.thaw()?;
    }
    pool.at_rest().await?;
    pool.judge("all workers were frozen", mark, SILENCE + Duration::from_secs(10) + TICK)
}
