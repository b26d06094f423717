//! Lists of jobs in ConfigMaps that lose their text, or most of their jobs.

use std::time::Duration;

use serde_json::{Value, json};

use super::scenario::{SWARMS, Scenario};

fn list(jobs: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "list", "namespace": "n"}, "data": {"jobs": jobs},
    })
}

fn cameras(count: u32) -> String {
    let lines: Vec<_> = (0..count).map(|n| format!("- camera-{n}\n")).collect();
    lines.concat()
}

/// A settled pool of one worker, whose jobs are the 30 cameras of a ConfigMap.
async fn thirty_cameras() -> Scenario {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 1);
    s.pod("w-0");
    s.put("ConfigMap list has 30 jobs", list(&cameras(30)));
    let source = json!({"configMap": {"name": "list", "key": "jobs"}});
    s.swarm("s", json!({"pool": {"statefulSet": {"name": "w"}}, "jobSources": [source]}));
    s.until("it is settled", |s| s.is_settled("s")).await;
    s
}

#[tokio::test(start_paused = true)]
async fn a_text_without_a_value_is_no_list_and_the_last_list_stays() {
    let mut s = thirty_cameras().await;
    let before = s.view("s");
    for text in ["", "# none\n", "---\n"] {
        s.put("ConfigMap list has none", list(text));
        s.until("it is refused", |s| s.condition("s", "Ready") == "False/SourceInvalid").await;
        let conditions = s.at(SWARMS, "s", "/status/conditions").to_string();
        assert!(conditions.contains("write `[]` for an empty list"), "{conditions}");
        assert_eq!(s.view("s"), before);
        s.put("ConfigMap list has 30 jobs", list(&cameras(30)));
        s.until("it is settled", |s| s.is_settled("s")).await;
    }
    let written = s.transcript();
    assert!(!written.contains("JobsRemoved"), "{written}");
    s.put("ConfigMap list has an empty list", list("[]"));
    s.until("none is left", |s| s.is_settled("s") && !s.view("s").contains("camera")).await;
    let written = s.transcript();
    assert!(written.contains("Event Warning JobsRemoved: 30 of 30 jobs are removed"), "{written}");
}

#[tokio::test(start_paused = true)]
async fn an_edit_that_removes_many_jobs_is_announced_and_shown_for_an_hour() {
    let jobs = |count: u32| (0..count).map(|n| json!({"name": format!("j{n}")})).collect::<Value>();
    let spec = |count| json!({"pool": {"statefulSet": {"name": "w"}}, "jobs": jobs(count)});
    let mut s = Scenario::start().await;
    s.stateful_set("w", 1);
    s.pod("w-0");
    s.swarm("s", spec(40));
    s.until("it is settled", |s| s.is_settled("s")).await;
    s.swarm("s", spec(33));
    s.until("it is settled", |s| s.is_settled("s")).await;
    let written = s.transcript();
    assert!(!written.contains("JobsRemoved"), "{written}");
    s.swarm("s", spec(14));
    s.until("it is settled", |s| s.is_settled("s")).await;
    let written = s.transcript();
    let event = "Event Warning JobsRemoved: 19 of 33 jobs are removed by the last edit";
    assert_eq!(written.matches(event).count(), 1, "{written}");
    assert!(written.contains("; `kubectl swarm diff "), "{written}");

    let shown = |s: &Scenario| s.condition("s", "JobsRemoved");
    assert_eq!(shown(&s), "True/JobsRemoved");
    s.pass(Duration::from_mins(56)).await;
    assert_eq!((shown(&s), s.is_settled("s")), ("True/JobsRemoved".to_owned(), true));
    s.until("its hour is over", |s| shown(s) == "/").await;
}

/// One of the lists that a selector finds.
fn peers(name: &str, text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"jobs": text},
        "metadata": {"name": name, "namespace": "n", "labels": {"list": "peers"}},
    })
}

fn of_peers(source: &Value) -> Value {
    json!({"pool": {"statefulSet": {"name": "w"}}, "jobSources": [source]})
}

fn selector() -> Value {
    json!({"selector": {"matchLabels": {"list": "peers"}}, "key": "jobs"})
}

/// A pool that runs the jobs of two selected lists, `peers-a` and `peers-b`.
async fn two_peers() -> Scenario {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 1);
    s.pod("w-0");
    s.put("peers-a has a", peers("peers-a", "[a]"));
    s.put("peers-b has b", peers("peers-b", "[b]"));
    s.swarm("s", of_peers(&selector()));
    s.until("it is settled", |s| s.is_settled("s")).await;
    s
}

async fn is_missing(s: &mut Scenario, words: &str) {
    let says = |s: &Scenario| s.at(SWARMS, "s", "/status/conditions").to_string().contains(words);
    s.until(words, |s| s.condition("s", "Ready") == "False/SourceMissing" && says(s)).await;
}

#[tokio::test(start_paused = true)]
async fn a_selected_list_that_is_deleted_stops_nothing_also_after_a_restart() {
    let mut s = two_peers().await;
    let before = s.view("s");
    s.server.remove("configmaps", "n", "peers-b");
    let words = "ConfigMap `peers-b`, which held jobs with the labels `list=peers`, was removed";
    is_missing(&mut s, words).await;
    s.stop_operator().await;
    s.start_operator().await;
    // A restarted operator has acted on everything within this time.
    s.pass(std::time::Duration::from_mins(2)).await;
    is_missing(&mut s, words).await;
    assert_eq!(s.view("s"), before);
    s.server.remove("configmaps", "n", "peers-a");
    is_missing(&mut s, "`peers-a`, `peers-b`").await;
    assert_eq!(s.view("s"), before);
    s.put("peers-b is made again", peers("peers-b", "[b2]"));
    is_missing(&mut s, "`peers-a`").await;
    s.put("peers-a is made again", peers("peers-a", "[a]"));
    s.until("it is settled", |s| s.is_settled("s") && s.view("s").contains("b2")).await;
}

