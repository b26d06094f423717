//! Release of a deleted Swarm: it stays until its workers have stopped.

use std::time::Duration;

use serde_json::{Value, json};
use swarm_apiserver::Verb;
use swarm_apiserver::fault::{Fault, Rule};
use swarm_client::api::Swarm;

use super::scenario::{LEDGERS, NAMESPACE, SWARMS, Scenario};

const LEDGER: &str = "statefulset.w";

fn plain() -> Value {
    json!({"pool": {"statefulSet": {"name": "w"}}, "jobs": [{"name": "a"}]})
}

fn exclusive() -> Value {
    json!({
        "pool": {"statefulSet": {"name": "w"}}, "jobs": [{"name": "a"}],
        "worker": {"protocol": "Session"}, "handover": {"policy": "Exclusive"},
    })
}

fn exists(s: &Scenario, swarm: &str) -> bool {
    s.server.get(SWARMS, NAMESPACE, swarm).is_some()
}

fn has_ledger(s: &Scenario) -> bool {
    s.server.get(LEDGERS, NAMESPACE, LEDGER).is_some()
}

/// A settled pool of one plain worker.
async fn settled() -> Scenario {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 1);
    s.pod("w-0");
    s.swarm("s", plain());
    s.until("it is settled", |s| s.is_settled("s")).await;
    s
}

#[tokio::test(start_paused = true)]
async fn a_refused_release_keeps_the_finalizer_and_is_reported() {
    let mut s = settled().await;
    let webhook = "admission webhook \"x\" denied the request: no";
    let rule = Rule::on(Verb::Update, "swarmledgers");
    s.server.inject(rule.always(), Fault::Refuse(400, webhook.into()));
    s.delete::<Swarm>("s").await;
    s.until("it is reported", |s| s.condition("s", "Ready") == "False/WriteRefused").await;
    s.pass(Duration::from_mins(5)).await;
    assert!(exists(&s, "s"), "no worker was asked to stop");
    s.server.heal();
    s.until("it goes, and its ledger", |s| !exists(s, "s") && !has_ledger(s)).await;
}

#[tokio::test(start_paused = true)]
async fn an_immutable_view_keeps_a_deleted_swarm() {
    let mut s = settled().await;
    s.server.edit("configmaps", NAMESPACE, "s-config", |map| map["immutable"] = json!(true));
    s.delete::<Swarm>("s").await;
    s.until("it is reported", |s| s.condition("s", "Ready") == "False/ViewImmutable").await;
    assert!(exists(&s, "s"), "no worker was asked to stop");
    s.server.remove("configmaps", NAMESPACE, "s-config");
    s.until("it goes", |s| !exists(s, "s")).await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_gone_does_not_release_a_session_without_proof() {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 1);
    s.pod("w-0");
    let worker = s.worker("w-0");
    s.swarm("s", exclusive());
    s.until("it is settled", |s| s.is_settled("s")).await;
    worker.freeze();
    // The pods stay, as after `kubectl delete --cascade=orphan`.
    s.server.remove("statefulsets.apps", NAMESPACE, "w");
    s.delete::<Swarm>("s").await;
    s.pass(Duration::from_secs(15)).await;
    assert!(exists(&s, "s") && has_ledger(&s), "its lease has not run out");
    s.until("it is waited out", |s| !exists(s, "s") && !has_ledger(s)).await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_without_the_view_does_not_release_a_session_without_proof() {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 1);
    s.pod("w-0");
    let worker = s.worker("w-0");
    s.swarm("s", exclusive());
    s.until("it is settled", |s| s.is_settled("s")).await;
    s.kill_operator().await;
    worker.freeze();
    s.server.remove("configmaps", NAMESPACE, "s-config");
    s.delete::<Swarm>("s").await;
    s.start_operator().await;
    s.pass(Duration::from_secs(15)).await;
    assert!(exists(&s, "s") && has_ledger(&s), "its lease has not run out");
    s.until("it is waited out", |s| !exists(s, "s") && !has_ledger(s)).await;
}

