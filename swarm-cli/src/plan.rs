//! `swarm plan`: plans a file for this machine, compared with the running pool.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgGroup, Args, ValueHint};
use kubectl_swarm::plan::answer::{self, Answer, Before, Question};
use kubectl_swarm::plan::source::Source;
use kubectl_swarm::plan::{PlanOptions, Refusal, check_standard_input, finish, input, view_of};
use swarm_local::{Fixed, PoolArgs, RunningPool, other_pool};
use swarm_spec::convert::Home;

/// Arguments of `swarm plan`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("manifest").required(true)))]
#[command(after_help = "\
If a pool with the name of the Swarm runs on this machine, the plan begins with its assignment, and
lists the jobs that their workers restart in place.

Examples:
  swarm plan streams.yaml                  the first assignment, or what an edit moves and restarts
  swarm plan streams.yaml --workers 4      for another number of workers
  swarm plan streams.yaml --from old.yaml  the moves from the assignment in a view")]
pub(crate) struct PlanArgs {
    /// The manifest that contains the Swarm; `-` reads standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::AnyPath, group = "manifest")]
    file: Option<PathBuf>,
    /// Another spelling of FILE, as in `kubectl swarm plan`
    #[arg(
        long,
        short = 'f',
        value_name = "FILE",
        value_hint = ValueHint::AnyPath,
        group = "manifest"
    )]
    filename: Option<PathBuf>,
    /// The directory of the pool to compare with, if `local` was given one [default: the directory of the
    /// pool with the Swarm's name]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::AnyPath)]
    dir: Option<PathBuf>,
    /// The view with the current assignment; `-` reads standard input [default: the assignment of the pool
    /// that runs, if one does]
    #[arg(long, value_name = "VIEW", value_hint = ValueHint::AnyPath, conflicts_with = "dir")]
    from: Option<PathBuf>,
    #[command(flatten)]
    options: PlanOptions,
}

/// Runs `swarm plan` with these arguments.
pub(crate) async fn run(args: &PlanArgs) -> ExitCode {
    let mut notes = Vec::new();
    let answer = ask(args, &mut notes).await;
    finish(answer, notes, args.options.output)
}

/// Reads the file, asks the pool that runs, and computes the answer.
async fn ask(args: &PlanArgs, notes: &mut Vec<String>) -> Result<Answer, Refusal> {
    let PlanArgs { file, filename, dir, from, options } = args;
    // clap requires one of both.
    let file = file.as_ref().or(filename.as_ref()).map_or(Path::new(""), PathBuf::as_path);
    check_standard_input([file].into_iter().chain(from.as_deref()))?;
    let part = input::named(file)?;
    let manifest = Source::of(part.shown, part.text);
    let view = view_of(from.as_deref())?;
    let question = Question {
        home: Home::Machine,
        manifest: &manifest,
        name: options.name.as_deref(),
        namespace: None,
        workers: options.workers,
        reach: options.reach(),
    };
    let plannable = answer::read(&question).map_err(Refusal::of)?;
    if let Some(view) = &view {
        return plannable.plan(Before::View(view)).map_err(Refusal::of);
    }
    let name = dir.is_none().then(|| plannable.name.clone());
    let pool = PoolArgs { pool: name, dir: dir.clone(), ..PoolArgs::default() };
    if let Some(sentence) = dir.as_ref().and_then(|dir| other_pool(dir, &plannable.name)) {
        return Err(sentence.into());
    }
    let running = swarm_local::running(&pool).await;
    let running = running.map_err(|error| Refusal::Impossible(format!("{error:#}")))?;
    let Some(RunningPool { dir, file: followed, revision, workers, held, done, fixed, starts }) =
        running
    else {
        return match &args.dir {
            Some(dir) => Err(format!("no pool runs in {}", dir.display()).into()),
            None => plannable.plan(Before::Nothing).map_err(Refusal::of),
        };
    };
    if let Some(fixed) = fixed {
        let edited = Fixed::of(&plannable.name, &plannable.worker_name, &plannable.lease);
        fixed.check(&edited, &manifest.shown, &manifest.text).map_err(Refusal::Wrong)?;
    }
    notes.push(format!("compared with the pool in {}, revision {revision}", dir.display()));
    let wanted = plannable.workers;
    if options.workers.is_none() && wanted as usize != workers {
        notes.push(format!(
            "the pool has {workers} workers, and the plan is for {wanted}; --workers {workers} plans for the \
             workers of the pool"
        ));
    }
    let answer = plannable.plan(Before::Pool(held, &done, starts.as_ref())).map_err(Refusal::of)?;
    let moves_nothing = answer.document.moves.is_empty()
        && answer.document.restarts.as_ref().is_none_or(Vec::is_empty);
    let is_followed = followed.is_some_and(|followed| is_same(file, Path::new(&followed)));
    if moves_nothing && is_followed {
        notes.push(format!(
            "the pool follows {0}, so what was saved there has taken effect; to see the moves of an edit \
             first, plan a copy of the file",
            file.display()
        ));
    }
    Ok(answer)
}

/// Whether two paths lead to one file.
fn is_same(one: &Path, other: &Path) -> bool {
    let (one, other) = (one.canonicalize(), other.canonicalize());
    one.is_ok_and(|one| other.is_ok_and(|other| one == other))
}
