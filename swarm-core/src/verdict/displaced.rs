//! Names the jobs that lost their workers to more important ones.

use std::collections::BTreeMap;

use super::{number, shortened};
use crate::{Decision, Desired, Job, JobName, MoveReason, Share, Slot, Unassigned};

/// Says which jobs lost their workers in this turn, and to which more important ones; `None` if
/// there are none. The most important job that came to one of these workers is the example.
/// O(moves · log jobs), and O(jobs) if a job lost its worker for lack of room.
///
/// ```
/// use swarm_core::handover::SessionId;
/// use swarm_core::verdict::displaced;
/// use swarm_core::{Desired, Job, Ledger, Observed, Presence, Slot, WorkerSeen, decide, jobs};
///
/// let session = Some(SessionId::plain("uid"));
/// let seen = Observed::new([(Slot(0), WorkerSeen::new("w-0", Presence::Ready, session))], 1, []);
/// let mut desired = Desired::new(jobs(["a"])?);
/// desired.max_jobs = Some(1);
/// let before = decide(&Ledger::new(0), &desired, &seen).ledger;
/// desired.jobs.insert("b".parse()?, Job { priority: 5, ..Job::default() });
/// let sentence = displaced(&decide(&before, &desired, &seen), &desired).unwrap();
/// assert_eq!(sentence, "1 job gave up its worker for more important jobs, such as `b` (priority 5) \
///                       on w-0, and waits for room: a (priority 0)");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn displaced(decision: &Decision, desired: &Desired) -> Option<String> {
    let wish = |job: &JobName| desired.jobs.get(job).cloned().unwrap_or_default();
    let moves = &decision.plan.moves;
    let lost = moves.iter().filter(|step| {
        step.from.is_some() && step.reason == MoveReason::Unassigned(Unassigned::Capacity)
    });
    lost.clone().next()?;
    let priority = |job: &JobName| desired.jobs.get(job).map_or(0, |job| job.priority);
    let highest = decision.plan.assignment.iter().map(|(job, _)| priority(job)).max();
    let arrivals = arrivals(decision, desired);
    let mut by_priority = BTreeMap::<i32, Vec<&str>>::new();
    let mut first = None;
    for step in lost {
        let job = wish(&step.job);
        let arrival = step.from.and_then(|slot| Some((slot, *arrivals.get(&slot)?)));
        let arrival = arrival.filter(|(slot, name)| advantage(&wish(name), &job, *slot).is_some());
        if arrival.is_none() && highest.is_none_or(|highest| highest <= job.priority) {
            continue;
        }
        if let Some((slot, name)) = arrival.filter(|_| first.is_none()) {
            first = advantage(&wish(name), &job, slot).map(|why| (name, slot, why));
        }
        by_priority.entry(job.priority).or_default().push(step.job.as_str());
    }
    let example = first.map_or_else(String::new, |(name, slot, why)| {
        let worker = decision.ledger.slots.get(&slot).map(|record| record.worker.clone());
        let worker = worker.unwrap_or_else(|| format!("slot {slot}"));
        format!(", such as `{name}` ({why}) on {worker},")
    });
    sentence(&by_priority, &example)
}

fn sentence(by_priority: &BTreeMap<i32, Vec<&str>>, example: &str) -> Option<String> {
    let count = by_priority.values().map(Vec::len).sum::<usize>();
    let part = |(of, jobs): (&i32, &Vec<&str>)| format!("{} (priority {of})", shortened(jobs));
    let parts: Vec<_> = by_priority.iter().rev().map(part).collect();
    let parts: Vec<_> = parts.iter().map(String::as_str).collect();
    let many = format!("{count} jobs gave up their workers for more important jobs");
    (0 < count).then(|| {
        format!(
            "{}{example} {} {}",
            number(count, "1 job gave up its worker for more important jobs", &many),
            number(count, "and waits for room:", "and wait for room:"),
            shortened(&parts)
        )
    })
}

/// Returns the most important of the jobs that come to each worker.
fn arrivals<'a>(decision: &'a Decision, desired: &Desired) -> BTreeMap<Slot, &'a JobName> {
    let mut arrivals = BTreeMap::new();
    for step in &decision.plan.moves {
        let (Some(slot), Some(job)) = (step.to, desired.jobs.get(&step.job)) else { continue };
        let rank = (job.priority, job.pin.is_some(), job.share);
        let best = arrivals.entry(slot).or_insert((rank, &step.job));
        if best.0 < rank {
            *best = (rank, &step.job);
        }
    }
    arrivals.into_iter().map(|(slot, (_, job))| (slot, job)).collect()
}

/// Returns the reason why `job` comes before `other` in `slot`, if it does.
fn advantage(job: &Job, other: &Job, slot: Slot) -> Option<String> {
    if other.priority < job.priority {
        return Some(format!("priority {}", job.priority));
    }
    if job.pin == Some(slot) && other.pin.is_none() {
        return Some(format!("pinned to slot {slot}"));
    }
    let share = job.share.filter(|_| other.share.is_none()).map(Share::percent);
    share.map(|share| format!("share {share}"))
}
