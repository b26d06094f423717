//! Everything below `deploy/` renders, and a real API server accepts it without a warning. The
//! sample of a pool whose program does not know swarm works.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use swarm_client::api;
use tokio::process::Command;

use crate::binaries::repository;
use crate::command::stdout_of;
use crate::operator;
use crate::scenario::Context;
use crate::until::until;

/// The file of a folder that `kubectl kustomize` can render.
const KUSTOMIZATION: &str = "kustomization.yaml";
/// The sample with a field that the schema may lack.
const JOB_LISTS: &str = "deploy/samples/job-lists";

/// The overlay that binds a role of its own instead of the base's role.
const LISTED: &str = "overlays/listed";
/// The component of kinds that only a cluster with the Prometheus operator has.
const MONITORING: &str = "components/monitoring";

/// A text that each rendered overlay must contain. kustomize silently ignores a patch that matches
/// nothing.
const RENDERED: [(&str, &str); 14] = [
    ("overlays/all", "kind: CustomResourceDefinition"),
    ("overlays/all", "name: swarm-operator-managed-pools"),
    ("overlays/managed", "name: swarm-operator-managed-pools"),
    ("overlays/original", "namespace: swarm\n"),
    (LISTED, "name: swarm-operator-watch\n"),
    ("overlays/dev", "imagePullPolicy: Never"),
    ("overlays/prod", "/swarm-operator@sha256:"),
    ("overlays/prod", "value: registry.example.com/swarm/swarm-worker@sha256:"),
    ("overlays/prod", "priorityClassName: system-cluster-critical"),
    ("overlays/prod/crds", "swarm.k8slab.info/deletion-protection: \"true\""),
    ("overlays/namespaced", "kind: RoleBinding"),
    ("overlays/namespaced", "--namespace=$(NAMESPACE)"),
    (MONITORING, "kind: PrometheusRule"),
    (MONITORING, "grafana_dashboard: \"1\""),
];

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let restricted =
        ["enforce", "warn"].map(|it| format!("pod-security.kubernetes.io/{it}=restricted"));
    let label = ["label", "namespace", &context.namespace, &restricted[0], &restricted[1]];
    context.cluster.kubectl(&label).await?;
    // Some overlays need these namespaces.
    let namespaces = [operator::SAMPLES_NAMESPACE, "swarm"];
    for namespace in namespaces {
        context.cluster.kubectl(&["create", "namespace", namespace]).await?;
    }
    let mut folders = Vec::new();
    find_kustomizations(&repository().join("deploy"), &mut folders)?;
    ensure!(6 <= folders.len(), "deploy/ has only {folders:?}");
    for folder in folders {
        let folder = folder.display().to_string();
        let rendered = context.cluster.kubectl(&["kustomize", &folder]).await?;
        for (overlay, text) in RENDERED {
            let is_there = !folder.ends_with(overlay) || rendered.contains(text);
            ensure!(is_there, "{overlay} has no `{text}`: {rendered}");
        }
        let is_moved = !folder.ends_with("overlays/original");
        ensure!(is_moved || !rendered.contains("swarm-system"), "{folder} names both namespaces");
        let is_cluster_wide = rendered.contains("kind: ClusterRole");
        ensure!(!folder.ends_with("namespaced") || !is_cluster_wide, "{folder} asks for more");
        if folder.ends_with(JOB_LISTS) && !knows_job_sources()? {
            context.laps.lap(format!("{JOB_LISTS} renders; the schema has no jobSources"));
            continue;
        }
        // The role of an existing binding cannot be changed, not even on a dry run. The scenario
        // `rights_are_bound_by_namespace` applies this overlay.
        // A component that only names images renders to nothing by itself.
        let is_known = !folder.ends_with(LISTED) && !folder.ends_with(MONITORING);
        if is_known && !rendered.trim().is_empty() {
            accepted(&context, &["--kustomize", &folder]).await?;
        }
    }
    context.cluster.kubectl(&[&["delete", "namespace"][..], &namespaces].concat()).await?;
    for sample in ["streams.yaml", "autoscale.yaml", "plain/plain.yaml", "production.yaml"] {
        let sample = repository().join("deploy/samples").join(sample).display().to_string();
        accepted(&context, &["--filename", &sample]).await?;
    }
    editors_of_a_namespace_edit_its_swarms(&context).await?;
    job_lists_can_be_planned(&context).await?;
    plain_programs_are_workers(&context).await
}

fn find_kustomizations(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    if folder.join(KUSTOMIZATION).is_file() {
        found.push(folder.to_owned());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            find_kustomizations(&path, found)?;
        }
    }
    Ok(())
}

