//! Facts as input, and the resulting evidence and effects as output.

mod lives;
mod positions;
mod rollback;
mod unsteady;

use std::time::Duration;

use super::*;
use crate::handover::{Ack, Holder, Lease, LeaseVersion, Record};
use crate::session::{Details, Former};
use crate::{Desired, JobName, Presence, SlotRecord, Timing, Waiting, WorkerSeen, decide, jobs};

const NOT_READY: Presence = Presence::NotReady(Duration::ZERO);
const START: u64 = 1_790_000_000_000_000;

fn at(ms: u64) -> Moment {
    Moment(Duration::from_secs(1_000) + Duration::from_millis(ms))
}

fn id(nonce: u64) -> SessionId {
    SessionId::new("pod", nonce)
}

fn held(version: u64, incarnation: u64, revision: u64) -> LeaseFacts {
    let ack = Ack { incarnation, revision, ..Ack::default() };
    let (version, number) = (LeaseVersion(version), version);
    LeaseFacts {
        lease: Lease { version, holder: Holder::Session, number, ack },
        duration: LeaseTerms::default().duration,
        began: Began::default(),
        former: Former::default(),
        has_renewed: false,
        pause: Duration::ZERO,
    }
}

fn new(version: u64) -> LeaseFacts {
    held(version, 0, 0)
}

fn overseer() -> Overseer {
    Overseer::new(LeaseTerms::default())
}

/// A ledger of this incarnation and revision.
fn ledger(incarnation: u64, revision: u64) -> Ledger {
    let mut ledger = Ledger::new(incarnation);
    ledger.cells.revision = revision;
    ledger
}

/// A ledger in which `session` fills the only slot.
fn naming(session: SessionId) -> Ledger {
    let mut ledger = ledger(START, 1);
    let record = SlotRecord {
        worker: "w-0".into(),
        session,
        joined: 0,
        version: 1,
        last_handoff_version: 0,
    };
    ledger.slots.insert(Slot(0), record);
    ledger
}

fn worker(presence: Presence) -> WorkerFacts {
    let (name, pod) = ("w-0".into(), Some("pod".into()));
    WorkerFacts { name, presence, pod, is_wanted: true, is_replaced: false }
}

fn pool(facts: WorkerFacts, protocol: Protocol) -> PoolFacts {
    let pool = PoolFacts::new([(Slot(0), facts)], START + 60_000_000);
    PoolFacts { workers_desired: 1, protocol, ..pool }
}

fn desired() -> Desired {
    let policy = Policy::Exclusive;
    let timing = Timing { initial_wait: Duration::ZERO, ..Timing::default() };
    Desired { jobs: jobs(["a", "b"]).unwrap(), policy, timing, ..Desired::default() }
}

fn observed(overseer: &mut Overseer, ms: u64, ledger: &Ledger) -> Observed {
    overseer.note(at(ms), ledger);
    let pool = pool(worker(Presence::Ready), Protocol::Session);
    overseer.observed(at(ms), Policy::Exclusive, pool)
}

fn everything(_: &SessionId) -> bool {
    true
}

#[test]
fn a_silent_session_is_revoked_and_waited_out_while_others_live() {
    let mut overseer = overseer();
    for nonce in [1, 2] {
        overseer.learn(at(0), Fact::Lease(id(nonce), new(1)));
    }
    assert_eq!(overseer.wakes_at(), Some(at(20_000)));
    overseer.learn(at(19_000), Fact::Lease(id(2), new(2)));
    assert_eq!(overseer.due(at(19_999), START, everything), []);
    let due = overseer.due(at(20_000), START, everything);
    assert_eq!(due, [Effect::Revoke(id(1), LeaseVersion(1))]);
    overseer.learn(at(20_001), Fact::Revocation(id(1), LeaseVersion(1), Answer::Written));
    let ended = |overseer: &mut Overseer, ms| {
        let seen = observed(overseer, ms, &ledger(START, 1));
        [1, 2].map(|nonce| seen.evidence[&id(nonce)].ended)
    };
    assert_eq!(ended(&mut overseer, 21_404), [None, None]);
    assert_eq!(ended(&mut overseer, 21_405), [Some(Proof::Fenced), None]);
}

