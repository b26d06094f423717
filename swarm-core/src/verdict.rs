//! Judges whether a pool runs what it is asked to run, and names the first reason if it does not.
//!
//! Both homes show these reasons with the same words: in conditions and Events on a cluster, on the screen, in
//! answers and in the API on one machine. An adapter adds the reasons that only its home can have, and asks
//! [`Summary`] in this order:
//!
//! 1. [`Summary::start`]: nothing is granted yet, or everything stays as it is.
//! 2. [`Summary::unsettled`]: jobs have no worker, workers are not ready, or the pool changes its size.
//! 3. [`Summary::settled`]: jobs wait for a moment, or all is done. [`Summary::settled_on_all`] also names workers
//!    that are missing, where their number is known.

mod displaced;
mod explainer;
mod failed_over;
mod words;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::handover::Cell;
use crate::turn::largest_slot;
use crate::{
    Decision, Desired, FailingState, JobCounts, JobName, Observed, Presence, Progress, Slot,
    Unassigned, Waiting, WorkerSeen,
};

pub use displaced::displaced;
pub use explainer::{Explainer, SWARM_SUSPENDED, WithoutWorker};
pub use failed_over::failed_over;
pub use words::{counted, number, shortened};

/// Reasons that a pool can have in both homes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Every job has a worker that is ready, and the view is published.
    Settled,
    /// The pool is new and not complete; nothing is assigned yet.
    PoolIncomplete,
    /// No worker can take jobs.
    NoWorkers,
    /// Some jobs are pinned to a worker that does not take jobs, or found all workers full.
    JobsUnassigned,
    /// Every job has a worker that is ready, and the pool has fewer ready workers than it should.
    WorkersMissing,
    /// Workers that hold jobs are not ready or away, or workers end again and again.
    WorkersNotReady,
    /// The balance is not reached; `maxMovesInFlight` bounds how many jobs move at a time.
    Rebalancing,
    /// The ledger was lost or rolled back; workers that may still run what it granted stop first.
    Recovering,
    /// The pool gets more or fewer workers.
    Scaling,
    /// Workers do not have their newest jobs yet.
    Refreshing,
    /// Jobs wait for a release by the previous worker, or for a time.
    JobsWaiting,
    /// Every job that runs ends by itself.
    AllJobsFailing,
    /// All jobs are suspended, and no worker runs one.
    Suspended,
    /// The Swarm asks for everything to stay as it is.
    Paused {
        /// Whether every job has a worker that is ready, and no worker has another job.
        is_ready: bool,
    },
}

impl Reason {
    /// Returns the word in conditions, Events and answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Settled => "Settled",
            Self::PoolIncomplete => "PoolIncomplete",
            Self::NoWorkers => "NoWorkers",
            Self::JobsUnassigned => "JobsUnassigned",
            Self::WorkersMissing => "WorkersMissing",
            Self::WorkersNotReady => "WorkersNotReady",
            Self::Rebalancing => "Rebalancing",
            Self::Recovering => "Recovering",
            Self::Scaling => "Scaling",
            Self::Refreshing => "Refreshing",
            Self::JobsWaiting => "JobsWaiting",
            Self::AllJobsFailing => "AllJobsFailing",
            Self::Suspended => "Suspended",
            Self::Paused { .. } => "Paused",
        }
    }

    /// Returns whether the pool runs what it is asked to run.
    #[must_use]
    pub fn is_ready(self) -> bool {
        matches!(self, Self::Settled | Self::Suspended | Self::Paused { is_ready: true })
    }
}

/// A reason with its sentence for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The reason.
    pub reason: Reason,
    /// The sentence.
    pub message: String,
}

/// A turn that was carried out, as it is judged.
#[derive(Clone, Copy, Debug)]
pub struct Summary<'a> {
    decision: &'a Decision,
    desired: &'a Desired,
    observed: &'a Observed,
    progress: &'a Progress,
    wanted: Wanted,
}

/// Numbers of jobs to run, without jobs that are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// All of them.
    pub jobs: usize,
    /// Jobs that have no worker, and should have one.
    pub without: usize,
    /// Jobs that are suspended.
    pub suspended: usize,
}

