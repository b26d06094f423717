//! Every reason that a plan can give, and its counts.

use serde_json::{Value, json};

use super::{planned, swarm};
use crate::plan::{Files, document};

/// Returns the moves as `job from to reason`, with `-` for no worker.
fn moves(document: &Value) -> Vec<String> {
    let slot = |slot: &Value| if slot.is_null() { "-".to_owned() } else { slot.to_string() };
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let steps = document["moves"].as_array().unwrap().iter();
    let text_of = |step: &Value| {
        let (from, to) = (slot(&step["from"]), slot(&step["to"]));
        format!("{} {from} {to} {}", text(&step["job"]), text(&step["reason"]))
    };
    steps.map(text_of).collect()
}

fn unassigned(document: &Value) -> Vec<String> {
    let all = document["unassigned"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    all.map(|one| format!("{} {}", text(&one["job"]), text(&one["reason"]))).collect()
}

#[test]
fn new_jobs_have_no_source_and_removed_jobs_no_target() {
    let plan = planned("jobs: [{name: a}, {name: b}]", "workloads: {w-0: {jobs: [b, z]}}", "1", 0);
    assert_eq!(moves(&plan), ["a - 0 new", "z 0 - removed"]);
    assert_eq!(plan["assignment"], json!({"a": 0, "b": 0}));
    assert_eq!((&plan["minimum_moves"], plan.get("workers_enough")), (&json!(0), None));
}

#[test]
fn jobs_of_workers_that_are_not_there_have_their_old_slot() {
    let view = "workloads: {w-0: {jobs: [a]}, w-7: {jobs: [b]}}";
    let plan = planned("jobs: [{name: a}, {name: b}]", view, "2", 0);
    assert_eq!(moves(&plan), ["b 7 1 worker-gone"]);
}

#[test]
fn balance_makes_the_fewest_moves_and_reports_their_number() {
    let view = "workloads: {w-0: {jobs: [a, b, c, d]}, w-1: {jobs: []}}";
    let plan = planned("jobs: [{name: a}, {name: b}, {name: c}, {name: d}]", view, "2", 0);
    assert_eq!((moves(&plan).len(), &plan["minimum_moves"]), (2, &json!(2)));
    assert!(moves(&plan).iter().all(|step| step.ends_with(" 0 1 balance")));
}

#[test]
fn a_pin_moves_a_job_and_a_pin_to_nowhere_leaves_it_out() {
    let spec = "jobs: [{name: a, pin: 1}, {name: b, pin: 9}, {name: c, pin: 9}, {name: d}]";
    let view = "workloads: {w-0: {jobs: [a, b]}, w-1: {jobs: [d]}}";
    let plan = planned(spec, view, "2", 3);
    assert!(moves(&plan).contains(&"a 0 1 pin".to_owned()), "{plan}");
    // A held job that becomes unassigned is a move with that reason; a new one is not a move.
    assert!(moves(&plan).contains(&"b 0 - pin".to_owned()), "{plan}");
    assert!(!moves(&plan).iter().any(|step| step.starts_with("c ")), "{plan}");
    assert_eq!(unassigned(&plan), ["b pin", "c pin"]);
    assert_eq!(plan["workers_enough"], 10);
}

#[test]
fn capacity_moves_jobs_and_leaves_the_least_important_out() {
    let spec = "worker: {maxJobs: 1}\njobs: [{name: a}, {name: b}, {name: c, priority: -1}]";
    let view = "workloads: {w-0: {jobs: [a, b, c]}}";
    let plan = planned(spec, view, "2", 3);
    assert_eq!(unassigned(&plan), ["c capacity"]);
    assert!(moves(&plan).contains(&"c 0 - capacity".to_owned()), "{plan}");
    assert_eq!(moves(&plan).iter().filter(|step| step.ends_with(" 0 1 capacity")).count(), 1);
    assert_eq!(plan["workers_enough"], 3);
}

#[test]
fn two_jobs_that_take_the_same_worker_for_themselves_are_never_enough() {
    let spec = "jobs: [{name: a, share: 100, pin: 0}, {name: b, share: 100, pin: 0}]";
    let plan = planned(spec, "", "3", 3);
    // A hash decides between equal jobs.
    assert_eq!(unassigned(&plan), ["a capacity"]);
    assert_eq!((&plan["workers_enough"], &plan["minimum_moves"]), (&Value::Null, &Value::Null));
}

#[test]
fn without_workers_nothing_is_assigned_and_the_maximum_still_counts() {
    let spec = "worker: {maxJobs: 2}\njobs: [{name: a}, {name: b}, {name: c}]";
    let plan = planned(spec, "workloads: {w-0: {jobs: [a]}}", "0", 3);
    assert_eq!(plan["assignment"], json!({}));
    assert_eq!(moves(&plan), ["a 0 - no-workers"]);
    assert_eq!(unassigned(&plan), ["a no-workers", "b no-workers", "c no-workers"]);
    assert_eq!((&plan["workers_enough"], &plan["minimum_moves"]), (&json!(2), &json!(0)));
}

#[test]
fn a_job_under_two_workers_is_held_by_the_lowest_that_is_there() {
    let spec = "jobs: [{name: a}, {name: b}]";
    let view = "workloads: {w-1: {jobs: [a, b]}, w-9: {jobs: [b]}, w-0: {jobs: [a]}}";
    assert_eq!(moves(&planned(spec, view, "2", 0)), Vec::<String>::new());
}

#[test]
fn a_view_may_name_slots_and_may_be_empty_or_without_versions() {
    let spec = "jobs: [{name: a}, {name: b}]";
    let view = "workloads: {w-7f9c4-x2x: {jobs: [a], slot: 1, version: 3}, w-0: {jobs: [b]}}";
    assert_eq!(moves(&planned(spec, view, "2", 0)), Vec::<String>::new());
    for empty in ["", "workloads:", "workloads: {}\nversion: 0\n", "workloads: {w-0: }", "# none"] {
        let all = moves(&planned(spec, empty, "2", 0));
        assert!(all.len() == 2 && all.iter().all(|step| step.ends_with(" new")), "{all:?}");
    }
}

#[test]
fn canonical_plans_do_not_depend_on_the_current_holders() {
    let spec = "rebalance: {mode: Canonical}\njobs: [{name: a}, {name: b}, {name: c}, {name: d}]";
    let all_on_1 = "workloads: {w-1: {jobs: [a, b, c, d]}}";
    let plan = planned(spec, all_on_1, "2", 0);
    assert_eq!(plan["assignment"], planned(spec, "", "2", 0)["assignment"]);
}

#[test]
fn a_step_makes_as_many_moves_as_the_budget_allows_and_lists_the_rest() {
    let files = Files::new();
    let spec = "rebalance: {maxMovesInFlight: 1}\n\
                jobs: [{name: a}, {name: b}, {name: c}, {name: d}]";
    let file = files.write("swarm.yaml", &swarm(spec));
    let view = files.write("view.yml", "workloads: {w-0: {jobs: [a, b, c, d]}}");
    let args = ["-f", &file, "--from", &view, "--workers", "2", "-o", "json"];
    let target = document(&files.plan(&args), 0);
    assert_eq!((moves(&target).len(), target.get("deferred")), (2, None));
    let step = document(&files.plan(&[&args[..], &["--step"]].concat()), 0);
    assert_eq!((moves(&step).len(), step["deferred"].as_array().unwrap().len()), (1, 1));
}
