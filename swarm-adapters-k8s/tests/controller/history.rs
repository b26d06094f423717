//! The history of moves: it is kept in one object, and nothing waits for it.

use std::time::Duration;

use serde_json::{Value, json};
use swarm_apiserver::Verb;
use swarm_apiserver::fault::{Fault, Rule};

use super::scenario::{LEASES, NAMESPACE, Scenario, on_w};

const HISTORIES: &str = "swarmhistories.swarm.k8slab.info";
/// A time after which every episode is written.
const WRITTEN_IN: Duration = Duration::from_secs(65);

fn episodes(s: &Scenario) -> Vec<Value> {
    s.at(HISTORIES, "s", "/spec/episodes").as_array().cloned().unwrap_or_default()
}

fn version(s: &Scenario) -> Value {
    s.at(HISTORIES, "s", "/metadata/resourceVersion")
}

#[tokio::test(start_paused = true)]
async fn moves_are_kept_with_their_reasons_and_nothing_is_written_at_rest() {
    let mut s = Scenario::settled().await;
    s.pass(WRITTEN_IN).await;
    let first = episodes(&s);
    assert_eq!(first[0]["causes"], json!(["the pool is new"]), "{first:?}");
    assert_eq!(first[0]["counts"], json!({"new": 3}));
    assert_eq!(s.at(HISTORIES, "s", "/metadata/ownerReferences/0/name"), "s");
    s.stateful_set("w", 3);
    s.pod("w-2");
    s.until("the new worker is settled", |s| s.view("s").contains("w-2") && s.is_settled("s"))
        .await;
    s.pass(WRITTEN_IN).await;
    let all = episodes(&s);
    let last = all.last().unwrap();
    assert_eq!(last["causes"], json!(["worker w-2 joined"]), "{all:?}");
    let moved = &last["moves"][0];
    assert_eq!((&moved["to"], &moved["reason"]), (&json!("w-2"), &json!("balance")));
    let before = version(&s);
    s.pass(Duration::from_hours(1)).await;
    s.stop_operator().await;
    s.start_operator().await;
    s.pass(WRITTEN_IN).await;
    assert_eq!(version(&s), before, "neither time nor a takeover is a reason to write");
    s.kill_operator().await;
    s.stateful_set("w", 2);
    s.pod_ends("w-2");
    s.start_operator().await;
    s.until("the job has a worker again", |s| !s.view("s").contains("w-2") && s.is_settled("s"))
        .await;
    s.pass(WRITTEN_IN).await;
    let later = episodes(&s);
    assert_eq!(later[..all.len()], all, "an operator continues the history that it finds");
    assert_eq!(later.last().unwrap()["causes"][0], "the operator started", "{later:?}");
}

#[tokio::test(start_paused = true)]
async fn a_history_that_cannot_be_kept_delays_no_turn() {
    let mut s = Scenario::start().await;
    for (verb, code) in [(Verb::Get, 503), (Verb::Create, 403)] {
        let fault = Fault::Refuse(code, "not now".into());
        s.server.inject(Rule::on(verb, "swarmhistories").always(), fault);
    }
    s.stateful_set("w", 1);
    s.pod("w-0");
    s.swarm("s", on_w(&["a"]));
    s.until("it is settled", |s| s.is_settled("s")).await;
    s.pass(WRITTEN_IN).await;
    assert_eq!(episodes(&s), [Value::Null; 0]);
    s.server.heal();
    s.pass(Duration::from_mins(12)).await;
    assert_eq!(episodes(&s).len(), 1, "it is kept once it can be");
}

#[tokio::test(start_paused = true)]
async fn a_history_that_somebody_edits_or_removes_is_written_again() {
    let mut s = Scenario::settled().await;
    s.pass(WRITTEN_IN).await;
    s.server.edit(HISTORIES, super::scenario::NAMESPACE, "s", |it| {
        it["spec"]["episodes"] = json!([{"startMs": "yesterday"}]);
    });
    s.stateful_set("w", 3);
    s.pod("w-2");
    s.until("the new worker is settled", |s| s.view("s").contains("w-2") && s.is_settled("s"))
        .await;
    s.pass(2 * WRITTEN_IN).await;
    let edited = episodes(&s);
    assert_eq!(edited.last().unwrap()["causes"], json!(["worker w-2 joined"]), "{edited:?}");
    s.server.remove(HISTORIES, super::scenario::NAMESPACE, "s");
    s.stateful_set("w", 2);
    s.pod_ends("w-2");
    s.until("the job has a worker again", |s| !s.view("s").contains("w-2") && s.is_settled("s"))
        .await;
    s.pass(2 * WRITTEN_IN).await;
    assert!(!episodes(&s).is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_sessions_report_of_their_own_jobs_is_summed_once_and_outlives_pods_and_operators() {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 1);
    s.pod("w-0");
    let first = s.worker("w-0");
    let mut swarm = on_w(&["a"]);
    swarm["worker"] = json!({"protocol": "Session"});
    s.swarm("s", swarm);
    s.until("it is settled", |s| s.is_settled("s")).await;
    let crash = |at: u64| json!({"atMs": at, "cause": "crash", "worker": "x", "detail": "exit 3"});
    let life = |at: u64| {
        let failing = json!({"sinceMs": at, "ranMs": 0, "worker": "x", "exit": "exit 3"});
        let counts = json!({"crash": 1});
        json!({"sinceMs": 1, "restarts": 1, "counts": counts, "events": [crash(at)], "failing": failing})
    };
    let report = |s: &Scenario, session: String, at: u64| {
        s.server.edit(LEASES, NAMESPACE, &session, |it| {
            let lives = json!({"sinceMs": 1, "jobs": {"a": life(at), "of-another": life(at)}});
            let failing = json!({"count": 1, "worst": []});
            it["metadata"]["annotations"]["swarm.k8slab.info/lives"] = json!(lives.to_string());
            it["metadata"]["annotations"]["swarm.k8slab.info/failing"] = json!(failing.to_string());
        });
    };
    let jobs = |s: &Scenario| s.at(HISTORIES, "s", "/spec/lives/0/jobs");
    first.freeze();
    report(&s, first.session.to_string(), 5);
    s.pass(WRITTEN_IN).await;
    let found = jobs(&s);
    assert_eq!(found.as_object().map(serde_json::Map::len), Some(1), "{found}");
    assert_eq!(found["a"]["counts"], json!({"crash": 1}));
    assert_eq!(found["a"]["events"][0]["worker"], "w-0", "a worker does not name itself");
    s.stop_operator().await;
    s.start_operator().await;
    s.pass(WRITTEN_IN).await;
    assert_eq!(jobs(&s), found, "what was taken is not taken again");
    s.pod_ends("w-0");
    s.pod("w-0");
    let second = s.worker("w-0");
    s.until("the next session has it", |s| !s.jobs_of(&second.session).is_empty()).await;
    s.pass(Duration::from_secs(5)).await;
    second.freeze();
    report(&s, second.session.to_string(), 7);
    s.pass(WRITTEN_IN).await;
    let found = jobs(&s);
    assert_eq!((&found["a"]["counts"], &found["a"]["restarts"]), (&json!({"crash": 2}), &json!(2)));
    assert_eq!(found["a"]["failing"]["sinceMs"], 5, "it fails since its first end: {found}");
}
