//! The operator and the sessions of a pool under `Exclusive`: edits, scaling up and down, a worker
//! that is ended by force, and the end of the Swarm. By the run log of the workers, each job runs
//! exactly once, and tokens rise.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use swarm_client::api::{Swarm, WorkerView};
use swarm_client::session::SESSION_LABEL;

use super::go_pool::{self, LEASE, RunLog};
use crate::run_log::Moment;
use crate::scenario::Context;
use crate::until::until;

/// The time in which each job has written a line.
const TICKS: Duration = Duration::from_millis(300);

/// The manifest; its lease is the one of the workers.
const SWARM: &str = "
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: jobs}
spec:
  pool: {statefulSet: {name: worker}}
  worker: {protocol: Session}
  handover: {policy: Exclusive, stopTimeout: 2s, lease: LEASE}
  rebalance: {returnGrace: 5s}
";

/// A running pool, and its run log.
pub(super) struct Pool {
    pub(super) context: Context,
    pub(super) log: RunLog,
}

/// The names of these jobs.
pub(super) fn jobs(from: usize, to: usize) -> BTreeSet<String> {
    (from..to).map(|n| format!("job-{n:02}")).collect()
}

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let pool = Pool::start(context).await?;
    pool.wants(&jobs(0, 12)).await?;
    pool.at_rest(&jobs(0, 12), 3, "12 jobs on three workers").await?;

    let edited = Moment::now();
    pool.wants(&jobs(3, 15)).await?;
    pool.at_rest(&jobs(3, 15), 3, "three jobs were removed and three added").await?;
    for (replicas, what) in [(4, "a fourth worker"), (2, "two workers")] {
        pool.scale(replicas).await?;
        pool.at_rest(&jobs(3, 15), replicas, what).await?;
    }
    pool.report_moves(edited)?;
    pool.a_worker_is_ended_by_force(&jobs(3, 15)).await?;
    pool.views_are_reconciled(&jobs(3, 15)).await?;
    pool.the_swarm_goes().await?;
    let verdict = pool.log.judge(&pool.context).await?;
    pool.context.laps.lap(format!("the run log: {verdict}"));
    Ok(())
}

impl Pool {
    /// Starts three workers, and a Swarm without jobs.
    pub(super) async fn start(context: Context) -> Result<Self> {
        let log = RunLog::new(&context)?;
        context.apply(&go_pool::workers("worker", "0s", &log)).await?;
        let pool = Self { context, log };
        pool.apply_swarm().await?;
        Ok(pool)
    }

    /// Creates the Swarm, without jobs.
    pub(super) async fn apply_swarm(&self) -> Result<()> {
        let lease = format!("{}s", LEASE.as_secs());
        self.context.apply(&SWARM.replace("LEASE", &lease)).await.map(drop)
    }

    pub(super) async fn wants(&self, jobs: &BTreeSet<String>) -> Result<()> {
        let jobs: Vec<_> = jobs.iter().map(|name| json!({"name": name})).collect();
        self.patch(&json!({"jobs": jobs})).await
    }

    pub(super) async fn scale(&self, replicas: usize) -> Result<()> {
        self.patch(&json!({"replicas": replicas})).await
    }

    async fn patch(&self, spec: &serde_json::Value) -> Result<()> {
        let patch = json!({"spec": spec}).to_string();
        let args = ["patch", "swarm", "jobs", "--type=merge", "--patch", &patch];
        self.context.kubectl(&args).await.map(drop)
    }

    /// Waits until each of these jobs is run by one of `workers` sessions, evenly.
    pub(super) async fn at_rest(
        &self,
        jobs: &BTreeSet<String>,
        workers: usize,
        what: &str,
    ) -> Result<()> {
        let start = Instant::now();
        until(what, || async {
            let running = self.log.lately(TICKS)?;
            let names: BTreeSet<_> = running.iter().map(|(job, ..)| job.clone()).collect();
            let missing: Vec<_> = jobs.difference(&names).collect();
            let foreign: Vec<_> = names.difference(jobs).collect();
            ensure!(missing.is_empty() && foreign.is_empty(), "{missing:?}, {foreign:?} too much");
            ensure!(running.len() == jobs.len(), "some have just moved: {running:?}");
            let sessions: BTreeSet<_> = running.iter().map(|(_, session, _)| session).collect();
            ensure!(sessions.len() == workers, "{} sessions", sessions.len());
            let load = |it| running.iter().filter(|(_, session, _)| session == it).count();
            let loads: Vec<_> = sessions.iter().map(|it| load(*it)).collect();
            let spread = loads.iter().max().unwrap_or(&0) - loads.iter().min().unwrap_or(&0);
            ensure!(spread <= 1, "{loads:?}");
            Ok(Some(()))
        })
        .await?;
        self.context.laps.lap(format!("{what}: at rest after {} ms", start.elapsed().as_millis()));
        Ok(())
    }

