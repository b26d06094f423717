//! The API server is unavailable for longer than a lease. The jobs of all sessions pause, and
//! resume where they were when it is back. No job moves, and no token rises. Each history has the
//! outage once. A short outage stops no job.

use std::time::Duration;

use anyhow::{Result, ensure};
use kube::Api;
use swarm_adapters_host::runlog::judge::Event;
use swarm_client::api::SwarmHistory;
use swarm_core::history::{Episode, OutageCause};

use super::session_pool::{SessionPool, TICK};
use crate::run_log::Moment;
use crate::scenario::Context;
use crate::until::until;

/// A short outage: well within the rest of a lease after a renewal, including the time to stop.
const SHORT: Duration = Duration::from_secs(1);
/// The least rest of a lease: jobs are stopped a second before its end, and the last
/// renewal may be two seconds old when the API server is killed.
const UNNOTICED: Duration = Duration::from_secs(LEASE.as_secs() - 3);
/// The duration of the leases of this scenario. An API server takes some three seconds to start.
const LEASE: Duration = Duration::from_secs(20);
/// The largest number of attempts at a short outage.
const ATTEMPTS: usize = 5;
/// An outage that is long enough for every lease to expire, and for a busy machine to stop the jobs.
const LONG: Duration = Duration::from_secs(LEASE.as_secs() + 10);
/// The longest time between two renewals of a replica. The recorded outage may be shorter than the measured
/// one by this time. An idle machine renews every two seconds.
const RENEWED: Duration = Duration::from_secs(5);
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
    let before = [outages(&context, &pools[0]).await?, outages(&context, &pools[1]).await?];
    let away = absence(&context, &pools, LONG).await?;
    let late = SessionPool::new(&context, "made-since");
    late.apply().await?;
    late.at_rest().await?;
    for (pool, before) in pools.iter().zip(before) {
        let news = until("the outage in the history", || async {
            let all = outages(&context, pool).await?;
            Ok((before.len() < all.len()).then_some(all))
        })
        .await?;
        ensure!(news.len() == before.len() + 1, "{}: one outage, and not {news:?}", pool.name);
        let (outage, shortest) = (&news[before.len()], away.saturating_sub(RENEWED));
        ensure!(outage.outage == OutageCause::ApiServer.as_str(), "{}: {outage:?}", pool.name);
        ensure!(shortest <= outage.duration(), "{}: {outage:?} of {away:?}", pool.name);
    }
    let early = outages(&context, &late).await?;
    ensure!(early.is_empty(), "{} did not exist then: {early:?}", late.name);
    context.laps.lap("each history has the outage once");
    Ok(())
}

/// The outages in the history of a pool.
async fn outages(context: &Context, pool: &SessionPool) -> Result<Vec<Episode>> {
    let histories: Api<SwarmHistory> = Api::namespaced(context.client.clone(), &context.namespace);
    let history = histories.get_opt(&pool.name).await?;
    let episodes = history.map(|it| it.spec.episodes).unwrap_or_default();
    Ok(episodes.into_iter().filter(|it| !it.outage.is_empty()).collect())
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
