//! Random runs of a whole pool, with every kind of fault; afterwards the pool recovers.
#![expect(clippy::print_stdout, reason = "the figures are worth reading")]

use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use swarm_core::handover::{Policy, Rule};
use swarm_core::{Mode, Replication};
use swarm_sim::{Act, Delay, Edge, Extent, Fleet, FleetTerms, Lie, Numbers, Stop, Stuck};

use crate::extent::share_of;

/// Random acts. About `store` of a thousand acts copy the store or roll it back. Edits and
/// deletions of Leases are `leases` times as frequent as most other acts.
fn act(store: u32, leases: u32) -> impl Strategy<Value = Act> {
    let n = || 0_usize..12;
    let o = || 0_usize..2;
    let back = || prop_oneof![4 => Just(0_usize), 1 => 0_usize..6];
    let stop = prop_oneof![
        12 => Just(None),
        1 => Just(Some(Stop::BeforeSave)),
        1 => Just(Some(Stop::BeforePublish)),
    ];
    let work = prop_oneof![
        6 => n().prop_map(Act::Calm),
        6 => n().prop_map(Act::Report),
        3 => n().prop_map(Act::Apply),
        1 => n().prop_map(Act::Drop),
        3 => n().prop_map(Act::Reply),
        2 => (n(), back()).prop_map(|(n, back)| Act::Read(n, back)),
        1 => n().prop_map(Act::Lose),
        8 => (n(), back()).prop_map(|(n, back)| Act::View(n, back)),
        2 => n().prop_map(Act::Join),
        8 => prop_oneof![3 => Just(0_u32), 1 => any::<u32>()].prop_map(Act::Tick),
    ];
    let faults = prop_oneof![
        1 => n().prop_map(Act::Finish),
        2 => (n(), proptest::option::weighted(0.2, n())).prop_map(|(n, k)| Act::Crash(n, k)),
        2 => n().prop_map(Act::Freeze),
        3 => n().prop_map(Act::Resume),
        1 => n().prop_map(Act::Terminate),
        1 => (n(), prop_oneof![Just(Stuck::Reading), Just(Stuck::Stopping)])
            .prop_map(|(n, stuck)| Act::Stick(n, stuck)),
        3 => (0_u32..5).prop_map(Act::Start),
        2 => n().prop_map(Act::Flip),
    ];
    let edits = prop_oneof![
        1 => (0_u32..5).prop_map(Act::Scale),
        2 => n().prop_map(Act::Toggle),
        1 => (n(), proptest::option::of(0_u32..4)).prop_map(|(n, slot)| Act::Pin(n, slot)),
        1 => (n(), proptest::option::of(20_u8..90)).prop_map(|(n, share)| Act::Share(n, share)),
        1 => n().prop_map(Act::RunOnce),
        1 => n().prop_map(Act::Suspend),
        1 => prop::bool::weighted(0.2).prop_map(Act::SuspendAll),
        1 => (0_u32..5, proptest::option::of(20_u8..100)).prop_map(|(slot, size)| Act::Size(slot, size)),
        2 => prop::bool::weighted(0.2).prop_map(Act::Pause),
        1 => proptest::option::of(0_u32..5).prop_map(Act::Replicas),
        1 => (n(), -1_i32..2).prop_map(|(n, priority)| Act::Priority(n, priority)),
        1 => proptest::option::of(1_u32..5).prop_map(Act::MaxJobs),
        1 => (0_u32..4).prop_map(Act::Batch),
        1 => policy().prop_map(Act::Change),
        leases => (0_u32..5).prop_map(Act::Lease),
        1 => prop_oneof![2 => Just(Replication::One), 1 => Just(Replication::All)]
            .prop_map(Act::Replicate),
    ];
    let operators = prop_oneof![
        8 => (o(), back()).prop_map(|(o, back)| Act::Observe(o, back)),
        2 => o().prop_map(Act::LearnEnds),
        4 => (o(), any::<bool>()).prop_map(|(o, is_lost)| Act::Revoke(o, is_lost)),
        12 => (o(), back(), stop).prop_map(|(o, back, stop)| Act::Turn(o, back, stop)),
        1 => o().prop_map(Act::Fail),
        1 => o().prop_map(Act::Restart),
        2 => o().prop_map(Act::Sweep),
        leases => n().prop_map(Act::DeleteLease),
    ];
    let copies = prop_oneof![
        4 => Just(Act::Copy),
        2 => (0_u32..6).prop_map(Act::RestoreWithoutLedger),
        1 => (o(), 0_usize..4).prop_map(|(o, back)| Act::RollBack(o, back)),
        2 => (0_u32..6, 0_u32..4).prop_map(|(outage, restarts)| Act::Restore(outage, restarts)),
    ];
    prop_oneof![460 => work, 115 => faults, 75 => edits, 350 => operators, store => copies]
}

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![Just(Policy::Exclusive), Just(Policy::AtLeastOnce)]
}

