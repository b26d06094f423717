//! Jobs with shares on real workers. A job that takes a whole worker arrives on a full pool and
//! runs soon, never next to another job. More important jobs displace others, which the status and
//! an Event report. Smaller workers are full sooner.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use serde_json::{Value, json};
use swarm_adapters_host::runlog::judge::RunName;
use swarm_client::api::{SharesStatus, Swarm, SwarmStatus};

use super::session_pool::{GRACEFUL, Policy, SessionPool};
use crate::scenario::Context;
use crate::until::until;

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let mut pool = SessionPool::new(&context, "quotes");
    (pool.policy, pool.workers) = (Policy::Exclusive, 3);
    pool.apply().await?;
    pool.at_rest().await?;

    let parts = ["fx:40", "rates:40", "bonds:40"];
    pool.source(&parts).await?;
    pool.patch_spec(&json!({"jobSources": [{
        "configMap": {"name": "quotes-shares", "key": "jobs"}, "shareSuffix": true,
    }]}))
    .await?;
    let small = pool.jobs.clone();
    let with = |more: &[&str]| {
        let mut jobs = small.clone();
        jobs.extend(more.iter().map(|&job| job.to_owned()));
        jobs
    };
    let three = ["fx", "rates", "bonds"];
    let placed = pool.runs_all(&with(&three)).await?;
    let workers: BTreeSet<_> = three.iter().map(|job| &placed[*job].worker).collect();
    ensure!(workers.len() == 3, "each worker has room for one: {placed:?}");
    pool.reserves([300, 120, 180, 60], &[(0, 3, 120, 0)]).await?;

    // No worker has room for the job. Other jobs have to move, and it waits until they have
    // stopped.
    let start = Instant::now();
    pool.source(&["fx:40", "rates:40", "bonds:40", "cnbc:100"]).await?;
    pool.starts("cnbc").await?;
    let took = start.elapsed();
    let four = ["fx", "rates", "bonds", "cnbc"];
    pool.runs_all(&with(&four)).await?;
    let ms = took.as_millis();
    context.laps.lap(format!("a whole-worker job arrived on a full pool: it runs after {ms} ms"));
    ensure!(took <= GRACEFUL, "{ms} ms");
    pool.reserves([300, 220, 80, 60], &[(0, 4, 220, 0)]).await?;

    pool.more_important_ones_arrive(&with(&four)).await?;
    pool.unlike_workers(&with(&four)).await?;

    let alone = ["--alone=cnbc", "--alone=news:0", "--alone=news:1", "--alone=news:2"];
    let verdict = pool.verified(&alone).await?;
    context.laps.lap(format!("swarm verify: {verdict}"));
    Ok(())
}

