use proptest::prelude::*;
use serde_json::json;

use super::*;

/// A text that occurs nowhere else.
const SECRET: &str = "5ecr3t";

fn without(mut value: Value) -> Value {
    leave_out(&mut value);
    value
}

#[test]
fn a_swarm_keeps_its_names_and_loses_its_values() {
    let swarm = |value: Value| {
        json!({
            "metadata": {"name": "cameras", "annotations": {"team": value}},
            "spec": {
                "jobs": [
                    {"name": "a", "title": "Front", "params": {"name": value, "n": value}},
                    {"name": "b", "params": null},
                ],
                "worker": {
                    "runner": {
                        "command": [value, value],
                        "env": {"KEY": value},
                        "files": {"a.conf": value},
                        "paramsFrom": [{"name": "p", "secretKeyRef": {"name": "s", "key": "k"}}],
                        "ready": {"exec": [value]},
                    },
                    "runners": {"fast": {"env": {"KEY": value, "B": value}}},
                },
            },
        })
    };
    let mut whole = swarm(SECRET.into());
    whole["metadata"]["managedFields"] = json!([{"manager": SECRET}]);
    assert_eq!(without(whole), swarm(MARK.into()));
}

#[test]
fn a_container_keeps_where_its_variables_come_from() {
    let pod = |value: &str, message: &str| {
        let from = json!({"secretKeyRef": {"name": "s", "key": "k"}});
        json!({
            "containers": [{
                "args": [value],
                "env": [{"name": "A", "value": value}, {"name": "B", "valueFrom": from}, value],
                "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "Cookie", "value": value}]}},
            }],
            "status": {"terminated": {"message": value}, "message": message},
        })
    };
    let said = |output: &str| format!("a on w-0 ended with exit code 3 (`{output}`); restarting");
    let (whole, clean) = (pod(SECRET, &said("no `(x)`) b")), pod(MARK, &said(MARK)));
    assert_eq!(without(whole), clean);
    assert_eq!(without(json!("worker (`w`")), json!("worker (`w`"));
}

#[test]
fn annotations_of_this_project_keep_what_documents_keep() {
    let lease = |value: &str| {
        let failing = json!({"count": 1, "worst": [{"job": "a", "lastOutput": [value, value]}]});
        json!({"annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": value,
            "swarm.k8slab.info/acknowledged": "7",
            "swarm.k8slab.info/failing": failing.to_string(),
        }})
    };
    assert_eq!(without(lease(SECRET)), lease(MARK));
}

/// A value with a mark in each of its texts.
fn secret() -> impl Strategy<Value = Value> {
    let text = "[ -~é]{0,9}".prop_map(|text| Value::from(format!("{text}{SECRET}{text}")));
    text.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,4}|name|valueFrom", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// A field whose value is left out.
fn secret_field() -> impl Strategy<Value = (String, Value)> {
    let variable = |value: Value| json!([{"name": "A", "value": value}]);
    let variables = prop::sample::select(VARIABLES.as_slice());
    let whole: Vec<_> = LEFT_OUT.into_iter().filter(|name| !VARIABLES.contains(name)).collect();
    let annotation =
        (prop::sample::select(vec![OURS, "a/"]), secret()).prop_map(|(name, value)| {
            let text = json!({"params": {"a": value}}).to_string();
            ("annotations".to_owned(), json!({format!("{name}b"): text}))
        });
    prop_oneof![
        (prop::sample::select(whole), secret()).prop_map(|(name, value)| (name.to_owned(), value)),
        (variables, secret()).prop_map(move |(name, value)| (name.to_owned(), variable(value))),
        annotation,
        secret().prop_map(|it| ("terminated".to_owned(), json!({"message": it}))),
        secret().prop_map(|it| ("managedFields".to_owned(), it)),
        "[ -~é]{0,9}".prop_map(|it| ("said".to_owned(), format!("a (`{it}{SECRET}`)").into())),
    ]
}

/// An object with values that are left out, at any depth.
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
    fn nothing_in_such_a_place_is_left(value in object()) {
        let clean = without(value);
        let text = clean.to_string();
        prop_assert!(!text.contains(SECRET), "{text}");
        prop_assert_eq!(without(clean.clone()), clean);
    }
}
