//! Pools of workers in sessions: their Leases are facts, their views are written.

use std::time::Duration;

use serde_json::{Value, json};

use super::scenario::{LEDGERS, Scenario};

fn sessions(policy: &str, jobs: &[&str]) -> Value {
    let jobs: Vec<_> = jobs.iter().map(|name| json!({"name": name})).collect();
    json!({
        "pool": {"statefulSet": {"name": "w"}}, "jobs": jobs,
        "worker": {"protocol": "Session"}, "handover": {"policy": policy},
    })
}

#[tokio::test(start_paused = true)]
async fn a_job_is_granted_to_the_next_session_once_the_former_has_acknowledged_its_release() {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 1);
    s.pod("w-0");
    let first = s.worker("w-0");
    s.swarm("s", sessions("Exclusive", &["a", "b"]));
    s.until("it is settled", |s| s.is_settled("s")).await;
    let _ = s.transcript();
    s.stateful_set("w", 2);
    s.pod("w-1");
    let second = s.worker("w-1");
    s.until("each has one", |s| {
        s.jobs_of(&first.session).len() == 1 && s.jobs_of(&second.session).len() == 1
    })
    .await;
    s.until("it is settled", |s| s.is_settled("s")).await;
    insta::assert_snapshot!(s.transcript());
}

#[tokio::test(start_paused = true)]
async fn a_silent_session_is_revoked_and_waited_out_before_its_jobs_go_to_another() {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 2);
    s.pod("w-0");
    s.pod("w-1");
    let first = s.worker("w-0");
    let second = s.worker("w-1");
    s.swarm("s", sessions("Exclusive", &["a", "b"]));
    s.until("it is settled", |s| s.is_settled("s")).await;
    s.pass(Duration::from_secs(10)).await;
    let _ = s.transcript();
    s.note("the worker in w-1 freezes");
    second.freeze();
    s.until("the other has both", |s| s.jobs_of(&first.session).len() == 2).await;
    s.until("nothing waits", |s| s.at(LEDGERS, "statefulset.w", "/spec/holdings/waits").is_null())
        .await;
    insta::assert_snapshot!(s.transcript());
}
