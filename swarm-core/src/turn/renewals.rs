//! Holds grants back until every session has renewed its Lease since the operator started.
//!
//! An operator that starts after a rollback of the store reads an older ledger, which is consistent
//! in itself. A session may act on a grant that the ledger lost, and the next grant of the job
//! would repeat its token. When such a session renews, one of two things happens: the renewal
//! fails, and its worker notices the rollback, or it acknowledges a revision that the ledger does
//! not have.

use std::time::Duration;

use super::{Observed, Waiting};
use crate::Ledger;
use crate::handover::{Cell, Record};

/// The time until the next look, since renewals cause no turn.
pub(super) const RECHECK: Duration = Duration::from_millis(500);

/// Returns the sessions that are waited for, if `next` grants a job that `ledger` does not. O(jobs
/// · log jobs) while sessions are waited for, else O(1).
pub(super) fn awaited(ledger: &Ledger, next: &Ledger, observed: &Observed) -> Option<Waiting> {
    let sessions = observed.unrenewed;
    (0 < sessions && grants(ledger, next)).then_some(Waiting::Renewals { sessions })
}

fn grants(ledger: &Ledger, next: &Ledger) -> bool {
    next.cells.jobs.iter().any(|(job, record)| {
        let before = ledger.cells.jobs.get(job);
        is_given(record) && before.map(given) != Some(given(record))
    })
}

fn is_given(record: &Record) -> bool {
    matches!(record.cell, Cell::Granted { .. } | Cell::Everywhere { .. })
}

/// Returns the token of a job, and its holder.
fn given(record: &Record) -> (crate::Token, Option<&crate::handover::SessionId>) {
    (record.cell.token(), record.cell.holder())
}

#[cfg(test)]
mod tests {
    use super::super::{Desired, WorkerSeen, decide};
    use super::*;
    use crate::handover::{Policy, SessionId};
    use crate::{Presence, Slot, Timing, jobs};

    fn desired(names: &[&str]) -> Desired {
        let timing = Timing { initial_wait: Duration::ZERO, ..Timing::default() };
        let jobs = jobs(names.iter().copied()).unwrap();
        Desired { jobs, timing, policy: Policy::Exclusive, ..Desired::default() }
    }

    fn observed(slots: u32, unrenewed: usize) -> Observed {
        let worker = |n: u32| {
            let session = Some(SessionId::new("pod", u64::from(n)));
            (Slot(n), WorkerSeen::new(format!("w-{n}"), Presence::Ready, session))
        };
        Observed { unrenewed, ..Observed::new((0..slots).map(worker), 1, []) }
    }

    #[test]
    fn grants_wait_for_renewals_and_releases_do_not() {
        let one = desired(&["a", "b"]);
        let running = decide(&Ledger::new(1), &one, &observed(1, 0)).ledger;
        // A job waits for its grant.
        let decision = decide(&running, &desired(&["a", "b", "c"]), &observed(1, 1));
        assert_eq!(decision.ledger, running);
        assert_eq!(decision.waiting, Some(Waiting::Renewals { sessions: 1 }));
        assert_eq!(decision.recheck_in, Some(RECHECK));
        // A second worker makes the first release a job, which grants nothing yet.
        let decision = decide(&running, &one, &observed(2, 1));
        assert_eq!(decision.waiting, None);
        assert!(running.revision() < decision.ledger.revision());
        // No grant is planned, so no session is waited for.
        assert_eq!(decide(&running, &one, &observed(1, 1)).waiting, None);
    }

    #[test]
    fn a_paused_pool_regrants_nothing_before_the_renewals() {
        let running = decide(&Ledger::new(1), &desired(&["a"]), &observed(1, 0)).ledger;
        let paused = Desired { paused: true, ..desired(&["a"]) };
        let ended = crate::handover::Evidence {
            ended: Some(crate::handover::Proof::ProcessEnded),
            ..crate::handover::Evidence::default()
        };
        let seen = |unrenewed| {
            let session = Some(SessionId::new("pod", 9));
            let worker = WorkerSeen::new("w-0", Presence::Ready, session);
            let evidence = [(SessionId::new("pod", 0), ended.clone())].into();
            Observed { evidence, unrenewed, ..Observed::new([(Slot(0), worker)], 1, []) }
        };
        let decision = decide(&running, &paused, &seen(1));
        assert_eq!(decision.ledger, running);
        assert_eq!(decision.waiting, Some(Waiting::Renewals { sessions: 1 }));
        let decision = decide(&running, &paused, &seen(0));
        assert_eq!(decision.waiting, Some(Waiting::Paused));
        assert!(running.revision() < decision.ledger.revision());
    }
}
