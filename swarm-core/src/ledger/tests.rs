//! Steps of a ledger, for plain workers and for sessions.

use super::any::any_ledger;
use super::*;
use std::time::Duration;

use proptest::prelude::*;

use crate::handover::{Evidence, HandoverTerms, Place, Policy, Proof};
use crate::overseer::{ViewMark, ViewMarks};
use crate::session::Details;
use crate::{Jobs, Member, Pool, Standing, jobs, plan};

fn member(name: &str, standing: Standing) -> Member {
    Member::new(name, standing)
}

fn step(ledger: &Ledger, names: &[&str], pool: &Pool) -> Ledger {
    let jobs = jobs(names.iter().copied()).unwrap();
    ledger.next(&plan(&jobs, &ledger.assignment(), pool).assignment, pool)
}

#[test]
fn the_same_assignment_again_is_the_same_ledger() {
    let first = step(&Ledger::new(1), &["a", "b", "c"], &Pool::ready(2));
    assert_eq!((first.revision(), first.version), (1, 1));
    assert_eq!(step(&first, &["a", "b", "c"], &Pool::ready(2)), first);
}

#[test]
fn only_slots_whose_jobs_changed_get_the_new_version() {
    let pool = Pool::ready(3);
    let first = step(&Ledger::new(1), &["a", "b", "c"], &pool);
    let second = step(&first, &["a", "b", "c", "d"], &pool);
    let versions: Vec<_> = second.slots.values().map(|slot| slot.version).collect();
    assert_eq!(second.version, 2);
    assert_eq!(versions.iter().filter(|version| **version == 2).count(), 1, "{versions:?}");
}

#[test]
fn the_last_handoff_of_a_slot_is_the_publication_that_moved_its_jobs_to_another_slot() {
    let last_handoff_version = |ledger: &Ledger| -> Vec<_> {
        ledger.slots.values().map(|slot| slot.last_handoff_version).collect()
    };
    let two = step(&Ledger::new(1), &["a", "b", "c", "d"], &Pool::ready(2));
    assert_eq!(last_handoff_version(&two), [0, 0], "a new job comes from no slot");
    let four = step(&two, &["a", "b", "c", "d"], &Pool::ready(4));
    assert_eq!(last_handoff_version(&four), [2, 2, 0, 0]);
    let fewer = step(&four, &["a", "b", "c"], &Pool::ready(4));
    assert_eq!(
        (fewer.version, last_handoff_version(&fewer)),
        (3, vec![2, 2, 0, 0]),
        "a removed job goes nowhere"
    );
    let stored = stored::Stored::from(&fewer);
    assert_eq!(Ledger::try_from(stored), Ok(fewer));
}

#[test]
fn tokens_rise_at_every_grant_even_when_a_job_was_removed_in_between() {
    let a: JobName = "a".parse().unwrap();
    let token_in = |ledger: &Ledger| ledger.cells.jobs[&a].cell.token();
    let at = |slot| {
        let member = member(&format!("w-{slot}"), Standing::Takes);
        Pool([(Slot(slot), member)].into())
    };
    let first = step(&Ledger::new(100), &["a"], &at(0));
    let moved = step(&first, &["a"], &at(1));
    let removed = step(&moved, &[], &at(1));
    let back = step(&removed, &["a"], &at(1));
    assert_eq!([&first, &moved, &back].map(token_in), [Token(101), Token(102), Token(103)]);
}

#[test]
fn a_worker_that_takes_no_jobs_yet_changes_nothing() {
    let first = step(&Ledger::new(1), &["a", "b"], &Pool::ready(2));
    let mut pool = Pool::ready(2);
    pool.0.insert(Slot(2), member("w-2", Standing::Keeps));
    assert_eq!(step(&first, &["a", "b"], &pool), first);
}

