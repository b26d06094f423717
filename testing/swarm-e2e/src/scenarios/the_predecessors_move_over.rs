//! A pool of the Go operator moves over. Its workers run by a view that the Go operator wrote,
//! sliced unevenly, with one job under two workers. `import --live` writes a Swarm. By the workers'
//! own reports no job stops, and a job moves only if balance requires it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use swarm_client::annotations::SWARM_LABEL;
use swarm_client::api::Swarm;
use tokio::process::Command;

use super::pool::{Report, Reports, at_rest, moved, reports};
use super::session_pool::MOUNT;
use crate::binaries::repository;
use crate::images::{PAUSE, SHELL};
use crate::run_log::{History, Moment, make_folder};
use crate::scenario::Context;
use crate::until::until;

/// The predecessors' manifests.
const MANIFESTS: &str = "testing/predecessors";
/// Workers of the sample.
const WORKERS: usize = 2;
/// A time after which times in metadata differ.
const LATER: SignedDuration = SignedDuration::from_secs(2);
/// The name of the peering operator's sample.
const PEERS: &str = "kindcustomhttp-sample";
/// Prints the list of addresses again and again, with only a shell and `sleep`.
const READ: &str = "trap 'exit 0' TERM
while :; do
  echo list:
  while IFS= read -r line; do echo \"$line\"; done < /config/hostports
  sleep 1
done";
/// The time for which nothing may move after the pool has moved over.
const WATCHED: Duration = Duration::from_secs(5);

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let jobs = streams()?;
    // Slices of 14 and 14 out of 27 jobs: the Go operator gave the job in the middle to both
    // workers.
    let view = sliced(&jobs, 14);
    let before = former_pool(&context, &view).await?;
    let log = make_folder(&context.namespace)?.join("workers.log");

    let ns = format!("--namespace={}", context.namespace);
    let second = format!("{MANIFESTS}/second-stage/swarm.yaml");
    let manifest = import(&context, &["--live", &ns, &second]).await;
    ensure!(manifest.is_err(), "its namespace is another one: {manifest:?}");
    let list = "testing/predecessors/first-stage/config.yml";
    let (manifest, said) = import(&context, &["--live", &ns, "--name=streams", list]).await?;
    let expected = "2 workers run 27 jobs by ConfigMap `swarm-worker-config`, key `config.yml`, 1 of \
                    them twice; taking over moves 0 of them";
    ensure!(said.contains(expected), "{said}");
    ensure!(said.contains("Deployment `swarm-controller` runs the previous operator"), "{said}");

    // The Swarm takes nothing over while the previous operator runs.
    context.apply(&manifest).await?;
    let is_refused = || async {
        let path = "-o=jsonpath={.status.conditions[?(@.type=='Ready')].reason}";
        let reason = context.kubectl(&["get", "swarm", "streams", path]).await?;
        ensure!(reason == "FormerOperatorRuns", "{reason}");
        Ok(Some(()))
    };
    until("the previous operator to be noticed", is_refused).await?;
    ensure!(view_text(&context).await? == view, "the previous view stays");
    written_from_elsewhere(&context, &view).await?;

    let (start, mark) = (Instant::now(), Moment::now());
    let all: BTreeSet<_> = jobs.iter().cloned().collect();
    context.apply(&manifest).await?;
    let after = at_rest(&context, &all, WORKERS, start).await?;
    ready(&context).await?;
    until("every job to have run on for a while", || async {
        let history = History::read(&log)?;
        let is_late = |at: Moment| WATCHED <= at.since(mark);
        let late: BTreeSet<_> =
            history.since(mark).filter(|line| is_late(line.at)).map(|line| &line.job).collect();
        Ok((late.len() == all.len()).then_some(()))
    })
    .await?;
    judge(&context, &before, &after, &all, &log, mark)
}

