//! Positions that the ledger has reached, according to the sessions that acted on it.

use super::*;

const SLACK: Duration = Duration::from_secs(1);

fn at_position(incarnation: u64, revision: u64) -> Position {
    Position { incarnation, revision }
}

#[test]
fn a_session_that_has_ended_counts_only_where_it_was_ahead_of_the_ledger() {
    let positions = |revision| {
        let mut overseer = overseer();
        overseer.learn(at(0), Fact::Lease(id(1), held(1, START, revision)));
        let ended = PodFacts { has_terminated: true, ..PodFacts::default() };
        overseer.learn(at(0), Fact::Pod("pod".into(), ended));
        let seen = observed(&mut overseer, 0, &ledger(START, 5));
        assert_eq!(seen.evidence[&id(1)].ended, Some(Proof::ProcessEnded));
        seen.positions
    };
    let present = at_position(START, 5);
    assert_eq!(positions(9), [present, at_position(START, 9)].into());
    assert_eq!(positions(3), [present].into(), "the ledger has all that it was granted");
}

#[test]
fn a_view_of_an_earlier_incarnation_may_have_been_read_before_the_present_one() {
    let mut overseer = overseer();
    let view =
        |incarnation| Fact::View(id(1), Some(ViewMark { incarnation, revision: 1, digest: 0 }));
    overseer.learn(at(0), Fact::Lease(id(1), new(1)));
    overseer.learn(at(0), view(START - 1));
    overseer.learn(at(1), view(START));
    let now = ledger(START, 5);
    let seen = observed(&mut overseer, 1, &now);
    assert_eq!(seen.positions.first(), Some(&at_position(START - 1, 0)));
    assert_eq!(decide(&now, &desired(), &seen).waiting, Some(Waiting::LedgerReset));

    // The session itself can report which incarnation it acts on.
    overseer.learn(at(2), Fact::Lease(id(1), held(2, START, 4)));
    let seen = observed(&mut overseer, 2, &now);
    assert_eq!(decide(&now, &desired(), &seen).waiting, None);
}

#[test]
fn a_session_whose_lease_was_not_looked_at_yet_may_act_on_its_view() {
    let mut overseer = overseer();
    let mark = ViewMark { incarnation: START - 1, revision: 4, digest: 0 };
    overseer.learn(at(0), Fact::View(id(1), Some(mark)));
    let fresh = ledger(START, 0);
    let seen = observed(&mut overseer, 0, &fresh);
    assert_eq!(seen.positions, [at_position(START - 1, 0)].into());
    assert_eq!(decide(&fresh, &desired(), &seen).waiting, Some(Waiting::LedgerReset));
    assert_eq!(overseer.due(at(0), START, |_| false), [Effect::LookUp(id(1))]);

    // The session has ended, and its view no longer counts.
    overseer.learn(at(0), Fact::LeaseMissing(id(1)));
    let seen = observed(&mut overseer, 60_000, &fresh);
    assert_eq!(seen.positions, [].into());
}

#[test]
fn a_view_of_a_lost_ledger_counts_until_its_lease_was_looked_at_though_another_was_published() {
    let mut overseer = overseer();
    let view =
        |incarnation| Fact::View(id(1), Some(ViewMark { incarnation, revision: 1, digest: 0 }));
    overseer.learn(at(0), view(START - 1));
    overseer.learn(at(1), view(START));
    let now = ledger(START, 5);
    let lost = [at_position(START - 1, 0), at_position(START, 5)].into();
    assert_eq!(observed(&mut overseer, 1, &now).positions, lost);
    overseer.learn(at(2), Fact::Lease(id(1), new(1)));
    assert_eq!(observed(&mut overseer, 2, &now).positions, lost, "it has acknowledged nothing");

    overseer.learn(at(3), Fact::Lease(id(1), held(2, START, 4)));
    let seen = observed(&mut overseer, 3, &now);
    assert_eq!(decide(&now, &desired(), &seen).waiting, None);
}

