//! The cluster is set back to a copy of etcd that is older than a handover: ledger, Leases and views
//! go back together, while the workers go on where they were. Whatever runs where then, no job is run
//! by two under `Exclusive`, and no token falls under any policy.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::session_pool::{SILENCE, SessionPool, TICK};
use crate::run_log::Moment;
use crate::story::Context;

/// The job that has moved since the copy.
const MOVED: &str = "moved";
/// How long it may take until each job runs again: what has to be waited out is waited out twice.
const AGAIN: Duration = Duration::from_secs(2 * SILENCE.as_secs() + TICK.as_secs());

pub(super) async fn tell(context: Context) -> Result<()> {
    context.operator().await?;
    let mut pools = SessionPool::of_both_policies(&context, 2);
    for pool in &mut pools {
        pool.jobs = BTreeSet::from([MOVED.to_owned(), "stays".to_owned()]);
        pool.pins = [(MOVED.to_owned(), 0), ("stays".to_owned(), 1)].into();
        pool.apply().await?;
    }
    for pool in &pools {
        pool.runs_on(MOVED, 0).await?;
    }
    context.cluster.make_etcd_sync().await?;
    let copy = context.cluster.copy_etcd().await?;
    context.laps.lap("etcd syncs, and was copied");

    for pool in &mut pools {
        pool.pins.insert(MOVED.to_owned(), 1);
        pool.apply().await?;
    }
    let [exclusive, patient] = &pools;
    let before = [exclusive.runs_on(MOVED, 1).await?, patient.runs_on(MOVED, 1).await?];
    let mark = Moment::now();
    context.cluster.restore_etcd(copy).await?;
    let served = Moment::now();
    context.laps.lap("etcd was set back");
    for (pool, before) in pools.iter().zip(before) {
        // As the Swarm has it again.
        let after = pool.runs_on(MOVED, 0).await?;
        ensure!(before.token < after.token, "{}: {before:?}, then {after:?}", pool.name);
        pool.judge("the cluster was set back", mark, served.since(mark) + AGAIN)?;
    }
    Ok(())
}