/// Writes the view as a previous operator after the Swarm was created, and deletes the previous
/// operator of this namespace. So a previous operator may run elsewhere. The Swarm is deleted, to
/// be created again, and no worker stops a job because of that.
async fn written_from_elsewhere(context: &Context, view: &str) -> Result<()> {
    let swarms = context.api::<Swarm>();
    let created = swarms.get("streams").await?.creation_timestamp().context("no time")?.0;
    // Times in metadata are whole seconds.
    let is_later =
        || async { Ok((created.duration_until(Timestamp::now()) > LATER).then_some(())) };
    until("a later second", is_later).await?;
    let again = format!("{view}# again\n");
    let data = json!({"data": {"config.yml": again}}).to_string();
    let map = ["patch", "configmap", "swarm-worker-config", "--type=merge", "--patch", &data];
    context.kubectl(&[&map[..], &["--field-manager=old-operator"]].concat()).await?;
    context.kubectl(&["delete", "deployment", "swarm-controller"]).await?;
    // The operator checks a refusal again after half a minute, or when the Swarm changes.
    let touch = Patch::Merge(json!({"spec": {"rebalance": {"returnGrace": "31s"}}}));
    swarms.patch("streams", &PatchParams::default(), &touch).await?;
    until("the writer of the view to be named", || async {
        let path = "-o=jsonpath={.status.conditions[?(@.type=='Ready')]}";
        let found = context.kubectl(&["get", "swarm", "streams", path]).await?;
        ensure!(
            found.contains("FormerOperatorRuns") && found.contains("`old-operator`"),
            "{found}"
        );
        Ok(Some(()))
    })
    .await?;
    context.kubectl(&["delete", "swarm", "streams", "--timeout=5m"]).await?;
    ensure!(view_text(context).await? == again, "the previous view stays");
    context.laps.lap("a previous operator elsewhere is known by its writes");
    Ok(())
}

async fn ready(context: &Context) -> Result<()> {
    context.kubectl(&["wait", "--for=condition=Ready", "swarm/streams", "--timeout=5m"]).await?;
    let events = context.kubectl(&["get", "events.events.k8s.io", "-o=wide"]).await?;
    let line = events.lines().find(|line| line.contains("Adopted")).context("no Event Adopted")?;
    ensure!(
        line.contains("took over 27 jobs as 2 workers ")
            && line.contains("; several workers ran 1 "),
        "{line}"
    );
    Ok(())
}

/// Judges the move by the reports of the workers themselves.
fn judge(
    context: &Context,
    before: &Reports,
    after: &Reports,
    jobs: &BTreeSet<String>,
    log: &Path,
    mark: Moment,
) -> Result<()> {
    let history = History::read(log)?;
    let started: Vec<_> = history
        .since(mark)
        .filter(|line| line.event == swarm_adapters_host::runlog::judge::Event::Start)
        .map(|line| &line.job)
        .collect();
    let stopped: Vec<_> = history
        .since(mark)
        .filter(|line| line.event == swarm_adapters_host::runlog::judge::Event::Stop)
        .map(|line| (&line.job, &line.run.worker))
        .collect();
    let idle = history.gaps(jobs, mark).into_values().filter(|gap| Duration::from_secs(2) < *gap);
    let (idle, moved) = (idle.count(), moved_of_single(before, after));
    context.laps.lap(format!(
        "import with adoption: jobs moved {moved}, jobs idle {idle}, started {}, stopped {}",
        started.len(),
        stopped.len()
    ));
    ensure!(moved == 0 && idle == 0, "{moved} jobs moved, {idle} paused");
    ensure!(started.is_empty(), "these were started: {started:?}");
    let [(job, worker)] = stopped.as_slice() else { bail!("these were stopped: {stopped:?}") };
    ensure!(worker.as_str() == "swarm-worker-1", "{worker} stopped {job}");
    ensure!(before["swarm-worker-0"].jobs.contains(*job), "{job} ran twice");
    ensure!(after["swarm-worker-0"] == before["swarm-worker-0"], "it has nothing to read");
    Ok(())
}

/// The number of jobs that moved, without the jobs that several workers ran.
fn moved_of_single(before: &Reports, after: &Reports) -> usize {
    let mut single = before.clone();
    let twice: BTreeSet<_> = before["swarm-worker-0"]
        .jobs
        .intersection(&before["swarm-worker-1"].jobs)
        .cloned()
        .collect();
    if let Some(report) = single.get_mut("swarm-worker-1") {
        report.jobs.retain(|job| !twice.contains(job));
    }
    moved(&single, after)
}

