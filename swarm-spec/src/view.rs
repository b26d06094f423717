//! Reads the view of plain workers strictly: another program may have written it, so it is kept or
//! refused, never guessed.

use serde_json::Value;
use swarm_core::View;

use crate::manifest::in_full;
use crate::yaml;

/// Reads a view, also a view of swarm's predecessors. Fields may be empty or missing, and an empty
/// text is an empty view. O(text).
///
/// # Errors
///
/// A sentence about a text that is not a view.
///
/// ```
/// use swarm_spec::view::read;
///
/// assert_eq!(read("workloads:"), Ok(Default::default()));
/// let view = read("workloads:\n  w-0:\n    jobs: [a, b]\nversion: 3\n")?;
/// assert_eq!((view.workers["w-0"].jobs.len(), view.version), (2, 3));
/// assert!(read("listen: 8080").is_err());
/// # Ok::<(), String>(())
/// ```
pub fn read(text: &str) -> Result<View, String> {
    let mut documents = yaml::documents(text).map_err(|error| in_full(&error))?;
    let value = match (documents.pop(), documents.is_empty()) {
        (None, _) => return Ok(View::default()),
        (Some((_, value)), true) => value,
        (Some(_), false) => return Err("it has several documents; a view is one".to_owned()),
    };
    of(&value)
}

/// Reads a view from a parsed document. O(document).
///
/// # Errors
///
/// As [`read`].
pub fn of(value: &Value) -> Result<View, String> {
    // Otherwise a whole Kubernetes object would count as an empty view, and all jobs as new.
    if value.get("kind").is_some() {
        return Err("it is a Kubernetes object; use the text of its key, as printed by \
                    `kubectl get configmap NAME -o 'jsonpath={.data.config\\.yml}'`"
            .to_owned());
    }
    let fields = value.as_object().ok_or("it is not a map with `workloads` and `version`")?;
    if !fields.contains_key("workloads") {
        if !fields.contains_key("version") {
            return Err("it has neither `workloads` nor `version`".to_owned());
        }
        // Many files have a version of their format; a view may have no other field with it.
        if let Some(other) = fields.keys().find(|name| *name != "version") {
            return Err(yaml::printable(&format!("it has `{other}` and no `workloads`")));
        }
    }
    let mut value = value.clone();
    without_nothing(&mut value);
    serde_path_to_error::deserialize(&value)
        .map_err(|error| yaml::printable(&format!("field `{}`: {}", error.path(), error.inner())))
}

/// Whether a field manager with these `fieldsV1` in `managedFields` was the last writer of `key` of
/// a ConfigMap.
///
/// ```
/// use serde_json::json;
/// use swarm_spec::view::is_owned;
///
/// let fields = json!({"f:data": {".": {}, "f:config.yml": {}}});
/// assert!(is_owned(&fields, "config.yml"));
/// assert!(!is_owned(&fields, "other"));
/// ```
#[must_use]
pub fn is_owned(fields: &Value, key: &str) -> bool {
    // The manager that created the map owns `f:data` with `.`; each key has its own owner.
    fields["f:data"].get(format!("f:{key}")).is_some()
}

/// Removes fields without a value, and gives workers without a value an empty entry.
fn without_nothing(value: &mut Value) {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
        let workers = fields.get_mut("workloads").and_then(Value::as_object_mut);
        for entry in workers.into_iter().flat_map(|workers| workers.values_mut()) {
            if entry.is_null() {
                *entry = Value::Object(serde_json::Map::new());
            } else if let Some(fields) = entry.as_object_mut() {
                fields.retain(|_, value| !value.is_null());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_predecessors_left_out_may_be_missing() {
        for text in ["", "\n# later\n", "workloads:", "workloads: {}\nversion:", "version: 0\n"] {
            assert_eq!(read(text), Ok(View::default()), "{text:?}");
        }
        let text = "workloads:\n  w-0:\n  w-1:\n    jobs:\n  w-2:\n    jobs: [a, a]\n    more: 1\n";
        let counts: Vec<_> = read(text).unwrap().workers.values().map(|it| it.jobs.len()).collect();
        assert_eq!(counts, [0, 0, 1]);
    }

    #[test]
    fn what_is_no_view_is_refused_with_a_reason() {
        let cases = [
            ("listen: 8080", "it has neither `workloads` nor "),
            ("version: 1\nformatters: {}", "it has `formatters` and no `workloads`"),
            ("version: 3\nservices:\n  db:\n", "it has `services` and no `workloads`"),
            ("version: 1\nhandlers:\n", "it has `handlers` and no `workloads`"),
            ("just a text", "it is not a map "),
            ("kind: ConfigMap\nversion: 1", "it is a Kubernetes object"),
            ("version: 1\n---\nversion: 2", "it has several documents"),
            ("workloads: 3", "field `workloads`"),
            ("workloads: {w-0: {jobs: [two words]}}", "field `workloads.w-0.jobs"),
            ("version: -1", "field `version`"),
            ("workloads: [", "document 1 does not parse"),
        ];
        for (text, expected) in cases {
            let message = read(text).unwrap_err();
            assert!(message.starts_with(expected), "{text}: {message}");
        }
    }
}
