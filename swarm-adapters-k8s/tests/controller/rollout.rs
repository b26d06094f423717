//! Rollouts of a pool's workload, in progress and stuck.

use std::time::Duration;

use serde_json::{Value, json};

use super::kstatus::{Kstatus, kstatus};
use super::scenario::{NAMESPACE, SWARMS, Scenario, on_w};

const SETS: &str = "statefulsets.apps";

/// A settled pool of three.
async fn settled() -> Scenario {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 3);
    for pod in ["w-0", "w-1", "w-2"] {
        s.pod(pod);
    }
    s.swarm("s", on_w(&["a", "b", "c"]));
    s.until("it is settled", |s| s.is_settled("s")).await;
    s
}

/// Reports that `updated` of three pods have the newest template.
fn set_rolls(s: &mut Scenario, updated: u32) {
    s.note(&format!("{updated} of 3 pods have the newest template"));
    s.server.edit(SETS, NAMESPACE, "w", |set| {
        set["status"] = json!({
            "replicas": 3, "readyReplicas": 3, "updatedReplicas": updated,
            "observedGeneration": set["metadata"]["generation"],
            "currentRevision": if updated == 3 { "w-2" } else { "w-1" }, "updateRevision": "w-2",
        });
    });
}

/// Makes the pod wait for this reason.
fn pod_waits(s: &mut Scenario, name: &str, why: &str) {
    s.pod_that_is(name, false);
    let state = json!({"waiting": {"reason": why, "message": "not found"}});
    s.server.edit("pods", NAMESPACE, name, |pod| {
        pod["status"]["containerStatuses"] = json!([{
            "name": "worker", "image": "w:9", "imageID": "", "ready": false, "restartCount": 0,
            "state": state,
        }]);
    });
}

fn judged(s: &Scenario) -> Kstatus {
    kstatus(&s.server.get(SWARMS, NAMESPACE, "s").unwrap())
}

fn message(s: &Scenario) -> String {
    let status = s.status("s");
    let ready =
        status["conditions"].as_array().into_iter().flatten().find(|it| it["type"] == "Ready");
    ready.and_then(|it| it["message"].as_str()).unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_swarm_is_not_ready_while_its_workload_rolls_out_and_nothing_moves_for_it() {
    let mut s = settled().await;
    let view = s.view("s");
    set_rolls(&mut s, 1);
    s.until("it rolls out", |s| s.condition("s", "Ready") == "False/RollingOut").await;
    assert_eq!(message(&s), "1 of 3 workers run the new template; 3 jobs on 3 workers");
    assert_eq!(s.condition("s", "RollingOut"), "True/RollingOut");
    assert_eq!(judged(&s), Kstatus::InProgress);
    pod_waits(&mut s, "w-2", "ImagePullBackOff");
    s.until("the cause is said", |s| message(s).contains("image `w:9` cannot be pulled")).await;
    assert_eq!(s.condition("s", "Ready"), "False/RollingOut");
    assert!(
        message(&s).contains("this worker holds jobs and is not ready: w-2"),
        "{}",
        message(&s)
    );
    assert_eq!(s.view("s"), view, "it is only reported");

    pod_waits(&mut s, "w-2", "ErrImageNeverPull");
    s.until("no time helps", |s| s.condition("s", "Ready") == "False/RolloutStalled").await;
    assert_eq!(
        (judged(&s), s.condition("s", "Stalled").as_str()),
        (Kstatus::Failed, "True/RolloutStalled")
    );
    s.pod("w-2");
    set_rolls(&mut s, 3);
    s.until("it is through", |s| s.is_settled("s")).await;
    assert_eq!((judged(&s), s.condition("s", "RollingOut").as_str()), (Kstatus::Current, "/"));
    let written = s.transcript();
    let events =
        ["Normal RollingOut: 1 of 3", "Warning RolloutStalled: 1 of 3", "Normal Settled: 3"];
    for event in events {
        assert!(written.contains(&format!("Event {event}")), "{event}: {written}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_deadline_of_a_rollout_outlives_the_operator_and_nothing_else_is_written_at_rest() {
    let mut s = settled().await;
    set_rolls(&mut s, 1);
    s.until("it rolls out", |s| s.condition("s", "Ready") == "False/RollingOut").await;
    s.kill_operator().await;
    let long_ago = "2020-01-01T00:00:00Z";
    for pod in ["w-0", "w-1", "w-2"] {
        s.server.edit("pods", NAMESPACE, pod, |it| {
            it["metadata"]["creationTimestamp"] = json!(long_ago);
        });
    }
    s.server.edit(SWARMS, NAMESPACE, "s", |swarm| {
        for condition in swarm["status"]["conditions"].as_array_mut().unwrap() {
            condition["lastTransitionTime"] = json!(long_ago);
        }
    });
    s.start_operator().await;
    s.until("it is stalled", |s| s.condition("s", "Ready") == "False/RolloutStalled").await;
    assert!(message(&s).contains("it has not proceeded for 10 minutes"), "{}", message(&s));
    s.pass(Duration::from_mins(1)).await;
    let _ = s.server.take_exchanges();
    s.pass(Duration::from_mins(30)).await;
    let exchanges = s.server.take_exchanges();
    let writes =
        exchanges.iter().filter(|it| it.verb.writes()).map(swarm_apiserver::Exchange::what);
    // The time in the status, every ten minutes.
    assert_eq!(writes.collect::<Vec<_>>(), ["apply swarms/s/status"; 3]);
}

#[tokio::test(start_paused = true)]
async fn an_edit_that_its_controller_never_sees_is_reported_and_a_short_delay_is_not() {
    let mut s = settled().await;
    let _ = s.transcript();
    let sees = |set: &mut Value, generation: i64| {
        set["status"]["observedGeneration"] = json!(generation);
    };
    s.server.edit(SETS, NAMESPACE, "w", |set| sees(set, 0));
    s.pass(Duration::from_millis(500)).await;
    s.server.edit(SETS, NAMESPACE, "w", |set| sees(set, 1));
    s.pass(Duration::from_secs(5)).await;
    assert!(!s.transcript().contains("RollingOut"));
    s.server.edit(SETS, NAMESPACE, "w", |set| sees(set, 0));
    s.until("it is reported", |s| s.condition("s", "Ready") == "False/RollingOut").await;
    assert!(message(&s).contains("has not seen its last edit"), "{}", message(&s));
}

#[tokio::test(start_paused = true)]
async fn a_workload_at_0_is_stalled_with_the_command_that_scales_it() {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 0);
    s.swarm("s", on_w(&["a", "b"]));
    s.until("it is stalled", |s| s.condition("s", "Stalled") == "True/NoWorkers").await;
    let expected = "2 jobs have no worker, since StatefulSet `w` is scaled to 0: kubectl -n n scale \
                    statefulset w --replicas=1";
    assert_eq!(message(&s), expected);
    assert_eq!(
        (judged(&s), s.condition("s", "PoolReady").as_str()),
        (Kstatus::Failed, "False/NoWorkers")
    );
    let mut decides = on_w(&["a", "b"]);
    decides["replicas"] = json!(0);
    s.swarm("s", decides);
    let scale = "kubectl -n n scale swarm s --replicas=1";
    s.until("the Swarm decides", |s| message(s).ends_with(scale)).await;
    s.swarm("s", on_w(&[]));
    s.until("nobody is missed", |s| s.is_settled("s")).await;
}