#[test]
fn a_pool_that_waits_for_a_session_wakes_up_when_it_need_not_wait_any_more() {
    let mut overseer = overseer();
    let facts = held(1, START - 1, 4);
    let facts = LeaseFacts { duration: facts.duration * 3, ..facts };
    overseer.learn(at(0), Fact::Lease(id(1), facts));
    let now = ledger(START, 5);
    assert_eq!(observed(&mut overseer, 0, &now).positions.len(), 2);
    overseer.learn(at(0), Fact::Revocation(id(1), LeaseVersion(1), Answer::Written));
    assert!(overseer.due(at(0), START, everything).is_empty());

    let wait = LeaseTerms::default().fence_wait();
    assert_eq!(overseer.wakes_at(), Some(at(0).after(wait)));
    let ms = u64::try_from(wait.as_millis()).unwrap();
    assert_eq!(observed(&mut overseer, ms, &now).positions.len(), 2);
    assert_eq!(observed(&mut overseer, ms + 1, &now).positions, [at_position(START, 5)].into());
    // Its own jobs wait as long as it claims.
    assert!(overseer.due(at(ms + 1), START, everything).is_empty());
    assert_eq!(overseer.wakes_at(), Some(at(0).after((wait * 3).saturating_sub(SLACK * 2))));
}

#[test]
fn a_reset_that_another_session_caused_leaves_the_word_of_an_honest_one() {
    let mut overseer = overseer();
    let ahead = SessionId::new("other", 2);
    overseer.learn(at(0), Fact::Lease(ahead, held(1, START, 9)));
    overseer.learn(at(0), Fact::Lease(id(1), new(1)));
    observed(&mut overseer, 0, &ledger(START, 5));
    let next = START + 1_000_000;
    observed(&mut overseer, 1, &ledger(next, 7));

    // The session has acted on the present incarnation, and then the store is rolled back.
    overseer.learn(at(2), Fact::Lease(id(1), held(2, next, 7)));
    let seen = observed(&mut overseer, 2, &ledger(next, 3));
    assert_eq!(overseer.suspicions(at(2), START).get(&id(1)), None);
    assert_eq!(seen.workers[&Slot(0)].session, Some(id(1)));
}

#[test]
fn a_worker_is_stale_until_its_session_acts_on_the_newest_view() {
    let mut overseer = overseer();
    let mut now = naming(id(1));
    now.cells.revision = 9;
    let view = |incarnation, revision| {
        Fact::View(id(1), Some(ViewMark { incarnation, revision, digest: 0 }))
    };
    overseer.learn(at(0), Fact::Lease(id(1), held(1, START, 3)));
    assert_eq!(overseer.stale(&now), ["w-0"], "nothing was published to it");
    overseer.learn(at(0), view(START, 4));
    assert_eq!(overseer.stale(&now), ["w-0"], "it acts on an earlier view");
    overseer.learn(at(1), Fact::Lease(id(1), held(2, START, 4)));
    assert!(overseer.stale(&now).is_empty());
    overseer.learn(at(1), view(START - 1, 4));
    assert_eq!(overseer.stale(&now), ["w-0"], "the view is of another incarnation");
    assert!(overseer.stale(&naming(SessionId::plain("pod"))).is_empty(), "it does not say so");
    let lease = Lease { holder: Holder::Revoked, ..new(3).lease };
    overseer.learn(at(2), Fact::Lease(id(1), LeaseFacts { lease, ..new(3) }));
    assert!(overseer.stale(&now).is_empty(), "nothing is expected of it");
}

#[test]
fn another_incarnation_waits_by_the_longest_terms_that_were_ever_asked_for() {
    let long = LeaseTerms { duration: Duration::from_mins(1), ..LeaseTerms::default() };
    let mut overseer = Overseer::new(long);
    overseer.set_terms(LeaseTerms::default());
    let lost = ledger(START, 7);
    observed(&mut overseer, 0, &lost);
    let behind = ledger(START, 3);
    let seen = observed(&mut overseer, 1, &behind);
    let next = decide(&behind, &desired(), &seen).ledger;
    let waits = next.cells.jobs.values().map(|record| match record.cell {
        Cell::Quarantined { span, .. } => span,
        _ => Duration::ZERO,
    });
    assert_eq!(waits.min(), Some(long.fence_wait()), "somebody may have begun under those");
}