impl<'a> Summary<'a> {
    /// Summarizes a turn that had these wishes and observations, from its decision and the progress of the
    /// pool after it. O(jobs) if some jobs are done, else O(1).
    #[must_use]
    pub fn of(
        decision: &'a Decision,
        desired: &'a Desired,
        observed: &'a Observed,
        progress: &'a Progress,
    ) -> Self {
        let wanted = Wanted::of(decision, desired, progress);
        Self { decision, desired, observed, progress, wanted }
    }

    /// Returns the slots that should have a ready worker and have none, with the time since when.
    pub fn missing(&self) -> impl Iterator<Item = (Slot, &'a WorkerSeen, Duration)> + use<'a> {
        let Self { observed, progress, .. } = *self;
        let is_short = progress.workers_ready < progress.workers_wanted;
        let workers = observed.workers.iter().filter(move |_| is_short);
        workers.filter_map(|(slot, seen)| match seen.presence {
            Presence::NotReady(age) | Presence::Away(age) | Presence::Ending { age, .. } => {
                Some((*slot, seen, age))
            }
            // It may be frozen: its session is over, and it stays.
            Presence::Draining => Some((*slot, seen, Duration::ZERO)),
            Presence::Ready | Presence::Leaving(_) => None,
        })
    }
}

impl Summary<'_> {
    /// Returns the numbers of jobs to run.
    #[must_use]
    pub fn wanted(&self) -> Wanted {
        self.wanted
    }

    /// Judges a turn that granted nothing: the pool is new, paused, or waits for earlier sessions.
    #[must_use]
    pub fn start(&self) -> Option<Verdict> {
        let Self { decision, progress, .. } = *self;
        let jobs = self.wanted.jobs;
        match decision.waiting {
            Some(Waiting::PoolIncomplete { ready, desired }) => {
                let message = format!(
                    "{}; {} {} until all are, at most {:?}",
                    workers_ready(ready, desired),
                    counted(jobs, "job"),
                    number(jobs, "waits", "wait"),
                    self.desired.timing.initial_wait
                );
                return Some(Verdict { reason: Reason::PoolIncomplete, message });
            }
            Some(Waiting::Paused) => return Some(self.paused()),
            Some(Waiting::LedgerReset) => return Some(recovering(jobs)),
            Some(Waiting::Renewals { sessions }) => return Some(starting(sessions)),
            Some(Waiting::Gathering) | None => {}
        }
        let count = progress.jobs.recovering;
        (0 < count).then(|| recovering(count))
    }

    /// Judges a turn after which jobs have no worker, workers are not ready, or the pool changes its size.
    #[must_use]
    pub fn unsettled(&self) -> Option<Verdict> {
        let Self { desired, progress, .. } = *self;
        let wanted = self.wanted;
        if 0 < wanted.without {
            return Some(self.without_worker(wanted));
        }
        let names: Vec<_> = progress.not_ready.iter().map(String::as_str).collect();
        if !names.is_empty() {
            let who = number(names.len(), "this worker holds jobs and is", WORKERS_THAT_HOLD);
            let message = format!("{who} not ready: {}", shortened(&names));
            return Some(Verdict { reason: Reason::WorkersNotReady, message });
        }
        if let Some(message) = unsteady(self.observed) {
            return Some(Verdict { reason: Reason::WorkersNotReady, message });
        }
        if 0 < progress.deferred {
            let (left, most) = (progress.deferred, desired.rules.moves_max.unwrap_or_default());
            let (left, are) = (counted(left, "job"), number(left, "is", "are"));
            let message = format!("{left} {are} still to move, at most {most} at a time");
            return Some(Verdict { reason: Reason::Rebalancing, message });
        }
        let (now, goal) = (progress.workers_now, progress.workers_wanted);
        let scaling = format!("the pool goes from {now} to {}", counted(goal, "worker"));
        let message = match goal.cmp(&now) {
            Ordering::Less => format!("{scaling}, as soon as the surplus ones are emptied"),
            Ordering::Greater => scaling,
            Ordering::Equal => return None,
        };
        Some(Verdict { reason: Reason::Scaling, message })
    }

    /// Judges a turn after which no job waits, and workers do not have their newest jobs yet.
    #[must_use]
    pub fn stale(&self) -> Option<Verdict> {
        let Progress { stale, jobs, .. } = self.progress;
        let names: Vec<_> = stale.iter().map(String::as_str).collect();
        let is_so = !names.is_empty() && jobs.waiting() == 0;
        is_so.then(|| Verdict { reason: Reason::Refreshing, message: stale_workers(&names) })
    }

