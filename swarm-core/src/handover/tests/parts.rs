//! Acknowledgements for all jobs except the jobs that they name.

use super::*;

/// An acknowledgement of revision `acked`, and in part of `reads`.
fn ack(incarnation: u64, acked: u64, reads: u64, names: &[&str]) -> Ack {
    let jobs = names.iter().map(|name| (name.parse().unwrap(), Token(1)));
    let stopping = Stopping { reads, jobs: jobs.collect() };
    Ack { incarnation, revision: acked, stopping, ..Ack::default() }
}

fn known(acked: u64, reads: u64, names: &[&str]) -> Evidence {
    let mut known = Evidence::acked(acked);
    known.stopping = ack(0, acked, reads, names).stopping;
    known
}

/// A watch that has seen these acknowledgements, in this order.
fn watched(acks: &[Ack]) -> Watch {
    let lease = |ack: &Ack| Lease {
        version: LeaseVersion(1),
        holder: Holder::Session,
        number: 1,
        ack: ack.clone(),
    };
    let mut watch = Watch::begin(Moment::default(), &lease(&acks[0]));
    for ack in acks {
        let seen = WatchEvent::Seen(lease(ack));
        let _ = watch.step(Moment::default(), &seen, &LeaseTerms::default());
    }
    watch
}

#[test]
fn a_job_is_granted_elsewhere_while_its_session_still_stops_another() {
    for policy in [Policy::Exclusive, Policy::AtLeastOnce] {
        let releasing = go(&granted(&id(1)), Some(at(&id(2))), &[], 0, policy).unwrap();
        let next = |known| go(&releasing, Some(at(&id(2))), &[(id(1), known)], 0, policy);
        assert_eq!(next(known(1, 1, &["b"])), None, "a view from before the release");
        assert_eq!(next(known(1, 2, &["a", "b"])), None, "the job is named");
        let moved = next(known(1, 2, &["b"])).unwrap();
        assert_eq!(*cell(&moved), Cell::Granted { session: id(2), token: Token(2) });
    }
}

#[test]
fn of_jobs_that_all_ran_only_those_that_a_session_names_are_waited_for() {
    let record = || Record { cell: Cell::ReleasingAll { token: Token(7), since: 3 }, strikes: 0 };
    let names = ["a", "b", "c"].map(|name| name.parse::<JobName>().unwrap());
    let jobs = names.clone().map(|name| (name, record())).into();
    let cells = Cells { revision: 3, jobs, ..Cells::new(0) };
    let goal = names.clone().map(|name| (name, at(&id(1)))).into();
    let seats = [id(1), id(2)].map(|session| (session, Seat::default())).into();
    let (ages, jobs) = (BTreeMap::new(), Jobs::new());
    let granted = |first: Evidence, second: Evidence| {
        let evidence = [(id(1), first), (id(2), second)].into();
        let inputs = StepInputs {
            goal: &goal,
            evidence: &evidence,
            ages: &ages,
            jobs: &jobs,
            seats: &seats,
        };
        let terms = terms(Policy::Exclusive);
        let Some(save) = advance(&cells, &inputs, &terms) else { return String::new() };
        assert_eq!(check_step(&cells, &save.next, &inputs, &terms), Ok(()));
        let granted = save.next.jobs.iter().filter(|(_, it)| it.cell.holder().is_some());
        granted.map(|(job, _)| job.as_str()).collect()
    };
    assert_eq!(granted(known(2, 3, &["a"]), known(2, 3, &["b"])), "c");
    assert_eq!(granted(known(3, 0, &[]), known(2, 3, &["b"])), "ac");
    assert_eq!(granted(known(2, 3, &[]), known(2, 2, &[])), "");
    assert_eq!(
        granted(known(3, 0, &[]), Evidence { ended: Some(Proof::Closed), ..known(0, 0, &[]) }),
        "abc"
    );
}

#[test]
fn copies_of_a_lease_in_any_order_prove_the_same() {
    let history = [
        ack(4, 6, 0, &[]),
        ack(4, 6, 7, &["a", "b"]),
        ack(4, 6, 7, &["b"]),
        ack(4, 6, 0, &[]),
        ack(4, 6, 8, &["b", "c"]),
    ];
    let newest = history[4].stopping.clone();
    for first in 0..history.len() {
        for second in 0..history.len() {
            let copies = [history[first].clone(), history[4].clone(), history[second].clone()];
            assert_eq!(watched(&copies).ack.stopping, newest, "{first} {second}");
        }
        let copies = [&history[2], &history[first], &history[1]].map(Clone::clone);
        let names = watched(&copies).ack.stopping.jobs.len();
        assert_eq!(names, if first == 4 { 2 } else { 1 }, "{first}: what was proved stays proved");
    }
}

#[test]
fn a_plain_acknowledgement_of_the_view_ends_its_part() {
    let copies = [ack(4, 6, 7, &["a"]), ack(4, 7, 0, &[]), ack(4, 6, 7, &["a"])];
    let watch = watched(&copies);
    assert_eq!((watch.ack.revision, watch.ack.stopping.is_none()), (7, true));
}

#[test]
fn what_finished_and_whether_it_drains_come_from_the_latest_plain_acknowledgement() {
    let later = Ack { is_draining: true, ..ack(4, 6, 0, &[]) };
    let watch = watched(&[ack(4, 6, 7, &["a"]), later]);
    assert_eq!((watch.ack.is_draining, watch.ack.stopping.reads), (true, 7));
    let early = Ack { is_draining: true, ..ack(4, 5, 0, &[]) };
    assert!(!watched(&[ack(4, 6, 7, &["a"]), early]).ack.is_draining);
}

#[test]
fn names_of_another_incarnation_prove_nothing() {
    for copies in
        [[ack(4, 6, 9, &["a"]), ack(5, 1, 2, &["b"])], [ack(5, 1, 2, &["b"]), ack(4, 6, 9, &["a"])]]
    {
        let watch = watched(&copies);
        assert_eq!(watch.evidence(5).released(&job()), 2);
        assert_eq!(watch.evidence(5).released(&"b".parse().unwrap()), 1);
        assert_eq!(watch.evidence(4).released(&job()), 0);
    }
}
