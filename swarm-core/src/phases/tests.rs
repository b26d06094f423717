//! Tests of the phases, on ledgers that a decision made.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::handover::{LeaseTerms, Moment, ONE_CLOCK_MARGIN, Policy, SessionId, TWO_CLOCKS_MARGIN};
use crate::overseer::{Fact, LeaseFacts, Overseer};
use crate::{Desired, Observed, Presence, Slot, Timing, Token, WorkerSeen, decide, jobs};

fn session(n: u32) -> SessionId {
    SessionId::new(&format!("pod-{n}"), 1)
}

fn desired(names: &[&str]) -> Desired {
    let timing = Timing { initial_wait: Duration::ZERO, ..Timing::default() };
    let jobs = jobs(names.iter().copied()).unwrap();
    Desired { jobs, timing, policy: Policy::Exclusive, ..Desired::default() }
}

fn decided(ledger: &Ledger, desired: &Desired, workers: u32) -> Decision {
    let worker = |n: u32| {
        let session = Some(session(n));
        (Slot(n), WorkerSeen { name: format!("w-{n}"), presence: Presence::Ready, session })
    };
    decide(ledger, desired, &Observed::new((0..workers).map(worker), 1, []))
}

fn names(of: &[&str]) -> BTreeSet<JobName> {
    of.iter().map(|name| name.parse().unwrap()).collect()
}

fn words(decision: &Decision, unacknowledged: &Unacknowledged, failing: &[&str]) -> String {
    let failing = names(failing);
    let unheard = &BTreeSet::new();
    let phases = Phases { decision, unacknowledged, unheard, failing: &failing };
    let all = decision.ledger.cells.jobs.keys();
    let words: Vec<_> = all.map(|job| phases.of(job.as_str()).unwrap().as_str()).collect();
    let counted: usize = phases.counts().values().sum();
    assert_eq!(counted, words.len(), "each job counts once");
    words.join(" ")
}

#[test]
fn a_granted_job_runs_once_its_session_acknowledges_a_revision_that_grants_it() {
    let first = decided(&Ledger::new(1), &desired(&["a", "b"]), 1);
    let mut seen = Unacknowledged::default();
    seen.observe(&first.ledger, &names(&["a", "b"]), |_, _| 0);
    assert_eq!(words(&first, &seen, &[]), "published published");
    let granted_at = first.ledger.revision();
    seen.observe(&first.ledger, &BTreeSet::new(), |_, _| granted_at);
    assert_eq!(words(&first, &seen, &[]), "running running");
    assert!(seen.is_empty());

    // The next revision grants one more job to the same session, which has not read it yet.
    let next = decided(&first.ledger, &desired(&["a", "b", "c"]), 1);
    assert_eq!(next.ledger.revision(), granted_at + 1);
    seen.observe(&next.ledger, &names(&["c"]), |_, _| granted_at);
    assert_eq!(words(&next, &seen, &[]), "running running published");
    // It still stops something for this revision, but has carried out the rest of it.
    seen.observe(&next.ledger, &BTreeSet::new(), |_, job| granted_at + u64::from(job == "c"));
    assert_eq!(words(&next, &seen, &[]), "running running running");
}

#[test]
fn an_observer_that_starts_late_believes_only_an_acknowledgement_of_the_newest_view() {
    let decision = decided(&Ledger::new(1), &desired(&["a", "b"]), 2);
    let has_newest = |it: &SessionId, _: &str| if *it == session(0) { u64::MAX } else { 0 };
    let mut late = Unacknowledged::default();
    late.observe(&decision.ledger, &BTreeSet::new(), has_newest);
    let mut both: Vec<_> = words(&decision, &late, &[]).split(' ').map(str::to_owned).collect();
    both.sort();
    assert_eq!(both, ["published", "running"]);
    // The same holds after a gap, in which another observer may have granted jobs.
    let mut ledger = decision.ledger.clone();
    ledger.cells.revision += 2;
    let mut seen = Unacknowledged::default();
    seen.observe(&decision.ledger, &BTreeSet::new(), |_, _| u64::MAX);
    assert!(seen.is_empty());
    seen.observe(&ledger, &BTreeSet::new(), has_newest);
    assert_eq!(seen.since.keys().collect::<Vec<_>>(), late.since.keys().collect::<Vec<_>>());
}

