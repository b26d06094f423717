//! The lifecycle of a session, case by case. The terms: lease 20 s, renewal every 4 s, stop
//! timeout 5 s.

mod part;

use std::time::Duration;

use super::*;
use crate::handover::LeaseWrite;
use crate::{Job, Jobs, RunnerName};

fn at(secs: u64) -> Moment {
    Moment(Duration::from_secs(secs))
}

fn id() -> SessionId {
    SessionId::new("pod", 1)
}

fn job(name: &str) -> JobName {
    name.parse().unwrap()
}

fn view(revision: u64, jobs: &[(&str, u64)]) -> SessionEvent {
    let jobs = jobs.iter().map(|(name, token)| (job(name), Token(*token))).collect();
    SessionEvent::View(SessionView { session: id(), incarnation: 0, revision, jobs })
}

/// An open session whose lease was created at second 0 in version 1.
fn open() -> Session {
    let (mut session, effects) = Session::open(id(), LeaseTerms::default(), at(0));
    assert_eq!(writes(&effects)[0].expected, None);
    assert!(session.step(at(1), written(1)).is_empty(), "nothing runs yet");
    session
}

fn written(number: u64) -> SessionEvent {
    SessionEvent::Written { number, version: LeaseVersion(number) }
}

fn writes(effects: &[SessionEffect]) -> Vec<LeaseWrite> {
    let write = |effect: &SessionEffect| match effect {
        SessionEffect::Write(write) => Some(write.clone()),
        _ => None,
    };
    effects.iter().filter_map(write).collect()
}

fn start(name: &str, token: u64) -> SessionEffect {
    SessionEffect::Start { job: job(name), token: Token(token) }
}

fn stop(name: &str) -> SessionEffect {
    SessionEffect::Stop(job(name))
}

#[test]
fn a_granted_job_starts_and_the_view_is_acknowledged_at_once() {
    let mut session = open();
    let effects = session.step(at(1), view(3, &[("a", 7)]));
    assert_eq!(effects[0], start("a", 7));
    assert_eq!(writes(&effects)[0].ack.revision, 3);
    assert!(session.permits(at(19), &job("a"), Token(7)));
    assert!(!session.permits(at(20), &job("a"), Token(7)));
}

#[test]
fn nothing_starts_before_the_lease_is_known_to_exist_and_the_view_to_be_current() {
    let (mut session, _) = Session::open(id(), LeaseTerms::default(), at(0));
    assert_eq!(session.step(at(0), view(1, &[("a", 1)])), []);
    let effects = session.step(at(1), written(1));
    let read = SessionEffect::ReadLedger { number: 1 };
    assert_eq!(effects[0], read, "the store may have been set back meanwhile");
    assert!(!effects.contains(&start("a", 1)));
    let read = SessionEvent::LedgerRead { number: 1, incarnation: 0, revision: 1 };
    assert_eq!(session.step(at(1), read), [start("a", 1)]);
}

#[test]
fn a_view_is_acknowledged_only_after_what_it_takes_away_was_joined() {
    let mut session = open();
    session.step(at(1), view(3, &[("a", 7), ("b", 7)]));
    session.step(at(1), written(2));
    assert_eq!(session.step(at(2), view(4, &[("b", 7)])), [stop("a")]);
    let effects = session.step(at(3), SessionEvent::Joined(job("a")));
    assert_eq!(writes(&effects)[0].ack.revision, 4);
}

#[test]
fn older_and_foreign_views_are_dropped() {
    let mut session = open();
    session.step(at(1), view(3, &[]));
    session.step(at(1), written(2));
    let other = SessionView {
        session: SessionId::new("pod", 2),
        incarnation: 0,
        revision: 9,
        jobs: [(job("a"), Token(1))].into(),
    };
    for event in [view(2, &[("a", 1)]), view(3, &[("a", 1)]), SessionEvent::View(other)] {
        assert_eq!(session.step(at(1), event), []);
    }
}

#[test]
fn a_regrant_of_the_same_job_starts_after_the_old_run_was_joined() {
    let mut session = open();
    session.step(at(1), view(3, &[("a", 7)]));
    session.step(at(1), written(2));
    assert_eq!(session.step(at(2), view(5, &[("a", 8)])), [stop("a")]);
    assert_eq!(session.step(at(2), SessionEvent::Joined(job("a")))[0], start("a", 8));
}

