//! Ends and renewals that a rollback of the store makes doubtful.

use super::*;
use crate::handover::Watch;

/// A session that was revoked and fenced, as the overseer knows it 30 s later.
fn fenced() -> Overseer {
    let mut overseer = overseer();
    overseer.note(at(0), &naming(id(1)));
    overseer.learn(at(0), Fact::Lease(id(1), new(3)));
    let due = overseer.due(at(20_000), START, everything);
    assert_eq!(due, [Effect::Revoke(id(1), LeaseVersion(3))]);
    overseer.learn(at(20_000), Fact::Revocation(id(1), LeaseVersion(3), Answer::Written));
    assert_eq!(ended(&mut overseer, 30_000), Some(Proof::Fenced));
    overseer
}

fn ended(overseer: &mut Overseer, ms: u64) -> Option<Proof> {
    let pool = pool(worker(Presence::Ready), Protocol::Session);
    overseer.observed(at(ms), Policy::Exclusive, pool).evidence[&id(1)].ended
}

fn revoked(version: u64) -> LeaseFacts {
    let facts = new(version);
    LeaseFacts { lease: Lease { holder: Holder::Revoked, ..facts.lease }, ..facts }
}

#[test]
fn a_fenced_session_is_no_longer_known_to_have_ended_once_the_store_was_rolled_back() {
    let mut overseer = fenced();
    overseer.learn(at(31_000), Fact::Lease(id(1), new(2)));
    assert_eq!(ended(&mut overseer, 31_000), Some(Proof::Fenced), "a stale copy proves nothing");

    overseer.learn(at(32_000), Fact::StoreRolledBack);
    assert_eq!(ended(&mut overseer, 32_000), None);
    // Its Lease is looked at again.
    assert_eq!(overseer.due(at(32_000), START, |_| false), [Effect::LookUp(id(1))]);
    overseer.learn(at(32_000), Fact::Lease(id(1), new(2)));
    assert_eq!(overseer.living("pod"), Some(&id(1)));
    // The session does not renew it, so it is revoked again, and fenced.
    assert_eq!(overseer.due(at(51_999), START, everything), []);
    let due = overseer.due(at(52_000), START, everything);
    assert_eq!(due, [Effect::Revoke(id(1), LeaseVersion(2))]);
}

#[test]
fn a_write_from_before_a_rollback_is_no_renewal_though_it_is_seen_first_after_it() {
    let mut overseer = overseer();
    overseer.note(at(0), &naming(id(1)));
    overseer.learn(at(0), Fact::Lease(id(1), new(3)));
    overseer.learn(at(1_000), Fact::StoreRolledBack);
    let mut read = |ms, number| {
        overseer.learn(at(ms), Fact::Lease(id(1), new(number)));
        unrenewed(&mut overseer, ms, Policy::Exclusive)
    };
    assert_eq!(read(1_000, 5), 1, "the store had it before this overseer saw it");
    assert_eq!(read(2_000, 6), 0);
}

#[test]
fn an_older_ledger_and_another_incarnation_make_ends_doubtful() {
    let named = |incarnation, revision| {
        let mut ledger = naming(id(1));
        (ledger.cells.incarnation, ledger.cells.revision) = (incarnation, revision);
        ledger
    };
    for (incarnation, revision, is_doubted) in
        [(START, 7, false), (START, 4, true), (START + 1, 9, true), (START - 1, 9, true)]
    {
        let mut overseer = fenced();
        overseer.note(at(30_000), &named(START, 5));
        overseer.note(at(31_000), &named(incarnation, revision));
        let expected = if is_doubted { None } else { Some(Proof::Fenced) };
        assert_eq!(ended(&mut overseer, 31_000), expected, "{incarnation} {revision}");
        // The rollback is noticed once: the session is fenced again after that, though its Lease is
        // not shown.
        overseer.note(at(40_000), &named(incarnation, revision));
        assert_eq!(ended(&mut overseer, 52_404), expected);
        assert_eq!(ended(&mut overseer, 52_405), Some(Proof::Fenced));
    }
}

