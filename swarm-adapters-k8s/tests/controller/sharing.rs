//! Several operators share the Swarms. The tests check which operator writes which Swarm, also
//! after one leaves, ends or does not belong to the group.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use swarm_apiserver::Verb;
use swarm_apiserver::fault::{Fault, Rule};
use swarm_client::api::Swarm;

use super::scenario::{LEASES, LEDGERS, OTHER, Scenario};

/// The number of Swarms, enough that each operator has some.
const SWARMS: usize = 12;
/// The duration of a replica's Lease, and the time to notice its end.
const LEASE: Duration = Duration::from_secs(11);

fn pool(n: usize) -> String {
    format!("w{n}")
}

/// Creates the Swarms, with a worker each.
fn swarms(s: &mut Scenario) {
    for n in 0..SWARMS {
        s.stateful_set(&pool(n), 1);
        s.pod(&format!("{}-0", pool(n)));
        s.swarm(&format!("s{n}"), spec(n, &["a"]));
    }
}

fn spec(n: usize, jobs: &[&str]) -> Value {
    let jobs: Vec<_> = jobs.iter().map(|name| json!({"name": name})).collect();
    json!({"pool": {"statefulSet": {"name": pool(n)}}, "jobs": jobs})
}

fn are_settled(s: &Scenario) -> bool {
    (0..SWARMS).all(|n| s.is_settled(&format!("s{n}")))
}

/// The writer of each ledger, with the epoch in which it became the writer.
fn writers(s: &Scenario) -> BTreeMap<usize, (String, u64)> {
    let writer = |n| {
        let of = s.at(LEDGERS, &format!("statefulset.{}", pool(n)), "/spec/writer");
        (
            n,
            (
                of["member"].as_str().unwrap_or_default().to_owned(),
                of["epoch"].as_u64().unwrap_or(0),
            ),
        )
    };
    (0..SWARMS).map(writer).collect()
}

fn names(s: &Scenario) -> BTreeSet<String> {
    writers(s).into_values().map(|(member, _)| member).collect()
}

/// Gives every Swarm another job, so that its owner writes the ledger.
async fn edit_all(s: &mut Scenario, job: &str) {
    for n in 0..SWARMS {
        s.swarm(&format!("s{n}"), spec(n, &["a", job]));
    }
    s.until("everything is settled again", are_settled).await;
}

