//! The Helm chart installs the operator, upgrades it with its CRDs, and takes over what kustomize has
//! installed. An uninstallation keeps Swarms, their pods and the CRDs.
//!
//! Nothing is released yet, so the previous chart is this chart with another version, one replica,
//! and a CRD with another short name.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::ListParams;
use swarm_client::annotations::SWARM_LABEL;
use swarm_client::api::Swarm;
use tokio::process::Command;

use crate::binaries::repository;
use crate::cluster::FOLDER;
use crate::command::stdout_of;
use crate::operator::{self, ACCOUNT, NAMESPACE};
use crate::scenario::Context;

/// The folder of the chart.
const CHART: &str = "deploy/chart/swarm";
/// The values with the images of this cluster.
const IMAGES: &str = "testing/swarm-release/chart-values/images.yaml";
/// The short name of a Swarm in the CRD, and in the CRD of the previous chart.
const SHORT: [&str; 2] = ["    - sw\n", "    - old\n"];
/// A managed pool.
const POOL: &str = "
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: streams}
spec:
  replicas: 2
  jobs: [{name: a}, {name: b}, {name: c}]
  pool: {managed: {}}
  worker: {runner: {log: {}}}
";

pub(super) async fn run(context: Context) -> Result<()> {
    let helm = Helm::find(&context)?;
    helm.run(&["lint", "--strict", &helm.chart]).await?;
    context.operator().await?;
    removed(&context).await?;
    let outcome = installed_and_uninstalled(&context, &helm).await;
    // Restores the operator also after a failure: later scenarios share it.
    helm.run(&["uninstall", "swarm", "--ignore-not-found", "--wait"]).await?;
    operator::install(&context.cluster).await?;
    outcome?;
    let outcome = taken_over(&context, &helm).await;
    helm.run(&["uninstall", "swarm", "--ignore-not-found", "--wait"]).await?;
    operator::install(&context.cluster).await?;
    outcome
}

/// Removes what kustomize has installed, in the documented order.
pub(super) async fn removed(context: &Context) -> Result<()> {
    let cluster = &context.cluster;
    let all = ["delete", "swarms", "--all", "--all-namespaces", "--timeout=5m"];
    cluster.kubectl(&all).await?;
    for folder in ["deploy/overlays/managed", "deploy/crds"] {
        let folder = repository().join(folder).display().to_string();
        cluster.kubectl(&["delete", "--kustomize", &folder, "--timeout=5m"]).await?;
    }
    Ok(())
}

async fn installed_and_uninstalled(context: &Context, helm: &Helm) -> Result<()> {
    let folder = tempfile::tempdir_in(FOLDER)?;
    let previous = previous(folder.path())?;
    let values = ["--set=replicas=1,managedPools.enabled=true"];
    helm.change(&["install", "--create-namespace"], &previous, &values).await?;
    context.apply(POOL).await?;
    ready(context).await?;
    let pods = pods(context).await?;
    context.laps.lap("a managed pool runs under the previous chart");

    upgraded(context, helm).await?;
    limited(context, helm).await?;
    ready(context).await?;
    ensure!(self::pods(context).await? == pods, "an upgrade has replaced workers");

    helm.run(&["uninstall", "swarm", "--wait"]).await?;
    let operator = ["get", "deployment", "swarm-controller", "--namespace", NAMESPACE];
    ensure!(context.cluster.kubectl(&operator).await.is_err(), "the operator is still there");
    let swarm = context.api::<Swarm>().get("streams").await.context("the Swarm is gone")?;
    ensure!(swarm.metadata.deletion_timestamp.is_none(), "the Swarm is being deleted");
    ensure!(self::pods(context).await? == pods, "the workers are gone");
    context.laps.lap("an uninstallation keeps the Swarm and its workers");

    let values = ["--set=managedPools.enabled=true"];
    helm.change(&["install"], &helm.chart, &values).await?;
    context.kubectl(&["scale", "swarm", "streams", "--replicas=3"]).await?;
    let three = ["wait", "--for=jsonpath={.status.ready}=3/3", "swarm/streams", "--timeout=5m"];
    context.kubectl(&three).await?;
    context.laps.lap("an installation over the CRDs that stayed serves the Swarm again");
    documented_end(context).await
}

