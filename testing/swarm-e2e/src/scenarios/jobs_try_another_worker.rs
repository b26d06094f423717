//! A job that fails on the worker that runs it first moves to another worker, with the reason
//! `failing`. No other job is stopped.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use kube::runtime::wait::await_condition;
use serde_json::json;
use swarm_adapters_host::runlog::judge::{self, RunName};
use swarm_client::api::{Swarm, SwarmHistory, SwarmStatus};
use swarm_core::life::Cause;

use super::session_pool::{Kind, MOUNT, Policy, SessionPool};
use crate::run_log::{Moment, folder};
use crate::scenario::Context;
use crate::until::until;

/// The job that fails on its first worker.
const FAILS: &str = "bad";
/// The file with the name of the worker that ran the failing job first.
const FIRST: &str = "first-worker";

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let mut pool = SessionPool::new(&context, "failover");
    (pool.kind, pool.policy, pool.workers) = (Kind::ManagedSet, Policy::Exclusive, 3);
    pool.jobs.insert(FAILS.to_owned());
    pool.managed = json!({"image": "busybox:stable"});
    // The image has only a shell.
    let script = format!(
        "[ $SWARM_JOB = {FAILS} ] || exec sleep 1000; file={MOUNT}/{FIRST}; \
         [ -e $file ] || echo $SWARM_WORKER > $file; read first < $file; \
         [ $SWARM_WORKER = $first ] && exit 3; exec sleep 1000"
    );
    pool.says = json!({"command": ["sh", "-c", script], "restart": {"failover": 3}});
    let mark = Moment::now();
    pool.apply().await?;
    let recovery = tokio::spawn(recovery(context.api::<Swarm>(), pool.name.clone()));
    let (first, runs) = pool.leaves_its_first_worker().await?;
    let worker = &runs[FAILS].worker;
    context.laps.lap(format!("{FAILS} left {first} for {worker}"));

    let history = pool.history()?;
    for job in pool.jobs.iter().filter(|job| *job != FAILS) {
        let starts = history.since(mark).filter(|line| line.job == *job);
        let starts = starts.filter(|line| line.event == judge::Event::Start).count();
        ensure!(starts == 1, "{job} was started {starts} times: {}", history.about(job));
    }
    let failures = history.since(mark).filter(|line| line.job == FAILS);
    let failures = failures.filter(|line| line.run.worker == first).collect::<Vec<_>>();
    let starts = failures.iter().filter(|line| line.event == judge::Event::Start).count();
    ensure!(3 <= starts, "it left after {starts} failures: {}", history.about(FAILS));
    pool.says_so(&first, worker).await?;
    pool.has_its_life(&first).await?;
    let status = recovery.await??;
    ensure!(status.running == 7, "the status has no failing job, but one does not run: {status:?}");
    let overlaps = pool.history()?.overlaps()?;
    ensure!(overlaps.is_empty(), "{overlaps:?}");
    Ok(())
}

/// Waits until a job fails, and returns the first later status without a failing job.
async fn recovery(swarms: Api<Swarm>, name: String) -> Result<SwarmStatus> {
    let fails = |swarm: Option<&Swarm>| {
        swarm.and_then(|swarm| swarm.status.as_ref()).is_some_and(|status| 0 < status.failing)
    };
    await_condition(swarms.clone(), &name, fails).await?;
    let swarm = await_condition(swarms, &name, |swarm: Option<&Swarm>| !fails(swarm)).await?;
    swarm.and_then(|swarm| swarm.status).context("the Swarm has no status any more")
}

impl SessionPool {
    /// Waits until the failing job runs on another worker than at first, and all others run.
    /// Returns its first worker and the runs of all jobs.
    async fn leaves_its_first_worker(&self) -> Result<(String, BTreeMap<String, RunName>)> {
        until(&format!("{FAILS} to run on another worker"), || async {
            let first = std::fs::read_to_string(folder(&self.context.namespace).join(FIRST))?;
            let runs = self.history()?.running(&self.jobs)?;
            let worker = runs.get(FAILS).context("nobody runs it")?.worker.clone();
            ensure!(worker != first.trim(), "it runs on {worker}");
            Ok(Some((first.trim().to_owned(), runs)))
        })
        .await
    }

    /// Waits until the history has the crashes of the failing job on its first worker, and its move.
    async fn has_its_life(&self, first: &str) -> Result<()> {
        until("the life of the job in the history", || async {
            let history = self.context.api::<SwarmHistory>().get(&self.name).await?;
            let lives = history.spec.lives.context("the history has no lives")?;
            let life = lives.lives().of(FAILS).context("the job has no life")?;
            let count = |cause| life.counts.get(&cause).copied().unwrap_or_default();
            let counts = (count(Cause::Crash), count(Cause::Failover));
            ensure!(3 <= counts.0 && counts.1 == 1, "{life:?}");
            let crashes = life.events.iter().filter(|event| event.cause == Cause::Crash);
            ensure!(crashes.map(|event| &event.worker).all(|worker| worker == first), "{life:?}");
            Ok(Some(()))
        })
        .await
    }

    /// Waits until the status counts all jobs as running, and an Event names the move.
    async fn says_so(&self, from: &str, to: &str) -> Result<()> {
        until("the status and an Event about the move", || async {
            let status = self.context.api::<Swarm>().get(&self.name).await?.status;
            let status = status.context("no status")?;
            let counts = (status.running, status.failing, status.published, status.moving);
            ensure!(counts == (7, 0, 0, 0), "{status:?}");
            let events = self.context.api::<Event>().list(&ListParams::default()).await?.items;
            let is_it = |it: &Event| it.reason.as_deref() == Some("JobsFailedOver");
            let notes = events.into_iter().filter(is_it).filter_map(|it| it.note);
            let notes: Vec<_> = notes.collect();
            let leaves = format!("`{FAILS}` leaves {from} for {to}");
            let [note] = &notes[..] else { anyhow::bail!("{notes:?}") };
            ensure!(note.starts_with("1 job ") && note.ends_with(&leaves), "{note}");
            Ok(Some(()))
        })
        .await
    }
}
