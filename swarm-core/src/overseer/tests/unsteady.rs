//! Workers that end again and again.

use super::*;

/// Returns whether the worker in the only slot is unsteady, and its presence.
fn seen(overseer: &mut Overseer, ms: u64, presence: Presence) -> (bool, Presence) {
    overseer.note(at(ms), &ledger(START, 1));
    let pool = pool(worker(presence), Protocol::Session);
    let seen = overseer.observed(at(ms), Policy::Exclusive, pool);
    (seen.unsteady.contains(&Slot(0)), seen.workers[&Slot(0)].presence)
}

fn begin(overseer: &mut Overseer, ms: u64, nonce: u64) -> (bool, Presence) {
    overseer.learn(at(ms), Fact::Lease(id(nonce), new(1)));
    seen(overseer, ms, Presence::Ready)
}

fn end(overseer: &mut Overseer, ms: u64, nonce: u64) -> (bool, Presence) {
    let mut closed = new(2);
    closed.lease.holder = Holder::Closed;
    overseer.learn(at(ms), Fact::Lease(id(nonce), closed));
    seen(overseer, ms, Presence::Ready)
}

const STEADY: (bool, Presence) = (false, Presence::Ready);
const UNSTEADY: (bool, Presence) = (true, Presence::Ready);

#[test]
fn a_worker_that_ended_twice_has_to_live_for_a_time_that_doubles() {
    let mut overseer = overseer();
    assert_eq!(begin(&mut overseer, 0, 1), STEADY);
    assert_eq!(end(&mut overseer, 1_000, 1), (false, NOT_READY), "its jobs wait for it");
    assert_eq!(begin(&mut overseer, 2_000, 2), STEADY);
    assert_eq!(end(&mut overseer, 3_000, 2), (false, Presence::Draining), "others get its jobs");
    let mut ms = 4_000;
    for (nonce, wait) in (3..).zip([10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000]) {
        assert_eq!(begin(&mut overseer, ms, nonce), UNSTEADY, "{wait}");
        overseer.due(at(ms), START, |_| false);
        assert_eq!(overseer.lives.wakes_at(at(ms)), Some(at(ms + wait)));
        assert_eq!(seen(&mut overseer, ms + wait - 1, Presence::Ready), UNSTEADY, "{wait}");
        assert_eq!(seen(&mut overseer, ms + wait, Presence::Ready), STEADY, "{wait}");
        assert_eq!(overseer.lives.wakes_at(at(ms + wait)), None);
        ms += wait;
        assert_eq!(end(&mut overseer, ms, nonce), (false, Presence::Draining), "{wait}");
    }
    begin(&mut overseer, ms, 20);
    assert_eq!(end(&mut overseer, ms + 600_000, 20), (false, NOT_READY), "it was steady for long");
}

#[test]
fn a_session_that_another_one_replaced_has_ended() {
    let mut overseer = overseer();
    for nonce in 1..3 {
        let began = Began { order: nonce, created_s: None };
        overseer.learn(at(nonce), Fact::Lease(id(nonce), LeaseFacts { began, ..new(1) }));
        assert_eq!(seen(&mut overseer, nonce, Presence::Ready), STEADY);
    }
    let began = Began { order: 3, created_s: None };
    overseer.learn(at(3), Fact::Lease(id(3), LeaseFacts { began, ..new(1) }));
    assert_eq!(seen(&mut overseer, 3, Presence::Ready), UNSTEADY);
}

#[test]
fn an_end_that_was_asked_for_does_not_count() {
    for drains_itself in [false, true] {
        let mut overseer = overseer();
        for nonce in 1..9 {
            assert_eq!(begin(&mut overseer, 0, nonce), STEADY);
            if drains_itself {
                let mut drains = new(2);
                drains.lease.ack.is_draining = true;
                overseer.learn(at(0), Fact::Lease(id(nonce), drains));
                seen(&mut overseer, 0, Presence::Ready);
            } else {
                seen(&mut overseer, 0, Presence::Leaving(Duration::ZERO));
            }
            assert!(!end(&mut overseer, 0, nonce).0);
        }
    }
}