fn terms() -> impl Strategy<Value = FleetTerms> {
    let replication = prop_oneof![4 => Just(Replication::One), 1 => Just(Replication::All)];
    let mode = prop_oneof![4 => Just(Mode::Sticky), 1 => Just(Mode::Canonical)];
    let first_slot = prop_oneof![3 => Just(0_u32), 1 => 1_u32..9];
    let moves_max = proptest::option::of(1_usize..3);
    (policy(), replication, mode, moves_max, first_slot).prop_map(
        |(policy, replication, mode, moves_max, first_slot)| FleetTerms {
            policy,
            replication,
            moves_max,
            mode,
            first_slot,
            ..FleetTerms::default()
        },
    )
}

fn run(terms: FleetTerms, acts: &[Act]) -> Result<Fleet, String> {
    let mut fleet = Fleet::new(terms);
    for (n, act) in acts.iter().enumerate() {
        fleet.take(*act);
        if let Some(wrong) = fleet.wrong() {
            return Err(format!("after act {n}, {act:?}: {wrong}"));
        }
    }
    fleet.heal()?;
    Ok(fleet)
}

proptest! {
    #![proptest_config(crate::seeds::cases_of(3))]

    /// Scope: one to four slots, up to eight jobs, two operators, up to 300 acts of any kind.
    #[test]
    fn whatever_happens_no_job_runs_twice_and_all_comes_right_in_the_end(
        terms in terms(),
        acts in proptest::collection::vec(act(5, 1), 0..300),
    ) {
        let run = run(terms, &acts);
        prop_assert!(run.is_ok(), "{}", run.unwrap_err());
    }

    /// Scope: as above, and the store is sometimes rolled back, without the ledger.
    #[test]
    fn a_store_that_is_rolled_back_makes_no_job_run_twice(
        acts in proptest::collection::vec(act(60, 1), 0..150),
    ) {
        let run = run(FleetTerms::default(), &acts);
        prop_assert!(run.is_ok(), "{}", run.unwrap_err());
    }
}

proptest! {
    #![proptest_config(crate::seeds::cases_of(5))]

    /// Scope: as above, with Leases that are often edited and deleted.
    #[test]
    fn leases_that_are_shortened_and_deleted_are_waited_out(
        acts in proptest::collection::vec(act(5, 8), 0..200),
    ) {
        let run = run(FleetTerms::default(), &acts);
        prop_assert!(run.is_ok(), "{}", run.unwrap_err());
    }
}

/// Random runs like the others, but the same every time.
fn runs(terms: FleetTerms, count: usize) -> impl Iterator<Item = Result<Fleet, String>> {
    let mut runner = TestRunner::deterministic();
    let acts = proptest::collection::vec(act(5, 1), 0..300);
    (0..count).filter_map(move |_| {
        let acts = acts.new_tree(&mut runner).ok()?.current();
        Some(run(terms, &acts))
    })
}

#[test]
#[ignore = "takes long: `just test-protocols` runs it"]
fn a_broken_rule_is_noticed_in_whole_pools_too() {
    for rule in [
        Rule::NewerViewsOnly,
        Rule::JoinBeforeAck,
        Rule::RevokeBeforeFence,
        Rule::RevokeAtSeenVersion,
        Rule::NameUntilJoined,
    ] {
        let terms = FleetTerms { broken: Some(rule), ..FleetTerms::default() };
        let is_noticed = runs(terms, 1000).any(|run| run.is_err());
        assert!(is_noticed, "nobody noticed that {rule:?} was broken");
    }
}

/// The problem after a worker resumes that was frozen until others ran its jobs, if there is one.
/// Random runs rarely lead there.
fn goes_on_late(broken: Option<Rule>) -> Option<String> {
    let mut fleet = Fleet::new(FleetTerms { broken, ..FleetTerms::default() });
    assert_eq!(fleet.heal(), Ok(()));
    assert!(!fleet.runs(0).is_empty());
    fleet.take(Act::Freeze(0));
    for _ in 0..12 {
        let others = [Act::Calm(1), Act::Calm(2)];
        let looks = [Act::Observe(0, 0), Act::Revoke(0, false), Act::Turn(0, 0, None)];
        [Act::Tick(0)].into_iter().chain(others).chain(looks).for_each(|act| fleet.take(act));
        assert_eq!(fleet.wrong(), None);
    }
    assert_eq!([1, 2].map(|n| fleet.runs(n).len()), [3, 3]);
    fleet.take(Act::Resume(0));
    fleet.wrong().map(String::from)
}