#[test]
fn a_closed_lease_and_a_missing_one_are_doubted_and_the_end_of_a_process_is_not() {
    let closed = LeaseFacts { lease: Lease { holder: Holder::Closed, ..new(3).lease }, ..new(3) };
    for fact in [Fact::Lease(id(1), closed), Fact::LeaseMissing(id(1))] {
        let mut overseer = overseer();
        overseer.note(at(0), &naming(id(1)));
        overseer.learn(at(0), fact.clone());
        assert_ne!(ended(&mut overseer, 30_000), None);
        overseer.learn(at(30_000), Fact::StoreRolledBack);
        assert_eq!(ended(&mut overseer, 30_000), None, "{fact:?}");
        // The store still shows that end.
        overseer.learn(at(30_000), fact);
        assert_ne!(ended(&mut overseer, 60_000), None);
    }
    let mut overseer = fenced();
    let terminated = PodFacts { has_terminated: true, ..PodFacts::default() };
    overseer.learn(at(30_000), Fact::StoreRolledBack);
    overseer.learn(at(30_000), Fact::Pod("pod".into(), terminated));
    assert_eq!(ended(&mut overseer, 30_000), Some(Proof::ProcessEnded));
    overseer.learn(at(31_000), Fact::StoreRolledBack);
    overseer.learn(at(31_000), Fact::Lease(id(1), new(9)));
    assert_eq!(ended(&mut overseer, 31_000), Some(Proof::ProcessEnded));
}

#[test]
fn a_write_that_follows_a_revocation_shows_that_the_store_was_rolled_back() {
    let mut overseer = fenced();
    overseer.learn(at(31_000), Fact::Lease(id(1), new(4)));
    assert_eq!(ended(&mut overseer, 31_000), None);
    assert_eq!(overseer.living("pod"), Some(&id(1)));
    // A Lease was reported missing, and exists after all.
    let mut overseer = super::overseer();
    overseer.note(at(0), &naming(id(1)));
    overseer.learn(at(0), Fact::LeaseMissing(id(1)));
    assert_eq!(ended(&mut overseer, 30_000), Some(Proof::Fenced));
    overseer.learn(at(30_000), Fact::Lease(id(1), new(1)));
    assert_eq!(ended(&mut overseer, 30_000), None);
    // A late look at a revocation shows which write was the last.
    let mut overseer = super::overseer();
    overseer.note(at(0), &naming(id(1)));
    overseer.learn(at(0), Fact::Lease(id(1), new(1)));
    overseer.learn(at(1), Fact::Lease(id(1), revoked(5)));
    overseer.learn(at(2), Fact::Lease(id(1), new(5)));
    assert_eq!(overseer.living("pod"), None);
}

fn unrenewed(overseer: &mut Overseer, ms: u64, policy: Policy) -> usize {
    let pool = pool(worker(Presence::Ready), Protocol::Session);
    overseer.observed(at(ms), policy, pool).unrenewed
}

#[test]
fn grants_wait_for_a_renewal_of_every_session_that_was_there_at_the_start() {
    let exclusive = Policy::Exclusive;
    let mut overseer = overseer();
    overseer.note(at(0), &naming(id(1)));
    overseer.learn(at(0), Fact::Lease(id(1), new(3)));
    // The ledger does not name this session, and may have named it before a rollback.
    overseer.learn(at(0), Fact::Lease(SessionId::new("other", 2), new(4)));
    assert_eq!(unrenewed(&mut overseer, 0, exclusive), 2);
    overseer.learn(at(100), Fact::Lease(id(1), new(3)));
    assert_eq!(unrenewed(&mut overseer, 100, exclusive), 2, "the same write again");
    overseer.learn(at(200), Fact::Lease(id(1), new(5)));
    assert_eq!(unrenewed(&mut overseer, 200, exclusive), 1);
    // A session that opens later received no grant that could be lost.
    overseer.learn(at(300), Fact::Lease(SessionId::new("third", 3), new(6)));
    assert_eq!(unrenewed(&mut overseer, 300, exclusive), 1);
    let terminated = PodFacts { has_terminated: true, ..PodFacts::default() };
    overseer.learn(at(400), Fact::Pod("other".into(), terminated));
    assert_eq!(unrenewed(&mut overseer, 400, exclusive), 0);
    // After a rollback, all sessions are waited for again.
    overseer.learn(at(500), Fact::StoreRolledBack);
    overseer.learn(at(500), Fact::Lease(id(1), new(4)));
    assert_eq!(unrenewed(&mut overseer, 500, exclusive), 2);
}

