//! Resets a ledger that was lost, or whose store was rolled back.
//!
//! Then the holders of jobs are unknown, and tokens that were granted may be missing. So the ledger
//! starts another incarnation without any holder, in which tokens begin at the present time. Every
//! job waits until all sessions that may still run it have stopped. Sessions that see the new
//! incarnation stop all jobs and close. Sessions that cannot renew their leases stop by themselves.

use std::time::Duration;

use super::{Desired, Observed};
use crate::handover::{Cell, Policy, Record};
use crate::{Jobs, Ledger, Position, Token};

/// The assumed largest number of grants of a job in an incarnation whose revision is unknown.
const UNKNOWN_GRANTS: u64 = 1_000_000;

impl Ledger {
    /// Returns the lowest token of the incarnation after `known`: higher than any token ever
    /// granted.
    ///
    /// Usually it is the clock in microseconds, since a job moves less than once a microsecond. If
    /// an incarnation begins in the future, this clock is behind the clock of the replica that
    /// granted. Then the token is the start of that incarnation plus [`UNKNOWN_GRANTS`]. In all
    /// other cases it must not exceed the clock. Otherwise a ledger that is lost again unseen would
    /// fall behind its own tokens. The revision does not count, since a session may claim any
    /// revision.
    fn next_floor(&self, known: Position, unix_time_us: u64) -> Token {
        let is_behind = unix_time_us <= known.incarnation;
        let reached = known.incarnation.saturating_add(UNKNOWN_GRANTS);
        let reached = if is_behind { reached } else { unix_time_us };
        Token(reached).max(self.cells.first_token)
    }

    /// Returns the first ledger of the incarnation after `known`, the furthest known position. The
    /// `jobs` and the jobs in the ledger wait for `span`. Tokens continue from
    /// [`next_floor`](Self::next_floor).
    fn next_incarnation(
        &self,
        jobs: &Jobs,
        known: Position,
        unix_time_us: u64,
        span: Duration,
        longest_lease: Duration,
    ) -> Self {
        let mut next = self.clone();
        let latest = self.cells.incarnation.max(known.incarnation);
        let floor = self.next_floor(known, unix_time_us);
        next.cells.incarnation = floor.0.max(latest.saturating_add(1));
        next.cells.revision += 1;
        next.cells.first_token = floor;
        for job in jobs.keys() {
            let cell = Cell::Free { token: floor };
            let record = || Record { cell, strikes: 0 };
            next.cells.jobs.entry(job.clone()).or_insert_with(record);
        }
        for (job, record) in &mut next.cells.jobs {
            let token = record.cell.token().max(floor);
            let is_done = matches!(record.cell, Cell::Done { .. });
            // A job that should run again may have been granted again in the lost ledger.
            let stays_done = is_done && jobs.get(job).is_none_or(|job| job.run_once);
            record.cell =
                if stays_done { Cell::Done { token } } else { Cell::Quarantined { span, token } };
        }
        next.longest_lease = self.longest_lease.max(longest_lease);
        next.former.clear();
        next.count_publication(self);
        next
    }
}

/// Returns the ledger of the next incarnation, if `ledger` is behind the positions that sessions or
/// the operator know.
pub(super) fn reset(ledger: &Ledger, desired: &Desired, observed: &Observed) -> Option<Ledger> {
    let known = *observed.positions.last()?;
    // A new ledger knows no sessions, whichever its incarnation. For a session that may act on
    // another incarnation, the revision may be unknown. A position of this very ledger proves
    // nothing.
    let is_new = ledger.cells.revision == 0 && known != ledger.position();
    let is_behind = ledger.position() < known || is_new;
    // At least once, jobs do not wait for proofs.
    let span = match desired.policy {
        // An unknown session may use earlier terms.
        Policy::Exclusive => desired.timing.fence_wait.max(observed.fence_wait),
        Policy::AtLeastOnce => Duration::ZERO,
    };
    is_behind.then(|| {
        let Observed { unix_time_us, longest_lease, .. } = *observed;
        ledger.next_incarnation(&desired.jobs, known, unix_time_us, span, longest_lease)
    })
}

