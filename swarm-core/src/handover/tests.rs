//! The proofs that end an ownership, and the next state of the job, case by case.

mod parts;

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::{Job, JobName, Jobs, Share, Slot, Token};

fn id(n: u64) -> SessionId {
    SessionId::new("pod", n)
}

fn job() -> JobName {
    "a".parse().unwrap()
}

fn terms(policy: Policy) -> HandoverTerms {
    HandoverTerms { policy, ..HandoverTerms::default() }
}

/// A ledger in which `holder` was granted the job, at revision 1 and under token 1.
fn granted(holder: &SessionId) -> Cells {
    go(&Cells::new(0), Some(at(holder)), &[], 0, Policy::Exclusive).unwrap()
}

fn at(session: &SessionId) -> Place {
    Place::Session(Slot(0), session.clone())
}

/// The ledger after one turn, or `None` if there was nothing to do. The job runs to completion.
fn go(
    cells: &Cells,
    place: Option<Place>,
    evidence: &[(SessionId, Evidence)],
    waited: u64,
    policy: Policy,
) -> Option<Cells> {
    go_with(&to_completion(), cells, place, evidence, waited, policy)
}

fn to_completion() -> Jobs {
    [(job(), Job { run_once: true, ..Job::default() })].into()
}

fn for_ever() -> Jobs {
    [(job(), Job::default())].into()
}

/// Like [`go`], with this job among several.
fn go_with(
    jobs: &Jobs,
    cells: &Cells,
    place: Option<Place>,
    evidence: &[(SessionId, Evidence)],
    waited: u64,
    policy: Policy,
) -> Option<Cells> {
    let goal = place.map(|place| (job(), place)).into_iter().collect();
    let evidence = evidence.iter().cloned().collect();
    let ages = [(job(), Duration::from_secs(waited))].into();
    let (evidence, ages, seats) = (&evidence, &ages, &BTreeMap::new());
    let inputs = StepInputs { goal: &goal, evidence, ages, jobs, seats };
    advance(cells, &inputs, &terms(policy)).map(|save| save.next)
}

fn cell(cells: &Cells) -> &Cell {
    &cells.jobs[&job()].cell
}

fn ended(proof: Proof) -> Evidence {
    Evidence { ended: Some(proof), ..Evidence::default() }
}

#[test]
fn a_move_is_a_release_an_acknowledgement_and_a_grant_with_the_next_token() {
    let first = granted(&id(1));
    assert_eq!(*cell(&first), Cell::Granted { session: id(1), token: Token(1) });
    let second = go(&first, Some(at(&id(2))), &[], 0, Policy::Exclusive).unwrap();
    assert_eq!(*cell(&second), Cell::Releasing { session: id(1), token: Token(1), since: 2 });
    let to_two =
        |evidence| go(&second, Some(at(&id(2))), &[(id(1), evidence)], 0, Policy::Exclusive);
    assert_eq!(to_two(Evidence::acked(1)), None, "an acknowledgement from before the release");
    let third = to_two(Evidence::acked(2)).unwrap();
    assert_eq!(*cell(&third), Cell::Granted { session: id(2), token: Token(2) });
}

#[test]
fn closed_fenced_and_ended_sessions_lose_their_jobs_without_a_release() {
    for proof in [Proof::Closed, Proof::Fenced, Proof::ProcessEnded] {
        let evidence = [(id(1), ended(proof))];
        let next = go(&granted(&id(1)), Some(at(&id(2))), &evidence, 0, Policy::Exclusive).unwrap();
        assert_eq!(*cell(&next), Cell::Granted { session: id(2), token: Token(2) }, "{proof:?}");
    }
}

#[test]
fn waiting_ends_an_ownership_only_at_least_once() {
    let releasing = go(&granted(&id(1)), Some(at(&id(2))), &[], 0, Policy::AtLeastOnce).unwrap();
    let gone = Evidence { gone_for: Some(Duration::from_secs(30)), ..Evidence::default() };
    for (evidence, waited) in [(Evidence::default(), 60), (gone, 0)] {
        let next =
            |policy| go(&releasing, Some(at(&id(2))), &[(id(1), evidence.clone())], waited, policy);
        assert_eq!(next(Policy::Exclusive), None);
        assert_eq!(next(Policy::AtLeastOnce).unwrap().view(&id(2)).jobs.len(), 1);
    }
    assert_eq!(go(&releasing, Some(at(&id(2))), &[], 59, Policy::AtLeastOnce), None);
}

