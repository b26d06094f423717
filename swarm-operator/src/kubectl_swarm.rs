//! `kubectl swarm`: inspect and control Swarms. The program is a kubectl plugin, and also runs by
//! itself.
//!
//! Exit codes: 0 success, 1 failure, 2 invalid usage or input, 3 the answer is "no".

mod complete;
mod folder;
mod import;
mod input;
mod kubectl;
mod plan;
mod replicas;
mod words;

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anstyle::AnsiColor;
use clap::{CommandFactory as _, Parser, Subcommand};
use swarm_adapters_host::printable::{Form, printable};

use import::ImportArgs;
use plan::PlanArgs;
use replicas::ReplicasArgs;

/// Inspect and control Swarms: jobs, and the pools of workers that share them.
#[derive(Debug, Parser)]
#[command(name = "kubectl-swarm", bin_name = "kubectl swarm", version, args_override_self = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what would run where, and what would move, without changing anything
    Plan(PlanArgs),
    /// Write Swarms that do what manifests of swarm's predecessors did
    Import(ImportArgs),
    /// List the operators that share the Swarms of this cluster
    Replicas(ReplicasArgs),
}

/// The command by which kubectl asks for completions. The words behind it are no options of ours.
const COMPLETE: &str = "__complete";

fn main() -> ExitCode {
    let mut program = Args::command();
    program.build();
    let words: Vec<_> = std::env::args_os().collect();
    if words.get(1).map(OsStr::new) == Some(OsStr::new(COMPLETE)) {
        let words: Vec<_> =
            words.iter().skip(2).map(|word| word.to_string_lossy().into_owned()).collect();
        return print(&complete::candidates(&program, &words))
            .map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    match Args::parse_from(words::with_the_command_first(&program, words)).command {
        Command::Plan(args) => plan::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Replicas(args) => replicas::run(&args),
    }
}

/// Prints a JSON document, in which a terminal finds nothing to obey.
fn print_json(document: &str) -> io::Result<()> {
    print(&printable(document, Form::Json))
}

/// Prints a document, without its styles where there are no colours. Whoever made it has escaped what
/// comes from elsewhere. It is no error if the reader closes the pipe, as `head` does.
fn print(document: &str) -> io::Result<()> {
    let mut stdout = anstream::stdout().lock();
    match stdout.write_all(document.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Prints a message other than the answer, in one line. Control characters, which may come from a
/// file, are escaped.
fn complain(sentence: &str) {
    let line = printable(sentence, Form::Line);
    // If standard error is closed, the message is lost.
    let red = AnsiColor::Red.on_default();
    let _ = writeln!(anstream::stderr(), "{red}kubectl swarm:{red:#} {line}");
}