#[test]
fn a_worker_that_goes_on_late_looks_first_whether_it_may() {
    assert_eq!(goes_on_late(None), None);
    let wrong = goes_on_late(Some(Rule::CheckOnResume)).unwrap();
    assert!(wrong.contains("does not hold it"), "{wrong}");
}

#[test]
fn runs_write_the_ledger_often() {
    let start = Instant::now();
    let fleets: Vec<_> = runs(FleetTerms::default(), 50).filter_map(Result::ok).collect();
    let took = start.elapsed().as_secs_f64();
    let simulated: Duration = fleets.iter().map(Fleet::simulated).sum();
    let hours = simulated.as_secs_f64() / 3600.0;
    println!("{hours:.1} simulated hours in {took:.1} s: {:.1} in a second", hours / took);
    let writes: usize = fleets.iter().map(Fleet::writes).sum();
    assert!(50 * 5 < writes, "only {writes} writes in all runs");
    assert!(!simulated.is_zero(), "no time went by");
}

fn comes_right(terms: FleetTerms, acts: &[Act]) {
    assert_eq!(run(terms, acts).err(), None);
}

#[test]
fn a_lease_deleted_while_no_operator_looked_is_waited_out() {
    comes_right(
        FleetTerms::default(),
        &[
            Act::Calm(2),
            Act::Observe(1, 0),
            Act::Turn(1, 0, None),
            Act::Restart(1),
            Act::DeleteLease(2),
        ],
    );
}

/// A pool whose fourth worker has a Lease twice as long as the Swarm asks for now, in a slot that
/// has another worker since. That Lease was deleted, and the operator has just started.
fn outlived() -> Fleet {
    let mut fleet = settled(3);
    goes_well(&mut fleet, [Act::Lease(4), Act::Start(0)]);
    assert_eq!(fleet.heal(), Ok(()));
    assert_eq!(fleet.runs(3).len(), 2);
    let lost = [Act::Report(3), Act::Lease(0), Act::DeleteLease(3), Act::Restart(0), Act::Start(0)];
    goes_well(&mut fleet, lost);
    fleet
}

#[test]
fn a_deleted_lease_that_was_longer_than_is_asked_for_now_is_waited_out() {
    let mut fleet = outlived();
    for tick in 1..=12 {
        goes_well(&mut fleet, [1, 2, 4].map(Act::Report));
        goes_well(&mut fleet, [Act::Observe(0, 0), Act::Revoke(0, false), Act::Turn(0, 0, None)]);
        goes_well(&mut fleet, [Act::View(4, 0), Act::Tick(0)]);
        if tick < 8 {
            assert_eq!([3, 4].map(|n| fleet.runs(n).len()), [2, 0], "after {tick} ticks");
        }
    }
    assert_eq!([3, 4].map(|n| fleet.runs(n).len()), [0, 2]);
    fleet.heal().unwrap();
}

#[test]
fn jobs_do_not_wait_forever_for_a_slot_that_is_no_longer_wanted() {
    let mut acts = vec![Act::Start(1), Act::Calm(4), Act::Observe(0, 0)];
    acts.extend([Act::Tick(0); 2]);
    acts.extend([Act::Observe(1, 0), Act::Turn(0, 0, None), Act::Tick(0), Act::Tick(0)]);
    acts.extend([Act::Revoke(0, false), Act::Calm(4), Act::LearnEnds(1), Act::Calm(0)]);
    acts.extend([Act::Turn(1, 0, None), Act::Calm(0), Act::Scale(0)]);
    comes_right(FleetTerms::default(), &acts);
}

#[test]
fn a_lease_is_not_made_again_after_it_was_revoked_and_deleted() {
    let mut acts = vec![Act::Start(0), Act::Lose(3), Act::Tick(0), Act::Apply(3), Act::Drop(3)];
    acts.push(Act::Observe(1, 0));
    acts.extend([Act::Tick(0); 4]);
    acts.push(Act::Revoke(1, false));
    comes_right(FleetTerms::default(), &acts);
}

