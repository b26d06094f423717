//! The command line.

use clap::{Parser, Subcommand};

use crate::run::RunArgs;

/// Gives every job exactly one worker out of a pool on Kubernetes: evenly, with the fewest moves.
#[derive(Debug, Parser)]
#[command(
    name = "swarm-operator",
    version,
    after_help = "Pools on this machine are run by the program `swarm`, and Swarms of a cluster are \
                  inspected by `kubectl swarm`.\n\n\
                  Exit codes: 0 success, 1 failure, 2 invalid usage or input."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the operator on a Kubernetes cluster
    Run(RunArgs),
    /// Print the CRDs (custom resource definitions) as YAML
    Crd,
    /// A verb of the Go operator
    #[command(hide = true, disable_help_flag = true)]
    Internal(FormerArgs),
    /// A verb of the Go operator
    #[command(hide = true, disable_help_flag = true)]
    External(FormerArgs),
}

/// The words after a verb of the Go operator.
#[derive(Debug, clap::Args)]
pub(crate) struct FormerArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<String>,
}
