//! `kubectl swarm plan`: what would run where, and what would move.
//!
//! This file reads and prints. The answer is a function of texts, in [`answer`]; where each job goes
//! is decided by the core's planner alone.

mod answer;
mod document;
mod table;
mod view;

#[cfg(test)]
mod tests;

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use swarm_adapters_host::file;
use swarm_adapters_k8s::manifest::WORKERS_MAX;

use crate::{complain, print};
use answer::{Answer, Question, Reach, Source};

/// The path that stands for standard input.
const STANDARD_INPUT: &str = "-";

/// The largest file that is read.
const BYTES_MAX: u64 = 64 << 20;

/// The exit code of wrong usage or input.
const WRONG: u8 = 2;

/// The exit code of a plan that leaves jobs without a worker.
const UNASSIGNED: u8 = 3;

/// Arguments of `plan`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 every job has a worker, 3 some have none (the plan is printed all the same), \
2 the input or the usage is wrong (nothing is printed but one message), 1 anything else.

Examples:
  kubectl swarm plan -f streams.yaml                  where the jobs go at first
  kubectl swarm plan -f streams.yaml --workers 4      with another number of workers
  kubectl get configmap swarm-worker-config -o 'jsonpath={.data.config\\.yml}' |
    kubectl swarm plan -f streams.yaml --from -       what an edit would move")]
pub(crate) struct PlanArgs {
    /// The manifest that holds the Swarm, as YAML or JSON; `-` reads standard input. ConfigMaps in it
    /// serve the Swarm's jobSources; no cluster is asked
    #[arg(long = "filename", short, value_name = "FILE")]
    file: PathBuf,
    /// Which Swarm of FILE is meant, if it holds several
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// How many workers there are [default: replicas of the Swarm, else of its workload in FILE]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=i64::from(WORKERS_MAX)))]
    workers: Option<u32>,
    /// The view that tells who runs what now; `-` reads standard input [default: nobody runs anything]
    #[arg(long, value_name = "VIEW")]
    from: Option<PathBuf>,
    /// Plan only the moves that maxMovesInFlight allows at once, instead of all
    #[arg(long)]
    step: bool,
    /// How to print the plan
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Tables for people
    Text,
    /// One JSON document, whose format is kept stable
    Json,
}

/// Answers the question that the arguments ask.
pub(crate) fn run(args: &PlanArgs) -> ExitCode {
    let answer = match ask(args) {
        Ok(answer) => answer,
        Err(sentence) => {
            complain(&sentence);
            return ExitCode::from(WRONG);
        }
    };
    for note in &answer.notes {
        complain(&format!("note: {note}"));
    }
    let printed = match args.output {
        Output::Text => print(&table::text(&answer)),
        Output::Json => {
            answer.document.to_json().map_err(io::Error::from).and_then(|json| print(&json))
        }
    };
    match printed {
        Err(error) => {
            complain(&format!("the plan cannot be printed: {error}"));
            ExitCode::FAILURE
        }
        Ok(()) if answer.document.unassigned.is_empty() => ExitCode::SUCCESS,
        Ok(()) => ExitCode::from(UNASSIGNED),
    }
}

/// Reads what the arguments name, and answers; or the sentence that says what is wrong.
fn ask(args: &PlanArgs) -> Result<Answer, String> {
    let stdin = Path::new(STANDARD_INPUT);
    if args.file == stdin && args.from.as_deref() == Some(stdin) {
        return Err("FILE and VIEW cannot both be standard input; name a file for one".into());
    }
    let manifest = read(&args.file)?;
    let view = args.from.as_deref().map(read).transpose()?;
    answer::answer(&Question {
        manifest: &manifest,
        name: args.name.as_deref(),
        workers: args.workers,
        view: view.as_ref(),
        reach: if args.step { Reach::Step } else { Reach::Target },
    })
}

fn read(path: &Path) -> Result<Source, String> {
    let (shown, text) = if path == Path::new(STANDARD_INPUT) {
        ("standard input".to_owned(), read_stdin())
    } else {
        let text = file::read_text(path, BYTES_MAX).map_err(|error| error.to_string());
        (path.display().to_string(), text)
    };
    let text = text.map_err(|reason| format!("{shown}: {reason}"))?;
    Ok(Source { shown, text })
}

fn read_stdin() -> Result<String, String> {
    let mut bytes = Vec::new();
    io::stdin()
        .lock()
        .take(BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("it cannot be read: {error}"))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| BYTES_MAX < length) {
        return Err(format!("it has more than {BYTES_MAX} bytes, which is the most that is read"));
    }
    String::from_utf8(bytes).map_err(|_| "it is not a UTF-8 text".to_owned())
}
