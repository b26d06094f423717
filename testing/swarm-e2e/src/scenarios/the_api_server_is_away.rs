//! The API server is unavailable for longer than a lease. The jobs of all sessions pause, and
//! resume where they were when it is back. No job moves, and no token rises. A short outage stops
//! no job.

use std::time::Duration;

use anyhow::{Result, ensure};
use swarm_adapters_host::runlog::judge::Event;

use super::session_pool::{SessionPool, TICK};
use crate::run_log::Moment;
use crate::scenario::Context;

/// A short outage: well within the rest of a lease after a renewal, including the time to stop.
const SHORT: Duration = Duration::from_secs(1);
/// The least rest of a lease: jobs are stopped a second before its end, and the last
/// renewal may be two seconds old when the API server is killed.
const UNNOTICED: Duration = Duration::from_secs(LEASE.as_secs() - 3);
/// The duration of the leases of this scenario. An API server takes some three seconds to start.
const LEASE: Duration = Duration::from_secs(20);
/// The largest number of attempts at a short outage.
const ATTEMPTS: usize = 5;
/// An outage that is long enough for every lease to expire.
const LONG: Duration = Duration::from_secs(LEASE.as_secs() + 3);
/// The longest allowed time until jobs resume, once the API server answers. An idle machine needs two
/// seconds.
const RESUMED: Duration = Duration::from_secs(20);

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let mut pools = SessionPool::of_both_policies(&context, 2);
    for pool in &mut pools {
        (pool.lease, pool.lease_allowed) = (LEASE, LEASE);
        pool.apply().await?;
    }
    for pool in &pools {
        pool.at_rest().await?;
    }
    // The time that an API server takes to start depends on the machine, so one attempt may be too
    // long.
    for attempt in 1.. {
        let away = absence(&context, &pools, SHORT).await?;
        if away <= UNNOTICED {
            break;
        }
        ensure!(attempt < ATTEMPTS, "an outage of {away:?} is not short");
        context.laps.lap(format!("unavailable for {away:?}, which is not short: again"));
    }
    absence(&context, &pools, LONG).await.map(drop)
}

/// Stops the API server for this time, and returns the time for which it was unavailable.
async fn absence(context: &Context, pools: &[SessionPool; 2], away: Duration) -> Result<Duration> {
    let before = [pools[0].at_rest().await?, pools[1].at_rest().await?];
    let mark = Moment::now();
    context.cluster.components.kill("apiserver")?;
    mark.passed(away).await?;
    if LEASE < away {
        for pool in pools {
            let running = pool.history()?.running(&std::collections::BTreeSet::new());
            ensure!(running.is_ok(), "{} keeps running without a lease: {running:?}", pool.name);
        }
    }
    context.cluster.revive_api_server().await?;
    let served = Moment::now();
    for (pool, before) in pools.iter().zip(before) {
        let after = pool.at_rest().await?;
        ensure!(after == before, "{}: jobs moved: {before:?} and now {after:?}", pool.name);
        let what = format!("the API server was unavailable for {:?}", served.since(mark));
        pool.judge(&what, mark, served.since(mark) + RESUMED + TICK)?;
        let overlaps = pool.history()?.overlaps()?;
        ensure!(overlaps.is_empty(), "{}: {overlaps:?}", pool.name);
        let stops = pool.history()?.since(mark).filter(|event| event.event == Event::Stop).count();
        let is_noticed = UNNOTICED < served.since(mark);
        ensure!(is_noticed || stops == 0, "{}: {stops} jobs stopped for {what}", pool.name);
    }
    Ok(served.since(mark))
}
