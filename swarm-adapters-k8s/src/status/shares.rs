//! Part of the status about jobs with a share.

use swarm_client::api::{ShareClassStatus, SharesStatus};
use swarm_core::{Replication, Reservations, ShareClass};

use super::{TurnSummary, shortened};

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
