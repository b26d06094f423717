//! One Swarm with 20,000 jobs on a hundred real pods of plain workers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::task::JoinSet;

use super::{Times, shown};
use crate::cluster::Cluster;
use crate::output::say;
use crate::scenario::Context;
use crate::scenarios::pool::{Report, report, sample};
use crate::until::until_within;

const JOBS: usize = 20_000;
const WORKERS: usize = 100;
/// The bound on the start of all pods.
pub(super) const PODS_WITHIN: Duration = Duration::from_mins(15);
/// The bound on any change.
const REST_WITHIN: Duration = Duration::from_mins(3);
/// The number of jobs that are added one by one.
const EDITS: usize = 10;
/// The time between two polls.
const STEP: Duration = Duration::from_millis(5);
/// The time between two edits. All effects of an edit are over by then, the last nudge too.
const PAUSE: Duration = Duration::from_secs(8);

pub(super) async fn measure(cluster: &Arc<Cluster>) -> Result<()> {
    let context = Context::new(cluster, "figures-large").await?;
    context.operator().await?;
    let manifest = sample(WORKERS)?;
    let (_, pool) = manifest.split_once("\n---\n").unwrap_or_default();
    // With a line a second for each job, the log would dominate the figures.
    let quiet = "          env:\n            - {name: RUST_LOG, value: warn}\n";
    let pool = pool.replacen("          env:\n", quiet, 1);
    ensure!(pool.contains("RUST_LOG"), "the sample's workers have an environment");
    // Pods start only with a view, so it is created empty first, as the documentation says.
    context
        .apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: swarm-worker-config}}")
        .await?;
    context.apply(&pool).await?;
    let timeout = format!("--timeout={}s", PODS_WITHIN.as_secs());
    context.kubectl(&["rollout", "status", "statefulset/swarm-worker", &timeout]).await?;
    context.laps.lap(format!("{WORKERS} pods ready"));

    let mut jobs: BTreeSet<String> = (0..JOBS - EDITS).map(job).collect();
    write(&context, "list", &jobs).await?;
    let applied = Instant::now();
    context.apply(SWARM).await?;
    until_within("all jobs to run", REST_WITHIN, || {
        everything(&context, "swarm-worker", WORKERS, &jobs)
    })
    .await?;
    let first = applied.elapsed();
    context.laps.lap(format!("all run after {}", shown(first)));

    let mut times = Vec::new();
    for n in JOBS - EDITS..JOBS {
        tokio::time::sleep(PAUSE).await;
        jobs.insert(job(n));
        let start = Instant::now();
        write(&context, "list", &jobs).await?;
        let holder = published(&context, &job(n), start).await?;
        while !report(&context, &holder).await?.jobs.contains(&job(n)) {
            ensure!(start.elapsed() < REST_WITHIN, "{} did not arrive at {holder}", job(n));
            tokio::time::sleep(STEP).await;
        }
        times.push(start.elapsed());
    }
    until_within("all jobs to run", REST_WITHIN, || {
        everything(&context, "swarm-worker", WORKERS, &jobs)
    })
    .await?;
    print(first, &Times::new(times));
    context.kubectl(&["delete", "swarm", "--all"]).await?;
    context.kubectl(&["delete", "statefulset", "--all", "--cascade=foreground"]).await.map(drop)
}

const SWARM: &str = "
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: large}
spec:
  pool: {statefulSet: {name: swarm-worker}}
  view: {configMapName: swarm-worker-config}
  jobSources:
    - {configMap: {name: list, key: jobs}}
";

fn print(first: Duration, edits: &Times) {
    say(format_args!("\n| {JOBS} jobs from a ConfigMap, {WORKERS} pods | |\n|---|---|"));
    say(format_args!("| Swarm applied → all run, by the workers' own word | {} |", shown(first)));
    let (median, worst) = (shown(edits.at(50)), shown(edits.at(100)));
    say(format_args!(
        "| one job more in the list → it runs: median, worst of {EDITS} | {median}, {worst} |"
    ));
}

fn job(n: usize) -> String {
    format!("stream:camera{n:05}:new")
}

/// Writes the whole list to a ConfigMap, as a user's tool does.
pub(crate) async fn write(
    context: &Context,
    name: &str,
    jobs: impl IntoIterator<Item = &String>,
) -> Result<()> {
    let mut list = String::new();
    for job in jobs {
        writeln!(list, "- {job}")?;
    }
    let patch = Patch::Apply(json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {"jobs": list},
    }));
    let params = PatchParams::apply("figures").force();
    context.api::<ConfigMap>().patch(name, &params, &patch).await?;
    Ok(())
}

/// Waits until the view assigns `job` to a worker, and returns that worker.
async fn published(context: &Context, job: &str, since: Instant) -> Result<String> {
    let quoted = format!("\"{job}\"");
    loop {
        let view = context.api::<ConfigMap>().get("swarm-worker-config").await?;
        let text = view.data.as_ref().and_then(|data| data.get("config.yml"));
        let mut worker = "";
        for line in text.map(String::as_str).unwrap_or_default().lines() {
            if line.starts_with("  ") && !line.starts_with("   ") {
                worker = line.trim().trim_end_matches(':');
            } else if line.contains(&quoted) {
                return Ok(worker.to_owned());
            }
        }
        ensure!(since.elapsed() < REST_WITHIN, "the view does not have {job}");
        tokio::time::sleep(STEP).await;
    }
}

/// Queries all workers, and fails unless exactly these jobs run, each once.
pub(super) async fn everything(
    context: &Context,
    pool: &str,
    workers: usize,
    jobs: &BTreeSet<String>,
) -> Result<Option<()>> {
    let mut asked = JoinSet::new();
    for n in 0..workers {
        let (context, pod) = (context.clone(), format!("{pool}-{n}"));
        asked.spawn(async move { report(&context, &pod).await });
    }
    let mut running = BTreeMap::<String, usize>::new();
    while let Some(answer) = asked.join_next().await {
        let Report { jobs, version: _ } = answer.context("a look failed")??;
        for job in jobs {
            *running.entry(job).or_default() += 1;
        }
    }
    let twice = running.values().filter(|count| 1 < **count).count();
    if twice != 0 || !running.keys().eq(jobs) {
        bail!("{} of {} jobs run, {twice} of them twice", running.len(), jobs.len());
    }
    Ok(Some(()))
}
