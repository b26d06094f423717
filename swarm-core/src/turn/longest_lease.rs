//! Keeps in the ledger the longest Lease duration of sessions whose Leases may disappear.
//!
//! A Lease itself says how long its session may act, so a reader of the Lease needs nothing else.
//! The ledger is the only source if the Lease was deleted, and an operator starts after the Swarm's
//! duration was shortened.
//!
//! The invariant: if a ledger grants a job to a session, its `longest_lease` is at least the
//! session's Lease. It holds for three reasons. A session that claims more than the Swarm allows
//! receives no jobs. The Swarm's duration enters the ledger with the grant. It leaves only once
//! every session that the ledger names has ended, or was seen with a shorter Lease.

use std::time::Duration;

use super::Observed;
use crate::Ledger;
use crate::handover::{Cell, Record, SessionId};

/// Returns the `next` ledger with the longest Lease duration of its sessions. The duration is
/// written with other changes only, so that an edit of the Swarm alone writes no ledger.
pub(super) fn keep(ledger: &Ledger, next: Ledger, observed: &Observed) -> Ledger {
    if next == *ledger {
        return next;
    }
    // No session received jobs under a longer Lease, so no claim makes others wait longer.
    let most = ledger.longest_lease.max(observed.lease);
    let by = |session: &SessionId| match observed.evidence.get(session) {
        Some(known) if known.ended.is_some() => Duration::ZERO,
        known => known.and_then(|known| known.lease).map_or(most, |lease| lease.min(most)),
    };
    let sessions = next.sessions().into_keys().filter(|session| !session.is_plain());
    let asked = |session| by(session).max(observed.lease);
    let named = sessions.map(asked).max().unwrap_or_default();
    let longest_lease = if waits_for_strangers(&next) { most } else { named };
    Ledger { longest_lease, ..next }
}

