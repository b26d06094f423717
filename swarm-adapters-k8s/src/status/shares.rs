//! Part of the status about jobs with a share, and about jobs that more important ones displaced.

use std::collections::BTreeMap;

use swarm_client::api::{ShareClassStatus, SharesStatus};
use swarm_core::{JobName, MoveReason, Replication, Reservations, ShareClass, Unassigned};

use super::{TurnSummary, number, shortened};

/// The most priorities that get entries of their own.
const CLASSES_MAX: usize = 10;

/// Reservations of jobs with a share. `None` if no job has a share, or if every worker runs all
/// jobs.
pub(super) fn reservations(facts: &TurnSummary<'_>) -> Option<Reservations> {
    let TurnSummary { decision, desired, observed, .. } = *facts;
    let is_planned = desired.replication == Replication::One;
    is_planned.then(|| Reservations::of(decision, desired, observed)).flatten()
}

pub(super) fn status(found: &Reservations) -> SharesStatus {
    let number = |percent: u64| i32::try_from(percent).unwrap_or(i32::MAX);
    let mut classes: Vec<ShareClassStatus> = Vec::new();
    for class in &found.classes {
        let ShareClass { priority, jobs, reserved, waiting, waiting_percent, .. } = *class;
        let (jobs, waiting) = (super::count(jobs), super::count(waiting));
        let (reserved, waiting_percent) = (number(reserved), number(waiting_percent));
        match classes.get_mut(CLASSES_MAX - 1) {
            None => classes.push(ShareClassStatus {
                priority,
                jobs,
                reserved,
                waiting,
                waiting_percent,
            }),
            Some(last) => {
                last.jobs = last.jobs.saturating_add(jobs);
                last.reserved = last.reserved.saturating_add(reserved);
                last.waiting = last.waiting.saturating_add(waiting);
                last.waiting_percent = last.waiting_percent.saturating_add(waiting_percent);
            }
        }
    }
    SharesStatus {
        capacity: number(found.capacity),
        reserved: number(found.reserved),
        free: number(found.capacity.saturating_sub(found.reserved)),
        largest_free: number(found.largest_free),
        classes,
    }
}

/// The jobs with a share that wait behind more important jobs, as the end of a sentence.
pub(super) fn waits(found: &Reservations) -> String {
    let has_room = found.classes.iter().position(|class| 0 < class.jobs);
    let behind = |(n, class): (usize, &ShareClass)| {
        let is_behind = 0 < class.waiting && has_room.is_some_and(|first| first < n);
        is_behind.then(|| format!("{} of priority {}", class.waiting, class.priority))
    };
    let behind: Vec<_> = found.classes.iter().enumerate().filter_map(behind).collect();
    if behind.is_empty() {
        return String::new();
    }
    let behind: Vec<_> = behind.iter().map(String::as_str).collect();
    format!("; jobs with a higher priority come before {}", shortened(&behind))
}

/// The sentence about jobs that lost their worker in this turn, because there is only room for more
/// important jobs; `None` if there are none.
pub(crate) fn displaced(facts: &TurnSummary<'_>) -> Option<String> {
    let TurnSummary { decision, desired, .. } = *facts;
    let priority = |job: &JobName| desired.jobs.get(job).map_or(0, |job| job.priority);
    let highest = decision.plan.assignment.iter().map(|(job, _)| priority(job)).max()?;
    let lost = decision.plan.moves.iter().filter(|step| {
        step.from.is_some() && step.reason == MoveReason::Unassigned(Unassigned::Capacity)
    });
    let mut by_priority = BTreeMap::<i32, Vec<&str>>::new();
    for step in lost.filter(|step| priority(&step.job) < highest) {
        by_priority.entry(priority(&step.job)).or_default().push(step.job.as_str());
    }
    let count = by_priority.values().map(Vec::len).sum::<usize>();
    let parts = by_priority.iter().rev();
    let parts: Vec<_> =
        parts.map(|(of, jobs)| format!("{} (priority {of})", shortened(jobs))).collect();
    let parts: Vec<_> = parts.iter().map(String::as_str).collect();
    (0 < count).then(|| {
        format!(
            "{} for jobs of a higher priority, up to {highest}, and {} for room: {}",
            number(
                count,
                "1 job gave up its worker",
                &format!("{count} jobs gave up their workers")
            ),
            number(count, "waits", "wait"),
            shortened(&parts)
        )
    })
}
