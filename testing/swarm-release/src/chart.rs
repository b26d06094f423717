//! The command `chart`.

use anyhow::Result;

/// Arguments of `chart`.
#[derive(clap::Args)]
pub(crate) struct Arguments {}

/// Runs the command.
pub(crate) fn run(_arguments: &Arguments) -> Result<()> {
    Ok(())
}
