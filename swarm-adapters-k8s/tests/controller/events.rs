//! Events: each keeps the text of its time, their number is bounded, and a condition that lasts
//! only a moment causes none.

use std::time::Duration;

use serde_json::json;

use super::scenario::{NAMESPACE, Scenario, on_w};

/// The notes of all Events with this reason.
fn notes(s: &Scenario, reason: &str) -> Vec<String> {
    let events = s.server.all("events.events.k8s.io");
    let found = events.iter().filter(|it| it["reason"] == reason);
    let mut notes: Vec<_> =
        found.map(|it| it["note"].as_str().unwrap_or_default().to_owned()).collect();
    notes.sort();
    notes
}

#[tokio::test(start_paused = true)]
async fn another_mistake_under_the_same_reason_is_another_event() {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 1);
    s.pod("w-0");
    let invalid = |milliseconds: u32| {
        let mut spec = on_w(&["a"]);
        spec["handover"] = json!({"lease": format!("{milliseconds}ms")});
        spec
    };
    for milliseconds in [1, 2, 1] {
        s.swarm("s", invalid(milliseconds));
        let text = format!("{milliseconds}ms");
        s.until("it is refused", |s| {
            let status = s.status("s");
            status["conditions"][0]["message"].as_str().is_some_and(|it| it.contains(&text))
        })
        .await;
    }
    s.pass(Duration::from_secs(1)).await;
    let found = notes(&s, "InvalidSpec");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("1ms") && found[1].contains("2ms"), "{found:?}");
    let events = s.server.all("events.events.k8s.io");
    let repeated = events.iter().find(|it| it["series"]["count"] == 2).unwrap();
    assert!(repeated["note"].as_str().unwrap().contains("1ms"), "{repeated}");
}

#[tokio::test(start_paused = true)]
async fn events_about_one_swarm_are_bounded_and_the_condition_has_the_newest_text() {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 1);
    s.pod("w-0");
    for milliseconds in 1..=40 {
        let mut spec = on_w(&["a"]);
        spec["handover"] = json!({"lease": format!("{milliseconds}ms")});
        s.swarm("s", spec);
        s.pass(Duration::from_secs(1)).await;
    }
    assert_eq!(notes(&s, "InvalidSpec").len(), 10);
    let status = s.status("s");
    assert!(status["conditions"][0]["message"].as_str().unwrap().contains("40ms"), "{status}");
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_comes_right_after_its_swarm_is_no_warning_and_one_that_stays_away_is() {
    let mut s = Scenario::start().await;
    s.swarm("s", on_w(&["a"]));
    s.until("the condition has it", |s| s.condition("s", "Ready") == "False/PoolNotFound").await;
    s.pass(Duration::from_secs(5)).await;
    s.stateful_set("w", 1);
    s.pod("w-0");
    s.until("it is settled", |s| s.is_settled("s")).await;
    s.pass(Duration::from_mins(2)).await;
    assert_eq!(notes(&s, "PoolNotFound"), Vec::<String>::new());

    s.server.remove("statefulsets.apps", NAMESPACE, "w");
    s.until("the condition has it", |s| s.condition("s", "Ready") == "False/PoolNotFound").await;
    s.pass(Duration::from_secs(9)).await;
    assert_eq!(notes(&s, "PoolNotFound").len(), 0);
    s.pass(Duration::from_secs(2)).await;
    assert_eq!(notes(&s, "PoolNotFound").len(), 1);
    s.pass(Duration::from_mins(5)).await;
    assert_eq!(notes(&s, "PoolNotFound").len(), 1, "once");
}