/// Imports and applies other manifests of the predecessors, and imports variants with mistakes.
pub(super) async fn manifests(context: Context) -> Result<()> {
    context.operator().await?;
    let kept = format!("--peering-image={PAUSE}");
    for (file, options) in [
        ("second-stage/swarm.yaml", &[][..]),
        ("first-stage/swarm.yaml", &[]),
        ("first-stage", &[]),
        ("view.yaml", &[]),
        ("mistakes/changed.yaml", &[]),
        ("first-stage/config.yml", &[]),
        ("peering.yaml", &[]),
        ("peering.yaml", &[kept.as_str()]),
        ("controller-managers.yaml", &[]),
        ("mistakes/more-managers.yaml", &[]),
    ] {
        let path = format!("{MANIFESTS}/{file}");
        let words = [&[path.as_str(), "--name=s"], options].concat();
        let (manifest, said) = import(&context, &words).await?;
        ensure!(!said.is_empty(), "{file}: something is said of each");
        let manifest = in_namespace(&manifest, &context.namespace);
        context.apply(&manifest).await.with_context(|| file.to_owned())?;
        context.kubectl(&["delete", "swarms.swarm.k8slab.info", "--all", "--timeout=5m"]).await?;
        context.laps.lap(format!("{file} {} is accepted", options.concat()));
    }
    for file in ["wrong.yaml", "no-view.yaml", "syntax.yaml"] {
        let refused = import(&context, &[&format!("{MANIFESTS}/mistakes/{file}")]).await;
        let error = refused.err().context("a mistake is no manifest")?.to_string();
        ensure!(error.contains("exit status: 2") && error.contains(file), "{error}");
    }
    Ok(())
}

/// Puts the manifests into the namespace of a scenario.
fn in_namespace(manifest: &str, namespace: &str) -> String {
    let previous = ["swarm", "peerns", "swarm-system"];
    previous.iter().fold(manifest.to_owned(), |manifest, before| {
        let (before, now) = (format!("namespace: {before}\n"), format!("namespace: {namespace}\n"));
        manifest.replace(&before, &now)
    })
}

/// A user who keeps the server of the peering operator finds its list where it was. Here an image
/// with a shell replaces the server. Every pod reads the file of the server, and an edit arrives
/// there.
pub(super) async fn kept_server(context: Context) -> Result<()> {
    context.operator().await?;
    let (file, image) = (format!("{MANIFESTS}/peering.yaml"), format!("--peering-image={SHELL}"));
    let (manifest, _) = import(&context, &["--output=json", &image, &file]).await?;
    let mut swarm: Value = serde_json::from_str(&manifest)?;
    swarm["metadata"]["namespace"] = context.namespace.as_str().into();
    swarm["spec"]["pool"]["managed"]["command"] = json!(["/bin/sh", "-c", READ]);
    context.apply(&swarm.to_string()).await?;
    reads(&context, "::1,8080\nexample.com,443\nkindcustomhttp-sample,80\n").await?;

    let jobs = json!([{"name": "kindcustomhttp-sample:80"}, {"name": "peer.example:8443"}]);
    let edit = Patch::Merge(json!({"spec": {"jobs": jobs}}));
    context.api::<Swarm>().patch(PEERS, &PatchParams::default(), &edit).await?;
    let edited = Instant::now();
    reads(&context, "kindcustomhttp-sample,80\npeer.example,8443\n").await?;
    let took = edited.elapsed();
    context.laps.lap(format!("an edit reached previous servers after {} ms", took.as_millis()));
    Ok(())
}

/// Waits until each of the three pods reads this list.
async fn reads(context: &Context, list: &str) -> Result<()> {
    let made = ListParams::default().labels(&format!("{SWARM_LABEL}={PEERS}"));
    until(&format!("all servers to read {list:?}"), || async {
        let pods = context.api::<Pod>().list_metadata(&made).await?;
        ensure!(pods.items.len() == 3, "there are {} pods", pods.items.len());
        for pod in &pods {
            let log = context.kubectl(&["logs", &pod.name_any(), "--tail=20"]).await?;
            // The newest list may still be incomplete at this moment.
            let newest = log.rsplit("list:\n").nth(1).unwrap_or_default();
            ensure!(newest == list, "{} reads {newest:?}", pod.name_any());
        }
        Ok(Some(()))
    })
    .await
}

