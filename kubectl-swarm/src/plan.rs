//! `plan`: prints the assignment and the moves that a file would cause.
//!
//! This file reads files and prints. The module [`answer`] computes the answer from their texts. The
//! core's planner alone decides the worker of each job.

pub mod answer;
pub(crate) mod apply;
pub mod input;
pub mod source;
mod table;
mod view;

#[cfg(test)]
mod tests;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueHint};
use swarm_spec::convert::Home;
use swarm_spec::manifest::Explained;
use swarm_spec::spec::WORKERS_MAX;
use swarm_terminal::output::{NO, Output, WRONG, complain, print, print_json};
use swarm_view::printable::{Form, printable};

use crate::input::STANDARD_INPUT;
use crate::kubectl::Cluster;
use crate::live::plan::{self as live_plan, LiveArgs};
use crate::live::{Failure, Scope, finish_failed};
use answer::{Answer, Before, Question, Reach, Unplanned};
use input::{InputArgs, Unread};
use source::Source;

/// Maximum size of all files together.
const BYTES_MAX: u64 = 64 << 20;

/// End of a note about a document that the plan ignores.
const PASSED_OVER: &str = " is passed over";
/// Maximum number of such notes.
const PASSED_OVER_MAX: usize = 5;

/// Arguments of `kubectl swarm plan`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without a Swarm in the manifests a note says so, and the exit code is 0.

Examples:
  kubectl swarm plan -f streams.yaml                  the first assignment
  kubectl swarm plan -f streams.yaml --workers 4      for another number of workers
  kubectl swarm plan -R -f manifests/                 from all manifests below a directory
  kubectl swarm plan -k overlays/prod                 from a kustomization
  kubectl swarm plan --live cameras --workers 8       the moves if the pool in the cluster had 8 workers
  kubectl swarm plan --live cameras --without ingest-3
  kubectl swarm plan --live cameras -f cameras.yaml   the moves and restarts of an edit
  kubectl get configmap swarm-worker-config -o 'jsonpath={.data.config\\.yml}' |
    kubectl swarm plan -f streams.yaml --from -       the moves that an edit would cause")]
pub(crate) struct ClusterPlanArgs {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    pub(crate) live: LiveArgs,
    /// The namespace: objects of files that name another one are left out. With --live it is the
    /// namespace of the Swarm [default: the one in the context]
    #[arg(long, short, value_name = "NS")]
    namespace: Option<String>,
    /// The view with the current assignment; `-` reads standard input [default: no job is assigned]
    #[arg(long, value_name = "VIEW", value_hint = ValueHint::AnyPath)]
    from: Option<PathBuf>,
    #[command(flatten)]
    options: PlanOptions,
    #[command(flatten)]
    cluster: Cluster,
}

impl ClusterPlanArgs {
    /// Returns the place of the live Swarm.
    pub(crate) fn scope(&self) -> Scope {
        Scope::of(self.namespace.clone(), self.cluster.clone())
    }
}

/// Options of `plan` in both homes.
#[derive(Debug, Args)]
pub struct PlanOptions {
    /// The name of the Swarm, if there are several
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// The number of workers [default: replicas of the Swarm, or else of its workload in FILE]
    #[arg(long, visible_alias = "replicas", value_name = "N", value_parser = whole_number)]
    pub workers: Option<u32>,
    /// Plan only the moves that maxMovesInFlight allows at once, instead of all
    #[arg(long)]
    pub step: bool,
    /// The output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: Output,
}

impl PlanOptions {
    /// Returns the reach of the plan.
    #[must_use]
    pub fn reach(&self) -> Reach {
        if self.step { Reach::Step } else { Reach::Target }
    }
}

/// Parses a number of workers.
fn whole_number(text: &str) -> Result<u32, String> {
    if text.starts_with('+') {
        return Err("write the number of all workers, not of more workers".to_owned());
    }
    let number = text.parse().map_err(|_| "write a number such as 6")?;
    if WORKERS_MAX < number {
        return Err(format!("at most {WORKERS_MAX} workers can be planned"));
    }
    Ok(number)
}

