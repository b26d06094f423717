//! `import`: reads the manifests of swarm's predecessors and writes equivalent Swarms.
//!
//! This file reads and prints. `objects` recognizes the documents, and `write` makes Swarms
//! from them. Both add each change and each omission to a `Report`, with its line.

mod document;
mod files;
mod jobs;
mod live;
mod managers;
mod objects;
mod report;
mod write;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum, ValueHint};
use swarm_spec::convert::Home;
use swarm_spec::foreign::Foreign;
use swarm_terminal::output::{WRONG, complain, print};
use swarm_view::printable::{Form, printable};

use crate::kubectl;
use crate::plan::answer::{self, Before, Question, Reach};
use crate::plan::source::Source;
use files::Files;
use live::{Cluster, Running};
use objects::Objects;
use report::Report;
use write::Swarm;

/// The end of the help of `import` in both homes.
macro_rules! after_help {
    ($examples:literal) => {
        concat!(
            "Input:\n  \
               Swarms of the group k8slab.info\n  \
               lists `jobs:` and views `workloads:`, in ConfigMaps or in files of their own\n  \
               KindCustomHttps of the peering operator\n  \
               lists of controller managers\n\n\
             A line on standard error names each field that was changed or has no counterpart.\n\n\
             Examples:\n",
            $examples
        )
    };
}

/// Arguments of `swarm import`.
#[derive(Debug, Args)]
#[command(after_help = after_help!("  \
  swarm import config.yml > swarm.yaml             the list of the first operator
  swarm import kubernetes/                         a directory of manifests"))]
pub struct ImportArgs {
    /// A file, as YAML or JSON, or a directory: of its kustomization.yaml the plain files are read, and
    /// without one its *.yaml, *.yml and *.json; `-` reads standard input
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::AnyPath)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    options: ImportOptions,
}

/// Arguments of `kubectl swarm import`.
#[derive(Debug, Args)]
#[command(after_help = after_help!("  \
  kubectl swarm import config.yml > swarm.yaml             the list of the first operator
  kubectl swarm import kubernetes/                         a directory of manifests
  kubectl swarm import --live -n swarm > swarm.yaml        what runs, to be taken over as it runs
  kubectl get swarms.k8slab.info -o yaml |
    kubectl swarm import - | kubectl swarm plan -f - --workers 3"))]
pub(crate) struct LiveImportArgs {
    /// A file, as YAML or JSON, or a directory: of its kustomization.yaml the plain files are read, and
    /// without one its *.yaml, *.yml and *.json; `-` reads standard input
    #[arg(value_name = "FILE", required_unless_present = "live", value_hint = ValueHint::AnyPath)]
    files: Vec<PathBuf>,
    /// Write Swarms that take over what the workers run now; asks the cluster by kubectl for the view,
    /// and without FILE for everything else
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    options: ImportOptions,
    #[command(flatten)]
    cluster: kubectl::Cluster,
}

/// Options of `import` in both homes.
#[derive(Debug, Args)]
struct ImportOptions {
    /// The namespace: objects that name another one are left out
    #[arg(long, short, value_name = "NS")]
    namespace: Option<String>,
    /// The name of the Swarm that is made of a list of jobs [default: the name of its StatefulSet]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The image of the peering operator's server, to keep it: it reads a list of all addresses instead
    /// of taking part in sessions [default: swarm's own server]
    #[arg(long, value_name = "IMAGE")]
    peering_image: Option<String>,
    /// The output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t)]
    output: Manifests,
}

/// The format of manifests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Manifests {
    /// YAML documents
    #[default]
    Yaml,
    /// One JSON document
    Json,
}

/// A request to import.
#[derive(Clone, Copy, Debug)]
struct Request<'a> {
    files: &'a [PathBuf],
    options: &'a ImportOptions,
    /// The cluster to take the current assignment from, with `--live`.
    live: Option<&'a Cluster>,
}

