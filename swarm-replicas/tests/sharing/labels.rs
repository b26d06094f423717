//! The example, with one, three and two replicas at a time, on an API server in memory.
#![expect(clippy::unwrap_used, reason = "a test may say what must be so")]

#[path = "../../examples/labels/controller.rs"]
mod controller;

use std::collections::BTreeSet;
use std::time::Duration;

use controller::{LABELS, labels, run};
use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::{reflector, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use swarm_apiserver::fault::{Fault, Rule};
use swarm_apiserver::{ApiServer, Verb};
use swarm_replicas::{End, Group, Member, Weight};
use tokio::task::JoinHandle;

const MAPS: usize = 60;
/// The time within which everything has settled: a Lease, its grace, and some time to act.
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

/// Waits until `is_so` returns a value.
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

fn put_maps(server: &ApiServer) {
    for n in 0..MAPS {
        server.put(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("map-{n}"), "namespace": "n", "labels": {"round": "0"}},
        }));
    }
}

/// Gives every ConfigMap another label, and waits until each has its annotation.
async fn work_is_done(client: &Client, round: usize) {
    edit(client, round).await;
    annotations_follow(client).await;
}

/// Gives every ConfigMap another label.
async fn edit(client: &Client, round: usize) {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "n");
    for n in 0..MAPS {
        let label = json!({"metadata": {"labels": {"round": round.to_string()}}});
        api.patch(&format!("map-{n}"), &PatchParams::default(), &Patch::Merge(label))
            .await
            .unwrap();
    }
}

/// Waits until each ConfigMap has its annotation.
async fn annotations_follow(client: &Client) {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "n");
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
    put_maps(&server);
    let a = start(&server, "a").await;
    settled(&[&a]).await;
    work_is_done(&client, 1).await;

    let (b, c) = (start(&server, "b").await, start(&server, "c").await);
    settled(&[&a, &b, &c]).await;
    work_is_done(&client, 2).await;

    // One member leaves. Its Lease is closed at once, and the other members have its share.
    assert_eq!(b.member.leave().await, End::Left);
    b.task.await.unwrap();
    settled(&[&a, &c]).await;
    work_is_done(&client, 3).await;

    // One member is killed. Its Lease is revoked first, and its member waited out.
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
    // The Lease of the killed member was revoked, and then closed once that member was waited out.
    assert_eq!(holders, [a.member.id().to_string(), String::new()].into());
}

#[tokio::test(start_paused = true)]
async fn an_edit_while_the_lease_is_over_is_acted_on_once_it_is_good_again() {
    let server = ApiServer::new();
    let client = server.client("n");
    put_maps(&server);
    let a = start(&server, "a").await;
    settled(&[&a]).await;
    work_is_done(&client, 1).await;
    assert!(a.member.lease_age() < Duration::from_secs(3), "{:?}", a.member.lease_age());

    server.inject(Rule::on(Verb::Update, "leases").always(), Fault::Hang);
    tokio::time::sleep(Duration::from_secs(12)).await;
    edit(&client, 2).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "n");
    let map = api.get("map-0").await.unwrap();
    assert_ne!(map.annotations().get(LABELS), Some(&labels(&map)), "its Lease is over");
    assert!(Duration::from_secs(15) <= a.member.lease_age(), "{:?}", a.member.lease_age());
    server.heal();
    annotations_follow(&client).await;
    assert!(a.member.lease_age() < Duration::from_secs(9), "{:?}", a.member.lease_age());
    assert!(!a.task.is_finished(), "nobody took its Lease away");
}

#[tokio::test(start_paused = true)]
async fn a_gained_object_that_cannot_be_read_is_read_again() {
    let server = ApiServer::new();
    let client = server.client("n");
    put_maps(&server);
    // The watch is stalled so that the objects are listed before any is owned.
    server.stall_watches("leases");
    let member = Group::new(client.clone(), "n", "labels").id("a").join().await.unwrap();
    let mut share = member.host::<ConfigMap>("labels", Weight::default()).unwrap();
    let (store, writer) = reflector::store();
    let maps = watcher(Api::<ConfigMap>::namespaced(client, "n"), watcher::Config::default());
    let tracked = share.track(writer, maps);
    let task = tokio::spawn(tracked.for_each(|_| std::future::ready(())));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!((store.state().len(), share.buckets()), (0, 0));

    server.inject(Rule::on(Verb::Get, "configmaps").times(70), Fault::Answer(500));
    server.resume_watches("leases");
    until("all are read", async || (store.state().len() == MAPS).then_some(())).await;
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_not_hosted_is_never_said_to_be() {
    let server = ApiServer::new();
    let member = Group::new(server.client("n"), "n", "labels").id("a").join().await.unwrap();
    let share = member.host_if::<ConfigMap>("quiet", None).unwrap();
    let _other = member.host::<ConfigMap>("loud", Weight::default()).unwrap();
    let is_up = async || (!member.status().controllers.is_empty()).then_some(());
    until("the other one is hosted", is_up).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let said = |name: &str| {
        let leases = server.take_exchanges().into_iter().filter(|it| it.resource == "leases");
        leases.filter_map(|it| it.after).filter(|it| it.to_string().contains(name)).count()
    };
    assert_eq!((said("quiet"), share.buckets()), (0, 0));
    let share = member.host_if::<ConfigMap>("quiet", Some(Weight::default())).unwrap();
    until("it is hosted", async || (0 < share.buckets()).then_some(())).await;
    assert!(0 < said("quiet"));
}

#[tokio::test(start_paused = true)]
async fn old_leases_are_removed_a_few_at_a_time() {
    const ENDED: usize = 50;
    let server = ApiServer::new();
    for n in 0..ENDED {
        let labels = json!({"replicas.k8slab.info/group": "labels"});
        server.put(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": format!("old-{n:016x}"), "namespace": "n", "labels": labels},
            "spec": {"holderIdentity": "", "leaseDurationSeconds": 9},
        }));
    }
    let left = || server.all("leases.coordination.k8s.io").len() - 1;
    let a = start(&server, "a").await;
    tokio::time::sleep(Duration::from_mins(59)).await;
    assert_eq!(left(), ENDED, "people may want to see them");
    tokio::time::sleep(Duration::from_mins(12)).await;
    let first = ENDED - left();
    assert!((1..=40).contains(&first), "{first} at once");
    tokio::time::sleep(Duration::from_mins(30)).await;
    assert_eq!(left(), 0);
    assert!(!a.task.is_finished());
}
