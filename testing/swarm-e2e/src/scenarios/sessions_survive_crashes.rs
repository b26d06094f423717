//! Session workers crash, are frozen and resume, are deleted by force, and lose their Leases, under
//! both policies side by side. Their jobs run elsewhere, or again, within a bound.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;
use kube::api::DeleteParams;

use super::session_pool::{Runner, SILENCE, SessionPool, TICK};
use crate::run_log::Moment;
use crate::scenario::Context;

/// The longest allowed time from a crash that the kubelet sees until the job runs, elsewhere or
/// again, on a busy machine.
const CRASH: Duration = Duration::from_secs(5);

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let [exclusive, patient] =
        SessionPool::of_both_policies(&context, 3).map(SessionPool::with_short_leases);
    tokio::try_join!(walk(exclusive), walk(patient)).map(drop)
}

async fn walk(pool: SessionPool) -> Result<()> {
    pool.apply().await?;
    pool.at_rest().await?;
    crash(&pool).await?;
    stand_still(&pool).await?;
    deletion_by_force(&pool).await?;
    deletion_of_a_lease(&pool).await
}

async fn crash(pool: &SessionPool) -> Result<()> {
    let mark = Moment::now();
    pool.context.cluster.kill_containers(&pool.pod(0).await?).await?;
    pool.begun_again(mark, "0").await?;
    pool.at_rest().await?;
    pool.judge("a worker was killed", mark, CRASH + TICK)
}

/// Freezes a worker. It resumes long after its Lease was revoked and others run its jobs, and must
/// not run them for another moment. Jobs that are processes continue while their worker is frozen,
/// so their guard has to stop them.
async fn stand_still(pool: &SessionPool) -> Result<()> {
    let (cluster, pod) = (&pool.context.cluster, pool.pod(1).await?);
    let mark = Moment::now();
    let frozen = match pool.runner {
        Runner::Task => cluster.freeze_pod(&pod).await?,
        Runner::Process | Runner::Swarm | Runner::Done | Runner::Fails => {
            cluster.freeze_first_process(&pod).await?
        }
    };
    pool.at_rest_on(pool.workers - 1).await?;
    pool.judge("a worker is frozen", mark, SILENCE + TICK)?;
    let thawed = Moment::now();
    frozen.thaw()?;
    pool.at_rest().await?;
    pool.judge("it resumed", thawed, CRASH)
}

async fn deletion_by_force(pool: &SessionPool) -> Result<()> {
    let name = pool.pod(2).await?.name_any();
    let mark = Moment::now();
    pool.context.kubectl(&["delete", "pod", &name, "--force", "--grace-period=0"]).await?;
    pool.begun_again(mark, "2").await?;
    pool.at_rest().await?;
    pool.judge("a pod was deleted by force", mark, SILENCE + TICK)
}

/// Deletes the Lease of a live session. Its worker ends and does not recreate the Lease. No watch
/// shows the Lease any more, so the operator asks the API server before it counts the Lease as
/// deleted.
async fn deletion_of_a_lease(pool: &SessionPool) -> Result<()> {
    let worker = format!("{}-2", pool.name);
    let runs = pool.at_rest().await?;
    let run = runs.into_values().find(|run| run.worker == worker);
    let session = run.with_context(|| format!("{worker} runs nothing"))?.session;
    let mark = Moment::now();
    pool.context.api::<Lease>().delete(&session, &DeleteParams::default()).await?;
    pool.begun_again(mark, "2").await?;
    pool.at_rest().await?;
    pool.judge("a Lease was deleted", mark, SILENCE + TICK)
}