#[test]
fn the_jobs_of_a_renamed_worker_are_a_new_publication() {
    let first = step(&Ledger::new(1), &["a"], &Pool::ready(1));
    let member = member("other-x7f", Standing::Takes);
    let renamed = step(&first, &["a"], &Pool([(Slot(0), member)].into()));
    assert_eq!((renamed.version, renamed.slots[&Slot(0)].version), (2, 2));
    assert_eq!(renamed.view().workers["other-x7f"].slot, Some(Slot(0)));
}

fn filled(session: &SessionId) -> BTreeMap<Slot, Filled> {
    let worker = |session: &SessionId| Filled {
        worker: "w-0".into(),
        session: Some(session.clone()),
        takes: true,
        max_jobs: None,
        capacity: None,
    };
    [(Slot(0), worker(session))].into()
}

/// One step of a ledger whose only worker, in slot 0, is `session`.
fn to(
    ledger: &Ledger,
    session: &SessionId,
    place: &Place,
    evidence: &[(SessionId, Evidence)],
) -> Ledger {
    let terms = HandoverTerms { policy: Policy::Exclusive, ..HandoverTerms::default() };
    ledger.step(&LedgerStep {
        workers: &filled(session),
        goal: &[("a".parse().unwrap(), place.clone())].into(),
        evidence: &evidence.iter().cloned().collect(),
        ages: &BTreeMap::new(),
        jobs: &Jobs::new(),
        terms: &terms,
    })
}

#[test]
fn a_session_that_fills_a_slot_without_any_job_is_a_revision_and_its_first_publication() {
    let first = step(&step(&Ledger::new(1), &["a"], &Pool::ready(1)), &["b"], &Pool::ready(1));
    let second = step(&first, &["b"], &Pool::ready(2));
    assert_eq!((first.revision(), second.revision(), second.version), (2, 3, 3));
    assert_eq!(second.cells.jobs, first.cells.jobs);
}

#[test]
fn a_session_that_comes_while_all_run_a_job_may_run_it_from_that_revision_on() {
    let [first, second] = ["pod-a", "pod-b"].map(|uid| SessionId::new(uid, 1));
    let before = to(&Ledger::new(0), &first, &Place::Everywhere, &[]);
    let after = to(&before, &second, &Place::Everywhere, &[]);
    let joined = [&before, &after].map(|ledger| ledger.slots[&Slot(0)].joined);
    assert_eq!((joined, after.revision()), ([0, 2], 2));
}

#[test]
fn a_recreated_ledger_that_published_nothing_is_still_cold() {
    let mut ledger = Ledger::new(0);
    ledger.count_on_from(6);
    assert_eq!(ledger.version, 0);
}

#[test]
fn a_new_session_in_a_slot_gets_its_jobs_once_the_old_one_has_ended() {
    let [old, new] = [1, 2].map(|nonce| SessionId::new("pod", nonce));
    let here = Place::Slot(Slot(0));
    let first = to(&Ledger::new(0), &old, &here, &[]);
    assert_eq!(first.session_views()[&old].jobs.len(), 1);
    let waiting = to(&first, &new, &here, &[]);
    assert_eq!(waiting.former, [(old.clone(), Slot(0))].into(), "it may still run the job");
    assert_eq!(waiting.session_views()[&new].jobs.len(), 0);
    assert_eq!(waiting.assignment().len(), 1, "being released is still held");
    assert_eq!(to(&waiting, &new, &here, &[]), waiting, "nothing to write until it answers");
    let ended = Evidence { ended: Some(Proof::ProcessEnded), ..Evidence::default() };
    assert_eq!(waiting.releases(), [(&old, 2)].into());
    let moved = to(&waiting, &new, &here, &[(old.clone(), ended)]);
    assert!(moved.releases().is_empty());
    assert_eq!((moved.former.len(), moved.session_views()[&new].jobs.len()), (0, 1));
    assert_eq!((first.version, waiting.version, moved.version), (1, 2, 3), "the view changed");
}

