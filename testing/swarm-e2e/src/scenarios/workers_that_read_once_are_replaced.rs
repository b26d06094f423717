//! Third-party programs read their jobs only when they start. Workers whose jobs changed are
//! replaced, and workers that lose jobs are replaced first. Never more workers are missing than
//! allowed, and no budget is overridden.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use swarm_adapters_k8s::status::trouble;
use swarm_client::api::Swarm;
use tokio::sync::Mutex;

use crate::binaries::repository;
use crate::scenario::Context;
use crate::until::until;

/// A program that reads its jobs once, logs them, and does nothing more.
const READS_ONCE: &str = r#"    trap 'exit 0' TERM
    found=
    while read -r key value; do
      case $key in
        "$HOSTNAME:") found=yes ;;
        jobs:) [ -z "$found" ] || { echo "running: $value"; break; } ;;
      esac
    done < /app/config/config.yml
    echo "ready"
    while true; do sleep 1; done
"#;

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    context.apply(&manifest(3)?).await?;
    let mut jobs: BTreeSet<String> = (0..6).map(|n| format!("feed:{n}")).collect();
    edit(&context, &jobs, json!({"mode": "Evict"})).await?;
    let first = all_run(&context, &jobs, 3, "the first jobs").await?;
    // Each pod was created before its jobs were assigned: it was replaced exactly once.
    let evicted = replacements(&context).await?;
    ensure!(
        evicted.iter().all(|(_, times)| *times == 1),
        "replaced for the first jobs: {evicted:?}"
    );
    converged(&context, "AllHaveNewest").await?;

    jobs.remove(first[0].1.first().context("worker 0 has jobs")?);
    edit(&context, &jobs, json!({"mode": "Evict"})).await?;
    let second = all_run(&context, &jobs, 3, "one job less").await?;
    let kept: Vec<_> = first.iter().zip(&second).map(|(was, is)| was.0 == is.0).collect();
    ensure!(kept == [false, true, true], "only worker 0 was affected, kept: {kept:?}");

    losers_go_first(&context, &jobs).await?;
    a_budget_is_never_overridden(&context, &mut jobs).await?;
    deletion_forgets_the_budget(&context, &mut jobs).await?;
    nobody_runs_anything_after_the_swarm(&context).await
}

/// The plain sample with other jobs, workers and program.
fn manifest(replicas: usize) -> Result<String> {
    let file = repository().join("deploy/samples/plain/plain.yaml");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let (before, rest) = text.split_once("  worker.sh: |\n").context("the sample has a program")?;
    let (_, after) = rest.split_once("---\n").context("and more behind it")?;
    ensure!(after.contains("replicas: 2"), "the sample has two replicas");
    let after = after.replace("replicas: 2", &format!("replicas: {replicas}"));
    // A pod of two budgets can never be evicted, and this scenario applies its own budget.
    let documents = after.split("---\n").filter(|it| !it.contains("kind: PodDisruptionBudget\n"));
    let after = documents.collect::<Vec<_>>().join("---\n");
    Ok(format!("{before}  worker.sh: |\n{READS_ONCE}---\n{after}"))
}

async fn edit(context: &Context, jobs: &BTreeSet<String>, refresh: Value) -> Result<()> {
    let list: Vec<_> = jobs.iter().map(|name| json!({"name": name})).collect();
    let spec = json!({"spec": {"jobs": list, "refresh": refresh}});
    context.api::<Swarm>().patch("plain", &PatchParams::default(), &Patch::Merge(spec)).await?;
    Ok(())
}

/// The jobs that each worker read when it started, in the order of slots, with its pod's UID.
type Said = Vec<(String, Vec<String>)>;

async fn said(context: &Context) -> Result<Said> {
    let mut said = Vec::new();
    for (name, uid, _) in pods(context).await? {
        let log = context.cluster.pod_log(&context.namespace, &name).await?;
        ensure!(log.contains("ready"), "{name} is still reading");
        let line = log.lines().find_map(|line| line.strip_prefix("running: "));
        let jobs: Vec<String> = serde_json::from_str(line.unwrap_or("[]"))?;
        said.push((uid, jobs));
    }
    Ok(said)
}

/// All pods by name, with UID and whether they are being deleted.
async fn pods(context: &Context) -> Result<Vec<(String, String, bool)>> {
    let pods = context.api::<Pod>().list(&ListParams::default().labels("app=plain")).await?;
    let pod = |pod: &Pod| {
        let leaving = pod.metadata.deletion_timestamp.is_some();
        (pod.name_any(), pod.uid().unwrap_or_default(), leaving)
    };
    Ok(pods.iter().map(pod).collect())
}

async fn all_run(
    context: &Context,
    jobs: &BTreeSet<String>,
    workers: usize,
    what: &str,
) -> Result<Said> {
    let change = Instant::now();
    let found = until(what, || async {
        let said = said(context).await?;
        let mut running: Vec<_> = said.iter().flat_map(|(_, jobs)| jobs.clone()).collect();
        running.sort();
        let loads: Vec<_> = said.iter().map(|(_, jobs)| jobs.len()).collect();
        ensure!(loads.len() == workers && running.iter().eq(jobs), "{loads:?}: {running:?}");
        Ok(Some(said))
    })
    .await?;
    context.laps.lap(format!("{what}: all run after {} ms", change.elapsed().as_millis()));
    Ok(found)
}

