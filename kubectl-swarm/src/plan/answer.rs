//! Computes the answer of `plan` from texts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use swarm_core::handover::LeaseTerms;
use swarm_core::{Assignment, Desired, JobName, Jobs, Pool, Replication, Request, Rules, Slot};
use swarm_spec::convert::Home;
use swarm_spec::manifest::{Explained, Manifest, ManifestError};
use swarm_view::plan::{Enough, Plan};
use swarm_view::starts::{Runners, Starts};
use swarm_view::words::counted;

use super::source::Source;
use super::view;

/// The question that `plan` answers.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The home whose rules apply to the file.
    pub home: Home,
    /// The file with the Swarm.
    pub manifest: &'a Source,
    /// The name of the Swarm, if the file has several.
    pub name: Option<&'a str>,
    /// The namespace to plan, instead of all.
    pub namespace: Option<&'a str>,
    /// The number of workers, instead of the file's.
    pub workers: Option<u32>,
    /// Extent of the plan.
    pub reach: Reach,
}

/// The assignment that a plan begins with.
#[derive(Clone, Debug)]
pub enum Before<'a> {
    /// No job is assigned.
    Nothing,
    /// The text of a view.
    View(&'a Source),
    /// A pool that runs on this machine: its assignment, its jobs that are done, and the settings that
    /// start its jobs, if they are known.
    Pool(Assignment, &'a BTreeSet<JobName>, Option<&'a Starts>),
    /// The assignment and the workers of a pool on a cluster.
    Live(&'a Live),
}

/// The state of a pool on a cluster.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// The assignment before the plan, with jobs of workers that are planned to go.
    pub held: Assignment,
    /// The names of all workers.
    pub names: BTreeMap<Slot, String>,
    /// The slots without a worker that get one before higher slots do.
    pub vacant: Vec<Slot>,
    /// The slots beyond the number of workers that the Swarm should have.
    pub leaving: Vec<Slot>,
    /// The slots of workers that are planned to go.
    pub without: Vec<Slot>,
    /// The jobs that are done.
    pub done: BTreeSet<JobName>,
    /// The settings that start the jobs that run, if an edit is planned.
    pub running: Option<Starts>,
}

/// Extent of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All moves, up to the final assignment.
    Target,
    /// One step: the moves that the budget allows at once.
    Step,
}

/// The answer, and the data that printing it needs.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The document.
    pub document: Plan,
    /// The Swarm's name.
    pub name: String,
    /// Prefix of the names of the workers, without the slot.
    pub worker_name: String,
    /// The names of live workers, which may have any name.
    pub names: BTreeMap<Slot, String>,
    /// The slots of the planned workers.
    pub slots: Vec<Slot>,
    /// The assignment before the plan.
    pub held: Option<Assignment>,
    /// The jobs and their settings.
    pub jobs: Jobs,
    /// Sentences about the input.
    pub notes: Vec<String>,
}

/// Reason for a missing answer. The error names the invalid text, its place, and the correction.
#[derive(Clone, Debug)]
pub enum Unplanned {
    /// The text has no object.
    Empty(Explained),
    /// The text has objects but no Swarm.
    NoSwarm(Explained),
    /// The text is invalid.
    Wrong(Explained),
}

impl From<String> for Unplanned {
    fn from(sentence: String) -> Self {
        Self::Wrong(sentence.into())
    }
}

impl fmt::Display for Unplanned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Empty(explained) | Self::NoSwarm(explained) | Self::Wrong(explained)) = self;
        explained.fmt(f)
    }
}

/// A manifest that can be planned.
#[derive(Clone, Debug)]
pub struct Plannable {
    /// The Swarm's name.
    pub name: String,
    /// The number of workers.
    pub workers: u32,
    /// The number of workers that the Swarm itself sets, by `replicas` or `autoscale`.
    pub own_workers: Option<u32>,
    /// Prefix of the names of the workers.
    pub worker_name: String,
    /// The times of leases and ends.
    pub lease: LeaseTerms,
    first_slot: u32,
    desired: Desired,
    runners: Runners,
    reach: Reach,
    notes: Vec<String>,
}

/// Answers the question about a pool with the assignment `before`.
///
/// # Errors
///
/// [`Unplanned`]
pub fn answer(question: &Question<'_>, before: Before<'_>) -> Result<Answer, Unplanned> {
    read(question)?.plan(before)
}