/// Reads the view of `--from`.
///
/// # Errors
///
/// A sentence about a file that cannot be read.
pub fn view_of(from: Option<&Path>) -> Result<Option<Source>, String> {
    let view = from.map(input::named).transpose()?;
    Ok(view.map(|part| Source::of(part.shown, part.text)))
}

/// Runs `kubectl swarm plan` with these arguments.
pub(crate) fn run(args: &ClusterPlanArgs) -> ExitCode {
    let mut notes = Vec::new();
    let answer = ask(args, &mut notes);
    finish(answer, notes, args.options.output)
}

/// Prints an answer and the notes about its input, or the error.
#[must_use]
pub fn finish(answer: Result<Answer, Refusal>, mut notes: Vec<String>, output: Output) -> ExitCode {
    if let Ok(answer) = &answer {
        notes.extend(answer.notes.iter().cloned());
    }
    if let Ok(_) | Err(Refusal::NoSwarm(_)) = &answer {
        print_notes(&notes);
    }
    let answer = match answer {
        Ok(answer) => answer,
        Err(refusal) => return finish_refused(refusal),
    };
    let printed = match output {
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
        Ok(()) if answer.document.leaves_some() => ExitCode::from(NO),
        Ok(()) => ExitCode::SUCCESS,
    }
}

/// Prints the reason for a missing answer.
fn finish_refused(refusal: Refusal) -> ExitCode {
    match refusal {
        Refusal::NoSwarm(shown) => {
            complain(&format!("note: {shown}: no Swarm in it, so there is nothing to plan"));
            ExitCode::SUCCESS
        }
        Refusal::Wrong(explained) => {
            complain_at_length(&explained);
            ExitCode::from(WRONG)
        }
        Refusal::Impossible(sentence) => {
            complain(&sentence);
            ExitCode::FAILURE
        }
        Refusal::Live(failure) => finish_failed(failure),
    }
}

/// Prints a message, and the lines below it.
fn complain_at_length(Explained { sentence, excerpt }: &Explained) {
    complain(sentence);
    if let Some(excerpt) = excerpt {
        // A failure to write to standard error cannot be reported.
        let _ = writeln!(io::stderr(), "{}", printable(excerpt, Form::Lines));
    }
}

/// Prints notes, with a limit on notes about documents outside the plan: a directory may have many.
fn print_notes(notes: &[String]) {
    let mut passed_over: usize = 0;
    for note in notes {
        passed_over += usize::from(note.ends_with(PASSED_OVER));
        if !note.ends_with(PASSED_OVER) || passed_over <= PASSED_OVER_MAX {
            complain(&format!("note: {note}"));
        }
    }
    if PASSED_OVER_MAX < passed_over {
        let more = passed_over - PASSED_OVER_MAX;
        let plural = if more == 1 { " is" } else { "s are" };
        complain(&format!("note: {more} more document{plural} passed over"));
    }
}

/// Reason for a missing plan.
#[derive(Debug)]
pub enum Refusal {
    /// The input with this name has no Swarm.
    NoSwarm(String),
    /// The input is invalid.
    Wrong(Explained),
    /// A required program is missing.
    Impossible(String),
    /// The live Swarm cannot be read, or it has no such worker.
    Live(Failure),
}

impl From<String> for Refusal {
    fn from(sentence: String) -> Self {
        Self::Wrong(sentence.into())
    }
}

impl Refusal {
    /// Returns the refusal of a file that cannot be planned.
    #[must_use]
    pub fn of(unplanned: Unplanned) -> Self {
        let (Unplanned::Wrong(explained)
        | Unplanned::Empty(explained)
        | Unplanned::NoSwarm(explained)) = unplanned;
        Self::Wrong(explained)
    }
}

