//! Pools of workers in sessions: the operator reads their Leases and writes their views.

use std::time::Duration;

use serde_json::{Value, json};

use swarm_apiserver::Verb;
use swarm_apiserver::fault::{Fault, Rule};
use swarm_client::client::Clients;
use swarm_client::session::KubeSession;
use swarm_core::handover::{Ack, Holder, LeaseTerms, LeaseWrite, SessionId};
use swarm_core::ports::SessionStore as _;
use swarm_core::session::Former;

use super::scenario::{LEASES, LEDGERS, NAMESPACE, Scenario};

fn sessions(policy: &str, jobs: &[&str]) -> Value {
    let jobs: Vec<_> = jobs.iter().map(|name| json!({"name": name})).collect();
    json!({
        "pool": {"statefulSet": {"name": "w"}}, "jobs": jobs,
        "worker": {"protocol": "Session"}, "handover": {"policy": policy},
    })
}

#[tokio::test(start_paused = true)]
async fn a_job_is_granted_to_the_next_session_once_the_former_has_acknowledged_its_release() {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 1);
    s.pod("w-0");
    let first = s.worker("w-0");
    s.swarm("s", sessions("Exclusive", &["a", "b"]));
    s.until("it is settled", |s| s.is_settled("s")).await;
    let _ = s.transcript();
    s.stateful_set("w", 2);
    s.pod("w-1");
    let second = s.worker("w-1");
    s.until("each has one", |s| {
        s.jobs_of(&first.session).len() == 1 && s.jobs_of(&second.session).len() == 1
    })
    .await;
    s.until("it is settled", |s| s.is_settled("s")).await;
    insta::assert_snapshot!(s.transcript());
}

#[tokio::test(start_paused = true)]
async fn a_silent_session_is_revoked_and_waited_out_before_its_jobs_go_to_another() {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 2);
    s.pod("w-0");
    s.pod("w-1");
    let first = s.worker("w-0");
    let second = s.worker("w-1");
    s.swarm("s", sessions("Exclusive", &["a", "b"]));
    s.until("it is settled", |s| s.is_settled("s")).await;
    s.pass(Duration::from_secs(10)).await;
    let _ = s.transcript();
    s.note("the worker in w-1 freezes");
    second.freeze();
    s.until("the other has both", |s| s.jobs_of(&first.session).len() == 2).await;
    s.until("nothing waits", |s| s.at(LEDGERS, "statefulset.w", "/spec/holdings/waits").is_null())
        .await;
    insta::assert_snapshot!(s.transcript());
}

/// A worker is silent for a while, but the API server refuses the revocation, and the worker
/// recovers. Hours later it gives up its jobs. The operator must not report that it was fenced.
#[tokio::test(start_paused = true)]
async fn a_session_that_could_not_be_revoked_is_not_reported_as_fenced() {
    let mut s = Scenario::start().await;
    s.stateful_set("w", 1);
    s.pod("w-0");
    let worker = s.worker("w-0");
    s.swarm("s", sessions("Exclusive", &["a"]));
    s.until("it is settled", |s| s.is_settled("s")).await;
    let lease = worker.session.to_string();
    let refused = Fault::Refuse(403, "no".into());
    s.server.inject(Rule::on(Verb::Patch, "leases").named(&lease).always(), refused);
    worker.falls_silent();
    s.until("the refusal shows", |s| s.condition("s", "Ready") == "False/WriteRefused").await;
    worker.speaks_again();
    s.server.heal();
    s.until("it is settled again", |s| s.is_settled("s")).await;
    s.pass(Duration::from_hours(2)).await;
    s.swarm("s", sessions("Exclusive", &[]));
    s.until("it gives up its jobs", |s| s.jobs_of(&worker.session).is_empty()).await;
    s.pass(Duration::from_secs(10)).await;
    assert!(!s.transcript().contains("WorkerFenced"), "it was never revoked");
}

/// Opens a session in an existing pod, as the program of the worker does.
async fn opens(s: &Scenario, pod: &str) -> SessionId {
    let clients = Clients::new(s.server.client(NAMESPACE), s.server.client(NAMESPACE));
    let uid = s.at("pods", pod, "/metadata/uid");
    let session = SessionId::new(uid.as_str().unwrap(), 1);
    let (terms, former) = (LeaseTerms::default(), Former::default());
    let store = KubeSession::new(&clients, NAMESPACE, session.clone(), terms, former);
    store.probe_policy(Duration::from_secs(1)).await;
    let holder = Holder::Session;
    let write = LeaseWrite { expected: None, holder, number: 1, ack: Ack::default() };
    store.write(&write).await.unwrap();
    session
}

/// Without the policy a worker could write the Leases of others and acknowledge for them. Then two
/// workers could run one job.
#[tokio::test(start_paused = true)]
async fn a_missing_policy_is_noticed_by_workers_and_said_where_exclusive_relies_on_it() {
    for (policy, expected) in [("Exclusive", "True/SessionsUnprotected"), ("AtLeastOnce", "/")] {
        let mut s = Scenario::start().await;
        s.stateful_set("w", 1);
        s.pod("w-0");
        opens(&s, "w-0").await;
        assert_eq!(s.server.all(LEASES).len(), 1, "the dry run has left nothing");
        s.swarm("s", sessions(policy, &["a"]));
        s.until("it has a status", |s| !s.status("s").is_null()).await;
        s.pass(Duration::from_secs(5)).await;
        assert_eq!(s.condition("s", "Degraded"), expected, "{policy}");
    }
}

/// A user who may write every Lease has created the Lease that workers try to create, so that the
/// trial fails.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_there_already_does_not_hide_that_the_policy_is_missing() {
    let mut s = Scenario::without_operator();
    s.stateful_set("w", 1);
    s.pod("w-0");
    let mut foreign = serde_json::to_value(swarm_client::session::foreign()).unwrap();
    foreign["metadata"]["namespace"] = NAMESPACE.into();
    s.put("the Lease that workers try", foreign);
    let session = opens(&s, "w-0").await;
    let annotations = s.at(LEASES, &session.to_string(), "/metadata/annotations");
    assert_ne!(annotations["swarm.k8slab.info/policy"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_refused_or_unanswered_dry_run_says_nothing() {
    for fault in [Fault::Refuse(422, "is not of a session of pod".into()), Fault::Hang] {
        let mut s = Scenario::without_operator();
        s.stateful_set("w", 1);
        s.pod("w-0");
        s.server.inject(Rule::on(Verb::Create, "leases"), fault);
        let session = opens(&s, "w-0").await;
        let annotations = s.at(LEASES, &session.to_string(), "/metadata/annotations");
        assert_eq!(annotations["swarm.k8slab.info/policy"], Value::Null);
    }
}