#[test]
fn a_lease_that_was_missing_and_is_found_again_is_no_renewal() {
    let mut overseer = overseer();
    overseer.note(at(0), &naming(id(1)));
    overseer.learn(at(0), Fact::LeaseMissing(id(1)));
    assert_eq!(unrenewed(&mut overseer, 0, Policy::Exclusive), 1);
    // Its number is higher than none, and may be of a write from before the start.
    overseer.learn(at(100), Fact::Lease(id(1), new(3)));
    assert_eq!(unrenewed(&mut overseer, 100, Policy::Exclusive), 1);
    overseer.learn(at(200), Fact::Lease(id(1), new(4)));
    assert_eq!(unrenewed(&mut overseer, 200, Policy::Exclusive), 0);
}

#[test]
fn a_session_that_only_the_ledger_knows_is_waited_for_like_the_others() {
    let mut overseer = overseer();
    overseer.note(at(0), &naming(id(1)));
    assert_eq!([0, 100].map(|ms| unrenewed(&mut overseer, ms, Policy::Exclusive)), [1, 1]);
    // The first look at its Lease does not count, and what does not exist is forgotten.
    overseer.learn(at(200), Fact::Lease(id(1), new(3)));
    overseer.forget(|_| false);
    assert_eq!(unrenewed(&mut overseer, 200, Policy::Exclusive), 1);
    overseer.learn(at(300), Fact::Lease(id(1), new(4)));
    assert_eq!(unrenewed(&mut overseer, 300, Policy::Exclusive), 0);
}

#[test]
fn a_session_whose_pod_has_ended_is_not_waited_for_though_nobody_looked_at_its_lease() {
    let mut overseer = overseer();
    overseer.note(at(0), &naming(id(1)));
    let terminated = PodFacts { has_terminated: true, ..PodFacts::default() };
    overseer.learn(at(0), Fact::Pod("pod".into(), terminated));
    assert_eq!(unrenewed(&mut overseer, 0, Policy::Exclusive), 0);
}

#[test]
fn a_session_that_is_known_to_have_renewed_is_not_waited_for() {
    let mut overseer = overseer();
    overseer.note(at(0), &naming(id(1)));
    overseer.learn(at(0), Fact::Lease(id(1), LeaseFacts { has_renewed: true, ..new(3) }));
    assert_eq!(unrenewed(&mut overseer, 0, Policy::Exclusive), 0);
}

#[test]
fn sessions_that_open_before_the_first_write_of_the_ledger_are_not_waited_for() {
    let mut overseer = overseer();
    overseer.note(at(0), &ledger(START, 0));
    assert_eq!(unrenewed(&mut overseer, 0, Policy::Exclusive), 0);
    overseer.learn(at(1), Fact::Lease(id(1), new(3)));
    // Each turn begins with a fresh ledger, until one is written.
    overseer.note(at(2), &ledger(START + 2, 0));
    assert_eq!(unrenewed(&mut overseer, 2, Policy::Exclusive), 0);
    overseer.note(at(3), &ledger(START + 2, 1));
    assert_eq!(unrenewed(&mut overseer, 3, Policy::Exclusive), 0);
    // A ledger that others wrote is another one.
    overseer.note(at(4), &ledger(START + 1, 5));
    assert_eq!(unrenewed(&mut overseer, 4, Policy::Exclusive), 1);
}

#[test]
fn a_silent_session_is_waited_for_until_it_has_ended_or_at_least_once_for_two_renewals() {
    let awaited = |policy, ms| {
        let mut overseer = overseer();
        overseer.note(at(0), &naming(id(1)));
        overseer.learn(at(0), Fact::Lease(id(1), new(3)));
        assert_eq!(unrenewed(&mut overseer, 0, policy), 1);
        overseer.due(at(20_000), START, everything);
        overseer.learn(at(20_000), Fact::Revocation(id(1), LeaseVersion(3), Answer::Written));
        unrenewed(&mut overseer, ms, policy)
    };
    assert_eq!([21_404, 21_405].map(|ms| awaited(Policy::Exclusive, ms)), [1, 0]);
    assert_eq!([7_999, 8_000].map(|ms| awaited(Policy::AtLeastOnce, ms)), [1, 0]);
}

#[test]
fn a_ledger_in_which_nothing_was_written_hides_nothing_that_was_seen() {
    let mut overseer = overseer();
    overseer.note(at(0), &ledger(START, 9));
    overseer.note(at(1), &ledger(START + 7, 0));
    let back = ledger(START, 8);
    let seen = observed(&mut overseer, 2, &back);
    assert_eq!(seen.positions, [Position { incarnation: START, revision: 9 }].into());
    assert_eq!(decide(&back, &desired(), &seen).waiting, Some(Waiting::LedgerReset));
}