#[tokio::test(start_paused = true)]
async fn a_ledger_has_no_owner_and_is_swept_when_its_swarm_is_gone() {
    let mut s = settled().await;
    let ledger = s.server.get(LEDGERS, NAMESPACE, LEDGER).unwrap();
    assert!(ledger["metadata"]["ownerReferences"].is_null(), "{ledger}");
    s.server.remove(SWARMS, NAMESPACE, "s");
    s.until("it is swept", |s| !has_ledger(s)).await;
}

#[tokio::test(start_paused = true)]
async fn a_swarm_that_was_never_given_anything_goes_at_once() {
    let mut s = settled().await;
    s.swarm("second", plain());
    s.until("it is reported", |s| s.condition("second", "Ready") == "False/PoolClaimed").await;
    let nowhere = json!({"pool": {"statefulSet": {"name": "nobody"}}, "jobs": [{"name": "a"}]});
    s.swarm("third", nowhere);
    s.until("it is reported", |s| s.condition("third", "Ready") == "False/PoolNotFound").await;
    s.delete::<Swarm>("second").await;
    s.delete::<Swarm>("third").await;
    s.until("both go", |s| !exists(s, "second") && !exists(s, "third")).await;
    assert!(has_ledger(&s) && exists(&s, "s"), "the first goes on");
    let views = s.server.get("configmaps", NAMESPACE, "third-config");
    assert!(views.is_none(), "nothing is made for who goes");
}

/// The Swarms are refused for a view in a foreign place, a view that may not be created, a claimed
/// pool, and an unreadable ledger.
#[tokio::test(start_paused = true)]
async fn a_swarm_that_published_nothing_goes_at_once_whatever_it_was_refused_for() {
    const FOREIGN: &str = "listen: 8080";
    let with = |name: &str, rest: Value| {
        let mut spec = json!({"pool": {"statefulSet": {"name": name}}, "jobs": [{"name": "a"}]});
        spec.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        spec
    };
    let mut s = settled().await;
    for name in ["occupied", "claimed", "no-view", "unreadable"] {
        s.stateful_set(name, 1);
        s.pod(&format!("{name}-0"));
    }
    let map = |name: &str, data: Value| {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
               "metadata": {"name": name, "namespace": NAMESPACE}, "data": data})
    };
    s.server.put(map("theirs", json!({"config.yml": FOREIGN})));
    let object = |kind: &str, name: &str| json!({"kind": kind, "name": name, "uid": "gone"});
    s.server.put(json!({
        "apiVersion": "swarm.k8slab.info/v1alpha1", "kind": "SwarmLedger",
        "metadata": {"name": "statefulset.unreadable", "namespace": NAMESPACE},
        "spec": {
            "revision": 1, "version": 1, "firstToken": 0, "holdings": {"future": 1},
            "swarm": object("Swarm", "gone"), "pool": object("StatefulSet", "unreadable"),
        },
    }));
    let refuse = Rule::on(Verb::Apply, "configmaps").named("no-view-config").always();
    s.server.inject(refuse, Fault::Refuse(403, "exceeded quota: tight".into()));
    s.swarm("occupied", with("occupied", json!({"view": {"configMapName": "theirs"}})));
    s.swarm("claimed", with("claimed", json!({"view": {"configMapName": "s-config"}})));
    s.swarm("no-view", with("no-view", json!({})));
    s.swarm("unreadable", with("unreadable", json!({})));
    let reasons = [
        ("occupied", "ViewOccupied"),
        ("claimed", "ViewClaimed"),
        ("no-view", "WriteRefused"),
        ("unreadable", "LedgerUnreadable"),
    ];
    for (swarm, reason) in reasons {
        let reason = format!("False/{reason}");
        s.until(swarm, |s| s.condition(swarm, "Ready") == reason).await;
    }
    for (swarm, _) in reasons {
        s.delete::<Swarm>(swarm).await;
        s.pass(Duration::from_secs(1)).await;
        assert!(!exists(&s, swarm), "{swarm} waits for somebody");
    }
    let theirs = s.server.get("configmaps", NAMESPACE, "theirs").unwrap();
    assert_eq!(theirs["data"], json!({"config.yml": FOREIGN}));
    assert!(s.is_settled("s"), "the first goes on");
}
