//! Refusals of the API server: each becomes a condition with a sentence, and delays nothing else.

use std::time::Duration;

use serde_json::{Value, json};
use swarm_apiserver::Verb;
use swarm_apiserver::fault::{Fault, Rule};

use super::scenario::{NAMESPACE, Scenario};

const POLICY: &str = "ValidatingAdmissionPolicy 'hands-off' denied request: hands off";

/// A pod that no workload made.
fn loose_pod(name: &str, phase: &str) -> Value {
    let ready = if phase == "Running" { "True" } else { "False" };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": "w"}},
        "spec": {"nodeName": "node", "containers": []},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
    })
}

fn by_labels(jobs: &[&str]) -> Value {
    let jobs: Vec<_> = jobs.iter().map(|name| json!({"name": name})).collect();
    json!({
        "pool": {"pods": {"matchLabels": {"app": "w"}}}, "jobs": jobs,
    })
}

/// The message of a condition.
fn message(s: &Scenario, swarm: &str, type_: &str) -> String {
    let status = s.status(swarm);
    let all = status["conditions"].as_array().into_iter().flatten();
    let found = all.into_iter().find(|it| it["type"] == type_);
    found.map_or_else(String::new, |it| it["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_may_not_be_claimed_does_not_hold_up_the_others() {
    let mut s = Scenario::start().await;
    s.put("pod a", loose_pod("a", "Running"));
    s.put("pod b", loose_pod("b", "Running"));
    let rule = Rule::on(Verb::Patch, "pods").named("a");
    s.server.inject(rule.always(), Fault::Refuse(422, POLICY.into()));
    s.swarm("s", by_labels(&["x", "y"]));
    s.until("the other pod has the jobs, and the refusal is reported", |s| {
        s.status("s")["assigned"] == 2 && s.condition("s", "Ready") == "False/WriteRefused"
    })
    .await;
    let message = s.trouble("s", "WriteRefused").unwrap();
    assert!(message.contains("pod `a` was refused: Validating"), "{message}");
    s.server.heal();
    s.until("it is shared", |s| s.is_settled("s") && s.status("s")["workersReady"] == 2).await;
    assert_eq!(s.condition("s", "Degraded"), "/", "the condition is gone");
}

#[tokio::test(start_paused = true)]
async fn a_nudge_that_is_refused_is_reported_in_a_settled_pool_and_is_repeated() {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 1);
    s.pod("w-0");
    s.server.inject(Rule::on(Verb::Patch, "pods").always(), Fault::Refuse(403, POLICY.into()));
    s.swarm("s", json!({"pool": {"statefulSet": {"name": "w"}}, "jobs": [{"name": "a"}]}));
    s.until("it is reported", |s| s.condition("s", "Degraded") == "True/WriteRefused").await;
    s.until("the pool is settled all the same", |s| s.is_settled("s")).await;
    s.server.heal();
    s.until("it is allowed", |s| s.condition("s", "Degraded") == "/").await;
    let pod = s.server.get("pods", NAMESPACE, "w-0").unwrap();
    assert!(pod["metadata"]["annotations"]["swarm.k8slab.info/nudge"].is_string(), "{pod}");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_may_not_be_read_is_reported_and_the_last_list_stays() {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 1);
    s.pod("w-0");
    let jobs = |text: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"jobs": text},
            "metadata": {"name": "list", "namespace": NAMESPACE},
        })
    };
    s.put("a list", jobs("- a\n"));
    let sources = json!([{"configMap": {"name": "list", "key": "jobs"}}]);
    s.swarm("s", json!({"pool": {"statefulSet": {"name": "w"}}, "jobSources": sources}));
    s.until("it is settled", |s| s.is_settled("s")).await;
    let rule = Rule::on(Verb::Get, "configmaps").named("list");
    s.server.inject(rule.always(), Fault::Refuse(403, "you may not".into()));
    s.put("a longer list", jobs("- a\n- b\n"));
    s.until("it is reported", |s| s.condition("s", "Ready") == "False/SourceForbidden").await;
    assert_eq!(message(&s, "s", "Ready"), "ConfigMap `list` was refused: you may not");
    assert_eq!(s.status("s")["assigned"], 1, "the last good list stays");
    s.server.heal();
    s.until("the new list is used", |s| s.is_settled("s") && s.status("s")["jobs"] == 2).await;
}

#[tokio::test(start_paused = true)]
async fn sources_that_hold_more_than_is_read_are_reported_and_the_last_list_stays() {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 1);
    s.pod("w-0");
    let asks = |s: &Scenario| {
        let exchanges = s.server.take_exchanges();
        exchanges.iter().any(|it| it.resource == "configmaps" && it.is_partial)
    };
    s.pass(Duration::from_mins(1)).await;
    assert!(!asks(&s), "ConfigMaps are nobody's business before a Swarm has sources");
    let list = |name: &str, text: String| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"jobs": text, "other": "x".repeat(99)},
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"lists": "all"}},
        })
    };
    s.put("a list", list("list", "- a\n".into()));
    let sources = json!([{"selector": {"matchLabels": {"lists": "all"}}, "key": "jobs"}]);
    s.swarm("s", json!({"pool": {"statefulSet": {"name": "w"}}, "jobSources": sources}));
    s.until("it is settled", |s| s.is_settled("s")).await;
    assert!(asks(&s));
    let is_refused = |s: &Scenario, why: &str| {
        s.condition("s", "Ready") == "False/SourcesTooLarge"
            && message(s, "s", "Ready").contains(why)
    };
    // One comment of 9 MB replaces nine ConfigMaps. A real API server would refuse it.
    s.put("a long list", list("long", format!("# {}", "x".repeat(9 << 20))));
    let why = "with ConfigMap `long` the sources have 9437190 bytes, and at most 8388608 are read";
    s.until("the bytes are reported", |s| is_refused(s, why)).await;
    assert_eq!((&s.status("s")["assigned"], &s.status("s")["jobs"]), (&json!(1), &json!(1)));
    s.put("many jobs", list("long", "- {}\n".repeat(200_001)));
    s.until("the jobs are reported", |s| is_refused(s, "lists, maps and values")).await;
    s.put("a short list", list("long", "- b\n".into()));
    s.until("it is used", |s| s.is_settled("s") && s.status("s")["jobs"] == 2).await;
    for n in 0..255 {
        s.put("another list", list(&format!("list-{n}"), "[]".into()));
    }
    s.until("their number is reported", |s| is_refused(s, "257 ConfigMaps")).await;
    assert_eq!(s.status("s")["jobs"], 2, "the last good list stays");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_ended_is_claimed_by_nobody() {
    let mut s = Scenario::start().await;
    s.put("pod a", loose_pod("a", "Running"));
    s.swarm("s", by_labels(&["x"]));
    s.until("it is settled", |s| s.is_settled("s")).await;
    s.swarm("t", by_labels(&["x"]));
    s.until("the other reports it", |s| s.condition("t", "Ready") == "False/PodsClaimed").await;
    s.server.edit("pods", NAMESPACE, "a", |pod| pod["status"]["phase"] = json!("Succeeded"));
    s.pass(Duration::from_mins(5)).await;
    let _ = s.server.take_exchanges();
    s.pass(Duration::from_mins(5)).await;
    let exchanges = s.server.take_exchanges();
    let writes: Vec<_> = exchanges
        .iter()
        .filter(|it| it.verb.writes())
        .map(swarm_apiserver::Exchange::what)
        .collect();
    assert_eq!(writes, Vec::<String>::new(), "nobody claims it again and again");
}
