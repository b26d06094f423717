//! One Swarm with 100,000 jobs on a hundred real session workers: its ledger is stored in parts, and
//! each worker has a view of its own.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kube::api::ListParams;
use swarm_client::api::SwarmLedgerPart;

use super::cpu;
use super::large::{PODS_WITHIN, everything, write};
use super::shown;
use crate::binaries::repository;
use crate::cluster::Cluster;
use crate::output::say;
use crate::scenario::Context;
use crate::scenarios::the_plugin_passes_flags_on::swarm as plugin;
use crate::until::until_within;

const JOBS: usize = 100_000;
const WORKERS: usize = 100;
/// The number of jobs that fit into one ConfigMap.
const JOBS_A_LIST: usize = 20_000;
/// The bound on any change.
const REST_WITHIN: Duration = Duration::from_mins(5);
/// The number of times that each command is run.
const ANSWERS: usize = 3;
/// The number of jobs that are added one by one.
const EDITS: usize = 5;

pub(super) async fn measure(cluster: &Arc<Cluster>) -> Result<()> {
    let context = Context::new(cluster, "figures-large-sessions").await?;
    context.operator().await?;
    context.apply(&workers(&context)?).await?;
    let timeout = format!("--timeout={}s", PODS_WITHIN.as_secs());
    context.kubectl(&["rollout", "status", "statefulset/backup-worker", &timeout]).await?;
    context.laps.lap(format!("{WORKERS} session workers ready"));

    let mut lists: Vec<Vec<String>> = vec![Vec::new(); JOBS.div_ceil(JOBS_A_LIST)];
    for n in 0..JOBS - EDITS {
        lists[n / JOBS_A_LIST].push(job(n));
    }
    for (number, list) in lists.iter().enumerate() {
        write(&context, &list_name(number), list).await?;
    }
    let applied = Instant::now();
    context.apply(&swarm(lists.len())).await?;
    let mut jobs: BTreeSet<String> = lists.concat().into_iter().collect();
    let all = async |jobs: &BTreeSet<String>| {
        let look = || everything(&context, "backup-worker", WORKERS, jobs);
        until_within("all jobs to run", REST_WITHIN, look).await
    };
    all(&jobs).await?;
    let first = applied.elapsed();
    context.laps.lap(format!("all run after {}", shown(first)));

    let (mut worst, last) = (Duration::ZERO, lists.len() - 1);
    for n in JOBS - EDITS..JOBS {
        jobs.insert(job(n));
        lists[last].push(job(n));
        let start = Instant::now();
        write(&context, &list_name(last), &lists[last]).await?;
        all(&jobs).await?;
        worst = worst.max(start.elapsed());
    }
    let answers = answers(&context, &job(0)).await?;
    let at_rest = cpu::taken(&context).await?;
    let parts = context.api::<SwarmLedgerPart>().list_metadata(&ListParams::default()).await?;
    say(format_args!("\n| {JOBS} jobs from ConfigMaps, {WORKERS} session workers | |\n|---|---|"));
    say(format_args!("| Swarm applied → all run, by the workers' own word | {} |", shown(first)));
    say(format_args!(
        "| one job more in the list → all {WORKERS} workers report that it runs, worst of {EDITS} | {} |",
        shown(worst)
    ));
    say(format_args!("| parts of the ledger | {} |", parts.items.len()));
    for (command, took) in answers {
        say(format_args!("| `kubectl swarm {command}`, best of {ANSWERS} | {} |", shown(took)));
    }
    for (what, percent) in at_rest {
        say(format_args!("| CPU of {what} at rest, of one core | {percent:.1} % |"));
    }
    context.kubectl(&["delete", "swarm", "--all"]).await?;
    context.kubectl(&["delete", "statefulset", "--all", "--cascade=foreground"]).await.map(drop)
}

/// Returns the shortest time of each command about the pool.
async fn answers(context: &Context, job: &str) -> Result<Vec<(String, Duration)>> {
    let who = format!("who {job}");
    let mut times = Vec::new();
    for command in ["status large", &who, "workers large", "jobs large -o json", "history"] {
        let words: Vec<_> = command.split(' ').chain(["-n", &context.namespace]).collect();
        let mut best = Duration::MAX;
        for _ in 0..ANSWERS {
            let start = Instant::now();
            let output = plugin(context, &words, true).await?;
            ensure!(output.status.success(), "{command}: {output:?}");
            best = best.min(start.elapsed());
        }
        times.push((command.to_owned(), best));
    }
    Ok(times)
}

fn list_name(number: usize) -> String {
    format!("list-{number}")
}

fn job(n: usize) -> String {
    format!("stream:camera{n:06}:new")
}

/// The manifests of a hundred workers of the sample, with their account and its rights.
fn workers(context: &Context) -> Result<String> {
    let file = repository().join("deploy/samples/sessions.yaml");
    let text = std::fs::read_to_string(file)?;
    let (pool, swarm) = text.rsplit_once("\n---\n").unwrap_or_default();
    ensure!(swarm.contains("kind: Swarm\n"), "the last document of the sample is no Swarm");
    // With a line a second for each job, the log would dominate the figures.
    let quiet = "          env:\n            - {name: RUST_LOG, value: warn}\n";
    let pool = pool
        .replacen("          env:\n", quiet, 1)
        .replace("namespace: streams", &format!("namespace: {}", context.namespace))
        .replace("replicas: 2", &format!("replicas: {WORKERS}"));
    let parts = ["kind: ServiceAccount", "RUST_LOG", "replicas: 100"];
    ensure!(parts.iter().all(|part| pool.contains(part)), "the sample has changed");
    Ok(pool)
}

fn swarm(lists: usize) -> String {
    let mut text = "
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: large}
spec:
  pool: {statefulSet: {name: backup-worker}}
  worker: {protocol: Session}
  handover: {policy: Exclusive}
  jobSources:
"
    .to_owned();
    for number in 0..lists {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "    - {{configMap: {{name: {}, key: jobs}}}}", list_name(number));
    }
    text
}