#[tokio::test(start_paused = true)]
async fn each_swarm_is_one_replicas_and_moves_when_replicas_come_and_go() {
    let mut s = Scenario::without_operator();
    let a = s.start_replica("a").await;
    swarms(&mut s);
    s.until("everything is settled", are_settled).await;
    let alone = writers(&s);
    assert_eq!(names(&s), [a.name()].into());

    let b = s.start_replica("b").await;
    edit_all(&mut s, "b").await;
    let shared = writers(&s);
    assert_eq!(names(&s), [a.name(), b.name()].into(), "each has some");
    for (n, (member, epoch)) in &shared {
        let (before, was) = &alone[n];
        assert_eq!(epoch > was, member != before, "an epoch for each writer: {n}");
    }

    a.leave().await;
    let left = tokio::time::Instant::now();
    s.until("the other one has them", |s| names(s) == [b.name()].into()).await;
    assert!(left.elapsed() < LEASE, "at once: {:?}", left.elapsed());
    edit_all(&mut s, "c").await;
    for (n, (_, epoch)) in writers(&s) {
        let was = &shared[&n];
        assert_eq!(epoch > was.1, was.0 != b.name(), "what it had is as it was: {n}");
    }
    b.leave().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_replica_had_that_ended_is_taken_over_when_its_lease_is_over() {
    let mut s = Scenario::without_operator();
    let (a, b) = (s.start_replica("a").await, s.start_replica("b").await);
    s.until("both have something", |_| a.has_some() && b.has_some()).await;
    swarms(&mut s);
    s.until("everything is settled", are_settled).await;
    assert_eq!(names(&s).len(), 2);
    a.kill().await;
    let killed = tokio::time::Instant::now();
    s.until("the other one has them", |s| names(s) == [b.name()].into()).await;
    let took = killed.elapsed();
    assert!(Duration::from_secs(5) < took, "nobody waits for its Lease: {took:?}");
    assert!(took < 2 * LEASE, "{took:?}");
    edit_all(&mut s, "b").await;
    b.leave().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_swarm_is_released_by_its_owner() {
    let mut s = Scenario::without_operator();
    let (a, b) = (s.start_replica("a").await, s.start_replica("b").await);
    swarms(&mut s);
    s.until("everything is settled", are_settled).await;
    for n in 0..SWARMS {
        s.delete::<Swarm>(&format!("s{n}")).await;
    }
    let is_gone = |s: &Scenario| {
        let ledgers = (0..SWARMS).map(|n| format!("statefulset.{}", pool(n)));
        ledgers.into_iter().all(|name| s.server.get(LEDGERS, "n", &name).is_none())
    };
    s.until("all are gone, and their ledgers", is_gone).await;
    a.leave().await;
    b.leave().await;
}

#[tokio::test(start_paused = true)]
async fn operators_that_do_not_share_do_not_fight() {
    let mut s = Scenario::without_operator();
    let a = s.start_replica("a").await;
    s.stateful_set("w0", 1);
    s.pod("w0-0");
    s.swarm("s0", spec(0, &["a"]));
    s.until("it is settled", |s| s.is_settled("s0")).await;
    // The other operator has its Lease in another namespace, so it cannot see the first.
    let other = s.start_replica_in(OTHER, "b").await;
    s.until("it has taken the ledger over", |s| {
        s.at(LEDGERS, "statefulset.w0", "/spec/writer/member") == other.name()
    })
    .await;
    s.swarm("s0", spec(0, &["a", "b"]));
    s.until("the first says so", |s| s.condition("s0", "Ready") == "False/AnotherOperator").await;
    s.pass(Duration::from_mins(7)).await;
    let writer = s.at(LEDGERS, "statefulset.w0", "/spec/writer/member");
    assert_eq!(writer, other.name(), "it stays away");
    other.leave().await;
    let stopped = tokio::time::Instant::now();
    s.until("it tries again", |s| {
        s.at(LEDGERS, "statefulset.w0", "/spec/writer/member") == a.name() && s.is_settled("s0")
    })
    .await;
    assert!(stopped.elapsed() < Duration::from_mins(4), "{:?}", stopped.elapsed());
    a.leave().await;
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_lost_its_lease_sends_nothing_more() {
    let mut s = Scenario::without_operator();
    let (a, b) = (s.start_replica("a").await, s.start_replica("b").await);
    swarms(&mut s);
    s.until("everything is settled", are_settled).await;
    s.note("somebody takes the Lease of a away");
    s.server.edit(LEASES, "n", &a.name(), |it| it["spec"]["holderIdentity"] = json!("revoked"));
    tokio::time::timeout(LEASE, a.lost()).await.unwrap();
    edit_all(&mut s, "b").await;
    assert_eq!(names(&s), [b.name()].into());
    b.leave().await;
}

#[tokio::test(start_paused = true)]
async fn when_all_leave_at_once_the_next_replica_waits_for_nobody() {
    let mut s = Scenario::without_operator();
    let (a, b) = (s.start_replica("a").await, s.start_replica("b").await);
    swarms(&mut s);
    s.until("everything is settled", are_settled).await;
    let names = [a.name(), b.name()];
    tokio::join!(a.leave(), b.leave());
    for name in names {
        assert_eq!(s.at(LEASES, &name, "/spec/holderIdentity"), "", "{name} is closed");
    }
    let start = tokio::time::Instant::now();
    let c = s.start_replica("c").await;
    assert!(start.elapsed() < LEASE, "{:?}", start.elapsed());
    c.leave().await;
}

/// Writes the ConfigMap with the types.
fn types(s: &mut Scenario, text: &str) {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"types.yaml": text},
        "metadata": {"name": "swarm-operator-types", "namespace": "n"},
    });
    s.put("somebody edits the types", object);
}

