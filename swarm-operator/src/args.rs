//! The command line. Exit codes: 0 fine, 1 failed, 2 wrong usage or input, 3 the answer is no.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use crate::local::LocalArgs;
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
    /// Run the operator on a Kubernetes cluster
    Run(RunArgs),
    /// Print the custom resource definitions as YAML
    Crd,
    /// Read run logs and tell whether every job was run by one worker at a time
    Verify(VerifyArgs),
    /// What `local` starts for every worker: this program is its own worker
    #[command(hide = true)]
    Worker {
        #[command(subcommand)]
        command: swarm_worker::Command,
    },
}

/// How the operator runs on a cluster.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Look for Swarms in this namespace only; may be given several times [default: all namespaces]
    #[arg(long = "namespace", short, value_name = "NS")]
    pub(crate) namespaces: Vec<String>,
    /// Where the cluster is [default: the pod's own, else `KUBECONFIG`, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Where to serve /healthz, /readyz and /metrics
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// How log lines look; `RUST_LOG` says which are written [default there: info]
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}