/// Reads the manifest of the question.
///
/// # Errors
///
/// [`Unplanned`]
pub fn read(question: &Question<'_>) -> Result<Plannable, Unplanned> {
    let Question { home, manifest: file, name, namespace, workers, reach } = *question;
    let shown = match namespace {
        Some(namespace) => format!("{}, namespace `{namespace}`", file.shown),
        None => file.shown.clone(),
    };
    let manifest = file.manifest(name, namespace, home);
    let manifest = manifest.map_err(|error| unplanned(question, &error, &shown))?;
    let in_file = |reason: &str| format!("{shown}: {reason}");
    let Manifest { name, mut desired, replicas, first_slot, worker_name, lease, .. } = manifest;
    let Manifest { runner, runners, fields, mut notes, .. } = manifest;
    let sets_workers = desired.autoscale.is_some() || fields.contains("replicas");
    match desired.replication {
        Replication::One => {}
        Replication::All => {
            let sentence = format!(
                "Swarm `{}`: spec.replication is `All`, so every worker runs every job and \
                 there is nothing to plan",
                name.escape_default()
            );
            return Err(in_file(&sentence).into());
        }
    }
    if desired.paused {
        notes.push("spec.rebalance.paused is set: nothing moves until it is removed".into());
    }
    if desired.suspend {
        notes.push("spec.suspend is set: no job runs until it is removed".into());
        desired.jobs.values_mut().for_each(|job| job.suspend = true);
    }
    let workers = workers
        .or(replicas)
        .ok_or_else(|| in_file("it does not specify the number of workers; use --workers"))?;
    Ok(Plannable {
        name,
        workers,
        own_workers: replicas.filter(|_| sets_workers),
        worker_name,
        lease,
        first_slot,
        desired,
        runners: Runners::of(&runner, &runners),
        reach,
        notes,
    })
}

impl Plannable {
    /// Plans for a pool with the assignment `before`.
    ///
    /// # Errors
    ///
    /// [`Unplanned::Wrong`], if `before` is an invalid view.
    pub fn plan(mut self, before: Before<'_>) -> Result<Answer, Unplanned> {
        let running = match before {
            Before::Live(Live { running, .. }) => running.as_ref(),
            Before::Pool(_, _, running) => running,
            Before::Nothing | Before::View(_) => None,
        };
        let done = match before {
            Before::Live(Live { done, .. }) | Before::Pool(_, done, _) => self.leave_out(done),
            Before::Nothing | Before::View(_) => 0,
        };
        if 0 < done {
            let are = if done == 1 { "is" } else { "are" };
            let them = if done == 1 { "it" } else { "them" };
            let jobs = counted(done, "job");
            self.notes.push(format!("{jobs} with `runOnce` {are} done, so no worker gets {them}"));
        }
        let restarts = running.map(|it| it.restarts(&self.desired.jobs, &self.runners));
        let Self { name, workers, worker_name, first_slot, desired, reach, notes, .. } = self;
        let (slots, names) = if let Before::Live(live) = before {
            (live.slots(workers), live.names.clone())
        } else {
            let slots = (0..workers).map(|n| Slot(n.saturating_add(first_slot)));
            (slots.collect(), BTreeMap::new())
        };
        let pool = pool(&slots, &worker_name, &desired);
        let held = match before {
            Before::Live(live) => Some(live.held.clone()),
            Before::Nothing => None,
            Before::View(Source { text, shown, .. }) => {
                Some(view::held(text, &pool).map_err(|reason| format!("{shown}: {reason}"))?)
            }
            Before::Pool(assignment, ..) => Some(assignment),
        };
        let nobody = Assignment::default();
        let rules = match reach {
            Reach::Step => desired.rules,
            Reach::Target => Rules { moves_max: None, ..desired.rules },
        };
        let held_now = held.as_ref().unwrap_or(&nobody);
        let request = Request { jobs: &desired.jobs, held: held_now, pool: &pool, rules };
        let plan = request.plan();
        let mut document = Plan::new(&desired.jobs, &pool, &plan);
        if reach == Reach::Step {
            document.deferred = Some(plan.deferred.iter().map(ToString::to_string).collect());
        }
        if document.leaves_some() {
            document.workers_enough = Some(enough(&request, first_slot, desired.max_jobs));
        }
        let held_slot = |job: &String| held.as_ref()?.holder(&job.parse().ok()?);
        let stays = |job: &String| {
            let slot = document.assignment.get(job).map(|slot| Slot(*slot));
            slot.is_some() && held_slot(job) == slot
        };
        document.restarts = restarts.map(|jobs| {
            let names = jobs.iter().map(ToString::to_string);
            names.filter(stays).collect()
        });
        let jobs = desired.jobs;
        Ok(Answer { document, name, worker_name, names, slots, held, jobs, notes })
    }