#[test]
fn without_renewal_jobs_stop_in_time_and_resume_when_one_succeeds() {
    let mut session = open();
    session.step(at(1), view(3, &[("a", 7)]));
    session.step(at(1), SessionEvent::Lost { number: 2 });
    assert_eq!(writes(&session.step(at(2), SessionEvent::Tick)).len(), 1, "tries again");
    assert_eq!(session.step(at(14), SessionEvent::Tick), []);
    assert_eq!(session.wakes_at(), Some(at(15)));
    assert_eq!(session.step(at(15), SessionEvent::Tick), [stop("a")]);
    session.step(at(16), SessionEvent::Joined(job("a")));
    session.step(at(90), SessionEvent::Lost { number: 3 });
    let sent = writes(&session.step(at(91), SessionEvent::Tick));
    let effects = session.step(at(92), written(sent[0].number));
    let number = sent[0].number;
    assert_eq!(effects, [SessionEffect::ReadLedger { number }], "first it asks for a rollback");
    let same = SessionEvent::LedgerRead { number, incarnation: 0, revision: 3 };
    assert_eq!(session.step(at(92), same)[0], start("a", 7));
    assert_eq!(session.deadline(), at(111), "counted from the sending");
}

#[test]
fn a_ledger_that_was_read_before_a_second_lapse_restarts_nothing() {
    let mut session = open();
    session.step(at(1), view(3, &[("a", 7)]));
    session.step(at(1), SessionEvent::Lost { number: 2 });
    session.step(at(2), SessionEvent::Tick);
    assert_eq!(session.step(at(15), SessionEvent::Tick), [stop("a")]);
    session.step(at(16), SessionEvent::Joined(job("a")));
    // The ledger is requested after the third write, and again after the fifth. In between, the
    // Lease was not renewed for so long that others may hold the jobs.
    let asks = |number| SessionEffect::ReadLedger { number };
    let effects = session.step(at(16), written(3));
    assert_eq!((&effects[0], writes(&effects)[0].number), (&asks(3), 4));
    session.step(at(17), SessionEvent::Lost { number: 4 });
    assert_eq!(writes(&session.step(at(18), SessionEvent::Tick))[0].number, 5);
    assert_eq!(session.step(at(19), written(5)), [asks(5)]);
    let read = |number| SessionEvent::LedgerRead { number, incarnation: 0, revision: 3 };
    assert_eq!(session.step(at(19), read(3)), [], "it was read before");
    assert_eq!(session.step(at(19), read(5)), [start("a", 7)]);
}

#[test]
fn a_ledger_that_went_back_ends_the_session() {
    let mut session = open();
    session.step(at(1), view(3, &[("a", 7)]));
    session.step(at(15), SessionEvent::Tick);
    session.step(at(16), SessionEvent::Joined(job("a")));
    session.step(at(17), written(2));
    session.step(at(17), written(3));
    let read = SessionEvent::LedgerRead { number: 3, incarnation: 0, revision: 2 };
    let effects = session.step(at(17), read);
    assert_eq!(effects[0], SessionEffect::ReportRollback { seen: 3 });
    let close = writes(&effects).remove(0);
    assert_eq!(close.holder, Holder::Closed);
    assert_eq!(session.step(at(18), written(close.number)), [SessionEffect::Over]);
}

#[test]
fn a_lease_that_is_older_than_what_landed_ends_the_session() {
    let mut session = open();
    session.step(at(1), view(3, &[("a", 7)]));
    session.step(at(1), written(2));
    let number = writes(&session.step(at(5), SessionEvent::Tick))[0].number;
    session.step(at(5), SessionEvent::Conflict { number });
    let (version, ack) = (LeaseVersion(1), Ack::default());
    let old = Lease { version, holder: Holder::Session, number: 1, ack };
    let effects = session.step(at(5), SessionEvent::LeaseRead(Some(old)));
    assert_eq!(effects[..2], [SessionEffect::ReportRollback { seen: 3 }, stop("a")]);
    assert!(session.is_ending());
}

#[test]
fn a_view_of_an_earlier_incarnation_is_dropped_whatever_its_revision() {
    let mut session = open();
    let view = |incarnation, revision, jobs| {
        SessionEvent::View(SessionView { session: id(), incarnation, revision, jobs })
    };
    session.step(at(1), view(5, 3, Grants::default()));
    session.step(at(1), written(2));
    assert_eq!(session.step(at(1), view(4, 9, [(job("a"), Token(7))].into())), []);
    assert!(!session.is_ending());
}

#[test]
fn a_job_that_is_being_stopped_may_not_act_any_more() {
    let mut session = open();
    session.step(at(1), view(3, &[("a", 7)]));
    assert!(session.permits(at(2), &job("a"), Token(7)));
    assert_eq!(session.step(at(2), view(4, &[])), [stop("a")]);
    assert!(!session.permits(at(2), &job("a"), Token(7)), "it has not ended yet");
}

