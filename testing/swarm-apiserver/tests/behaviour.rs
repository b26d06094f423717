//! Tests of the behaviour that only this server has for tests: faults, stalls, rollbacks.
#![expect(clippy::unwrap_used, reason = "a test may say what must be so")]

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Error, ResourceExt};
use serde_json::{Value, json};
use swarm_apiserver::fault::{Fault, Rule};
use swarm_apiserver::{ApiServer, Verb};

fn map(name: &str, text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "n"}, "data": {"text": text},
    })
}

fn parsed(value: Value) -> ConfigMap {
    serde_json::from_value(value).unwrap()
}

fn maps(server: &ApiServer) -> Api<ConfigMap> {
    Api::namespaced(server.client("n"), "n")
}

fn code<T>(result: kube::Result<T>) -> u16 {
    match result {
        Ok(_) => 200,
        Err(Error::Api(status)) => status.code,
        Err(_) => 0,
    }
}

#[tokio::test(start_paused = true)]
async fn a_fault_meets_the_requests_it_is_for_and_no_others() {
    let server = ApiServer::new();
    server.put(map("a", "1"));
    let api = maps(&server);
    server
        .inject(Rule::on(Verb::Get, "configmaps").named("a").skip(1).times(2), Fault::Answer(403));
    let mut codes = Vec::new();
    for _ in 0..4 {
        codes.push(code(api.get("a").await));
    }
    assert_eq!(codes, [200, 403, 403, 200]);
    assert_eq!(code(api.get("b").await), 404);
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_hides_a_write_that_was_made_and_a_lost_request_one_that_was_not() {
    let server = ApiServer::new();
    let api = maps(&server);
    server.inject(Rule::on(Verb::Create, "configmaps").named("a"), Fault::LoseReply);
    server.inject(Rule::on(Verb::Create, "configmaps").named("b"), Fault::LoseRequest);
    for name in ["a", "b"] {
        let lost = api.create(&PostParams::default(), &parsed(map(name, "1"))).await;
        assert!(matches!(lost, Err(Error::Service(_))), "{lost:?}");
    }
    assert!(server.get("configmaps", "n", "a").is_some());
    assert!(server.get("configmaps", "n", "b").is_none());
}

#[tokio::test(start_paused = true)]
async fn something_else_can_happen_first() {
    let server = ApiServer::new();
    server.put(map("a", "1"));
    let first = |server: &ApiServer| server.remove("configmaps", "n", "a");
    server.inject(Rule::on(Verb::Get, "configmaps"), Fault::First(Box::new(first)));
    assert_eq!(code(maps(&server).get("a").await), 404);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_hangs_is_given_up_by_who_asked() {
    let server = ApiServer::new();
    server.inject(Rule::on(Verb::Get, "configmaps"), Fault::Hang);
    let api = maps(&server);
    let answer = tokio::time::timeout(Duration::from_secs(10), api.get("a")).await;
    assert!(answer.is_err());
}

/// The text of the next change, without waiting longer than a second.
async fn next(
    events: &mut (impl futures::Stream<Item = watcher::Result<Event<ConfigMap>>> + Unpin),
) -> String {
    let text =
        |object: ConfigMap| object.data.unwrap_or_default().remove("text").unwrap_or_default();
    match tokio::time::timeout(Duration::from_secs(1), events.next()).await {
        Err(_) => "nothing".to_owned(),
        Ok(None) => "end".to_owned(),
        Ok(Some(Err(error))) => error.to_string(),
        Ok(Some(Ok(Event::Init))) => "init".to_owned(),
        Ok(Some(Ok(Event::InitDone))) => "listed".to_owned(),
        Ok(Some(Ok(Event::InitApply(object)))) => format!("had {}", text(object)),
        Ok(Some(Ok(Event::Apply(object)))) => format!("has {}", text(object)),
        Ok(Some(Ok(Event::Delete(object)))) => format!("lost {}", text(object)),
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_stalls_and_shows_later_what_it_missed_or_is_asked_to_list_again() {
    let server = ApiServer::new();
    server.put(map("a", "1"));
    let mut events = std::pin::pin!(watcher(maps(&server), watcher::Config::default()));
    for expected in ["init", "had 1", "listed", "nothing"] {
        assert_eq!(next(&mut events).await, expected);
    }
    server.stall_watches("configmaps");
    server.put(map("a", "2"));
    assert_eq!(next(&mut events).await, "nothing");
    server.resume_watches("configmaps");
    assert_eq!(next(&mut events).await, "has 2");
    server.drop_watches("configmaps");
    server.put(map("a", "3"));
    assert_eq!(next(&mut events).await, "has 3");
    server.expire_watches("configmaps");
    assert!(next(&mut events).await.contains("too old resource version"));
    for expected in ["init", "had 3", "listed"] {
        assert_eq!(next(&mut events).await, expected);
    }
}

/// Covers a fault of a real cluster: an operator continued with a spec that no longer existed.
#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_beyond_a_rollback_and_shows_nothing_of_it() {
    let server = ApiServer::new();
    server.put(map("a", "old"));
    let snapshot = server.snapshot();
    let mut events = std::pin::pin!(watcher(maps(&server), watcher::Config::default()));
    for expected in ["init", "had old", "listed"] {
        assert_eq!(next(&mut events).await, expected);
    }
    server.put(map("a", "new"));
    server.put(map("b", "new"));
    assert_eq!([next(&mut events).await, next(&mut events).await], ["has new", "has new"]);
    server.roll_back(&snapshot);
    assert_eq!(next(&mut events).await, "nothing", "of what went back");
    server.put(map("c", "unseen"));
    assert_eq!(next(&mut events).await, "nothing", "below the version that was seen");
    server.put(map("d", "unseen"));
    server.put(map("e", "seen"));
    assert_eq!(next(&mut events).await, "has seen");
    assert_eq!(server.get("configmaps", "n", "a").unwrap()["data"]["text"], "old");
}

#[tokio::test(start_paused = true)]
async fn what_was_compacted_is_gone_for_a_watch_that_comes_late() {
    let server = ApiServer::new();
    server.put(map("a", "1"));
    let first = server.get("configmaps", "n", "a").unwrap();
    server.put(map("a", "2"));
    server.compact();
    let version = first["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let api = maps(&server);
    let events = api.watch(&WatchParams::default(), &version).await.unwrap();
    let events: Vec<_> = events.try_collect().await.unwrap();
    assert!(matches!(events.as_slice(), [WatchEvent::Error(status)] if status.code == 410));
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_a_node_stays_until_its_kubelet_has_ended_it() {
    let server = ApiServer::new();
    server.put(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "n"},
        "spec": {"nodeName": "node", "containers": []},
    }));
    let api: Api<Pod> = Api::namespaced(server.client("n"), "n");
    api.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(api.get("a").await.unwrap().metadata.deletion_timestamp.is_some());
    api.delete("a", &DeleteParams::default().grace_period(0)).await.unwrap();
    assert_eq!(code(api.get("a").await), 404);
}

#[tokio::test(start_paused = true)]
async fn what_was_asked_is_there_to_be_read() {
    let server = ApiServer::new();
    let api = maps(&server);
    let patch = Patch::Apply(map("a", "1"));
    let made = api.patch("a", &PatchParams::apply("me"), &patch).await.unwrap();
    assert_eq!(made.uid().as_deref(), Some("a.1"));
    assert_eq!(code(api.get("b").await), 404);
    let asked: Vec<_> =
        server.take_exchanges().iter().map(|it| (it.what(), it.code.unwrap())).collect();
    let expected = [("apply configmaps/a".to_owned(), 201), ("get configmaps/b".to_owned(), 404)];
    assert_eq!(asked, expected);
}
