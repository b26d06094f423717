//! Properties of every plan.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use swarm_core::{Slot, View, ViewEntry};
use swarm_spec::convert::Home;
use swarm_spec::spec::WORKERS_MAX;
use swarm_view::plan::{Enough, LiveDocument};

use super::answer::{Answer, Before, Live, Question, Reach, answer, read};
use super::source::Source;
use super::{table, whole_number};

/// A generated job, by number: its share, pin and priority.
type Wish = (u8, Option<u8>, Option<u8>, i8);

fn wishes() -> impl Strategy<Value = Vec<Wish>> {
    let share = prop_oneof![4 => Just(None), 1 => (1..=100_u8).prop_map(Some)];
    let pin = prop_oneof![4 => Just(None), 1 => (0..8_u8).prop_map(Some)];
    prop::collection::vec((0..40_u8, share, pin, -2..3_i8), 0..40)
}

/// Generates holders: several slots may hold the same job.
fn held() -> impl Strategy<Value = BTreeSet<(u32, String)>> {
    let one = (0..8_u32, (0..45_u8).prop_map(|job| format!("job-{job}")));
    prop::collection::btree_set(one, 0..60)
}

fn manifest(wishes: &[Wish], mode: &str, max_jobs: Option<u8>) -> Source {
    let mut text = format!(
        "apiVersion: swarm.k8slab.info/v1alpha1\nkind: Swarm\nmetadata: {{name: any}}\nspec:\n\
         \x20 pool: {{statefulSet: {{name: w}}}}\n\x20 rebalance: {{mode: {mode}}}\n"
    );
    text.extend(max_jobs.map(|max| format!("  worker: {{maxJobs: {max}}}\n")));
    text.push_str("  jobs:\n");
    let by_number: BTreeMap<_, _> = wishes.iter().map(|wish| (wish.0, wish)).collect();
    for (number, (_, share, pin, priority)) in by_number {
        text.extend([format!("  - {{name: job-{number}, priority: {priority}")]);
        text.extend(share.map(|share| format!(", share: {share}")));
        text.extend(pin.map(|pin| format!(", pin: {pin}")));
        text.push_str("}\n");
    }
    if wishes.is_empty() {
        text.push_str("  - {name: only}\n");
    }
    Source::of("FILE", text)
}

/// Makes a view in the operator's format.
fn written<'a>(entries: impl IntoIterator<Item = (u32, &'a str)>) -> Source {
    let mut workers = BTreeMap::<String, ViewEntry>::new();
    for (slot, job) in entries {
        let entry = workers.entry(format!("w-{slot}")).or_default();
        entry.jobs.insert(job.parse().unwrap());
    }
    Source::of("VIEW", View { version: 1, workers }.to_yaml())
}

fn ask(manifest: &Source, workers: u32, view: Option<&Source>) -> Answer {
    let question = Question {
        home: Home::Cluster,
        manifest,
        name: None,
        namespace: None,
        workers: Some(workers),
        reach: Reach::Target,
    };
    answer(&question, view.map_or(Before::Nothing, Before::View)).unwrap()
}

proptest! {
    /// Scope: any wishes, either mode, with and without a maximum, any view.
    #[test]
    fn every_job_occurs_once_and_moves_are_the_difference_to_the_view(
        wishes in wishes(),
        names in held(),
        workers in 0..8_u32,
        is_canonical in any::<bool>(),
        max_jobs in prop::option::of(1..6_u8),
    ) {
        let mode = if is_canonical { "Canonical" } else { "Sticky" };
        let manifest = manifest(&wishes, mode, max_jobs);
        let view = written(names.iter().map(|(slot, job)| (*slot, job.as_str())));
        let Answer { document, jobs, .. } = ask(&manifest, workers, Some(&view));

        let unassigned: BTreeSet<_> = document.unassigned.iter().map(|one| &one.job).collect();
        prop_assert_eq!(unassigned.len(), document.unassigned.len());
        for job in jobs.keys().map(ToString::to_string) {
            prop_assert!(document.assignment.contains_key(&job) != unassigned.contains(&job));
        }
        prop_assert_eq!(document.assignment.len() + unassigned.len(), jobs.len());
        prop_assert!(document.assignment.values().all(|slot| *slot < workers));

        // The holder is the lowest live slot, or else the lowest slot.
        let mut held = BTreeMap::new();
        for (slot, job) in &names {
            let rank = (workers <= *slot, *slot);
            let holder = held.entry(job).or_insert(rank);
            *holder = rank.min(*holder);
        }
        let mut moves = BTreeMap::new();
        for job in held.keys().copied().chain(document.assignment.keys()) {
            let from = held.get(job).map(|(_, slot)| *slot);
            let to = document.assignment.get(job).copied();
            if from != to {
                moves.insert(job.as_str(), (from, to));
            }
        }
        let planned: Vec<_> =
            document.moves.iter().map(|step| (step.job.as_str(), (step.from, step.to))).collect();
        prop_assert_eq!(planned, moves.into_iter().collect::<Vec<_>>());
        prop_assert_eq!(document.workers_enough.is_some(), !unassigned.is_empty());
        let has_share = jobs.values().any(|job| job.share.is_some());
        prop_assert_eq!(document.minimum_moves.is_none(), has_share);
    }

    /// Scope: any wishes, either mode, with and without a maximum, any previous view.
    #[test]
    fn a_plan_from_the_plan_s_own_view_moves_nothing(
        wishes in wishes(),
        names in held(),
        workers in 0..8_u32,
        is_canonical in any::<bool>(),
        max_jobs in prop::option::of(1..6_u8),
    ) {
        let mode = if is_canonical { "Canonical" } else { "Sticky" };
        let manifest = manifest(&wishes, mode, max_jobs);
        let view = written(names.iter().map(|(slot, job)| (*slot, job.as_str())));
        let first = ask(&manifest, workers, Some(&view)).document;
        let own = written(first.assignment.iter().map(|(job, slot)| (*slot, job.as_str())));
        let second = ask(&manifest, workers, Some(&own)).document;
        prop_assert_eq!(&second.moves, &[]);
        prop_assert_eq!(&second.assignment, &first.assignment);
        prop_assert_eq!(&second.unassigned, &first.unassigned);
    }

    /// Scope: any wishes without a pin that is out of reach; with and without a maximum.
    #[test]
    fn as_many_workers_as_would_be_enough_are_enough(
        wishes in wishes(), workers in 0..8_u32, max_jobs in prop::option::of(1..6_u8),
    ) {
        let manifest = manifest(&wishes, "Sticky", max_jobs);
        if let Some(Enough::Workers(enough)) = ask(&manifest, workers, None).document.workers_enough {
            prop_assert_eq!(&ask(&manifest, enough, None).document.unassigned, &[]);
        }
    }
}