#[tokio::test(start_paused = true)]
async fn a_selected_list_that_is_deleted_while_no_operator_runs_stops_nothing() {
    let mut s = two_peers().await;
    let before = s.view("s");
    s.kill_operator().await;
    s.server.remove("configmaps", "n", "peers-a");
    s.start_operator().await;
    is_missing(&mut s, "ConfigMap `peers-a`").await;
    assert_eq!(s.view("s"), before);
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_or_an_optional_source_or_an_edit_of_the_labels_is_an_order() {
    let runs = |s: &Scenario, jobs: &[&str]| {
        let view = s.view("s");
        let has = |job: &str| view.contains(&format!("\"{job}\""));
        s.is_settled("s") && ["a", "b"].iter().all(|job| has(job) == jobs.contains(job))
    };
    let mut s = two_peers().await;
    s.put("peers-b has none", peers("peers-b", "[]"));
    s.until("a is left", |s| runs(s, &["a"])).await;
    s.server.remove("configmaps", "n", "peers-b");
    s.pass(std::time::Duration::from_mins(1)).await;
    assert!(runs(&s, &["a"]), "it had no jobs: {}", s.condition("s", "Ready"));

    s.put("peers-b has b", peers("peers-b", "[b]"));
    s.until("both run", |s| runs(s, &["a", "b"])).await;
    s.server.edit("configmaps", "n", "peers-b", |map| map["metadata"]["labels"] = json!({}));
    s.until("a is left", |s| runs(s, &["a"])).await;

    s.put("peers-b has b", peers("peers-b", "[b]"));
    s.until("both run", |s| runs(s, &["a", "b"])).await;
    s.server.remove("configmaps", "n", "peers-b");
    is_missing(&mut s, "`optional: true`").await;
    let mut optional = selector();
    optional["optional"] = json!(true);
    s.swarm("s", of_peers(&optional));
    s.until("a is left", |s| runs(s, &["a"])).await;
    s.server.remove("configmaps", "n", "peers-a");
    s.until("none is left", |s| runs(s, &[])).await;
    s.swarm("s", of_peers(&selector()));
    is_missing(&mut s, "no ConfigMap in this namespace has the labels `list=peers`").await;
}

#[tokio::test(start_paused = true)]
async fn a_later_version_of_a_list_replaces_one_with_another_generated_name() {
    let mut s = two_peers().await;
    s.put("peers-2g6f5fm9c7 has c", peers("peers-2g6f5fm9c7", "[c]"));
    s.until("c runs", |s| s.is_settled("s") && s.view("s").contains("\"c\"")).await;
    s.put("peers-bh4d7mtk29 has d", peers("peers-bh4d7mtk29", "[d]"));
    s.until("d runs", |s| s.is_settled("s") && s.view("s").contains("\"d\"")).await;
    s.server.remove("configmaps", "n", "peers-2g6f5fm9c7");
    s.until("c is gone", |s| s.is_settled("s") && !s.view("s").contains("\"c\"")).await;
    // The same in the other order.
    let before = s.view("s");
    s.server.remove("configmaps", "n", "peers-bh4d7mtk29");
    is_missing(&mut s, "ConfigMap `peers-bh4d7mtk29`").await;
    assert_eq!(s.view("s"), before);
    s.put("peers-2g6f5fm9c7 has c", peers("peers-2g6f5fm9c7", "[c]"));
    s.until("c runs", |s| s.is_settled("s") && s.view("s").contains("\"c\"")).await;
}

#[tokio::test(start_paused = true)]
async fn the_record_of_the_lists_is_written_once_and_nothing_at_rest() {
    let mut s = two_peers().await;
    let record = |s: &Scenario| {
        s.at(super::scenario::LEDGERS, "statefulset.w", "/metadata/annotations").to_string()
    };
    let expected = r#"{"swarm.k8slab.info/sources":"{\"list=peers\":[\"peers-a\",\"peers-b\"]}"}"#;
    assert_eq!(record(&s), expected);
    // The jobs are the same, and come from another ConfigMap.
    s.put("peers-b has none", peers("peers-b", "[]"));
    s.put("peers-c has b", peers("peers-c", "[b]"));
    let expected = expected.replace("peers-b", "peers-c");
    s.until("it is recorded", |s| record(s) == expected).await;
    let _ = s.transcript();
    s.pass(std::time::Duration::from_mins(30)).await;
    let written = s.transcript();
    assert!(!written.contains("statefulset.w"), "{written}");
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_happened_while_no_operator_ran_is_announced_once() {
    let mut s = thirty_cameras().await;
    s.stop_operator().await;
    s.put("ConfigMap list has 3 jobs", list(&cameras(3)));
    for _ in 0..2 {
        s.start_operator().await;
        s.until("three are left", |s| s.is_settled("s") && !s.view("s").contains("camera-3")).await;
        s.pass(std::time::Duration::from_mins(1)).await;
        s.stop_operator().await;
    }
    let written = s.transcript();
    let event = "Event Warning JobsRemoved: 27 of 30 jobs are removed";
    assert_eq!(written.matches(event).count(), 1, "{written}");
}
