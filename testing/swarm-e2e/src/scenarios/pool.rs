//! Helpers for scenarios about a pool: the workers' reports of their jobs, and the wait until the
//! pool is at rest.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt as _;
use kube::api::{ListParams, WatchEvent, WatchParams};
use serde::Deserialize;
use swarm_adapters_k8s::ledger::{KubeLedgerStore, Lookups};
use swarm_client::api::{Swarm, SwarmLedger, SwarmLedgerSpec};
use swarm_core::ports::{LedgerStore as _, Seen};

use crate::binaries::repository;
use crate::scenario::Context;
use crate::until::{DEADLINE, until};

/// The longest allowed time until a worker answers.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The port of a worker.
const PORT: u16 = 9090;
/// The label of all workers of the sample.
const WORKERS: &str = "app=swarm-worker";

/// The report of one worker.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Report {
    pub(crate) version: u64,
    pub(crate) jobs: BTreeSet<String>,
}

/// The reports of all workers, by pod name.
pub(crate) type Reports = BTreeMap<String, Report>;

/// The shipped sample: 27 streams on a StatefulSet with this number of replicas.
pub(crate) fn sample(replicas: usize) -> Result<String> {
    let file = repository().join("deploy/samples/streams.yaml");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    ensure!(text.contains("replicas: 3"), "the sample has three replicas");
    swarm_first(&text.replace("replicas: 3", &format!("replicas: {replicas}")))
}

/// Moves the Swarm of a sample, which is the last document, before its workload. Edits of the first
/// `name:` or `labels:` then change the Swarm. A Swarm that comes before its pool is tried, too.
pub(crate) fn swarm_first(text: &str) -> Result<String> {
    let (workload, swarm) = text.rsplit_once("\n---\n").context("a sample of one document")?;
    ensure!(swarm.contains("kind: Swarm\n"), "the last document of a sample is no Swarm");
    Ok(format!("{}\n---\n{workload}\n", swarm.trim_end()))
}

/// The jobs that a manifest lists.
pub(crate) fn jobs_of(manifest: &str) -> BTreeSet<String> {
    let names = manifest.lines().filter_map(|line| line.trim().strip_prefix("- name: stream:"));
    names.map(|name| format!("stream:{name}")).collect()
}

/// Asks every worker for its jobs, also a worker that is being deleted.
pub(crate) async fn reports(context: &Context) -> Result<Reports> {
    let pods = context.api::<Pod>().list(&ListParams::default().labels(WORKERS)).await?;
    let mut reports = Reports::new();
    for pod in pods {
        let name = pod.name_any();
        reports.insert(name.clone(), report(context, &name).await?);
    }
    Ok(reports)
}

/// Asks every worker for its jobs, outside of a wait. A late answer of a busy machine means
/// nothing, so a worker that has not answered is asked again.
pub(crate) async fn all_reports(context: &Context) -> Result<Reports> {
    until("every worker to answer", || async { reports(context).await.map(Some) }).await
}

/// Asks one worker for its jobs.
pub(crate) async fn report(context: &Context, pod: &str) -> Result<Report> {
    // The API server would wait half a minute for an address that no longer exists.
    let answer = context.cluster.pod_http(&context.namespace, pod, PORT, "internal/version");
    let text = tokio::time::timeout(ANSWER_WITHIN, answer).await.context("no answer")??;
    serde_json::from_str(&text).with_context(|| format!("{pod} answered {text}"))
}

/// Waits until exactly `workers` workers run exactly `jobs`, each job once and evenly. Prints the
/// time since `change`.
pub(crate) async fn at_rest(
    context: &Context,
    jobs: &BTreeSet<String>,
    workers: usize,
    change: Instant,
) -> Result<Reports> {
    let what = format!("{} jobs at rest on {workers} workers", jobs.len());
    let found = until(&what, || async {
        let reports = reports(context).await?;
        judge(&reports, jobs, workers)?;
        Ok(Some(reports))
    })
    .await?;
    context.laps.lap(format!("{what}, {} ms after the change", change.elapsed().as_millis()));
    Ok(found)
}

