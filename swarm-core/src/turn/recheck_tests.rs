//! The times at which a turn asks for another look: never later than time alone changes the
//! decision.

use super::*;
use crate::handover::{Evidence, Proof};
use crate::{Job, Share, Timing, Token, jobs};

const SECOND: Duration = Duration::from_secs(1);

fn desired() -> Desired {
    let timing = Timing {
        return_grace: SECOND * 30,
        release_timeout: SECOND * 60,
        initial_wait: Duration::ZERO,
        ..Timing::default()
    };
    Desired { jobs: jobs(["a", "b"]).unwrap(), timing, ..Desired::default() }
}

fn session() -> SessionId {
    SessionId::new("pod", 1)
}

/// Returns one ready worker. Job `a` has been unchanged for `age`.
fn observed(age: Duration) -> Observed {
    let worker = WorkerSeen::new("w-0", Presence::Ready, Some(session()));
    let ages = [("a".parse().unwrap(), age)].into();
    Observed { ages, ..Observed::new([(Slot(0), worker)], 1, []) }
}

/// Returns a ledger in which the worker holds `b`, and `a` is in the given state.
fn ledger(cell: impl FnOnce(Token) -> Cell) -> Ledger {
    let mut ledger = decide(&Ledger::new(1), &desired(), &observed(Duration::ZERO)).ledger;
    let record = ledger.cells.jobs.get_mut("a").unwrap();
    record.cell = cell(record.cell.token());
    ledger
}

/// Checks that time alone changes the decision after `span`, and that the turn a second before it
/// says so.
fn wakes_after(
    span: Duration,
    ledger: &Ledger,
    desired: &Desired,
    seen: impl Fn(Duration) -> Observed,
) {
    let before = decide(ledger, desired, &seen(span.saturating_sub(SECOND)));
    assert_eq!((&before.ledger, before.recheck_in), (ledger, Some(SECOND)));
    assert_ne!(decide(ledger, desired, &seen(span)).ledger, *ledger);
}

#[test]
fn a_paused_pool_is_looked_at_again_when_a_hold_or_a_release_is_over() {
    let paused = Desired { paused: true, ..desired() };
    let held = ledger(|token| Cell::Hold { slot: Slot(1), span: SECOND * 30, token });
    wakes_after(SECOND * 30, &held, &paused, observed);
    let session = session();
    let releasing = ledger(|token| Cell::Releasing { session, token, since: 9 });
    wakes_after(SECOND * 60, &releasing, &paused, observed);
}

#[test]
fn at_least_once_a_pool_is_looked_at_again_when_a_holder_has_been_gone_for_long_enough() {
    let gone = SessionId::new("gone", 2);
    let releasing = ledger(|token| Cell::Releasing { session: gone.clone(), token, since: 9 });
    let seen = |age: Duration| {
        let known = Evidence { gone_for: Some(age), ..Evidence::default() };
        Observed { evidence: [(gone.clone(), known)].into(), ..observed(age) }
    };
    wakes_after(SECOND * 30, &releasing, &desired(), seen);
}

#[test]
fn nothing_is_looked_at_again_for_a_late_holder_that_only_a_proof_ends_or_that_has_ended() {
    let gone = SessionId::new("gone", 2);
    let releasing = ledger(|token| Cell::Releasing { session: gone.clone(), token, since: 9 });
    let seen = |ended| {
        let gone_for = Some(SECOND);
        let known = Evidence { ended, gone_for, ..Evidence::default() };
        Observed { evidence: [(gone.clone(), known)].into(), ..observed(SECOND * 60) }
    };
    let exclusive = Desired { policy: Policy::Exclusive, ..desired() };
    assert_eq!(decide(&releasing, &exclusive, &seen(None)).recheck_in, None);
    let ended = decide(&releasing, &desired(), &seen(Some(Proof::Closed)));
    assert_eq!((ended.ledger.assignment().len(), ended.recheck_in), (2, None));
}

#[test]
fn a_release_that_is_over_while_changes_are_gathered_waits_for_nothing() {
    let mut wanted = Desired { batch_window: SECOND * 90, ..desired() };
    let session = SessionId::new("other", 2);
    let releasing = ledger(|token| Cell::Releasing { session, token, since: 9 });
    // A change that has to be collected.
    wanted.jobs.insert("c".parse().unwrap(), Job::default());
    let seen = |age| Observed { since_change: Some(age), ..observed(age) };
    wakes_after(SECOND * 60, &releasing, &wanted, seen);
}

#[test]
fn moves_that_the_budget_defers_are_planned_in_time_while_changes_are_gathered() {
    let plain = |slot: u32| {
        let (name, session) = (format!("w-{slot}"), SessionId::plain(&format!("pod-{slot}")));
        (Slot(slot), WorkerSeen::new(name, Presence::Ready, Some(session)))
    };
    let mut wanted = Desired { jobs: jobs(["a", "b", "c", "d"]).unwrap(), ..desired() };
    let alone = Observed::new([plain(0)], 1, []);
    let ledger = decide(&Ledger::new(1), &wanted, &alone).ledger;
    (wanted.rules.moves_max, wanted.batch_window) = (Some(1), SECOND * 90);
    let seen = |age| {
        let observed = Observed::new([plain(0), plain(1)], 1, []);
        Observed { since_change: Some(age), since_handover: Some(age), ..observed }
    };
    let before = decide(&ledger, &wanted, &seen(PLAIN_HANDOVER.saturating_sub(SECOND)));
    assert_eq!((before.waiting, before.recheck_in), (Some(Waiting::Gathering), Some(SECOND)));
    assert_ne!(decide(&ledger, &wanted, &seen(PLAIN_HANDOVER)).plan, before.plan);
}

/// The job of 60 percent fits next to the job of 40 if the other one moves. Then the job of 30 is
/// out.
#[test]
fn jobs_for_which_the_budget_may_make_room_are_planned_in_time() {
    let wishes = [(50, Some(0)), (30, Some(0)), (40, Some(1)), (40, Some(1)), (60, None)];
    let names = (0..).map(|n| format!("job-{n}").parse::<JobName>().unwrap());
    let listed: Vec<_> = names.zip(wishes).collect();
    let job = |percent| Job { share: Share::new(percent).ok(), ..Job::default() };
    let jobs = listed.iter().map(|(name, (percent, _))| (name.clone(), job(*percent))).collect();
    let held = listed.iter().filter_map(|(name, (_, slot))| Some((name.clone(), Slot((*slot)?))));
    let mut wanted = Desired { jobs, ..desired() };
    wanted.rules.moves_max = Some(1);
    let worker = |slot: u32| {
        let name = format!("worker-{slot}");
        let session = Some(SessionId::plain(&name));
        (Slot(slot), WorkerSeen::new(name, Presence::Ready, session))
    };
    let seen = |age| {
        let observed = Observed::new([worker(0), worker(1)], 1, []);
        Observed { since_handover: Some(age), ..observed }
    };
    let first = Ledger::new(1).next(&held.collect(), &Pool::ready(2));
    let at_rest = decide(&first, &wanted, &seen(Duration::ZERO)).ledger;
    wakes_after(PLAIN_HANDOVER, &at_rest, &wanted, seen);
}
