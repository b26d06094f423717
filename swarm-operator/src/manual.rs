//! What other programs read about this one: the schema for editors, completions for shells, and man
//! pages.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args::Args;
use crate::document::print;

/// Prints the JSON Schema of manifests.
pub(crate) fn print_schema() -> anyhow::Result<ExitCode> {
    print(serde_json::to_string_pretty(&swarm_spec::json_schema())? + "\n")
}

/// Prints the script for a shell.
pub(crate) fn print_completions(shell: Shell) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "swarm-operator", &mut script);
    print(script)
}

/// Writes one page for the program and one for each of its commands.
pub(crate) fn write_pages(dir: &Path) -> anyhow::Result<ExitCode> {
    let cannot = || format!("man pages cannot be written to {}", dir.display());
    clap_mangen::generate_to(Args::command(), dir).with_context(cannot)?;
    Ok(ExitCode::SUCCESS)
}
