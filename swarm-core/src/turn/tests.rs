//! Decisions of one turn.

mod in_flight;
mod maxima;
mod rests;
mod suspended;

use super::*;
use std::collections::BTreeSet;

use crate::handover::{Evidence, Proof};
use crate::{Job, MoveReason, Relocation, Timing, Token, jobs};

fn desired(names: &[&str]) -> Desired {
    Desired { jobs: jobs(names.iter().copied()).unwrap(), ..Desired::default() }
}

fn observed(presences: &[Presence]) -> Observed {
    let worker = |(n, presence): (u32, &Presence)| {
        let name = format!("w-{n}");
        let session = Some(SessionId::plain(&name));
        (Slot(n), WorkerSeen { name, presence: *presence, session })
    };
    Observed::new((0..).zip(presences).map(worker), 0, [])
}

#[test]
fn a_cold_pool_is_assigned_nothing_until_it_is_complete() {
    let want = desired(&["a", "b", "c"]);
    let half = observed(&[Presence::Ready, Presence::NotReady(Duration::ZERO)]);
    let decision = decide(&Ledger::new(1), &want, &half);
    assert_eq!(decision.waiting, Some(Waiting::PoolIncomplete { ready: 1, desired: 2 }));
    assert_eq!(decision.ledger, Ledger::new(1));
    assert_eq!(decision.recheck_in, Some(want.timing.initial_wait));
    let reasons: Vec<_> = decision.plan.unassigned.into_values().collect();
    assert_eq!(reasons, [Unassigned::PoolIncomplete; 3]);

    let complete = observed(&[Presence::Ready, Presence::Ready]);
    let decision = decide(&Ledger::new(1), &want, &complete);
    assert_eq!((decision.waiting, decision.ledger.assignment().len()), (None, 3));
}

/// Returns a pool of sessions, with the revision that each acknowledged.
fn acked(revisions: &[u64]) -> Observed {
    let id = |slot: &Slot| SessionId::new("pod", slot.0.into());
    let mut seen = observed(&vec![Presence::Ready; revisions.len()]);
    for (slot, worker) in &mut seen.workers {
        worker.session = Some(id(slot));
    }
    let known = |(slot, acked): (&Slot, &u64)| {
        (id(slot), Evidence { acked: *acked, ..Evidence::default() })
    };
    seen.evidence = seen.workers.keys().zip(revisions).map(known).collect();
    seen
}

#[test]
fn a_job_moves_to_a_worker_once_that_has_room_for_it_next_to_what_it_still_runs() {
    let pinned = |[a, b]: [u32; 2]| {
        let job = |slot| Job { pin: Some(Slot(slot)), ..Job::default() };
        let jobs = [("a", a), ("b", b)].map(|(name, slot)| (name.parse().unwrap(), job(slot)));
        Desired {
            jobs: jobs.into(),
            max_jobs: Some(1),
            policy: Policy::Exclusive,
            ..Desired::default()
        }
    };
    let step = |ledger: &Ledger, revisions: [u64; 2]| {
        decide(ledger, &pinned([1, 0]), &acked(&revisions)).ledger
    };
    let first = decide(&Ledger::new(1), &pinned([0, 1]), &acked(&[0, 0])).ledger;
    let released = step(&first, [1, 1]);
    assert_eq!(released.releases().len(), 2);
    let waits = step(&released, [2, 1]);
    assert_eq!(waits.assignment().len(), 1, "the worker of slot 1 still has a job");
    assert_eq!(step(&waits, [3, 1]), waits, "no write while it waits");
    let moved = step(&waits, [3, 3]);
    let holder = |name: &str| moved.assignment().holder(&name.parse().unwrap());
    assert_eq!([holder("a"), holder("b")], [Some(Slot(1)), Some(Slot(0))]);
}

