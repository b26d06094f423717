//! Adoption of assignments, with only the moves that balance requires.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{Presence, Token, Waiting, WorkerSeen, decide, jobs};

fn view(version: u64, workers: &[(&str, &[&str])]) -> View {
    let entry = |jobs: &[&str]| {
        let jobs = jobs.iter().map(|job| job.parse().unwrap()).collect();
        ViewEntry { jobs, ..ViewEntry::default() }
    };
    let workers = workers.iter().map(|(name, jobs)| ((*name).to_owned(), entry(jobs)));
    View { version, workers: workers.collect() }
}

fn seen(presences: &[Presence], view: View) -> Observed {
    let worker = |(slot, presence): (u32, &Presence)| {
        let session = SessionId::plain(&format!("pod-{slot}"));
        let is_there = !matches!(presence, Presence::Away(_));
        let session = Some(session).filter(|_| is_there);
        (Slot(slot), WorkerSeen::new(format!("w-{slot}"), *presence, session))
    };
    let mut observed = Observed::new((0..).zip(presences).map(worker), 1_000, []);
    observed.adoptable = Some(view);
    observed
}

fn desired(names: &[&str]) -> Desired {
    Desired::new(jobs(names.iter().copied()).unwrap())
}

fn by_slot(ledger: &Ledger) -> Vec<(u32, String)> {
    let jobs = |jobs: BTreeSet<JobName>| {
        jobs.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    ledger.granted().into_iter().map(|(slot, granted)| (slot.0, jobs(granted))).collect()
}

#[test]
fn an_even_assignment_is_taken_over_as_it_is() {
    let observed =
        seen(&[Presence::Ready; 2], view(3, &[("w-0", &["a", "d"]), ("w-1", &["b", "c"])]));
    let decision = decide(&Ledger::new(1_000), &desired(&["a", "b", "c", "d"]), &observed);
    assert!(decision.plan.moves.is_empty());
    assert_eq!(by_slot(&decision.ledger), [(0, "a d".into()), (1, "b c".into())]);
    assert_eq!(decision.adopted, Some(Adoption { jobs: 4, workers: 2, doubled: 0 }));
    assert_eq!(decision.ledger.view(), *observed.adoptable.as_ref().unwrap(), "nothing to read");
    assert!(decision.ledger.cells.jobs.values().all(|it| Token(1_000) <= it.cell.token()));
    let again = decide(&decision.ledger, &desired(&["a", "b", "c", "d"]), &observed);
    assert_eq!((again.ledger == decision.ledger, again.adopted), (true, None));
}

/// The Go operator sliced five jobs for two workers like this: the third for both, the fifth for
/// none.
#[test]
fn a_job_of_two_workers_stays_with_the_lower_slot_and_a_job_of_none_is_new() {
    let observed =
        seen(&[Presence::Ready; 2], view(0, &[("w-0", &["a", "b", "c"]), ("w-1", &["c", "d"])]));
    let want = desired(&["a", "b", "c", "d", "e"]);
    let decision = decide(&Ledger::new(1), &want, &observed);
    let moves: Vec<_> = decision.plan.moves.iter().map(|it| (it.job.as_str(), it.from)).collect();
    assert_eq!(moves, [("e", None)]);
    let ledger = &decision.ledger;
    assert_eq!(by_slot(ledger), [(0, "a b c".into()), (1, "d e".into())]);
    assert_eq!((ledger.slots[&Slot(0)].version, ledger.slots[&Slot(1)].version), (0, 2));
    // It gets a new version first, so that it stops the job that another worker keeps.
    assert_eq!(ledger.slots[&Slot(1)].last_handoff_version, 1);
    assert_eq!(decision.adopted.map(|it| it.doubled), Some(1));
}

#[test]
fn workers_that_are_gone_hold_nothing_and_the_next_slot_that_lives_does() {
    let late = Presence::Away(Duration::from_mins(10));
    let mut observed = seen(
        &[late, Presence::Ready, Presence::NotReady(Duration::ZERO)],
        view(7, &[("w-0", &["a", "b"]), ("w-1", &["a"]), ("w-2", &["a", "c"]), ("x", &["d"])]),
    );
    observed.watched_for = Duration::from_mins(10);
    let decision = decide(&Ledger::new(1), &desired(&["a", "b", "c", "d"]), &observed);
    let holder = |job: &str| decision.ledger.assignment().holder(&job.parse().unwrap());
    assert_eq!([holder("a"), holder("c")], [Some(Slot(1)), Some(Slot(2))]);
    let moved: Vec<_> = decision.plan.moves.iter().map(|it| (it.job.as_str(), it.from)).collect();
    assert_eq!(moved, [("b", None), ("d", None)]);
    assert!(7 < decision.ledger.version);
}

#[test]
fn until_the_pool_is_complete_nothing_is_written() {
    let away = Presence::Away(Duration::ZERO);
    let observed = seen(&[Presence::Ready, away], view(3, &[("w-0", &["a"]), ("w-1", &["b"])]));
    let decision = decide(&Ledger::new(1), &desired(&["a", "b"]), &observed);
    assert_eq!(decision.waiting, Some(Waiting::PoolIncomplete { ready: 1, desired: 2 }));
    assert_eq!((decision.ledger, decision.adopted), (Ledger::new(1), None));
    let paused = Desired { paused: true, ..desired(&["a", "b"]) };
    assert_eq!(decide(&Ledger::new(1), &paused, &observed).ledger, Ledger::new(1));
}

#[test]
fn jobs_that_nobody_wants_any_more_are_taken_from_their_worker() {
    let observed = seen(&[Presence::Ready], view(3, &[("w-0", &["a", "old"])]));
    let decision = decide(&Ledger::new(1), &desired(&["a"]), &observed);
    assert_eq!(by_slot(&decision.ledger), [(0, "a".into())]);
    assert_eq!((decision.ledger.version, decision.ledger.slots[&Slot(0)].version), (4, 4));
}

#[test]
fn only_a_first_ledger_of_plain_workers_adopts() {
    let observed = seen(&[Presence::Ready], view(3, &[("w-0", &["a"]), ("w-1", &["b"])]));
    let first = decide(&Ledger::new(1), &desired(&["a", "b"]), &observed).ledger;
    assert_eq!(decide(&first, &desired(&["a"]), &observed).adopted, None);
    let all = Desired { replication: Replication::All, ..desired(&["a"]) };
    assert_eq!(decide(&Ledger::new(1), &all, &observed).adopted, None);
    let exclusive = Desired { policy: Policy::Exclusive, ..desired(&["a"]) };
    assert_eq!(decide(&Ledger::new(1), &exclusive, &observed).adopted, None);
    let nobody = Observed { adoptable: Some(View::default()), ..observed };
    assert_eq!(decide(&Ledger::new(1), &desired(&["a"]), &nobody).adopted, None);
}

#[test]
fn a_pool_that_has_assigned_jobs_adopts_nothing_when_all_of_them_have_gone() {
    let observed = seen(&[Presence::Ready], view(3, &[("w-0", &["a"])]));
    let first = decide(&Ledger::new(1), &desired(&["a"]), &observed).ledger;
    let none = decide(&first, &desired(&[]), &observed).ledger;
    assert!(none.cells.jobs.is_empty() && 0 < none.version, "{none:?}");
    assert_eq!(decide(&none, &desired(&["a"]), &observed).adopted, None);
    // A ledger that waits with its old jobs after a reset is not adopted either.
    let mut waits = first;
    waits.version = 0;
    assert_eq!(decide(&waits, &desired(&["a"]), &observed).adopted, None);
}

#[test]
fn a_view_with_news_for_one_worker_is_the_next_version() {
    let workers = [("w-0", ["a", "b"].as_slice()), ("w-1", ["b", "c", "d"].as_slice())];
    let observed = seen(&[Presence::Ready; 2], view(3, &workers));
    let ledger = decide(&Ledger::new(1), &desired(&["a", "b", "c", "d"]), &observed).ledger;
    assert_eq!(by_slot(&ledger), [(0, "a b".into()), (1, "c d".into())]);
    assert_eq!((ledger.version, ledger.slots[&Slot(1)].version), (4, 4));
}

#[test]
fn a_version_that_no_reader_can_represent_is_not_counted_on() {
    for (version, counted_on) in [(VERSION_MAX - 1, VERSION_MAX - 1), (VERSION_MAX, 1)] {
        let observed = seen(&[Presence::Ready], view(version, &[("w-0", &["a"])]));
        let ledger = decide(&Ledger::new(1), &desired(&["a"]), &observed).ledger;
        assert_eq!(ledger.version, counted_on);
    }
}

proptest! {
    /// The formula for the fewest moves, over the running jobs, is the judge.
    #[test]
    fn every_job_has_one_holder_and_no_job_moves_that_balance_leaves_where_it_is(
        counts in (1_usize..6, 0_usize..40),
        under in prop::collection::vec(prop::collection::vec(0_usize..8, 0..3), 40),
        version in prop_oneof![Just(0), Just(u64::MAX), 1_u64..90],
    ) {
        let (workers, jobs_count) = counts;
        let names: Vec<_> = (0..jobs_count).map(|n| format!("j{n}")).collect();
        let mut running = vec![Vec::new(); workers + 2];
        for (name, slots) in names.iter().zip(&under) {
            for slot in slots.iter().filter(|slot| **slot < workers + 2) {
                running[*slot].push(name.as_str());
            }
        }
        let entries: Vec<_> = running.iter().enumerate().map(|(n, jobs)| (format!("w-{n}"), jobs)).collect();
        let entries: Vec<_> = entries.iter().map(|(name, jobs)| (name.as_str(), jobs.as_slice())).collect();
        let observed = seen(&vec![Presence::Ready; workers], view(version, &entries));
        let want = desired(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let decision = decide(&Ledger::new(1), &want, &observed);

        let granted = decision.ledger.granted();
        let loads: Vec<_> = (0..workers).map(|n| granted.get(&Slot(u32::try_from(n).unwrap())).map_or(0, BTreeSet::len)).collect();
        prop_assert_eq!(loads.iter().sum::<usize>(), jobs_count);
        prop_assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1);
        // The lowest live slot holds each job; the plan moves the fewest of them.
        let mut held = vec![0_usize; workers];
        for name in &names {
            if let Some(slot) = (0..workers).find(|slot| running[*slot].contains(&name.as_str())) {
                held[slot] += 1;
            }
        }
        let quota = jobs_count / workers;
        let excess: usize = held.iter().map(|held| held.saturating_sub(quota)).sum();
        let above = held.iter().filter(|held| quota < **held).count();
        let fewest = excess - above.min(jobs_count % workers);
        let moved = decision.plan.moves.iter().filter(|step| step.from.is_some()).count();
        prop_assert_eq!(moved, fewest);
        // A second turn finds nothing to do.
        prop_assert_eq!(decide(&decision.ledger, &want, &observed).ledger, decision.ledger);
    }
}