#[test]
fn jobs_that_still_run_at_the_deadline_are_aborted() {
    for event in [SessionEvent::Tick, SessionEvent::Resumed, written(2)] {
        let mut session = open();
        session.step(at(1), view(3, &[("a", 7)]));
        assert_eq!(session.step(at(20), event), [SessionEffect::Abort]);
        assert!(session.is_over());
    }
}

#[test]
fn an_unanswered_write_that_landed_is_recognised() {
    let mut session = open();
    let sent = writes(&session.step(at(4), SessionEvent::Tick)).remove(0);
    let conflict = SessionEvent::Conflict { number: sent.number };
    assert_eq!(session.step(at(5), conflict), [SessionEffect::ReadLease]);
    let lease = sent.onto(None, LeaseVersion(9));
    assert!(lease.is_err(), "it replaces version 1");
    let lease =
        Lease { version: LeaseVersion(9), holder: sent.holder, number: sent.number, ack: sent.ack };
    session.step(at(5), SessionEvent::LeaseRead(Some(lease)));
    assert_eq!(session.deadline(), at(24));
}

#[test]
fn a_lease_that_others_revoked_closed_or_deleted_ends_everything_at_once() {
    let final_lease =
        |holder| Lease { version: LeaseVersion(9), holder, number: 1, ack: Ack::default() };
    for lease in [Some(final_lease(Holder::Revoked)), Some(final_lease(Holder::Closed)), None] {
        let mut session = open();
        session.step(at(1), view(3, &[("a", 7)]));
        session.step(at(2), SessionEvent::Conflict { number: 2 });
        let effects = session.step(at(2), SessionEvent::LeaseRead(lease));
        assert_eq!(effects, [SessionEffect::Abort]);
    }
}

#[test]
fn a_worker_asked_to_end_keeps_running_while_its_jobs_are_moved_and_then_closes() {
    let mut session = open();
    session.step(at(1), view(3, &[("a", 7)]));
    session.step(at(1), written(2));
    let effects = session.step(at(2), SessionEvent::Terminate { grace: Duration::from_secs(30) });
    assert!(writes(&effects)[0].ack.is_draining);
    session.step(at(2), written(3));
    assert_eq!(session.step(at(3), view(4, &[])), [stop("a")]);
    let effects = session.step(at(3), SessionEvent::Joined(job("a")));
    assert_eq!(writes(&effects)[0].holder, Holder::Closed);
}

#[test]
fn a_worker_asked_to_end_stops_by_itself_before_it_is_killed() {
    let mut session = open();
    session.step(at(1), view(3, &[("a", 7)]));
    session.step(at(1), written(2));
    session.step(at(2), SessionEvent::Terminate { grace: Duration::from_secs(10) });
    session.step(at(2), written(3));
    assert!(session.step(at(7), SessionEvent::Tick).contains(&stop("a")));
}

#[test]
fn a_lease_is_closed_only_when_nothing_is_left_of_the_jobs() {
    let mut session = open();
    session.step(at(1), view(3, &[("a", 7)]));
    session.step(at(1), written(2));
    session.step(at(2), SessionEvent::Terminate { grace: Duration::from_secs(10) });
    session.step(at(2), written(3));
    assert_eq!(writes(&session.step(at(6), SessionEvent::Tick))[0].holder, Holder::Session);
    session.step(at(6), written(4));
    assert_eq!(session.step(at(7), SessionEvent::Tick), [stop("a")]);
    let effects = session.step(at(8), SessionEvent::Joined(job("a")));
    assert_eq!(writes(&effects)[0].holder, Holder::Closed);
}

#[test]
fn jobs_that_end_together_are_reported_together() {
    let mut session = open();
    session.step(at(1), view(3, &[("a", 7), ("b", 7), ("c", 7)]));
    session.step(at(1), written(2));
    assert_eq!(session.step(at(2), view(4, &[("c", 8)])), [stop("a"), stop("b"), stop("c")]);
    let ended = ["a", "b", "c"].map(|name| SessionEvent::Joined(job(name)));
    let effects = session.step_all(at(2), ended);
    assert_eq!(effects[0], start("c", 8));
    assert_eq!((effects.len(), writes(&effects)[0].ack.revision), (2, 4));
    assert_eq!(session.step_all(at(3), []), []);
    let late = [SessionEvent::Tick, SessionEvent::Joined(job("c"))];
    assert_eq!(session.step_all(at(40), late), [SessionEffect::Abort]);
}