    /// Leaves out jobs that are done, and that the manifest wants to run once only. Returns their number.
    fn leave_out(&mut self, done: &BTreeSet<JobName>) -> usize {
        let jobs = &mut self.desired.jobs;
        let stays = |name: &&JobName| jobs.get(*name).is_some_and(|job| job.run_once);
        let done: Vec<_> = done.iter().filter(stays).collect();
        for name in &done {
            jobs.remove(*name);
        }
        done.len()
    }

    /// Returns the settings that start the jobs of this manifest.
    #[must_use]
    pub fn starts(self) -> Starts {
        Starts { jobs: self.desired.jobs, runners: self.runners }
    }
}

impl Live {
    /// Returns the slots of `workers` workers without the workers that are planned to go.
    fn slots(&self, workers: u32) -> Vec<Slot> {
        let stays = |slot: &Slot| !self.without.contains(slot);
        self.in_order().filter(stays).take(workers as usize).collect()
    }

    /// Returns the number of workers that remain of `workers` once the planned ones are gone.
    #[must_use]
    pub fn remaining(&self, workers: u32) -> u32 {
        let goes = |slot: &Slot| self.without.contains(slot);
        let gone = self.in_order().take(workers as usize).filter(goes).count();
        workers.saturating_sub(u32::try_from(gone).unwrap_or(u32::MAX))
    }

    /// Returns the slots in the order in which a pool has them. The slots that stay come first, with or
    /// without a worker, then the slots that leave, and then more after the highest one.
    fn in_order(&self) -> impl Iterator<Item = Slot> {
        let is_leaving = |slot: &Slot| self.leaving.contains(slot);
        let all: BTreeSet<_> = self.names.keys().chain(&self.vacant).copied().collect();
        let (leaving, staying): (Vec<_>, Vec<_>) = all.into_iter().partition(is_leaving);
        let highest = self.names.keys().last().map_or(0, |slot| slot.0.saturating_add(1));
        staying.into_iter().chain(leaving).chain((highest..).map(Slot))
    }
}

/// Classifies an error of the manifest.
fn unplanned(question: &Question<'_>, error: &ManifestError, shown: &str) -> Unplanned {
    let Question { home, manifest: file, name, namespace, .. } = *question;
    let explained = file.explained(error, shown);
    match error {
        ManifestError::Empty if name.is_none() => Unplanned::Empty(explained),
        ManifestError::NoSwarm if name.is_none() => {
            let anywhere = || file.manifest(None, None, home);
            if namespace.is_none() || matches!(anywhere(), Err(ManifestError::NoSwarm)) {
                return Unplanned::NoSwarm(explained);
            }
            let sentence =
                format!("{shown}: no Swarm in it, only in other namespaces; name theirs, or none");
            sentence.into()
        }
        _ => Unplanned::Wrong(explained),
    }
}

/// Makes a pool of ready workers with these slots.
fn pool(slots: &[Slot], worker_name: &str, desired: &Desired) -> Pool {
    let members = Pool::ready(u32::try_from(slots.len()).unwrap_or(u32::MAX)).0.into_values();
    Pool(
        slots
            .iter()
            .zip(members)
            .map(|(&slot, mut member)| {
                member.name = format!("{}-{slot}", worker_name.escape_default());
                (member.max_jobs, member.capacity) =
                    (desired.max_jobs_of(slot), desired.capacity_of(slot));
                (slot, member)
            })
            .collect(),
    )
}

/// Returns the minimum number of workers that run all jobs.
fn enough(request: &Request<'_>, first_slot: u32, max_jobs: Option<u32>) -> Enough {
    // The core counts slots from 0. A pin below the first slot can never be satisfied.
    let from_zero = |slot: Slot| slot.0.checked_sub(first_slot).map_or(Slot::NOBODY, Slot);
    let mut jobs = request.jobs.clone();
    for pin in jobs.values_mut().filter_map(|job| job.pin.as_mut()).filter(|_| 0 < first_slot) {
        *pin = from_zero(*pin);
    }
    let held = request.held.iter().map(|(job, slot)| (job.clone(), from_zero(slot))).collect();
    let members = request.pool.0.iter();
    let mut pool = Pool(members.map(|(at, member)| (from_zero(*at), member.clone())).collect());
    if pool.0.is_empty() {
        // `max_jobs` belongs to a worker, so the pool needs one.
        pool = Pool::ready(1);
        pool.0.values_mut().for_each(|member| member.max_jobs = max_jobs);
    }
    let request = Request { jobs: &jobs, held: &held, pool: &pool, rules: request.rules };
    request.workers_enough().map_or(Enough::Never, Enough::Workers)
}