#[test]
fn a_held_lease_counts_from_a_rollback_on_since_later_renewals_may_be_lost() {
    let mut overseer = overseer();
    overseer.note(at(0), &naming(id(1)));
    overseer.learn(at(0), Fact::Lease(id(1), new(3)));
    // The session renews, the watch is late, and the store goes back to a copy from before.
    overseer.learn(at(8_000), Fact::StoreRolledBack);
    overseer.learn(at(8_000), Fact::Lease(id(1), new(3)));
    assert_eq!(overseer.due(at(27_999), START, everything), []);
    let due = overseer.due(at(28_000), START, everything);
    assert_eq!(due, [Effect::Revoke(id(1), LeaseVersion(3))]);
    // The same holds for a session whose revocation has no answer yet.
    overseer.learn(at(28_500), Fact::StoreRolledBack);
    assert_eq!(overseer.due(at(48_499), START, everything), []);
    let due = overseer.due(at(48_500), START, everything);
    assert_eq!(due, [Effect::Revoke(id(1), LeaseVersion(3))]);
}

#[test]
fn a_session_whose_numbers_do_not_rise_is_silent_and_delays_grants_no_longer() {
    let lies: [fn(u64) -> u64; 4] = [|_| 10, |_| u64::MAX, |s| 1_000_000 - s, |_| 0];
    for (lie, number) in lies.into_iter().enumerate() {
        let mut overseer = overseer();
        overseer.note(at(0), &naming(id(1)));
        let (mut waited, mut suspected) = (Vec::new(), Vec::new());
        for s in 0..25 {
            let facts = new(10 + s);
            let lease = Lease { number: number(s), ..facts.lease };
            if overseer.proofs().get(&id(1)).is_none_or(Watch::may_renew) {
                overseer.learn(at(s * 1_000), Fact::Lease(id(1), LeaseFacts { lease, ..facts }));
            }
            for effect in overseer.due(at(s * 1_000), START, everything) {
                let Effect::Revoke(session, version) = effect else { continue };
                assert_eq!((&session, version), (&id(1), LeaseVersion(10 + s)), "the newest one");
                let answer = Fact::Revocation(session, version, Answer::Written);
                overseer.learn(at(s * 1_000), answer);
            }
            waited.push(unrenewed(&mut overseer, s * 1_000, Policy::Exclusive));
            suspected.push(overseer.suspicions(at(s * 1_000), START).remove(&id(1)));
        }
        assert_eq!((waited[21], waited[22]), (1, 0), "lie {lie}: as a session that is silent");
        let uncounted = Some(Suspicion::UncountedRenewals);
        assert_eq!(suspected[2..4], [None, uncounted], "lie {lie}: from the third write on");
        assert_eq!(suspected[21..23], [uncounted, None], "lie {lie}: until it has ended");
    }
}

#[test]
fn old_reads_of_a_lease_raise_no_suspicion_once_its_newest_write_is_read_again() {
    let mut overseer = overseer();
    overseer.note(at(0), &naming(id(1)));
    let mut suspected = Vec::new();
    for n in [13, 11, 12, 13, 11, 12, 11, 13] {
        let facts = new(n);
        let lease = Lease { number: n, ..facts.lease };
        overseer.learn(at(0), Fact::Lease(id(1), LeaseFacts { lease, ..facts }));
        suspected.push(overseer.suspicions(at(0), START).remove(&id(1)));
    }
    let uncounted = Some(Suspicion::UncountedRenewals);
    assert_eq!(suspected, [None, None, None, None, None, None, uncounted, None]);
}

#[test]
fn a_session_that_claimed_more_than_the_swarm_is_awaited_by_the_terms_of_the_swarm() {
    let mut overseer = overseer();
    overseer.note(at(0), &naming(id(1)));
    let duration = Duration::from_secs(3_600);
    overseer.learn(at(0), Fact::Lease(id(1), LeaseFacts { duration, ..new(3) }));
    let exclusive = Policy::Exclusive;
    assert_eq!([0, 21_404].map(|ms| unrenewed(&mut overseer, ms, exclusive)), [1, 1]);
    assert_eq!(unrenewed(&mut overseer, 21_405, exclusive), 0);
}