/// Runs `swarm import` with these arguments.
#[must_use]
pub fn run(args: &ImportArgs) -> ExitCode {
    let ImportArgs { files, options } = args;
    finish(import(Request { files, options, live: None }))
}

/// Runs `kubectl swarm import` with these arguments.
pub(crate) fn run_live(args: &LiveImportArgs) -> ExitCode {
    let LiveImportArgs { files, live, options, cluster } = args;
    let cluster = live.then(|| Cluster(cluster.clone()));
    finish(import(Request { files, options, live: cluster.as_ref() }))
}

/// Prints the manifests, or the reason why there are none.
fn finish(Imported { said, result }: Imported) -> ExitCode {
    for line in said {
        complain(&line);
    }
    match result {
        Err(Failure::Said) => ExitCode::from(WRONG),
        Err(Failure::Wrong(sentence)) => {
            complain(&sentence);
            ExitCode::from(WRONG)
        }
        Err(Failure::Unreached(sentence)) => {
            complain(&sentence);
            ExitCode::FAILURE
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

/// Result of an import.
#[derive(Debug)]
struct Imported {
    /// Sentences about the input, each with its line.
    said: Vec<String>,
    /// The manifests.
    result: Result<String, Failure>,
}

/// Reason for a failed import.
#[derive(Debug)]
enum Failure {
    /// The mistakes are already reported, line by line.
    Said,
    /// The input cannot be used.
    Wrong(String),
    /// The cluster did not answer.
    Unreached(String),
}

fn import(request: Request<'_>) -> Imported {
    let mut report = Report::default();
    let result = manifests(request, &mut report);
    Imported { said: report.lines(), result }
}

fn manifests(request: Request<'_>, report: &mut Report) -> Result<String, Failure> {
    let Request { files: paths, options, live } = request;
    let namespace = options.namespace.as_deref();
    let mut files = Files::default();
    let stdin = paths.iter().filter(|path| path.as_os_str() == crate::input::STANDARD_INPUT);
    if 1 < stdin.count() {
        return Err(Failure::Wrong("only one FILE can be standard input; name files".to_owned()));
    }
    for path in paths {
        files.read(path, report).map_err(Failure::Wrong)?;
    }
    if let Some(cluster) = live.filter(|_| paths.is_empty()) {
        cluster.read(namespace, &mut files).map_err(Failure::Unreached)?;
    }
    let mut objects = Objects::default();
    let texts = files.into_texts();
    let foreign = texts.iter().find_map(|text| {
        let foreign = Foreign::of(&text.shown, &text.content)?;
        Some(format!("{}: {}", text.shown, foreign.advice()))
    });
    for text in texts {
        objects.read(&text, namespace, report);
    }
    let managers = std::mem::take(&mut objects.managers);
    let mut swarms =
        write::swarms(objects, options.name.as_deref(), options.peering_image.as_deref(), report);
    let has_nothing = swarms.is_empty() && managers.is_empty();
    if let Some(sentence) = foreign.filter(|_| report.has_mistakes() || has_nothing) {
        // The other sentences are about lists that the file was taken for.
        *report = Report::default();
        return Err(Failure::Wrong(sentence));
    }
    if report.has_mistakes() {
        return Err(Failure::Said);
    }
    if has_nothing {
        return Err(Failure::Wrong(nothing(request)));
    }
    if let Some(cluster) = live {
        for swarm in &mut swarms {
            adopt(swarm, cluster, namespace, report)?;
        }
    }
    let mut others = Vec::new();
    if !managers.is_empty() {
        others.push(managers.config_map().map_err(Failure::Wrong)?);
    }
    let json =
        || write::json(&swarms, &others).map(|text| printable(&text, Form::Json).into_owned());
    let written = match options.output {
        // JSON is valid YAML, and escapes the characters that could control a terminal.
        Manifests::Yaml => write::yaml(&swarms, &others)
            .and_then(|text| if printable(&text, Form::Lines) == text { Ok(text) } else { json() }),
        Manifests::Json => json(),
    };
    written.map_err(Failure::Wrong)
}

/// Builds the error for an input with nothing to import: the kinds of input that were looked for.
fn nothing(Request { files, options, live }: Request<'_>) -> String {
    let namespace = options.namespace.as_deref();
    if let Some(Cluster(cluster)) = live.filter(|_| files.is_empty()) {
        if let Some(name) = namespace.filter(|name| cluster.has_namespace(name) == Some(false)) {
            return format!(
                "namespace `{name}` does not exist; `kubectl get namespaces` lists them"
            );
        }
        let namespace = namespace.map_or_else(
            || "the namespace of the context".to_owned(),
            |name| format!("namespace `{name}`"),
        );
        return format!(
            "{namespace} has nothing to import: no Swarm of k8slab.info, and neither ConfigMap {} has jobs; \
             name another namespace with --namespace",
            live::CONFIG_MAPS.map(|name| format!("`{name}`")).join(" nor ")
        );
    }
    let within = namespace.map(|name| format!(" in namespace `{name}`")).unwrap_or_default();
    let read: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    format!(
        "{}: there is nothing to import{within}: no Swarm of k8slab.info, no `jobs:`, no `workloads:` \
         with jobs, no KindCustomHttp, and no ControllerManagerDefault",
        read.join(", ")
    )
}

/// Makes a Swarm adopt the current assignment, and reports the consequences.
fn adopt(
    swarm: &mut Swarm,
    cluster: &Cluster,
    namespace: Option<&str>,
    report: &mut Report,
) -> Result<(), Failure> {
    // A managed pool has no running workers yet.
    let Some((config_map, key, _)) = swarm.view() else { return Ok(()) };
    let place = format!("ConfigMap `{config_map}`, key `{key}`");
    let namespace = swarm.namespace().or(namespace);
    let view = cluster.view(namespace, config_map, key).map_err(Failure::Unreached)?;
    let view =
        view.map_err(|why| Failure::Wrong(format!("{place}: no view to take over: {why}")))?;
    let former = cluster.former_operators(namespace).map_err(Failure::Unreached)?;
    swarm.adopt(view.as_ref().map(|running| &running.view), report);
    if let Some(Running { view, writer }) = view {
        if let Some((manager, time)) = writer {
            let sentence = format!("{place}: field manager `{manager}` wrote it last, at {time}");
            report.note(&swarm.spot, sentence);
        }
        let manifest = write::yaml(std::slice::from_ref(swarm), &[]).map_err(Failure::Wrong)?;
        let sentence = moves(&place, manifest, &view).map_err(Failure::Wrong)?;
        report.note(&swarm.spot, sentence);
    }
    for name in former {
        let sentence = format!(
            "Deployment `{name}` runs the previous operator: delete it, or nothing is taken over"
        );
        report.note(&swarm.spot, sentence);
    }
    Ok(())
}

/// Describes the moves that adopting a view causes.
fn moves(place: &str, manifest: String, view: &swarm_core::View) -> Result<String, String> {
    let workers = u32::try_from(view.workers.len()).unwrap_or(u32::MAX);
    let question = Question {
        home: Home::Cluster,
        manifest: &Source::of("the Swarm", manifest),
        name: None,
        namespace: None,
        workers: Some(workers),
        reach: Reach::Target,
    };
    let answer = answer::answer(&question, Before::View(&Source::of(place, view.to_yaml())))
        .map_err(|explained| explained.to_string())?;
    let entries: usize = view.workers.values().map(|entry| entry.jobs.len()).sum();
    let held = answer.held.map_or(0, |held| held.len());
    let (doubled, moved) =
        (entries - held, answer.document.moves.iter().filter(|step| step.from.is_some()).count());
    Ok(format!(
        "{workers} workers run {held} jobs by {place}, {doubled} of them twice; taking over moves \
         {moved} of them"
    ))
}
