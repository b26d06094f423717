//! One job that stops slowly, and others that leave with it. The pace of acknowledgements in part is
//! half a second.

use super::*;

fn ms(millis: u64) -> Moment {
    Moment(Duration::from_millis(millis))
}

fn joined(name: &str) -> SessionEvent {
    SessionEvent::Joined(job(name))
}

fn names(write: &LeaseWrite) -> Vec<&str> {
    write.ack.stopping.jobs.keys().map(JobName::as_str).collect()
}

/// A session that runs these jobs under token 7 and has acknowledged revision 3 at second 1.
fn running(jobs: &[&str]) -> Session {
    let mut session = open();
    let granted: Vec<_> = jobs.iter().map(|job| (*job, 7)).collect();
    session.step(at(1), view(3, &granted));
    session.step(at(1), written(2));
    session
}

#[test]
fn a_job_that_ended_is_acknowledged_half_a_second_after_the_view_while_another_still_stops() {
    let mut session = running(&["quick", "slow", "stays"]);
    assert_eq!(session.step(ms(2_000), view(4, &[("stays", 7)])), [stop("quick"), stop("slow")]);
    assert_eq!(session.step(ms(2_010), joined("quick")), []);
    assert_eq!(session.wakes_at(), Some(ms(2_500)));
    assert_eq!(session.step(ms(2_499), SessionEvent::Tick), []);
    let sent = &writes(&session.step(ms(2_500), SessionEvent::Tick))[0];
    assert_eq!((sent.ack.revision, sent.ack.stopping.reads), (3, 4));
    assert_eq!(names(sent), ["slow"]);
    session.step(ms(2_510), written(3));
    assert_eq!(session.wakes_at(), Some(ms(6_500)), "there is nothing more to say");
    let sent = &writes(&session.step(ms(5_000), joined("slow")))[0];
    assert_eq!((sent.ack.revision, sent.ack.stopping.is_none()), (4, true));
}

#[test]
fn jobs_that_all_stop_within_half_a_second_take_one_write() {
    let mut session = running(&["a", "b"]);
    session.step(ms(2_000), view(4, &[]));
    assert_eq!(session.step(ms(2_100), joined("a")), []);
    let sent = writes(&session.step(ms(2_499), joined("b")));
    assert_eq!((sent.len(), sent[0].ack.revision, names(&sent[0]).len()), (1, 4, 0));
    session.step(ms(2_510), written(3));
    assert_eq!(session.step(ms(6_000), SessionEvent::Tick), []);
}

#[test]
fn while_nothing_has_ended_nothing_is_said() {
    let mut session = running(&["slow", "slower"]);
    session.step(ms(2_000), view(4, &[]));
    assert_eq!(session.wakes_at(), Some(ms(5_000)), "the renewal");
    assert_eq!(session.step(ms(4_999), SessionEvent::Tick), []);
    let renewal = &writes(&session.step(ms(5_000), SessionEvent::Tick))[0];
    assert!(renewal.ack.stopping.is_none());
    session.step(ms(5_010), written(3));
    session.step(ms(5_020), joined("slow"));
    session.step(ms(5_500), SessionEvent::Tick);
    session.step(ms(5_510), written(4));
    let renewal = &writes(&session.step(ms(9_500), SessionEvent::Tick))[0];
    assert_eq!(names(renewal), ["slower"], "for an operator that has just begun");
}

#[test]
fn views_that_follow_in_haste_put_off_nothing() {
    let mut session = running(&["quick", "slow", "stays"]);
    session.step(ms(2_000), view(4, &[("stays", 7)]));
    session.step(ms(2_010), joined("quick"));
    for n in 1..=4 {
        let jobs = [("stays", 7), ("more", n)];
        session.step(ms(2_000 + 100 * n), view(4 + n, &jobs[..=usize::from(n == 4)]));
    }
    let sent = &writes(&session.step(ms(2_500), SessionEvent::Tick))[0];
    assert_eq!((sent.ack.stopping.reads, names(sent)), (8, vec!["slow"]));
}

#[test]
fn a_view_that_stops_one_more_job_takes_back_no_part() {
    // The view comes before the part was reported, and after that.
    for (next_view, report, number) in [(2_400, 2_500, 3), (2_600, 6_500, 4)] {
        let mut session = running(&["next", "quick", "slow"]);
        session.step(ms(2_000), view(4, &[("next", 7)]));
        session.step(ms(2_010), joined("quick"));
        if next_view > 2_500 {
            session.step(ms(2_500), SessionEvent::Tick);
            session.step(ms(2_510), written(3));
        }
        // This view removes jobs that still run. The end of the other job holds under it, too.
        session.step(ms(next_view), view(5, &[]));
        let sent = &writes(&session.step(ms(report), SessionEvent::Tick))[0];
        assert_eq!((sent.number, sent.ack.stopping.reads), (number, 5));
        assert_eq!(names(sent), ["next", "slow"]);
    }
}

