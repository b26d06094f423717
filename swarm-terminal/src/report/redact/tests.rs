use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn redacted(mut value: Value, output: Output) -> (Value, Vec<String>) {
    let redacted = redact(&mut value, output);
    let paths = redacted.iter().map(|(path, number)| format!("{path} {number}"));
    (value, paths.collect())
}

#[test]
fn a_swarm_keeps_its_names_and_loses_its_values() {
    let swarm = json!({
        "metadata": {
            "name": "cameras",
            "managedFields": [{"manager": "kubectl"}],
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "{\"spec\":1}",
                "other": "[{\"a\": \"b\"}]",
                "team": "media",
            },
        },
        "spec": {
            "jobs": [
                {"name": "a", "title": "Front", "params": {"url": "rtsp://a", "n": 3}},
                {"name": "b", "params": {"url": "rtsp://b"}},
                {"name": "c", "params": null},
            ],
            "worker": {
                "runner": {
                    "command": ["rec", "--password", "x", "rtsp://u:p@h/"],
                    "env": {"KEY": "x"},
                    "files": {"a.conf": "key=x"},
                    "paramsFrom": [{"name": "p", "secretKeyRef": {"name": "s", "key": "k"}}],
                },
                "runners": {"fast": {"env": {"KEY": "x", "B": "y"}}},
            },
        },
    });
    let (clean, paths) = redacted(swarm, Output::Redacted);
    let expected = [
        "metadata.annotations[kubectl.kubernetes.io/last-applied-configuration] 1",
        "metadata.annotations.other 1",
        "metadata.managedFields 1",
        "spec.jobs[*].params 3",
        "spec.worker.runner.command[*] 2",
        "spec.worker.runner.env 1",
        "spec.worker.runner.files 1",
        "spec.worker.runners.*.env 2",
    ];
    let mut expected: Vec<_> = expected.iter().map(|it| (*it).to_owned()).collect();
    expected.sort();
    assert_eq!(paths, expected);
    let (metadata, runner) = (&clean["metadata"], &clean["spec"]["worker"]["runner"]);
    assert_eq!(
        (&metadata["managedFields"], &metadata["annotations"]["team"]),
        (&Value::Null, &json!("media"))
    );
    assert_eq!(clean["spec"]["jobs"][0]["title"], "Front");
    assert_eq!(clean["spec"]["jobs"][0]["params"], json!({"url": REDACTED, "n": REDACTED}));
    assert_eq!(clean["spec"]["jobs"][2]["params"], Value::Null);
    assert_eq!(runner["command"], json!(["rec", "--password", REDACTED, "rtsp://REDACTED@h/"]));
    assert_eq!(runner["paramsFrom"][0]["secretKeyRef"], json!({"name": "s", "key": "k"}));
}

#[test]
fn a_container_keeps_where_its_variables_come_from() {
    let from = json!({"secretKeyRef": {"name": "s", "key": "k"}});
    let pod = json!({"containers": [{
        "env": [{"name": "A", "value": "x"}, {"name": "B", "valueFrom": from}, "x", {"value": {"y": "z"}}],
        "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": "x"}]}},
    }]});
    let (clean, paths) = redacted(pod, Output::Kept);
    let env = json!([
        {"name": "A", "value": REDACTED}, {"name": "B", "valueFrom": from}, REDACTED,
        {"value": {"y": REDACTED}},
    ]);
    assert_eq!(clean["containers"][0]["env"], env);
    let expected = [
        "containers[*].env[*] 1",
        "containers[*].env[*].value 2",
        "containers[*].livenessProbe.httpGet.httpHeaders[*].value 1",
    ];
    assert_eq!(paths, expected);
}