    /// Judges a turn after which every job has a worker that is ready: some jobs wait for a moment, or the
    /// pool is settled.
    #[must_use]
    pub fn settled(&self) -> Verdict {
        let Self { decision, progress, .. } = *self;
        let wanted = self.wanted;
        if 0 < progress.jobs.waiting() {
            return waiting(progress.jobs, wanted.jobs);
        }
        debug_assert!(
            progress.is_settled() || decision.waiting.is_some(),
            "no verdict on {progress:?}"
        );
        wanted.settled(progress.workers_ready)
    }

    /// Judges a turn as [`settled`](Self::settled) does, but for workers that are [missing](Self::missing): the
    /// jobs run on fewer workers than asked.
    #[must_use]
    pub fn settled_on_all(&self) -> Verdict {
        let settled = self.settled();
        let names: Vec<_> = self.missing().map(|(slot, seen, _)| named(slot, seen)).collect();
        if settled.reason != Reason::Settled || names.is_empty() {
            return settled;
        }
        let Progress { workers_ready: ready, workers_wanted: wanted, .. } = *self.progress;
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let (ready, is) =
            (workers_ready(ready, wanted), number(names.len(), "this one is", "these are"));
        let message = format!("{}; {ready}, and {is} not: {}", settled.message, shortened(&names));
        Verdict { reason: Reason::WorkersMissing, message }
    }

    /// The verdict on a Swarm where everything stays as it is.
    fn paused(&self) -> Verdict {
        let Self { decision, desired, progress, .. } = *self;
        let without = progress.jobs.unassigned;
        let is_run =
            |cell: &Cell| cell.holder().is_some() || matches!(cell, Cell::Everywhere { .. });
        let run = decision.ledger.cells.jobs.iter().filter(|(_, record)| is_run(&record.cell));
        let gone = run.filter(|(job, _)| !desired.jobs.contains_key(*job)).count();
        let not_ready = progress.not_ready.len();
        let is_ready = without == 0 && gone == 0 && not_ready == 0;
        let message = if is_ready {
            "paused: every job stays where it is".to_owned()
        } else {
            format!(
                "paused: every job stays where it is; {} {} no worker, {gone} that {} no longer \
                 wanted {} one, {} that {} not ready",
                counted(without, "job"),
                number(without, "has", "have"),
                number(gone, "is", "are"),
                number(gone, "has", "have"),
                counted(not_ready, "worker"),
                number(not_ready, "holds jobs is", "hold jobs are")
            )
        };
        Verdict { reason: Reason::Paused { is_ready }, message }
    }

    /// The verdict when some jobs have no worker.
    fn without_worker(&self, wanted: Wanted) -> Verdict {
        let without = wanted.no_worker();
        let mut reasons = self.decision.plan.unassigned.values();
        if reasons.all(|why| matches!(why, Unassigned::NoWorkers | Unassigned::Suspended)) {
            let message = format!("{without}: none is ready");
            return Verdict { reason: Reason::NoWorkers, message };
        }
        let message = format!("{without}: {}", self.reasons_without_worker().join(", "));
        Verdict { reason: Reason::JobsUnassigned, message }
    }

    /// Lists the reasons why jobs have no worker, except that they are suspended. Each reason has an example
    /// with a sentence. O(jobs · log jobs), if a job has no worker.
    #[must_use]
    pub fn reasons_without_worker(&self) -> Vec<String> {
        let examples = self.examples_without_worker();
        examples.iter().map(|example| format!("{} ({example})", example.why.as_str())).collect()
    }

    /// Returns the first of the jobs that are pinned to a slot which no worker can get: the pool has
    /// fewer workers, also at the maximum of [`Desired::autoscale`]. Only an edit gives such a job a
    /// worker. O(workers + jobs without a worker · log jobs).
    #[must_use]
    pub fn pinned_outside(&self) -> Option<&JobName> {
        let Self { decision, desired, observed, .. } = *self;
        let mut pinned =
            decision.plan.unassigned.iter().filter(|(_, why)| **why == Unassigned::Pin);
        let mut largest = None;
        let is_outside = |(job, _): &(&JobName, &Unassigned)| {
            let largest = *largest.get_or_insert_with(|| largest_slot(desired, observed));
            let pin = desired.jobs.get(*job).and_then(|job| job.pin);
            pin.is_some_and(|pin| pin.0 < observed.first_slot || largest < Some(pin))
        };
        pinned.find(is_outside).map(|(job, _)| job)
    }