#[test]
fn what_all_ran_goes_to_one_once_all_have_released_it() {
    let all = Desired {
        policy: Policy::Exclusive,
        replication: Replication::All,
        ..desired(&["a", "b"])
    };
    let one = Desired { replication: Replication::One, ..all.clone() };
    let shared = decide(&Ledger::new(1), &all, &acked(&[0, 0])).ledger;
    let released = decide(&shared, &one, &acked(&[1, 1])).ledger;
    assert!(released.session_views().values().all(|view| view.jobs.is_empty()));
    assert_eq!((released.releases().len(), released.assignment().len()), (2, 0));
    let next = |seen: &Observed| decide(&released, &one, seen).ledger;
    assert_eq!(next(&acked(&[2, 1])), released, "one of them may still run the jobs");
    assert_eq!(next(&acked(&[2, 2])).assignment().len(), 2);

    // A session that left is waited for, and a session that came later is not.
    let mut seen = acked(&[2, 1, 0]);
    let left = seen.workers.remove(&Slot(1)).unwrap().session.unwrap();
    let changed = next(&seen);
    assert_eq!((changed.assignment().len(), changed.former.len()), (0, 1));
    assert_eq!(decide(&changed, &one, &seen).ledger, changed, "no write while it waits");
    let back = decide(&changed, &one, &acked(&[2, 1, 0])).ledger;
    assert_eq!((back.assignment().len(), back.former.len()), (0, 0), "it may still run the jobs");
    seen.evidence.get_mut(&left).unwrap().ended = Some(Proof::Fenced);
    let granted = decide(&changed, &one, &seen).ledger;
    assert_eq!((granted.assignment().len(), granted.former.len()), (2, 0));

    // Surplus workers end once they have released their jobs, too.
    let fewer = Desired { replicas: Some(1), ..one.clone() };
    assert_eq!(decide(&released, &fewer, &acked(&[2, 1])).replicas, None);

    // Then back to all: a new token waits until the previous one is released everywhere.
    assert_eq!(decide(&released, &all, &acked(&[2, 1])).ledger, released);
    let again = decide(&released, &all, &acked(&[2, 2])).ledger;
    assert_eq!(again.session_views().values().map(|view| view.jobs.len()).sum::<usize>(), 4);
}

#[test]
fn what_one_ran_is_granted_to_all_in_the_write_that_follows_its_release() {
    let one = Desired { policy: Policy::Exclusive, ..desired(&["a", "b"]) };
    let all = Desired { replication: Replication::All, ..one.clone() };
    let held = decide(&Ledger::new(1), &one, &acked(&[0, 0])).ledger;
    let asked = decide(&held, &all, &acked(&[1, 1])).ledger;
    assert_eq!(asked.releases().len(), 2);
    let half = decide(&asked, &all, &acked(&[2, 1])).ledger;
    let copies = |ledger: &Ledger| -> usize {
        ledger.session_views().values().map(|view| view.jobs.len()).sum()
    };
    assert_eq!((copies(&asked), copies(&half)), (0, 2), "one of them may still be running");
    let both = decide(&asked, &all, &acked(&[2, 2]));
    assert_eq!((copies(&both.ledger), both.recheck_in), (4, None));
    assert_eq!(decide(&both.ledger, &all, &acked(&[2, 2])).ledger, both.ledger);
}

#[test]
fn plain_workers_are_not_waited_for_when_jobs_of_all_go_to_one() {
    let all = Desired { replication: Replication::All, ..desired(&["a", "b"]) };
    let one = Desired { replication: Replication::One, ..all.clone() };
    let seen = observed(&[Presence::Ready; 2]);
    let shared = decide(&Ledger::new(1), &all, &seen).ledger;
    assert_eq!(decide(&shared, &one, &seen).ledger.assignment().len(), 2);
}

#[test]
fn after_the_initial_wait_every_worker_that_exists_counts_ready_or_not() {
    let want = desired(&["a", "b"]);
    let away = Presence::Away(Duration::ZERO);
    let mut half =
        observed(&[Presence::NotReady(Duration::ZERO), Presence::NotReady(Duration::ZERO), away]);
    half.watched_for = want.timing.initial_wait;
    let by_slot = decide(&Ledger::new(1), &want, &half).ledger.assignment().by_slot();
    assert_eq!(by_slot.into_keys().collect::<Vec<_>>(), [Slot(0), Slot(1)]);
}