#[test]
fn each_session_is_waited_out_by_its_own_longest_claim_and_no_other() {
    let mut overseer = overseer();
    let claims = |secs| LeaseFacts { duration: Duration::from_secs(secs), ..new(1) };
    overseer.learn(at(0), Fact::Lease(id(1), claims(60)));
    overseer.learn(at(0), Fact::Lease(id(1), claims(5)));
    overseer.learn(at(0), Fact::Lease(id(2), claims(20)));
    overseer.learn(at(0), Fact::Lease(id(3), claims(1_000_000)));
    let silent = |overseer: &mut Overseer, ms| -> Vec<_> {
        let due = overseer.due(at(ms), START, everything);
        let revoked = due.into_iter().filter_map(|effect| match effect {
            Effect::Revoke(session, version) => {
                let written = Fact::Revocation(session.clone(), version, Answer::Written);
                overseer.learn(at(ms), written);
                Some(session)
            }
            Effect::LookUp(_) => None,
        });
        revoked.collect()
    };
    assert_eq!(silent(&mut overseer, 20_000), [id(2)]);
    assert_eq!(silent(&mut overseer, 59_999), []);
    assert_eq!(silent(&mut overseer, 60_000), [id(1)]);
    assert_eq!(silent(&mut overseer, 3_599_999), []);
    assert_eq!(silent(&mut overseer, 3_600_000), [id(3)], "an hour at most");
    let seen = observed(&mut overseer, 3_600_001, &ledger(START, 1));
    assert_eq!(seen.evidence[&id(1)].ended, Some(Proof::Fenced));
    assert_eq!(seen.evidence[&id(3)].ended, None);
}

#[test]
fn a_session_that_claims_a_longer_lease_keeps_what_it_has_and_gets_no_more() {
    let mut overseer = overseer();
    let long = LeaseFacts { duration: Duration::from_secs(21), ..new(1) };
    overseer.learn(at(0), Fact::Lease(id(1), long));
    let seen = observed(&mut overseer, 1, &ledger(START, 1)).workers[&Slot(0)].clone();
    assert_eq!((seen.presence, seen.session), (NOT_READY, None));
    let why = Suspicion::LongLease(Duration::from_secs(21));
    assert_eq!(overseer.suspicions(at(2), START), [(id(1), why)].into());
}

#[test]
fn a_lease_that_no_copy_shows_is_looked_up_and_waited_out_once_it_is_missing() {
    let mut overseer = overseer();
    let named = naming(id(1));
    overseer.note(at(0), &named);
    let nothing = |_: &SessionId| false;
    assert_eq!(overseer.due(at(0), START, nothing), [Effect::LookUp(id(1))]);
    assert_eq!(overseer.due(at(0), START, everything), []);
    overseer.learn(at(0), Fact::LeaseMissing(id(1)));
    assert_eq!(overseer.due(at(1), START, nothing), []);
    let ended = |overseer: &mut Overseer, ms| observed(overseer, ms, &named).evidence[&id(1)].ended;
    assert_eq!(ended(&mut overseer, 21_404), None);
    assert_eq!(ended(&mut overseer, 21_405), Some(Proof::Fenced));
}

#[test]
fn a_successor_in_the_same_pod_proves_the_end_and_names_the_culprit() {
    let mut overseer = overseer();
    let began = |order| Began { order, created_s: None };
    let culprit = Some("a".parse::<JobName>().unwrap());
    let one = PodFacts { containers: Containers::One, ..PodFacts::default() };
    overseer.learn(at(0), Fact::Pod("pod".into(), one));
    overseer.learn(at(0), Fact::Lease(id(1), LeaseFacts { began: began(1), ..new(1) }));
    let former = Former { culprit: culprit.clone(), ..Former::default() };
    let later = LeaseFacts { began: began(2), former, ..new(2) };
    overseer.learn(at(0), Fact::Lease(id(2), later.clone()));
    overseer.learn(at(0), Fact::Lease(SessionId::new("other", 3), later));
    let seen = observed(&mut overseer, 1, &ledger(START, 1));
    let former = &seen.evidence[&id(1)];
    assert_eq!((former.ended, &former.culprit), (Some(Proof::ProcessEnded), &culprit));
    assert_eq!(seen.evidence[&id(2)].ended, None);
    assert_eq!(seen.evidence[&SessionId::new("other", 3)].ended, None);
    assert_eq!(seen.workers[&Slot(0)].session, Some(id(2)), "the newest is the living one");
}

