//! Takeover of a pool whose jobs another program assigned: it is taken over as it runs, or stays.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use swarm_client::api::Swarm;

use super::scenario::{NAMESPACE, SWARMS, Scenario, on_w};

/// A view in which the Go operator divided five jobs among two workers.
const UNEVEN: &str = "workloads:\n  w-0:\n    jobs: [a, b, c]\n    version: 0\n  \
                      w-1:\n    jobs: [c, d]\n    version: 0\nversion: 3\n";

fn config_map(text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"config.yml": text},
        "metadata": {"name": "s-config", "namespace": NAMESPACE},
    })
}

fn adopting(jobs: &[&str]) -> Value {
    let mut spec = on_w(jobs);
    spec["view"] = json!({"adopt": true});
    spec
}

fn former_operator(replicas: i32) -> Value {
    let container = json!({"name": "swarm-controller", "image": "old", "args": ["internal"]});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "swarm-controller", "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "old"}},
            "template": {
                "metadata": {"labels": {"app": "old"}}, "spec": {"containers": [container]},
            },
        },
    })
}

/// Writes the view as another program does, under this field manager.
async fn write_view(s: &mut Scenario, manager: &str, text: &str) {
    s.note(&format!("{manager} writes the view"));
    let api = Api::<ConfigMap>::namespaced(s.server.client(NAMESPACE), NAMESPACE);
    let patch = Patch::Merge(json!({"data": {"config.yml": text}}));
    let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
    api.patch("s-config", &params, &patch).await.unwrap();
}

async fn pool_of_two(view: &str) -> Scenario {
    let mut s = Scenario::start().await;
    s.put("the previous view", config_map(view));
    s.stateful_set("w", 2);
    s.pod("w-0");
    s.pod("w-1");
    s
}

