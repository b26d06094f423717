//! The command `manifests`.

use anyhow::Result;

/// Arguments of `manifests`.
#[derive(clap::Args)]
pub(crate) struct Arguments {}

/// Runs the command.
pub(crate) fn run(_arguments: &Arguments) -> Result<()> {
    Ok(())
}