#[test]
fn of_two_containers_a_later_session_proves_the_end_only_of_one_that_it_names() {
    let ended = |containers, predecessor: Option<u64>| {
        let mut overseer = overseer();
        let began = |order| Began { order, created_s: Some(100) };
        overseer.learn(at(0), Fact::Lease(id(1), LeaseFacts { began: began(1), ..new(1) }));
        let former = Former { session: predecessor.map(id), ..Former::default() };
        let later = LeaseFacts { began: began(2), former, ..new(2) };
        overseer.learn(at(0), Fact::Lease(id(2), later));
        let pod = PodFacts { containers, ..PodFacts::default() };
        overseer.learn(at(0), Fact::Pod("pod".into(), pod));
        observed(&mut overseer, 1, &ledger(START, 1)).evidence[&id(1)].ended.is_some()
    };
    assert!(!ended(Containers::Unknown, None));
    assert!(!ended(Containers::Unknown, Some(3)), "it names a third");
    assert!(ended(Containers::Unknown, Some(1)));
    assert!(ended(Containers::One, None));
    assert!(ended(Containers::AllSince(105), None));
    assert!(!ended(Containers::AllSince(104), None), "clocks differ");
}

#[test]
fn a_pod_that_is_lost_proves_nothing_and_one_that_has_terminated_proves_it_permanently() {
    let mut overseer = overseer();
    overseer.learn(at(0), Fact::Lease(id(1), new(1)));
    let pod = |is_lost, has_terminated| {
        Fact::Pod("pod".into(), PodFacts { is_lost, has_terminated, ..PodFacts::default() })
    };
    let known = |overseer: &mut Overseer, ms| {
        let known = observed(overseer, ms, &ledger(START, 1)).evidence[&id(1)].clone();
        (known.ended, known.gone_for)
    };
    overseer.learn(at(0), pod(true, false));
    assert_eq!(known(&mut overseer, 19_999), (None, None), "it renews");
    assert_eq!(known(&mut overseer, 20_000), (None, Some(Duration::ZERO)));
    assert_eq!(known(&mut overseer, 21_000), (None, Some(Duration::from_secs(1))));
    overseer.learn(at(21_000), pod(true, true));
    overseer.learn(at(21_000), pod(true, false));
    assert_eq!(known(&mut overseer, 21_000).0, Some(Proof::ProcessEnded));
}

#[test]
fn nobody_is_right_that_a_node_is_off_while_a_session_on_it_is_heard_of() {
    let mut overseer = overseer();
    overseer.learn(at(0), Fact::Lease(id(1), new(1)));
    let off = PodFacts { is_lost: true, is_node_off: true, ..PodFacts::default() };
    overseer.learn(at(0), Fact::Pod("pod".into(), off));
    let ended = |overseer: &mut Overseer, ms| {
        let seen = observed(overseer, ms, &ledger(START, 1));
        (seen.evidence[&id(1)].ended, overseer.is_in_doubt(at(ms)))
    };
    assert_eq!(ended(&mut overseer, 11_999), (None, true));
    assert_eq!(ended(&mut overseer, 12_000), (Some(Proof::ProcessEnded), false));
}