/// Returns whether sessions of another incarnation are still live, so that nothing may be granted.
pub(super) fn has_foreign_sessions(
    ledger: &Ledger,
    desired: &Desired,
    observed: &Observed,
) -> bool {
    let is_strange = |known: &Position| known.incarnation != ledger.cells.incarnation;
    desired.policy == Policy::Exclusive && observed.positions.iter().any(is_strange)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handover::{Evidence, Proof, SessionId};
    use crate::{Decision, Presence, Slot, Waiting, WorkerSeen, decide, jobs};

    const START: u64 = 1_790_000_000_000_000;

    fn desired() -> Desired {
        let policy = Policy::Exclusive;
        Desired { jobs: jobs(["a", "b"]).unwrap(), policy, ..Desired::default() }
    }

    fn observed(nonce: u64, positions: impl IntoIterator<Item = Position>) -> Observed {
        let session = Some(SessionId::new("pod", nonce));
        let worker = WorkerSeen { name: "w-0".into(), presence: Presence::Ready, session };
        Observed::new([(Slot(0), worker)], START + 60_000_000, positions)
    }

    fn holders(decision: &Decision) -> usize {
        decision.ledger.assignment().iter().count()
    }

    #[test]
    fn a_ledger_behind_its_sessions_starts_another_incarnation_in_which_all_jobs_wait() {
        let desired = desired();
        let before = decide(&Ledger::new(START), &desired, &observed(1, [])).ledger;
        let ahead = Position { revision: before.revision() + 1, ..before.position() };
        assert_eq!(decide(&before, &desired, &observed(1, [before.position()])).ledger, before);

        let decision = decide(&before, &desired, &observed(1, [ahead]));
        let reset = &decision.ledger;
        assert_eq!(decision.waiting, Some(Waiting::LedgerReset));
        assert!(before.position() < reset.position() && before.revision() < reset.revision());
        assert!(reset.session_views()[&SessionId::new("pod", 1)].jobs.is_empty());
        let lowest = reset.cells.jobs.values().map(|record| record.cell.token()).min();
        assert_eq!(lowest, Some(Token(START + 60_000_000)));

        // The old session is still live: nothing is granted, however long the wait was.
        let waited = |positions| Observed {
            ages: reset
                .cells
                .jobs
                .keys()
                .map(|job| (job.clone(), Duration::from_mins(1)))
                .collect(),
            ..observed(2, positions)
        };
        let decision = decide(reset, &desired, &waited(vec![ahead]));
        assert_eq!((&decision.ledger, decision.waiting), (reset, Some(Waiting::LedgerReset)));
        // The session has ended, and so have all unknown sessions.
        assert_eq!(holders(&decide(reset, &desired, &observed(2, []))), 0, "others may still run");
        assert_eq!(holders(&decide(reset, &desired, &waited(vec![]))), 2);
    }

    /// Returns the lowest and the highest token in a ledger.
    fn tokens(ledger: &Ledger) -> (Token, Token) {
        let all = || ledger.cells.jobs.values().map(|record| record.cell.token());
        (all().min().unwrap(), all().max().unwrap())
    }

    #[test]
    fn tokens_never_go_back_though_the_clocks_of_replicas_are_an_hour_apart() {
        const HOUR: u64 = 3_600_000_000;
        let desired = desired();
        for (one, other) in [(START + HOUR, START), (START, START), (START, START + HOUR)] {
            let made = decide(&Ledger::new(one), &desired, &observed(1, [])).ledger;
            let granted = decide(&made, &desired, &observed(2, [made.position()])).ledger;
            let at = |positions| Observed { unix_time_us: other, ..observed(3, positions) };
            // The ledger is rolled back, or lost, and its Swarm belongs to the other replica.
            for left in [&made, &Ledger::new(other)] {
                let ahead = Position { revision: granted.revision() + 9, ..granted.position() };
                let reset = decide(left, &desired, &at(vec![ahead])).ledger;
                let (lowest, floor) = (tokens(&reset).0, reset.cells.first_token);
                assert!(
                    tokens(&granted).1 < lowest && lowest <= floor,
                    "{one} {other}: {lowest:?}"
                );
                assert!(other <= lowest.0 && granted.position() < reset.position());
                // The Swarm returns to the first replica: the incarnation bounds the tokens for the
                // next owner.
                let again = Observed { unix_time_us: one, ..at(vec![reset.position()]) };
                let again = decide(&Ledger::new(one), &desired, &again).ledger;
                assert!(tokens(&reset).1 < tokens(&again).0);
            }
        }
    }

    #[test]
    fn a_ledger_made_after_a_loss_waits_for_the_sessions_of_the_one_before() {
        let known = Position { incarnation: START, revision: 9 };
        let fresh = Ledger::new(START + 50_000_000);
        let decision = decide(&fresh, &desired(), &observed(1, [known]));
        assert_eq!(decision.waiting, Some(Waiting::LedgerReset));
        assert_eq!((decision.ledger.cells.jobs.len(), holders(&decision)), (2, 0));

        let lenient = Desired { policy: Policy::AtLeastOnce, ..desired() };
        let begun = decide(&fresh, &lenient, &observed(1, [known])).ledger;
        assert_eq!(holders(&decide(&begun, &lenient, &observed(2, [known]))), 2);
    }

    #[test]
    fn a_job_that_was_done_and_may_run_again_since_waits_like_the_others() {
        let mut before = decide(&Ledger::new(START), &desired(), &observed(1, [])).ledger;
        for record in before.cells.jobs.values_mut() {
            record.cell = Cell::Done { token: record.cell.token() };
        }
        let ahead = Position { revision: before.revision() + 1, ..before.position() };
        let mut desired = desired();
        desired.jobs.values_mut().next().unwrap().run_once = true;
        let reset = decide(&before, &desired, &observed(1, [ahead])).ledger;
        // The lost ledger may have granted `b` under the next tokens.
        let token = Token(START + 60_000_000);
        let span = desired.timing.fence_wait;
        let cells: Vec<_> = reset.cells.jobs.values().map(|record| record.cell.clone()).collect();
        assert_eq!(cells, [Cell::Done { token }, Cell::Quarantined { span, token }]);
    }

    #[test]
    fn a_paused_pool_grants_nothing_again_while_sessions_of_another_incarnation_live() {
        let desired = Desired { paused: true, ..desired() };
        let running = decide(&Ledger::new(START), &self::desired(), &observed(1, [])).ledger;
        let ended = |positions| {
            let proof = Evidence { ended: Some(Proof::Closed), ..Evidence::default() };
            let evidence = [(SessionId::new("pod", 1), proof)].into();
            Observed { evidence, ..observed(2, positions) }
        };
        let foreign = Position { incarnation: START - 1, revision: 3 };
        let decision = decide(&running, &desired, &ended(vec![foreign, running.position()]));
        assert_eq!(decision.ledger, running);
        let decision = decide(&running, &desired, &ended(vec![running.position()]));
        let held = |session: &SessionId| decision.ledger.session_views()[session].jobs.len();
        assert_eq!(held(&SessionId::new("pod", 2)), 2);
    }

    #[test]
    fn a_ledger_that_never_granted_anything_is_no_trace_of_another() {
        let (fresh, desired) = (Ledger::new(START), desired());
        let decision = decide(&fresh, &desired, &observed(1, [fresh.position()]));
        assert_eq!((decision.waiting, holders(&decision)), (None, 2));
    }
}
