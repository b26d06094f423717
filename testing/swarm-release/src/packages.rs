//! The command `packages`.

use anyhow::Result;

/// Arguments of `packages`.
#[derive(clap::Args)]
pub(crate) struct Arguments {}

/// Runs the command.
pub(crate) fn run(_arguments: &Arguments) -> Result<()> {
    Ok(())
}
