//! `swarm-operator`: gives every job exactly one worker out of a pool, on Kubernetes or on one
//! machine. This program parses arguments, connects, wires and runs; it decides nothing.

mod args;
#[cfg(feature = "controller")]
mod crd;
mod document;
mod init;
mod manual;
mod predecessor;
#[cfg(feature = "controller")]
mod run;
mod verify;

use std::process::ExitCode;

use clap::Parser as _;

use args::{Args, Command};
use predecessor::Verb;
use swarm_adapters_host::{caller, runtime};

fn main() -> ExitCode {
    let outcome = match Args::parse().command {
        // Workers and guards are many, so they have few threads; the step that becomes a job has none.
        Command::Worker { command } => swarm_worker::execute(command),
        command => execute(command),
    };
    outcome.unwrap_or_else(|error| {
        swarm_local::complain(&format!("{error:#}"));
        ExitCode::FAILURE
    })
}

/// Carries out a command, with a thread for each core.
fn execute(command: Command) -> anyhow::Result<ExitCode> {
    // Before any thread starts, so that all can be asked to end.
    caller::unblock_signals()?;
    caller::cope_with_limits()?;
    runtime::several()?.block_on(Box::pin(carry_out(command)))
}

async fn carry_out(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Local(args) => Box::pin(swarm_local::local(args)).await,
        Command::Status(args) => swarm_local::status(args).await,
        Command::Ps(args) => swarm_local::ps(args).await,
        Command::Logs(args) => swarm_local::logs(args).await,
        Command::Stop(args) => swarm_local::stop(args).await,
        #[cfg(feature = "controller")]
        Command::Run(args) => run::run(args).await,
        #[cfg(feature = "controller")]
        Command::Crd => crd::print(),
        Command::Init(args) => init::write(&args),
        Command::Schema => manual::print_schema(),
        Command::Completions { shell } => manual::print_completions(shell),
        Command::Man { dir } => manual::write_pages(&dir),
        Command::Verify(args) => verify::verify(&args),
        Command::Internal(args) => Ok(predecessor::refuse(Verb::Internal, &args.words)),
        Command::External(args) => Ok(predecessor::refuse(Verb::External, &args.words)),
        Command::Worker { command } => swarm_worker::run(command).await,
    }
}