#[test]
fn a_grant_that_was_never_published_can_be_released() {
    let terms = FleetTerms { mode: Mode::Canonical, ..FleetTerms::default() };
    let mut acts = vec![Act::Toggle(4), Act::Calm(2), Act::Observe(0, 0), Act::Toggle(5)];
    acts.extend([Act::Turn(0, 0, None), Act::Crash(2, None), Act::Toggle(1), Act::Start(2)]);
    acts.extend([Act::Calm(3), Act::Observe(0, 0), Act::Observe(1, 0), Act::Turn(0, 0, None)]);
    acts.extend([Act::LearnEnds(1), Act::Turn(1, 0, Some(Stop::BeforePublish))]);
    comes_right(terms, &acts);
}

#[test]
fn a_job_that_was_being_stopped_when_its_worker_froze_is_joined_later() {
    let mut acts = vec![Act::Tick(0), Act::Report(0), Act::Observe(0, 0), Act::Calm(0)];
    acts.extend([Act::Turn(0, 0, None), Act::View(0, 0), Act::Calm(0)]);
    acts.extend([Act::Tick(0), Act::Tick(0), Act::Tick(0), Act::Freeze(0), Act::Join(0)]);
    acts.extend([Act::Start(0), Act::Resume(0), Act::Calm(0)]);
    comes_right(FleetTerms::default(), &acts);
}

#[test]
fn what_was_granted_before_a_lease_was_known_to_exist_is_looked_at_before_it_runs() {
    let mut acts = vec![Act::Lose(2), Act::Tick(0), Act::Lose(2), Act::Calm(0), Act::Tick(0)];
    acts.extend([Act::Calm(2), Act::Copy, Act::Calm(0), Act::Calm(0), Act::Observe(1, 0)]);
    acts.extend([Act::Turn(1, 0, None), Act::Start(0), Act::View(2, 0), Act::View(0, 0)]);
    acts.extend([Act::RestoreWithoutLedger(0), Act::Scale(1)]);
    comes_right(FleetTerms::default(), &acts);
}

/// A pool that has settled with this number of slots.
#[expect(clippy::unwrap_used, reason = "a test helper: a pool that does not settle is the failure")]
fn settled(slots: u32) -> Fleet {
    let mut fleet = Fleet::new(FleetTerms::default());
    fleet.take(Act::Scale(slots));
    fleet.heal().unwrap();
    fleet
}

fn goes_well(fleet: &mut Fleet, acts: impl IntoIterator<Item = Act>) {
    for act in acts {
        fleet.take(act);
        assert_eq!(fleet.wrong(), None, "after {act:?}");
    }
}

/// The acts of the first operator with everything that it can see.
const LOOKS: [Act; 2] = [Act::Observe(0, 0), Act::Turn(0, 0, None)];

/// Rolls the store back to a copy from before the first worker was cut off, fenced and replaced.
/// The operators in the set of bits restart. Then the first worker reaches the store again.
fn restored_behind_a_fence(restarts: u32) -> Fleet {
    let mut fleet = settled(3);
    goes_well(&mut fleet, [Act::Copy]);
    let lost = fleet.runs(0).clone();
    for _ in 0..12 {
        goes_well(&mut fleet, [Act::Tick(0), Act::Calm(1), Act::Calm(2)]);
        goes_well(&mut fleet, [Act::Join(0), Act::Join(0), Act::Join(0)]);
        for o in 0..2 {
            goes_well(&mut fleet, [Act::Observe(o, 0), Act::Revoke(o, false)]);
            goes_well(&mut fleet, [Act::Turn(o, 0, None)]);
        }
    }
    assert!(fleet.runs(0).is_empty() && !lost.is_empty());
    assert!(lost.keys().all(|job| [1, 2].iter().any(|n| fleet.runs(*n).contains_key(job))));
    goes_well(&mut fleet, [Act::Restore(5, restarts), Act::Lose(0), Act::Tick(0)]);
    fleet
}

#[test]
fn a_session_that_was_fenced_before_a_rollback_is_waited_for_again() {
    for restarts in 0..4 {
        let mut fleet = restored_behind_a_fence(restarts);
        for _ in 0..20 {
            goes_well(&mut fleet, [0, 1, 2].map(Act::Report));
            for o in 0..2 {
                goes_well(&mut fleet, [Act::Observe(o, 0), Act::Revoke(o, false)]);
                goes_well(&mut fleet, [Act::Turn(o, 0, None)]);
            }
            goes_well(&mut fleet, [Act::View(1, 0), Act::View(2, 0), Act::Tick(0)]);
        }
        fleet.heal().unwrap();
    }
}

