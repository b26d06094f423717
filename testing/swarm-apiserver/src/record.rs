//! Requests and answers, with the change of an object, for people to read.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::route::Verb;

/// One request and its answer.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The time of the request.
    pub at: Timestamp,
    /// The verb of the request.
    pub verb: Verb,
    /// The plural of its resource, such as `pods`.
    pub resource: String,
    /// `status`, `scale`, `eviction` or empty.
    pub subresource: String,
    /// The namespace; empty for all namespaces, and for kinds without one.
    pub namespace: String,
    /// The name; empty for a request about many objects.
    pub name: String,
    /// The code of the answer; `None` if no answer arrived.
    pub code: Option<u16>,
    /// The object before.
    pub before: Option<Arc<Value>>,
    /// The object after.
    pub after: Option<Arc<Value>>,
    /// Whether the request asked only for metadata.
    pub is_partial: bool,
}

impl Exchange {
    /// Whether the request changed the object.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.before != self.after
    }

    /// Returns method and place: `update swarmledgers/statefulset.w`.
    #[must_use]
    pub fn what(&self) -> String {
        let Self { verb, resource, subresource, name, .. } = self;
        let mut what = format!("{verb} {resource}");
        for part in [name, subresource] {
            if !part.is_empty() {
                what.push('/');
                what.push_str(part);
            }
        }
        what
    }
}

/// The differences of `after` from `before`: each changed path with its new value, `None` if the
/// path is missing now. Leaves out times and the fields that the server itself keeps. A list is one
/// value. Conditions are an exception: each has its type as its path.
#[must_use]
pub fn changes(before: Option<&Value>, after: Option<&Value>) -> BTreeMap<String, Option<Value>> {
    let flat = |object: Option<&Value>| {
        let mut found = BTreeMap::new();
        if let Some(object) = object {
            flatten(object, &mut Vec::new(), &mut found);
        }
        found
    };
    let (old, new) = (flat(before), flat(after));
    let gone = old.keys().filter(|path| !new.contains_key(*path));
    let mut changed: BTreeMap<_, _> = gone.map(|path| (path.clone(), None)).collect();
    let is_new = |(path, value): &(String, Value)| old.get(path) != Some(value);
    changed.extend(new.into_iter().filter(is_new).map(|(path, value)| (path, Some(value))));
    changed
}

fn flatten(value: &Value, path: &mut Vec<String>, found: &mut BTreeMap<String, Value>) {
    const LEFT_OUT: [&str; 9] = [
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "metadata.resourceVersion",
        "metadata.creationTimestamp",
        "metadata.generation",
        "metadata.managedFields",
        "apiVersion",
        "kind",
    ];
    let here = path.join(".");
    let is_time = here.ends_with("Time") || here.ends_with("Timestamp");
    let is_deletion = here == "metadata.deletionTimestamp";
    if LEFT_OUT.contains(&here.as_str()) || (is_time && !is_deletion) {
        return;
    }
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                path.push(key.clone());
                flatten(value, path, found);
                path.pop();
            }
        }
        // Each condition is found by its type.
        Value::Array(all) if !all.is_empty() && all.iter().all(|it| it["type"].is_string()) => {
            for value in all {
                let mut value = value.clone();
                let type_ = value.as_object_mut().and_then(|fields| fields.remove("type"));
                let type_ = type_.and_then(|it| it.as_str().map(str::to_owned));
                path.push(type_.unwrap_or_default());
                flatten(&value, path, found);
                path.pop();
            }
        }
        _ if is_deletion => drop(found.insert(here, Value::Bool(true))),
        _ => drop(found.insert(here, value.clone())),
    }
}