#[test]
fn a_plain_worker_is_not_waited_for_and_never_exclusive() {
    let plain = SessionId::plain("pod-a");
    let next = |policy| go(&granted(&plain), Some(at(&id(2))), &[], 0, policy).unwrap();
    assert_eq!(next(Policy::AtLeastOnce).view(&id(2)).jobs.len(), 1);
    assert_eq!(next(Policy::Exclusive).view(&id(2)).jobs.len(), 0);
}

#[test]
fn a_job_waits_for_its_slot_and_goes_elsewhere_when_the_grace_is_over() {
    let evidence = [(id(1), ended(Proof::Closed))];
    let here = Some(Place::Slot(Slot(0)));
    let held = go(&granted(&id(1)), here.clone(), &evidence, 0, Policy::Exclusive).unwrap();
    assert!(matches!(cell(&held), Cell::Hold { slot: Slot(0), token: Token(1), .. }));
    assert_eq!(go(&held, here, &evidence, 0, Policy::Exclusive), None, "no write at rest");
    let back = go(&held, Some(at(&id(2))), &[], 0, Policy::Exclusive).unwrap();
    assert_eq!(back.view(&id(2)).jobs[&job()], Token(2));
    let elsewhere = Some(Place::Session(Slot(7), id(3)));
    assert_eq!(go(&held, elsewhere.clone(), &[], 29, Policy::Exclusive), None);
    assert!(go(&held, elsewhere, &[], 30, Policy::Exclusive).is_some());
}

#[test]
fn a_hold_that_is_over_binds_the_job_to_its_slot_no_longer() {
    let evidence = [(id(1), ended(Proof::Closed))];
    let here = Some(Place::Slot(Slot(0)));
    let held = go(&granted(&id(1)), here.clone(), &evidence, 0, Policy::Exclusive).unwrap();
    for place in [here, Some(Place::Nowhere)] {
        assert_eq!(go(&held, place.clone(), &evidence, 29, Policy::Exclusive), None);
        let free = go(&held, place.clone(), &evidence, 30, Policy::Exclusive).unwrap();
        assert_eq!(*cell(&free), Cell::Free { token: Token(1) });
        assert_eq!(go(&free, place, &evidence, 30, Policy::Exclusive), None, "no write at rest");
    }
}

#[test]
fn a_job_that_goes_is_released_first_and_its_tokens_stay_used() {
    let releasing = go(&granted(&id(1)), None, &[], 0, Policy::Exclusive).unwrap();
    let removed =
        go(&releasing, None, &[(id(1), Evidence::acked(2))], 0, Policy::Exclusive).unwrap();
    assert!(removed.jobs.is_empty());
    let back = go(&removed, Some(at(&id(2))), &[], 0, Policy::Exclusive).unwrap();
    assert_eq!(*cell(&back), Cell::Granted { session: id(2), token: Token(2) });
}

#[test]
fn the_third_crash_of_a_job_keeps_it_away_for_a_minute() {
    let mut cells = granted(&id(1));
    for n in 1..=3 {
        let crash = Evidence { culprit: Some(job()), ..ended(Proof::ProcessEnded) };
        cells = go(&cells, Some(at(&id(n + 1))), &[(id(n), crash)], 0, Policy::Exclusive).unwrap();
        if n < 3 {
            assert!(matches!(cell(&cells), Cell::Free { .. }), "after {n} crashes");
            cells = go(&cells, Some(at(&id(n + 1))), &[], 0, Policy::Exclusive).unwrap();
        }
    }
    let minute = Duration::from_mins(1);
    assert_eq!(*cell(&cells), Cell::Quarantined { span: minute, token: Token(3) });
    let nowhere = Some(Place::Nowhere);
    assert_eq!(go(&cells, nowhere.clone(), &[], 59, Policy::Exclusive), None);
    let free = go(&cells, nowhere, &[], 60, Policy::Exclusive).unwrap();
    assert_eq!(*cell(&free), Cell::Free { token: Token(3) }, "it does not count as kept away");
    assert_eq!(go(&cells, Some(at(&id(9))), &[], 59, Policy::Exclusive), None);
    assert!(go(&cells, Some(at(&id(9))), &[], 60, Policy::Exclusive).is_some());
}