#[test]
fn a_job_that_fails_is_failing_and_a_released_one_is_stopping() {
    let first = decided(&Ledger::new(1), &desired(&["a", "b"]), 1);
    let mut seen = Unacknowledged::default();
    seen.observe(&first.ledger, &names(&["a", "b"]), |_, _| u64::MAX);
    assert_eq!(words(&first, &seen, &["b"]), "running failing");
    let mut without = desired(&["a", "b"]);
    without.jobs.get_mut("b").unwrap().suspend = true;
    let next = decided(&first.ledger, &without, 1);
    seen.observe(&next.ledger, &BTreeSet::new(), |_, _| 1);
    // Its worker may still report the failure.
    assert_eq!(words(&next, &seen, &["b"]), "running stopping");
}

#[test]
fn a_job_of_all_workers_runs_once_all_of_them_have_acknowledged_it() {
    let all = Desired { replication: crate::Replication::All, ..desired(&["a"]) };
    let decision = decided(&Ledger::new(1), &all, 2);
    let mut seen = Unacknowledged::default();
    let revision = decision.ledger.revision();
    seen.observe(
        &decision.ledger,
        &names(&["a"]),
        |it, _| {
            if *it == session(0) { revision } else { 0 }
        },
    );
    assert_eq!(words(&decision, &seen, &[]), "published");
    seen.observe(&decision.ledger, &BTreeSet::new(), |_, _| revision);
    assert_eq!(words(&decision, &seen, &[]), "running");
    // A third worker joins, and nothing is granted for it.
    let wider = decided(&decision.ledger, &all, 3);
    seen.observe(
        &wider.ledger,
        &BTreeSet::new(),
        |it, _| {
            if *it == session(2) { 0 } else { revision }
        },
    );
    assert_eq!(words(&wider, &seen, &[]), "published");
    seen.observe(&wider.ledger, &BTreeSet::new(), |_, _| revision);
    assert_eq!(words(&wider, &seen, &[]), "running");
}

#[test]
fn plain_workers_acknowledge_nothing() {
    let seen = WorkerSeen {
        name: "w-0".into(),
        presence: Presence::Ready,
        session: Some(SessionId::plain("w-0")),
    };
    let desired = Desired { policy: Policy::AtLeastOnce, ..desired(&["a"]) };
    let decision = decide(&Ledger::new(1), &desired, &Observed::new([(Slot(0), seen)], 1, []));
    let mut unacknowledged = Unacknowledged::default();
    unacknowledged.observe(&decision.ledger, &names(&["a"]), |_, _| 0);
    assert_eq!(words(&decision, &unacknowledged, &[]), "published");
    assert!(unacknowledged.is_empty(), "nothing is remembered for them");
}

#[test]
fn each_state_without_a_holder_has_its_phase() {
    let (span, token) = (Duration::from_mins(1), Token(1));
    let cells = [
        (Cell::ReleasingAll { token, since: 1 }, 0),
        (Cell::Hold { slot: Slot(0), span, token }, 0),
        (Cell::Free { token }, 0),
        (Cell::Free { token }, 0),
        (Cell::Free { token }, 0),
        (Cell::Quarantined { span, token }, 3),
        (Cell::Quarantined { span, token }, 0),
        (Cell::Done { token }, 0),
    ];
    let mut decision = decided(&Ledger::new(1), &desired(&[]), 1);
    let record = |(n, (cell, strikes)): (usize, (Cell, u32))| {
        (format!("job-{n}").parse().unwrap(), Record { cell, strikes })
    };
    decision.ledger.cells.jobs = cells.into_iter().enumerate().map(record).collect();
    let reason = ("job-3".parse().unwrap(), Unassigned::Pin);
    let suspended = ("job-4".parse().unwrap(), Unassigned::Suspended);
    decision.plan.unassigned = [reason, suspended].into();
    let expected = "stopping waiting waiting unassigned suspended quarantined waiting done";
    assert_eq!(words(&decision, &Unacknowledged::default(), &[]), expected);
}

