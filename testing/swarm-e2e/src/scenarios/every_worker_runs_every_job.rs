//! `replication` goes from `One` to `All` and back on a pool of sessions under `Exclusive`, while
//! workers come and go. No worker runs a job by one grant while another runs it by a later grant. A
//! worker that joins or leaves causes no work for the other workers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::json;
use swarm_adapters_host::runlog::judge::Event;
use swarm_client::api::{Swarm, WorkerView};

use super::session_pool::{Policy, Protocol, SessionPool};
use crate::run_log::Moment;
use crate::scenario::Context;
use crate::until::until;

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let mut pool = SessionPool::new(&context, "probes").with_short_leases();
    (pool.policy, pool.replication) = (Policy::Exclusive, Some("One"));
    pool.apply().await?;
    pool.at_rest().await?;

    pool.replicate("All", 2).await?;
    let [few, many, fewer] = [2, 4, 3];
    pool.others_have_no_work(few, many, "two workers join").await?;
    pool.others_have_no_work(many, fewer, "a worker leaves").await?;
    pool.a_pod_is_replaced(fewer).await?;
    pool.workers = fewer;
    pool.status_counts("each of 6 jobs is for every worker").await?;

    pool.to_one().await?;
    pool.replicate("All", fewer).await?;
    // Goes back to `One` before all workers have started, and kills a worker meanwhile.
    pool.patch(&json!({"replication": "One"})).await?;
    context.kubectl(&["delete", "pod", "probes-0", "--force", "--grace-period=0"]).await?;
    pool.to_one().await?;
    pool.status_counts("each of 6 jobs has a worker").await?;

    pool.a_share_is_refused().await?;
    let verdict = pool.verified(&["--replication-changes"]).await?;
    context.laps.lap(format!("swarm verify: {verdict}"));
    plain_workers(&context).await
}

impl SessionPool {
    async fn patch(&self, spec: &serde_json::Value) -> Result<()> {
        let patch = json!({"spec": spec}).to_string();
        let args = ["patch", "swarm", &self.name, "--type=merge", "--patch", &patch];
        self.context.kubectl(&args).await.map(drop)
    }

    async fn scale_set(&self, workers: usize) -> Result<()> {
        let replicas = format!("--replicas={workers}");
        let set = format!("statefulset/{}", self.name);
        self.context.kubectl(&["scale", &set, &replicas]).await.map(drop)
    }

    /// Waits until this number of workers runs all jobs, and returns their sessions.
    async fn everywhere(&self, workers: usize) -> Result<BTreeSet<String>> {
        until(&format!("{workers} workers to run all jobs"), || async {
            let sessions = self.history()?.running_everywhere(&self.jobs)?;
            Ok((sessions.len() == workers).then_some(sessions))
        })
        .await
    }

    async fn replicate(&self, how: &str, workers: usize) -> Result<()> {
        let start = Instant::now();
        self.patch(&json!({"replication": how})).await?;
        self.everywhere(workers).await?;
        let ms = start.elapsed().as_millis();
        self.context.laps.lap(format!("{how}: {workers} workers run all jobs after {ms} ms"));
        Ok(())
    }

    async fn to_one(&self) -> Result<()> {
        let start = Instant::now();
        self.patch(&json!({"replication": "One"})).await?;
        self.at_rest().await?;
        let ms = start.elapsed().as_millis();
        self.context.laps.lap(format!("One: each job on one worker after {ms} ms"));
        Ok(())
    }

    /// The resource versions of the views of these sessions. Every write of a view changes its
    /// version.
    async fn views(&self, sessions: &BTreeSet<String>) -> Result<BTreeMap<String, String>> {
        let views = self.context.api::<WorkerView>().list(&ListParams::default()).await?.items;
        let mine = views.into_iter().filter(|view| sessions.contains(&view.spec.session));
        mine.map(|view| Ok((view.name_any(), view.resource_version().context("no version")?)))
            .collect()
    }