#[test]
fn done_is_taken_from_the_holder_under_the_last_token_only() {
    let done = |token| Evidence { finished: [(job(), token)].into(), ..Evidence::default() };
    let stay = Some(at(&id(1)));
    let says = |who: u64, token| {
        go(&granted(&id(1)), stay.clone(), &[(id(who), done(token))], 0, Policy::Exclusive)
    };
    assert_eq!(says(2, Token(1)), None, "not the holder");
    assert_eq!(says(1, Token(0)), None, "an older grant");
    let cells = says(1, Token(1)).unwrap();
    assert_eq!(*cell(&cells), Cell::Done { token: Token(1) });
    assert_eq!(go(&cells, Some(at(&id(2))), &[], 0, Policy::Exclusive), None, "never runs again");
}

#[test]
fn a_job_that_is_done_is_granted_again_once_it_does_not_run_to_completion_any_more() {
    let done = Evidence { finished: [(job(), Token(1))].into(), ..Evidence::default() };
    let done = [(id(1), done)];
    let cells = go(&granted(&id(1)), Some(at(&id(1))), &done, 0, Policy::Exclusive).unwrap();
    let without = |place| go_with(&for_ever(), &cells, place, &done, 0, Policy::Exclusive);
    let again = without(Some(at(&id(2)))).unwrap();
    assert_eq!(*cell(&again), Cell::Granted { session: id(2), token: Token(2) });
    let free = without(Some(Place::Nowhere)).unwrap();
    assert_eq!(*cell(&free), Cell::Free { token: Token(1) });
}

#[test]
fn a_job_that_does_not_run_to_completion_is_never_done_but_released_and_granted_again() {
    let go = |cells: &Cells, evidence: Evidence| {
        let (place, known) = (Some(at(&id(1))), [(id(1), evidence)]);
        go_with(&for_ever(), cells, place, &known, 0, Policy::Exclusive)
    };
    let finished =
        |acked| Evidence { acked, finished: [(job(), Token(1))].into(), ..Evidence::default() };
    let releasing = go(&granted(&id(1)), finished(1)).unwrap();
    assert_eq!(*cell(&releasing), Cell::Releasing { session: id(1), token: Token(1), since: 2 });
    assert_eq!(go(&releasing, finished(1)), None, "nothing proves yet that it let go");
    let again = go(&releasing, Evidence::acked(2)).unwrap();
    assert_eq!(*cell(&again), Cell::Granted { session: id(1), token: Token(2) });
}

#[test]
fn one_write_grants_everything_that_was_acknowledged() {
    let names = ["a", "b", "c"].map(|name| name.parse::<JobName>().unwrap());
    let goal = |to: &SessionId| names.iter().map(|job| (job.clone(), at(to))).collect();
    let turn = |cells: &Cells, to: u64, evidence: &BTreeMap<_, _>| {
        let (goal, ages, jobs) = (&goal(&id(to)), &BTreeMap::new(), &Jobs::new());
        let inputs = StepInputs { goal, evidence, ages, jobs, seats: &BTreeMap::new() };
        advance(cells, &inputs, &terms(Policy::Exclusive)).unwrap()
    };
    let first = turn(&Cells::new(0), 1, &BTreeMap::new()).next;
    let second = turn(&first, 2, &BTreeMap::new()).next;
    let third = turn(&second, 2, &[(id(1), Evidence::acked(2))].into());
    assert_eq!((third.next.revision, third.next.view(&id(2)).jobs.len()), (3, 3));
    assert_eq!(third.touched, [id(1), id(2)].into());
    assert!(third.onto(&first).is_err(), "made from another ledger");
    assert_eq!(third.onto(&second).as_ref(), Ok(&third.next));
}

#[test]
fn a_silent_session_is_fenced_one_wait_after_its_last_renewal_was_seen() {
    let terms = LeaseTerms::default();
    let now = |ms| Moment(Duration::from_millis(ms));
    let version = LeaseVersion(7);
    let lease = Lease { version, holder: Holder::Session, number: 1, ack: Ack::default() };
    let mut watch = Watch::begin(now(0), &lease);
    assert_eq!(watch.step(now(19_999), &WatchEvent::Suspect, &terms), None);
    let revoke = watch.step(now(20_000), &WatchEvent::Suspect, &terms);
    assert_eq!(revoke, Some(WatchEffect::Revoke(version)));
    watch.step(now(20_001), &WatchEvent::RevocationWritten(version), &terms);
    watch.step(now(21_404), &WatchEvent::Tick, &terms);
    assert_eq!(watch.evidence(0).ended, None);
    watch.step(now(21_405), &WatchEvent::Tick, &terms);
    assert_eq!(watch.evidence(0).ended, Some(Proof::Fenced));
}