#[test]
fn a_finished_job_is_reported_and_not_started_again() {
    let mut session = open();
    session.step(at(1), view(3, &[("a", 7)]));
    session.step(at(1), written(2));
    let effects = session.step(at(2), SessionEvent::Finished(job("a")));
    assert_eq!(writes(&effects)[0].ack.finished, [(job("a"), Token(7))].into());
    assert_eq!(session.step(at(3), view(4, &[("a", 7)])), []);
}

#[test]
fn a_lease_that_may_have_been_made_again_is_closed_unused() {
    let (mut session, _) = Session::open(id(), LeaseTerms::default(), at(0));
    session.step(at(1), view(3, &[("a", 7)]));
    session.step(at(2), SessionEvent::Lost { number: 1 });
    assert_eq!(writes(&session.step(at(3), SessionEvent::Tick))[0].expected, None);
    let effects = session.step(at(4), written(2));
    let close = writes(&effects).remove(0);
    assert_eq!((effects.len(), close.holder), (2, Holder::Closed), "nothing starts");
    assert_eq!(effects[0], SessionEffect::ReadLedger { number: 2 });
    assert_eq!(session.step(at(4), written(close.number)), [SessionEffect::Over]);
}

#[test]
fn a_first_write_that_landed_unheard_is_taken_up() {
    let (mut session, made) = Session::open(id(), LeaseTerms::default(), at(0));
    let lease = writes(&made)[0].onto(None, LeaseVersion(1)).unwrap();
    session.step(at(1), SessionEvent::Lost { number: 1 });
    session.step(at(2), SessionEvent::Tick);
    session.step(at(2), SessionEvent::Conflict { number: 2 });
    let effects = session.step(at(2), SessionEvent::LeaseRead(Some(lease)));
    let renewal =
        writes(&session.step(at(6), SessionEvent::Tick)).into_iter().chain(writes(&effects));
    assert_eq!(renewal.map(|write| write.expected).next(), Some(Some(LeaseVersion(1))));
}

#[test]
fn a_view_of_a_later_incarnation_ends_the_session_whatever_it_grants() {
    let mut session = open();
    session.step(at(1), view(3, &[("a", 7)]));
    session.step(at(1), written(2));
    let jobs = [(job("b"), Token(9))].into();
    let later = SessionView { session: id(), incarnation: 1, revision: 4, jobs };
    let effects = session.step(at(2), SessionEvent::View(later));
    assert_eq!(effects[..2], [SessionEffect::ReportRollback { seen: 3 }, stop("a")]);
    assert!(session.is_ending() && !effects.contains(&start("b", 9)));
}

#[test]
fn what_is_being_stopped_is_still_running_under_its_token() {
    let mut session = open();
    session.step(at(1), view(3, &[("a", 7), ("b", 8)]));
    session.step(at(1), written(2));
    session.step(at(2), view(4, &[("b", 8)]));
    let running = |session: &Session| -> Vec<_> {
        session.running().map(|(job, token)| (job.clone(), token)).collect()
    };
    assert_eq!(running(&session), [(job("a"), Token(7)), (job("b"), Token(8))]);
    session.step(at(3), SessionEvent::Joined(job("a")));
    assert_eq!(running(&session), [(job("b"), Token(8))]);
}

#[test]
fn a_session_that_waits_for_jobs_to_stop_wakes_at_its_deadline() {
    let mut session = open();
    session.step(at(1), view(3, &[("a", 7)]));
    assert_eq!(session.step(at(15), SessionEvent::Tick), [stop("a")]);
    assert_eq!(session.wakes_at(), Some(at(20)), "no answer and no joining need come");
    session.step(at(16), SessionEvent::Joined(job("a")));
    assert_eq!(session.wakes_at(), None, "nothing runs, and a write has no answer yet");
}

#[test]
fn a_worker_asked_to_end_wakes_when_its_time_is_over() {
    for ends in [false, true] {
        let mut session = open();
        session.step(at(1), view(3, &[("a", 7)]));
        session.step(at(1), written(2));
        session.step(at(2), SessionEvent::Terminate { grace: Duration::from_secs(10) });
        session.step(at(2), written(3));
        session.step(at(6), SessionEvent::Tick);
        if ends {
            session.step(at(6), SessionEvent::Finished(job("a")));
        }
        assert_eq!(session.wakes_at(), Some(at(7)), "whether or not anything runs: {ends}");
    }
}

