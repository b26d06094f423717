//! Says in a sentence why a job has no worker, with evidence that a person can check. The evidence
//! is the slots, workers and maxima of the pool, and the jobs that come first.

mod facts;
mod overview;
mod words;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use crate::turn::{is_beyond, largest_slot, pool, unreleased};
use crate::{
    Decision, Desired, Job, JobName, Jobs, Observed, Plan, Pool, Slot, Unassigned, Waiting,
    WorkerSeen,
};
use facts::{Holder, WorkerFacts, placed, state};
use overview::Overview;
use words::percent;

/// The reason of every job of a Swarm with `suspend`, in a sentence.
pub const SWARM_SUSPENDED: &str = "the whole Swarm has `suspend: true`";

/// Explains why jobs have no worker.
///
/// It keeps the workers and their assigned jobs, so that each sentence costs only O(log workers).
///
/// ```
/// use swarm_core::verdict::Explainer;
/// use swarm_core::{Assignment, Job, Pool, Slot, Unassigned, jobs, plan};
///
/// let mut jobs = jobs(["a"])?;
/// let pinned = Job { pin: Some(Slot(7)), ..Job::default() };
/// jobs.insert("b".parse()?, pinned.clone());
/// let plan = plan(&jobs, &Assignment::default(), &Pool::ready(3));
/// let explainer = Explainer::of_plan(&jobs, &plan, &Pool::ready(3));
/// let sentence = explainer.sentence(&pinned, Unassigned::Pin);
/// assert_eq!(sentence, "pinned to slot 7; the pool has slots 0 to 2");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explainer {
    workers: BTreeMap<Slot, WorkerFacts>,
    overview: Overview,
    /// The priorities of the assigned jobs, ascending. Each has the number of assigned jobs of
    /// this or a higher priority.
    priorities: Vec<(i32, usize)>,
    /// The first of the assigned jobs with the highest priority.
    first: Option<(JobName, i32)>,
    /// The numbers of ready and of wanted workers, while the pool is new and incomplete.
    incomplete: Option<(usize, usize)>,
    /// Names a worker that keeps the room of a job for longer than it may; empty if there is none.
    unreleased: String,
    /// The largest slot that `autoscale` can add, as the end of a sentence; empty if it adds none.
    growth: String,
    /// Whether the whole Swarm is suspended.
    is_suspended: bool,
}

impl Explainer {
    /// Makes an explainer for `plan`, which plans `jobs` for `pool`. O(jobs · log jobs).
    #[must_use]
    pub fn of_plan(jobs: &Jobs, plan: &Plan, pool: &Pool) -> Self {
        let workers = pool.0.iter().map(|(slot, member)| (*slot, WorkerFacts::of(member)));
        Self::of(workers.collect(), jobs, plan)
    }

    /// Makes an explainer for the plan of a turn. O(jobs · log jobs).
    #[must_use]
    pub fn of_turn(decision: &Decision, desired: &Desired, observed: &Observed) -> Self {
        let pool = pool(false, desired, observed);
        let worker = |(slot, seen): (&Slot, &WorkerSeen)| {
            let mut worker = pool.0.get(slot).map(WorkerFacts::of).unwrap_or_default();
            worker.name.clone_from(&seen.name);
            worker.absence = state(seen, desired);
            (*slot, worker)
        };
        let there = observed.workers.iter();
        let there = there.filter(|(slot, _)| !is_beyond(**slot, desired, observed));
        let explainer = Self::of(there.map(worker).collect(), &desired.jobs, &decision.plan);
        let incomplete = match decision.waiting {
            Some(Waiting::PoolIncomplete { ready, desired }) => Some((ready, desired)),
            _ => None,
        };
        let unreleased = explainer.unreleased(decision, desired, observed);
        let largest = largest_slot(desired, observed).filter(|_| desired.autoscale.is_some());
        let last = explainer.workers.last_key_value().map(|(slot, _)| *slot);
        let growth = largest.filter(|largest| last < Some(*largest));
        let growth = growth.map_or_else(String::new, |largest| {
            format!("; `autoscale.max` allows slots up to {largest}")
        });
        Self { incomplete, unreleased, growth, is_suspended: desired.suspend, ..explainer }
    }

    fn of(mut workers: BTreeMap<Slot, WorkerFacts>, jobs: &Jobs, plan: &Plan) -> Self {
        let (priorities, first) = placed(jobs, plan, &mut workers);
        let overview = Overview::of(&workers);
        Self { workers, overview, priorities, first, ..Self::default() }
    }

    /// Names the first worker that has not released a job in time. O(jobs · log workers).
    fn unreleased(&self, decision: &Decision, desired: &Desired, observed: &Observed) -> String {
        let late = unreleased::overdue(&decision.ledger, desired, observed);
        // The age of a job that this turn takes from its worker is the one of its grant.
        let moves = decision.plan.moves.iter().filter(|made| made.from.is_some());
        let new: BTreeSet<_> = moves.map(|made| &made.job).collect();
        let first = late.iter().find_map(|(slot, jobs)| {
            Some((
                self.workers.get(slot)?.shown(*slot),
                jobs.iter().find(|job| !new.contains(**job))?,
            ))
        });
        first.map_or_else(String::new, |(worker, job)| {
            format!("; {worker} has not released `{job}` in time")
        })
    }