#[test]
fn a_lease_found_revoked_is_waited_out_from_its_first_sight() {
    let terms = LeaseTerms::default();
    let now = |s| Moment(Duration::from_secs(s));
    let version = LeaseVersion(7);
    let lease = Lease { version, holder: Holder::Revoked, number: 1, ack: Ack::default() };
    let mut watch = Watch::begin(now(100), &lease);
    for (s, ended) in [(121, None), (122, Some(Proof::Fenced))] {
        watch.step(now(s), &WatchEvent::Seen(lease.clone()), &terms);
        watch.step(now(s), &WatchEvent::Tick, &terms);
        assert_eq!(watch.evidence(0).ended, ended, "after {s} s");
    }
}

#[test]
fn the_last_token_is_never_followed_by_a_lower_one() {
    let now = StepContext { revision: 1, age: Duration::ZERO, policy: Policy::Exclusive };
    let grant = CellEvent::Grant { session: id(1), slot: Slot(0) };
    let free = |token| Cell::Free { token: Token(token) };
    let last = Cell::Granted { session: id(1), token: Token(u64::MAX) };
    assert_eq!(free(u64::MAX - 1).step(&grant, &now), Ok(last.clone()));
    for event in [grant, CellEvent::GrantToAll] {
        assert_eq!(free(u64::MAX).step(&event, &now), Err(Refusal::LastToken));
    }
    let end = CellEvent::End { session: id(1), proof: Proof::Closed, then: Then::Free };
    assert_eq!(last.step(&end, &now), Ok(free(u64::MAX)));
}

#[test]
fn a_revocation_whose_answer_was_lost_is_waited_out_from_the_last_renewal() {
    let terms = LeaseTerms::default();
    let at = |secs| Moment(Duration::from_secs(secs));
    let lease = |version, holder, number| Lease {
        version: LeaseVersion(version),
        holder,
        number,
        ack: Ack::default(),
    };
    let silent = || {
        let mut watch = Watch::begin(at(0), &lease(1, Holder::Session, 7));
        let revoke = WatchEffect::Revoke(LeaseVersion(1));
        assert_eq!(watch.step(at(20), &WatchEvent::Suspect, &terms), Some(revoke));
        watch.step(at(25), &WatchEvent::RevocationFailed, &terms);
        watch
    };
    let mut ours = silent();
    ours.step(at(25), &WatchEvent::Seen(lease(2, Holder::Revoked, 7)), &terms);
    assert_eq!(ours.stage, WatchStage::Ended(Proof::Fenced));
    // Another operator revoked it, after a renewal that this one did not see.
    let mut renewed = silent();
    renewed.step(at(25), &WatchEvent::Seen(lease(3, Holder::Revoked, 8)), &terms);
    assert_eq!(renewed.stage, WatchStage::Revoked { since: at(25) });
}

fn now(policy: Policy) -> StepContext {
    StepContext { revision: 5, age: Duration::from_secs(9), policy }
}

/// A job that `session` holds, and one that it is asked to release since revision 3.
fn held_and_releasing(session: &SessionId) -> [Cell; 2] {
    let (session, token) = (session.clone(), Token(7));
    let held = Cell::Granted { session: session.clone(), token };
    [held, Cell::Releasing { session, token, since: 3 }]
}

#[test]
fn a_job_that_a_session_may_run_is_granted_to_no_other_session() {
    let (now, token) = (now(Policy::AtLeastOnce), Token(7));
    let [held, releasing] = held_and_releasing(&id(1));
    let grant = |to| CellEvent::Grant { session: id(to), slot: Slot(0) };
    assert_eq!(held.step(&grant(1), &now), Ok(held.clone()), "it is there already");
    for (cell, event) in [
        (&held, grant(2)),
        (&held, CellEvent::GrantToAll),
        (&releasing, grant(1)),
        (&releasing, grant(2)),
        (&releasing, CellEvent::GrantToAll),
    ] {
        assert_eq!(cell.step(&event, &now), Err(Refusal::Held { session: id(1) }), "{event:?}");
    }
    let everywhere = Cell::Everywhere { token };
    assert_eq!(everywhere.step(&CellEvent::GrantToAll, &now), Ok(everywhere.clone()));
    for cell in [everywhere, Cell::ReleasingAll { token, since: 3 }] {
        assert_eq!(cell.step(&grant(1), &now), Err(Refusal::Everywhere));
    }
    for event in [grant(1), CellEvent::GrantToAll] {
        assert_eq!(Cell::Done { token }.step(&event, &now), Err(Refusal::Done));
    }
}

