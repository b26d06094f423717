//! A list of addresses for programs that run all of them.

use serde_json::{Value, json};

use super::scenario::{SWARMS, Scenario};

fn jobs(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"name": name})).collect()
}

#[tokio::test(start_paused = true)]
async fn addresses_are_published_as_lines_and_what_is_none_is_refused() {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 2);
    s.pod("w-0");
    s.pod("w-1");
    s.swarm(
        "s",
        json!({
            "pool": {"statefulSet": {"name": "w"}}, "replication": "All",
            "view": {"key": "hostports", "format": "hostports"},
            "jobs": jobs(&["b.example:80", "[::1]:8080"]),
        }),
    );
    let list = |s: &Scenario| s.at("configmaps", "s-config", "/data/hostports");
    s.until("it is settled", |s| s.is_settled("s")).await;
    assert_eq!(list(&s), "::1,8080\nb.example,80\n");

    let edit = |s: &Scenario, names: &[&str]| {
        let spec = s.at(SWARMS, "s", "/spec");
        let mut spec = spec;
        spec["jobs"] = jobs(names);
        spec
    };
    let spec = edit(&s, &["b.example:80", "c.example:443"]);
    s.swarm("s", spec);
    s.until("the list is another", |s| list(s) == "b.example,80\nc.example,443\n").await;

    let spec = edit(&s, &["b.example:80", "stream:cars:new"]);
    s.swarm("s", spec);
    s.until("it is refused", |s| s.condition("s", "Ready") == "False/ViewNotAddresses").await;
    assert_eq!(list(&s), "b.example,80\nc.example,443\n", "the last good list stays");
}
