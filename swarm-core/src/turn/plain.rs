//! Plain workers under [`Policy::Exclusive`]. They never acknowledge, so a job that they received
//! could never be taken from them. So they receive none.
//!
//! If such a worker holds jobs from before a change of the policy, it keeps them until it is proved
//! to have ended or is replaced by a session.

use std::collections::BTreeSet;

use super::{Desired, Observed, WorkerSeen};
use crate::handover::{Policy, SessionId};
use crate::{JobName, MoveReason, Plan, Presence, Slot, Unassigned};

/// Returns the session of a worker, if the policy allows that it receives jobs.
pub(super) fn session<'a>(desired: &Desired, seen: &'a WorkerSeen) -> Option<&'a SessionId> {
    seen.session.as_ref().filter(|it| desired.policy == Policy::AtLeastOnce || !it.is_plain())
}

/// Sets the reason of jobs that have no worker although plain workers could take them. O(jobs
/// without a worker) if there are any plain workers, else O(workers).
pub(super) fn explain(plan: &mut Plan, desired: &Desired, observed: &Observed) {
    let is_refused = |(_, seen): &(&Slot, &WorkerSeen)| {
        let is_ready = seen.presence == Presence::Ready && seen.session.is_some();
        is_ready && session(desired, seen).is_none()
    };
    let refused: BTreeSet<Slot> =
        observed.workers.iter().filter(is_refused).map(|(slot, _)| *slot).collect();
    if refused.is_empty() {
        return;
    }
    let pin = |job: &JobName| desired.jobs.get(job).and_then(|job| job.pin);
    let explained = |job: &JobName, reason| match (reason, pin(job)) {
        (Unassigned::NoWorkers, None) => Unassigned::PlainWorkers,
        (Unassigned::NoWorkers | Unassigned::Pin, Some(slot)) if refused.contains(&slot) => {
            Unassigned::PlainWorkers
        }
        (reason, _) => reason,
    };
    for (job, reason) in &mut plan.unassigned {
        *reason = explained(job, *reason);
    }
    for step in &mut plan.moves {
        if let MoveReason::Unassigned(reason) = &mut step.reason {
            *reason = explained(&step.job, *reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Replication, decide};
    use super::*;
    use crate::handover::{Evidence, Proof};
    use crate::{Job, Ledger, jobs};

    fn exclusive() -> Desired {
        let policy = Policy::Exclusive;
        Desired { jobs: jobs(["a", "b"]).unwrap(), policy, ..Desired::default() }
    }

    fn session(slot: u32) -> SessionId {
        SessionId::new(&format!("pod-{slot}"), 1)
    }

    fn plain(slot: u32) -> SessionId {
        SessionId::plain(&format!("pod-{slot}"))
    }

    fn ready(sessions: &[SessionId]) -> Observed {
        let worker = |(n, session): (u32, &SessionId)| {
            let (name, session) = (format!("w-{n}"), Some(session.clone()));
            (Slot(n), WorkerSeen { name, presence: Presence::Ready, session })
        };
        Observed::new((0..).zip(sessions).map(worker), 1, [])
    }

    fn held(ledger: &Ledger) -> Vec<u32> {
        ledger.assignment().iter().map(|(_, slot)| slot.0).collect()
    }

    fn reasons(plan: &Plan) -> Vec<&'static str> {
        plan.unassigned.values().map(|reason| reason.as_str()).collect()
    }

    #[test]
    fn plain_workers_are_given_nothing_that_only_a_proof_could_end() {
        let seen = ready(&[plain(0), plain(1)]);
        for replication in [Replication::One, Replication::All] {
            let want = Desired { replication, ..exclusive() };
            let decision = decide(&Ledger::new(1), &want, &seen);
            assert!(decision.ledger.slots.is_empty(), "{decision:?}");
            assert_eq!(reasons(&decision.plan), ["plain-workers"; 2]);
        }
        let mixed = ready(&[plain(0), session(1)]);
        let decision = decide(&Ledger::new(1), &exclusive(), &mixed);
        assert_eq!((held(&decision.ledger), reasons(&decision.plan)), (vec![1, 1], vec![]));
    }

    #[test]
    fn a_plain_worker_that_could_take_nothing_anyway_is_not_the_reason() {
        let mut want = exclusive();
        want.timing.initial_wait = Duration::ZERO;
        for (presence, session) in
            [(Presence::Ready, None), (Presence::NotReady(Duration::ZERO), Some(plain(0)))]
        {
            let seen = Observed::new([(Slot(0), WorkerSeen::new("w-0", presence, session))], 1, []);
            let decision = decide(&Ledger::new(1), &want, &seen);
            assert_eq!(reasons(&decision.plan), ["no-workers"; 2], "{presence:?}");
        }
    }

    #[test]
    fn a_job_that_is_pinned_to_a_plain_worker_says_so() {
        let mut want = exclusive();
        for (name, slot) in [("on-a-plain-one", 0), ("on-a-session", 1), ("nowhere", 7)] {
            let job = Job { pin: Some(Slot(slot)), ..Job::default() };
            want.jobs.insert(name.parse().unwrap(), job);
        }
        let decision = decide(&Ledger::new(1), &want, &ready(&[plain(0), session(1)]));
        assert_eq!(reasons(&decision.plan), ["pin", "plain-workers"]);
    }

    #[test]
    fn what_a_plain_worker_had_before_stays_until_it_is_proved_to_have_ended() {
        let lenient = Desired { policy: Policy::AtLeastOnce, ..exclusive() };
        let before = decide(&Ledger::new(1), &lenient, &ready(&[plain(0)])).ledger;
        assert_eq!(held(&before), [0, 0]);

        let mut seen = ready(&[plain(0), session(1)]);
        let kept = decide(&before, &exclusive(), &seen).ledger;
        assert_eq!((held(&kept), kept.releases().len()), (vec![0, 0], 0));

        let ended = Evidence { ended: Some(Proof::ProcessEnded), ..Evidence::default() };
        seen.evidence.insert(plain(0), ended);
        seen.workers.remove(&Slot(0));
        let moved = decide(&kept, &exclusive(), &seen).ledger;
        assert_eq!(held(&moved), [1, 1]);
    }

    #[test]
    fn a_paused_pool_does_not_give_the_jobs_of_one_plain_worker_to_the_next() {
        let lenient = Desired { policy: Policy::AtLeastOnce, ..exclusive() };
        let before = decide(&Ledger::new(1), &lenient, &ready(&[plain(0)])).ledger;
        let mut seen = ready(&[plain(9)]);
        let ended = Evidence { ended: Some(Proof::ProcessEnded), ..Evidence::default() };
        seen.evidence.insert(plain(0), ended);
        let paused = |policy| Desired { paused: true, policy, ..exclusive() };
        let run = |policy| {
            let ledger = decide(&before, &paused(policy), &seen).ledger;
            ledger.cells.jobs.values().filter(|record| record.cell.holder().is_some()).count()
        };
        assert_eq!((run(Policy::AtLeastOnce), run(Policy::Exclusive)), (2, 0));
    }
}