#[test]
fn an_operator_that_starts_after_a_rollback_grants_nothing_before_every_session_has_renewed() {
    let mut fleet = settled(3);
    // One more job is granted, and the store goes back to the time before that grant.
    goes_well(&mut fleet, [Act::Copy, Act::Toggle(6), Act::Pin(6, Some(0))]);
    goes_well(&mut fleet, LOOKS.into_iter().chain([Act::View(0, 0)]));
    let seven: swarm_core::JobName = "job-6".parse().unwrap();
    assert!(fleet.runs(0).contains_key(&seven));
    goes_well(&mut fleet, [Act::Restore(0, 3), Act::Pin(6, Some(1))]);
    // The operator has not read a Lease of its holder yet.
    for _ in 0..2 {
        goes_well(&mut fleet, [Act::Observe(0, 0), Act::Turn(0, 0, None), Act::View(1, 0)]);
    }
    assert!(!fleet.runs(1).contains_key(&seven));
    fleet.heal().unwrap();
}

#[test]
fn nothing_is_granted_while_sessions_of_a_lost_ledger_renew() {
    let mut fleet = settled(3);
    goes_well(&mut fleet, [Act::Copy, Act::RestoreWithoutLedger(0), Act::Start(0), Act::Report(3)]);
    for _ in 0..9 {
        goes_well(
            &mut fleet,
            LOOKS.into_iter().chain([Act::Tick(0)]).chain((0..4).map(Act::Report)),
        );
    }
    goes_well(&mut fleet, [Act::View(3, 0)]);
    assert_eq!((fleet.runs(0).len(), fleet.runs(3).len()), (2, 0));
}

#[test]
fn a_new_ledger_waits_for_sessions_that_nobody_knows() {
    let mut fleet = settled(3);
    let lost =
        [Act::Copy, Act::RestoreWithoutLedger(0), Act::DeleteLease(2), Act::Start(0), Act::Tick(0)];
    goes_well(&mut fleet, lost);
    goes_well(&mut fleet, [Act::Report(0), Act::Report(1), Act::Report(3)]);
    // The others read the new ledger and end. Nothing shows the third session any more.
    goes_well(&mut fleet, LOOKS.into_iter().chain([Act::Calm(0), Act::Calm(1)]));
    goes_well(&mut fleet, LOOKS.into_iter().chain([Act::View(3, 0)]));
    assert_eq!((fleet.runs(0).len(), fleet.runs(2).len(), fleet.runs(3).len()), (0, 2, 0));
}

#[test]
fn four_sessions_that_fall_silent_at_once_are_not_revoked_at_once() {
    let mut fleet = settled(4);
    goes_well(&mut fleet, [Act::Observe(0, 0)]);
    goes_well(&mut fleet, [Act::Tick(0); 5]);
    goes_well(&mut fleet, [Act::Revoke(0, false)]);
}

#[test]
fn a_job_that_crashes_three_workers_is_kept_away() {
    let mut fleet = Fleet::new(FleetTerms::default());
    // One job is left, and only the first slot may have it.
    goes_well(&mut fleet, [0, 2, 3, 4, 5].map(Act::Toggle));
    goes_well(&mut fleet, [Act::Pin(0, Some(0)), Act::Start(0)]);
    for crashed in [3, 7, 11] {
        fleet.heal().unwrap();
        assert_eq!(fleet.runs(crashed).len(), 1, "worker {crashed}");
        // A restarted container names the culprit.
        goes_well(&mut fleet, [Act::Crash(crashed, Some(0)), Act::Start(0)]);
        fleet.heal().unwrap();
        for n in 1..=3 {
            goes_well(&mut fleet, [Act::Crash(crashed + n, None), Act::Start(0)]);
        }
    }
    fleet.heal().unwrap();
}

#[test]
fn a_view_of_a_lost_ledger_counts_before_its_lease_was_looked_at() {
    let mut acts = vec![Act::Apply(4), Act::Observe(0, 0), Act::Tick(0), Act::Turn(0, 0, None)];
    acts.extend([Act::Toggle(0), Act::Calm(2), Act::Copy, Act::Start(1)]);
    acts.extend([Act::Calm(1); 4]);
    acts.extend([Act::RestoreWithoutLedger(0), Act::Start(1), Act::Turn(0, 0, None), Act::Calm(5)]);
    acts.extend([Act::Observe(1, 0), Act::Tick(0), Act::Turn(0, 0, None), Act::Turn(1, 0, None)]);
    acts.push(Act::Calm(2));
    comes_right(FleetTerms::default(), &acts);
}

