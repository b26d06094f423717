//! The health that the operator reports.

use std::time::Duration;

use serde_json::json;
use swarm_apiserver::Verb;
use swarm_apiserver::fault::{Fault, Rule};

use super::scenario::Scenario;

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
