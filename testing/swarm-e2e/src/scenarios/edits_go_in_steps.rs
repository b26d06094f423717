//! A runner that cannot work stops only the jobs of one step. All other jobs keep their processes,
//! and a corrected runner reaches all jobs.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use swarm_adapters_host::runlog::judge::Event;
use swarm_client::api::Swarm;

use super::session_pool::{Kind, Policy, SessionPool};
use crate::run_log::Moment;
use crate::scenario::Context;
use crate::until::until;

/// The number of jobs, all on one worker.
const JOBS: usize = 20;
/// The number of jobs that restart at a time.
const STEP: usize = 4;
/// The number of ends of each failing job after which the scenario looks at the other jobs.
const ENDS: usize = 3;

/// A runner with a shell script.
fn runner(script: &str) -> Value {
    json!({"command": ["sh", "-c", script]})
}

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let mut pool = SessionPool::new(&context, "steps");
    (pool.kind, pool.policy, pool.workers) = (Kind::ManagedSet, Policy::Exclusive, 1);
    pool.jobs = (0..JOBS).map(|n| format!("steps:{n:02}")).collect();
    pool.managed = json!({"image": "busybox:stable"});
    pool.spec = json!({"worker": {"maxRestarting": STEP}});
    pool.says = runner("exec sleep 1000");
    pool.apply().await?;
    let before = pool.at_rest().await?;
    pool.counts_phases((JOBS, 0)).await?;

    let edit = Moment::now();
    pool.says = runner("exit 3");
    pool.apply().await?;
    let failing = pool.keep_failing(edit).await?;
    pool.counts_phases((JOBS - STEP, STEP)).await?;
    let history = pool.history()?;
    let others = history.since(edit).filter(|line| !failing.contains(&line.job));
    let touched = others.filter(|line| line.event != Event::Tick).count();
    ensure!(touched == 0, "{touched} starts and stops of jobs that wait for their step");
    context.laps.lap(format!("a bad runner stopped {} of {JOBS} jobs", failing.len()));

    let correction = Moment::now();
    pool.says = runner("exec sleep 2000");
    pool.apply().await?;
    until("every job to take the corrected runner", || async {
        let history = pool.history()?;
        let starts = history.since(correction).filter(|line| line.event == Event::Start);
        let begun: BTreeSet<_> = starts.map(|line| line.job.clone()).collect();
        ensure!(begun == pool.jobs, "{} of {JOBS} began", begun.len());
        Ok(Some(()))
    })
    .await?;
    let after = pool.at_rest().await?;
    ensure!(after == before, "jobs have moved: {after:?}, not {before:?}");
    let ms = Moment::now().since(correction).as_millis();
    context.laps.lap(format!("all {JOBS} jobs run the corrected runner after {ms} ms"));
    Ok(())
}

impl SessionPool {
    /// Waits until the jobs of the first step have failed several times. Returns their names.
    async fn keep_failing(&self, since: Moment) -> Result<BTreeSet<String>> {
        until("the jobs of a step to fail again and again", || async {
            let history = self.history()?;
            let lines = || history.since(since).filter(|line| line.event != Event::Tick);
            let begun: BTreeSet<_> = lines().map(|line| line.job.clone()).collect();
            ensure!(begun.len() == STEP, "{begun:?} began again");
            let ends = |job: &String| {
                let of_job = lines().filter(|line| line.job == *job);
                of_job.filter(|line| line.event == Event::Start).count()
            };
            let ends: Vec<_> = begun.iter().map(ends).collect();
            ensure!(ends.iter().all(|count| ENDS <= *count), "starts: {ends:?}");
            Ok(Some(begun))
        })
        .await
    }

    /// Waits until the status has these numbers of running and of failing jobs, and no others.
    async fn counts_phases(&self, (running, failing): (usize, usize)) -> Result<()> {
        until(&format!("{running} running jobs"), || async {
            let status = self.context.api::<Swarm>().get(&self.name).await?.status;
            let status = status.context("no status")?;
            let counted = [status.running, status.failing, status.published, status.moving];
            let expected = [i32::try_from(running)?, i32::try_from(failing)?, 0, 0];
            ensure!(counted == expected, "{counted:?}, not {expected:?}");
            Ok(Some(()))
        })
        .await
    }
}