#[test]
fn a_warm_pool_gives_new_jobs_to_ready_workers_only() {
    let first = decide(&Ledger::new(1), &desired(&["a"]), &observed(&[Presence::Ready]));
    let scaled = observed(&[Presence::Ready, Presence::NotReady(Duration::ZERO)]);
    let second = decide(&first.ledger, &desired(&["a", "b", "c"]), &scaled);
    assert_eq!(second.ledger.assignment().by_slot().into_keys().collect::<Vec<_>>(), [Slot(0)]);
}

#[test]
fn jobs_of_an_absent_worker_wait_for_it_and_move_when_the_grace_is_over() {
    let want = desired(&["a", "b", "c", "d"]);
    let first = decide(&Ledger::new(1), &want, &observed(&[Presence::Ready; 2]));
    let absent = |age| observed(&[Presence::Ready, Presence::Away(age)]);
    let soon = decide(&first.ledger, &want, &absent(Duration::from_secs(1)));
    assert_eq!(soon.ledger, first.ledger);
    assert_eq!(soon.recheck_in, Some(Duration::from_secs(29)));
    let late = decide(&first.ledger, &want, &absent(Duration::from_secs(30)));
    assert_eq!(late.plan.moves.len(), 2);
    assert!(late.plan.moves.iter().all(|step| step.reason == MoveReason::WorkerGone));
}

/// Returns two ready workers with sessions. The second may have ended.
fn sessions(second: Option<Proof>) -> Observed {
    let mut seen = acked(&[0, 0]);
    let known = seen.evidence.values_mut().last();
    known.unwrap().ended = second;
    seen
}

#[test]
fn a_ready_worker_whose_session_has_ended_is_given_nothing() {
    let want = Desired { policy: Policy::Exclusive, ..desired(&["a", "b", "c", "d"]) };
    let ended = sessions(Some(Proof::Closed));
    let slots = |ledger: &Ledger| ledger.assignment().by_slot().into_keys().collect::<Vec<_>>();
    let decision = decide(&Ledger::new(1), &want, &ended);
    assert_eq!(slots(&decision.ledger), [Slot(0)]);
    assert_eq!(decision.plan.assignment.len(), 4);

    // The jobs of the second session wait for the next session, as long as for a worker that is
    // away.
    let both = decide(&Ledger::new(1), &want, &sessions(None)).ledger;
    let held = decide(&both, &want, &ended);
    let holds = |record: &&Record| matches!(record.cell, Cell::Hold { .. });
    assert_eq!(held.ledger.cells.jobs.values().filter(holds).count(), 2);
    assert_eq!(held.recheck_in, Some(want.timing.return_grace));
    let ages = held.ledger.cells.jobs.keys().map(|job| (job.clone(), want.timing.return_grace));
    let late = Observed { ages: ages.collect(), ..ended };
    let free = decide(&held.ledger, &want, &late).ledger;
    let moved = decide(&free, &want, &late);
    assert_eq!((slots(&moved.ledger), moved.ledger.assignment().len()), (vec![Slot(0)], 4));
}

