//! `swarm`: pools on this machine, and the files that describe them.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use kubectl_swarm::color::Colors;
use kubectl_swarm::import::{self, ImportArgs};
use kubectl_swarm::{help, refusal};
use swarm_adapters_host::{caller, runtime};
use swarm_local::{
    AttachArgs, CheckArgs, DiffArgs, ExplainArgs, HistoryArgs, JobsArgs, LocalArgs, LogsArgs,
    PsArgs, ReportArgs, StatusArgs, StopArgs, WhoArgs, WorkersArgs,
};
use swarm_terminal::output::{complain, name_program};

use crate::export::ExportArgs;
use crate::init::InitArgs;
use crate::plan::PlanArgs;
use crate::verify::VerifyArgs;
use crate::{export, init, manual, plan, verify};

/// Gives every job exactly one worker out of a pool on this machine: evenly, with the fewest moves.
#[derive(Debug, Parser)]
#[command(name = "swarm", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    colors: Colors,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a pool on this machine: the workers are child processes
    Local(LocalArgs),
    /// Print the state of a pool that `local` runs
    Status(StatusArgs),
    /// Show and steer a pool that `local` runs elsewhere; its end does not end the pool
    #[command(visible_alias = "top")]
    Attach(AttachArgs),
    /// List the jobs of a pool that `local` runs, and their workers
    #[command(visible_alias = "jobs")]
    Ps(PsArgs),
    /// Print the worker that holds a job of a pool that `local` runs
    Who(WhoArgs),
    /// Explain where a job is, why, and why it moved last
    Explain(ExplainArgs),
    /// Show which jobs moved, when and why
    History(HistoryArgs),
    /// Show which jobs have another worker than at an earlier revision
    Diff(DiffArgs),
    /// List the workers of a pool that `local` runs
    Workers(WorkersArgs),
    /// Print what is in the logs of a pool of `local` about one job
    Logs(LogsArgs),
    /// Check this machine: processes, limits, room, and the pools that run or have ended
    Check(CheckArgs),
    /// Write a zip file for a bug report, without the values of params
    Report(ReportArgs),
    /// End a pool that `local` runs; returns when no process is left
    Stop(StopArgs),
    /// Restart jobs of a pool that `local` runs
    Restart(JobsArgs),
    /// Begin jobs again that are not restarted any more
    Retry(JobsArgs),
    /// Stop jobs until they are resumed, also over a restart of the pool
    Suspend(JobsArgs),
    /// Let suspended jobs run again
    Resume(JobsArgs),
    /// Show what would run where, and what would move, without changing anything
    Plan(PlanArgs),
    /// Check in run logs that every job was run by one worker at a time
    Verify(VerifyArgs),
    /// Write a manifest with comments, to start from
    Init(InitArgs),
    /// Print a manifest for `kubectl apply`, with an image of the workers
    Export(ExportArgs),
    /// Write Swarms that do what manifests of swarm's predecessors did
    Import(ImportArgs),
    /// Print the JSON Schema of manifests, with which editors complete and check fields
    Schema,
    /// Print a script with which a shell completes commands and options
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write man pages of `swarm` and of `kubectl swarm`
    Man {
        /// The directory to write them to
        #[arg(value_name = "DIR", default_value = ".")]
        dir: PathBuf,
    },
    /// Run a worker; `local` starts this program for every worker
    #[command(hide = true)]
    Worker {
        #[command(subcommand)]
        command: swarm_worker::Command,
    },
}

/// Returns the program with its commands and options, as its help shows them.
#[must_use]
pub fn command() -> clap::Command {
    help::shared(Args::command())
}

/// Runs the program with the words of its command line.
#[must_use]
pub fn main() -> ExitCode {
    name_program("swarm");
    let matches = command().try_get_matches().unwrap_or_else(|error| refusal::exit(error));
    let args = Args::from_arg_matches(&matches).unwrap_or_else(|error| refusal::exit(error));
    args.colors.apply();
    let outcome = match args.command {
        // There are many workers and guards, so each has few threads. The process that becomes a
        // job has one.
        Command::Worker { command } => {
            name_process();
            swarm_worker::execute(command)
        }
        command => execute(command),
    };
    outcome.unwrap_or_else(|error| {
        complain(&format!("{error:#}"));
        ExitCode::FAILURE
    })
}

/// Gives this process the name of the program in lists of processes. A worker and a guard are started
/// through a descriptor of the program's file, whose name the system would show.
fn name_process() {
    // Without the name, a list of processes is only harder to read.
    let _ = rustix::thread::set_name(c"swarm");
}

/// Carries out a command, with a thread for each core.
fn execute(command: Command) -> anyhow::Result<ExitCode> {
    // Signals are unblocked before any thread starts, so that every thread accepts them.
    caller::unblock_signals()?;
    caller::cope_with_limits()?;
    runtime::several()?.block_on(Box::pin(carry_out(command)))
}

async fn carry_out(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Local(args) => Box::pin(swarm_local::local(args)).await,
        Command::Status(args) => swarm_local::status(args).await,
        Command::Attach(args) => Box::pin(swarm_local::attach(args)).await,
        Command::Ps(args) => swarm_local::ps(args).await,
        Command::Who(args) => swarm_local::who(args).await,
        Command::Explain(args) => swarm_local::explain(args).await,
        Command::History(args) => swarm_local::history(args).await,
        Command::Diff(args) => swarm_local::diff(args).await,
        Command::Workers(args) => swarm_local::workers(args).await,
        Command::Logs(args) => swarm_local::logs(args).await,
        Command::Check(args) => swarm_local::check(args).await,
        Command::Report(args) => Box::pin(swarm_local::report(args)).await,
        Command::Stop(args) => swarm_local::stop(args).await,
        Command::Restart(args) => swarm_local::restart(args).await,
        Command::Retry(args) => swarm_local::retry(args).await,
        Command::Suspend(args) => swarm_local::suspend(args).await,
        Command::Resume(args) => swarm_local::resume(args).await,
        Command::Plan(args) => Ok(plan::run(&args).await),
        Command::Verify(args) => verify::verify(&args),
        Command::Init(args) => init::write(&args),
        Command::Export(args) => export::run(&args),
        Command::Import(args) => Ok(import::run(&args)),
        Command::Schema => manual::print_schema(),
        Command::Completions { shell } => manual::print_completions(shell),
        Command::Man { dir } => manual::write_pages(&dir),
        Command::Worker { command } => swarm_worker::run(command).await,
    }
}