#[test]
fn a_lease_that_was_closed_unheard_ends_the_session_without_an_abort() {
    let mut session = open();
    let terminate = SessionEvent::Terminate { grace: Duration::from_secs(30) };
    let close = writes(&session.step(at(2), terminate)).remove(0);
    assert_eq!(close.holder, Holder::Closed);
    session.step(at(3), SessionEvent::Lost { number: close.number });
    let again = writes(&session.step(at(4), SessionEvent::Tick)).remove(0);
    session.step(at(4), SessionEvent::Conflict { number: again.number });
    let lease = Lease {
        version: LeaseVersion(2),
        holder: close.holder,
        number: close.number,
        ack: close.ack,
    };
    let read = SessionEvent::LeaseRead(Some(lease));
    assert_eq!(session.step(at(4), read), [SessionEffect::Over]);
    assert!(session.is_over());
}

#[test]
fn a_lease_that_was_never_made_is_asked_for_again() {
    let (mut session, _) = Session::open(id(), LeaseTerms::default(), at(0));
    assert_eq!(
        session.step(at(1), SessionEvent::Conflict { number: 1 }),
        [SessionEffect::ReadLease]
    );
    assert_eq!(session.step(at(1), SessionEvent::LeaseRead(None)), []);
    assert_eq!(session.wakes_at(), Some(at(2)), "a quarter of the renewal interval later");
    assert_eq!(writes(&session.step(at(2), SessionEvent::Tick))[0].expected, None);
}

#[test]
fn a_lease_that_others_touched_is_renewed_from_its_new_version() {
    let mut session = open();
    session.step(at(1), view(3, &[("a", 7)]));
    session.step(at(1), SessionEvent::Conflict { number: 2 });
    let (version, ack) = (LeaseVersion(9), Ack::default());
    let touched = Lease { version, holder: Holder::Session, number: 1, ack };
    let effects = session.step(at(1), SessionEvent::LeaseRead(Some(touched)));
    assert_eq!((effects.len(), writes(&effects)[0].expected), (1, Some(version)));
    assert!(session.permits(at(2), &job("a"), Token(7)));
}

#[test]
fn only_jobs_of_which_workers_need_more_than_the_name_have_details() {
    let mut all = crate::jobs(["plain", "once", "params"]).unwrap();
    all.get_mut("once").unwrap().run_once = true;
    all.get_mut("params").unwrap().params =
        [("key".to_owned(), "value".to_owned())].into_iter().collect();
    assert_eq!(
        Details::of(&all).jobs().keys().cloned().collect::<Vec<_>>(),
        [job("once"), job("params")]
    );
}

#[test]
fn details_have_the_runner_of_the_jobs() {
    let once = crate::Job { run_once: true, ..crate::Job::default() };
    let details = Details::of(&[(job("once"), once)].into());
    assert_eq!(details.runner(), None);
    let details = details.with_runner("ping");
    assert_eq!((details.jobs().len(), details.runner()), (1, Some("ping")));
}

#[test]
fn a_view_says_something_else_if_a_runner_that_one_of_its_jobs_names_has_changed() {
    let named = |name: &str| RunnerName::new(name).unwrap();
    let jobs = |runner: &str| {
        let other = Job { runner: Some(named(runner)), ..Job::default() };
        Jobs::from([(job("a"), Job::default()), (job("b"), other)])
    };
    let details = |runner: &str, texts: [(&str, &str); 2]| {
        let texts = texts.map(|(name, text)| (named(name), text.to_owned()));
        Details::of(&jobs(runner)).with_runners(texts.into())
    };
    let view = |names: &[(&str, u64)]| {
        let jobs = names.iter().map(|(name, token)| (job(name), Token(*token))).collect();
        SessionView { session: id(), incarnation: 1, revision: 3, jobs }
    };
    let (both, alone) = (view(&[("a", 1), ("b", 2)]), view(&[("a", 1)]));
    let before = details("x", [("x", "one"), ("y", "two")]);
    for (after, is_other) in [
        (details("x", [("x", "one"), ("y", "three")]), false),
        (details("x", [("x", "three"), ("y", "two")]), true),
        (details("y", [("x", "one"), ("y", "two")]), true),
        (details("y", [("x", "one"), ("y", "one")]), true),
    ] {
        assert_eq!(both.content_digest(&before) != both.content_digest(&after), is_other);
        assert_eq!(alone.content_digest(&before), alone.content_digest(&after));
    }
    let whole = both.with_details(&before);
    assert_eq!(whole.runners, [(named("x"), "one".to_owned())].into());
    assert_eq!((&whole.jobs["a"].runner, &whole.jobs["b"].runner), (&None, &Some(named("x"))));
    assert_eq!(alone.with_details(&before).runners, [].into());
}
