//! The history of moves: it is kept in one object, and nothing waits for it.

use std::time::Duration;

use serde_json::{Value, json};
use swarm_apiserver::Verb;
use swarm_apiserver::fault::{Fault, Rule};

use super::scenario::{Scenario, on_w};

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
