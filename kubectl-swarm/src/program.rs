//! `kubectl swarm`: inspect and control Swarms. The program is a kubectl plugin, and also runs by
//! itself. It makes its requests through kubectl, so that the user's contexts, plugins and rights
//! apply.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use swarm_terminal::output::{name_program, print};

use crate::color::Colors;
use crate::complete::{self, Wanted};
use crate::import::{self, LiveImportArgs};
use crate::live::{
    self, CheckArgs, DiffArgs, ExplainArgs, HistoryArgs, JobsArgs, LogsArgs, ReportArgs,
    StatusArgs, TopArgs, WhoArgs, WorkersArgs,
};
use crate::plan::apply::{self, ApplyArgs};
use crate::plan::{self, ClusterPlanArgs};
use crate::replicas::{self, ReplicasArgs};
use crate::{help, refusal, words};

/// Inspect and control Swarms: jobs, and the pools of workers that share them.
#[derive(Debug, Parser)]
#[command(name = "kubectl-swarm", bin_name = "kubectl swarm", version, args_override_self = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    colors: Colors,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what would run where, and what would move, without changing anything
    Plan(ClusterPlanArgs),
    /// Apply manifests, unless the Swarm has changed since a plan
    Apply(ApplyArgs),
    /// Show a Swarm: its workers, moves, failing jobs, and the next command
    Status(StatusArgs),
    /// Show a Swarm live: workers, jobs and moves, until q
    Top(TopArgs),
    /// List the jobs of a Swarm with their workers and phases
    #[command(visible_alias = "ps")]
    Jobs(JobsArgs),
    /// Show the worker that holds a job
    Who(WhoArgs),
    /// Explain where a job is, why, and what it waits for
    Explain(ExplainArgs),
    /// Show which jobs moved, when and why
    History(HistoryArgs),
    /// Show which jobs have another worker than at an earlier revision
    Diff(DiffArgs),
    /// Print the lines about a job in the log of its worker
    Logs(LogsArgs),
    /// List the workers of a Swarm
    Workers(WorkersArgs),
    /// Check the installation: CRDs, operator, roles, policies, and what is missing
    Check(CheckArgs),
    /// Write a zip file for a bug report, without the values of params
    Report(ReportArgs),
    /// Write Swarms that do what manifests of swarm's predecessors did
    Import(LiveImportArgs),
    /// List the operators that share the Swarms of this cluster
    Replicas(ReplicasArgs),
}

/// The command that kubectl runs for completions. Words after it are not parsed as options.
const COMPLETE: &str = "__complete";

/// Returns the program with its commands and options, as its help shows them.
#[must_use]
pub fn command() -> clap::Command {
    let mut program = unbuilt();
    program.build();
    program
}

/// Returns the program before clap adds the command `help`.
#[must_use]
pub fn unbuilt() -> clap::Command {
    help::shared(Args::command())
}

/// Returns the names in the cluster that may be the last of `words`.
fn names(program: &clap::Command, words: &[String], wanted: Wanted) -> Vec<String> {
    let Some((start, before)) = words.split_last() else { return Vec::new() };
    // A command may require a name, and an empty word is none.
    let words = [&["kubectl swarm".to_owned()], before, &["x".to_owned()]].concat();
    let words = words::with_the_command_first(program, words.into_iter().map(OsString::from));
    let Ok(matches) = program.clone().try_get_matches_from(words) else { return Vec::new() };
    let Ok(Args { command, .. }) = Args::from_arg_matches(&matches) else { return Vec::new() };
    if wanted != Wanted::Argument {
        return of_option(&command, wanted);
    }
    match command {
        Command::Status(args) => live::swarm_names(&args.scope),
        Command::Top(args) => live::swarm_names(&args.scope),
        Command::Jobs(args) => live::swarm_names(&args.scope),
        Command::Workers(args) => live::swarm_names(&args.scope),
        Command::Report(args) => live::swarm_names(&args.scope),
        Command::Explain(args) => live::job_names(&args.scope, args.swarm.as_deref(), start),
        Command::History(args) => live::job_names(&args.scope, args.swarm.as_deref(), start),
        Command::Logs(args) => live::job_names(&args.scope, args.swarm.as_deref(), start),
        Command::Who(args) => live::job_names(&args.scope, args.swarm.as_deref(), start),
        _ => Vec::new(),
    }
}

/// Returns the names in the cluster for an option of `command`.
fn of_option(command: &Command, wanted: Wanted) -> Vec<String> {
    let (scope, swarm) = match command {
        Command::Plan(args) => (args.scope(), args.live.swarm()),
        Command::Jobs(args) => (args.scope.clone(), args.named.get()),
        Command::Explain(args) => (args.scope.clone(), None),
        Command::History(args) => (args.scope.clone(), None),
        Command::Diff(args) => (args.scope.clone(), None),
        Command::Logs(args) => (args.scope.clone(), None),
        Command::Who(args) => (args.scope.clone(), None),
        _ => return Vec::new(),
    };
    match wanted {
        Wanted::Worker => live::worker_names(&scope, swarm),
        Wanted::Swarm | Wanted::Argument => live::swarm_names(&scope),
    }
}

/// Parses the words of a command line. Flags of kubectl may precede the command.
///
/// # Errors
///
/// If the words do not parse, or ask for help or the version.
pub fn parsed(words: impl IntoIterator<Item = OsString>) -> Result<ArgMatches, clap::Error> {
    let program = command();
    let words = words::with_the_command_first(&program, words);
    program.try_get_matches_from(words)
}

/// Runs the program with the words of its command line.
#[must_use]
pub fn main() -> ExitCode {
    name_program("kubectl swarm");
    let words: Vec<_> = std::env::args_os().collect();
    if words.get(1).map(OsStr::new) == Some(OsStr::new(COMPLETE)) {
        let words: Vec<_> =
            words.iter().skip(2).map(|word| word.to_string_lossy().into_owned()).collect();
        return print(&complete::candidates(&command(), &words, names))
            .map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    let matches = parsed(words).unwrap_or_else(|error| refusal::exit(error));
    let args = Args::from_arg_matches(&matches).unwrap_or_else(|error| refusal::exit(error));
    args.colors.apply();
    match args.command {
        Command::Plan(args) => plan::run(&args),
        Command::Apply(args) => apply::apply(&args),
        Command::Status(args) => live::status(&args),
        Command::Top(args) => live::top(&args),
        Command::Jobs(args) => live::jobs(&args),
        Command::Who(args) => live::who(&args),
        Command::Workers(args) => live::workers(&args),
        Command::Explain(args) => live::explain(&args),
        Command::History(args) => live::history(&args),
        Command::Diff(args) => live::diff(&args),
        Command::Logs(args) => live::logs(&args),
        Command::Check(args) => live::check(&args),
        Command::Report(args) => live::report(&args),
        Command::Import(args) => import::run_live(&args),
        Command::Replicas(args) => replicas::run(&args),
    }
}
