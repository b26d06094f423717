use serde_json::{Value, json};

use super::*;

fn swarm(spec: &Value) -> Swarm {
    let mut all = json!({"pool": {"statefulSet": {"name": "w"}}});
    for (field, value) in spec.as_object().unwrap() {
        all[field] = value.clone();
    }
    let metadata = json!({"name": "streams", "namespace": "n", "uid": "u"});
    let version = swarm_client::api::API_VERSION;
    let object = json!({"apiVersion": version, "kind": "Swarm", "metadata": metadata, "spec": all});
    serde_json::from_value(object).unwrap()
}

/// The findings about pods with this spec. The cached part of the spec must give the same findings.
fn said_of(swarm: &Swarm, pod: &Value) -> Vec<(&'static str, String)> {
    let pod: PodSpec = serde_json::from_value(pod.clone()).unwrap();
    let all = misfits(swarm, &pod);
    let kept = unpacked(&packed(pod.clone()).unwrap()).unwrap();
    assert_eq!(kept, cut(pod), "as a text");
    assert_eq!(all, misfits(swarm, &kept), "of what is kept");
    all.into_iter().map(|Misfit { reason, message }| (reason, message)).collect()
}

fn one(swarm: &Swarm, pod: &Value) -> (&'static str, String) {
    let mut all = said_of(swarm, pod);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn worker(args: &[&str], env: &Value) -> Value {
    json!({"name": "w", "args": args, "env": env})
}

fn session(grace: i64, env: &Value) -> Value {
    let container = worker(&["run", "--protocol=session"], env);
    json!({"terminationGracePeriodSeconds": grace, "containers": [container]})
}

#[test]
fn a_grace_that_no_worker_would_start_with_is_named_with_the_numbers_to_write() {
    let swarm = swarm(&json!({"worker": {"protocol": "Session"}}));
    let stop = |time: &str| json!([{"name": "STOP_TIMEOUT", "value": time}]);
    let (reason, message) = one(&swarm, &session(60, &stop("29s")));
    assert_eq!(reason, "GraceTooShort");
    for part in [
        "container `w` will not start",
        "gives its worker 30s to end",
        " 29s to stop",
        " 2s more",
        "terminationGracePeriodSeconds: 39 and SWARM_GRACE: 39s",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(said_of(&swarm, &session(30, &stop("28s"))), []);
    let (_, message) = one(&swarm, &session(30, &json!([{"name": "SWARM_GRACE", "value": "6s"}])));
    assert!(message.contains("gives its worker 6s to end"), "{message}");
}

#[test]
fn a_grace_of_the_worker_that_is_longer_than_that_of_its_pod_is_a_contradiction() {
    let swarm = swarm(&json!({"worker": {"protocol": "Session"}}));
    let grace = |time: &str| json!([{"name": "SWARM_GRACE", "value": time}]);
    let (reason, message) = one(&swarm, &session(30, &grace("60s")));
    assert_eq!(reason, "GraceContradicts");
    let expected = "write SWARM_GRACE: 30s, or terminationGracePeriodSeconds: 60";
    assert!(message.ends_with(expected), "{message}");
    let (_, message) = one(&swarm, &session(20, &json!([])));
    assert!(message.contains("takes 30s to end (SWARM_GRACE"), "{message}");
    assert_eq!(said_of(&swarm, &session(60, &grace("60s"))), []);
    // A value from another object cannot be judged.
    let elsewhere = json!([{"name": "SWARM_GRACE", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}]);
    assert_eq!(said_of(&swarm, &session(5, &elsewhere)), []);
    let by_argument = worker(
        &["run", "--protocol", "session", "--grace", "40s", "--", "--grace=1s"],
        &grace("5s"),
    );
    let (reason, message) = one(&swarm, &json!({"containers": [by_argument]}));
    assert_eq!(reason, "GraceContradicts", "{message}");
}

#[test]
fn a_grace_that_is_shorter_than_the_stop_timeout_is_named_whatever_program_runs() {
    let foreign = |grace: i64| json!({"terminationGracePeriodSeconds": grace, "containers": [{"name": "own"}]});
    let handover = json!({"stopTimeout": "40s", "lease": "2m"});
    let plain = swarm(&json!({"handover": handover}));
    let session = swarm(&json!({"handover": handover, "worker": {"protocol": "Session"}}));
    let (reason, message) = one(&plain, &foreign(40));
    assert_eq!(reason, "GraceTooShort");
    for part in [
        "killed after 40s (terminationGrace",
        " 40s to stop (spec.handover",
        "write terminationGracePeriodSeconds: 50",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(said_of(&plain, &foreign(41)), []);
    assert_eq!(one(&session, &foreign(41)).0, "GraceTooShort");
    assert_eq!(said_of(&session, &foreign(42)), []);
    assert_eq!(one(&plain, &json!({"containers": []})).0, "GraceTooShort", "30s by default");
    assert_eq!(said_of(&swarm(&json!({})), &foreign(1)), [], "nothing is written");
}

#[test]
fn a_runner_that_reaches_no_worker_is_named() {
    let command = json!({"command": ["ffmpeg", "{job}"]});
    let of = |protocol: &str, runner: &Value| {
        swarm(&json!({"worker": {"protocol": protocol, "runner": runner}}))
    };
    let pod = |args: &[&str]| json!({"containers": [worker(args, &json!([]))]});
    let (reason, message) = one(&of("Plain", &command), &pod(&["run", "--runner=log"]));
    assert_eq!(reason, "RunnerIgnored");
    for part in
        ["spec.worker.runner", "container `w` has the runner `log`", "worker.protocol Plain"]
    {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(one(&of("Plain", &command), &pod(&["serve"])).0, "RunnerIgnored", "own program");
    let session = of("Session", &command);
    let (_, message) = one(&session, &pod(&["run", "--protocol=session"]));
    assert!(message.contains("write --runner=swarm (RUNNER) "), "{message}");
    assert!(message.ends_with("remove spec.worker.runner"), "{message}");
    for taken in [
        &["run", "--protocol=session", "--runner=swarm"][..],
        &["run", "--protocol=session", "--runner={command: [own]}"],
        // The program may ask for the runner.
        &["own"],
    ] {
        assert_eq!(said_of(&session, &pod(taken)), [], "{taken:?}");
    }
    let runners = json!({"worker": {"protocol": "Session", "runners": {"record": command}}});
    let (_, message) = one(&swarm(&runners), &pod(&["run", "--protocol=session"]));
    assert!(message.starts_with("no worker does what spec.worker.runners says: "), "{message}");
    let asks = pod(&["run", "--protocol=session", "--runner=swarm"]);
    assert_eq!(said_of(&swarm(&runners), &asks), []);
    // The samples repeat the runner, since `local` runs their files too.
    let log = of("Plain", &json!({"log": {}}));
    assert_eq!(said_of(&log, &pod(&["run", "--runner=log"])), []);
    assert_eq!(said_of(&log, &pod(&["own"])), []);
    let managed = json!({"managed": {"image": "i"}});
    let managed =
        swarm(&json!({"pool": managed, "worker": {"protocol": "Plain", "runner": command}}));
    assert_eq!(said_of(&managed, &pod(&["own"])), []);
}

#[test]
fn a_view_that_is_mounted_by_sub_path_is_named_with_its_container() {
    let pod = |volume: &Value, mount: &Value| {
        json!({
            "containers": [{"name": "a"}, {"name": "reader", "volumeMounts": [mount]}],
            "volumes": [volume, {"name": "x", "emptyDir": {}}],
        })
    };
    let map = json!({"name": "v", "configMap": {"name": "streams-config"}});
    let projected = json!({"name": "v", "projected": {"sources": [
        {"secret": {"name": "s"}}, {"configMap": {"name": "streams-config"}},
    ]}});
    let part = json!({"name": "v", "mountPath": "/etc/jobs/config.yml", "subPath": "config.yml"});
    let plain = swarm(&json!({}));
    for volume in [&map, &projected] {
        let (reason, message) = one(&plain, &pod(volume, &part));
        assert_eq!(reason, "ViewNeverUpdated");
        for part in [
            "container `reader` mounts `config.yml` of ConfigMap `streams-config`",
            "with subPath at `/etc/jobs/config.yml`",
            "volume `v` as a directory at `/etc/jobs`",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
    let whole = json!({"name": "v", "mountPath": "/app/config"});
    assert_eq!(said_of(&plain, &pod(&map, &whole)), []);
    let other = json!({"name": "v", "configMap": {"name": "other"}});
    assert_eq!(said_of(&plain, &pod(&other, &part)), []);
    let replaced = swarm(&json!({"refresh": {"mode": "Evict"}}));
    assert_eq!(said_of(&replaced, &pod(&map, &part)), [], "its pods are replaced");
    let session = swarm(&json!({"worker": {"protocol": "Session"}}));
    assert_eq!(said_of(&session, &pod(&map, &part)), [], "its workers read no view");
}

#[test]
fn of_a_pod_that_is_no_worker_nothing_is_kept() {
    let pod = json!({
        "serviceAccountName": "s", "nodeName": "n", "terminationGracePeriodSeconds": 30,
        "containers": [{
            "name": "c", "image": "i", "args": ["--verbose"], "env": [{"name": "A", "value": "b"}],
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        }],
        "volumes": [{"name": "v", "configMap": {"name": "m"}}],
    });
    let kept = cut_pod(serde_json::from_value(pod).unwrap());
    assert_eq!(kept, PodSpec::default());
    let long = "x".repeat(1_000);
    let args = format!("--runner={{command: [{long}]}}");
    let pod = session(
        30,
        &json!([{"name": "SWARM_GRACE", "value": long}, {"name": "RUNNER", "value": args}]),
    );
    let kept = serde_json::to_string(&cut_pod(serde_json::from_value(pod).unwrap())).unwrap();
    assert!(kept.len() < 500, "{kept}");
}