    /// Changes the number of workers. The workers that stay start nothing, and their views are not
    /// written.
    async fn others_have_no_work(&self, before: usize, after: usize, what: &str) -> Result<()> {
        let old = self.everywhere(before).await?;
        let views = self.views(&old).await?;
        ensure!(views.len() == before, "{} views", views.len());
        let mark = Moment::now();
        self.scale_set(after).await?;
        let now = self.everywhere(after).await?;
        let stay: BTreeSet<_> = old.intersection(&now).cloned().collect();
        ensure!(stay.len() == before.min(after), "{what}: only {stay:?} go on");
        let later = self.views(&stay).await?;
        ensure!(later.iter().all(|it| views.get(it.0) == Some(it.1)), "{views:?} -> {later:?}");
        self.nothing_began(&stay, mark, what)?;
        self.context.laps.lap(format!("{what}: {} others have no work", stay.len()));
        Ok(())
    }

    /// Checks that these sessions have started and stopped no job since `mark`.
    fn nothing_began(&self, sessions: &BTreeSet<String>, mark: Moment, what: &str) -> Result<()> {
        let history = self.history()?;
        let mut events = history.since(mark).filter(|line| line.event != Event::Tick);
        let found = events.find(|line| sessions.contains(&line.run.session));
        ensure!(found.is_none(), "{what}: {found:?}");
        Ok(())
    }

    async fn a_pod_is_replaced(&self, workers: usize) -> Result<()> {
        let old = self.everywhere(workers).await?;
        let views = self.views(&old).await?;
        let mark = Moment::now();
        self.context.kubectl(&["delete", "pod", &format!("{}-1", self.name)]).await?;
        let now = until("a successor to run all jobs", || async {
            let sessions = self.history()?.running_everywhere(&self.jobs)?;
            Ok((sessions.len() == workers && sessions != old).then_some(sessions))
        })
        .await?;
        let stay: BTreeSet<_> = old.intersection(&now).cloned().collect();
        ensure!(stay.len() + 1 == workers, "{stay:?} go on");
        let after = self.views(&stay).await?;
        ensure!(after.iter().all(|it| views.get(it.0) == Some(it.1)), "{views:?} -> {after:?}");
        self.nothing_began(&stay, mark, "a pod is replaced")?;
        self.context.laps.lap(format!("a pod is replaced: {} others have no work", stay.len()));
        Ok(())
    }

    async fn status_counts(&self, message: &str) -> Result<()> {
        until(message, || async {
            let status = self.context.api::<Swarm>().get(&self.name).await?.status;
            let status = status.context("no status")?;
            let counts = (status.jobs, status.assigned, status.moving);
            let assigned = status.conditions.iter().find(|it| it.type_ == "AllJobsAssigned");
            let said = assigned.is_some_and(|it| it.message == message && it.status == "True");
            let is_ready =
                status.conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True");
            ensure!(counts == (6, 6, 0) && said && is_ready, "{counts:?}, {:?}", status.conditions);
            Ok(Some(()))
        })
        .await
    }

    async fn a_share_is_refused(&self) -> Result<()> {
        let jobs = json!({"replication": "All", "jobs": [{"name": "half", "share": 50}]});
        let error = self.patch(&jobs).await.err().context("a share with All was taken")?;
        let error = format!("{error:#}");
        ensure!(error.contains("not allow pin, share or runOnce"), "{error}");
        Ok(())
    }
}

/// Plain workers read all jobs in the view that they share, and follow changes of it.
async fn plain_workers(context: &Context) -> Result<()> {
    let mut pool = SessionPool::new(context, "readers").with_short_leases();
    (pool.protocol, pool.asks_for) = (Protocol::Plain, Protocol::Plain);
    pool.replication = Some("All");
    pool.apply().await?;
    let sessions = pool.everywhere(2).await?;
    let (start, mark) = (Instant::now(), Moment::now());
    pool.jobs.insert("readers:late".into());
    pool.apply().await?;
    ensure!(pool.everywhere(2).await? == sessions, "the workers were replaced");
    let ms = start.elapsed().as_millis();
    let history = pool.history()?;
    let stopped = history.since(mark).find(|line| line.event == Event::Stop);
    ensure!(stopped.is_none(), "{stopped:?}");
    context.laps.lap(format!("plain workers: one more job on both after {ms} ms"));
    pool.replication = Some("One");
    pool.apply().await?;
    pool.at_rest().await?;
    context.laps.lap("plain workers: each job on one again");
    Ok(())
}