    /// Says why this job has no worker: the rest of a line that begins with the job's name.
    /// O(log workers).
    #[must_use]
    pub fn sentence(&self, job: &Job, why: Unassigned) -> String {
        match why {
            Unassigned::NoWorkers => self.no_workers(),
            Unassigned::PoolIncomplete => self.pool_incomplete(),
            Unassigned::Pin => self.pin(job),
            Unassigned::Capacity => self.capacity(job),
            Unassigned::Paused => {
                "the Swarm is paused, and the job had no worker before; nothing moves until \
                 `rebalance.paused` is removed"
                    .to_owned()
            }
            Unassigned::Suspended if self.is_suspended => SWARM_SUSPENDED.to_owned(),
            Unassigned::Suspended => "it has `suspend: true`".to_owned(),
            Unassigned::PlainWorkers => self.plain_workers(job),
        }
    }

    fn no_workers(&self) -> String {
        let absent = &self.overview.absent;
        match self.workers.len() {
            0 => "the pool has no worker".to_owned(),
            1 => format!("the only worker takes no jobs{absent}"),
            many => format!("none of {many} workers takes jobs{absent}"),
        }
    }

    fn pool_incomplete(&self) -> String {
        let (ready, wanted) = self.incomplete.unwrap_or_default();
        let ready = super::workers_ready(ready, wanted);
        format!("the pool is new, and {ready}; it waits for all of them")
    }

    fn pin(&self, job: &Job) -> String {
        let slot = job.pin.unwrap_or(Slot::NOBODY);
        let Some(worker) = self.workers.get(&slot) else {
            let Self { overview, growth, .. } = self;
            return format!("pinned to slot {slot}; the pool has {}{growth}", overview.slots);
        };
        let absence = worker.absence.unwrap_or("not ready");
        format!("pinned to slot {slot}; its worker {} is {absence}", worker.shown(slot))
    }

    fn plain_workers(&self, job: &Job) -> String {
        let pinned = job.pin.and_then(|slot| Some(self.workers.get(&slot)?.shown(slot)));
        let plain = pinned.as_ref().unwrap_or(&self.overview.plain);
        format!(
            "only plain workers could take it ({plain}); they never confirm a stop, so \
             `handover.policy: Exclusive` gives them no jobs"
        )
    }

    fn capacity(&self, job: &Job) -> String {
        let mut sentence = match (job.pin, job.share.map(crate::Share::percent)) {
            (Some(slot), share) => self.no_room_at(slot, share),
            (None, Some(share)) => self.no_free_part(share),
            (None, None) => format!("{}{}", self.overview.full, self.overview.absent),
        };
        sentence.push_str(&self.unreleased);
        let Some((name, priority)) = &self.first else { return sentence };
        let higher = self.higher_than(job.priority);
        // A holder that the sentence names already shows its priority.
        if 0 < higher && !sentence.contains(", priority ") {
            let _ = write!(
                sentence,
                "; {} of a higher priority {} first, such as `{name}` (priority {priority})",
                super::counted(higher, "job"),
                super::number(higher, "comes", "come")
            );
        }
        sentence
    }

    /// Describes the worker in the slot of a pinned job.
    fn no_room_at(&self, slot: Slot, share: Option<u8>) -> String {
        let pinned = match share {
            Some(share) => format!("pinned to slot {slot} with a share of {share}"),
            None => format!("pinned to slot {slot}"),
        };
        let Some(worker) = self.workers.get(&slot) else { return format!("{pinned}; it is full") };
        if share.is_some_and(|share| worker.size < share) {
            return format!("{pinned}; its worker offers {}", percent(worker.size));
        }
        if worker.is_at_maximum() {
            return format!("{pinned}; its worker {}", worker.maximum());
        }
        match (share, worker.largest.as_ref().map(Holder::shown)) {
            (Some(_), Some(holder)) => {
                let free = percent(worker.free());
                format!("{pinned}; {free} of its worker is free: {holder} has the rest")
            }
            (None, Some(holder)) => format!("{pinned}; its worker is fully reserved by {holder}"),
            (_, None) => format!("{pinned}; jobs that come first fill its worker"),
        }
    }

    /// Describes the workers for a job that needs `share` percent of one.
    fn no_free_part(&self, share: u8) -> String {
        let needs = match share {
            100 => "needs a whole worker".to_owned(),
            share => format!("needs {} of one worker", percent(share)),
        };
        let found = self.overview.part(share);
        let Some((slot, many)) = found else {
            let largest = percent(self.overview.largest());
            return format!("{needs}; the largest worker offers {largest}");
        };
        let Some(worker) = self.workers.get(&slot) else { return needs };
        let (at, free) = (worker.shown(slot), worker.free());
        let of = match (free, many) {
            (0, 1) => String::new(),
            (0, _) => "no worker has a free part: ".to_owned(),
            (free, 1) => format!("{} of {at} is free: ", percent(free)),
            (free, _) => format!("at most {} of a worker is free: ", percent(free)),
        };
        match &worker.largest {
            Some(holder) if free < share => format!("{needs}; {of}{} has {at}", holder.shown()),
            _ if worker.is_at_maximum() => format!("{needs}; {at} {}", worker.maximum()),
            _ => format!("{needs}; jobs that come first leave no such part"),
        }
    }

    /// Returns the number of assigned jobs of a higher priority. O(log priorities).
    fn higher_than(&self, priority: i32) -> usize {
        let at = self.priorities.partition_point(|(other, _)| *other <= priority);
        self.priorities.get(at).map_or(0, |(_, count)| *count)
    }
}

/// A job without a worker, with the reason in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithoutWorker {
    /// The job.
    pub job: JobName,
    /// The reason.
    pub why: Unassigned,
    /// The reason as [`Explainer::sentence`] says it.
    pub sentence: String,
}

impl fmt::Display for WithoutWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { job, why: _, sentence } = self;
        write!(f, "`{job}`: {sentence}")
    }
}
