//! A worker of a swarm pool: runs exactly the jobs that are assigned to it.
//!
//! A *plain* worker follows a file, the view, which lists the jobs of every worker. It stops the
//! jobs that it lost, and then starts new ones. If the file is missing or invalid, it keeps the
//! last valid view. It needs neither an API server nor another worker.
//!
//! A worker with a *session* holds a lease and takes part in handovers. It stops a job before the
//! job is granted to another worker, and stops all its jobs before its lease expires. In a pod it
//! only needs the Kubernetes API and the argument `--protocol session`.
//!
//! The program `swarm-worker` is a thin shell around [`run`]. A program that does the work itself
//! implements [`Runner`]; [`serve`] does the rest:
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
//! The command line selects a plain worker or a session on Kubernetes.
//!
//! The feature `kubernetes-1-33`, on by default, selects the Kubernetes version of the bindings. A
//! program that selects another version (a feature of `k8s-openapi`) disables it and enables
//! `kubernetes`. With neither feature, a worker has no Kubernetes client and no session in a pod.
//!
//! Inside, `runner` runs the jobs, restarts them, and reports their ends. `guard` ensures that no process
//! of a job outlives the worker, and `marker` identifies the job that crashed the process.
//! [`sweep`] and [`procs`] find and end processes, and [`ends`] proves their ends. An operator on the
//! same machine uses all three, too.

/// Compiles and runs the examples of the page about the library.
#[cfg(doctest)]
#[doc = include_str!("../../docs/library.md")]
struct LibraryPage;

/// Compiles the example of the guide.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod args;
mod cgroup;
mod endpoints;
pub mod ends;
mod follow;
mod guard;
mod install;
pub mod job_groups;
mod jobs;
mod log;
#[cfg_attr(
    not(feature = "kubernetes"),
    allow(dead_code, reason = "only a worker in a pod succeeds an earlier one")
)]
mod marker;
mod ping;
#[cfg_attr(not(feature = "kubernetes"), path = "no_pod.rs")]
mod pod;
pub mod procs;
mod program;
mod report;
mod run;
mod runner;
mod session;
pub mod sweep;
mod view;
mod watchdog;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use swarm_adapters_host::{caller, runtime};

pub use args::{
    Command, GuardArgs, GuardStep, InstallArgs, JOB_FILES, JOB_LOGS, LogFormat, PingArgs, Protocol,
    RunArgs, RunnerArg, RunnerArgs, RunnerKind, SessionArgs, ViewArgs,
};
pub use guard::KILLING;
pub use log::log_filter;
pub use runner::{Job, Outcome, Readiness, RunLogKeeper, Runner};

/// Limit of every wait of a unit test: it ends a test that hangs, and judges nothing.
#[cfg(test)]
const DEADLINE: std::time::Duration = std::time::Duration::from_mins(5);

/// Executes a command and returns the exit code of the program: 0 for success, and 2 for wrong
/// usage or input, after a message on standard error.
///
/// # Errors
///
/// If the command failed; the program prints the error, and its exit code is 1.
pub async fn run(command: Command) -> anyhow::Result<ExitCode> {
    let done = match command {
        Command::Run(args) => run::run(&args, None).await,
        Command::View(args) => view::print(&args),
        Command::Ping(args) => ping::ping(&args).await,
        Command::Install(args) => install::install(&args),
        Command::Guard(args) => guarded(args),
    };
    exit_code(done)
}

fn guarded(args: GuardArgs) -> Result<(), Failure> {
    match args.step {
        None => guard::serve().map_err(|error| failed(&error)),
        Some(GuardStep::Exec { guard, open_files, nice, group, argv }) => {
            let limits = guard::Limits { nice, open_files };
            Err(failed(&guard::exec(guard, limits, group.as_deref(), &argv)))
        }
    }
}

fn exit_code(done: Result<(), Failure>) -> anyhow::Result<ExitCode> {
    match done {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(Failure::Usage(sentence)) => {
            print_error(&sentence);
            Ok(ExitCode::from(2))
        }
        Err(failure @ Failure::Failed(_)) => Err(failure.into()),
    }
}

/// Executes a command like [`run`], and builds the runtime if the command needs one. The step
/// between a guard and a job's program must not start a thread, so it has no runtime.
///
/// # Errors
///
/// If [`run`] fails, or the system refuses to start a thread.
pub fn execute(command: Command) -> anyhow::Result<ExitCode> {
    caller::unblock_signals()?;
    match command {
        Command::Guard(args) => exit_code(guarded(args)),
        command @ (Command::Run(_) | Command::View(_) | Command::Ping(_) | Command::Install(_)) => {
            runtime::single()?.block_on(run(command))
        }
    }
}

/// Runs a worker whose jobs are run by `runner`. It ends at a signal, or at the end of standard
/// input if `args` ask for that. Arguments about runners are ignored.
///
/// # Errors
///
/// A sentence for a person: an argument is invalid, a port is in use, the lease was lost.
pub async fn serve(args: &RunArgs, runner: impl Runner) -> anyhow::Result<()> {
    Ok(run::run(args, Some(Arc::new(runner))).await?)
}

fn failed(error: &std::io::Error) -> Failure {
    Failure::Failed(error.to_string())
}

/// Prints an error for a person to standard error.
pub fn print_error(sentence: &str) {
    // If standard error is closed, the message is lost.
    let _ = writeln!(io::stderr(), "swarm-worker: {sentence}");
}

/// The reason why a command failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// The arguments or the input are invalid.
    #[error("{0}")]
    Usage(String),
    /// An operation failed.
    #[error("{0}")]
    Failed(String),
}
