//! Runs the commands of `docs/installation.md` for a cluster as they are written: each way installs the
//! operator from nothing, runs the first pool, and removes everything.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::process::Command;

use super::the_chart_manages_an_installation::{self as chart, Helm, removed};
use crate::binaries::repository;
use crate::cluster::FOLDER;
use crate::operator;
use crate::scenario::Context;
use crate::until::DEADLINE;

/// The page, and its chapters for a cluster.
const PAGE: &str = "docs/installation.md";
const WAYS: [&str; 3] =
    ["A cluster with Helm", "A cluster with one file", "A cluster with kustomize"];
/// The chapter with the pool that runs on each of them.
const POOL: &str = "The first pool";
/// The line between installation and removal.
const BETWEEN: &str = "\nThen [run the first pool]";
/// The line of the first pool's chapter after which it is removed.
const END_OF_POOL: &str = "\nRemove the pool:";
/// The value of an image in the chart, and the same for an image of this cluster.
const IMAGES: [[&str; 2]; 3] = [
    ["registry.example.com/swarm/swarm-operator", "swarm-operator"],
    ["registry.example.com/swarm/swarm-worker", "swarm-worker"],
    ["tag: ''", "tag: dev"],
];

pub(super) async fn run(context: Context) -> Result<()> {
    let folder = tempfile::tempdir_in(FOLDER)?;
    files(&context, folder.path()).await?;
    context.operator().await?;
    removed(&context).await?;
    let outcome = all_ways(&context, folder.path()).await;
    // Restores the operator also after a failure: later scenarios share it.
    operator::install(&context.cluster).await?;
    outcome
}

async fn all_ways(context: &Context, folder: &Path) -> Result<()> {
    let page = std::fs::read_to_string(repository().join(PAGE))?;
    let (pool, end_of_pool) = halves(&page, POOL, END_OF_POOL)?;
    for way in WAYS {
        let (install, remove) = halves(&page, way, BETWEEN)?;
        let start = Instant::now();
        let first = [commands(install), commands(pool)].concat();
        for command in &first {
            run_line(context, command, folder).await.with_context(|| way.to_owned())?;
        }
        let seconds = start.elapsed().as_secs_f64();
        context.laps.lap(format!("{way}: {} commands, {seconds:.1} s to a pool", first.len()));
        for command in [commands(end_of_pool), commands(remove)].concat() {
            run_line(context, &command, folder).await.with_context(|| way.to_owned())?;
        }
        let left = context.cluster.kubectl(&["get", "crds,namespaces", "--output=name"]).await?;
        ensure!(!left.contains("swarm"), "{way}: the page has left {left}");
    }
    Ok(())
}

/// Makes the files of a release that the page names, with the images of this cluster.
async fn files(context: &Context, folder: &Path) -> Result<()> {
    let deploy = repository().join("deploy");
    std::os::unix::fs::symlink(&deploy, folder.join("deploy"))?;
    let all = deploy.join("overlays/all").display().to_string();
    let objects = context.cluster.kubectl(&["kustomize", &all]).await?;
    std::fs::write(folder.join("install.yaml"), objects)?;
    std::fs::copy(deploy.join("samples/managed.yaml"), folder.join("sample-managed.yaml"))?;
    let copy = folder.join("chart");
    chart::copy(&copy)?;
    let values = copy.join("values.yaml");
    let mut text = std::fs::read_to_string(&values)?;
    for [released, here] in IMAGES {
        ensure!(text.contains(released), "the chart has no `{released}`");
        text = text.replace(released, here);
    }
    std::fs::write(values, text)?;
    let [copy, folder] = [&copy, folder].map(|path| path.display().to_string());
    Helm::find(context)?.run(&["package", &copy, "--destination", &folder]).await.map(drop)
}

/// The two parts of a chapter, before and after a line.
fn halves<'a>(page: &'a str, chapter: &str, line: &str) -> Result<(&'a str, &'a str)> {
    let (_, rest) = page
        .split_once(&format!("\n## {chapter}\n"))
        .with_context(|| format!("{PAGE} has no chapter `{chapter}`"))?;
    let text = rest.split("\n## ").next().unwrap_or(rest);
    text.split_once(line).with_context(|| format!("`{chapter}` has no line `{}`", line.trim()))
}

/// The lines of the `console` blocks.
fn commands(text: &str) -> Vec<String> {
    let blocks = text.split("```console\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.flat_map(str::lines).map(str::to_owned).collect()
}

async fn run_line(context: &Context, line: &str, folder: &Path) -> Result<()> {
    let helm = Helm::find(context)?;
    let (program, words) = match line.split_once(' ') {
        Some(("kubectl", words)) => (PathBuf::from("kubectl"), words),
        Some(("helm", words)) => (helm.program, words),
        _ => bail!("`{line}` is a command of neither kubectl nor Helm"),
    };
    let mut command = Command::new(program);
    command.args(words.split(' ')).current_dir(folder).kill_on_drop(true);
    command.envs(context.cluster.environment());
    for name in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(name, folder.join("helm"));
    }
    let output = tokio::time::timeout(DEADLINE, command.output()).await;
    let output = output.with_context(|| format!("`{line}` did not end"))??;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{line}` failed: {stderr}");
    Ok(())
}