#[test]
fn a_job_of_all_workers_runs_only_if_every_worker_is_heard() {
    let all = Desired { replication: crate::Replication::All, ..desired(&["a"]) };
    let decision = decided(&Ledger::new(1), &all, 2);
    let mut unacknowledged = Unacknowledged::default();
    unacknowledged.observe(&decision.ledger, &BTreeSet::new(), |_, _| u64::MAX);
    let of = |unheard: &BTreeSet<SessionId>| {
        let (decision, unacknowledged) = (&decision, &unacknowledged);
        Phases { decision, unacknowledged, unheard, failing: &BTreeSet::new() }.of("a")
    };
    assert_eq!(of(&BTreeSet::new()), Some(JobPhase::Running));
    assert_eq!(of(&[session(1)].into()), Some(JobPhase::Published));
    assert_eq!(of(&[session(7)].into()), Some(JobPhase::Running), "it fills no slot");
}

#[test]
fn failing_jobs_without_a_name_may_be_those_of_a_silent_worker() {
    let decision = decided(&Ledger::new(1), &desired(&["a", "b", "c"]), 1);
    let mut unacknowledged = Unacknowledged::default();
    unacknowledged.observe(&decision.ledger, &BTreeSet::new(), |_, _| u64::MAX);
    let counts = |unheard: &BTreeSet<SessionId>, unnamed| {
        let (decision, unacknowledged) = (&decision, &unacknowledged);
        let failing = &names(&["a"]);
        let counts = Phases { decision, unacknowledged, unheard, failing }.counts_with(unnamed);
        let count = |phase| counts.get(&phase).copied().unwrap_or_default();
        [JobPhase::Running, JobPhase::Published, JobPhase::Failing].map(count)
    };
    assert_eq!(counts(&BTreeSet::new(), 1), [1, 0, 2]);
    assert_eq!(counts(&[session(0)].into(), 1), [0, 1, 2]);
    assert_eq!(counts(&[session(0)].into(), 9), [0, 0, 3]);
}

proptest! {
    #[test]
    fn no_job_of_a_session_counts_as_running_whose_last_renewal_is_too_old(
        ages_ms in prop::collection::vec(0_u64..40_000, 1..8),
        renew_s in 1_u64..6,
        longer_s in 0_u64..30,
        two_clocks in any::<bool>(),
        everywhere in any::<bool>(),
    ) {
        let default = LeaseTerms::default();
        let (renew, longer) = (Duration::from_secs(renew_s), Duration::from_secs(longer_s));
        let duration = 3 * renew + default.stop_timeout + longer;
        let terms = LeaseTerms { duration, renew, ..default };
        let margin = if two_clocks { TWO_CLOCKS_MARGIN } else { ONE_CLOCK_MARGIN };
        let bound = terms.silent_after(margin);
        prop_assert!(3 * renew < bound && bound <= duration);

        let replication =
            if everywhere { crate::Replication::All } else { crate::Replication::One };
        let desired = Desired { replication, ..desired(&["a", "b", "c", "d", "e", "f"]) };
        let workers = u32::try_from(ages_ms.len()).unwrap();
        let decision = decided(&Ledger::new(1), &desired, workers);
        let mut unacknowledged = Unacknowledged::default();
        unacknowledged.observe(&decision.ledger, &BTreeSet::new(), |_, _| u64::MAX);

        let now = Moment(Duration::from_secs(60));
        let ages = ages_ms.iter().map(|ms| Duration::from_millis(*ms));
        let ages: BTreeMap<_, _> = (0..workers).map(session).zip(ages).collect();
        let mut overseer = Overseer::new(terms);
        for (session, age) in &ages {
            let renewed = Fact::Lease(session.clone(), LeaseFacts::held(1, terms.duration));
            overseer.learn(now.before(*age), renewed);
        }
        let unheard = &overseer.unheard(now, margin);
        let (decision, unacknowledged) = (&decision, &unacknowledged);
        let phases = Phases { decision, unacknowledged, unheard, failing: &BTreeSet::new() };
        let mut running = 0;
        for (job, record) in &decision.ledger.cells.jobs {
            let is_young = match &record.cell {
                Cell::Granted { session, .. } => ages[session] < bound,
                _ => ages.values().all(|age| *age < bound),
            };
            running += usize::from(is_young);
            let expected = if is_young { JobPhase::Running } else { JobPhase::Published };
            prop_assert_eq!(phases.of(job.as_str()), Some(expected));
        }
        let counted = phases.counts().get(&JobPhase::Running).copied().unwrap_or_default();
        prop_assert_eq!(counted, running);
    }
}