#[tokio::test(start_paused = true)]
async fn swarms_move_to_who_hosts_them_and_a_broken_edit_changes_nothing() {
    let mut s = Scenario::without_operator();
    let (a, b) = (s.start_replica("a").await, s.start_replica("b").await);
    swarms(&mut s);
    s.until("everything is settled", are_settled).await;
    assert_eq!(names(&s).len(), 2, "both have some");
    types(&mut s, "replicas: {a: {controllers: {sweeper: {}}}}");
    s.until("all are with the one that hosts them", |s| names(s) == [b.name()].into()).await;

    types(&mut s, "replicas: {a: {controllers: {swarms: {}}}}");
    s.until("it says what is wrong", |s| {
        let status = s.at(LEASES, &a.name(), "/metadata/annotations/replicas.k8slab.info~1status");
        status.as_str().is_some_and(|text| text.contains("unknown controller `swarms`"))
    })
    .await;
    edit_all(&mut s, "b").await;
    assert_eq!(names(&s), [b.name()].into(), "the last good types stay in force");

    types(&mut s, "replicas: {a: {controllers: {swarm: {workers: 2}}}}");
    let both: BTreeSet<_> = [a.name(), b.name()].into();
    s.until("both have some again", |s| names(s) == both).await;
    a.leave().await;
    b.leave().await;
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_replica_that_ran_where_another_runs_now() {
    let mut s = Scenario::without_operator();
    let (a, b) = (s.start_replica("a").await, s.start_replica("b").await);
    swarms(&mut s);
    s.until("everything is settled", are_settled).await;
    let before = a.name();
    a.kill().await;
    let killed = tokio::time::Instant::now();
    let a = s.start_replica("a").await;
    s.until("nobody waits", |s| !names(s).contains(&before)).await;
    assert!(killed.elapsed() < LEASE, "{:?}", killed.elapsed());
    assert_eq!(s.at(LEASES, &before, "/spec/holderIdentity"), "", "its successor has closed it");
    edit_all(&mut s, "b").await;
    a.leave().await;
    b.leave().await;
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_hosts_no_swarms_is_ready_too() {
    let mut s = Scenario::without_operator();
    types(&mut s, "replicas: {a: {controllers: {}}, b: {controllers: {sweeper: {}}}}");
    s.swarm("s0", spec(0, &["a"]));
    let (b, a) = (s.start_replica("b").await, s.start_replica("a").await);
    s.pass(Duration::from_secs(30)).await;
    assert_eq!(s.status("s0"), Value::Null, "nobody hosts it");
    s.pass(Duration::from_mins(2)).await;
    let transcript = s.transcript();
    let mut warnings =
        transcript.lines().filter(|line| line.contains("Event Warning ControllerNotHosted: "));
    let warning = warnings.next().unwrap_or_default();
    assert!(warning.contains("the controller `swarm`"), "{transcript}");
    assert_eq!(warnings.count(), 0, "{transcript}");
    types(&mut s, "");
    s.until("somebody does", |s| s.condition("s0", "Ready") == "False/PoolNotFound").await;
    a.leave().await;
    b.leave().await;
}

#[tokio::test(start_paused = true)]
async fn an_edit_in_an_outage_takes_effect_and_nothing_is_forgotten_in_it() {
    let mut s = Scenario::without_operator();
    let a = s.start_replica("a").await;
    swarms(&mut s);
    s.until("everything is settled", are_settled).await;
    let before = writers(&s);
    s.note("no renewal of a replica is answered");
    s.server.inject(Rule::on(Verb::Update, "leases").always(), Fault::Hang);
    // This time is longer than the Lease, and than the time to the next sweep.
    s.pass(Duration::from_secs(45)).await;
    for n in 0..SWARMS {
        s.swarm(&format!("s{n}"), spec(n, &["a", "b"]));
    }
    s.pass(Duration::from_secs(3)).await;
    assert!(!are_settled(&s), "it may not act");
    drop(s.server.take_exchanges());
    s.server.heal();
    s.until("the edits take effect", are_settled).await;
    assert_eq!(writers(&s), before, "nobody else had them");
    let exchanges = s.server.take_exchanges();
    let is_read =
        |it: &&swarm_apiserver::Exchange| it.verb == Verb::List && it.resource == "swarms";
    assert_eq!(exchanges.iter().filter(is_read).count(), 0, "what is its own is kept whole");
    a.leave().await;
}
