//! Plain workers that are not ready for too long.

use std::time::Duration;

use serde_json::json;

use super::scenario::{NAMESPACE, Scenario};

#[tokio::test(start_paused = true)]
async fn jobs_of_a_worker_that_is_not_ready_for_too_long_move() {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 2);
    s.pod("w-0");
    s.pod("w-1");
    let jobs = json!([{"name": "a"}, {"name": "b"}]);
    let pool = json!({"statefulSet": {"name": "w"}});
    s.swarm("s", json!({"pool": pool, "jobs": jobs}));
    s.until("it is settled", |s| s.is_settled("s")).await;
    let _ = s.transcript();
    s.pod_that_is("w-1", false);
    s.pass(Duration::from_secs(290)).await;
    assert_eq!(s.condition("s", "Ready"), "False/WorkersNotReady");
    s.until("its job moves", |s| s.condition("s", "Ready") == "False/WorkersMissing").await;
    assert_eq!(s.condition("s", "Degraded"), "True/NotReadyTooLong");
    let view = s.server.get("configmaps", NAMESPACE, "s-config").unwrap()["data"].to_string();
    assert!(view.contains("w-0"), "{view}");
    s.pod("w-1");
    s.until("it is ready again", |s| s.condition("s", "Degraded") == "/").await;
    let written = s.transcript();
    assert!(written.contains("Event Warning NotReadyTooLong"), "{written}");
}
