//! Recovery from requests that the API server refuses or loses, and from events that it hides.

use std::time::Duration;

use serde_json::json;
use swarm_apiserver::Verb;
use swarm_apiserver::fault::{Fault, Rule};

use super::scenario::{LEDGERS, Scenario, on_w};

/// A pool of one worker that is settled, with nothing in its transcript.
async fn settled(jobs: &[&str]) -> Scenario {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 1);
    s.pod("w-0");
    s.swarm("s", on_w(jobs));
    s.until("it is settled", |s| s.is_settled("s")).await;
    // The nudges follow the publication within this time.
    s.pass(Duration::from_secs(10)).await;
    let _ = s.transcript();
    s
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_was_written_meanwhile_is_read_and_decided_upon_again() {
    let mut s = settled(&["a"]).await;
    s.server.inject(Rule::on(Verb::Update, "swarmledgers"), Fault::Answer(409));
    s.swarm("s", on_w(&["a", "b"]));
    s.until("it is settled", |s| s.is_settled("s")).await;
    insta::assert_snapshot!(s.transcript());
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_was_written_without_an_answer_is_found_and_not_written_twice() {
    let mut s = settled(&["a"]).await;
    s.server.inject(Rule::on(Verb::Update, "swarmledgers"), Fault::LoseReply);
    s.swarm("s", on_w(&["a", "b"]));
    s.until("it is settled", |s| s.is_settled("s")).await;
    assert_eq!(s.at(LEDGERS, "statefulset.w", "/spec/revision"), 2);
    insta::assert_snapshot!(s.transcript());
}

#[tokio::test(start_paused = true)]
async fn a_view_that_was_not_written_is_written_by_the_next_operator() {
    let mut s = settled(&["a"]).await;
    s.server.inject(Rule::on(Verb::Apply, "configmaps").always(), Fault::Hang);
    s.swarm("s", on_w(&["a", "b"]));
    s.until("the ledger has it", |s| s.at(LEDGERS, "statefulset.w", "/spec/revision") == 2).await;
    s.note("the operator is killed before the view is written");
    s.kill_operator().await;
    s.server.heal();
    s.start_operator().await;
    s.until("it is settled", |s| s.is_settled("s")).await;
    insta::assert_snapshot!(s.transcript());
}

#[tokio::test(start_paused = true)]
async fn a_source_that_may_not_be_read_takes_nothing_from_the_workers() {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 1);
    s.pod("w-0");
    let list = |jobs: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "list", "namespace": "n"}, "data": {"jobs": jobs},
        })
    };
    s.put("ConfigMap list has a", list("[a]"));
    let source = json!({"configMap": {"name": "list", "key": "jobs"}});
    let pool = json!({"statefulSet": {"name": "w"}});
    s.swarm("s", json!({"pool": pool, "jobSources": [source]}));
    s.until("it is settled", |s| s.is_settled("s")).await;
    let before = s.view("s");
    let rule = Rule::on(Verb::Get, "configmaps").named("list").always();
    s.server.inject(rule, Fault::Answer(403));
    s.put("ConfigMap list has a and b, and may not be read", list("[a, b]"));
    s.pass(Duration::from_mins(2)).await;
    assert_eq!(s.view("s"), before);
    s.note("it may be read again");
    s.server.heal();
    s.until("b is given, too", |s| s.view("s").contains(r#"["a", "b"]"#)).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_stalled_watch_missed_is_caught_up_with() {
    let mut s = settled(&["a", "b"]).await;
    s.note("the watch of pods stalls");
    s.server.stall_watches("pods");
    s.stateful_set("w", 2);
    s.pod("w-1");
    s.pass(Duration::from_mins(1)).await;
    s.note("it goes on");
    s.server.resume_watches("pods");
    s.until("each has its share", |s| s.view("s").contains("w-1")).await;
    s.until("it is settled", |s| s.is_settled("s")).await;
    insta::assert_snapshot!(s.transcript());
}

#[tokio::test(start_paused = true)]
async fn watches_that_have_to_list_again_cause_no_write() {
    let mut s = settled(&["a"]).await;
    s.note("every watch is answered 410");
    for resource in
        ["swarms", "pods", "statefulsets", "configmaps", "swarmledgers", "leases", "nodes"]
    {
        s.server.expire_watches(resource);
    }
    s.pass(Duration::from_mins(1)).await;
    insta::assert_snapshot!(s.transcript(), @r"
    every watch is answered 410
    60s pass
    ");
}