/// Checks that the reports of the workers contain each job once, evenly shared.
pub(super) fn judge(reports: &Reports, jobs: &BTreeSet<String>, workers: usize) -> Result<()> {
    let loads: Vec<_> = reports.values().map(|report| report.jobs.len()).collect();
    if reports.len() != workers {
        bail!("{} of {workers} workers exist, with {loads:?} jobs", reports.len());
    }
    let mut holder = BTreeMap::new();
    for (name, report) in reports {
        for job in &report.jobs {
            if let Some(other) = holder.insert(job, name) {
                bail!("{job} runs on {other} and on {name}");
            }
        }
    }
    let running: BTreeSet<_> = holder.keys().map(ToString::to_string).collect();
    if running != *jobs {
        let missing = jobs.difference(&running).count();
        let foreign = running.difference(jobs).count();
        bail!("{missing} jobs do not run and {foreign} should not; loads {loads:?}");
    }
    let spread = loads.iter().max().unwrap_or(&0) - loads.iter().min().unwrap_or(&0);
    ensure!(spread <= 1, "uneven: {loads:?}");
    Ok(())
}

/// Every reason for which a Swarm is not ready, from one moment on. A watch misses no reason,
/// however soon the next one follows. Polling may miss one.
pub(super) struct Reasons {
    swarm: String,
    events: BoxStream<'static, kube::Result<WatchEvent<Swarm>>>,
}

impl Reasons {
    /// Watches the Swarm from now on. Call this before the change that causes the reasons.
    pub(super) async fn of(context: &Context, swarm: &str) -> Result<Self> {
        let api = context.api::<Swarm>();
        let version = api.get(swarm).await?.resource_version().context("it has a version")?;
        let one = WatchParams::default().fields(&format!("metadata.name={swarm}"));
        let events = api.watch(&one, &version).await?.boxed();
        Ok(Self { swarm: swarm.to_owned(), events })
    }

    /// Waits for this reason, and returns its message.
    pub(super) async fn wait_for(&mut self, reason: &str) -> Result<String> {
        let mut last = String::from("nothing");
        let found = async {
            while let Some(event) = self.events.next().await {
                let (WatchEvent::Added(swarm) | WatchEvent::Modified(swarm)) = event? else {
                    continue;
                };
                let conditions = swarm.status.unwrap_or_default().conditions;
                let Some(ready) = conditions.into_iter().find(|it| it.type_ == "Ready") else {
                    continue;
                };
                if ready.reason == reason {
                    return Ok(ready.message);
                }
                last = format!("{}: {}", ready.reason, ready.message);
            }
            bail!("the watch ended")
        };
        let found = tokio::time::timeout(DEADLINE, found).await;
        let found = found.map_err(anyhow::Error::from).flatten();
        found.with_context(|| {
            format!("{} never had reason {reason}; the last message: {last}", self.swarm)
        })
    }
}

/// Checks that ledger, view and the reports of the workers agree on the worker of every job, and on
/// the versions.
pub(super) async fn as_recorded(context: &Context, reports: &Reports) -> Result<()> {
    let object = context.api::<SwarmLedger>().get("statefulset.swarm-worker").await?;
    let SwarmLedgerSpec { swarm, pool, .. } = object.spec;
    let (client, namespace) = (context.client.clone(), &context.namespace);
    let (is_alive, is_current) = (Box::new(|_: &str| true), Box::new(|_: &str, _: &Seen| true));
    let store =
        KubeLedgerStore::new(client, namespace, swarm, pool, Lookups { is_alive, is_current });
    let (ledger, _) = store.load().await?.context("no ledger")?;
    let recorded = ledger.view();
    let view = context.api::<ConfigMap>().get("swarm-worker-config").await?;
    let text = view.data.unwrap_or_default().remove("config.yml").unwrap_or_default();
    ensure!(text == recorded.to_yaml(), "ledger {recorded:?} but view {text}");
    let expected = recorded.workers.into_iter().map(|(worker, entry)| {
        let jobs = entry.jobs.iter().map(ToString::to_string).collect();
        (worker, Report { version: entry.version, jobs })
    });
    let expected: Reports = expected.collect();
    ensure!(expected == *reports, "ledger {expected:?} but workers {reports:?}");
    Ok(())
}

/// The number of jobs that run on another worker than before. New and removed jobs do not count.
pub(crate) fn moved(before: &Reports, after: &Reports) -> usize {
    let holders = |reports: &Reports| -> BTreeMap<String, String> {
        let pairs = reports.iter().flat_map(|(worker, report)| {
            report.jobs.iter().map(move |job| (job.clone(), worker.clone()))
        });
        pairs.collect()
    };
    let (before, after) = (holders(before), holders(after));
    before.iter().filter(|(job, worker)| after.get(*job).is_some_and(|now| now != *worker)).count()
}