#[test]
fn an_absent_worker_keeps_what_its_session_holds_and_is_granted_nothing() {
    let session = SessionId::new("pod", 1);
    let away = Filled {
        worker: "w-0".into(),
        session: None,
        takes: false,
        max_jobs: None,
        capacity: None,
    };
    let away = [(Slot(0), away)].into();
    let terms = HandoverTerms { policy: Policy::Exclusive, ..HandoverTerms::default() };
    let step = |ledger: &Ledger, evidence: &BTreeMap<_, _>| {
        ledger.step(&LedgerStep {
            workers: &away,
            goal: &[("a".parse().unwrap(), Place::Slot(Slot(0)))].into(),
            evidence,
            ages: &BTreeMap::new(),
            jobs: &Jobs::new(),
            terms: &terms,
        })
    };
    let first = to(&Ledger::new(0), &session, &Place::Slot(Slot(0)), &[]);
    assert_eq!(step(&first, &BTreeMap::new()), first);
    let ended = Evidence { ended: Some(Proof::Fenced), ..Evidence::default() };
    let known = [(session, ended)].into();
    let held = step(&first, &known);
    assert_eq!(held.assignment().len(), 1, "it waits for the slot");
    assert_eq!(
        step(&held, &BTreeMap::new()),
        held,
        "without the evidence of its end it is granted nothing"
    );
}

#[test]
fn a_replaced_plain_worker_is_one_write_and_no_publication() {
    let [old, new] = ["uid-1", "uid-2"].map(SessionId::plain);
    let at_least_once = |ledger: &Ledger, session: &SessionId| {
        ledger.step(&LedgerStep {
            workers: &filled(session),
            goal: &[("a".parse().unwrap(), Place::Slot(Slot(0)))].into(),
            evidence: &BTreeMap::new(),
            ages: &BTreeMap::new(),
            jobs: &Jobs::new(),
            terms: &HandoverTerms::default(),
        })
    };
    let first = at_least_once(&Ledger::new(0), &old);
    let second = at_least_once(&first, &new);
    assert_eq!((second.revision(), second.version), (2, 1));
    assert_eq!(second.view(), first.view());
    assert_eq!(second.former, BTreeMap::new());
}

#[test]
fn a_job_that_every_worker_runs_is_in_every_view_and_removed_at_once() {
    let session = SessionId::new("pod", 1);
    let all = to(&Ledger::new(0), &session, &Place::Everywhere, &[]);
    assert_eq!(all.session_views()[&session].jobs.len(), 1);
    assert_eq!(all.view().workers["w-0"].jobs.len(), 1);
    let none = to(&all, &session, &Place::Nowhere, &[]);
    assert_eq!((none.session_views()[&session].jobs.len(), none.version), (0, 2));
}

#[test]
fn a_stored_ledger_is_the_same_ledger() {
    let [old, new] = [1, 2].map(|nonce| SessionId::new("pod-x", nonce));
    let first = to(&Ledger::new(7), &old, &Place::Slot(Slot(0)), &[]);
    let mut ledger = to(&first, &new, &Place::Slot(Slot(0)), &[]);
    let span = Duration::from_millis(1500);
    let cells = [
        Cell::Free { token: Token(1) },
        Cell::Hold { slot: Slot(3), span, token: Token(2) },
        Cell::Quarantined { span, token: Token(3) },
        Cell::Done { token: Token(4) },
        Cell::Everywhere { token: Token(5) },
        Cell::Granted { session: new, token: Token(6) },
    ];
    for (n, cell) in cells.into_iter().enumerate() {
        let record = crate::handover::Record { cell, strikes: u32::from(n == 2) * 3 };
        ledger.cells.jobs.insert(format!("job-{n}").parse().unwrap(), record);
    }
    assert_eq!(Ledger::try_from(stored::Stored::from(&ledger)), Ok(ledger));
}

#[test]
fn a_stored_ledger_has_no_job_among_the_strikes_that_has_none() {
    let ledger = to(&Ledger::new(7), &SessionId::new("pod", 1), &Place::Slot(Slot(0)), &[]);
    assert!(stored::Stored::from(&ledger).strikes.is_empty());
}