async fn converged(context: &Context, reason: &str) -> Result<()> {
    context.kubectl(&["wait", "--for=condition=Ready", "swarm/plain", "--timeout=5m"]).await?;
    let path = "-o=jsonpath={.status.conditions[?(@.type=='Converged')].reason}";
    let found = context.kubectl(&["get", "swarm", "plain", path]).await?;
    ensure!(found == reason, "Converged says {found}, not {reason}");
    Ok(())
}

/// Adds a fourth worker, to which some jobs move. The fourth worker is replaced to read these jobs
/// after the workers that lost them. Never more than one worker is missing.
async fn losers_go_first(context: &Context, jobs: &BTreeSet<String>) -> Result<()> {
    let before: BTreeMap<_, _> =
        pods(context).await?.into_iter().map(|(name, uid, _)| (name, uid)).collect();
    let order = Mutex::new(Vec::<String>::new());
    let missing_max = Mutex::new(0);
    let newcomer = Mutex::new(None::<String>);
    context.kubectl(&["scale", "statefulset", "plain", "--replicas=4"]).await?;
    let change = Instant::now();
    until("the fourth worker to have its share", || async {
        let now = pods(context).await?;
        let there = now.iter().filter(|(name, _, leaving)| before.contains_key(name) && !leaving);
        let missing = before.len() - there.count();
        let mut most = missing_max.lock().await;
        *most = missing.max(*most);
        let mut order = order.lock().await;
        for (name, uid, leaving) in &now {
            let was = match before.get(name) {
                Some(was) => was.clone(),
                None => newcomer.lock().await.get_or_insert_with(|| uid.clone()).clone(),
            };
            if (was != *uid || *leaving) && !order.contains(name) {
                order.push(name.clone());
            }
        }
        let said = said(context).await?;
        let mut running: Vec<_> = said.iter().flat_map(|(_, jobs)| jobs.clone()).collect();
        running.sort();
        let all_have_some = said.iter().all(|(_, jobs)| !jobs.is_empty());
        ensure!(said.len() == 4 && all_have_some && running.iter().eq(jobs), "{said:?}");
        Ok(Some(()))
    })
    .await?;
    let (order, most) = (order.into_inner(), missing_max.into_inner());
    ensure!(order.last().is_some_and(|last| last == "plain-3"), "replaced in the order {order:?}");
    ensure!(most <= 1, "{most} workers were missing at a time");
    let took = change.elapsed().as_millis();
    context.laps.lap(format!("a fourth worker has its share after {took} ms: {order:?}"));
    Ok(())
}

/// Applies a budget that allows nothing. The pods stay, and the Swarm reports the reason.
async fn a_budget_is_never_overridden(
    context: &Context,
    jobs: &mut BTreeSet<String>,
) -> Result<()> {
    converged(context, "AllHaveNewest").await?;
    context.apply(NEVER).await?;
    until("the budget to be in force", || async {
        let path = "-o=jsonpath={.status.expectedPods}";
        let pods = context.kubectl(&["get", "pdb", "never", path]).await?;
        Ok((pods == "4").then_some(()))
    })
    .await?;
    let before = said(context).await?;
    jobs.insert("feed:late".to_owned());
    edit(context, jobs, json!({"mode": "Evict"})).await?;
    let message = until("the Swarm to report that a budget blocks it", || async {
        let status = context.api::<Swarm>().get("plain").await?.status.unwrap_or_default();
        Ok(trouble(&status, "RefreshBlocked").map(str::to_owned))
    })
    .await?;
    ensure!(message.contains("disruption budget"), "{message}");
    context.laps.lap(message);
    let events =
        context.kubectl(&["get", "events", "--field-selector=reason=RefreshBlocked"]).await?;
    ensure!(events.contains("Warning"), "no warning in {events}");
    ensure!(said(context).await? == before, "the pods and their jobs stay");
    context.kubectl(&["delete", "pdb", "never"]).await?;
    all_run(context, jobs, 4, "one job more, once the budget is gone").await?;
    converged(context, "AllHaveNewest").await
}

async fn deletion_forgets_the_budget(context: &Context, jobs: &mut BTreeSet<String>) -> Result<()> {
    context.apply(NEVER).await?;
    jobs.insert("feed:later".to_owned());
    edit(context, jobs, json!({"mode": "Delete", "maxUnavailable": 4})).await?;
    all_run(context, jobs, 4, "one job more, by deletion in spite of a budget").await?;
    context.kubectl(&["delete", "pdb", "never"]).await.map(drop)
}

async fn nobody_runs_anything_after_the_swarm(context: &Context) -> Result<()> {
    context.kubectl(&["delete", "swarm", "plain", "--timeout=5m"]).await?;
    all_run(context, &BTreeSet::new(), 4, "the Swarm deleted").await.map(drop)
}

/// The number of times that each pod was recreated, by the Events of its StatefulSet.
async fn replacements(context: &Context) -> Result<BTreeMap<String, usize>> {
    let columns = "-o=jsonpath={range .items[*]}{.message}{' '}{.count}{'\\n'}{end}";
    let select = "--field-selector=reason=SuccessfulCreate";
    let events = context.kubectl(&["get", "events", select, columns]).await?;
    let pod = |line: &str| {
        let name = line.strip_prefix("create Pod ")?.split(' ').next()?.to_owned();
        let count: usize = line.rsplit(' ').next()?.parse().ok()?;
        Some((name, count - 1))
    };
    Ok(events.lines().filter_map(pod).collect())
}

const NEVER: &str = "
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: never}
spec:
  maxUnavailable: 0
  selector: {matchLabels: {app: plain}}
";