impl From<Explained> for Refusal {
    fn from(explained: Explained) -> Self {
        Self::Wrong(explained)
    }
}

impl From<Unread> for Refusal {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Wrong(explained) => Self::Wrong(explained),
            Unread::Impossible(sentence) => Self::Impossible(sentence),
        }
    }
}

/// Refuses to read standard input twice.
///
/// # Errors
///
/// A sentence if two of the inputs are standard input.
pub fn check_standard_input<'a>(inputs: impl Iterator<Item = &'a Path>) -> Result<(), Refusal> {
    if 1 < inputs.filter(|path| *path == Path::new(STANDARD_INPUT)).count() {
        let sentence = "only one of FILE and VIEW can be standard input; name files";
        return Err(sentence.to_owned().into());
    }
    Ok(())
}

/// Reads the files that the arguments name, and computes the answer.
fn ask(args: &ClusterPlanArgs, notes: &mut Vec<String>) -> Result<Answer, Refusal> {
    let ClusterPlanArgs { input, live, namespace, from, options, cluster } = args;
    if let Some(name) = live.swarm() {
        return ask_live(args, name, notes);
    }
    let files = input.files.iter().map(PathBuf::as_path);
    check_standard_input(files.chain(from.as_deref()))?;
    let (manifest, said) = input.read(cluster)?;
    notes.extend(said);
    let view = view_of(from.as_deref())?;
    let question = Question {
        home: Home::Cluster,
        manifest: &manifest,
        name: options.name.as_deref(),
        namespace: namespace.as_deref(),
        workers: options.workers,
        reach: options.reach(),
    };
    let before = view.as_ref().map_or(Before::Nothing, Before::View);
    let answer = answer::answer(&question, before);
    answer.map_err(|unplanned| match unplanned {
        Unplanned::Wrong(explained) => Refusal::Wrong(explained),
        // An empty pipe has a cause: the previous program failed.
        Unplanned::Empty(explained) if input.has_stdin() => Refusal::Wrong(explained),
        Unplanned::Empty(_) | Unplanned::NoSwarm(_) => Refusal::NoSwarm(manifest.shown.clone()),
    })
}

/// Reads the Swarm of the cluster, and the files if any are named, and computes the answer.
fn ask_live(
    args: &ClusterPlanArgs,
    name: &str,
    notes: &mut Vec<String>,
) -> Result<Answer, Refusal> {
    let ClusterPlanArgs { input, live, options, .. } = args;
    let found = live_plan::read(live, &args.scope(), name).map_err(Refusal::Live)?;
    let workers_for = |own| options.workers.unwrap_or_else(|| found.state.remaining(own));
    let workers = workers_for(found.document.workers);
    let question = found.question(workers, options.reach());
    let live_spec = answer::read(&question).map_err(Refusal::of)?;
    let mut state = found.state.clone();
    let edited = if input.is_empty() {
        live_spec
    } else {
        state.running = Some(live_spec.starts());
        let (manifest, said) = input.read(&args.cluster)?;
        notes.extend(said);
        let question = Question {
            manifest: &manifest,
            name: options.name.as_deref().or(Some(name)),
            ..question
        };
        let mut edited = answer::read(&question).map_err(Refusal::of)?;
        edited.workers = workers_for(edited.own_workers.unwrap_or(found.document.workers));
        edited
    };
    let mut answer = edited.plan(Before::Live(&state)).map_err(Refusal::of)?;
    let document = found.document;
    let revision = document.revision;
    notes.push(format!(
        "compared with Swarm `{}/{name}` of the cluster, revision {revision}, resourceVersion {}",
        document.namespace, document.resource_version
    ));
    if !input.is_empty() {
        let version = &document.resource_version;
        notes.push(format!(
            "`kubectl swarm apply` with the same files and --if-revision {version} applies this plan, \
             unless the Swarm changes"
        ));
    }
    answer.document.live = Some(document);
    Ok(answer)
}
