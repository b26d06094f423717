//! Managed pools when others edit their objects, when the API server refuses one, and when several
//! replicas share the pools.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use swarm_apiserver::Verb;
use swarm_apiserver::fault::{Fault, Rule};
use swarm_client::api::Swarm;

use super::scenario::{NAMESPACE, SWARMS, Scenario};
use super::worker::Worker;

const DEPLOYMENTS: &str = "deployments.apps";
const SETS: &str = "statefulsets.apps";
const BINDINGS: &str = "rolebindings.rbac.authorization.k8s.io";
const BUDGETS: &str = "poddisruptionbudgets.policy";
const SWARM_LABEL: &str = "swarm.k8slab.info/swarm";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The number of Swarms that replicas share. Each replica has more of them than it may roll.
const SHARED: usize = 16;

/// A managed pool of one plain worker, which gets its jobs without a session.
fn plain(jobs: &[&str]) -> Value {
    let jobs: Vec<_> = jobs.iter().map(|name| json!({"name": name})).collect();
    json!({
        "replicas": 1, "worker": {"protocol": "Plain"}, "jobs": jobs,
        "pool": {"managed": {"kind": "StatefulSet", "image": "reader:1", "service": {}}},
    })
}

/// A started scenario with that pool, whose worker has its jobs.
async fn given(name: &str, jobs: &[&str]) -> Scenario {
    let mut s = Scenario::start().await;
    s.swarm(name, plain(jobs));
    s.until("the pool is made", |s| s.server.get(SETS, NAMESPACE, name).is_some()).await;
    s.pod(&format!("{name}-0"));
    s.until("the jobs are given", |s| jobs.iter().all(|job| has(s, name, job))).await;
    s.pass(Duration::from_secs(10)).await;
    s
}

/// Whether the view names a job.
fn has(s: &Scenario, swarm: &str, job: &str) -> bool {
    s.view(swarm).contains(&format!("\"{job}\""))
}

fn message(s: &Scenario, swarm: &str) -> String {
    let status = s.status(swarm);
    let all = status["conditions"].as_array().into_iter().flatten();
    let found = all.into_iter().find(|it| it["type"] == "Ready");
    found.map_or_else(String::new, |it| it["message"].as_str().unwrap_or_default().to_owned())
}

fn label(s: &Scenario, resource: &str, name: &str, label: &str) -> Value {
    let found = s.server.get(resource, NAMESPACE, name).unwrap_or_default();
    found["metadata"]["labels"][label].clone()
}

fn set_label(s: &mut Scenario, resource: &str, name: &str, label: &str, value: &Value) {
    s.note(&format!("somebody sets {label} of {resource} {name} to {value}"));
    s.server.edit(resource, NAMESPACE, name, |it| it["metadata"]["labels"][label] = value.clone());
}

#[tokio::test(start_paused = true)]
async fn a_label_by_which_an_object_is_known_is_put_back() {
    let mut s = given("p", &["a"]).await;
    let all = [("services", "p-pods"), (BUDGETS, "p"), (SETS, "p")];
    for (resource, name) in all {
        let uid = s.at(resource, name, "/metadata/uid");
        for (key, edited) in [(SWARM_LABEL, "elsewhere"), (MANAGED_BY, "Helm")] {
            let before = label(&s, resource, name, key);
            set_label(&mut s, resource, name, key, &json!(edited));
            s.until("it is put back", |s| label(s, resource, name, key) == before).await;
            assert_eq!(s.at(resource, name, "/metadata/uid"), uid, "it is the same object");
        }
        s.pass(Duration::from_mins(1)).await;
    }
}

/// A deleted workload is made again with one replica, and then scaled. The operator must not report
/// that another client scaled it.
#[tokio::test(start_paused = true)]
async fn a_workload_that_is_made_again_was_not_scaled_by_another_client() {
    let mut s = Scenario::start().await;
    let mut spec = plain(&["a"]);
    spec["replicas"] = json!(3);
    s.swarm("p", spec);
    let replicas = |s: &Scenario| s.at(SETS, "p", "/spec/replicas");
    s.until("it is scaled", |s| replicas(s) == 3).await;
    s.pass(Duration::from_secs(10)).await;
    // The workload's controller writes the status at once: the first attempt to scale conflicts.
    let rule = Rule::on(Verb::Patch, "statefulsets").subresource("scale");
    s.server.inject(rule, Fault::Answer(409));
    s.server.remove(SETS, NAMESPACE, "p");
    s.until("it is made again", |s| replicas(s) == 3).await;
    s.pass(Duration::from_secs(10)).await;
    assert!(!s.transcript().contains("ScaleTakenOver"), "nobody did");
    s.server.edit(SETS, NAMESPACE, "p", |set| set["spec"]["replicas"] = json!(2));
    s.until("it is put back", |s| replicas(s) == 3).await;
    s.pass(Duration::from_secs(10)).await;
    assert!(s.transcript().contains("ScaleTakenOver"), "somebody did");
}