#[test]
fn what_an_operator_publishes_hides_no_view_of_a_lost_ledger() {
    let mut acts = vec![Act::Calm(9), Act::Observe(1, 0), Act::Tick(0), Act::Turn(1, 0, None)];
    acts.extend([Act::DeleteLease(9), Act::Calm(3), Act::LearnEnds(1), Act::RollBack(1, 0)]);
    acts.push(Act::Turn(0, 0, None));
    comes_right(FleetTerms::default(), &acts);
}

#[test]
fn a_job_that_ran_to_completion_gets_a_new_token_when_the_ledger_is_reset() {
    let mut acts = vec![Act::Calm(0), Act::Observe(0, 0), Act::Tick(0), Act::Turn(0, 0, None)];
    acts.extend([Act::Calm(0), Act::Finish(0), Act::Report(0), Act::Observe(0, 0)]);
    acts.extend([Act::Turn(0, 0, None), Act::RunOnce(0), Act::Turn(0, 0, None), Act::Calm(0)]);
    acts.extend([Act::Observe(0, 0), Act::Turn(0, 0, None), Act::RollBack(0, 0)]);
    comes_right(FleetTerms::default(), &acts);
}

#[test]
fn a_worker_that_finished_a_job_before_it_was_removed_is_no_liar() {
    let mut acts = vec![Act::Calm(1), Act::Observe(0, 0), Act::Tick(0), Act::Turn(0, 0, None)];
    acts.extend([Act::View(1, 0), Act::Finish(1), Act::Stick(1, Stuck::Reading)]);
    acts.extend((0..6).map(Act::Toggle));
    comes_right(FleetTerms::default(), &acts);
}

#[test]
fn what_all_ran_may_go_on_where_it_was_removed_without_waiting() {
    let mut acts =
        vec![Act::Scale(1), Act::Start(0), Act::Calm(3), Act::Replicate(Replication::All)];
    acts.extend([Act::Observe(0, 0), Act::Turn(0, 0, None), Act::Start(0), Act::Restart(0)]);
    acts.extend([Act::Calm(3), Act::Turn(0, 0, None)]);
    acts.extend([Act::Tick(0); 3]);
    acts.extend([Act::Toggle(0), Act::Change(Policy::AtLeastOnce), Act::Turn(0, 0, None)]);
    comes_right(FleetTerms::default(), &acts);
}

#[test]
fn what_all_ran_may_begin_late_where_a_worker_was_not_waited_for() {
    let (policy, replication) = (Policy::AtLeastOnce, Replication::All);
    let terms = FleetTerms { policy, replication, ..FleetTerms::default() };
    let mut acts = vec![Act::Apply(0), Act::Apply(1), Act::Observe(1, 0), Act::Tick(0)];
    acts.extend([Act::Turn(1, 0, None), Act::View(1, 0), Act::Start(1), Act::Report(3)]);
    acts.extend([Act::Calm(2), Act::Restart(1), Act::Turn(1, 0, None), Act::Report(0)]);
    acts.extend([Act::Tick(0), Act::Tick(0), Act::Tick(0), Act::Report(2), Act::Observe(0, 0)]);
    acts.extend([Act::Turn(0, 0, None), Act::Turn(1, 0, None), Act::Report(1)]);
    comes_right(terms, &acts);
}

#[test]
fn a_session_that_was_not_waited_for_once_is_not_waited_for_when_all_release_a_job() {
    let (policy, replication) = (Policy::AtLeastOnce, Replication::All);
    let terms = FleetTerms { policy, replication, ..FleetTerms::default() };
    let mut acts = vec![Act::Apply(0), Act::Apply(1), Act::Observe(1, 0), Act::Tick(0)];
    acts.extend([Act::Turn(1, 0, None), Act::View(1, 0), Act::Start(1), Act::Report(3)]);
    acts.extend([Act::Scale(0), Act::Restart(1), Act::Turn(1, 0, None), Act::View(0, 0)]);
    acts.extend([Act::Tick(0), Act::Tick(0), Act::Tick(0), Act::Report(0), Act::Join(0)]);
    acts.extend([Act::Calm(2), Act::Turn(1, 0, None), Act::Report(1), Act::Observe(1, 0)]);
    acts.push(Act::Turn(1, 0, None));
    comes_right(terms, &acts);
}

