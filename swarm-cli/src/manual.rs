//! Texts for other programs: the schema for editors, completions for shells, and man pages.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap_complete::Shell;
use kubectl_swarm::program;
use swarm_terminal::output::answer;

use crate::swarm;

/// Prints the JSON Schema of manifests.
pub(crate) fn print_schema() -> anyhow::Result<ExitCode> {
    answer(&(serde_json::to_string_pretty(&swarm_spec::json_schema())? + "\n"))
}

/// Prints the completion script of `swarm` for a shell.
pub(crate) fn print_completions(shell: Shell) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut swarm::command(), "swarm", &mut script);
    answer(&String::from_utf8(script)?)
}

/// Writes a man page for each program and each of its commands.
pub(crate) fn write_pages(dir: &Path) -> anyhow::Result<ExitCode> {
    let cannot = || format!("man pages cannot be written to {}", dir.display());
    for program in [swarm::command(), program::unbuilt()] {
        clap_mangen::generate_to(program, dir).with_context(cannot)?;
    }
    Ok(ExitCode::SUCCESS)
}
