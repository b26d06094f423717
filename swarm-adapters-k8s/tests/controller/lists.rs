//! Lists of jobs in ConfigMaps that lose their text, or most of their jobs.

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

#[tokio::test(start_paused = true)]
async fn a_text_without_a_value_is_no_list_and_the_last_list_stays() {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 1);
    s.pod("w-0");
    s.put("ConfigMap list has 30 jobs", list(&cameras(30)));
    let source = json!({"configMap": {"name": "list", "key": "jobs"}});
    s.swarm("s", json!({"pool": {"statefulSet": {"name": "w"}}, "jobSources": [source]}));
    s.until("it is settled", |s| s.is_settled("s")).await;
    let before = s.view("s");
    for text in ["", "# none\n", "---\n"] {
        s.put("ConfigMap list has none", list(text));
        s.until("it is refused", |s| s.condition("s", "Ready") == "False/SourceInvalid").await;
        let conditions = s.at(SWARMS, "s", "/status/conditions").to_string();
        assert!(conditions.contains("no list; write `[]` for none"), "{conditions}");
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
async fn an_edit_that_removes_most_jobs_is_announced_with_the_count() {
    let jobs = |count: u32| (0..count).map(|n| json!({"name": format!("j{n}")})).collect::<Value>();
    let spec = |count| json!({"pool": {"statefulSet": {"name": "w"}}, "jobs": jobs(count)});
    let mut s = Scenario::start().await;
    s.stateful_set("w", 1);
    s.pod("w-0");
    s.swarm("s", spec(40));
    s.until("it is settled", |s| s.is_settled("s")).await;
    s.swarm("s", spec(30));
    s.until("it is settled", |s| s.is_settled("s")).await;
    let written = s.transcript();
    assert!(!written.contains("JobsRemoved"), "{written}");
    s.swarm("s", spec(14));
    s.until("it is settled", |s| s.is_settled("s")).await;
    let written = s.transcript();
    let event = "Event Warning JobsRemoved: 16 of 30 jobs are removed by the last edit";
    assert_eq!(written.matches(event).count(), 1, "{written}");
}
