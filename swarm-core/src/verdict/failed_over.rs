//! Names the jobs that leave a worker because they keep failing there.

use super::{number, shortened};
use crate::handover::Cell;
use crate::{Decision, MoveReason, Slot};

/// Says which jobs begin to leave their workers in this turn because they keep failing there;
/// `None` if there are none. O(moves · log jobs).
///
/// ```
/// use swarm_core::verdict::failed_over;
/// use swarm_core::{Desired, Ledger, Observed, decide};
///
/// let decision = decide(&Ledger::new(0), &Desired::default(), &Observed::new([], 1, []));
/// assert_eq!(failed_over(&decision), None);
/// ```
#[must_use]
pub fn failed_over(decision: &Decision) -> Option<String> {
    let Decision { ledger, plan, .. } = decision;
    let worker = |slot: Slot| match ledger.slots.get(&slot) {
        Some(record) => record.worker.clone(),
        None => format!("slot {slot}"),
    };
    // A release takes several turns, and only the first one counts.
    let begins = |job: &str| {
        let record = ledger.cells.jobs.get(job);
        record.is_some_and(|record| {
            matches!(record.cell, Cell::Releasing { since, .. } if since == ledger.revision())
        })
    };
    let moves = plan.moves.iter().filter(|step| step.reason == MoveReason::Failing);
    let sentences = moves.filter(|step| begins(step.job.as_str())).filter_map(|step| {
        let (from, to) = (worker(step.from?), worker(step.to?));
        Some(format!("`{}` leaves {from} for {to}", step.job))
    });
    let sentences: Vec<_> = sentences.collect();
    let sentences: Vec<_> = sentences.iter().map(String::as_str).collect();
    let many = format!("{} jobs kept failing on their workers and try others", sentences.len());
    let all = number(sentences.len(), "1 job kept failing on its worker and tries another", &many);
    (!sentences.is_empty()).then(|| format!("{all}: {}", shortened(&sentences)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::handover::{Policy, SessionId};
    use crate::{
        Desired, JobName, Ledger, Observed, Presence, Relocation, Timing, WorkerSeen, decide, jobs,
    };

    #[test]
    fn a_move_is_named_once_with_both_workers() {
        let timing = Timing { initial_wait: Duration::ZERO, ..Timing::default() };
        let desired = Desired { policy: Policy::Exclusive, timing, ..Desired::default() };
        let desired = Desired { jobs: jobs(["a", "b"]).unwrap(), ..desired };
        let worker = |n: u32| {
            let session = Some(SessionId::new(&format!("pod-{n}"), 1));
            (Slot(n), WorkerSeen { name: format!("w-{n}"), presence: Presence::Ready, session })
        };
        let mut seen = Observed::new((0..2).map(worker), 1, []);
        let first = decide(&Ledger::new(1), &desired, &seen);
        assert_eq!(failed_over(&first), None);
        let job: JobName = "a".parse().unwrap();
        let home = first.plan.assignment.holder(&job).unwrap();
        let relocation = Relocation { home, failed_on: [home].into() };
        seen.relocations = [(job, relocation)].into();
        let next = decide(&first.ledger, &desired, &seen);
        let said = failed_over(&next).unwrap();
        let leaves = format!(": `a` leaves w-{home} for w-{}", 1 - home.0);
        assert!(said.starts_with("1 job kept failing") && said.ends_with(&leaves), "{said}");
        // Its worker has not released it yet, and nothing new is said.
        let mut again = decide(&next.ledger, &desired, &seen);
        again.ledger.cells.revision += 1;
        assert!(again.plan.moves.iter().any(|step| step.reason == MoveReason::Failing));
        assert_eq!(failed_over(&again), None);
    }
}
