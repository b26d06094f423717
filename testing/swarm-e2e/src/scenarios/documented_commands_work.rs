//! Runs every `kubectl` line of the README and of the pages for operators verbatim, in
//! order. The last of them uninstall everything, so this scenario comes last.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use tokio::process::Command;

use super::pool::{jobs_of, sample};
use crate::binaries::repository;
use crate::cluster::FOLDER;
use crate::operator;
use crate::scenario::Context;
use crate::until::{DEADLINE, until};

/// The pages whose commands are run, in this order. The second and the last page end with nothing
/// installed. Each page begins in the state in which the page before it ended.
const PAGES: [&str; 4] =
    ["README.md", "docs/quick-start.md", "docs/migration.md", "docs/operations.md"];
/// The edit that `kubectl edit` makes instead of a person.
const EDITOR: &str = "sed -i s/stream:foo:new/stream:bar:new/";

pub(super) async fn run(context: Context) -> Result<()> {
    let backup = tempfile::tempdir_in(FOLDER)?;
    for page in PAGES {
        let commands = commands_of(page)?;
        ensure!(commands.len() >= 4, "{page} has only {} commands", commands.len());
        for command in commands {
            let start = Instant::now();
            let look = || async { output_of(&context, &command, backup.path()).await };
            let output = look().await.with_context(|| page.to_owned())?;
            if check(&command, &output).is_err() {
                // A pod reads its view a moment after the Swarm is ready. Only commands that read
                // are checked, so a command may be repeated.
                until(&format!("`{command}` to print it"), || async {
                    check(&command, &look().await?).map(Some)
                })
                .await?;
            }
            context.laps.lap(format!("{} ms: {command}", start.elapsed().as_millis()));
        }
    }
    let namespaces: Api<Namespace> = Api::all(context.client.clone());
    until("the operator's namespace to go", || async {
        Ok(namespaces.get_opt(operator::NAMESPACE).await?.is_none().then_some(()))
    })
    .await
}

/// The lines of all `console` blocks that start with `kubectl`.
fn commands_of(page: &str) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(repository().join(page))?;
    let blocks = text.split("```console\n").skip(1);
    let blocks = blocks.filter_map(|rest| rest.split("```").next());
    let lines = blocks.flat_map(str::lines).map(str::trim);
    // A line that begins with `kubectl swarm: ` is output of the plugin in a transcript.
    let is_command =
        |line: &&str| line.starts_with("kubectl ") && !line.starts_with("kubectl swarm: ");
    Ok(lines.filter(is_command).map(str::to_owned).collect())
}

async fn output_of(context: &Context, line: &str, backup: &Path) -> Result<String> {
    let mut command = Command::new("sh");
    command.args(["-ec", line]).current_dir(repository()).kill_on_drop(true);
    command.envs(context.cluster.environment()).env("KUBE_EDITOR", EDITOR).env("BACKUP", backup);
    let output = tokio::time::timeout(DEADLINE, command.output()).await;
    let output = output.with_context(|| format!("`{line}` did not end"))??;
    if !output.status.success() {
        bail!("`{line}` failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Checks that the output contains what the page shows.
fn check(command: &str, output: &str) -> Result<()> {
    let jobs = jobs_of(&sample(3)?);
    let some_job = jobs.iter().any(|job| output.contains(job));
    match command {
        // Output that goes into a file is not checked.
        it if it.contains(" > ") => {}
        it if it.contains("get configmap")
            || it.contains("describe cm")
            || it.contains(" view")
            || it.contains("/version") =>
        {
            ensure!(some_job, "`{command}` names no job: {output}");
        }
        it if it.contains("get swarm") => {
            ensure!(output.contains("streams"), "`{command}` shows no Swarm: {output}");
        }
        _ => {}
    }
    Ok(())
}
