//! The command line. Exit codes: 0 success, 1 failure, 2 invalid usage or input, 3 the answer is
//! "no".

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use swarm_local::LocalArgs;

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
    /// Print the CRDs (custom resource definitions) as YAML
    Crd,
    /// Check in run logs that every job was run by one worker at a time
    Verify(VerifyArgs),
    /// Run a worker; `local` starts this program for every worker
    #[command(hide = true)]
    Worker {
        #[command(subcommand)]
        command: swarm_worker::Command,
    },
}

/// How the operator runs on a cluster.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Watch Swarms in this namespace only; may be repeated [default: all namespaces]
    #[arg(long = "namespace", short, value_name = "NS")]
    pub(crate) namespaces: Vec<String>,
    /// The kubeconfig file [default: the pod's service account, or else `KUBECONFIG`, or else
    /// ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The address to serve /healthz, /readyz and /metrics on
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// The format of log lines; `RUST_LOG` sets the level [default level: info]
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// Text for people
    Text,
    /// One JSON object per line
    Json,
}