/// Runs `kubectl swarm import`, and returns its output and its messages.
async fn import(context: &Context, args: &[&str]) -> Result<(String, String)> {
    // The environment of the cluster has the kubectl that was built for it.
    let program = context.cluster.environment().into_iter().find(|(name, _)| *name == "PATH");
    let path = program.map(|(_, path)| path).context("a path")?;
    let kubectl = std::env::split_paths(&path).map(|folder| folder.join("kubectl"));
    let kubectl = kubectl.into_iter().find(|file| file.is_file()).context("no kubectl")?;
    let mut command = Command::new(kubectl);
    command.args(["swarm", "import"]).args(args);
    command.current_dir(repository()).envs(context.cluster.environment()).kill_on_drop(true);
    let output = command.output().await?;
    let said = String::from_utf8(output.stderr)?;
    ensure!(output.status.success(), "{}: {said}", output.status);
    Ok((String::from_utf8(output.stdout)?, said))
}

/// The list of the predecessors.
fn streams() -> Result<Vec<String>> {
    let file = repository().join(MANIFESTS).join("first-stage/config.yml");
    let text = std::fs::read_to_string(file)?;
    let jobs = text.lines().filter_map(|line| line.trim().strip_prefix("- ").map(str::to_owned));
    Ok(jobs.collect())
}

/// The view as the Go operator wrote it: slices of one size, where the last two overlap.
fn sliced(jobs: &[String], size: usize) -> String {
    let mut lines = vec!["workloads:".to_owned()];
    for (worker, slice) in [&jobs[..size], &jobs[jobs.len() - size..]].iter().enumerate() {
        lines.push(format!("  swarm-worker-{worker}:\n    jobs:"));
        lines.extend(slice.iter().map(|job| format!("    - {job}")));
        lines.push("    version: 0".to_owned());
    }
    lines.join("\n") + "\nversion: 3\n"
}

/// The pool as the Go operator left it: its StatefulSet, whose workers run by the view, and its own
/// Deployment. The Deployment only seems to run here.
async fn former_pool(context: &Context, view: &str) -> Result<Reports> {
    make_folder(&context.namespace)?;
    let data = json!({"config.yml": view});
    let metadata = json!({"name": "swarm-worker-config"});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
    context.apply(&map.to_string()).await?;
    let file = repository().join(MANIFESTS).join("first-stage/worker.yaml");
    let folder = make_folder(&context.namespace)?;
    let text = std::fs::read_to_string(file)?;
    let text = text
        .replace("env:\n", &format!("args: [run, --runner=log, --run-log={MOUNT}/workers.log]\n          env:\n"))
        .replace(
            "volumeMounts: [",
            &format!("volumeMounts: [{{name: run-log, mountPath: {MOUNT}}}, "),
        )
        .replace(
            "      volumes:\n",
            &format!(
                "      volumes:\n        - {{name: run-log, hostPath: {{path: {}, type: Directory}}}}\n",
                folder.display()
            ),
        );
    context.apply(&text).await?;
    let controller =
        std::fs::read_to_string(repository().join(MANIFESTS).join("first-stage/controller.yaml"))?;
    context.apply(&controller).await?;
    let want: BTreeMap<_, _> = wanted(view)?;
    until("the previous workers to run by their view", || async {
        let found = reports(context).await?;
        let jobs: BTreeMap<_, _> =
            found.iter().map(|(name, Report { jobs, .. })| (name.clone(), jobs.clone())).collect();
        ensure!(jobs == want, "{jobs:?}");
        Ok(Some(found))
    })
    .await
}

/// The jobs of each worker in a view.
fn wanted(view: &str) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let view = swarm_adapters_host::view::parse_view(view)?;
    let jobs =
        |jobs: &BTreeSet<swarm_core::JobName>| jobs.iter().map(ToString::to_string).collect();
    Ok(view.workers.iter().map(|(name, entry)| (name.clone(), jobs(&entry.jobs))).collect())
}

async fn view_text(context: &Context) -> Result<String> {
    let map = context.api::<ConfigMap>().get("swarm-worker-config").await?;
    Ok(map.data.unwrap_or_default().remove("config.yml").unwrap_or_default())
}