/// Returns whether jobs wait for sessions of a lost ledger, whose very names are unknown.
fn waits_for_strangers(ledger: &Ledger) -> bool {
    let waits = |Record { cell, strikes }: &Record| {
        *strikes == 0 && matches!(cell, Cell::Quarantined { .. })
    };
    ledger.cells.jobs.values().any(waits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handover::{Evidence, Policy, Proof};
    use crate::{Desired, Position, Presence, Slot, WorkerSeen, decide, jobs};

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_secs(20);

    fn desired(names: &[&str]) -> Desired {
        let policy = Policy::Exclusive;
        Desired { jobs: jobs(names.iter().copied()).unwrap(), policy, ..Desired::default() }
    }

    /// Returns two workers. The first has another session for each `nonce`.
    fn observed(nonce: u64, asked: Duration) -> Observed {
        let worker = |slot: u32, nonce| {
            let session = Some(SessionId::new(&format!("pod-{slot}"), nonce));
            (Slot(slot), WorkerSeen::new(format!("w-{slot}"), Presence::Ready, session))
        };
        let mut observed = Observed::new([worker(0, nonce), worker(1, 1)], 1, []);
        (observed.lease, observed.longest_lease) = (asked, asked);
        observed
    }

    /// Adds evidence about the session of the first worker with this `nonce`.
    fn with(mut seen: Observed, nonce: u64, lease: Option<Duration>, has_ended: bool) -> Observed {
        let ended = has_ended.then_some(Proof::Fenced);
        let known = Evidence { ended, lease, ..Evidence::default() };
        seen.evidence.insert(SessionId::new("pod-0", nonce), known);
        let other = Evidence { lease: Some(SHORT), ..Evidence::default() };
        seen.evidence.insert(SessionId::new("pod-1", 1), other);
        seen
    }

    /// Returns a ledger in which both workers received jobs while the long Lease was requested.
    fn granted() -> Ledger {
        let ledger = decide(&Ledger::new(1), &desired(&["a", "b"]), &observed(1, LONG)).ledger;
        assert_eq!((ledger.longest_lease, ledger.assignment().len()), (LONG, 2));
        ledger
    }

    #[test]
    fn an_edit_of_the_lease_alone_writes_no_ledger() {
        let (ledger, desired) = (granted(), desired(&["a", "b"]));
        for asked in [SHORT, LONG * 2] {
            let seen = with(observed(1, asked), 1, Some(SHORT), false);
            assert_eq!(decide(&ledger, &desired, &seen).ledger, ledger);
        }
    }

    #[test]
    fn a_longer_lease_comes_into_the_ledger_with_whatever_is_granted_under_it() {
        let seen = with(observed(1, LONG * 2), 1, Some(LONG), false);
        let next = decide(&granted(), &desired(&["a", "b", "c"]), &seen).ledger;
        assert_eq!(next.longest_lease, LONG * 2);
    }

    #[test]
    fn it_stays_for_as_long_as_a_session_may_live_by_it() {
        let (ledger, desired) = (granted(), desired(&["a", "b", "c"]));
        let after = |lease, has_ended| {
            let seen = with(observed(1, SHORT), 1, lease, has_ended);
            let next = decide(&ledger, &desired, &seen).ledger;
            assert_ne!(next, ledger);
            next.longest_lease
        };
        assert_eq!(after(Some(LONG), false), LONG, "its Lease says so");
        assert_eq!(after(None, false), LONG, "its Lease was never seen");
        assert_eq!(after(Some(SHORT), false), SHORT, "it began after the edit");
        assert_eq!(after(Some(LONG), true), SHORT, "it has ended");
        assert_eq!(after(Some(SHORT * 2), false), SHORT * 2);
        // A claim makes no other session wait longer than the longest requested duration.
        assert_eq!(after(Some(LONG * 60), false), LONG);
    }

    #[test]
    fn a_paused_pool_keeps_it_too() {
        let (ledger, desired) = (granted(), Desired { paused: true, ..desired(&["a", "b"]) });
        let seen = with(observed(2, LONG * 2), 1, Some(LONG), true);
        let next = decide(&ledger, &desired, &seen).ledger;
        assert_ne!(next, ledger, "its next session goes on with its jobs");
        assert_eq!(next.longest_lease, LONG * 2);
    }

    #[test]
    fn a_ledger_of_plain_workers_says_nothing() {
        let mut seen = observed(1, LONG);
        for (n, worker) in &mut seen.workers {
            worker.session = Some(SessionId::plain(&format!("pod-{n}")));
        }
        let next = decide(&Ledger::new(1), &Desired::new(jobs(["a"]).unwrap()), &seen).ledger;
        assert_eq!((next.longest_lease, next.assignment().len()), (Duration::ZERO, 1));
    }

    #[test]
    fn a_reset_takes_over_what_the_ledger_or_its_observer_knows() {
        let desired = desired(&["a", "b"]);
        let lost = Position { incarnation: 1, revision: 9 };
        let reset = |ledger: &Ledger, longest_lease| {
            let positions = [lost].into();
            let seen = Observed { positions, longest_lease, ..observed(2, SHORT) };
            decide(ledger, &desired, &seen).ledger
        };
        assert_eq!(reset(&Ledger::new(5), LONG).longest_lease, LONG);
        let next = reset(&granted(), SHORT);
        assert_eq!(next.longest_lease, LONG);
        // Sessions that the ledger has forgotten may still use it, so it stays as long as jobs
        // wait.
        let seen = with(observed(3, SHORT), 2, Some(SHORT), true);
        let seen = with(seen, 3, Some(SHORT), false);
        let later = decide(&next, &desired, &seen).ledger;
        assert_ne!(later, next);
        assert_eq!(later.longest_lease, LONG);
        let waited = desired.jobs.keys().map(|job| (job.clone(), LONG)).collect();
        let seen = with(Observed { ages: waited, ..observed(3, SHORT) }, 3, Some(SHORT), false);
        let granted = decide(&later, &desired, &seen).ledger;
        assert_eq!((granted.longest_lease, granted.assignment().len()), (SHORT, 2));
    }
}