#[test]
fn a_job_that_waits_is_granted_in_its_slot_at_once_and_elsewhere_when_its_time_is_over() {
    let (now, token) = (now(Policy::Exclusive), Token(7));
    let grant = |slot| CellEvent::Grant { session: id(1), slot: Slot(slot) };
    let granted = Ok(Cell::Granted { session: id(1), token: Token(8) });
    let second = Duration::from_secs(1);
    let waiting = Err(Refusal::Waiting { left: second });
    let hold = |secs| Cell::Hold { slot: Slot(0), span: second * secs, token };
    let quarantined = |secs| Cell::Quarantined { span: second * secs, token };
    assert_eq!(hold(10).step(&grant(0), &now), granted);
    for [over, waits] in [[hold(9), hold(10)], [quarantined(9), quarantined(10)]] {
        assert_eq!(over.step(&grant(1), &now), granted);
        assert_eq!(waits.step(&grant(1), &now), waiting);
    }
}

#[test]
fn only_a_proof_that_the_policy_takes_ends_an_ownership() {
    let proofs = [Proof::Closed, Proof::Fenced, Proof::ProcessEnded]
        .into_iter()
        .chain([2, 3].map(|revision| Proof::Acknowledged { revision }))
        .chain([Proof::TimedOut, Proof::Gone, Proof::Published]);
    let ending = |cell: &Cell, policy| {
        let session = cell.holder().unwrap().clone();
        let end = |proof| CellEvent::End { session: session.clone(), proof, then: Then::Free };
        let ends = |proof: &Proof| cell.step(&end(*proof), &now(policy)).is_ok();
        // The first three proofs are valid for every holder.
        proofs.clone().filter(ends).skip(3).collect::<Vec<_>>()
    };
    let acked = Proof::Acknowledged { revision: 3 };
    let [held, releasing] = held_and_releasing(&id(1));
    let [plain, plain_releasing] = held_and_releasing(&SessionId::plain("pod"));
    for (cell, at_least_once) in [
        (&held, &[Proof::Gone][..]),
        (&releasing, &[acked, Proof::TimedOut, Proof::Gone]),
        (&plain, &[Proof::Gone, Proof::Published]),
        (&plain_releasing, &[acked, Proof::TimedOut, Proof::Gone, Proof::Published]),
    ] {
        assert_eq!(ending(cell, Policy::AtLeastOnce), at_least_once, "{cell:?}");
        let exclusive = at_least_once.iter().copied().filter(|proof| *proof == acked);
        assert_eq!(ending(cell, Policy::Exclusive), exclusive.collect::<Vec<_>>(), "{cell:?}");
    }
    let end = CellEvent::End { session: id(2), proof: Proof::Closed, then: Then::Free };
    let refusal = Err(Refusal::NotHolder { session: id(2) });
    assert_eq!(held.step(&end, &now(Policy::AtLeastOnce)), refusal);
}

#[test]
fn what_all_ran_is_free_when_all_have_released_it_or_the_time_is_over_at_least_once() {
    let (token, since) = (Token(7), 3);
    let end = |cell: &Cell, proof, policy| cell.step(&CellEvent::EndAll { proof }, &now(policy));
    let releasing = Cell::ReleasingAll { token, since };
    let acked = |revision| Proof::Acknowledged { revision };
    let free = Ok(Cell::Free { token });
    assert_eq!(end(&releasing, acked(2), Policy::Exclusive), Err(Refusal::NotAcknowledged));
    assert_eq!(end(&releasing, acked(3), Policy::Exclusive), free);
    assert_eq!(end(&releasing, Proof::TimedOut, Policy::AtLeastOnce), free);
    assert!(end(&releasing, Proof::TimedOut, Policy::Exclusive).is_err());
    assert!(end(&releasing, Proof::Gone, Policy::AtLeastOnce).is_err());
    let everywhere = Cell::Everywhere { token };
    assert_eq!(end(&everywhere, acked(9), Policy::AtLeastOnce), Err(Refusal::Everywhere));
}