    /// Returns an example of the jobs without a worker for each reason, except that they are suspended.
    /// It is a job that [no worker can get](Self::pinned_outside), or else the first one.
    /// O(jobs · log jobs), if there is one.
    #[must_use]
    pub fn examples_without_worker(&self) -> Vec<WithoutWorker> {
        let Self { decision, desired, observed, .. } = *self;
        let mut first = BTreeMap::new();
        first.extend(self.pinned_outside().map(|job| (Unassigned::Pin, job)));
        for (job, why) in &decision.plan.unassigned {
            if *why != Unassigned::Suspended {
                first.entry(*why).or_insert(job);
            }
        }
        if first.is_empty() {
            return Vec::new();
        }
        let explainer = Explainer::of_turn(decision, desired, observed);
        let example = |(why, name): (Unassigned, &JobName)| {
            let sentence = explainer.sentence(desired.jobs.get(name)?, why);
            Some(WithoutWorker { job: name.clone(), why, sentence })
        };
        first.into_iter().filter_map(example).collect()
    }
}

/// Returns the name of a worker, or its slot if no worker has filled it.
fn named(slot: Slot, seen: &WorkerSeen) -> String {
    if seen.name.is_empty() { format!("slot {}", slot.0) } else { seen.name.clone() }
}

impl Wanted {
    /// Counts the jobs to run. A plan for all workers names suspended jobs only.
    fn of(decision: &Decision, desired: &Desired, progress: &Progress) -> Self {
        let is_done = |job: &&JobName| {
            let record = decision.ledger.cells.jobs.get(*job);
            record.is_some_and(|record| matches!(record.cell, Cell::Done { .. }))
        };
        let has_done = 0 < progress.jobs.done;
        let done = if has_done { desired.jobs.keys().filter(is_done).count() } else { 0 };
        let JobCounts { unassigned: without, suspended, .. } = progress.jobs;
        Self { jobs: desired.jobs.len() - done, without, suspended }
    }

    /// Returns the number of jobs that a worker runs or is to run.
    #[must_use]
    pub fn assigned(self) -> usize {
        self.jobs.saturating_sub(self.without + self.suspended)
    }

    /// Says how many jobs are suspended, as the end of a sentence; nothing if none is.
    #[must_use]
    pub fn are_suspended(self) -> String {
        if self.suspended == 0 {
            String::new()
        } else {
            format!("; {} {} suspended", self.suspended, number(self.suspended, "is", "are"))
        }
    }

    /// Says how many jobs have no worker, as the beginning of a sentence.
    #[must_use]
    pub fn no_worker(self) -> String {
        let (without, jobs) = (self.without, counted(self.jobs, "job"));
        format!("{without} of {jobs} {} no worker", number(without, "has", "have"))
    }

    /// The verdict when nothing is left to do.
    fn settled(self, workers: usize) -> Verdict {
        let Self { jobs, suspended, .. } = self;
        if 0 < jobs && suspended == jobs {
            let message = match jobs {
                1 => "the only job is suspended".to_owned(),
                jobs => format!("all {jobs} jobs are suspended"),
            };
            return Verdict { reason: Reason::Suspended, message };
        }
        let (run, more) = (jobs - suspended, self.are_suspended());
        let (run, workers) = (counted(run, "job"), counted(workers, "worker"));
        let message = format!("{run} on {workers}{more}");
        Verdict { reason: Reason::Settled, message }
    }
}

/// The beginning of a sentence about several workers.
const WORKERS_THAT_HOLD: &str = "these workers hold jobs and are";

const WORKERS_THAT_END: &str = "these workers end again and again and get";