#[test]
fn what_waits_is_looked_at_again_when_its_time_is_over() {
    let pinned = |slot| {
        let job = Job { pin: Some(Slot(slot)), ..Job::default() };
        Desired { jobs: [("a".parse().unwrap(), job)].into(), ..Desired::default() }
    };
    let seen = sessions(None);
    let first = decide(&Ledger::new(1), &pinned(0), &seen).ledger;
    let again = |ledger: &Ledger, want: &Desired| {
        let age = |job: &JobName| (job.clone(), Duration::from_secs(1));
        let ages = ledger.cells.jobs.keys().map(age).collect();
        decide(ledger, want, &Observed { ages, ..seen.clone() }).recheck_in
    };
    let second = Duration::from_secs(1);
    let releasing = decide(&first, &pinned(1), &seen);
    assert_eq!(releasing.ledger.releases().len(), 1);
    let timeout = pinned(1).timing.release_timeout;
    assert_eq!(releasing.recheck_in, Some(timeout));
    assert_eq!(again(&releasing.ledger, &pinned(1)), Some(timeout.saturating_sub(second)));
    let exclusive = Desired { policy: Policy::Exclusive, ..pinned(1) };
    let full = "from then on, the room of the job counts as taken";
    assert_eq!(
        again(&releasing.ledger, &exclusive),
        Some(timeout.saturating_sub(second)),
        "{full}"
    );

    let span = Duration::from_secs(9);
    for cell in [
        Cell::Hold { slot: Slot(0), span, token: Token(1) },
        Cell::Quarantined { span, token: Token(1) },
    ] {
        let mut waiting = first.clone();
        waiting.cells.jobs.insert("a".parse().unwrap(), Record { cell, strikes: 0 });
        let away =
            Desired { timing: Timing { return_grace: span, ..Timing::default() }, ..pinned(7) };
        assert_eq!(again(&waiting, &away), Some(span.saturating_sub(second)));
    }
}

#[test]
fn a_pool_of_sessions_shrinks_only_when_the_last_one_has_released_its_jobs() {
    let mut want = Desired { policy: Policy::Exclusive, ..desired(&["a", "b", "c", "d"]) };
    let mut seen = sessions(None);
    let first = decide(&Ledger::new(1), &want, &seen).ledger;
    want.replicas = Some(1);
    let releasing = decide(&first, &want, &seen);
    assert_eq!((releasing.ledger.releases().len(), releasing.replicas), (1, None));
    let waiting = decide(&releasing.ledger, &want, &seen);
    assert_eq!(
        (&waiting.ledger, waiting.replicas),
        (&releasing.ledger, None),
        "it still runs them"
    );
    let acked = releasing.ledger.revision();
    seen.evidence.insert(SessionId::new("pod", 1), Evidence { acked, ..Evidence::default() });
    let moved = decide(&releasing.ledger, &want, &seen);
    assert_eq!((moved.replicas, moved.recheck_in), (None, Some(PLAIN_HANDOVER)));
    assert_eq!(decide(&moved.ledger, &want, &seen).replicas, Some(1));
}

/// Returns the same pool, some time after plain workers last had to release a job.
fn after_handover(seen: &Observed, age: Duration) -> Observed {
    Observed { since_handover: Some(age), ..seen.clone() }
}

/// Returns the decisions after every wait that the previous decision asks for, until none asks.
fn settle(ledger: &Ledger, want: &Desired, mut seen: Observed) -> Vec<Decision> {
    let mut decisions = Vec::new();
    let mut ledger = ledger.clone();
    for _ in 0..20 {
        let decision = decide(&ledger, want, &seen);
        let moves_some = decision.plan.moves.iter().any(|step| step.from.is_some());
        let pause = decision.recheck_in;
        if moves_some && decision.ledger != ledger {
            seen.since_handover = Some(Duration::ZERO);
        }
        let since = seen.since_handover;
        seen.since_handover = since.map(|since| since + pause.unwrap_or_default());
        ledger = decision.ledger.clone();
        decisions.push(decision);
        if pause.is_none() {
            break;
        }
    }
    decisions
}