#[test]
fn a_job_is_finished_by_its_holder_under_its_token_alone() {
    let finish = |by, token| CellEvent::Finish { session: id(by), token: Token(token) };
    let done = Cell::Done { token: Token(7) };
    let [held, releasing] = held_and_releasing(&id(1));
    for cell in [held, releasing] {
        assert_eq!(cell.step(&finish(1, 7), &now(Policy::Exclusive)), Ok(done.clone()));
        for (by, token) in [(1, 6), (2, 7)] {
            let refusal = Err(Refusal::NotHolder { session: id(by) });
            assert_eq!(cell.step(&finish(by, token), &now(Policy::Exclusive)), refusal);
        }
    }
    assert_eq!(done.step(&finish(1, 7), &now(Policy::Exclusive)), Ok(done.clone()), "twice");
    assert!(done.step(&finish(1, 8), &now(Policy::Exclusive)).is_err());
}

#[test]
fn who_came_with_the_write_that_asked_all_to_release_is_not_waited_for() {
    let mut cells = Cells { revision: 3, ..Cells::new(0) };
    let releasing = Cell::ReleasingAll { token: Token(7), since: 3 };
    cells.jobs.insert(job(), Record { cell: releasing, strikes: 0 });
    let next = |joined| {
        let seats = [(id(1), 0), (id(2), joined)];
        let seats = seats.map(|(id, joined)| (id, Seat { joined, ..Seat::default() })).into();
        let goal = [(job(), at(&id(1)))].into();
        let evidence = [(id(1), Evidence::acked(3))].into();
        let (ages, jobs, seats) = (&BTreeMap::new(), &for_ever(), &seats);
        let inputs = StepInputs { goal: &goal, evidence: &evidence, ages, jobs, seats };
        advance(&cells, &inputs, &terms(Policy::Exclusive)).map(|save| save.next)
    };
    assert_eq!(next(2), None);
    assert_eq!(*cell(&next(3).unwrap()), Cell::Granted { session: id(1), token: Token(8) });
}

#[test]
fn a_job_that_is_done_is_forgotten_once_it_is_not_wanted_and_its_tokens_stay_used() {
    let mut cells = Cells { revision: 1, ..Cells::new(0) };
    let done = Record { cell: Cell::Done { token: Token(7) }, strikes: 0 };
    cells.jobs.insert(job(), done);
    let next = go_with(&Jobs::new(), &cells, None, &[], 0, Policy::Exclusive).unwrap();
    assert_eq!((next.jobs.len(), next.first_token), (0, Token(7)));
}

#[test]
fn a_session_that_may_run_what_all_run_is_waited_for_unless_it_ended_or_is_excused() {
    let (once, exclusive) = (terms(Policy::AtLeastOnce), terms(Policy::Exclusive));
    let gone_for = |gone| Evidence { gone_for: Some(gone), ..Evidence::default() };
    let nearly = once.return_grace.checked_sub(Duration::from_nanos(1)).unwrap();
    let (nearly, long) = (gone_for(nearly), gone_for(once.return_grace));
    let plain = SessionId::plain("pod");
    for (session, known, waits_once, waits_exclusive) in [
        (id(1), None, true, true),
        (id(1), Some(&nearly), true, true),
        (id(1), Some(&long), false, true),
        (plain, None, false, true),
        (id(1), Some(&ended(Proof::Closed)), false, false),
    ] {
        let case = format!("{session} {known:?}");
        assert_eq!(once.waits_for(&session, known), waits_once, "at least once: {case}");
        assert_eq!(exclusive.waits_for(&session, known), waits_exclusive, "exclusive: {case}");
    }
}

#[test]
fn what_all_were_asked_to_release_is_free_by_time_only_at_least_once() {
    let seats = [(id(1), Seat::default()), (id(2), Seat::default())].into();
    let next = |cells: &Cells, place: Option<Place>, waited, policy| {
        let goal = place.map(|place| (job(), place)).into_iter().collect();
        let ages = [(job(), Duration::from_secs(waited))].into();
        let (evidence, jobs) = (&BTreeMap::new(), &for_ever());
        let inputs = StepInputs { goal: &goal, evidence, ages: &ages, jobs, seats: &seats };
        advance(cells, &inputs, &terms(policy)).map(|save| save.next)
    };
    for policy in [Policy::AtLeastOnce, Policy::Exclusive] {
        let all = next(&Cells::new(0), Some(Place::Everywhere), 0, policy).unwrap();
        let releasing = next(&all, Some(at(&id(2))), 0, policy).unwrap();
        assert!(matches!(cell(&releasing), Cell::ReleasingAll { since: 2, .. }), "{releasing:?}");
        assert_eq!(next(&releasing, Some(at(&id(2))), 59, policy), None);
        let granted = next(&releasing, Some(at(&id(2))), 60, policy);
        let removed = next(&releasing, None, 60, policy);
        let is_over = policy == Policy::AtLeastOnce;
        assert_eq!(granted.map(|it| it.view(&id(2)).jobs.len()), is_over.then_some(1));
        assert_eq!(removed.map(|it| it.jobs.len()), is_over.then_some(0), "it is forgotten");
    }
}