/// Upgrades from the previous chart to this one: also the CRDs.
async fn upgraded(context: &Context, helm: &Helm) -> Result<()> {
    ensure!(short_name(context).await? == "old", "the previous CRD is not there");
    let values = ["--reset-then-reuse-values", "--set=replicas=2"];
    helm.change(&["upgrade"], &helm.chart, &values).await?;
    ensure!(short_name(context).await? == "sw", "the upgrade has left the CRD as it was");
    let ready = ["get", "deployment", "swarm-controller", "-o=jsonpath={.status.readyReplicas}"];
    let ready = [&ready[..], &["--namespace", NAMESPACE]].concat();
    ensure!(context.cluster.kubectl(&ready).await? == "2", "there are not two replicas");

    let values = ["--reset-then-reuse-values", "--set=crds.keep=false"];
    let refused = helm.change(&["upgrade"], &helm.chart, &values).await;
    let sentence = refused.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(sentence.contains("crds.keep is false while Swarms exist"), "{sentence}");
    context
        .laps
        .lap("an upgrade changes the CRDs, and refuses to give them up while a Swarm exists");
    Ok(())
}

/// Limits the rights to a list of namespaces by an upgrade, and gives them back.
async fn limited(context: &Context, helm: &Helm) -> Result<()> {
    let list = format!("--set=managedPools.enabled=false,namespaces={{{}}}", context.namespace);
    let reuse = "--reset-then-reuse-values";
    helm.change(&["upgrade"], &helm.chart, &[reuse, &list]).await?;
    let may = ["auth", "can-i", "patch", "pods", "--as", ACCOUNT];
    ensure!(context.kubectl(&may).await.is_ok(), "it may not patch pods in the list");
    let elsewhere = [&may[..], &["--namespace", "default"]].concat();
    ensure!(context.cluster.kubectl(&elsewhere).await.is_err(), "it may patch pods elsewhere");
    let all = "--set-json=namespaces=[]";
    let managed = "--set=managedPools.enabled=true";
    helm.change(&["upgrade"], &helm.chart, &[reuse, all, managed]).await?;
    ensure!(context.cluster.kubectl(&elsewhere).await.is_ok(), "it may not patch pods elsewhere");
    context
        .laps
        .lap("an upgrade limits the rights to a list of namespaces, and another one ends that");
    Ok(())
}

/// Runs the commands of the chart's page for an uninstallation, and deletes the namespace.
async fn documented_end(context: &Context) -> Result<()> {
    let page = fs::read_to_string(repository().join(CHART).join("README.md"))?;
    let chapter = page.split("## Uninstall\n").nth(1).context("a chapter")?;
    let commands = chapter.split("```").skip(1).step_by(2).flat_map(str::lines);
    let commands: Vec<_> = commands.filter(|line| *line != "console").collect();
    ensure!(commands.len() == 3, "the page has {commands:?}");
    let helm = Helm::find(context)?;
    for command in commands {
        let words: Vec<_> = command.split(' ').collect();
        match words[..] {
            ["kubectl", ref words @ ..] => drop(context.cluster.kubectl(words).await?),
            ["helm", ref words @ ..] => drop(helm.run(words).await?),
            _ => bail!("`{command}` is a command of neither kubectl nor Helm"),
        }
    }
    let left = context.cluster.kubectl(&["get", "crds", "--output=name"]).await?;
    ensure!(!left.contains("swarm.k8slab.info"), "there are still {left}");
    let namespace = ["delete", "namespace", NAMESPACE, "--timeout=5m"];
    context.cluster.kubectl(&namespace).await?;
    context.laps.lap("the documented uninstallation leaves nothing");
    Ok(())
}