#[test]
fn a_holder_whose_slot_is_not_known_is_still_stored() {
    let (mut ledger, session) = (Ledger::new(7), SessionId::new("pod", 1));
    let granted = Cell::Granted { session: session.clone(), token: Token(8) };
    let releasing = Cell::Releasing { session: session.clone(), token: Token(9), since: 1 };
    for (job, cell) in [("a", granted), ("b", releasing)] {
        let record = crate::handover::Record { cell, strikes: 0 };
        ledger.cells.jobs.insert(job.parse().unwrap(), record);
    }
    let read = Ledger::try_from(stored::Stored::from(&ledger)).unwrap();
    assert_eq!(read.cells, ledger.cells);
    assert_eq!(read.former, [(session, Slot::NOBODY)].into());
}

#[test]
fn a_store_with_two_holders_of_one_job_is_refused() {
    let session = SessionId::new("pod", 1);
    let ledger = to(&Ledger::new(7), &session, &Place::Slot(Slot(0)), &[]);
    let mut twice = stored::Stored::from(&ledger);
    twice.waits.insert("a".into(), stored::Waits::Free { token: 1 });
    assert_eq!(Ledger::try_from(twice).unwrap_err().to_string(), "job `a` occurs twice");
}

proptest! {
    #[test]
    fn every_view_is_that_of_its_session_and_what_all_run_is_shared(ledger in any_ledger()) {
        let views = ledger.session_views();
        prop_assert!(views.keys().eq(ledger.sessions().into_keys()));
        let of_all = ledger.cells.view(&SessionId::new("nobody", 1)).jobs;
        let (mut shared, details) = (Vec::new(), Details::default());
        let mut marks = ViewMarks::new(&details);
        for (session, view) in &views {
            prop_assert_eq!(marks.of(view), ViewMark::of(view, &details));
            let mut alone = ledger.cells.view(session);
            if ledger.former.contains_key(session) {
                let is_own = |job: &JobName| !of_all.contains_key(job);
                let own = alone.jobs.iter().filter(|(job, _)| is_own(job));
                alone.jobs = own.map(|(job, token)| (job.clone(), *token)).collect();
            } else if alone.jobs == of_all {
                shared.push(&view.jobs);
            }
            prop_assert_eq!(view, &alone);
        }
        prop_assert!(shared.windows(2).all(|two| two[0].is_same(two[1])));
    }

    #[test]
    fn a_publication_is_counted_where_what_slots_run_differs(
        before in any_ledger(),
        after in any_ledger(),
        keeps_slots in any::<bool>(),
    ) {
        let slots = if keeps_slots { before.slots.clone() } else { after.slots };
        let after = Ledger { slots, version: before.version, ..after };
        let (was, is) = (before.granted(), after.granted());
        let mut counted = after.clone();
        counted.count_publication(&before);

        let names = |ledger: &Ledger| -> Vec<_> {
            ledger.slots.iter().map(|(slot, record)| (*slot, record.worker.clone())).collect()
        };
        let differs = was != is || names(&before) != names(&after);
        prop_assert_eq!(counted.version, before.version + u64::from(differs));
        for (slot, record) in &counted.slots {
            let differs = was.get(slot) != is.get(slot);
            let version = if differs { before.version + 1 } else { after.slots[slot].version };
            prop_assert_eq!(record.version, version);
            let lost = was.get(slot).into_iter().flatten().filter(|job| !is[slot].contains(*job));
            let got = |job: &JobName| {
                let has = |run: &BTreeMap<Slot, BTreeSet<JobName>>, slot| {
                    run.get(&slot).is_some_and(|jobs| jobs.contains(job))
                };
                is.keys().any(|slot| has(&is, *slot) && !has(&was, *slot))
            };
            let last_handoff_version = if lost.into_iter().any(got) { counted.version } else { after.slots[slot].last_handoff_version };
            prop_assert_eq!(record.last_handoff_version, last_handoff_version);
        }
    }
}
