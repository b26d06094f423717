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

fn main() -> ExitCode {
    swarm_worker::execute(Cli::parse().command).unwrap_or_else(|error| {
        swarm_worker::print_error(&format!("{error:#}"));
        ExitCode::FAILURE
    })
}
