//! `swarm-operator`: gives every job exactly one worker out of a pool on Kubernetes. This program
//! parses arguments, connects, wires and runs; it makes no decisions.

mod args;
mod crd;
mod predecessor;
mod run;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use anstyle::AnsiColor;
use clap::Parser as _;
use swarm_adapters_host::{caller, runtime};
use swarm_view::printable::{Form, are_printable, printable};

use args::{Args, Command};
use predecessor::Verb;

/// Exit code for invalid usage or input.
const WRONG: u8 = 2;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    let command = match Args::try_parse_from(&words) {
        Ok(args) => args.command,
        Err(error) => refuse(&error, &words),
    };
    execute(command).unwrap_or_else(|error| {
        complain(&format!("{error:#}"));
        ExitCode::FAILURE
    })
}

fn execute(command: Command) -> anyhow::Result<ExitCode> {
    let sentence = match command {
        Command::Run(args) => {
            // Signals are unblocked before any thread starts, so that every thread accepts them.
            caller::unblock_signals()?;
            caller::cope_with_limits()?;
            return runtime::several()?.block_on(Box::pin(run::run(args)));
        }
        Command::Crd => return crd::print(),
        Command::Internal(args) => predecessor::answer(Verb::Internal, &args.words),
        Command::External(args) => predecessor::answer(Verb::External, &args.words),
    };
    complain(&sentence);
    Ok(ExitCode::from(WRONG))
}

/// Exits with clap's message. If a word of the command line has control characters, the message is
/// escaped.
fn refuse(error: &clap::Error, words: &[OsString]) -> ! {
    if !error.use_stderr() || are_printable(words) {
        error.exit();
    }
    let message = error.render().to_string();
    // A failure to write to standard error cannot be reported.
    let _ = write!(std::io::stderr(), "{}", printable(&message, Form::Lines));
    std::process::exit(error.exit_code());
}

/// Prints a sentence on standard error, after the program's name in red if colours are on.
fn complain(sentence: &str) {
    let red = AnsiColor::Red.on_default();
    let sentence = printable(sentence, Form::Lines);
    // A failure to write to standard error cannot be reported.
    let _ = writeln!(anstream::stderr(), "{red}swarm-operator:{red:#} {sentence}");
}
