//! The health that the operator reports.

use std::time::Duration;

use serde_json::json;
use swarm_apiserver::Verb;
use swarm_apiserver::fault::{Fault, Rule};

use super::scenario::{SWARMS, Scenario};

#[tokio::test(start_paused = true)]
async fn an_operator_is_healthy_while_the_api_server_answers_nothing() {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 1);
    s.pod("w-0");
    s.swarm("s", json!({"pool": {"statefulSet": {"name": "w"}}, "jobs": [{"name": "a"}]}));
    s.until("it is settled", |s| s.is_settled("s")).await;
    let resources =
        ["swarms", "statefulsets", "pods", "configmaps", "swarmledgers", "leases", "events"];
    for resource in resources {
        let (get, list, watch) = (Verb::Get, Verb::List, Verb::Watch);
        for verb in [get, list, watch, Verb::Create, Verb::Update, Verb::Patch, Verb::Apply] {
            s.server.inject(Rule::on(verb, resource).always(), Fault::Hang);
        }
        s.server.drop_watches(resource);
    }
    let more = json!([{"name": "a"}, {"name": "b"}]);
    s.swarm("s", json!({"pool": {"statefulSet": {"name": "w"}}, "jobs": more}));
    for _ in 0..60 {
        s.pass(Duration::from_mins(1)).await;
        assert_eq!(s.health.check(), Ok(()));
    }
    s.stop_operator().await;
    assert_eq!(s.health.check(), Ok(()), "it was asked to end");
}

/// At rest the age of a status shows that an operator works on it, and nothing else is written.
#[tokio::test(start_paused = true)]
async fn a_status_at_rest_is_written_every_ten_minutes_while_an_operator_lives() {
    let mut s = Scenario::settled().await;
    let first = s.at(SWARMS, "s", "/status/asOf");
    assert!(first.is_string(), "{first}");
    // The last nudges.
    s.pass(Duration::from_mins(1)).await;
    s.transcript();
    s.pass(Duration::from_hours(1)).await;
    let written = s.transcript();
    let all = written.lines().filter(|line| line.starts_with("  ") && !line.starts_with("  ("));
    assert_eq!(all.collect::<Vec<_>>(), ["  apply swarms/s/status"; 6], "{written}");
    s.kill_operator().await;
    s.transcript();
    s.pass(Duration::from_hours(1)).await;
    assert_eq!(s.transcript().matches("apply").count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_taken_away_is_named_until_it_is_given_back() {
    let mut s = Scenario::settled().await;
    assert!(s.health.refused().lines().is_empty());
    assert_eq!(s.metric("swarm_refused_watches"), Some(0));
    for verb in [Verb::List, Verb::Watch] {
        let rule = Rule::on(verb, "statefulsets").always();
        s.server.inject(rule, Fault::Refuse(403, "you may not".into()));
    }
    s.server.drop_watches("statefulsets");
    s.pass(Duration::from_mins(1)).await;
    let lines = s.health.refused().needs().unwrap();
    assert!(lines.starts_with("may not list statefulsets: add the verb `list`"), "{lines:?}");
    assert_eq!(s.health.check(), Ok(()), "a restart would not help");
    assert_eq!(s.metric("swarm_refused_watches"), Some(1));
    s.server.heal();
    s.pass(Duration::from_mins(2)).await;
    assert!(s.health.refused().lines().is_empty(), "it was given back");
    assert_eq!(s.metric("swarm_refused_watches"), Some(0));
}
