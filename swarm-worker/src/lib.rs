//! A worker of a swarm pool: runs exactly the jobs that its view names.
//!
//! The worker reads a file, the view, that says which worker runs which job. It follows that file,
//! stops what is no longer its own, and then starts what is new. It keeps the last good view when
//! the file is gone or makes no sense. It needs nothing else: no API server, no other worker.
//!
//! The program `swarm-worker` is a thin shell around [`run`]; other programs that bring their own
//! workers can embed [`Command`] as a subcommand.

mod args;
mod follow;
mod jobs;
mod log;
mod ping;
mod run;
mod runner;
mod session;
mod view;
mod watchdog;

use std::io::{self, Write as _};
use std::process::ExitCode;

use swarm_adapters_host::guard;

pub use args::{
    Command, GuardArgs, GuardStep, LogFormat, PingArgs, RunArgs, SessionArgs, ViewArgs,
};
pub use runner::{RunnerArgs, RunnerSpec};

/// Carries out a command and returns the exit code of the program: 0 fine, 2 wrong usage or input,
/// which is told on standard error.
///
/// # Errors
///
/// If it could not be done, which is for the program to tell; its exit code is 1.
pub async fn run(command: Command) -> anyhow::Result<ExitCode> {
    let done = match command {
        Command::Run(args) => run::run(&args).await,
        Command::View(args) => view::print(&args),
        Command::Ping(args) => ping::ping(&args).await,
        Command::Guard(GuardArgs { step: None }) => guard::serve().map_err(|error| failed(&error)),
        Command::Guard(GuardArgs { step: Some(GuardStep::Exec { guard, argv }) }) => {
            Err(failed(&guard::exec(guard, &argv)))
        }
    };
    match done {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(Failure::Usage(sentence)) => {
            complain(&sentence);
            Ok(ExitCode::from(2))
        }
        Err(failure @ Failure::Failed(_)) => Err(failure.into()),
    }
}

fn failed(error: &std::io::Error) -> Failure {
    Failure::Failed(error.to_string())
}

/// Tells a person what went wrong.
pub fn complain(sentence: &str) {
    // Where standard error is closed, nobody is there to be told.
    let _ = writeln!(io::stderr(), "swarm-worker: {sentence}");
}

/// Why a command was not carried out, by whose fault it is.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// What was asked for makes no sense.
    #[error("{0}")]
    Usage(String),
    /// It could not be done.
    #[error("{0}")]
    Failed(String),
}
