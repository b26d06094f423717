//! Pools whose number of workers follows the jobs.

use std::time::Duration;

use serde_json::{Value, json};

use super::scenario::{SWARMS, Scenario, on_w};

/// One to four workers, one for each job, with a cooldown of five minutes.
fn one_for_each(jobs: &[&str]) -> Value {
    let mut spec = on_w(jobs);
    spec["autoscale"] = json!({"max": 4, "jobsPerWorker": 1});
    spec
}

fn replicas(s: &Scenario) -> Value {
    s.at("statefulsets.apps", "w", "/spec/replicas")
}

/// A pool of two, whose list grows to three jobs.
async fn of_three() -> Scenario {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 2);
    s.pod("w-0");
    s.pod("w-1");
    s.swarm("s", one_for_each(&["a", "b"]));
    s.until("it is settled", |s| s.is_settled("s")).await;
    s.swarm("s", one_for_each(&["a", "b", "c"]));
    s.until("there are to be three", |s| replicas(s) == 3).await;
    s.pod("w-2");
    s.until("each has one", |s| s.is_settled("s") && s.status("s")["workersReady"] == 3).await;
    s
}

#[tokio::test(start_paused = true)]
async fn the_workload_grows_at_once_and_shrinks_after_the_cooldown_when_its_top_is_empty() {
    let mut s = of_three().await;
    assert_eq!(s.status("s")["desiredWorkers"], 3);
    let _ = s.transcript();
    s.swarm("s", one_for_each(&["a"]));
    s.pass(Duration::from_secs(299)).await;
    assert_eq!((replicas(&s), s.status("s")["desiredWorkers"].clone()), (json!(3), json!(3)));
    s.until("there is to be one", |s| replicas(s) == 1).await;
    s.pod_ends("w-2");
    s.pod_ends("w-1");
    s.until("it is settled", |s| s.is_settled("s")).await;
    assert_eq!(s.at(SWARMS, "s", "/spec/replicas"), Value::Null, "what the user wrote stays");
    insta::assert_snapshot!(s.transcript());
}

#[tokio::test(start_paused = true)]
async fn a_restarted_operator_begins_with_the_pool_as_it_is_and_a_whole_cooldown() {
    let mut s = of_three().await;
    s.swarm("s", one_for_each(&["a"]));
    s.pass(Duration::from_secs(200)).await;
    s.stop_operator().await;
    s.start_operator().await;
    s.pass(Duration::from_secs(299)).await;
    assert_eq!(replicas(&s), 3);
    s.until("there is to be one", |s| replicas(s) == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_needs_more_than_the_maximum_says_so_and_how_many_would_be_enough() {
    let mut s = of_three().await;
    let mut spec = one_for_each(&["a", "b", "c", "d", "e", "f"]);
    spec["worker"] = json!({"maxJobs": 1});
    s.swarm("s", spec);
    s.until("there are to be four", |s| replicas(s) == 4).await;
    s.pod("w-3");
    let told = |s: &Scenario| {
        let conditions = s.status("s")["conditions"].clone();
        let mut all = conditions.as_array().into_iter().flatten();
        let limited = all.find(|it| it["type"] == "AutoscaleLimited").cloned().unwrap_or_default();
        (limited["reason"].clone(), limited["message"].clone())
    };
    let message = "6 jobs need 6 workers, and spec.autoscale.max is 4; 2 jobs have no worker";
    s.until("it says so", |s| told(s) == (json!("AtMaximum"), json!(message))).await;
    assert_eq!(s.status("s")["desiredWorkers"], 4);
    s.swarm("s", one_for_each(&["a", "b", "c", "d"]));
    s.until("it is enough", |s| s.condition("s", "AutoscaleLimited") == "/").await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_swings_within_the_cooldown_leaves_the_pool_as_it_is() {
    let mut s = of_three().await;
    for _ in 0..10 {
        s.swarm("s", one_for_each(&["a"]));
        s.pass(Duration::from_mins(4)).await;
        assert_eq!(replicas(&s), 3);
        s.swarm("s", one_for_each(&["a", "b", "c"]));
        s.pass(Duration::from_secs(10)).await;
        assert_eq!(replicas(&s), 3);
    }
}