/// Takes over the objects that kustomize has made, while a pool runs.
async fn taken_over(context: &Context, helm: &Helm) -> Result<()> {
    context.apply(POOL).await?;
    ready(context).await?;
    let pods = pods(context).await?;
    let values = ["--set=managedPools.enabled=true", "--take-ownership", "--force-conflicts"];
    helm.change(&["install"], &helm.chart, &values).await?;
    ready(context).await?;
    ensure!(self::pods(context).await? == pods, "workers were replaced");
    context.kubectl(&["delete", "swarm", "streams", "--timeout=5m"]).await?;
    context.laps.lap("Helm has taken over what kustomize had installed");
    Ok(())
}

/// Copies the chart as an older version of it.
fn previous(folder: &Path) -> Result<String> {
    let copy = folder.join("swarm");
    self::copy(&copy)?;
    replace(&copy.join("Chart.yaml"), [&format!("\nversion: {}", version()), "\nversion: 0.0.1"])?;
    replace(&copy.join("templates/crd-swarms.yaml"), SHORT)?;
    Ok(copy.display().to_string())
}

/// Copies the chart into a new folder.
pub(super) fn copy(copy: &Path) -> Result<()> {
    let chart = repository().join(CHART);
    for sub in ["", "templates"] {
        fs::create_dir_all(copy.join(sub))?;
        for entry in fs::read_dir(chart.join(sub))? {
            let path = entry?.path();
            if path.is_file() {
                fs::copy(&path, copy.join(sub).join(path.file_name().unwrap_or_default()))?;
            }
        }
    }
    Ok(())
}

/// The version of the workspace.
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

fn replace(file: &Path, [from, to]: [&str; 2]) -> Result<()> {
    let text = fs::read_to_string(file)?;
    ensure!(text.contains(from), "{} has no `{from}`", file.display());
    Ok(fs::write(file, text.replacen(from, to, 1))?)
}

async fn short_name(context: &Context) -> Result<String> {
    let crd = ["get", "crd", "swarms.swarm.k8slab.info", "-o=jsonpath={.spec.names.shortNames[0]}"];
    context.cluster.kubectl(&crd).await
}

async fn ready(context: &Context) -> Result<()> {
    let wait = ["wait", "--for=condition=Ready", "swarm/streams", "--timeout=5m"];
    context.kubectl(&wait).await.map(drop)
}

/// The UIDs of the workers.
async fn pods(context: &Context) -> Result<BTreeSet<String>> {
    let made = ListParams::default().labels(&format!("{SWARM_LABEL}=streams"));
    let pods = context.api::<Pod>().list_metadata(&made).await?;
    let stay = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    Ok(stay.filter_map(ResourceExt::uid).collect())
}

/// The program of Helm, for this cluster.
pub(super) struct Helm {
    /// The path of the program.
    pub(super) program: PathBuf,
    chart: String,
    context: Context,
}

impl Helm {
    /// Finds the program: by the variable `HELM`, or else where `.ci/tool` installs it.
    pub(super) fn find(context: &Context) -> Result<Self> {
        let variable = |name| std::env::var_os(name).map(PathBuf::from);
        let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
        let installed = || Some(cache?.join("swarm-ci/helm/bin/helm"));
        let program = variable("HELM").or_else(installed).context("$HOME is not set")?;
        ensure!(
            program.is_file(),
            "there is no Helm at {}: run `.ci/tool helm`, which installs it, before the scenario",
            program.display()
        );
        let chart = repository().join(CHART).display().to_string();
        Ok(Self { program, chart, context: context.clone() })
    }

    /// Installs or upgrades the release with the images of this cluster, and waits until it is ready.
    async fn change(&self, verb: &[&str], chart: &str, values: &[&str]) -> Result<()> {
        let images = format!("--values={}", repository().join(IMAGES).display());
        let wait = ["swarm", chart, &images, "--wait", "--timeout=5m"];
        self.run(&[verb, &wait, values].concat()).await.map(drop)
    }

    /// Runs Helm in the operator's namespace, and returns its output.
    pub(super) async fn run(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.program);
        command.args(words).args(["--namespace", NAMESPACE]).kill_on_drop(true);
        command.envs(self.context.cluster.environment());
        for folder in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(folder, format!("{FOLDER}/helm"));
        }
        stdout_of(&format!("helm {}", words.join(" ")), &command.output().await?)
    }
}
