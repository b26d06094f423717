//! Pods without the fields that say nothing about a pool.

use serde_json::{Map, Value};

/// Fields of the spec of a pod that a report has.
const OF_SPEC: [&str; 9] = [
    "containers",
    "initContainers",
    "nodeName",
    "nodeSelector",
    "priorityClassName",
    "readinessGates",
    "restartPolicy",
    "serviceAccountName",
    "terminationGracePeriodSeconds",
];
/// Fields of a container that a report has.
const OF_CONTAINER: [&str; 11] = [
    "args",
    "command",
    "env",
    "envFrom",
    "image",
    "lifecycle",
    "livenessProbe",
    "name",
    "readinessProbe",
    "resources",
    "startupProbe",
];

/// Reduces a pod: its metadata and status stay.
pub(super) fn pod(pod: &Value) -> Value {
    let mut reduced = Map::new();
    let mut spec = only(&pod["spec"], &OF_SPEC);
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            *container = only(container, &OF_CONTAINER);
        }
    }
    reduced.insert("metadata".to_owned(), pod["metadata"].clone());
    reduced.insert("spec".to_owned(), spec);
    reduced.insert("status".to_owned(), pod["status"].clone());
    Value::Object(reduced)
}

/// Returns these fields of an object.
fn only(object: &Value, fields: &[&str]) -> Value {
    let all = object.as_object().into_iter().flatten();
    let kept = all.filter(|(name, _)| fields.contains(&name.as_str()));
    Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn volumes_and_security_are_left_out() {
        let whole = json!({
            "metadata": {"name": "w-0"},
            "spec": {
                "nodeName": "n",
                "volumes": [{"name": "v"}],
                "containers": [{"name": "worker", "args": ["run"], "volumeMounts": []}],
            },
            "status": {"phase": "Running"},
        });
        let expected = json!({
            "metadata": {"name": "w-0"},
            "spec": {"nodeName": "n", "containers": [{"name": "worker", "args": ["run"]}]},
            "status": {"phase": "Running"},
        });
        assert_eq!(pod(&whole), expected);
        assert_eq!(pod(&json!({}))["spec"], json!({}));
    }
}
