//! The command line. Exit codes: 0 success, 1 failure, 2 invalid usage or input, 3 the answer is
//! "no".

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use swarm_local::{LocalArgs, LogsArgs, PsArgs, StatusArgs, StopArgs};

use crate::init::InitArgs;
use crate::verify::VerifyArgs;

/// Gives every job exactly one worker out of a pool: evenly, with the fewest moves.
#[derive(Debug, Parser)]
#[command(name = "swarm-operator", version)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the whole system on this machine: the workers are child processes
    Local(LocalArgs),
    /// Print the state of a pool that `local` runs
    Status(StatusArgs),
    /// List the jobs of a pool that `local` runs, and their workers
    Ps(PsArgs),
    /// Print what is in the logs of a pool of `local` about one job
    Logs(LogsArgs),
    /// End a pool that `local` runs; returns when no process is left
    Stop(StopArgs),
    /// Run the operator on a Kubernetes cluster
    #[cfg(feature = "controller")]
    Run(crate::run::RunArgs),
    /// Print the CRDs (custom resource definitions) as YAML
    #[cfg(feature = "controller")]
    Crd,
    /// Write a manifest with comments, to start from
    Init(InitArgs),
    /// Print the JSON Schema of manifests, with which editors complete and check fields
    Schema,
    /// Check in run logs that every job was run by one worker at a time
    Verify(VerifyArgs),
    /// Print a script with which a shell completes commands and options
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write man pages
    Man {
        /// The directory to write them to
        #[arg(value_name = "DIR", default_value = ".")]
        dir: PathBuf,
    },
    /// A verb of the Go operator
    #[command(hide = true, disable_help_flag = true)]
    Internal(FormerArgs),
    /// A verb of the Go operator
    #[command(hide = true, disable_help_flag = true)]
    External(FormerArgs),
    /// Run a worker; `local` starts this program for every worker
    #[command(hide = true)]
    Worker {
        #[command(subcommand)]
        command: swarm_worker::Command,
    },
}

/// Whatever a verb of the Go operator was given.
#[derive(Debug, clap::Args)]
pub(crate) struct FormerArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<String>,
}