#[test]
fn a_worker_counts_by_its_session_and_its_pod() {
    let seen = |overseer: &mut Overseer, presence, protocol, is_wanted| -> Option<WorkerSeen> {
        let facts = WorkerFacts { is_wanted, ..worker(presence) };
        let (ledger, pool) = (ledger(START, 1), pool(facts, protocol));
        overseer.note(at(0), &ledger);
        overseer.observed(at(0), Policy::Exclusive, pool).workers.get(&Slot(0)).cloned()
    };
    let age = Duration::from_secs(3);
    let ending = Presence::Ending { age, grace: age };
    let mut with = overseer();
    with.learn(at(0), Fact::Lease(id(1), new(1)));
    let mut without = overseer();
    for (presence, expected) in [
        (Presence::Ready, Presence::Ready),
        (NOT_READY, NOT_READY),
        (Presence::Leaving(age), Presence::Draining),
        (Presence::Away(age), Presence::Away(age)),
        (ending, ending),
    ] {
        for protocol in [Protocol::Plain, Protocol::Session] {
            let worker = seen(&mut with, presence, protocol, true).unwrap();
            assert_eq!((worker.presence, worker.session), (expected, Some(id(1))));
        }
        let plain = seen(&mut without, presence, Protocol::Plain, true).unwrap();
        let presence = if presence == ending { Presence::Away(age) } else { presence };
        assert_eq!((plain.presence, plain.session), (presence, Some(SessionId::plain("pod"))));
    }
    let without = |presence, is_wanted| {
        seen(&mut overseer(), presence, Protocol::Session, is_wanted).map(|it| it.presence)
    };
    assert_eq!(without(Presence::Ready, true), Some(NOT_READY));
    assert_eq!(without(Presence::Leaving(age), true), Some(Presence::Away(age)));
    assert_eq!(without(ending, true), Some(Presence::Away(age)));
    assert_eq!(without(Presence::Leaving(age), false), None);
    let mut revoked = overseer();
    let lease = Lease { holder: Holder::Revoked, ..new(1).lease };
    revoked.learn(at(0), Fact::Lease(id(1), LeaseFacts { lease, ..new(1) }));
    for presence in [Presence::Ready, NOT_READY, Presence::Away(age), ending] {
        let worker = seen(&mut revoked, presence, Protocol::Session, true).unwrap();
        assert_eq!((worker.presence, worker.session), (Presence::Draining, None), "{presence:?}");
    }
}

#[test]
fn a_session_that_was_there_before_may_reset_the_ledger_once_and_a_later_one_never() {
    let mut overseer = overseer();
    let ahead = |version| held(version, START, 9);
    overseer.learn(at(0), Fact::Lease(id(1), ahead(1)));
    let behind = ledger(START, 5);
    let seen = observed(&mut overseer, 0, &behind);
    let decision = decide(&behind, &desired(), &seen);
    assert_eq!(decision.waiting, Some(Waiting::LedgerReset));
    let next = decision.ledger;
    assert!(behind.position() < next.position());

    // The same session claims again to be ahead, and so does a session that began later.
    let further = |version| held(version, next.cells.incarnation, u64::MAX);
    overseer.note(at(1), &next);
    overseer.learn(at(1), Fact::Lease(id(1), further(2)));
    let seen = observed(&mut overseer, 1, &next);
    assert!(seen.positions.iter().all(|known| *known <= next.position()), "{:?}", seen.positions);
    overseer.learn(at(2), Fact::Lease(SessionId::new("later", 2), further(3)));
    let seen = observed(&mut overseer, 2, &next);
    assert!(seen.positions.iter().all(|known| *known <= next.position()));
    let why = overseer.suspicions(at(2), START).into_values().collect::<Vec<_>>();
    assert_eq!(why, [Suspicion::UnpublishedRevision; 2]);
    assert_eq!(seen.workers[&Slot(0)].session, None, "it is given nothing");
    assert_eq!(seen.evidence[&id(1)].acked, 0, "and what it acknowledges is worth nothing");
}

#[test]
fn a_later_session_that_claims_another_incarnation_is_revoked_alone() {
    for incarnation in [0, START - 1, START + 1, START + 1_000_000_000, u64::MAX] {
        let mut overseer = overseer();
        let now = ledger(START, 5);
        observed(&mut overseer, 0, &now);
        overseer.learn(at(1), Fact::Lease(id(1), held(1, incarnation, 3)));
        let seen = observed(&mut overseer, 1, &now);
        assert_eq!(seen.positions, [now.position()].into(), "{incarnation}");
        assert_eq!(
            overseer.suspicions(at(2), START),
            [(id(1), Suspicion::ForeignIncarnation)].into()
        );
        let due = overseer.due(at(2), START, everything);
        assert_eq!(due, [Effect::Revoke(id(1), LeaseVersion(1))]);
        overseer.learn(at(2), Fact::Revocation(id(1), LeaseVersion(1), Answer::Written));
        assert_eq!(overseer.suspicions(at(2), START).len(), 1, "a person has time to read it");
    }
}