#[test]
fn a_budget_makes_batches_with_a_pause_in_between_and_settles() {
    let names: Vec<_> = (0..12).map(|n| format!("job{n}")).collect();
    let mut want = desired(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let first = decide(&Ledger::new(1), &want, &observed(&[Presence::Ready]));
    want.rules.moves_max = Some(4);
    let seen = observed(&[Presence::Ready; 2]);
    let decisions = settle(&first.ledger, &want, after_handover(&seen, PLAIN_HANDOVER));
    let moves: Vec<_> = decisions.iter().map(|one| one.plan.moves.len()).collect();
    assert_eq!(moves, [4, 2]);
    assert_eq!(decisions[0].recheck_in, Some(PLAIN_HANDOVER));
    let loads: Vec<_> =
        decisions[1].ledger.assignment().by_slot().values().map(BTreeSet::len).collect();
    assert_eq!(loads, [6, 6]);
}

#[test]
fn while_a_batch_is_under_way_only_forced_moves_are_made() {
    let mut want = desired(&["a", "b", "c", "d"]);
    let first = decide(&Ledger::new(1), &want, &observed(&[Presence::Ready]));
    want.rules.moves_max = Some(1);
    let (seen, soon) = (observed(&[Presence::Ready; 2]), Duration::from_millis(500));
    let decision = decide(&first.ledger, &want, &after_handover(&seen, soon));
    assert_eq!((decision.plan.moves.len(), decision.plan.deferred.len()), (0, 2));
    assert_eq!(decision.recheck_in, Some(Duration::from_millis(1_500)));
}

#[test]
fn what_changes_right_after_a_change_is_gathered() {
    let want = Desired { batch_window: Duration::from_secs(1), ..desired(&["a"]) };
    let seen = observed(&[Presence::Ready]);
    let first = decide(&Ledger::new(1), &want, &seen);
    assert_eq!(first.waiting, None, "the first change is acted on at once");
    let changed = |age| Observed { since_change: Some(age), ..seen.clone() };
    let more = Desired { jobs: jobs(["a", "b"]).unwrap(), ..want };
    let soon = changed(Duration::from_millis(300));
    let second = decide(&first.ledger, &more, &soon);
    assert_eq!((second.waiting, &second.ledger), (Some(Waiting::Gathering), &first.ledger));
    assert_eq!(second.recheck_in, Some(Duration::from_millis(700)));
    let later = decide(&first.ledger, &more, &changed(Duration::from_secs(1)));
    assert_eq!(later.ledger.assignment().len(), 2);
}

#[test]
fn while_paused_every_job_stays_and_is_reported_unchanged() {
    let want = desired(&["a", "b"]);
    let first = decide(&Ledger::new(1), &want, &observed(&[Presence::Ready; 2]));
    let paused = Desired { paused: true, ..desired(&["b", "c"]) };
    let away = Presence::Away(Duration::from_hours(1));
    let decision = decide(&first.ledger, &paused, &observed(&[away, Presence::Ready]));
    assert_eq!((&decision.ledger, decision.recheck_in), (&first.ledger, None));
    assert_eq!(decision.plan.assignment.len(), 1);
    assert_eq!(decision.plan.unassigned.into_values().collect::<Vec<_>>(), [Unassigned::Paused]);
}

#[test]
fn a_pool_grows_at_once_and_shrinks_when_its_top_slots_were_asked_to_stop() {
    let mut want = desired(&["a", "b", "c", "d"]);
    let first = decide(&Ledger::new(1), &want, &observed(&[Presence::Ready; 2]));
    want.replicas = Some(3);
    let seen = observed(&[Presence::Ready; 2]);
    assert_eq!(decide(&first.ledger, &want, &seen).replicas, Some(3));

    want.replicas = Some(1);
    let decisions = settle(&first.ledger, &want, after_handover(&seen, Duration::from_mins(1)));
    let replicas: Vec<_> = decisions.iter().map(|one| one.replicas).collect();
    assert_eq!(replicas, [None, Some(1)]);
    let emptied = &decisions[0].ledger;
    assert_eq!(emptied.assignment().by_slot().into_keys().collect::<Vec<_>>(), [Slot(0)]);
    let view = emptied.view();
    assert!(view.workers["w-1"].jobs.is_empty(), "its entry has no job: {view:?}");
    assert_eq!(view.workers["w-1"].version, view.version);
}

#[test]
fn a_pool_may_shrink_to_nothing_and_slots_may_start_elsewhere() {
    let mut want = desired(&["a", "b"]);
    let mut seen = observed(&[Presence::Ready; 2]);
    seen.workers = seen.workers.into_iter().map(|(slot, seen)| (Slot(slot.0 + 5), seen)).collect();
    let seen = Observed { first_slot: 5, ..after_handover(&seen, PLAIN_HANDOVER) };
    let first = decide(&Ledger::new(1), &want, &seen);
    assert_eq!(first.ledger.assignment().len(), 2);
    want.replicas = Some(0);
    let decisions = settle(&first.ledger, &want, seen);
    assert_eq!(decisions.last().and_then(|one| one.replicas), Some(0));
    assert!(decisions[0].plan.unassigned.values().all(|why| *why == Unassigned::NoWorkers));
}

#[test]
fn a_cold_pool_is_complete_with_the_workers_that_the_user_asks_for() {
    let want = Desired { replicas: Some(2), ..desired(&["a"]) };
    let one = decide(&Ledger::new(1), &want, &observed(&[Presence::Ready]));
    assert_eq!(one.waiting, Some(Waiting::PoolIncomplete { ready: 1, desired: 2 }));
    assert_eq!(one.replicas, Some(2));
    let three = observed(&[Presence::Ready, Presence::Ready, Presence::NotReady(Duration::ZERO)]);
    let decision = decide(&Ledger::new(1), &want, &three);
    assert_eq!((decision.waiting, decision.ledger.assignment().len()), (None, 1));
}

#[test]
fn in_a_paused_pool_only_the_jobs_of_the_dead_are_granted_again_in_the_same_slot() {
    let session = |life: &str| Some(SessionId::new(life, 1));
    let mut seen = observed(&[Presence::Ready; 2]);
    for (slot, worker) in &mut seen.workers {
        worker.session = session(&format!("first-{slot}"));
    }
    let mut want = desired(&["a", "b", "c", "d"]);
    let first = decide(&Ledger::new(1), &want, &seen).ledger;
    want.paused = true;
    want.jobs = jobs(["b", "c", "d", "e"]).unwrap();
    assert_eq!(decide(&first, &want, &seen).ledger, first);
    let lost = first.slots[&Slot(0)].session.clone();
    let ended = Some(Proof::ProcessEnded);
    seen.evidence.insert(lost.clone(), Evidence { ended, ..Evidence::default() });
    seen.workers.get_mut(&Slot(0)).unwrap().session = session("second");
    let next = decide(&first, &want, &seen);
    assert_eq!(
        (next.waiting, next.ledger.assignment()),
        (Some(Waiting::Paused), first.assignment())
    );
    let held_by = |ledger: &Ledger, id: &SessionId| ledger.session_views()[id].jobs.len();
    let now = SessionId::new("second", 1);
    assert_eq!(held_by(&next.ledger, &now), held_by(&first, &lost));
}

#[test]
fn in_a_paused_pool_a_session_that_may_live_keeps_its_jobs_though_another_fills_its_slot() {
    let mut want = desired(&["a", "b"]);
    let mut seen = sessions(None);
    let first = decide(&Ledger::new(1), &want, &seen).ledger;
    want.paused = true;
    seen.workers.get_mut(&Slot(0)).unwrap().session = Some(SessionId::new("pod", 9));
    assert_eq!(decide(&first, &want, &seen).ledger.cells.jobs, first.cells.jobs);
}

#[test]
fn in_a_paused_pool_nothing_is_granted_to_a_session_that_nobody_sees() {
    let want = Desired { paused: true, ..desired(&["a", "b"]) };
    let mut seen = sessions(None);
    let mut waiting = decide(&Ledger::new(1), &desired(&["a", "b"]), &seen).ledger;
    let cell = Cell::Hold { slot: Slot(0), span: Duration::from_secs(9), token: Token(9) };
    waiting.cells.jobs.insert("a".parse().unwrap(), Record { cell, strikes: 0 });
    seen.workers.remove(&Slot(0));
    assert_eq!(decide(&waiting, &want, &seen).ledger.cells.jobs, waiting.cells.jobs);
}

#[test]
fn in_a_paused_pool_a_replaced_plain_worker_keeps_its_jobs() {
    let mut want = desired(&["a", "b"]);
    let mut seen = observed(&[Presence::Ready; 2]);
    let first = decide(&Ledger::new(1), &want, &seen).ledger;
    want.paused = true;
    seen.workers.get_mut(&Slot(0)).unwrap().session = Some(SessionId::plain("replaced"));
    let next = decide(&first, &want, &seen).ledger;
    assert_eq!((next.view(), next.revision()), (first.view(), first.revision() + 1));
}

#[test]
fn a_job_that_waits_for_a_slot_goes_at_once_where_the_plan_wants_it_instead() {
    let want = |pin: u32| {
        let pinned = crate::Job { pin: Some(Slot(pin)), ..crate::Job::default() };
        Desired { jobs: [("a".parse().unwrap(), pinned)].into(), ..Desired::default() }
    };
    let session = |life: &str| Some(SessionId::new(life, 1));
    let mut seen = observed(&[Presence::Ready; 2]);
    for (slot, worker) in &mut seen.workers {
        worker.session = session(&format!("first-{slot}"));
    }
    let first = decide(&Ledger::new(1), &want(0), &seen);
    // The operator restarts: all workers are new, and the pin was edited meanwhile.
    for session in first.ledger.slots.values().map(|record| &record.session) {
        let ended = Some(Proof::ProcessEnded);
        seen.evidence.insert(session.clone(), Evidence { ended, ..Evidence::default() });
    }
    let mut none = seen.clone();
    for worker in none.workers.values_mut() {
        (worker.presence, worker.session) = (Presence::NotReady(Duration::ZERO), None);
    }
    let waits = decide(&first.ledger, &want(1), &none);
    for (slot, worker) in &mut seen.workers {
        worker.session = session(&format!("second-{slot}"));
    }
    let back = decide(&waits.ledger, &want(1), &seen);
    let holder = back.ledger.cells.jobs.values().next().unwrap().cell.holder().cloned();
    assert_eq!(holder, session(&format!("second-{}", Slot(1))));
}

#[test]
fn what_everybody_runs_goes_on_while_nobody_is_ready() {
    let want = Desired { replication: Replication::All, ..desired(&["a", "b"]) };
    let first = decide(&Ledger::new(1), &want, &observed(&[Presence::Ready; 2]));
    let unready = decide(&first.ledger, &want, &observed(&[Presence::NotReady(Duration::ZERO); 2]));
    assert_eq!(unready.ledger, first.ledger);
    assert!(unready.plan.unassigned.is_empty());
}

#[test]
fn a_recreated_ledger_counts_its_versions_on_from_the_view_that_is_there() {
    let complete = observed(&[Presence::Ready; 3]);
    let first = decide(&Ledger::new(1), &desired(&["a", "b"]), &complete).ledger;
    let versions = |ledger: &Ledger| {
        let slots = ledger.slots.values().map(|record| record.version);
        (ledger.version, slots.collect::<Vec<_>>())
    };
    assert_eq!(versions(&first), (1, vec![1; 3]));
    let mut recreated = first.clone();
    recreated.count_on_from(6);
    assert_eq!(versions(&recreated), (7, vec![7; 3]));
    let more = decide(&recreated, &desired(&["a", "b", "c"]), &complete).ledger;
    assert_eq!(versions(&more), (8, vec![7, 7, 8]));
}

#[test]
fn a_handover_that_has_begun_is_not_gathered_with_later_changes() {
    let session = |slot: u32| SessionId::new(&format!("pod-{slot}"), u64::from(slot));
    let mut seen = observed(&[Presence::Ready, Presence::Ready]);
    for (slot, worker) in &mut seen.workers {
        worker.session = Some(session(slot.0));
    }
    let wanted = |pin: u32| {
        let job = Job { pin: Some(Slot(pin)), ..Job::default() };
        let jobs = [(JobName::new("a").unwrap(), job)].into();
        let batch_window = Duration::from_secs(1);
        Desired { jobs, batch_window, policy: Policy::Exclusive, ..Desired::default() }
    };
    let just_now =
        |seen: &Observed| Observed { since_change: Some(Duration::ZERO), ..seen.clone() };
    let first = decide(&Ledger::new(0), &wanted(0), &seen).ledger;
    let gathered = decide(&first, &wanted(1), &just_now(&seen));
    assert_eq!((&gathered.ledger, gathered.waiting), (&first, Some(Waiting::Gathering)));

    let releasing = decide(&first, &wanted(1), &seen).ledger;
    assert_eq!(releasing.releases().len(), 1);
    let acked = releasing.revision();
    seen.evidence = [(session(0), Evidence { acked, ..Evidence::default() })].into();
    let granted = decide(&releasing, &wanted(1), &just_now(&seen));
    assert_eq!(granted.waiting, None);
    assert_eq!(granted.ledger.assignment().holder(&JobName::new("a").unwrap()), Some(Slot(1)));
}

#[test]
fn sessions_that_release_are_not_waited_for_like_workers_that_only_read() {
    let mut seen = observed(&[Presence::Ready, Presence::Ready]);
    let plain = seen.workers.clone();
    for (slot, worker) in &mut seen.workers {
        worker.session = Some(SessionId::new("pod", u64::from(slot.0)));
    }
    let sessions = seen.workers.clone();
    let rules = Rules { moves_max: Some(1), ..Rules::default() };
    let desired = Desired { jobs: jobs(["a", "b"]).unwrap(), rules, ..Desired::default() };
    let mut moves = |workers: &BTreeMap<Slot, WorkerSeen>| {
        // Both jobs are with the first worker, since it was alone.
        seen.workers = workers.clone();
        let alone = Observed {
            workers: workers.iter().take(1).map(|(slot, seen)| (*slot, seen.clone())).collect(),
            workers_desired: 1,
            ..seen.clone()
        };
        let before = decide(&Ledger::new(0), &desired, &alone).ledger;
        decide(&before, &desired, &after_handover(&seen, Duration::ZERO)).plan.moves.len()
    };
    assert_eq!((moves(&plain), moves(&sessions)), (0, 1));
}

#[test]
fn a_job_that_is_done_takes_no_room_and_others_that_run_to_completion_take_it() {
    let once = Job { run_once: true, ..Job::default() };
    let jobs = ["a", "b", "c"].map(|name| (name.parse().unwrap(), once.clone()));
    let want = Desired { jobs: jobs.into(), max_jobs: Some(2), ..Desired::default() };
    let mut seen = acked(&[0]);
    let first = decide(&Ledger::new(1), &want, &seen).ledger;
    assert_eq!(first.assignment().len(), 2);
    let (job, token) = first.session_views()[&SessionId::new("pod", 0)]
        .jobs
        .iter()
        .map(|(job, token)| (job.clone(), *token))
        .next()
        .unwrap();
    let known = seen.evidence.values_mut().next().unwrap();
    known.finished = [(job.clone(), token)].into();
    let done = decide(&first, &want, &seen).ledger;
    let next = decide(&done, &want, &seen);
    let others: BTreeSet<_> = want.jobs.keys().filter(|name| **name != job).cloned().collect();
    assert_eq!(next.ledger.assignment().by_slot()[&Slot(0)], others);
    assert!(next.plan.unassigned.is_empty(), "{:?}", next.plan);
}

#[test]
fn a_session_that_leaves_without_jobs_is_forgotten_where_nothing_runs_everywhere() {
    let want = desired(&["a"]);
    let mut seen = acked(&[0, 0]);
    let first = decide(&Ledger::new(1), &want, &seen).ledger;
    assert!(first.slots.values().all(|record| record.joined == 0), "{first:?}");
    let held = first.assignment();
    seen.workers.retain(|slot, _| held.iter().any(|(_, holder)| holder == *slot));
    let left = decide(&first, &want, &seen).ledger;
    assert_eq!((left.slots.len(), left.former.len()), (1, 0));
}