    fn report_moves(&self, since: Moment) -> Result<()> {
        let moves = self.log.moves_since(since)?;
        let at = |n: usize| moves.get(n).map(Duration::as_millis).unwrap_or_default();
        let (half, last) = (at(moves.len() / 2), at(moves.len().saturating_sub(1)));
        let count = moves.len();
        let lap = format!("{count} moves: half paused for {half} ms, none longer than {last} ms");
        self.context.laps.lap(lap);
        Ok(())
    }

    /// Deletes a pod by force. Its Lease expires and is revoked, and its grace elapses. Only then
    /// other workers run its jobs.
    async fn a_worker_is_ended_by_force(&self, jobs: &BTreeSet<String>) -> Result<()> {
        let force = ["delete", "pod", "worker-0", "--force", "--grace-period=0"];
        let leases = ListParams::default().labels(&format!("{SESSION_LABEL}=true"));
        let uid = self.context.api::<Pod>().get("worker-0").await?.uid().context("no UID")?;
        self.context.kubectl(&force).await?;
        until("its former session to run nothing", || async {
            let running = self.log.lately(TICKS)?;
            let is_left = running.iter().any(|(_, session, _)| session.pod_uid() == uid);
            Ok((!is_left).then_some(()))
        })
        .await?;
        self.at_rest(jobs, 2, "a worker was ended by force").await?;
        until("the objects of former sessions to be deleted", || async {
            let leases = self.context.api::<Lease>().list(&leases).await?.items;
            let views = self.context.api::<WorkerView>().list(&ListParams::default()).await?.items;
            let names = |names: Vec<String>| names.into_iter().collect::<BTreeSet<_>>();
            let leases = names(leases.iter().map(kube::ResourceExt::name_any).collect());
            let views = names(views.iter().map(kube::ResourceExt::name_any).collect());
            ensure!(leases.len() == 2 && leases == views, "Leases {leases:?}, views {views:?}");
            Ok(Some(()))
        })
        .await
    }

    /// Edits one view and deletes another. Both are written again as before, and no job is
    /// affected.
    async fn views_are_reconciled(&self, jobs: &BTreeSet<String>) -> Result<()> {
        let api = self.context.api::<WorkerView>();
        let before = api.list(&ListParams::default()).await?.items;
        let [edited, deleted] = before.as_slice() else { anyhow::bail!("{} views", before.len()) };
        let older = json!({"spec": {"revision": edited.spec.revision - 1}});
        let (params, older) = (PatchParams::default(), Patch::Merge(older));
        let patched = api.patch(&edited.name_any(), &params, &older).await;
        let refused = patched.err().context("an older view was accepted")?.to_string();
        ensure!(refused.contains("never replaced by an older one"), "{refused}");
        let patch = json!({"spec": {"jobs": {"stranger": {"token": 1}}}}).to_string();
        let name = edited.name_any();
        let args = ["patch", "workerview", &name, "--type=merge", "--patch", &patch];
        self.context.kubectl(&args).await?;
        api.delete(&deleted.name_any(), &DeleteParams::default()).await?;
        until("the views to be as they were", || async {
            for view in &before {
                let now = api.get_opt(&view.name_any()).await?.context("no view")?;
                ensure!(now.spec.jobs == view.spec.jobs, "{:?}", now.spec);
            }
            Ok(Some(()))
        })
        .await?;
        self.at_rest(jobs, 2, "views were edited and deleted").await
    }

    /// Checks that all jobs are released before the Swarm is deleted.
    async fn the_swarm_goes(&self) -> Result<()> {
        let start = Moment::now();
        self.context.kubectl(&["delete", "swarm", "jobs", "--timeout=5m"]).await?;
        let gone = Moment::now();
        ensure!(self.context.api::<Swarm>().get_opt("jobs").await?.is_none(), "it still exists");
        self.log.silent_for(TICKS * 2).await?;
        let last = self.log.last()?;
        ensure!(last <= gone, "jobs ran {:?} after the Swarm was gone", last.since(gone));
        let lap = format!("the Swarm was gone after {} ms", gone.since(start).as_millis());
        self.context.laps.lap(lap);
        Ok(())
    }
}