/// Names the workers that end again and again.
fn unsteady(observed: &Observed) -> Option<String> {
    let names = observed.unsteady.iter().filter_map(|slot| observed.workers.get(slot));
    let names: Vec<_> = names.map(|seen| seen.name.as_str()).collect();
    let who = number(names.len(), "this worker ends again and again and gets", WORKERS_THAT_END);
    (!names.is_empty()).then(|| {
        let names = shortened(&names);
        format!(
            "{who} only jobs that no other can take, until 10 s to 5 min without an end: {names}"
        )
    })
}

/// The verdict on a Swarm whose ledger started another incarnation.
fn recovering(jobs: usize) -> Verdict {
    let message = format!(
        "the ledger was lost or rolled back, so the holders of jobs are unknown; {} {} until each \
         earlier session closed, or its Lease is revoked and the grace elapsed",
        counted(jobs, "job"),
        number(jobs, "waits", "wait")
    );
    Verdict { reason: Reason::Recovering, message }
}

/// The verdict on a Swarm whose operator has just started, and grants nothing yet.
fn starting(sessions: usize) -> Verdict {
    let message = format!(
        "the operator has just started and grants jobs once {} {}, since a rollback of the \
         store may have lost grants",
        counted(sessions, "session"),
        number(sessions, "has renewed its Lease", "have renewed their Leases")
    );
    Verdict { reason: Reason::JobsWaiting, message }
}

/// The verdict when some of `jobs` jobs are not granted yet, and no worker is known to be late.
fn waiting(counts: JobCounts, jobs: usize) -> Verdict {
    let why = [
        (counts.releasing, "for a release by the previous worker"),
        (counts.held, "for the worker of the slot to come back"),
        (counts.quarantined, "for a while, after crashing several workers"),
        (counts.free, "to be granted"),
    ];
    let why = why.iter().filter(|(count, _)| 0 < *count);
    let why: Vec<_> = why.map(|(count, why)| format!("{count} {why}")).collect();
    let (waiting, jobs) = (counts.waiting(), counted(jobs, "job"));
    let wait = number(waiting, "waits", "wait");
    let message = format!("{waiting} of {jobs} {wait}: {}", why.join(", "));
    Verdict { reason: Reason::JobsWaiting, message }
}

/// Says how many workers are ready.
#[must_use]
pub fn workers_ready(ready: usize, wanted: usize) -> String {
    if wanted < ready {
        let workers = number(ready, "worker is", "workers are");
        return format!(
            "{ready} {workers} ready, and {wanted} {} wanted",
            number(wanted, "is", "are")
        );
    }
    let workers = number(wanted, "worker is", "workers are");
    format!("{ready} of {wanted} {workers} ready")
}

/// Says which workers do not have their newest jobs yet.
#[must_use]
pub fn stale_workers(names: &[&str]) -> String {
    let who =
        number(names.len(), "this worker does not have its", "these workers do not have their");
    format!("{who} newest jobs yet: {}", shortened(names))
}

/// A job that fails, as a sentence shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailingShown<'a> {
    /// The name of the job.
    pub job: &'a str,
    /// The worker that reports it.
    pub worker: &'a str,
    /// Whether the worker restarts it.
    pub state: FailingState,
    /// The end of the last run, such as `ended with exit code 3`.
    pub last_exit: &'a str,
    /// The last line of the output before that end.
    pub last_line: Option<&'a str>,
}

