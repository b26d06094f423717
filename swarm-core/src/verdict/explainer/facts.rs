//! The facts about workers that explain why a job has none.

use std::collections::BTreeMap;

use crate::handover::{Policy, SessionId};
use crate::{Desired, JobName, Jobs, Member, Plan, Presence, Share, Slot, Standing, WorkerSeen};

/// The state of a plain worker that may get no jobs.
const PLAIN: &str = "plain";

/// A worker, and its jobs in a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WorkerFacts {
    pub(super) name: String,
    /// The state in which it takes no jobs; `None` if it takes jobs.
    pub(super) absence: Option<&'static str>,
    /// The largest number of jobs; `None` for any number.
    pub(super) max_jobs: Option<u32>,
    /// The part that jobs can reserve, in percent.
    pub(super) size: u8,
    /// The number of its jobs.
    jobs: usize,
    /// The part that its jobs reserve, in percent.
    reserved: u8,
    /// The job that reserves the largest part.
    pub(super) largest: Option<Holder>,
}

/// A job that reserves a part of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    job: JobName,
    share: u8,
    priority: i32,
}

impl Holder {
    /// Returns the job with its share, and with its priority if it has one.
    pub(super) fn shown(&self) -> String {
        let Self { job, share, priority } = self;
        let priority =
            if *priority == 0 { String::new() } else { format!(", priority {priority}") };
        format!("`{job}` (share {share}{priority})")
    }
}

impl WorkerFacts {
    pub(super) fn of(member: &Member) -> Self {
        let Member { name, standing, max_jobs, capacity } = member;
        Self {
            name: name.clone(),
            absence: (*standing == Standing::Keeps).then_some("not ready"),
            max_jobs: *max_jobs,
            size: capacity.map_or(100, Share::percent),
            ..Self::default()
        }
    }

    /// Returns the name of the worker in `slot`, or the slot while it has none.
    pub(super) fn shown(&self, slot: Slot) -> String {
        if self.name.is_empty() { format!("slot {slot}") } else { self.name.clone() }
    }

    pub(super) fn is_plain(&self) -> bool {
        self.absence == Some(PLAIN)
    }

    pub(super) fn is_at_maximum(&self) -> bool {
        self.max_jobs.is_some_and(|max| max as usize <= self.jobs)
    }

    /// Returns whether no part is left for jobs without a share.
    pub(super) fn is_reserved(&self) -> bool {
        self.size <= self.reserved
    }

    /// Returns the part that a job can still reserve, in percent.
    pub(super) fn free(&self) -> u8 {
        if self.is_at_maximum() { 0 } else { self.size.saturating_sub(self.reserved) }
    }

    /// Says that it has its maximum, as the end of a sentence.
    pub(super) fn maximum(&self) -> String {
        format!("has its maximum {}", self.of_jobs())
    }

    /// Names its maximum, as in `of 2 jobs`.
    pub(super) fn of_jobs(&self) -> String {
        self.max_jobs.map_or_else(
            || "of jobs".to_owned(),
            |max| format!("of {}", super::super::counted(max as usize, "job")),
        )
    }

    fn place(&mut self, job: &JobName, share: Option<Share>, priority: i32) {
        self.jobs += 1;
        let Some(share) = share.map(Share::percent) else { return };
        self.reserved = self.reserved.saturating_add(share);
        if self.largest.as_ref().is_none_or(|largest| largest.share < share) {
            self.largest = Some(Holder { job: job.clone(), share, priority });
        }
    }
}

/// The priorities of the assigned jobs, ascending, each with the number of jobs of this or a higher
/// priority, and the first job of the highest one.
type Priorities = (Vec<(i32, usize)>, Option<(JobName, i32)>);

/// Places the assigned jobs on their workers.
pub(super) fn placed(
    jobs: &Jobs,
    plan: &Plan,
    workers: &mut BTreeMap<Slot, WorkerFacts>,
) -> Priorities {
    let mut counts = BTreeMap::<i32, usize>::new();
    let mut first: Option<(JobName, i32)> = None;
    for (name, slot) in plan.assignment.iter() {
        let (share, priority) = jobs.get(name).map_or((None, 0), |job| (job.share, job.priority));
        *counts.entry(priority).or_default() += 1;
        if first.as_ref().is_none_or(|(_, highest)| *highest < priority) {
            first = Some((name.clone(), priority));
        }
        if let Some(worker) = workers.get_mut(&slot) {
            worker.place(name, share, priority);
        }
    }
    let mut all = 0;
    let sum = |(priority, count): (i32, usize)| {
        all += count;
        (priority, all)
    };
    let mut priorities: Vec<_> = counts.into_iter().rev().map(sum).collect();
    priorities.reverse();
    (priorities, first)
}

/// Returns the state in which a worker takes no jobs; `None` if it takes jobs.
pub(super) fn state(seen: &WorkerSeen, desired: &Desired) -> Option<&'static str> {
    match seen.presence {
        Presence::NotReady(_) => Some("not ready"),
        Presence::Away(_) => Some("away"),
        Presence::Leaving(_) | Presence::Ending { .. } => Some("leaving"),
        Presence::Draining => Some("draining"),
        Presence::Ready => match &seen.session {
            None => Some("without a session"),
            Some(session) if is_refused(session, desired) => Some(PLAIN),
            Some(_) => None,
        },
    }
}

fn is_refused(session: &SessionId, desired: &Desired) -> bool {
    session.is_plain() && desired.policy == Policy::Exclusive
}