impl SessionPool {
    /// Writes the jobs of the ConfigMap, in the format of the predecessors.
    async fn source(&self, jobs: &[&str]) -> Result<()> {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "quotes-shares"},
            "data": {"jobs": json!(jobs).to_string()},
        });
        self.context.apply(&map.to_string()).await
    }

    async fn patch_spec(&self, spec: &Value) -> Result<()> {
        let patch = json!({"spec": spec}).to_string();
        let args = ["patch", "swarm", &self.name, "--type=merge", "--patch", &patch];
        self.context.kubectl(&args).await.map(drop)
    }

    /// Waits until exactly these jobs run, each once.
    async fn runs_all(&self, jobs: &BTreeSet<String>) -> Result<BTreeMap<String, RunName>> {
        until(&format!("{} jobs to run", jobs.len()), || async {
            self.history()?.running(jobs).map(Some)
        })
        .await
    }

    async fn starts(&self, job: &str) -> Result<()> {
        until(&format!("{job} to start"), || async {
            Ok(self.history()?.last_start(job).is_ok().then_some(()))
        })
        .await
    }

    async fn status(&self) -> Result<SwarmStatus> {
        self.context.api::<Swarm>().get(&self.name).await?.status.context("no status")
    }

    /// Waits until the status has these sums and classes. The sums are capacity, reserved, free,
    /// and the largest free part. A class has a priority, jobs, reserved, and waiting.
    async fn reserves(&self, sums: [i32; 4], classes: &[(i32, i32, i32, i32)]) -> Result<()> {
        until("the status to count shares", || async {
            let shares = self.status().await?.shares.context("no shares")?;
            let SharesStatus { capacity, reserved, free, largest_free, classes: found } = &shares;
            let is_sums = [*capacity, *reserved, *free, *largest_free] == sums;
            let found = found.iter().map(|it| (it.priority, it.jobs, it.reserved, it.waiting));
            ensure!(is_sums && found.eq(classes.iter().copied()), "{shares:?}");
            Ok(Some(()))
        })
        .await
    }

    /// Adds three jobs that need a worker each, more important than all others. No other job has
    /// room then.
    async fn more_important_ones_arrive(&self, all: &BTreeSet<String>) -> Result<()> {
        let job = |n| json!({"name": format!("news:{n}"), "share": 100, "priority": 20});
        let mut jobs: Vec<_> = self.jobs.iter().map(|name| json!({"name": name})).collect();
        let start = Instant::now();
        jobs.extend((0..3).map(job));
        self.patch_spec(&json!({"jobs": jobs})).await?;
        let news = (0..3).map(|n| format!("news:{n}")).collect();
        self.runs_all(&news).await?;
        let ms = start.elapsed().as_millis();
        self.context.laps.lap(format!("three more important ones run alone after {ms} ms"));
        self.reserves([300, 300, 0, 0], &[(20, 3, 300, 0), (0, 0, 0, 4)]).await?;
        let status = self.status().await?;
        ensure!(status.unassigned == [("capacity".to_owned(), 10)].into(), "{status:?}");
        let message = &status.conditions.iter().find(|it| it.type_ == "AllJobsAssigned");
        let message = message.map(|it| it.message.clone()).unwrap_or_default();
        ensure!(message.contains("come before 4 of priority 0"), "{message}");
        until("an Event about displaced jobs", || async {
            let events = self.context.api::<Event>().list(&ListParams::default()).await?;
            let is_it = |it: &Event| it.reason.as_deref() == Some("JobsDisplaced");
            let note = events.items.into_iter().find(is_it).and_then(|it| it.note);
            let note = note.unwrap_or_default();
            ensure!(note.contains("gave up their workers"), "{note}");
            Ok(Some(()))
        })
        .await?;
        let jobs: Vec<_> = self.jobs.iter().map(|name| json!({"name": name})).collect();
        self.patch_spec(&json!({"jobs": jobs})).await?;
        self.runs_all(all).await?;
        self.context.laps.lap("they went, and all others run again");
        Ok(())
    }

    /// Makes a worker half as large as the others, by its slot or by a label of its pod.
    async fn unlike_workers(&self, all: &BTreeSet<String>) -> Result<()> {
        let at = |slot: usize| format!("{}-{slot}", self.name);
        let half = |which: Value| {
            let mut entry = which;
            entry["percent"] = 50.into();
            json!({"worker": {"protocol": "Session", "capacity": [entry]}})
        };
        let cnbc_is_elsewhere = |slot: usize| async move {
            until(&format!("cnbc to leave {}", at(slot)), || async {
                let runs = self.history()?.running(all)?;
                let others = ["fx", "rates", "bonds", "cnbc"].iter();
                let on_it = others.filter(|job| runs[**job].worker == at(slot)).count();
                ensure!(runs["cnbc"].worker != at(slot) && on_it <= 1, "{runs:?}");
                Ok(Some(()))
            })
            .await
        };
        let holder = self.runs_all(all).await?["cnbc"].worker.clone();
        let slot = (0..3).find(|slot| at(*slot) == holder).context("no slot")?;
        self.patch_spec(&half(json!({"slots": [slot]}))).await?;
        cnbc_is_elsewhere(slot).await?;
        self.reserves([250, 220, 30, 20], &[(0, 4, 220, 0)]).await?;
        let holder = self.runs_all(all).await?["cnbc"].worker.clone();
        let slot = (0..3).find(|slot| at(*slot) == holder).context("no slot")?;
        self.context.kubectl(&["label", "pod", &holder, "size=small"]).await?;
        self.patch_spec(&half(json!({"matchLabels": {"size": "small"}}))).await?;
        cnbc_is_elsewhere(slot).await?;
        self.context.laps.lap("smaller workers, by slot and by label, take no whole-worker job");
        Ok(())
    }
}
