//! `kubectl swarm plan`: prints what would run where, and what would move.
//!
//! This file reads files and prints. The module [`answer`] computes the answer from their texts, and
//! the core's planner alone decides where each job goes.

pub(crate) mod answer;
mod document;
pub(crate) mod table;
mod view;

#[cfg(test)]
mod tests;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use swarm_adapters_host::file;
use swarm_adapters_host::printable::{Form, printable};
use swarm_spec::manifest::{self, Explained, WORKERS_MAX};
use swarm_spec::yaml;

use crate::input::{STANDARD_INPUT, read_stdin};
use crate::{complain, print, print_json};
use answer::{Answer, Question, Reach, Source};

/// The largest file that is read.
const BYTES_MAX: u64 = 64 << 20;

/// The exit code for invalid usage or input.
const WRONG: u8 = 2;

/// The exit code for a plan that leaves jobs without a worker.
const UNASSIGNED: u8 = 3;

/// Arguments of `plan`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 if every job has a worker, 3 if some have none (the plan is printed), 2 if the input \
or the usage is invalid (only an error message is printed), 1 for any other failure.

Examples:
  kubectl swarm plan -f streams.yaml                  the first assignment
  kubectl swarm plan -f streams.yaml --workers 4      for another number of workers
  kubectl get configmap swarm-worker-config -o 'jsonpath={.data.config\\.yml}' |
    kubectl swarm plan -f streams.yaml --from -       the moves that an edit would cause")]
pub(crate) struct PlanArgs {
    /// A manifest, as YAML or JSON; may be repeated; `-` reads standard input. One contains the Swarm;
    /// its jobSources are read from ConfigMaps in any of them; no cluster is contacted
    #[arg(long = "filename", short, value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The namespace: objects that name another one are left out
    #[arg(long, short, value_name = "NS")]
    namespace: Option<String>,
    /// The name of the Swarm, if there are several
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The number of workers [default: replicas of the Swarm, or else of its workload in FILE]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=i64::from(WORKERS_MAX)))]
    workers: Option<u32>,
    /// The view with the current assignment; `-` reads standard input [default: no job is assigned]
    #[arg(long, value_name = "VIEW")]
    from: Option<PathBuf>,
    /// Plan only the moves that maxMovesInFlight allows at once, instead of all
    #[arg(long)]
    step: bool,
    /// The output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Tables for people
    Text,
    /// One JSON document, in a stable format
    Json,
}

/// Runs `plan` with these arguments.
pub(crate) fn run(args: &PlanArgs) -> ExitCode {
    let answer = match ask(args) {
        Ok(answer) => answer,
        Err(Explained { sentence, excerpt }) => {
            complain(&sentence);
            if let Some(excerpt) = excerpt {
                // If standard error is closed, nobody reads it.
                let _ = writeln!(io::stderr(), "{}", printable(&excerpt, Form::Lines));
            }
            return ExitCode::from(WRONG);
        }
    };
    for note in &answer.notes {
        complain(&format!("note: {note}"));
    }
    let printed = match args.output {
        Output::Text => print(&table::text(&answer)),
        Output::Json => {
            answer.document.to_json().map_err(io::Error::from).and_then(|json| print_json(&json))
        }
    };
    match printed {
        Err(error) => {
            complain(&format!("the plan cannot be printed: {error}"));
            ExitCode::FAILURE
        }
        Ok(()) if answer.document.leaves_some() => ExitCode::from(UNASSIGNED),
        Ok(()) => ExitCode::SUCCESS,
    }
}

/// Reads the files that the arguments name, and computes the answer. The error is a sentence for a
/// person.
fn ask(args: &PlanArgs) -> Result<Answer, Explained> {
    let stdin = Path::new(STANDARD_INPUT);
    let inputs = args.files.iter().map(PathBuf::as_path).chain(args.from.as_deref());
    if 1 < inputs.filter(|path| *path == stdin).count() {
        let sentence = "only one of FILE and VIEW can be standard input; name files";
        return Err(sentence.to_owned().into());
    }
    let manifest = joined(args.files.iter().map(|path| read(path)).collect::<Result<_, _>>()?)?;
    let view = args.from.as_deref().map(read).transpose()?;
    answer::answer(&Question {
        manifest: &manifest,
        name: args.name.as_deref(),
        namespace: args.namespace.as_deref(),
        workers: args.workers,
        view: view.as_ref(),
        reach: if args.step { Reach::Step } else { Reach::Target },
    })
}

/// Several files as one. Each is read alone first, so that an error names its file.
fn joined(mut files: Vec<Source>) -> Result<Source, String> {
    if files.len() == 1 {
        return Ok(files.remove(0));
    }
    let (mut text, mut shown) = (String::new(), Vec::new());
    for file in files {
        let read = yaml::documents(&file.text);
        let documents =
            read.map_err(|error| format!("{}: {}", file.shown, manifest::in_full(&error)))?;
        text.extend(documents.into_iter().map(|(_, document)| format!("---\n{document}\n")));
        shown.push(file.shown);
    }
    Ok(Source { shown: shown.join(", "), text, is_joined: true })
}

fn read(path: &Path) -> Result<Source, String> {
    let (shown, text) = if path == Path::new(STANDARD_INPUT) {
        ("standard input".to_owned(), read_stdin(BYTES_MAX))
    } else {
        let text = file::read_text(path, BYTES_MAX).map_err(|error| error.to_string());
        (path.display().to_string(), text)
    };
    let text = text.map_err(|reason| format!("{shown}: {reason}"))?;
    Ok(Source { shown, text, is_joined: false })
}
