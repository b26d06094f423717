//! `kubectl swarm import`: reads the manifests of swarm's predecessors and writes Swarms that do the
//! same.
//!
//! This file reads and prints. [`objects`] recognizes what the documents are, and [`write`] makes
//! Swarms of them; both say in a [`Report`] what was changed or left out, with its line.

mod files;
mod jobs;
mod objects;
mod report;
mod write;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum, ValueHint};

use crate::{complain, print};
use files::Files;
use objects::Objects;
use report::Report;

/// The exit code for invalid usage or input.
const WRONG: u8 = 2;

/// Arguments of `import`.
#[derive(Debug, Args)]
#[command(after_help = "\
Reads Swarms of the group k8slab.info, lists `jobs:` and views `workloads:` in ConfigMaps or in files \
of their own, KindCustomHttps of the peering operator, and what stands beside them. What has no \
counterpart, and what was changed, is printed to standard error, with its line.

Exit codes: 0 if Swarms are printed, 2 if the input or the usage is invalid (only error messages \
are printed), 1 for any other failure.

Examples:
  kubectl swarm import config.yml > swarm.yaml             the list of the first operator
  kubectl swarm import kubernetes/                         a directory with a kustomization.yaml
  kubectl get swarms.k8slab.info -o yaml |
    kubectl swarm import - | kubectl swarm plan -f - --workers 3")]
pub(crate) struct ImportArgs {
    /// A file, as YAML or JSON, or a directory with a kustomization of plain files; `-` reads standard
    /// input
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::AnyPath)]
    files: Vec<PathBuf>,
    /// The namespace: objects that name another one are left out
    #[arg(long, short, value_name = "NS")]
    namespace: Option<String>,
    /// The name of the Swarm that is made of a list of jobs [default: that of its StatefulSet]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t)]
    output: Output,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    /// YAML documents
    #[default]
    Yaml,
    /// One JSON document
    Json,
}

/// Runs `import` with these arguments.
pub(crate) fn run(args: &ImportArgs) -> ExitCode {
    let Imported { said, result } = import(args);
    for line in said {
        complain(&line);
    }
    match result {
        Err(sentence) => {
            if let Some(sentence) = sentence {
                complain(&sentence);
            }
            ExitCode::from(WRONG)
        }
        Ok(manifests) => match print(&manifests) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                complain(&format!("the Swarms cannot be printed: {error}"));
                ExitCode::FAILURE
            }
        },
    }
}

/// What came of it.
#[derive(Debug)]
struct Imported {
    /// Sentences about the input, each with its line.
    said: Vec<String>,
    /// The manifests. The error may be a sentence; if it is none, everything was said.
    result: Result<String, Option<String>>,
}

fn import(args: &ImportArgs) -> Imported {
    let (mut files, mut report) = (Files::default(), Report::default());
    let stdin = args.files.iter().filter(|path| path.as_os_str() == crate::input::STANDARD_INPUT);
    if 1 < stdin.count() {
        let sentence = "only one FILE can be standard input; name files".to_owned();
        return Imported { said: Vec::new(), result: Err(Some(sentence)) };
    }
    let read = args.files.iter().try_for_each(|path| files.read(path, &mut report));
    if let Err(sentence) = read {
        return Imported { said: Vec::new(), result: Err(Some(sentence)) };
    }
    let mut objects = Objects::default();
    for text in files.into_texts() {
        objects.read(&text, args.namespace.as_deref(), &mut report);
    }
    let swarms = write::swarms(objects, args.name.as_deref(), &mut report);
    let result = if report.has_mistakes() {
        Err(None)
    } else if swarms.is_empty() {
        Err(Some(
            "there is nothing to import: no Swarm of k8slab.info, no `jobs:`, no `workloads:` with \
             jobs, and no KindCustomHttp"
                .to_owned(),
        ))
    } else {
        let written = match args.output {
            Output::Yaml => write::yaml(&swarms),
            Output::Json => write::json(&swarms),
        };
        written.map_err(Some)
    };
    Imported { said: report.lines(), result }
}
