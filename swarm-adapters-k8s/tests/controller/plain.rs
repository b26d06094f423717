//! Pools of plain workers, which read what the operator publishes and report nothing.

use std::time::Duration;

use serde_json::json;
use swarm_client::api::Swarm;

use super::scenario::{LEDGERS, NAMESPACE, SWARMS, Scenario, on_w};

#[tokio::test(start_paused = true)]
async fn a_pool_is_given_its_jobs_and_a_new_worker_its_share() {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 1);
    s.pod("w-0");
    s.swarm("s", on_w(&["a", "b", "c"]));
    s.until("it is settled", |s| s.is_settled("s")).await;
    s.stateful_set("w", 2);
    s.pod("w-1");
    s.until("each has its share", |s| s.is_settled("s") && s.status("s")["revision"] == 2).await;
    insta::assert_snapshot!(s.transcript());
}

#[tokio::test(start_paused = true)]
async fn a_list_is_a_source_from_when_it_has_the_labels_until_it_has_others() {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 1);
    s.pod("w-0");
    let sources = json!([{"selector": {"matchLabels": {"lists": "all"}}, "key": "jobs"}]);
    s.swarm("s", json!({"pool": {"statefulSet": {"name": "w"}}, "jobSources": sources}));
    let list = |name: &str, label: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"jobs": format!("- {name}\n")},
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"lists": label}},
        })
    };
    s.put("a list", list("a", "all"));
    s.put("another list, of something else", list("b", "none"));
    // This is long before the next resync.
    s.pass(Duration::from_mins(1)).await;
    assert_eq!(s.status("s")["jobs"], 1);
    s.put("it becomes one", list("b", "all"));
    s.pass(Duration::from_mins(1)).await;
    assert_eq!(s.status("s")["jobs"], 2);
    s.put("the first one becomes something else", list("a", "none"));
    s.pass(Duration::from_mins(1)).await;
    assert_eq!(s.status("s")["jobs"], 1);
    assert!(s.view("s").contains("[\"b\"]"), "{}", s.view("s"));
}

#[tokio::test(start_paused = true)]
async fn the_workers_of_a_deleted_swarm_are_left_without_jobs_before_it_goes() {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 1);
    s.pod("w-0");
    s.swarm("s", on_w(&["a"]));
    s.until("it is settled", |s| s.is_settled("s")).await;
    let _ = s.transcript();
    s.delete::<Swarm>("s").await;
    s.until("it is gone", |s| s.server.get(SWARMS, "n", "s").is_none()).await;
    insta::assert_snapshot!(s.transcript());
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_gone_leaves_everything_as_it_is_until_it_is_back() {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 1);
    s.pod("w-0");
    s.swarm("s", on_w(&["a"]));
    s.until("it is settled", |s| s.is_settled("s")).await;
    let _ = s.transcript();
    let before = (s.view("s"), s.at(LEDGERS, "statefulset.w", "/spec"));
    s.note("StatefulSet w is deleted, its pod stays");
    s.server.remove("statefulsets.apps", "n", "w");
    s.until("it says so", |s| s.condition("s", "Ready") == "False/PoolNotFound").await;
    assert_eq!((s.view("s"), s.at(LEDGERS, "statefulset.w", "/spec")), before);
    s.note("it is applied again, and adopts its pod");
    s.stateful_set("w", 1);
    s.pod("w-0");
    s.until("it is settled again", |s| s.is_settled("s")).await;
    assert_eq!(s.view("s"), before.0, "nobody moved");
    insta::assert_snapshot!(s.transcript());
}