/// Says how many jobs fail, and how the worst of them do.
#[must_use]
pub fn failing_jobs(count: usize, worst: &[FailingShown<'_>]) -> String {
    let shown: Vec<_> = worst.iter().map(ToString::to_string).collect();
    let jobs = format!("{} {}", counted(count, "job"), number(count, "fails", "fail"));
    match (shown.is_empty(), count > shown.len()) {
        (true, _) => jobs,
        (false, false) => format!("{jobs}: {}", shown.join("; ")),
        (false, true) => format!("{jobs}, among them {}", shown.join("; ")),
    }
}

impl fmt::Display for FailingShown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { job, worker, state, last_exit, last_line } = self;
        // An exit goes on with the sentence, and a reason not to start begins one.
        let colon = if last_exit.starts_with("ended") { "" } else { ":" };
        write!(f, "`{job}` on `{worker}`{colon} {last_exit}")?;
        if let Some(line) = last_line {
            write!(f, " (`{line}`)")?;
        }
        match state {
            FailingState::Failed => f.write_str(" and is not restarted any more"),
            FailingState::Restarting => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handover::SessionId;
    use crate::{Ledger, decide, jobs};

    fn judged(desired: &Desired, change: impl Fn(&mut Progress)) -> String {
        let observed = Observed::new([], 0, []);
        let decision = decide(&Ledger::new(1), desired, &observed);
        let mut progress = Progress::of(&decision, desired, &observed, vec![]);
        change(&mut progress);
        let turn = Summary::of(&decision, desired, &observed, &progress);
        let verdict = turn.start().or_else(|| turn.unsettled()).unwrap_or_else(|| turn.settled());
        format!("{}: {}", verdict.reason.as_str(), verdict.message)
    }

    #[test]
    fn the_first_reason_is_named_with_its_numbers() {
        let one = Desired::new(jobs(["a"]).unwrap());
        assert_eq!(judged(&one, |_| ()), "NoWorkers: 1 of 1 job has no worker: none is ready");
        let none = Desired::default();
        assert_eq!(judged(&none, |_| ()), "Settled: 0 jobs on 0 workers");
        let scaling = judged(&none, |progress| progress.workers_wanted = 2);
        assert_eq!(scaling, "Scaling: the pool goes from 0 to 2 workers");
        let not_ready = judged(&none, |progress| progress.not_ready = vec!["w-0".into()]);
        assert_eq!(not_ready, "WorkersNotReady: this worker holds jobs and is not ready: w-0");
        let waiting = judged(&none, |progress| progress.jobs.releasing = 1);
        assert!(
            waiting.starts_with("JobsWaiting: 1 of 0 jobs waits: 1 for a release"),
            "{waiting}"
        );
        let paused = Desired { paused: true, ..one };
        assert!(judged(&paused, |_| ()).starts_with("Paused: paused: every job stays"));
    }

    #[test]
    fn a_pool_whose_jobs_run_on_fewer_workers_than_asked_names_the_missing_ones() {
        let judged = |missing: Presence| {
            let session = || SessionId::plain("pod");
            let ready = WorkerSeen::new("w-0", Presence::Ready, Some(session()));
            let other = WorkerSeen::new("w-1", missing, None);
            let observed = Observed::new([(Slot(0), ready), (Slot(1), other)], 2, []);
            let desired = Desired::default();
            let decision = decide(&Ledger::new(1), &desired, &observed);
            let mut progress = Progress::of(&decision, &desired, &observed, vec![]);
            (progress.workers_now, progress.waiting) = (progress.workers_wanted, None);
            let turn = Summary::of(&decision, &desired, &observed, &progress);
            let verdict = turn.settled_on_all();
            assert_eq!(turn.settled().reason, Reason::Settled);
            (verdict.reason, verdict.message)
        };
        for missing in [Presence::Away(Duration::from_secs(9)), Presence::Draining] {
            let (reason, message) = judged(missing);
            let expected = "0 jobs on 1 worker; 1 of 2 workers are ready, and this one is not: w-1";
            assert_eq!((reason, &*message), (Reason::WorkersMissing, expected));
        }
        assert_eq!(judged(Presence::Ready).0, Reason::Settled);
    }

    #[test]
    fn a_worker_that_ends_again_and_again_is_named() {
        let worker = |name: &str| WorkerSeen::new(name, Presence::Ready, None);
        let workers = [(Slot(1), worker("w-1")), (Slot(2), worker("w-2"))];
        let mut observed = Observed::new(workers, 0, []);
        assert_eq!(unsteady(&observed), None);
        observed.unsteady = [Slot(2)].into();
        let one = unsteady(&observed).unwrap();
        assert!(one.starts_with("this worker ends again and again"), "{one}");
        assert!(one.ends_with(" 10 s to 5 min without an end: w-2"), "{one}");
    }

    #[test]
    fn the_worst_failing_jobs_are_described() {
        let job = FailingShown {
            job: "a",
            worker: "w-0",
            state: FailingState::Failed,
            last_exit: "ended with exit code 3",
            last_line: Some("no camera"),
        };
        let sentence = failing_jobs(1, &[job]);
        let expected = "1 job fails: `a` on `w-0` ended with exit code 3 (`no camera`) and is not \
                        restarted any more";
        assert_eq!(sentence, expected);
        assert!(failing_jobs(7, &[job]).starts_with("7 jobs fail, among them `a`"));
    }
}