#[test]
fn a_session_that_acts_on_an_edited_view_is_revoked_after_a_lease() {
    let mut overseer = overseer();
    let now = ledger(START, 5);
    observed(&mut overseer, 0, &now);
    let edited = |version| Fact::Lease(id(1), held(version, START, 50));
    overseer.learn(at(1_000), edited(1));
    overseer.learn(at(1_000), Fact::Lease(id(2), held(1, START, 5)));
    assert_eq!(overseer.due(at(1_000), START, everything), []);
    assert!(overseer.is_in_doubt(at(1_000)));
    assert_eq!(overseer.wakes_at(), Some(at(21_000)));
    overseer.learn(at(20_000), edited(2));
    overseer.learn(at(20_000), Fact::Lease(id(2), held(2, START, 5)));
    assert_eq!(overseer.due(at(20_999), START, everything), []);
    let due = overseer.due(at(21_000), START, everything);
    assert_eq!(due, [Effect::Revoke(id(1), LeaseVersion(2))]);
    // A ledger that has reached that position meanwhile makes the claim plausible.
    let mut overseer = super::tests::overseer();
    observed(&mut overseer, 0, &now);
    overseer.learn(at(1_000), edited(1));
    assert_eq!(overseer.due(at(1_000), START, everything), []);
    overseer.note(at(2_000), &ledger(START, 50));
    overseer.learn(at(20_000), edited(2));
    assert_eq!(overseer.due(at(30_000), START, everything), []);
}

#[test]
fn an_incarnation_from_the_future_is_refused_from_any_session() {
    let mut overseer = overseer();
    let now = ledger(START, 5);
    overseer.learn(at(0), Fact::Lease(id(1), held(1, u64::MAX, u64::MAX)));
    let seen = observed(&mut overseer, 0, &now);
    assert_eq!(decide(&now, &desired(), &seen).waiting, None);
    assert_eq!(overseer.suspicions(at(2), START), [(id(1), Suspicion::ForeignIncarnation)].into());
}

#[test]
fn a_session_of_another_incarnation_holds_up_the_pool_until_it_is_waited_out() {
    let mut overseer = overseer();
    let claims = Duration::from_hours(1);
    let former = LeaseFacts { duration: claims, ..held(1, START - 1, 3) };
    overseer.learn(at(0), Fact::Lease(id(1), former));
    let now = ledger(START, 5);
    let waits = |overseer: &mut Overseer, ms| {
        let seen = observed(overseer, ms, &now);
        decide(&now, &desired(), &seen).waiting
    };
    assert_eq!(waits(&mut overseer, 0), Some(Waiting::LedgerReset));
    assert_eq!(overseer.due(at(1), START, everything), [], "its view is not of it yet");
    let mark = ViewMark { incarnation: START, revision: 5, digest: 0 };
    overseer.learn(at(1), Fact::View(id(1), Some(mark)));
    assert_eq!(overseer.due(at(1), START, everything), [Effect::Revoke(id(1), LeaseVersion(1))]);
    overseer.learn(at(1), Fact::Revocation(id(1), LeaseVersion(1), Answer::Written));
    assert_eq!(waits(&mut overseer, 21_000), Some(Waiting::LedgerReset));
    assert_eq!(waits(&mut overseer, 21_405), None, "by the Swarm's terms, not by its claim");
}

#[test]
fn an_observer_remembers_how_far_the_ledger_was_though_nobody_is_left() {
    let mut overseer = overseer();
    let (earlier, later) = (ledger(START, 3), ledger(START, 7));
    observed(&mut overseer, 0, &later);
    overseer.forget_ledger();
    assert!(!overseer.has_ledger());
    let seen = observed(&mut overseer, 1, &earlier);
    assert_eq!(seen.positions, [later.position()].into());
}

#[test]
fn when_a_request_failed_nobody_is_revoked_for_a_while() {
    let mut overseer = overseer();
    overseer.learn(at(0), Fact::Lease(id(1), new(1)));
    overseer.learn(at(10_000), Fact::StoreFailed);
    assert_eq!(overseer.due(at(20_000), START, everything), []);
    assert_eq!(overseer.held_back(at(20_000)), 1);
}

#[test]
fn without_a_ledger_a_session_that_acted_on_a_previous_one_holds_up_the_next() {
    let mut overseer = overseer();
    overseer.learn(at(0), Fact::Lease(id(1), held(1, START, 9)));
    assert_eq!(overseer.due(at(0), START, everything), []);
    let pool = pool(worker(Presence::Ready), Protocol::Session);
    let seen = overseer.observed(at(0), Policy::Exclusive, pool);
    let lost = ledger(START, 9).position();
    assert_eq!(seen.positions, [lost].into());
    // The next ledger is noted once it was written; the session was known before.
    let seen = observed(&mut overseer, 1, &ledger(START + 1, 1));
    assert_eq!(seen.positions.first(), Some(&lost));
    assert_eq!(overseer.suspicions(at(1), START), BTreeMap::new());
}