fn message(s: &Scenario) -> String {
    let status = s.status("s");
    let all = status["conditions"].as_array().into_iter().flatten();
    let found = all.into_iter().find(|it| it["type"] == "Ready");
    found.map_or_else(String::new, |it| it["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test(start_paused = true)]
async fn what_the_workers_run_is_taken_over_and_nothing_else_moves() {
    let mut s = pool_of_two(UNEVEN).await;
    s.swarm("s", adopting(&["a", "b", "c", "d", "e"]));
    s.until("it is settled", |s| s.is_settled("s")).await;
    insta::assert_snapshot!(s.view("s"), @r#"
    workloads:
      w-0:
        jobs: ["a", "b", "c"]
        version: 0
      w-1:
        jobs: ["d", "e"]
        version: 5
    version: 5
    "#);
    // After the takeover the ledger decides, and the field `adopt` has no effect.
    s.server.edit(SWARMS, NAMESPACE, "s", |it| {
        it["spec"]["jobs"] = json!([{"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "d"}]);
    });
    s.until("the list is shorter", |s| s.is_settled("s") && s.status("s")["assigned"] == 4).await;
    assert!(s.view("s").contains("version: 6"), "{}", s.view("s"));
}

#[tokio::test(start_paused = true)]
async fn without_a_request_to_adopt_all_jobs_are_assigned_again() {
    let mut s = pool_of_two("workloads:\n  w-0:\n    jobs: [a, b, c, d]\nversion: 3\n").await;
    s.swarm("s", on_w(&["a", "b", "c", "d"]));
    s.until("it is settled", |s| s.is_settled("s")).await;
    assert!(s.view("s").contains("version: 4"), "{}", s.view("s"));
}

#[tokio::test(start_paused = true)]
async fn an_empty_key_and_an_empty_view_are_filled() {
    for text in ["", "workloads:\n"] {
        let mut s = pool_of_two(text).await;
        s.swarm("s", adopting(&["a", "b"]));
        s.until("it is settled", |s| s.is_settled("s")).await;
        assert!(s.view("s").contains("w-1:"), "{}", s.view("s"));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_view_is_never_overwritten() {
    for spec in [adopting(&["a"]), on_w(&["a"])] {
        let mut s = pool_of_two("listen: 8080\n").await;
        s.swarm("s", spec);
        s.until("it is refused", |s| s.condition("s", "Ready") == "False/ViewOccupied").await;
        s.pass(Duration::from_mins(3)).await;
        assert_eq!(s.view("s"), "listen: 8080\n");
        assert!(message(&s).starts_with("key `config.yml` of ConfigMap `s-config` holds"));
        s.put("it is removed", config_map(""));
        s.until("it is settled", |s| s.is_settled("s")).await;
    }
}

/// A user needs no right over ConfigMaps for a Swarm of sessions, so the operator must not use one.
#[tokio::test(start_paused = true)]
async fn a_swarm_of_sessions_neither_writes_nor_quotes_a_config_map_that_it_did_not_make() {
    for text in [UNEVEN, "version: hunter2\n", ""] {
        let mut s = pool_of_two(text).await;
        let _workers = ["w-0", "w-1"].map(|pod| s.worker(pod));
        let before = s.server.get("configmaps", NAMESPACE, "s-config").unwrap();
        let mut spec = on_w(&["a", "b"]);
        spec["worker"] = json!({"protocol": "Session"});
        s.swarm("s", spec);
        s.until("it is refused", |s| s.condition("s", "Ready") == "False/ViewOccupied").await;
        s.pass(Duration::from_mins(3)).await;
        assert_eq!(s.server.get("configmaps", NAMESPACE, "s-config").unwrap(), before);
        assert!(message(&s).starts_with("ConfigMap `s-config` exists, and a Swarm of sessions"));
        assert!(!s.status("s").to_string().contains("hunter2"));
        s.server.remove("configmaps", NAMESPACE, "s-config");
        s.until("it is settled", |s| s.is_settled("s")).await;
    }
}

/// A user who may write Swarms but no ConfigMaps cannot make the operator overwrite one.
#[tokio::test(start_paused = true)]
async fn another_key_of_a_claimed_config_map_is_not_overwritten() {
    let mut s = pool_of_two("").await;
    s.swarm("s", on_w(&["a"]));
    s.until("it is settled", |s| s.is_settled("s")).await;
    s.server.edit("configmaps", NAMESPACE, "s-config", |it| {
        it["data"]["nginx.conf"] = json!("listen 8080;");
    });
    s.server.edit(SWARMS, NAMESPACE, "s", |it| {
        it["spec"]["view"] = json!({"key": "nginx.conf"});
    });
    s.until("it is refused", |s| s.condition("s", "Ready") == "False/ViewOccupied").await;
    s.pass(Duration::from_mins(3)).await;
    let map = s.server.get("configmaps", NAMESPACE, "s-config").unwrap();
    assert_eq!(map["data"]["nginx.conf"], "listen 8080;");
    assert!(s.view("s").contains("w-0"), "{}", s.view("s"));
}

/// The label of views and the name of a deleted Swarm do not make a foreign text a view.
#[tokio::test(start_paused = true)]
async fn a_claim_of_a_swarm_that_is_gone_covers_nothing_but_views() {
    let mut s = pool_of_two("listen: 8080\n").await;
    s.server.edit("configmaps", NAMESPACE, "s-config", |it| {
        it["metadata"]["labels"] = json!({"swarm.k8slab.info/view": "true"});
        it["metadata"]["annotations"] = json!({"swarm.k8slab.info/owner": "gone"});
    });
    s.swarm("s", on_w(&["a"]));
    s.until("it is refused", |s| s.condition("s", "Ready") == "False/ViewOccupied").await;
    assert_eq!(s.view("s"), "listen: 8080\n");
}

#[tokio::test(start_paused = true)]
async fn the_certificates_of_the_cluster_are_no_place_for_a_view() {
    let mut s = pool_of_two("").await;
    let mut spec = on_w(&["a"]);
    spec["view"] = json!({"configMapName": "kube-root-ca.crt"});
    s.swarm("s", spec);
    s.until("it is refused", |s| s.condition("s", "Ready") == "False/ViewOccupied").await;
    assert!(message(&s).starts_with("ConfigMap `kube-root-ca.crt` belongs to the cluster"));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_taken_over_while_the_previous_operator_runs() {
    let mut s = pool_of_two(UNEVEN).await;
    s.put("the previous operator", former_operator(1));
    s.swarm("s", adopting(&["a", "b", "c", "d", "e"]));
    s.until("it is refused", |s| s.condition("s", "Ready") == "False/FormerOperatorRuns").await;
    assert_eq!(s.view("s"), UNEVEN);
    assert!(message(&s).starts_with("Deployment `swarm-controller` runs the previous operator"));
    s.put("it is scaled to 0", former_operator(0));
    s.until("it is settled", |s| s.is_settled("s")).await;
    assert!(s.view("s").contains(r#"jobs: ["a", "b", "c"]"#), "{}", s.view("s"));
}

#[tokio::test(start_paused = true)]
async fn until_the_pool_is_complete_the_previous_view_stays() {
    let mut s = Scenario::start().await;
    s.put("the previous view", config_map(&UNEVEN.replace("version: 3\n", "")));
    s.stateful_set("w", 2);
    s.pod("w-0");
    s.swarm("s", adopting(&["a", "b", "c", "d"]));
    s.until("it waits", |s| s.condition("s", "Ready").ends_with("PoolIncomplete")).await;
    assert!(!s.view("s").contains("version: 1"), "{}", s.view("s"));
    s.pod("w-1");
    s.until("it is settled", |s| s.is_settled("s")).await;
    assert!(s.view("s").contains(r#"jobs: ["a", "b"]"#), "{}", s.view("s"));
}

#[tokio::test(start_paused = true)]
async fn a_previous_operator_elsewhere_is_known_by_what_it_writes() {
    let mut s = pool_of_two("").await;
    s.put("the previous operator is off here", former_operator(0));
    s.stop_operator().await;
    s.swarm("s", adopting(&["a", "b", "c", "d", "e"]));
    s.pass(Duration::from_secs(2)).await;
    write_view(&mut s, "old-operator", UNEVEN).await;
    let at = s.server.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    s.start_operator().await;
    s.until("it is refused", |s| s.condition("s", "Ready") == "False/FormerOperatorRuns").await;
    let reported = message(&s);
    let writer = format!("field manager `old-operator` wrote the view at {at}");
    assert!(reported.starts_with(&writer) && reported.contains("delete Swarm `s`"), "{reported}");
    s.pass(Duration::from_mins(3)).await;
    assert_eq!((s.view("s"), message(&s)), (UNEVEN.to_owned(), reported));

    // The way out is safe: nothing was taken over, so no job stops.
    s.delete::<Swarm>("s").await;
    s.until("the Swarm is gone", |s| s.server.get(SWARMS, NAMESPACE, "s").is_none()).await;
    assert_eq!(s.view("s"), UNEVEN);
    s.swarm("s", adopting(&["a", "b", "c", "d", "e"]));
    s.until("it is settled", |s| s.is_settled("s")).await;
    assert!(s.view("s").contains(r#"jobs: ["a", "b", "c"]"#), "{}", s.view("s"));
}

#[tokio::test(start_paused = true)]
async fn a_view_older_than_the_swarm_or_written_by_hand_is_taken_over() {
    for (manager, is_before) in [("old-operator", true), ("kubectl-edit", false)] {
        let mut s = pool_of_two("").await;
        s.stop_operator().await;
        if is_before {
            write_view(&mut s, manager, UNEVEN).await;
        }
        s.swarm("s", adopting(&["a", "b", "c", "d", "e"]));
        s.pass(Duration::from_secs(2)).await;
        if !is_before {
            write_view(&mut s, manager, UNEVEN).await;
        }
        s.start_operator().await;
        s.until("it is settled", |s| s.is_settled("s")).await;
        assert!(s.view("s").contains(r#"jobs: ["a", "b", "c"]"#), "{}", s.view("s"));
    }
}

/// Reads Deployments in small pages: a user with many of them must not fill the operator's memory.
#[tokio::test(start_paused = true)]
async fn the_previous_operator_is_found_among_any_number_of_deployments() {
    let mut s = pool_of_two(UNEVEN).await;
    for number in 0..120 {
        let mut other = former_operator(1);
        other["metadata"]["name"] = json!(format!("a-{number:03}"));
        other["spec"]["template"]["spec"]["containers"][0]["name"] = json!("web");
        s.put("another Deployment", other);
    }
    s.put("the previous operator", former_operator(1));
    let _ = s.server.take_exchanges();
    s.swarm("s", adopting(&["a", "b", "c", "d", "e"]));
    s.until("it is refused", |s| s.condition("s", "Ready") == "False/FormerOperatorRuns").await;
    let asked = s.server.take_exchanges();
    let pages = asked.iter().filter(|it| it.what().contains("deployments")).count();
    assert_eq!(pages, 5, "121 Deployments in pages of 25: {asked:?}");
    assert_eq!(s.view("s"), UNEVEN);
}

/// Two operators write one view, and the second runs elsewhere: only its writes show it.
#[tokio::test(start_paused = true)]
async fn a_client_that_keeps_writing_over_the_view_is_named_until_it_stops() {
    let mut s = pool_of_two("").await;
    s.swarm("s", on_w(&["a", "b"]));
    s.until("it is settled", |s| s.is_settled("s")).await;
    let ours = s.view("s");
    for count in 1..=4 {
        write_view(&mut s, "old-operator", UNEVEN).await;
        s.until("it is written again", |s| s.view("s") == ours).await;
        s.pass(Duration::from_secs(20)).await;
        let expected = if count < 3 { "True/Settled" } else { "False/ViewContested" };
        assert_eq!(s.condition("s", "Ready"), expected, "after {count}: {}", message(&s));
    }
    let reported = message(&s);
    let expected =
        "another client changed key `config.yml` of ConfigMap `s-config` 4 times within 5 minutes";
    assert!(reported.starts_with(expected), "{reported}");
    assert!(reported.contains("field manager `old-operator` wrote there last, at "), "{reported}");
    assert_eq!(s.condition("s", "Stalled"), "True/ViewContested");
    s.pass(Duration::from_mins(5)).await;
    assert!(s.is_settled("s"), "{}", message(&s));

    // A deleted view is written again, too. A deletion leaves no trace of its client.
    for _ in 0..3 {
        s.delete::<ConfigMap>("s-config").await;
        s.until("it is written again", |s| s.view("s") == ours).await;
        s.pass(Duration::from_secs(20)).await;
    }
    let reported = message(&s);
    assert!(reported.contains("managedFields name only this"), "{reported}");
}