#[test]
fn slots_start_at_the_first_ordinal_of_the_statefulset() {
    let manifest = Source::of(
        "FILE",
        "
apiVersion: swarm.k8slab.info/v1alpha1
kind: Swarm
metadata: {name: any}
spec:
  pool: {statefulSet: {name: w}}
  jobs: [{name: a}, {name: b, pin: 6}, {name: c, pin: 0}, {name: d}]
---
kind: StatefulSet
metadata: {name: w}
spec: {replicas: 2, ordinals: {start: 5}}
",
    );
    let question = Question {
        home: Home::Cluster,
        manifest: &manifest,
        name: None,
        namespace: None,
        workers: None,
        reach: Reach::Target,
    };
    let document = answer(&question, Before::Nothing).unwrap().document;
    let slots: BTreeSet<_> = document.assignment.values().map(|slot| Slot(*slot)).collect();
    assert_eq!(slots, BTreeSet::from([Slot(5), Slot(6)]));
    assert_eq!(
        (document.unassigned[0].job.as_str(), document.workers_enough),
        ("c", Some(Enough::Never))
    );
}

/// A Swarm whose jobs have these params and runners.
fn runs(jobs: &str) -> Source {
    let text = format!(
        "apiVersion: swarm.k8slab.info/v1alpha1\nkind: Swarm\nmetadata: {{name: any}}\nspec:\n\
         \x20 pool: {{statefulSet: {{name: w}}}}\n\x20 worker:\n\x20   protocol: Session\n\
         \x20   runner: {{command: [a]}}\n\x20   runners: {{x: {{command: [b]}}}}\n\x20 jobs: [{jobs}]\n"
    );
    Source::of("FILE", text)
}

#[test]
fn a_job_that_is_done_is_not_planned_unless_an_edit_lets_it_run_on() {
    let live = Live {
        names: [(Slot(0), "w-0".to_owned())].into(),
        done: ["a", "b"].map(|job| job.parse().unwrap()).into(),
        ..Live::default()
    };
    let manifest = runs("{name: a, runOnce: true}, {name: b}, {name: c}");
    let question = Question {
        home: Home::Cluster,
        manifest: &manifest,
        name: None,
        namespace: None,
        workers: Some(1),
        reach: Reach::Target,
    };
    let answer = read(&question).unwrap().plan(Before::Live(&live)).unwrap();
    let moved: Vec<_> = answer.document.moves.iter().map(|step| step.job.as_str()).collect();
    assert_eq!(moved, ["b", "c"]);
    let note = "1 job with `runOnce` is done, so no worker gets it";
    assert_eq!(answer.notes, [note]);
}