#[test]
fn plain_workers_act_on_no_ledger() {
    let mut overseer = overseer();
    observed(&mut overseer, 0, &ledger(START, 7));
    overseer.note(at(1), &ledger(START, 3));
    let of = |overseer: &mut Overseer, protocol| {
        let pool = pool(worker(Presence::Ready), protocol);
        overseer.observed(at(1), Policy::AtLeastOnce, pool).positions.len()
    };
    assert_eq!((of(&mut overseer, Protocol::Plain), of(&mut overseer, Protocol::Session)), (0, 1));
    overseer.learn(at(1), Fact::Lease(id(1), new(1)));
    assert_eq!(of(&mut overseer, Protocol::Plain), 1, "a session among them does");
}

#[test]
fn a_view_that_was_edited_is_published_again_and_one_that_is_missing_is_no_mark() {
    let mut overseer = overseer();
    overseer.learn(at(0), Fact::Lease(id(1), new(1)));
    let mut next = ledger(START, 1);
    next.version = 1;
    let due = |overseer: &Overseer| overseer.publications(&next, &Details::default(), START).len();
    assert_eq!(due(&overseer), 0, "it is not named, and never was");
    let says = ViewMark::of(&next.cells.view(&id(1)), &Details::default());
    overseer.learn(at(0), Fact::View(id(1), Some(says)));
    assert_eq!(due(&overseer), 0);
    overseer.learn(at(0), Fact::View(id(1), None));
    assert_eq!(due(&overseer), 1, "nobody knows what it says");
    overseer.learn(at(0), Fact::ViewMissing(id(1)));
    assert_eq!(due(&overseer), 0);
}

#[test]
fn a_failure_that_is_reported_late_is_no_later_one() {
    let mut overseer = overseer();
    overseer.learn(at(0), Fact::Lease(id(1), new(1)));
    overseer.learn(at(10_000), Fact::StoreFailed);
    overseer.learn(at(0), Fact::StoreFailed);
    assert_eq!(overseer.due(at(20_000), START, everything), []);
}

#[test]
fn who_calls_jobs_finished_that_it_cannot_have_finished_is_suspect_after_a_while() {
    let mut overseer = overseer();
    let finished = |job: &str| [(job.parse::<JobName>().unwrap(), Token(1))].into();
    let says = |version, job| {
        let mut facts = held(version, START, 1);
        facts.lease.ack.finished = finished(job);
        Fact::Lease(id(1), facts)
    };
    let mut wanted = jobs(["a", "b", "c"]).unwrap();
    for job in ["a", "c"] {
        wanted.get_mut(job).unwrap().run_once = true;
    }
    let mut ledger = ledger(START, 1);
    for (job, session) in [("a", id(1)), ("b", id(1)), ("c", id(2)), ("removed", id(1))] {
        let cell = Cell::Granted { session, token: Token(1) };
        ledger.cells.jobs.insert(job.parse().unwrap(), Record { cell, strikes: 0 });
    }
    overseer.note(at(0), &ledger);
    let late: u64 = LeaseTerms::default().duration.as_millis().try_into().unwrap();
    let mut versions = 1..;
    let mut suspects = |job, ms| {
        overseer.learn(at(ms), says(versions.next().unwrap(), job));
        overseer.judge_finished(at(ms), &ledger, &wanted);
        (overseer.suspicions(at(ms), START).into_values().next(), overseer.is_in_doubt(at(ms)))
    };
    assert_eq!(suspects("a", 0), (None, false), "it holds it");
    for (job, why) in [("b", "it never ends"), ("c", "another holds it"), ("d", "nobody holds it")]
    {
        assert_eq!(suspects(job, 1), (None, true), "{why}, perhaps for a moment");
        let expected = (Some(Suspicion::FalseFinish(1)), false);
        assert_eq!(suspects(job, 1 + late), expected, "{why}");
        assert_eq!(suspects("a", 2 + late), (None, false), "it says so no more");
        assert_eq!(suspects("removed", 3 + late), (None, false), "it may have run once before");
    }
}
