//! What was asked and answered, and how it changed an object, for people to read.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::route::Verb;

/// One request and its answer.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// When it was asked.
    pub at: Timestamp,
    /// What was asked for.
    pub verb: Verb,
    /// The plural of its resource, such as `pods`.
    pub resource: String,
    /// `status`, `scale`, `eviction` or empty.
    pub subresource: String,
    /// Empty for all namespaces, and for kinds without any.
    pub namespace: String,
    /// Empty where many are meant.
    pub name: String,
    /// What was answered; `None` if no answer arrived.
    pub code: Option<u16>,
    /// The object before.
    pub before: Option<Arc<Value>>,
    /// The object after.
    pub after: Option<Arc<Value>>,
    /// Whether only metadata was asked for.
    pub is_partial: bool,
}

impl Exchange {
    /// Whether it changed anything.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.before != self.after
    }

    /// Method and place: `update swarmledgers/statefulset.w`.
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

/// How `after` differs from `before`: each path that changed, with its new value, `None` if it went.
/// What the server itself keeps is left out, and times are. Lists are one value each, but for conditions:
/// they stand by their types.
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
        // Conditions, each by its type.
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
