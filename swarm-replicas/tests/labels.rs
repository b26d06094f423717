//! The example, with one, three and two replicas at a time, on an API server in memory.
#![expect(clippy::unwrap_used, reason = "a test may say what must be so")]

#[path = "../examples/labels/controller.rs"]
mod controller;

use std::collections::BTreeSet;
use std::time::Duration;

use controller::{LABELS, labels, run};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use swarm_apiserver::ApiServer;
use swarm_replicas::{End, Group, Member};
use tokio::task::JoinHandle;

const MAPS: usize = 60;
/// By then everything has settled: a Lease, its grace, and some time to act.
const WITHIN: Duration = Duration::from_mins(1);

/// One process: a member, and its controller.
struct Process {
    member: Member,
    task: JoinHandle<()>,
}

async fn start(server: &ApiServer, id: &str) -> Process {
    let client = server.client("n");
    let member = Group::new(client.clone(), "n", "labels").id(id).join().await.unwrap();
    let of = member.clone();
    let task = tokio::spawn(async move { run(client, "n", &of).await.unwrap() });
    Process { member, task }
}

/// Waits until this is so.
async fn until<T>(what: &str, mut is_so: impl AsyncFnMut() -> Option<T>) -> T {
    let start = tokio::time::Instant::now();
    loop {
        if let Some(found) = is_so().await {
            return found;
        }
        assert!(start.elapsed() < WITHIN, "{what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until these members share all buckets, and nothing is locked.
async fn settled(processes: &[&Process]) {
    until("all buckets to be owned", async || {
        let statuses: Vec<_> = processes.iter().map(|it| it.member.status()).collect();
        let name = "labels".parse().unwrap();
        let of = |it: &swarm_replicas::ReplicaStatus| it.controllers.get(&name).cloned();
        let all: Vec<_> = statuses.iter().filter_map(of).collect();
        let owned: usize = all.iter().map(|it| it.owned).sum();
        let is_quiet =
            all.iter().all(|it| it.locked.is_empty() && it.stopping == 0 && 0 < it.owned);
        (owned == swarm_replicas::Bucket::COUNT && is_quiet && all.len() == processes.len())
            .then_some(())
    })
    .await;
}

/// Gives every ConfigMap another label, and waits until each has its annotation.
async fn work_is_done(client: &Client, round: usize) {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "n");
    for n in 0..MAPS {
        let label = json!({"metadata": {"labels": {"round": round.to_string()}}});
        api.patch(&format!("map-{n}"), &PatchParams::default(), &Patch::Merge(label))
            .await
            .unwrap();
    }
    until("all annotations to follow", async || {
        let maps = api.list(&ListParams::default()).await.unwrap().items;
        maps.iter().all(|map| map.annotations().get(LABELS) == Some(&labels(map))).then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn replicas_come_and_go_and_every_object_is_served_by_one() {
    let server = ApiServer::new();
    let client = server.client("n");
    for n in 0..MAPS {
        server.put(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("map-{n}"), "namespace": "n", "labels": {"round": "0"}},
        }));
    }
    let a = start(&server, "a").await;
    settled(&[&a]).await;
    work_is_done(&client, 1).await;

    let (b, c) = (start(&server, "b").await, start(&server, "c").await);
    settled(&[&a, &b, &c]).await;
    work_is_done(&client, 2).await;

    // One leaves: at once its Lease is closed, and the others have its share.
    assert_eq!(b.member.leave().await, End::Left);
    b.task.await.unwrap();
    settled(&[&a, &c]).await;
    work_is_done(&client, 3).await;

    // One is killed: its Lease is revoked and waited out first.
    c.task.abort();
    drop(c.member);
    let killed = tokio::time::Instant::now();
    settled(&[&a]).await;
    assert!(Duration::from_secs(9) <= killed.elapsed(), "its Lease was good for a while");
    work_is_done(&client, 4).await;
    let leases: Api<Lease> = Api::namespaced(client, "n");
    let holders = leases.list(&ListParams::default()).await.unwrap().items;
    let holder = |lease: &Lease| lease.spec.as_ref()?.holder_identity.clone();
    let holders: BTreeSet<_> = holders.iter().filter_map(holder).collect();
    // That of the killed one was revoked, and closed once it was waited out.
    assert_eq!(holders, [a.member.id().to_string(), String::new()].into());
}
