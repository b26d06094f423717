//! The time without a running job after a worker crashed or its node fell silent, and the time that
//! a new worker waits for its first job.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;
use kube::api::ListParams;
use swarm_adapters_host::runlog::judge::Event;

use super::watches::{Observed, Watches};
use crate::figures::Times;
use crate::output::say;
use crate::run_log::Moment;
use crate::scenario::Context;
use crate::scenarios::session_pool::{Policy, SHORT_LEASE, SessionPool};

const ROUNDS: usize = 10;
/// The number of rounds with a silent node. Each takes about a lease.
const SILENT_ROUNDS: usize = 5;
const WITHIN: Duration = Duration::from_secs(30);

pub(super) async fn measure(context: &Context) -> Result<()> {
    let mut pool = SessionPool::new(context, "faults").with_short_leases();
    pool.policy = Policy::Exclusive;
    pool.workers = 2;
    pool.apply().await?;
    pool.at_rest().await?;
    let first = first_jobs(&mut pool).await?;
    let crashes = crashes(&pool).await?;
    let silences = silences(&pool).await?;
    let overlaps = pool.history()?.overlaps()?;
    ensure!(overlaps.is_empty(), "{overlaps:?}");
    let longest = Duration::from_secs_f64(1.07 * SHORT_LEASE.as_secs_f64() + 2.0);
    say("\n| sessions | rounds | median | 99 % | worst |");
    say("|---|---|---|---|---|");
    say(format_args!(
        "| session opened (its Lease is seen) → its first job runs | {} |",
        first.cells()
    ));
    say(format_args!(
        "| crash seen by the kubelet → all its jobs run (budget: 3 s) | {} |",
        crashes.cells()
    ));
    say(format_args!(
        "| a worker falls silent → all its jobs run elsewhere, lease {} s (budget: {longest:?}) | {} |",
        SHORT_LEASE.as_secs(),
        silences.cells()
    ));
    context.kubectl(&["delete", "swarm", "faults"]).await?;
    context.kubectl(&["delete", "statefulset", "faults"]).await.map(drop)
}

async fn first_jobs(pool: &mut SessionPool) -> Result<Times> {
    let watches = Watches::start(&pool.context);
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let leases = pool.context.api::<Lease>().list(&ListParams::default()).await?;
        let known: BTreeSet<_> = leases.iter().map(kube::ResourceExt::name_any).collect();
        let mark = Moment::now();
        pool.workers = 3;
        pool.apply().await?;
        let opened = |event: &Observed| match event {
            Observed::Lease { session, .. } if !known.contains(session) => Some(session.clone()),
            Observed::Lease { .. } | Observed::Ledger(_) | Observed::Ended { .. } => None,
        };
        let (opened, session) = watches.find("a session", mark, WITHIN, opened).await?;
        pool.at_rest().await?;
        let history = pool.history()?;
        let is_start = |line: &&crate::run_log::LogLine| {
            line.event == Event::Start && line.run.session == session
        };
        times.extend(history.since(mark).find(is_start).map(|line| line.at.since(opened)));
        pool.workers = 2;
        pool.apply().await?;
        pool.at_rest().await?;
    }
    ensure!(times.len() == ROUNDS, "{} of {ROUNDS} sessions got a job", times.len());
    Ok(Times::new(times))
}

async fn crashes(pool: &SessionPool) -> Result<Times> {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        // Each round has a new pod: a container with an earlier end would count as ended at once.
        let pod = pool.pod(0).await?;
        let name = pod.name_any();
        let watches = Watches::start(&pool.context);
        let lost = jobs_of(pool, &name)?;
        let mark = Moment::now();
        pool.context.cluster.kill_containers(&pod).await?;
        let ended = |event: &Observed| {
            matches!(event, Observed::Ended { pod } if *pod == name).then_some(())
        };
        let (seen, ()) = watches.find("the crash", mark, WITHIN, ended).await?;
        pool.begun_again(mark, "0").await?;
        pool.at_rest().await?;
        times.push(last_start(pool, &lost, mark)?.since(seen));
        pool.context.kubectl(&["delete", "pod", &name]).await?;
        pool.at_rest().await?;
    }
    Ok(Times::new(times))
}

async fn silences(pool: &SessionPool) -> Result<Times> {
    let mut times = Vec::new();
    for _ in 0..SILENT_ROUNDS {
        let pod = pool.pod(0).await?;
        let lost = jobs_of(pool, &pod.name_any())?;
        let mark = Moment::now();
        let cut = pool.context.cluster.cut_off_pod(&pod).await?;
        pool.at_rest_on(1).await?;
        times.push(last_start(pool, &lost, mark)?.since(mark));
        cut.reconnect()?;
        pool.at_rest().await?;
    }
    Ok(Times::new(times))
}

fn jobs_of(pool: &SessionPool, worker: &str) -> Result<BTreeSet<String>> {
    let runs = pool.history()?.running(&pool.jobs)?;
    Ok(runs.into_iter().filter(|(_, run)| run.worker == worker).map(|(job, _)| job).collect())
}

/// The time at which the last of these jobs was started for the first time after `mark`.
fn last_start(pool: &SessionPool, jobs: &BTreeSet<String>, mark: Moment) -> Result<Moment> {
    let history = pool.history()?;
    let mut last = mark;
    for job in jobs {
        let mut starts = history.since(mark).filter(|line| line.event == Event::Start);
        let first = starts.find(|line| line.job == *job);
        let Some(first) = first else { anyhow::bail!("{job} was not started again") };
        last = last.max(first.at);
    }
    Ok(last)
}