#[test]
fn a_live_plan_names_the_workers_the_moves_and_the_jobs_that_restart_in_place() {
    let question = |manifest, workers| Question {
        home: Home::Cluster,
        manifest,
        name: None,
        namespace: None,
        workers: Some(workers),
        reach: Reach::Target,
    };
    let old = runs("{name: a}, {name: b, params: {u: '1'}}, {name: c}, {name: d}");
    let new = runs("{name: a}, {name: b, params: {u: '2'}}, {name: c, runner: x}, {name: d}");
    let held = [("a", 0), ("b", 0), ("c", 4), ("d", 4)];
    let held = held.map(|(job, slot)| (job.parse().unwrap(), Slot(slot)));
    let names = [(Slot(0), "pod-x".to_owned()), (Slot(4), "pod-y".to_owned())].into();
    let live = Live {
        held: held.into_iter().collect(),
        names,
        vacant: Vec::new(),
        leaving: Vec::new(),
        without: Vec::new(),
        done: BTreeSet::new(),
        running: Some(read(&question(&old, 2)).unwrap().starts()),
    };
    let planned = |live: &Live, workers| {
        read(&question(&new, workers)).unwrap().plan(Before::Live(live)).unwrap()
    };
    let edit = planned(&live, 2);
    assert_eq!(edit.document.restarts, Some(vec!["b".to_owned(), "c".to_owned()]));
    assert!(edit.document.moves.is_empty(), "{:?}", edit.document.moves);
    let text = table::text(&edit);
    assert!(text.contains("b    pod-x\nc    pod-y\n"), "{text}");

    let without = Live { without: vec![Slot(0)], ..live };
    let gone = planned(&without, 1);
    assert_eq!(gone.document.moves.len(), 2);
    assert!(gone.document.moves.iter().all(|step| step.to == Some(4)));
    // A job that moves starts anyway, so only jobs that stay restart in their places.
    assert_eq!(gone.document.restarts, Some(vec!["c".to_owned()]));
    let text = table::text(&gone);
    assert!(text.contains("pod-x   gone") && !text.contains("w-"), "{text}");
    let more = planned(&Live { without: Vec::new(), ..without }, 3);
    assert_eq!(more.slots, [Slot(0), Slot(4), Slot(5)]);
}

#[test]
fn a_worker_that_leaves_stays_only_in_a_plan_for_more_workers() {
    let names = (0..4).map(|slot| (Slot(slot), format!("w-{slot}"))).collect();
    let live = Live { names, leaving: vec![Slot(1)], ..Live::default() };
    let jobs = runs("{name: a}");
    let slots = |live: &Live, workers| {
        let question = Question {
            home: Home::Cluster,
            manifest: &jobs,
            name: None,
            namespace: None,
            workers: Some(workers),
            reach: Reach::Target,
        };
        let slots = answer(&question, Before::Live(live)).unwrap().slots;
        slots.into_iter().map(|slot| slot.0).collect::<Vec<_>>()
    };
    assert_eq!(slots(&live, 3), [0, 2, 3]);
    assert_eq!(slots(&live, 5), [0, 2, 3, 1, 4]);
    // The worker in slot 1 leaves anyway, so three remain.
    let without = Live { without: vec![Slot(1)], ..live.clone() };
    assert_eq!((without.remaining(3), slots(&without, 3)), (3, vec![0, 2, 3]));
    let without = Live { without: vec![Slot(2)], ..live };
    assert_eq!((without.remaining(3), slots(&without, 2)), (2, vec![0, 3]));
    // A smaller pool has the slots 0 to 2, and the worker in slot 3 goes.
    let names = [0, 2, 3].map(|slot| (Slot(slot), format!("w-{slot}"))).into();
    let live = Live { names, vacant: vec![Slot(1)], ..Live::default() };
    assert_eq!((slots(&live, 3), slots(&live, 4)), (vec![0, 1, 2], vec![0, 1, 2, 3]));
}

#[test]
fn a_swarm_sets_its_own_number_of_workers_and_a_live_plan_says_how_many_there_are() {
    let workload = "---\nkind: StatefulSet\nmetadata: {name: w}\nspec: {replicas: 2}\n";
    let with = |field: &str| {
        let text = runs("{name: a}, {name: b}").text;
        Source::of("FILE", text.replace("spec:\n", &format!("spec:\n  {field}\n")) + workload)
    };
    for (field, own) in [
        ("replicas: 3", Some(3)),
        ("autoscale: {min: 2, max: 9, jobsPerWorker: 1}", Some(2)),
        ("suspend: false", None),
    ] {
        let manifest = with(field);
        let question = Question {
            home: Home::Cluster,
            manifest: &manifest,
            name: None,
            namespace: None,
            workers: Some(4),
            reach: Reach::Target,
        };
        let plannable = read(&question).unwrap();
        assert_eq!((plannable.workers, plannable.own_workers), (4, own), "{field}");
    }
    let mut answer = ask(&runs("{name: a}"), 3, None);
    let mut live = LiveDocument {
        namespace: "media".to_owned(),
        name: "any".to_owned(),
        workers: 4,
        revision: 7,
        resource_version: "1".to_owned(),
    };
    answer.document.live = Some(live.clone());
    let text = table::text(&answer);
    assert!(text.starts_with("any: 1 job on 3 workers, now 4; moves"), "{text}");
    live.workers = 3;
    answer.document.live = Some(live);
    let text = table::text(&answer);
    assert!(text.starts_with("any: 1 job on 3 workers; moves"), "{text}");
}

#[test]
fn a_number_of_workers_is_no_difference() {
    assert_eq!(whole_number("6"), Ok(6));
    assert_eq!(whole_number("100000"), Ok(WORKERS_MAX));
    for (text, says) in [("+2", "all workers"), ("two", "a number"), ("100001", "at most 100000 ")]
    {
        let error = whole_number(text).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
}
