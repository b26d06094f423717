//! The program `swarm-worker`; see the library of the same name.

use std::process::ExitCode;

use clap::Parser;
use swarm_worker::Command;

/// A worker of a swarm pool: runs exactly the jobs that its view names.
#[derive(Parser)]
#[command(name = "swarm-worker", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    swarm_worker::run(Cli::parse().command).await.unwrap_or_else(|error| {
        swarm_worker::print_error(&format!("{error:#}"));
        ExitCode::FAILURE
    })
}