#[tokio::test(start_paused = true)]
async fn a_label_that_the_operator_may_not_put_back_is_named_and_the_jobs_are_tended() {
    let mut s = given("p", &["a"]).await;
    let fence = "ValidatingAdmissionPolicy 'swarm-operator-workloads' denied request: not made";
    let rule = Rule::on(Verb::Apply, "statefulsets").always();
    s.server.inject(rule, Fault::Refuse(422, fence.into()));
    set_label(&mut s, SETS, "p", MANAGED_BY, &json!("Helm"));
    s.until("it is said", |s| s.condition("p", "Ready") == "False/WriteRefused").await;
    let reported = message(&s, "p");
    let command = "kubectl label --overwrite -n n StatefulSet p \
                   app.kubernetes.io/managed-by=swarm-operator";
    assert!(
        reported.starts_with("`test` changed the labels that mark StatefulSet `p`"),
        "{reported}"
    );
    assert!(reported.contains(&format!("`{command}`")) && reported.contains(fence), "{reported}");
    s.swarm("p", plain(&["a", "b"]));
    s.until("b is given, too", |s| has(s, "p", "b")).await;
    // The user runs the command of the message.
    s.server.heal();
    set_label(&mut s, SETS, "p", MANAGED_BY, &json!("swarm-operator"));
    s.until("all is well", |s| s.condition("p", "Ready") != "False/WriteRefused").await;
}

/// A label may name another Swarm: that Swarm takes nothing over, and removes nothing.
#[tokio::test(start_paused = true)]
async fn an_object_that_is_labelled_for_another_swarm_stays_whose_it_is() {
    let mut s = given("p", &["a"]).await;
    s.swarm("q", plain(&["b"]));
    s.until("q is made", |s| s.server.get(SETS, NAMESPACE, "q").is_some()).await;
    let uid = s.at("services", "p", "/metadata/uid");
    set_label(&mut s, "services", "p", SWARM_LABEL, &json!("q"));
    s.until("it is put back", |s| label(s, "services", "p", SWARM_LABEL) == "p").await;
    s.pass(Duration::from_mins(1)).await;
    assert_eq!(s.at("services", "p", "/metadata/uid"), uid, "q has removed it");
}

#[tokio::test(start_paused = true)]
async fn what_the_pods_need_comes_back_while_the_template_is_refused() {
    let mut s = Scenario::start().await;
    let managed = |more: &Value| {
        let jobs = json!([{"name": "a"}]);
        json!({"replicas": 1, "pool": {"managed": more}, "jobs": jobs})
    };
    s.swarm("p", managed(&json!({})));
    s.until("it is made", |s| s.server.get(DEPLOYMENTS, NAMESPACE, "p").is_some()).await;
    s.pass(Duration::from_secs(10)).await;
    let unknown = json!({"podTemplate": {"spec": {"nodeSelektor": {"a": "b"}}}, "port": 9999});
    s.swarm("p", managed(&unknown));
    s.until("it is refused", |s| message(s, "p").contains("nodeSelektor")).await;
    lost_parts_come_back(&mut s).await;
    assert_eq!(s.at("services", "p-pods", "/spec/ports/0/port"), 9090, "the wish was refused");

    // The same holds if the API server refuses the workload.
    let rule = Rule::on(Verb::Apply, "deployments").always();
    s.server.inject(rule, Fault::Refuse(422, "no such thing".into()));
    s.swarm("p", managed(&json!({"port": 9999})));
    s.until("it is refused", |s| s.condition("p", "Ready") == "False/PoolRefused").await;
    lost_parts_come_back(&mut s).await;
    assert_eq!(s.at("services", "p-pods", "/spec/ports/0/port"), 9090, "the wish was refused");
    s.server.heal();
    s.until("all of it is as wished", |s| {
        s.at("services", "p-pods", "/spec/ports/0/port") == 9999
            && s.at(DEPLOYMENTS, "p", "/spec/template").to_string().contains("9999")
    })
    .await;
}

