//! Part of the status about plain workers that have not been ready for too long.

use swarm_core::{Overdue, Replication};

use super::degraded::Trouble;
use super::{EventReason, TurnSummary, counted, number, shortened};

/// The reason of the problem, and of its Event.
const NOT_READY_TOO_LONG: &str = EventReason::NotReadyTooLong.as_str();

/// The workers that have not been ready for longer than the grace of plain workers, and the effect
/// on their jobs; `None` without such workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotReadyTooLong {
    pub(crate) workers: Vec<String>,
    pub(crate) message: String,
}

impl NotReadyTooLong {
    pub(crate) fn of(facts: &TurnSummary<'_>) -> Option<Self> {
        let TurnSummary { decision, desired, observed, .. } = *facts;
        let overdue = Overdue::of(desired, observed);
        let is_planned = decision.waiting.is_none() && desired.replication == Replication::One;
        if overdue.slots.is_empty() || !is_planned {
            return None;
        }
        let workers = observed.workers.iter().filter(|(slot, _)| overdue.slots.contains(slot));
        let workers: Vec<_> = workers.map(|(_, seen)| seen.name.clone()).collect();
        let holders = decision.plan.assignment.iter().map(|(_, slot)| slot);
        let left = holders.filter(|slot| overdue.slots.contains(slot)).count();
        let what = match (overdue.is_held, left) {
            (true, _) => {
                "a fault that they share is more likely, such as a readiness probe, so they keep \
                 their jobs"
                    .to_owned()
            }
            (false, 0) => "other workers have their jobs now".to_owned(),
            (false, left) => {
                format!(
                    "{} {} until a ready worker can take {}",
                    counted(left, "job"),
                    number(left, "stays there", "stay there"),
                    number(left, "it", "them")
                )
            }
        };
        let names: Vec<_> = workers.iter().map(String::as_str).collect();
        let message = format!(
            "{} not been ready for longer than {} s: {}; {what}",
            number(names.len(), "this worker has", "these workers have"),
            desired.timing.not_ready_grace.unwrap_or_default().as_secs(),
            shortened(&names)
        );
        Some(Self { workers, message })
    }

    pub(super) fn trouble(self) -> Trouble {
        Trouble { reason: NOT_READY_TOO_LONG, message: self.message }
    }
}
