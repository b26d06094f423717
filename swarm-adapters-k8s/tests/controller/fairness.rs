//! Fairness among tenants: a hostile one does not delay the others.

use std::time::Duration;

use serde_json::{Value, json};
use swarm_apiserver::fault::{Fault, Rule};
use swarm_apiserver::{ApiServer, Verb};
use tokio::time::Instant;

use super::scenario::{NAMESPACE, OTHER, SWARMS, Scenario};

/// The number of Swarms of the other tenants.
const OTHERS: usize = 20;
/// The number of Swarms of the hostile tenant, which is more than the operator has workers.
const HOSTILE: usize = 100;

fn on(set: &str, jobs: &[String]) -> Value {
    let jobs: Vec<_> = jobs.iter().map(|name| json!({"name": name})).collect();
    json!({"pool": {"statefulSet": {"name": set}}, "jobs": jobs})
}

/// The times from an edit of a Swarm of the others until its status covers the edit, sorted.
async fn turns(s: &mut Scenario, round: &str) -> Vec<Duration> {
    let mut times = Vec::new();
    for again in 0..5 {
        for n in 0..OTHERS {
            let (name, edited) = (format!("s{n}"), Instant::now());
            s.swarm(&name, on(&format!("w{n}"), &[format!("{round}-{again}")]));
            s.until("it is settled", |s| s.is_settled(&name)).await;
            times.push(edited.elapsed());
            s.pass(Duration::from_millis(10)).await;
        }
    }
    times.sort_unstable();
    times
}

/// Adds Swarms that are edited all the time. Their turns take as long as a turn can, because no
/// write of theirs is ever answered.
fn hostile(server: &ApiServer) -> tokio::task::JoinHandle<()> {
    for n in 0..HOSTILE {
        let name = format!("hostile-{n}");
        server.inject(Rule::on(Verb::Patch, "swarms").named(&name).always(), Fault::Hang);
        server.put(json!({
            "apiVersion": swarm_client::api::API_VERSION, "kind": "Swarm",
            "metadata": {"name": name, "namespace": OTHER}, "spec": on("none", &[]),
        }));
    }
    let server = server.clone();
    tokio::spawn(async move {
        for change in 0.. {
            tokio::time::sleep(Duration::from_millis(25)).await;
            let name = format!("hostile-{}", change % HOSTILE);
            server
                .edit(SWARMS, OTHER, &name, |it| it["spec"] = on("none", &[format!("j{change}")]));
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_tenant_whose_turns_hang_and_whose_objects_change_all_the_time_delays_nobody() {
    let mut s = Scenario::start().await;
    for n in 0..OTHERS {
        s.stateful_set(&format!("w{n}"), 1);
        s.pod(&format!("w{n}-0"));
    }
    let rest = turns(&mut s, "rest").await;
    let hostile = hostile(&s.server);
    s.pass(Duration::from_secs(30)).await;
    let disturbed = turns(&mut s, "beside").await;
    hostile.abort();
    let p99 = |times: &[Duration]| times[times.len() * 99 / 100 - 1];
    let most = (2 * p99(&rest)).max(Duration::from_millis(1));
    assert!(p99(&disturbed) <= most, "at rest {:?}, beside it {:?}", p99(&rest), p99(&disturbed));
}

/// A ConfigMap with a list of jobs.
fn list(namespace: &str, name: &str, text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"jobs": text},
        "metadata": {"name": name, "namespace": namespace},
    })
}

// The clock is not paused here: a paused clock does not advance while a list is read.
#[tokio::test]
async fn a_tenant_with_many_long_lists_lets_the_list_of_another_one_be_read_between_them() {
    const LISTS: usize = 12;
    let mut s = Scenario::start().await;
    s.stateful_set("w", 1);
    s.pod("w-0");
    let from = |set: &str, name: &str| {
        let sources = json!([{"configMap": {"name": name, "key": "jobs"}}]);
        json!({"pool": {"statefulSet": {"name": set}}, "jobSources": sources})
    };
    s.server.put(list(NAMESPACE, "list", "- a\n"));
    s.swarm("s", from("w", "list"));
    s.until("it is settled", |s| s.is_settled("s")).await;
    let hostile = |n: usize| format!("hostile-{n}");
    for n in 0..LISTS {
        let mut set = s.server.get("statefulsets.apps", NAMESPACE, "w").unwrap();
        set["metadata"] = json!({"name": hostile(n), "namespace": OTHER});
        s.server.put(set);
        s.server.put(list(OTHER, &hostile(n), "- a\n"));
        s.server.put(json!({
            "apiVersion": swarm_client::api::API_VERSION, "kind": "Swarm",
            "metadata": {"name": hostile(n), "namespace": OTHER},
            "spec": from(&hostile(n), &hostile(n)),
        }));
    }
    let are_read = |s: &Scenario, what: &str| {
        let reads = |n: &usize| {
            let swarm = s.server.get(SWARMS, OTHER, &hostile(*n)).unwrap();
            let conditions = swarm["status"]["conditions"].to_string();
            conditions.contains(what)
        };
        (0..LISTS).filter(reads).count()
    };
    s.until("all lists are read", |s| are_read(s, "Ready") == LISTS).await;
    let slow = format!("[{}]", "[],".repeat(80_000));
    for n in 0..LISTS {
        s.server.put(list(OTHER, &hostile(n), &slow));
    }
    s.server.put(list(NAMESPACE, "list", "- a\n- b\n"));
    s.until("the list of another one is used", |s| s.status("s")["jobs"] == 2).await;
    let before = are_read(&s, "SourceInvalid");
    assert!(before <= LISTS / 2, "{before} of {LISTS} lists were read before it");
}

#[tokio::test(start_paused = true)]
async fn an_operator_ends_though_turns_wait_for_workers() {
    let mut s = Scenario::start().await;
    let hostile = hostile(&s.server);
    s.pass(Duration::from_secs(30)).await;
    hostile.abort();
    let ends = Instant::now();
    s.stop_operator().await;
    assert!(ends.elapsed() < Duration::from_secs(15), "{:?}", ends.elapsed());
}