#[test]
fn a_session_whose_lease_was_never_seen_has_no_successor_but_one_that_names_it() {
    let mut acts = vec![Act::Calm(0), Act::Start(4), Act::Tick(0), Act::Calm(3), Act::Calm(0)];
    acts.extend([Act::Observe(1, 0), Act::Turn(1, 0, None), Act::Calm(0), Act::Calm(3)]);
    acts.extend([Act::Tick(0); 4]);
    acts.extend([Act::Start(4), Act::Calm(4), Act::Observe(1, 0), Act::Turn(1, 0, None)]);
    acts.extend([Act::Calm(4), Act::DeleteLease(4), Act::Revoke(0, false), Act::Observe(0, 0)]);
    acts.push(Act::Turn(0, 0, None));
    comes_right(FleetTerms::default(), &acts);
}

fn edge() -> impl Strategy<Value = Edge> {
    let edges = [Edge::Zero, Edge::Before, Edge::Present, Edge::After, Edge::Far, Edge::Max];
    proptest::sample::select(edges.to_vec())
}

fn lie() -> impl Strategy<Value = Act> {
    let numbers = (edge(), edge(), edge());
    let extent = prop_oneof![Just(Extent::Whole), Just(Extent::InPart)];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), extent);
    let others = (proptest::option::of(0_usize..8), proptest::option::weighted(0.2, 0_usize..9));
    let count = prop_oneof![
        2 => Just(Numbers::Rising),
        1 => Just(Numbers::Same),
        1 => Just(Numbers::Falling),
        1 => Just(Numbers::Zero),
    ];
    let all = (0_usize..12, numbers, flags, others, count);
    all.prop_map(|(n, numbers, flags, (blames, replays), count)| {
        let (incarnation, revision, claims) = numbers;
        let (finishes, is_draining, is_new, extent) = flags;
        let lie = Lie { incarnation, revision, extent, claims, numbers: count, ..Lie::default() };
        Act::Lie(n, Lie { finishes, is_draining, blames, is_new, replays, ..lie })
    })
}

proptest! {
    #![proptest_config(crate::seeds::cases_of(3))]

    /// Scope: as above, and sessions write anything into their Leases. Jobs that a liar holds do
    /// not count. For every other worker all invariants must hold.
    #[test]
    fn a_lying_session_makes_no_other_worker_lose_or_double_a_job(
        terms in terms(),
        acts in proptest::collection::vec(prop_oneof![12 => act(5, 1), 1 => lie()], 0..200),
    ) {
        let run = run(terms, &acts);
        prop_assert!(run.is_ok(), "{}", run.unwrap_err());
    }
}

/// A pool that has settled, and the same pool after one of its three workers has lied.
#[expect(clippy::unwrap_used, reason = "a test helper: a pool that does not settle is the failure")]
fn settled_with(lie: Lie) -> (Fleet, Fleet) {
    let mut fleet = Fleet::new(FleetTerms::default());
    fleet.heal().unwrap();
    let before = fleet.clone();
    for n in 0..6 {
        fleet.take(Act::Lie(2 + n, lie));
        for act in [Act::Observe(0, 0), Act::Revoke(0, false), Act::Turn(0, 0, None)] {
            fleet.take(act);
        }
        fleet.take(Act::Tick(0));
        (0..2).for_each(|n| fleet.take(Act::Calm(n)));
    }
    assert_eq!(fleet.wrong(), None);
    (before, fleet)
}

#[test]
fn no_claim_about_the_ledger_resets_it_or_stops_other_workers() {
    let honest = Lie {
        incarnation: Edge::Present,
        revision: Edge::Present,
        claims: Edge::Present,
        ..Lie::default()
    };
    let edges = [Edge::Zero, Edge::Before, Edge::After, Edge::Far, Edge::Max];
    for edge in edges {
        for lie in [
            Lie { incarnation: edge, ..honest },
            Lie { revision: edge, ..honest },
            Lie { revision: edge, extent: Extent::InPart, ..honest },
            Lie { incarnation: edge, revision: edge, ..honest },
            Lie { claims: edge, ..honest },
        ] {
            let (before, after) = settled_with(Lie { is_new: true, ..lie });
            assert_eq!(before.incarnation(), after.incarnation(), "{lie:?}");
            for n in 0..2 {
                let goes_on = |(job, token)| after.runs(n).get(job) == Some(token);
                assert!(before.runs(n).iter().all(goes_on), "worker {n} under {lie:?}");
            }
        }
    }
}

