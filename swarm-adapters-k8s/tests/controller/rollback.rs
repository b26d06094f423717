//! The store is rolled back to an older copy while the operator runs.

use std::time::Duration;

use serde_json::{Value, json};
use swarm_apiserver::Snapshot;

use super::scenario::{NAMESPACE, SWARMS, Scenario};

fn spec(jobs: &[&str]) -> Value {
    let jobs: Vec<_> = jobs.iter().map(|name| json!({"name": name})).collect();
    json!({"pool": {"statefulSet": {"name": "w"}}, "jobs": jobs})
}

/// A settled pool with the jobs `kept` and `undone`, and a copy of the store before `undone`.
async fn with_a_job_more_than_the_copy() -> (Scenario, Snapshot) {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 1);
    s.pod("w-0");
    s.swarm("s", spec(&["kept"]));
    s.until("it is settled", |s| s.is_settled("s")).await;
    let copy = s.server.snapshot();
    s.swarm("s", spec(&["kept", "undone"]));
    s.until("it is settled", |s| s.is_settled("s") && s.status("s")["jobs"] == 2).await;
    (s, copy)
}

/// Writes until the store is past this version, so that a resumed watch sees the next changes.
fn grow_past(s: &Scenario, version: u64) {
    let mut writes = 0;
    while newest(s) <= version {
        writes += 1;
        let metadata = json!({"name": "other", "namespace": NAMESPACE});
        let data = json!({"writes": writes.to_string()});
        s.server.put(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data,
        }));
    }
}

fn newest(s: &Scenario) -> u64 {
    let all = ["configmaps", SWARMS, "pods", "statefulsets.apps"].map(|of| s.server.all(of));
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str()?.parse().ok();
    all.iter().flatten().filter_map(version).max().unwrap_or(0)
}

fn jobs(s: &Scenario) -> i64 {
    s.status("s")["jobs"].as_i64().unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn a_spec_that_was_rolled_back_is_not_gone_by_for_another_turn() {
    let (mut s, copy) = with_a_job_more_than_the_copy().await;
    let version = newest(&s);
    s.note("the store is rolled back");
    s.server.roll_back(&copy);
    grow_past(&s, version + 100);
    s.stateful_set("w", 2);
    s.pod("w-1");
    s.until("the new worker is seen", |s| s.status("s")["workersReady"] == 2).await;
    s.until("it is settled", |s| s.is_settled("s")).await;
    assert_eq!(jobs(&s), 1, "{}", s.transcript());
    let view = s.server.get("configmaps", NAMESPACE, "s-config").unwrap();
    assert!(!view.to_string().contains("undone"), "{view}");
    let written = s.transcript();
    let (_, since) = written.split_once("the store is rolled back").unwrap();
    assert!(!since.contains("undone"), "{written}");
}

#[tokio::test(start_paused = true)]
async fn a_rollback_that_leaves_no_evidence_is_noticed_within_ten_minutes() {
    let (mut s, copy) = with_a_job_more_than_the_copy().await;
    let version = newest(&s);
    s.server.roll_back(&copy);
    let _ = s.server.take_exchanges();
    s.pass(Duration::from_mins(11)).await;
    let lists = s.server.take_exchanges();
    let lists = lists.iter().filter(|it| it.verb == swarm_apiserver::Verb::List).count();
    assert!(0 < lists, "nothing was listed");
    // From here on every turn uses the stored spec.
    grow_past(&s, version + 100);
    s.stateful_set("w", 2);
    s.pod("w-1");
    s.note("from here on");
    s.until("the new worker is seen", |s| s.status("s")["workersReady"] == 2).await;
    s.until("it is settled", |s| s.is_settled("s")).await;
    assert_eq!(jobs(&s), 1);
    let written = s.transcript();
    let (_, since) = written.split_once("from here on").unwrap();
    assert!(!since.contains("undone"), "{written}");
}
