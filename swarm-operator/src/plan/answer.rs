//! The answer to `plan`: a function of texts.

use std::error::Error;

use swarm_adapters_k8s::manifest::{self, Manifest};
use swarm_core::{Assignment, Jobs, Pool, Replication, Request, Rules, Slot};

use super::document::{Document, Enough};
use super::view;

/// A text, and the name under which errors speak of it.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) shown: String,
    pub(super) text: String,
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question<'a> {
    /// The file with the Swarm.
    pub(super) manifest: &'a Source,
    /// Which Swarm of it.
    pub(super) name: Option<&'a str>,
    /// How many workers, if not as many as the file says.
    pub(super) workers: Option<u32>,
    /// Who holds what now, if anybody does.
    pub(super) view: Option<&'a Source>,
    /// How far to look.
    pub(super) reach: Reach,
}

/// How far a plan looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// To where everything ends up.
    Target,
    /// To what the budget of moves allows at once.
    Step,
}

/// The answer, and what to say beside it.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) document: Document,
    /// The Swarm's name.
    pub(super) name: String,
    /// What the workers are called, before their slot.
    pub(super) worker_name: String,
    /// The lowest slot.
    pub(super) first_slot: u32,
    /// What every job was held by.
    pub(super) held: Option<Assignment>,
    /// The jobs and what they ask for.
    pub(super) jobs: Jobs,
    /// Sentences about the input.
    pub(super) notes: Vec<String>,
}

/// Plans what the question asks for.
///
/// # Errors
///
/// A sentence that names the text at fault, the place in it, and what to write instead.
pub(super) fn answer(question: &Question<'_>) -> Result<Answer, String> {
    let Question { manifest: file, name, workers, view, reach } = *question;
    let in_file = |reason: &str| format!("{}: {reason}", file.shown);
    let manifest =
        manifest::parse(&file.text, name).map_err(|error| in_file(&with_causes(&error)))?;
    let Manifest { name, desired, replicas, first_slot, worker_name, pacing, mut notes, .. } =
        manifest;
    match desired.replication {
        Replication::One => {}
        Replication::All => {
            let sentence = format!(
                "Swarm `{}`: spec.replication is `All`, so every worker runs every job and \
                 there is nothing to plan",
                name.escape_default()
            );
            return Err(in_file(&sentence));
        }
    }
    if pacing.paused {
        notes.push("spec.rebalance.paused is set: nothing moves until it is taken back".into());
    }
    let workers = workers.or(replicas).ok_or_else(|| {
        in_file("it does not say how many workers there are; say it with --workers")
    })?;
    let pool = pool(first_slot, workers, desired.max_jobs);
    let held = view.map(|source| {
        view::held(&source.text, &pool).map_err(|reason| format!("{}: {reason}", source.shown))
    });
    let held = held.transpose()?;
    let nobody = Assignment::default();
    let rules = match reach {
        Reach::Step => desired.rules,
        Reach::Target => Rules { moves_max: None, ..desired.rules },
    };
    let request =
        Request { jobs: &desired.jobs, held: held.as_ref().unwrap_or(&nobody), pool: &pool, rules };
    let plan = request.plan();
    let mut document = Document::new(workers, &plan);
    if reach == Reach::Step {
        document.deferred = Some(plan.deferred.iter().map(ToString::to_string).collect());
    }
    if !plan.unassigned.is_empty() {
        document.workers_enough = Some(enough(&desired.jobs, first_slot, desired.max_jobs));
    }
    let jobs = desired.jobs;
    Ok(Answer { document, name, worker_name, first_slot, held, jobs, notes })
}

/// The workers in the slots from `first_slot` on.
fn pool(first_slot: u32, workers: u32, max_jobs: Option<u32>) -> Pool {
    let members = Pool::ready(workers).0.into_iter();
    Pool(
        members
            .map(|(slot, mut member)| {
                member.max_jobs = max_jobs;
                (Slot(slot.0.saturating_add(first_slot)), member)
            })
            .collect(),
    )
}

/// How many workers leave no job out.
fn enough(jobs: &Jobs, first_slot: u32, max_jobs: Option<u32>) -> Enough {
    // The core counts slots from 0. A pin below the first slot can never be had.
    let mut jobs = jobs.clone();
    for pin in jobs.values_mut().filter_map(|job| job.pin.as_mut()).filter(|_| 0 < first_slot) {
        *pin = pin.0.checked_sub(first_slot).map_or(Slot::NOBODY, Slot);
    }
    // A pool without workers would not tell how many jobs each may have.
    let pool = pool(0, 1, max_jobs);
    let (held, rules) = (Assignment::default(), Rules::default());
    let request = Request { jobs: &jobs, held: &held, pool: &pool, rules };
    request.workers_enough().map_or(Enough::Never, Enough::Workers)
}

/// An error and its causes in one line.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
