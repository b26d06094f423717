//! `kubectl swarm`: see and steer Swarms. kubectl runs this program as its plugin; it runs by itself
//! as well.
//!
//! Exit codes: 0 fine, 1 failed, 2 wrong usage or input, 3 the answer is "no".

mod plan;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use plan::PlanArgs;

/// See and steer Swarms: jobs, and the pools of workers that share them.
#[derive(Debug, Parser)]
#[command(name = "kubectl-swarm", bin_name = "kubectl swarm", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Tell what would run where, and what would move, without touching anything
    Plan(PlanArgs),
}

fn main() -> ExitCode {
    let Command::Plan(args) = Args::parse().command;
    plan::run(&args)
}

/// Prints a document. A reader that went away, as `head` does, has read all it wanted.
fn print(document: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(document.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Says something that is not the answer, in one line. What a file has in it cannot steer the
/// terminal.
fn complain(sentence: &str) {
    let mut line = String::from("kubectl swarm: ");
    for c in sentence.chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    // Where nobody listens, nothing can be said.
    let _ = writeln!(io::stderr(), "{line}");
}