#[test]
fn a_job_is_quarantined_for_its_strikes_and_not_while_a_ledger_recovers() {
    let cell = Cell::Quarantined { span: Duration::from_secs(60), token: Token(1) };
    let is_quarantined = |strikes| Record { cell: cell.clone(), strikes }.is_quarantined();
    assert_eq!([0, 1, 3].map(is_quarantined), [false, true, true]);
}

#[test]
fn where_no_job_has_a_share_a_new_one_starts_next_to_one_that_leaves() {
    let b: JobName = "b".parse().unwrap();
    let jobs: Jobs = [(b.clone(), Job::default())].into();
    let goal = [(b.clone(), at(&id(1)))].into();
    let seats = [(id(1), Seat { max_jobs: Some(2), ..Seat::default() })].into();
    let (evidence, ages) = (&BTreeMap::new(), &BTreeMap::new());
    let inputs = StepInputs { goal: &goal, evidence, ages, jobs: &jobs, seats: &seats };
    let next = advance(&granted(&id(1)), &inputs, &terms(Policy::Exclusive)).unwrap().next;
    assert!(matches!(cell(&next), Cell::Releasing { .. }), "{next:?}");
    assert_eq!(next.jobs[&b].cell.holder(), Some(&id(1)));
}

#[test]
fn a_job_that_leaves_takes_its_share_while_that_is_known() {
    let share = |percent| Job { share: Share::new(percent).ok(), ..Job::default() };
    let (b, cells): (JobName, _) = ("b".parse().unwrap(), granted(&id(1)));
    let goal = [(b.clone(), at(&id(1)))].into();
    let (evidence, ages, seats) = (&BTreeMap::new(), &BTreeMap::new(), &BTreeMap::new());
    for (percent, fits) in [(60, true), (61, false)] {
        // The job is still wanted, and has no place for now.
        let jobs: Jobs = [(job(), share(40)), (b.clone(), share(percent))].into();
        let inputs = StepInputs { goal: &goal, evidence, ages, jobs: &jobs, seats };
        let next = advance(&cells, &inputs, &terms(Policy::Exclusive)).unwrap().next;
        assert_eq!(next.jobs[&b].cell.holder().is_some(), fits, "{percent}: {next:?}");
    }
}

#[test]
fn a_lease_that_is_seen_again_unchanged_was_not_renewed() {
    let terms = LeaseTerms::default();
    let now = |s| Moment(Duration::from_secs(s));
    let version = LeaseVersion(7);
    let lease = Lease { version, holder: Holder::Session, number: 1, ack: Ack::default() };
    let mut watch = Watch::begin(now(0), &lease);
    watch.step(now(10), &WatchEvent::Seen(lease), &terms);
    let revoke = watch.step(now(20), &WatchEvent::Suspect, &terms);
    assert_eq!(revoke, Some(WatchEffect::Revoke(version)));
}

#[test]
fn what_a_lease_calls_finished_is_known_of_its_session() {
    let ack = Ack { finished: [(job(), Token(4))].into(), ..Ack::default() };
    let lease = Lease { version: LeaseVersion(1), holder: Holder::Session, number: 1, ack };
    let watch = Watch::begin(Moment::default(), &lease);
    assert_eq!(watch.evidence(0).finished, lease.ack.finished);
}

#[test]
fn the_longest_time_that_a_session_claims_is_known_of_it() {
    let mut watch = Watch::missing(Moment::default());
    assert_eq!(watch.evidence(0).lease, None);
    watch.claims(Duration::from_secs(60));
    watch.claims(Duration::from_secs(20));
    assert_eq!(watch.evidence(0).lease, Some(Duration::from_secs(60)));
}