#[test]
fn a_view_that_takes_away_what_does_not_run_is_acknowledged_in_part() {
    let mut session = running(&["slow"]);
    session.step(ms(2_000), view(4, &[("again", 8)]));
    let sent = &writes(&session.step(ms(2_900), SessionEvent::Finished(job("again"))))[0];
    assert!(sent.ack.stopping.is_none(), "nothing that was asked for is done");
    session.step(ms(2_910), written(3));
    let sent = &writes(&session.step(ms(3_020), view(5, &[])))[0];
    assert_eq!((sent.ack.stopping.reads, names(sent)), (5, vec!["slow"]));
}

#[test]
fn many_ends_one_after_the_other_take_two_writes_a_second() {
    let name = |n: u64| format!("job-{n:03}");
    let all: Vec<_> = (0..100).map(name).collect();
    let mut session = running(&all.iter().map(String::as_str).collect::<Vec<_>>());
    session.step(ms(2_000), view(4, &[]));
    let mut sent = Vec::new();
    for n in 0..99 {
        let now = ms(2_000 + 40 * n);
        for write in writes(&session.step(now, joined(&name(n)))) {
            session.step(now, written(write.number));
            sent.push(write);
        }
    }
    assert_eq!(sent.len(), 7, "within four seconds");
    assert!(
        sent.is_sorted_by(|one, next| next.ack.stopping.jobs.len() < one.ack.stopping.jobs.len())
    );
}

#[test]
fn a_write_that_was_lost_is_made_again_and_says_what_is_true_then() {
    let mut session = running(&["quick", "quick-2", "slow"]);
    session.step(ms(2_000), view(4, &[]));
    session.step(ms(2_010), joined("quick"));
    let lost = &writes(&session.step(ms(2_500), SessionEvent::Tick))[0];
    assert_eq!(names(lost), ["quick-2", "slow"]);
    session.step(ms(2_600), joined("quick-2"));
    session.step(ms(4_500), SessionEvent::Lost { number: lost.number });
    assert_eq!(session.wakes_at(), Some(ms(5_500)), "a quarter of a renewal later");
    let again = &writes(&session.step(ms(5_500), SessionEvent::Tick))[0];
    assert_eq!(names(again), ["slow"]);
}

#[test]
fn a_refused_write_loses_no_news() {
    let mut session = running(&["quick", "slow"]);
    session.step(ms(2_000), view(4, &[]));
    session.step(ms(2_010), joined("quick"));
    let refused = writes(&session.step(ms(2_500), SessionEvent::Tick))[0].clone();
    session.step(ms(2_510), SessionEvent::Conflict { number: refused.number });
    let ack = Ack { revision: 3, ..Ack::default() };
    let earlier = Lease { version: LeaseVersion(9), holder: Holder::Session, number: 2, ack };
    session.step(ms(2_520), SessionEvent::LeaseRead(Some(earlier)));
    assert_eq!(session.wakes_at(), Some(ms(3_000)));
    let again = &writes(&session.step(ms(3_000), SessionEvent::Tick))[0];
    assert_eq!((again.expected, names(again)), (Some(LeaseVersion(9)), vec!["slow"]));
}

#[test]
fn more_jobs_than_can_be_named_are_not_acknowledged_in_part_until_fewer_are_left() {
    let name = |n: usize| format!("job-{n:03}");
    let all: Vec<_> = (0..=crate::handover::Stopping::JOBS_MAX + 1).map(name).collect();
    let mut session = running(&all.iter().map(String::as_str).collect::<Vec<_>>());
    session.step(ms(2_000), view(4, &[]));
    session.step(ms(2_010), joined(&name(0)));
    assert_eq!(session.step(ms(4_000), SessionEvent::Tick), []);
    let sent = &writes(&session.step(ms(4_001), joined(&name(1))))[0];
    assert_eq!(names(sent).len(), crate::handover::Stopping::JOBS_MAX);
}

#[test]
fn a_job_that_is_granted_again_while_it_stops_is_named_no_longer() {
    let mut session = running(&["back", "quick", "slow"]);
    session.step(ms(2_000), view(4, &[]));
    session.step(ms(2_010), view(5, &[("back", 7)]));
    session.step(ms(2_020), joined("quick"));
    let sent = &writes(&session.step(ms(2_510), SessionEvent::Tick))[0];
    assert_eq!((sent.ack.stopping.reads, names(sent)), (5, vec!["slow"]));
}
