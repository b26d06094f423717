//! A worker of a swarm pool: runs exactly the jobs that it is told to.
//!
//! A *plain* worker reads a file, the view, that says which worker runs which job. It follows that
//! file, stops what is no longer its own, and then starts what is new. It keeps the last good view
//! when the file is gone or makes no sense. It needs nothing else: no API server, no other worker.
//! A worker in a *session* holds a lease and takes part in handovers: it lets go of a job before
//! another worker is given it, and stops its jobs before anybody could take it for dead. In a pod
//! it needs nothing but the Kubernetes API, and `--protocol session` is all it takes.
//!
//! The program `swarm-worker` is a thin shell around [`run`]. A program that does the work itself
//! brings a [`Runner`] and leaves all the rest to [`serve`]:
//!
//! ```no_run
//! use swarm_worker::{Job, Outcome, Runner};
//! use tokio_util::sync::CancellationToken;
//!
//! struct Poller;
//!
//! #[async_trait::async_trait]
//! impl Runner for Poller {
//!     async fn run(&self, job: &Job, stop: CancellationToken) -> Outcome {
//!         while job.is_permitted() && !stop.is_cancelled() {
//!             println!("fetch {} under token {}", job.name, job.token.0);
//!             let pause = tokio::time::sleep(std::time::Duration::from_secs(1));
//!             stop.run_until_cancelled(pause).await;
//!         }
//!         Outcome::Ended
//!     }
//! }
//!
//! # #[derive(clap::Parser)]
//! # struct Cli { #[command(flatten)] worker: swarm_worker::RunArgs }
//! # #[tokio::main] async fn main() -> anyhow::Result<()> {
//! # let args = <Cli as clap::Parser>::parse().worker;
//! swarm_worker::serve(&args, Poller).await?;
//! # Ok(()) }
//! ```
//!
//! The same program is a plain worker, or one in a session on Kubernetes: its command line decides.
//! The feature `kubernetes-1-33`, on by default, chooses which Kubernetes the bindings are for; a
//! program that makes another choice (a feature of `k8s-openapi`) leaves it out.

mod args;
mod follow;
mod jobs;
mod log;
mod ping;
mod pod;
mod run;
mod runner;
mod session;
mod view;
mod watchdog;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use swarm_adapters_host::guard;

pub use args::{
    Command, GuardArgs, GuardStep, LogFormat, PingArgs, Protocol, RunArgs, SessionArgs, ViewArgs,
};
pub use runner::{RunnerArgs, RunnerSpec};
pub use swarm_adapters_host::runner::{Job, Outcome, Runner};

/// Carries out a command and returns the exit code of the program: 0 fine, 2 wrong usage or input,
/// which is told on standard error.
///
/// # Errors
///
/// If it could not be done, which is for the program to tell; its exit code is 1.
pub async fn run(command: Command) -> anyhow::Result<ExitCode> {
    let done = match command {
        Command::Run(args) => run::run(&args, None).await,
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

/// Runs a worker whose jobs are run by `runner`, until a signal, or the end of its pipe if `args`
/// say so, tells it to end. What `args` say about runners is passed over.
///
/// # Errors
///
/// A sentence for a person: an argument makes no sense, a port is in use, the lease was lost.
pub async fn serve(args: &RunArgs, runner: impl Runner) -> anyhow::Result<()> {
    Ok(run::run(args, Some(Arc::new(runner))).await?)
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
