//! The reports about sessions that cannot continue as usual. Workers have Leases that are too long
//! for their Swarm, or a ledger was deleted by hand. Run-to-completion jobs are done, or jobs fail.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use swarm_adapters_host::runlog::judge::Event;
use swarm_adapters_k8s::status::{failing_jobs, ready_reason};
use swarm_client::api::{Swarm, SwarmLedger};

use super::pool::Reasons;
use super::session_pool::{LONG_SILENCE, Policy, Runner, SHORT_LEASE, SessionPool, TICK};
use crate::run_log::Moment;
use crate::scenario::Context;
use crate::until::until;

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    tokio::try_join!(
        a_long_lease(&context),
        a_deleted_ledger(&context),
        jobs_that_end(&context),
        jobs_that_fail(&context)
    )
    .map(drop)
}

/// Makes all jobs fail. The Swarm is not ready although each job has a worker, and reports how the
/// jobs end.
async fn jobs_that_fail(context: &Context) -> Result<()> {
    let mut pool = SessionPool::new(context, "failing");
    pool.runner = Runner::Fails;
    pool.apply().await?;
    let swarms = context.api::<Swarm>();
    let message = until("all jobs to fail", || async {
        let status = swarms.get("failing").await?.status.unwrap_or_default();
        let all = usize::try_from(status.failing)? == pool.jobs.len();
        ensure!(all && ready_reason(Some(&status)) == Some("AllJobsFailing"), "{status:?}");
        Ok(failing_jobs(&status).map(str::to_owned))
    })
    .await?;
    for part in ["6 jobs fail, among them `failing:", "exit code 2 (`For more information"] {
        ensure!(message.contains(part), "`{part}` is not in: {message}");
    }
    context.laps.lap(message);
    Ok(())
}

/// Checks that no job is granted, since the operator would not wait for these Leases long enough.
async fn a_long_lease(context: &Context) -> Result<()> {
    let mut pool = SessionPool::new(context, "long").with_short_leases();
    pool.lease_allowed =
        SHORT_LEASE.checked_sub(Duration::from_secs(1)).context("a short lease")?;
    pool.policy = Policy::Exclusive;
    pool.apply().await?;
    let message = says(context, "long", "LeaseTooLong").await?;
    for part in ["` says 6s", "the 5s of handover.lease:", "raise that"] {
        ensure!(message.contains(part), "`{part}` is not in: {message}");
    }
    let nobody = pool.history().map_or(0, |history| history.since(Moment(0)).count());
    ensure!(nobody == 0, "jobs were granted");
    context.laps.lap(message);

    pool.lease_allowed = SHORT_LEASE;
    pool.apply().await?;
    pool.at_rest().await?;
    // Jobs may run a moment before the status reports it.
    until("the Swarm to stop reporting it", || async {
        let swarm = context.api::<Swarm>().get("long").await?;
        Ok((ready_reason(swarm.status.as_ref()) != Some("LeaseTooLong")).then_some(()))
    })
    .await
}

/// Deletes the ledger. The next ledger starts another incarnation: all sessions open again, and
/// each job waits for that.
async fn a_deleted_ledger(context: &Context) -> Result<()> {
    let mut pool = SessionPool::new(context, "deleted");
    pool.policy = Policy::Exclusive;
    pool.apply().await?;
    let before = pool.at_rest().await?;
    let mark = Moment::now();
    let ledgers = context.api::<SwarmLedger>();
    let mut reasons = Reasons::of(context, "deleted").await?;
    ledgers.delete("statefulset.deleted", &DeleteParams::default()).await?;
    let message = reasons.wait_for("Recovering").await?;
    context.laps.lap(message);
    pool.begun_again(mark, "0").await?;
    let after = pool.at_rest().await?;
    for (job, run) in &before {
        let now = after.get(job).context("a job is missing")?;
        ensure!(run.token < now.token && run.session != now.session, "{job}: {run:?}, {now:?}");
    }
    pool.judge("the ledger was deleted", mark, LONG_SILENCE + TICK)
}

/// Checks that each job runs once, even if its pod is deleted. A job that is removed and added
/// again runs again.
async fn jobs_that_end(context: &Context) -> Result<()> {
    let mut pool = SessionPool::new(context, "once");
    (pool.runner, pool.are_finite) = (Runner::Done, true);
    pool.apply().await?;
    all_done(&pool).await?;
    let mark = Moment::now();
    context.api::<Pod>().delete("once-0", &DeleteParams::default()).await?;
    // A new session would run a finished job again if it were granted that job.
    pool.jobs.insert("once:more".to_owned());
    pool.apply().await?;
    all_done(&pool).await?;
    pool.pod(0).await?;
    let again = starts(&pool, mark)?;
    ensure!(again.keys().eq(["once:more"]), "run again: {again:?}");

    pool.jobs.remove("once:0");
    pool.apply().await?;
    all_done(&pool).await?;
    let mark = Moment::now();
    pool.jobs.insert("once:0".to_owned());
    pool.apply().await?;
    all_done(&pool).await?;
    ensure!(starts(&pool, mark)?.keys().eq(["once:0"]), "it has another token by now");
    let all = starts(&pool, Moment(0))?;
    let expected = |job: &String| if job == "once:0" { 2 } else { 1 };
    ensure!(all.iter().all(|(job, count)| *count == expected(job)), "runs {all:?}");
    context.laps.lap(format!(
        "{} run-to-completion jobs ran once, and one again when it was added again",
        all.len()
    ));
    Ok(())
}

/// The number of starts of each job since `mark`.
fn starts(pool: &SessionPool, mark: Moment) -> Result<BTreeMap<String, usize>> {
    let mut count = BTreeMap::new();
    for event in pool.history()?.since(mark).filter(|event| event.event == Event::Start) {
        *count.entry(event.job.clone()).or_default() += 1;
    }
    Ok(count)
}

async fn all_done(pool: &SessionPool) -> Result<()> {
    let swarms = pool.context.api::<Swarm>();
    until(&format!("{} jobs to be done", pool.jobs.len()), || async {
        let status = swarms.get(&pool.name).await?.status.unwrap_or_default();
        ensure!(usize::try_from(status.done)? == pool.jobs.len(), "{} are done", status.done);
        Ok(Some(()))
    })
    .await
}

/// Waits until a Swarm is not ready for this reason, and returns the message.
async fn says(context: &Context, swarm: &str, reason: &str) -> Result<String> {
    until(&format!("{swarm} to be {reason}"), || async {
        let status = context.api::<Swarm>().get(swarm).await?.status.unwrap_or_default();
        let ready = status.conditions.into_iter().find(|it| it.type_ == "Ready");
        let ready = ready.context("no condition Ready")?;
        ensure!(ready.reason == reason, "{}: {}", ready.reason, ready.message);
        Ok(Some(ready.message))
    })
    .await
}