#[test]
fn output_of_jobs_is_redacted_unless_it_is_wanted() {
    let failing = json!({"count": 1, "worst": [{"job": "a", "lastOutput": ["x", "y"]}]});
    let objects = json!({
        "lease": {"annotations": {"swarm.k8slab.info/failing": failing.to_string()}},
        "status": {"message": "a on w ended (`x`)", "state": {"terminated": {"message": "x"}}},
    });
    let (kept, paths) = redacted(objects.clone(), Output::Kept);
    assert_eq!((&kept, paths.len()), (&objects, 0));
    let (clean, paths) = redacted(objects, Output::Redacted);
    let failing: Value = serde_json::from_str(
        clean["lease"]["annotations"]["swarm.k8slab.info/failing"].as_str().unwrap(),
    )
    .unwrap();
    assert_eq!(failing["worst"][0], json!({"job": "a", "lastOutput": [REDACTED, REDACTED]}));
    let expected = [
        "lease.annotations[swarm.k8slab.info/failing].worst[*].lastOutput 2",
        "status.message 1",
        "status.state.terminated.message 1",
    ];
    assert_eq!(paths, expected);
}

#[test]
fn jobs_that_are_named_after_addresses_keep_their_number() {
    let jobs = json!({"jobs": {"rtsp://u:p@h/": 1, "rtsp://u:q@h/": 2, "rtsp://h/": 3}});
    let (clean, paths) = redacted(jobs, Output::Redacted);
    let expected = json!({"rtsp://REDACTED@h/": 1, "rtsp://REDACTED@h/ (2)": 2, "rtsp://h/": 3});
    assert_eq!((&clean["jobs"], paths), (&expected, vec!["jobs 2".to_owned()]));
}

/// A text that occurs nowhere else.
const MARK: &str = "5ecr3t";

/// A value with a mark in each of its texts.
fn secret() -> impl Strategy<Value = Value> {
    let text = "[ -~é]{0,9}".prop_map(|text| Value::from(format!("{text}{MARK}{text}")));
    text.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,4}", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// A field whose value is secret.
fn secret_field() -> impl Strategy<Value = (String, Value)> {
    let name = |names: &'static [&'static str]| prop::sample::select(names);
    let whole = ["params", "env", "data", "stringData", "files", "lastOutput", "dbPassword"];
    let whole: &'static [&'static str] = Box::leak(Box::new(whole));
    let variable = |name: &'static str| {
        let value = secret().prop_map(|value| json!({"name": "A", "value": value}));
        prop::collection::vec(value, 1..3).prop_map(move |all| (name.to_owned(), Value::from(all)))
    };
    let inner = name(&["password", "token", "secret"]);
    let address = "[a-z]{1,5}".prop_map(|user| format!("rtsp://{user}:{MARK}@10.0.0.1/{user}"));
    let option = inner.prop_map(|name| json!(["run", format!("--{name}"), MARK]));
    let annotation =
        (name(&["swarm.k8slab.info/failing", "a/b"]), secret()).prop_map(|(name, it)| {
            let text = json!({"params": {"a": it}}).to_string();
            ("annotations".to_owned(), json!({name: text}))
        });
    prop_oneof![
        (name(whole), secret()).prop_map(|(name, value)| (name.to_owned(), value)),
        variable("env"),
        variable("httpHeaders"),
        address.prop_map(|address| ("command".to_owned(), json!(["run", address]))),
        option.prop_map(|words| ("args".to_owned(), words)),
        annotation,
        Just((format!("rtsp://u:{MARK}@10.0.0.1/"), json!({"token": 7}))),
        secret().prop_map(|it| ("terminated".to_owned(), json!({"message": it}))),
        secret().prop_map(|it| ("managedFields".to_owned(), it)),
    ]
}

/// An object with secret values at any depth.
fn object() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        prop::collection::vec(secret_field(), 1..4)
            .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        "[a-z -]{0,9}".prop_map(Value::from),
        any::<u32>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("jobs|runners|spec|[a-z]{1,5}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn nothing_in_a_secret_place_is_left(mut value in object()) {
        let redacted = redact(&mut value, Output::Redacted);
        let text = value.to_string();
        prop_assert!(!text.contains(MARK), "{text}");
        let again = redact(&mut value, Output::Redacted);
        prop_assert!(again.is_empty() || again.keys().all(|path| redacted.contains_key(path)));
    }
}