fn knows_job_sources() -> Result<bool> {
    Ok(serde_json::to_string(&api::crds())?.contains("\"jobSources\""))
}

/// Applies manifests on a dry run, in which the API server does everything that it does for a real
/// write. A warning counts as a refusal, since pod security only warns about a workload whose pods
/// it will refuse.
async fn accepted(context: &Context, what: &[&str]) -> Result<()> {
    let dry = ["apply", "--server-side", "--dry-run=server", "--force-conflicts"];
    let mut args = [&dry, &["--warnings-as-errors"][..], what].concat();
    if what.iter().any(|path| path.contains("/samples/")) {
        args.extend(["--namespace", &context.namespace]);
    }
    let output = context.cluster.kubectl(&args).await?;
    context.laps.lap(format!("{} objects of {}", output.lines().count(), what[1]));
    Ok(())
}

/// Checks that an editor edits Swarms by the `ClusterRole` `edit`, once the roles of the CRDs are
/// aggregated into it.
async fn editors_of_a_namespace_edit_its_swarms(context: &Context) -> Result<()> {
    let binding = ["create", "rolebinding", "somebody", "--clusterrole=edit", "--user=somebody"];
    context.kubectl(&binding).await?;
    let may = |verb, resource| async move {
        let args = ["auth", "can-i", verb, resource, "--as=somebody"];
        // Exit code 1 means "no".
        context.kubectl(&args).await.is_ok()
    };
    let swarms = "swarms.swarm.k8slab.info";
    until("the role of editors to be aggregated", || async {
        Ok((may("create", swarms).await && may("list", swarms).await).then_some(()))
    })
    .await?;
    let ledgers = "swarmledgers.swarm.k8slab.info";
    ensure!(may("get", ledgers).await, "an editor may look at ledgers");
    ensure!(!may("update", ledgers).await, "only the operator writes ledgers");
    Ok(())
}

/// Runs the command at the top of the sample.
async fn job_lists_can_be_planned(context: &Context) -> Result<()> {
    let text = fs::read_to_string(repository().join(JOB_LISTS).join(KUSTOMIZATION))?;
    let command = text.lines().find_map(|line| line.strip_prefix("#   kubectl "));
    let line = format!("kubectl {}", command.context("the sample names no command")?);
    let mut command = Command::new("sh");
    command.args(["-ec", &line]).current_dir(repository()).envs(context.cluster.environment());
    let plan = stdout_of(&line, &command.kill_on_drop(true).output().await?)?;
    ensure!(plan.contains(": 6 jobs on 3 workers"), "`{line}` says: {plan}");
    Ok(())
}

/// Checks that a few lines of shell share the jobs of the sample, and take over the jobs of a
/// deleted worker.
async fn plain_programs_are_workers(context: &Context) -> Result<()> {
    let file = repository().join("deploy/samples/plain/plain.yaml").display().to_string();
    let sample = fs::read_to_string(&file)?;
    let jobs = sample.lines().filter_map(|line| line.strip_prefix("    - name: "));
    let jobs: BTreeSet<_> = jobs.filter(|name| name.contains(':')).map(str::to_owned).collect();
    ensure!(jobs.len() == 5, "the sample has five jobs, not {jobs:?}");

    let before = context.kubectl(&["get", "statefulset", "--output=name"]).await?;
    ensure!(before.is_empty(), "a dry run has left {before}");
    context.kubectl(&["apply", "--filename", &file]).await?;
    shared(context, &jobs, 2).await?;
    context.kubectl(&["wait", "--for=condition=Ready", "swarm/plain", "--timeout=5m"]).await?;
    context.kubectl(&["scale", "statefulset", "plain", "--replicas=1"]).await?;
    shared(context, &jobs, 1).await?;
    context.laps.lap("shell scripts share the jobs of the plain sample");
    Ok(())
}

/// Waits until the first `pods` pods report that they run the jobs, each job once.
async fn shared(context: &Context, jobs: &BTreeSet<String>, pods: usize) -> Result<()> {
    until("the plain workers to share their jobs", || async {
        let mut running = Vec::new();
        for pod in 0..pods {
            let log = context.cluster.pod_log(&context.namespace, &format!("plain-{pod}")).await?;
            let last = log.lines().filter_map(|line| line.strip_prefix("running: ")).next_back();
            let last = last.context("a worker has not reported yet")?;
            running.extend(serde_json::from_str::<Vec<String>>(last)?);
        }
        let distinct: BTreeSet<_> = running.iter().cloned().collect();
        if distinct != *jobs || running.len() != jobs.len() {
            bail!("they run {running:?}");
        }
        Ok(Some(()))
    })
    .await
}
