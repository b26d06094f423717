//! The command `release`.

use anyhow::Result;

/// Arguments of `release`.
#[derive(clap::Args)]
pub(crate) struct Arguments {}

/// Runs the command.
pub(crate) fn run(_arguments: &Arguments) -> Result<()> {
    Ok(())
}