/// Anything that one worker may do.
fn mischief() -> impl Strategy<Value = Vec<Act>> {
    let honest = Lie {
        incarnation: Edge::Present,
        revision: Edge::Present,
        claims: Edge::Present,
        ..Lie::default()
    };
    let numbers = move |numbers| vec![Act::Lie(0, Lie { numbers, ..honest })];
    let claim = Act::Lie(0, Lie { claims: Edge::Far, ..honest });
    prop_oneof![
        3 => Just(vec![Act::Stick(0, Stuck::Stopping)]),
        1 => Just(vec![Act::Stick(0, Stuck::Reading)]),
        2 => proptest::sample::select(vec![Numbers::Same, Numbers::Falling, Numbers::Zero])
            .prop_map(numbers),
        1 => Just(vec![claim]),
        1 => Just(vec![claim, Act::Crash(0, None)]),
        2 => lie().prop_map(|it| vec![it]),
        2 => Just(vec![Act::Crash(0, None)]),
        1 => Just(vec![Act::Crash(0, None), Act::Start(0)]),
        1 => Just(vec![Act::Start(0)]),
        1 => proptest::sample::select(vec![Act::Freeze(0), Act::Resume(0), Act::Flip(0)])
            .prop_map(|it| vec![it]),
        1 => Just(vec![Act::Terminate(0)]),
    ]
}

fn ticks(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Act>> {
    count.prop_map(|count| vec![Act::Tick(0); count])
}

/// A run in which jobs are edited, operators start, and one worker does anything. Then only
/// that worker changes for a while.
fn fair() -> impl Strategy<Value = Vec<Act>> {
    let n = || 0_usize..8;
    let edit = prop_oneof![
        6 => n().prop_map(Act::Toggle),
        2 => proptest::option::of(1_u32..4).prop_map(Act::MaxJobs),
        1 => (n(), proptest::option::of(20_u8..90)).prop_map(|(n, share)| Act::Share(n, share)),
        1 => n().prop_map(Act::Suspend),
        3 => Just(Act::Restart(0)),
    ];
    let edits = proptest::collection::vec(edit, 1..5).boxed();
    let goes_on = prop_oneof![12 => ticks(1..4), 1 => mischief()];
    let rest = proptest::collection::vec(goes_on, 15).prop_map(|it| it.concat());
    let phase = (edits.clone(), ticks(0..6), mischief(), ticks(0..3), edits, rest);
    let phase = phase.prop_map(|(a, b, c, d, e, f)| [a, b, c, d, e, f].concat());
    proptest::collection::vec(phase, 1..3).prop_map(|it| it.concat())
}

fn fair_run(terms: FleetTerms, acts: &[Act]) -> Result<Duration, String> {
    let mut fleet = Fleet::new(FleetTerms { replication: Replication::One, ..terms });
    fleet.heal()?;
    fleet.be_fair(acts)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: share_of(300), ..crate::seeds::cases_of(3) })]

    /// Scope: three slots, up to eight jobs, two operators, up to 70 ticks. At each tick all workers
    /// but one work.
    #[test]
    fn whatever_one_worker_does_it_holds_up_no_job_that_another_one_has_room_for(
        terms in terms(),
        acts in fair(),
    ) {
        let run = fair_run(terms, &acts);
        prop_assert!(run.is_ok(), "{}", run.unwrap_err());
    }
}

#[test]
fn an_operator_that_lets_one_worker_hold_up_the_others_is_noticed() {
    let lies = |lie| Act::Lie(0, lie);
    let same = lies(Lie { numbers: Numbers::Same, ..Lie::default() });
    let hour = lies(Lie { claims: Edge::Far, ..Lie::default() });
    let (start, one_more) = (Act::Restart(0), Act::Toggle(6));
    let stuck = [Act::Toggle(1), Act::Tick(0), Act::Stick(0, Stuck::Stopping), Act::Toggle(2)];
    for (delay, acts) in [
        (Delay::Releases, [&stuck[..], &[Act::Share(6, Some(30))]].concat()),
        (Delay::Versions, vec![same, start, one_more]),
        (Delay::Claims, vec![hour, Act::Tick(0), Act::Crash(0, None), start, one_more]),
    ] {
        let acts = [acts, vec![Act::Tick(0); 12]].concat();
        let run = |delay| fair_run(FleetTerms { delay, ..FleetTerms::default() }, &acts);
        assert_eq!(run(None).err(), None, "{delay:?}");
        let late = run(Some(delay)).unwrap_err();
        assert!(late.contains("waits for"), "{delay:?}: {late}");
    }
}