#[test]
fn a_session_of_another_incarnation_is_waited_out_by_the_longest_terms_too() {
    let long = LeaseTerms { duration: Duration::from_mins(1), ..LeaseTerms::default() };
    let mut overseer = Overseer::new(long);
    overseer.set_terms(LeaseTerms::default());
    let claims = LeaseFacts { duration: long.duration, ..held(1, START - 1, 3) };
    overseer.learn(at(0), Fact::Lease(id(1), claims));
    // A revocation keeps the number of the last renewal.
    let revoked = Lease { holder: Holder::Revoked, number: 1, ..held(2, START - 1, 3).lease };
    let revoked = LeaseFacts { lease: revoked, ..held(2, START - 1, 3) };
    let now = ledger(START, 5);
    observed(&mut overseer, 0, &now);
    overseer.learn(at(1), Fact::Lease(id(1), revoked));
    let waits = |overseer: &mut Overseer, ms| {
        let seen = observed(overseer, ms, &now);
        decide(&now, &desired(), &seen).waiting
    };
    let wait: u64 = long.fence_wait().as_millis().try_into().unwrap();
    assert_eq!(waits(&mut overseer, wait - 1), Some(Waiting::LedgerReset));
    assert_eq!(waits(&mut overseer, wait + 1), None);
}

#[test]
fn what_was_acknowledged_in_another_incarnation_acknowledges_nothing_in_this_one() {
    let mut overseer = overseer();
    overseer.learn(at(0), Fact::Lease(id(1), held(1, START - 1, 3)));
    let seen = observed(&mut overseer, 0, &ledger(START, 5));
    assert_eq!(seen.positions.first(), Some(&at_position(START - 1, 3)), "it is believed");
    assert_eq!(seen.evidence[&id(1)].acked, 0);
    let acked = |incarnation| overseer.proofs().get(&id(1)).unwrap().evidence(incarnation).acked;
    assert_eq!((acked(START), acked(START - 1)), (0, 3));
}

#[test]
fn names_of_what_still_stops_count_only_for_a_view_that_the_ledger_has_published() {
    let stopping = |incarnation, reads| {
        let mut facts = held(1, incarnation, 3);
        facts.lease.ack.stopping.reads = reads;
        facts
    };
    let proved = |facts| {
        let mut overseer = overseer();
        let now = ledger(START, 5);
        observed(&mut overseer, 0, &now);
        overseer.learn(at(1), Fact::Lease(id(1), facts));
        let seen = observed(&mut overseer, 1, &now);
        let why = overseer.suspicions(at(1), START).into_values().next();
        (seen.evidence[&id(1)].released(&"a".parse().unwrap()), why)
    };
    assert_eq!(proved(stopping(START, 5)), (5, None));
    assert_eq!(proved(stopping(START, 6)), (0, Some(Suspicion::UnpublishedRevision)));
    assert_eq!(proved(stopping(START - 1, 4)), (0, Some(Suspicion::ForeignIncarnation)));
}

#[test]
fn a_store_that_forgot_what_a_session_still_stops_was_rolled_back() {
    let mut overseer = overseer();
    let mut facts = held(1, START, 3);
    facts.lease.ack.stopping.reads = 9;
    overseer.learn(at(0), Fact::Lease(id(1), facts));
    let behind = ledger(START, 5);
    let seen = observed(&mut overseer, 0, &behind);
    assert_eq!(decide(&behind, &desired(), &seen).waiting, Some(Waiting::LedgerReset));
    assert_eq!(seen.evidence[&id(1)].acked, 0);
}

#[test]
fn the_ledger_says_how_long_to_wait_for_a_lease_that_is_gone() {
    let wait_by = |longest_lease| {
        let mut overseer = overseer();
        let ledger = Ledger { longest_lease, ..naming(id(1)) };
        overseer.note(at(0), &ledger);
        overseer.learn(at(0), Fact::LeaseMissing(id(1)));
        let observed = overseer.observed(at(0), Policy::Exclusive, PoolFacts::new([], START));
        let long = LeaseTerms { duration: observed.longest_lease, ..LeaseTerms::default() };
        assert_eq!(observed.fence_wait, long.fence_wait());
        assert_eq!(observed.lease, LeaseTerms::default().duration);
        assert_eq!(overseer.wakes_at(), Some(at(0).after(long.fence_wait())));
        observed.longest_lease
    };
    // An older duration was recorded, and a shorter one is requested now.
    assert_eq!(wait_by(Duration::ZERO), LeaseTerms::default().duration);
    assert_eq!(wait_by(Duration::from_secs(5)), LeaseTerms::default().duration);
    let minute = Duration::from_secs(60);
    assert_eq!(wait_by(minute), minute);
    assert_eq!(wait_by(Duration::MAX), CLAIM_MAX, "whatever somebody wrote there");
}
