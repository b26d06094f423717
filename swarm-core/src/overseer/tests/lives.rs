//! Ends of sessions, and the live sessions that may receive jobs.

use super::*;

fn pod(is_lost: bool, has_terminated: bool) -> Fact {
    Fact::Pod("pod".into(), PodFacts { is_lost, has_terminated, ..PodFacts::default() })
}

#[test]
fn of_two_living_sessions_of_a_pod_the_newer_one_is_given_jobs() {
    for [older, newer] in [[1, 2], [2, 1]] {
        let mut overseer = overseer();
        for (nonce, order) in [(older, 1), (newer, 2)] {
            let began = Began { order, created_s: None };
            overseer.learn(at(0), Fact::Lease(id(nonce), LeaseFacts { began, ..new(1) }));
        }
        let seen = observed(&mut overseer, 0, &ledger(START, 1));
        assert!(seen.evidence.values().all(|known| known.ended.is_none()), "both are alive");
        assert_eq!(seen.workers[&Slot(0)].session, Some(id(newer)));
    }
}

#[test]
fn a_session_that_drains_keeps_its_jobs_and_gets_no_more() {
    let seen = |presence| {
        let mut overseer = overseer();
        let mut facts = new(1);
        facts.lease.ack.is_draining = true;
        overseer.learn(at(0), Fact::Lease(id(1), facts));
        let pool = pool(worker(presence), Protocol::Session);
        let seen = overseer.observed(at(0), Policy::Exclusive, pool).workers;
        (seen[&Slot(0)].presence, seen[&Slot(0)].session.clone())
    };
    assert_eq!(seen(Presence::Ready), (Presence::Draining, Some(id(1))));
    assert_eq!(seen(NOT_READY), (Presence::Draining, Some(id(1))));
    let away = Presence::Away(Duration::from_secs(3));
    assert_eq!(seen(away), (away, Some(id(1))), "its pod says more");
}

#[test]
fn a_revocation_that_failed_is_no_proof_and_is_asked_for_again() {
    let mut overseer = overseer();
    overseer.learn(at(0), Fact::Lease(id(1), new(1)));
    let revoke = [Effect::Revoke(id(1), LeaseVersion(1))];
    assert_eq!(overseer.due(at(20_000), START, everything), revoke);
    assert_eq!(overseer.due(at(20_001), START, everything), [], "its answer is not known");
    assert_eq!(overseer.wakes_at(), Some(at(40_000)));
    assert_eq!(overseer.due(at(39_999), START, everything), []);
    assert_eq!(overseer.due(at(40_000), START, everything), revoke, "it never came");
    assert_eq!(overseer.due(at(40_001), START, everything), []);
    overseer.learn(at(20_001), Fact::Revocation(id(1), LeaseVersion(1), Answer::Failed));
    assert_eq!(overseer.due(at(90_000), START, everything), revoke);
    let seen = observed(&mut overseer, 90_000, &ledger(START, 1));
    assert_eq!(seen.evidence[&id(1)].ended, None, "it may renew all the same");
}

#[test]
fn a_plain_worker_has_ended_once_its_pod_is_gone() {
    let plain = SessionId::plain("pod");
    let ledger = naming(plain.clone());
    let mut overseer = overseer();
    let known = |overseer: &mut Overseer| {
        let known = observed(overseer, 0, &ledger).evidence[&plain].clone();
        (known.ended, known.gone_for)
    };
    assert_eq!(known(&mut overseer), (None, None));
    overseer.learn(at(0), pod(true, false));
    assert_eq!(known(&mut overseer), (Some(Proof::ProcessEnded), Some(Duration::ZERO)));
}

#[test]
fn a_session_whose_lease_was_never_seen_is_judged_by_its_pod() {
    let ledger = naming(id(1));
    let mut overseer = overseer();
    let known = |overseer: &mut Overseer, ms| {
        let known = observed(overseer, ms, &ledger).evidence.get(&id(1)).cloned();
        known.map(|known| (known.ended, known.gone_for))
    };
    assert_eq!(known(&mut overseer, 0), Some((None, None)));
    overseer.learn(at(0), pod(true, false));
    assert_eq!(known(&mut overseer, 0), Some((None, Some(Duration::ZERO))));
    assert_eq!(known(&mut overseer, 1_000), Some((None, Some(Duration::from_secs(1)))));
    overseer.learn(at(1_000), pod(true, true));
    let ended = Some(Proof::ProcessEnded);
    assert_eq!(known(&mut overseer, 1_000), Some((ended, Some(Duration::from_secs(1)))));
}

/// Returns an overseer with `count` sessions that were last seen at second 0.
fn silent(count: u64) -> Overseer {
    let mut overseer = overseer();
    for nonce in 0..count {
        overseer.learn(at(0), Fact::Lease(id(nonce), new(1)));
    }
    overseer
}

#[test]
fn while_the_brake_holds_the_overseer_wakes_when_it_lets_a_session_through() {
    let mut overseer = silent(5);
    assert_eq!(overseer.due(at(20_000), START, everything), []);
    assert_eq!(overseer.wakes_at(), Some(at(60_000)));
    assert_eq!(overseer.held_until(), overseer.wakes_at());
    let revoke = |nonce| [Effect::Revoke(id(nonce), LeaseVersion(1))];
    assert_eq!(overseer.due(at(60_000), START, everything), revoke(0));
    overseer.learn(at(60_000), Fact::Revocation(id(0), LeaseVersion(1), Answer::Written));
    assert_eq!(overseer.due(at(60_001), START, everything), []);
    assert_eq!(overseer.held_until(), Some(at(80_000)), "one a lease");
    assert_eq!(overseer.wakes_at(), overseer.held_until());
}

#[test]
fn after_a_failed_request_it_is_looked_again_when_its_own_failure_explains_nothing() {
    let mut overseer = silent(1);
    overseer.learn(at(10_000), Fact::StoreFailed);
    assert_eq!(overseer.due(at(20_000), START, everything), []);
    assert_eq!(overseer.wakes_at(), Some(at(30_000)));
    assert_eq!(overseer.due(at(30_000), START, everything).len(), 1);
}

#[test]
fn a_silent_session_that_no_copy_shows_is_looked_up_again_and_not_all_the_time() {
    let mut overseer = silent(1);
    overseer.note(at(0), &naming(id(0)));
    let nothing = |_: &SessionId| false;
    assert_eq!(overseer.due(at(20_000), START, nothing), [Effect::LookUp(id(0))]);
    assert_eq!(overseer.wakes_at(), Some(at(24_000)));
}