async fn lost_parts_come_back(s: &mut Scenario) {
    for (resource, name) in [(BINDINGS, "p"), ("serviceaccounts", "p"), (BUDGETS, "p")] {
        s.server.remove(resource, NAMESPACE, name);
        s.until("it comes back", |s| s.server.get(resource, NAMESPACE, name).is_some()).await;
    }
    s.server.edit(BINDINGS, NAMESPACE, "p", |it| it["subjects"] = json!([]));
    s.until("it is put back", |s| s.at(BINDINGS, "p", "/subjects/0/name") == "p").await;
    s.pass(Duration::from_mins(1)).await;
}

/// An account that is made again has another UID, and the tokens of the previous one are void.
#[tokio::test(start_paused = true)]
async fn pods_are_replaced_once_if_their_account_was() {
    let mut s = Scenario::start().await;
    let jobs = json!([{"name": "a"}]);
    s.swarm("p", json!({"replicas": 1, "pool": {"managed": {}}, "jobs": jobs}));
    s.until("it is made", |s| s.server.get(DEPLOYMENTS, NAMESPACE, "p").is_some()).await;
    let account = |s: &Scenario| s.at("serviceaccounts", "p", "/metadata/uid");
    let noted = |s: &Scenario| {
        let at = "/spec/template/metadata/annotations/swarm.k8slab.info~1account";
        (s.at(DEPLOYMENTS, "p", at), s.at(DEPLOYMENTS, "p", "/metadata/generation"))
    };
    let (mut before, (runs_as, first)) = (account(&s), noted(&s));
    assert_eq!(runs_as, before, "pods are made of it once");
    for rolled in 1..=2 {
        s.server.remove("serviceaccounts", NAMESPACE, "p");
        s.until("pods are replaced", |s| noted(s).0 != before).await;
        s.pass(Duration::from_mins(1)).await;
        before = account(&s);
        assert_eq!(noted(&s), (before.clone(), json!(first.as_i64().unwrap() + rolled)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_wrong_template_makes_nothing_of_a_pool_that_is_not_there() {
    let mut s = Scenario::start().await;
    let managed = json!({"podTemplate": {"spec": {"nodeSelektor": {"a": "b"}}}});
    s.swarm("p", json!({"pool": {"managed": managed}, "jobs": [{"name": "a"}]}));
    s.until("it is refused", |s| s.condition("p", "Ready") == "False/InvalidSpec").await;
    for resource in ["serviceaccounts", "services", BINDINGS, BUDGETS] {
        assert!(s.server.all(resource).is_empty(), "{resource}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_about_the_pool_holds_up_no_job() {
    let refused = |verb, resource: &str| (Rule::on(verb, resource).always(), "hands off");
    // The Service is not wanted any more, and the operator may not remove it.
    let mut s = given("p", &["a"]).await;
    let (rule, why) = refused(Verb::Delete, "services");
    s.server.inject(rule, Fault::Refuse(403, why.into()));
    let mut spec = plain(&["a", "b"]);
    spec["pool"]["managed"]["service"] = Value::Null;
    s.swarm("p", spec);
    s.until("b is given", |s| has(s, "p", "b")).await;
    s.until("it is said", |s| message(s, "p").contains("Service `p` was refused: hands")).await;
    s.server.heal();
    s.until("it is removed", |s| s.server.get("services", NAMESPACE, "p").is_none()).await;

    // The Service is missing. The operator reads it before it creates it, and may not read it.
    let mut s = given("p", &["a"]).await;
    let (rule, why) = refused(Verb::Get, "services");
    s.server.inject(rule, Fault::Refuse(403, why.into()));
    s.delete::<Service>("p").await;
    s.swarm("p", plain(&["a", "b"]));
    s.until("b is given", |s| has(s, "p", "b")).await;
    s.until("it is said", |s| message(s, "p").contains("Service `p` was refused: hands")).await;
    s.server.heal();
    s.until("it is made", |s| s.server.get("services", NAMESPACE, "p").is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_whose_objects_may_not_be_seen_any_more_goes_on_and_says_so() {
    const FORBIDDEN: &str = "False/ManagedForbidden";
    let mut s = given("p", &["a"]).await;
    for resource in ["serviceaccounts", "poddisruptionbudgets"] {
        let fault = Fault::Refuse(403, "hands off".to_owned());
        s.server.inject(Rule::on(Verb::List, resource).always(), fault);
    }
    // The watches that have begun go on until the next list.
    s.pass(Duration::from_mins(10)).await;
    let both = "watch serviceaccounts and poddisruptionbudgets, so it";
    s.until("both are named", |s| message(s, "p").contains(both)).await;
    assert_eq!(s.condition("p", "Ready"), FORBIDDEN);
    s.swarm("p", plain(&["a", "b"]));
    s.until("b is given", |s| has(s, "p", "b")).await;
    assert_eq!(s.condition("p", "Ready"), FORBIDDEN);

    // The next process never had the rights.
    s.stop_operator().await;
    s.swarm("p", plain(&["a", "b", "c"]));
    s.swarm("q", plain(&["x"]));
    s.start_operator().await;
    s.until("c is given", |s| has(s, "p", "c")).await;
    let is_said = |s: &Scenario| ["p", "q"].iter().all(|it| s.condition(it, "Ready") == FORBIDDEN);
    s.until("both say so", is_said).await;
    assert!(
        s.server.get(SETS, NAMESPACE, "q").is_none(),
        "a pool that was never made is not begun"
    );

    s.server.heal();
    s.until("it is made", |s| s.server.get(SETS, NAMESPACE, "q").is_some()).await;
    s.until("it is kept again", |s| s.condition("p", "Ready") != FORBIDDEN).await;
}

#[tokio::test(start_paused = true)]
async fn of_two_swarms_that_want_one_name_the_second_reports_the_owner() {
    let mut s = Scenario::start().await;
    s.swarm("a", plain(&["x"]));
    s.until("a is made", |s| s.server.get(SETS, NAMESPACE, "a").is_some()).await;
    let uid = s.at("services", "a-pods", "/metadata/uid");
    s.swarm("a-pods", plain(&["y"]));
    s.until("it is reported", |s| s.condition("a-pods", "Ready") == "False/NameTaken").await;
    let reported = message(&s, "a-pods");
    assert!(
        reported.starts_with("Service `a-pods` was made for Swarm `a`, which needs it"),
        "{reported}"
    );
    s.pass(Duration::from_mins(2)).await;
    assert_eq!(s.at("services", "a-pods", "/metadata/uid"), uid);
    assert_eq!(label(&s, "services", "a-pods", SWARM_LABEL), "a");
    assert_eq!(s.at("services", "a-pods", "/spec/clusterIP"), "None", "it is as a wants it");
    assert!(s.server.get(SETS, NAMESPACE, "a-pods").is_none(), "its pods would not be reached");
    s.delete::<Swarm>("a").await;
    s.until("a goes", |s| s.server.get(SWARMS, NAMESPACE, "a").is_none()).await;
    s.until("the name is free", |s| {
        label(s, "services", "a-pods", SWARM_LABEL) == "a-pods"
            && s.server.get(SETS, NAMESPACE, "a-pods").is_some()
    })
    .await;
}

/// Writes to the budget of `p` as this field manager.
async fn write_as(s: &Scenario, manager: &str, patch: &Value) {
    let api = Api::<PodDisruptionBudget>::namespaced(s.server.client(NAMESPACE), NAMESPACE);
    let params = PatchParams { field_manager: Some(manager.into()), ..PatchParams::default() };
    api.patch("p", &params, &Patch::Merge(patch)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_takes_a_field_is_named_not_who_wrote_last() {
    let mut s = given("p", &["a"]).await;
    for n in 0..6 {
        let harmless = json!({"metadata": {"annotations": {"seen": n.to_string()}}});
        write_as(&s, "tracker", &harmless).await;
        write_as(&s, "taker", &json!({"spec": {"maxUnavailable": format!("{n}%")}})).await;
        s.pass(Duration::from_secs(1)).await;
        let harmless = json!({"metadata": {"annotations": {"seen": format!("{n} again")}}});
        write_as(&s, "tracker", &harmless).await;
    }
    s.until("it is said", |s| s.condition("p", "Ready") == "False/Contested").await;
    // The operator judges the condition again within this time.
    s.pass(Duration::from_secs(35)).await;
    let reported = message(&s, "p");
    assert!(
        reported.starts_with("`taker` changes fields of PodDisruptionBudget `p`"),
        "{reported}"
    );
}

/// Reports as the Deployment controller does that all pods have the newest template.
fn roll_out(s: &mut Scenario, name: &str) {
    s.server.edit(DEPLOYMENTS, NAMESPACE, name, |it| {
        let (generation, replicas) =
            (it["metadata"]["generation"].clone(), it["spec"]["replicas"].clone());
        it["status"] = json!({
            "observedGeneration": generation, "replicas": replicas, "updatedReplicas": replicas,
            "availableReplicas": replicas,
        });
    });
}

/// The Swarms whose pods have this image.
fn with_image(s: &Scenario, image: &str) -> Vec<String> {
    let pool = |n: &usize| {
        let template = s.at(DEPLOYMENTS, &format!("s{n}"), "/spec/template");
        template.to_string().contains(image)
    };
    (0..SHARED).filter(pool).map(|n| format!("s{n}")).collect()
}

#[tokio::test(start_paused = true)]
async fn all_replicas_together_roll_five_pools_at_a_time() {
    let mut s = Scenario::without_operator();
    let old = s.start_replica("old").await;
    for n in 0..SHARED {
        let jobs = json!([{"name": "a"}]);
        s.swarm(&format!("s{n}"), json!({"replicas": 2, "pool": {"managed": {}}, "jobs": jobs}));
    }
    s.until("all are made", |s| {
        (0..SHARED).all(|n| s.at(DEPLOYMENTS, &format!("s{n}"), "/spec/replicas") == 2)
    })
    .await;
    (0..SHARED).for_each(|n| roll_out(&mut s, &format!("s{n}")));
    old.leave().await;

    let a = s.start_replica_with(NAMESPACE, "a", "worker:2").await;
    let b = s.start_replica_with(NAMESPACE, "b", "worker:2").await;
    s.pass(Duration::from_mins(1)).await;
    let rolling = with_image(&s, "worker:2");
    assert!((4..=5).contains(&rolling.len()), "{rolling:?}");

    // The replica that takes over counts the pools that already roll.
    a.kill().await;
    s.pass(Duration::from_mins(1)).await;
    assert_eq!(with_image(&s, "worker:2").len(), 5);
    for name in with_image(&s, "worker:2") {
        roll_out(&mut s, &name);
    }
    s.pass(Duration::from_secs(20)).await;
    assert_eq!(with_image(&s, "worker:2").len(), 10, "the next five");
    b.leave().await;
}

/// The objects of pool `p` without which its worker cannot write its Lease.
const RIGHTS: [&str; 2] = ["serviceaccounts", BINDINGS];

/// A managed pool `p` of one worker in a session, whose workload was removed with its Swarm. Its
/// pod was not asked to end yet.
async fn removed_before_its_pod_ends() -> (Scenario, Worker) {
    let mut s = Scenario::start().await;
    let pool = json!({"managed": {"kind": "StatefulSet"}});
    s.swarm("p", json!({"replicas": 1, "pool": pool, "jobs": [{"name": "a"}]}));
    s.until("the pool is made", |s| s.server.get(SETS, NAMESPACE, "p").is_some()).await;
    s.pod("p-0");
    let worker = s.worker("p-0");
    s.until("it is settled", |s| s.is_settled("p")).await;
    s.delete::<Swarm>("p").await;
    s.until("its workload goes", |s| s.server.get(SETS, NAMESPACE, "p").is_none()).await;
    assert_eq!(s.jobs_of(&worker.session), [""; 0], "a workload goes after the release");
    (s, worker)
}

fn has_rights(s: &Scenario) -> bool {
    RIGHTS.iter().all(|resource| s.server.get(resource, NAMESPACE, "p").is_some())
}

/// Whether the Swarm `p` and all objects of its pool are gone.
fn is_all_gone(s: &Scenario) -> bool {
    let others = [SWARMS, SETS, DEPLOYMENTS, BUDGETS, "services"];
    RIGHTS.iter().chain(&others).all(|resource| s.server.all(resource).is_empty())
}

#[tokio::test(start_paused = true)]
async fn the_workers_of_a_deleted_swarm_keep_their_rights_until_they_have_closed_their_leases() {
    let (mut s, worker) = removed_before_its_pod_ends().await;
    s.pass(Duration::from_secs(20)).await;
    assert!(has_rights(&s), "the worker could not close its Lease");
    assert!(s.server.get(SWARMS, NAMESPACE, "p").is_some(), "nobody would remove the rights");
    worker.closes(&mut s);
    s.pass(Duration::from_secs(2)).await;
    assert!(is_all_gone(&s), "{}", s.transcript());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_ended_without_closing_its_lease_needs_no_rights() {
    let (mut s, worker) = removed_before_its_pod_ends().await;
    worker.freeze();
    s.pod_ends("p-0");
    s.pass(Duration::from_secs(2)).await;
    assert!(is_all_gone(&s), "{}", s.transcript());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_fell_silent_needs_no_rights() {
    let (mut s, worker) = removed_before_its_pod_ends().await;
    worker.freeze();
    s.pass(Duration::from_secs(30)).await;
    assert!(is_all_gone(&s), "{}", s.transcript());
}

#[tokio::test(start_paused = true)]
async fn the_workers_of_a_deployment_keep_their_rights_too() {
    let mut s = Scenario::start().await;
    s.swarm("p", json!({"replicas": 1, "pool": {"managed": {}}, "jobs": [{"name": "a"}]}));
    s.until("it is made", |s| s.server.get(DEPLOYMENTS, NAMESPACE, "p").is_some()).await;
    let labels = s.at(DEPLOYMENTS, "p", "/spec/template/metadata/labels");
    s.put(
        "a pod of it runs",
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p-1", "namespace": NAMESPACE, "labels": labels},
            "spec": {"nodeName": "node", "containers": []}, "status": {"phase": "Running"},
        }),
    );
    let worker = s.worker("p-1");
    s.pass(Duration::from_secs(1)).await;
    s.delete::<Swarm>("p").await;
    s.until("its workload goes", |s| s.server.get(DEPLOYMENTS, NAMESPACE, "p").is_none()).await;
    s.pass(Duration::from_secs(20)).await;
    assert!(has_rights(&s), "the worker could not close its Lease");
    worker.closes(&mut s);
    s.pass(Duration::from_secs(2)).await;
    assert!(is_all_gone(&s), "{}", s.transcript());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_does_not_end_keeps_its_swarm_for_a_bounded_time() {
    let (mut s, _worker) = removed_before_its_pod_ends().await;
    s.pass(Duration::from_secs(35)).await;
    assert!(has_rights(&s), "a pod has 30 seconds to end");
    s.pass(Duration::from_secs(10)).await;
    assert!(is_all_gone(&s), "{}", s.transcript());
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_ends_between_both_removals_leaves_nothing_behind() {
    let (mut s, worker) = removed_before_its_pod_ends().await;
    s.kill_operator().await;
    worker.closes(&mut s);
    s.pod_ends("p-0");
    s.start_operator().await;
    s.until("all of it goes", is_all_gone).await;
}

#[tokio::test(start_paused = true)]
async fn the_next_operator_keeps_the_rights_for_workers_that_still_end() {
    let (mut s, worker) = removed_before_its_pod_ends().await;
    s.kill_operator().await;
    s.start_operator().await;
    s.pass(Duration::from_secs(10)).await;
    assert!(has_rights(&s), "the worker could not close its Lease");
    worker.closes(&mut s);
    s.until("all of it goes", is_all_gone).await;
}

/// A user has removed the finalizer of the Swarm by hand.
#[tokio::test(start_paused = true)]
async fn a_sweep_removes_the_rights_after_the_workload() {
    let mut s = given("p", &["a"]).await;
    let mut spec = plain(&["a"]);
    spec["worker"]["protocol"] = json!("Session");
    s.swarm("p", spec);
    s.until("its workers have rights", has_rights).await;
    s.server.remove(SWARMS, NAMESPACE, "p");
    s.until("its workload goes", |s| s.server.get(SETS, NAMESPACE, "p").is_none()).await;
    s.pass(Duration::from_secs(10)).await;
    assert!(has_rights(&s), "the workers could not close their Leases");
    s.pass(Duration::from_secs(10)).await;
    assert!(is_all_gone(&s), "{}", s.transcript());
}
