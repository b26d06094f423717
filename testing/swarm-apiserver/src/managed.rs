//! The owners of fields: `metadata.managedFields` as sets of paths.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::kinds::Kind;

/// The path of a field: its keys, outermost first.
pub(crate) type Path = Vec<String>;
pub(crate) type Fields = BTreeSet<Path>;

/// The fields of metadata that the server keeps. They have no owner.
pub(crate) const OWN: [&str; 10] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
];

/// A writer, and its way of writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Writer {
    pub(crate) manager: String,
    /// `Apply` or `Update`.
    pub(crate) operation: &'static str,
    pub(crate) subresource: String,
}

/// The fields that one writer owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    manager: String,
    operation: String,
    subresource: String,
    time: String,
    pub(crate) fields: Fields,
}

impl Entry {
    pub(crate) fn is_of(&self, writer: &Writer) -> bool {
        (&*self.manager, &*self.operation, &*self.subresource)
            == (&*writer.manager, writer.operation, &*writer.subresource)
    }

    /// The writer's name, as in messages.
    pub(crate) fn whose(&self) -> &str {
        &self.manager
    }
}

/// The entries of an object.
pub(crate) fn entries(object: &Value) -> Vec<Entry> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let each = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let entry = |value: &Value| Entry {
        manager: text(&value["manager"]),
        operation: text(&value["operation"]),
        subresource: text(&value["subresource"]),
        time: text(&value["time"]),
        fields: from_v1(&value["fieldsV1"]),
    };
    each.map(entry).collect()
}

/// Records `fields` as the fields of `writer`, in addition to the entries of `others`. An entry
/// keeps its time while its fields are the same and the object `is_same`.
pub(crate) fn set_entries(
    object: &mut Value,
    kind: &Kind,
    others: Vec<Entry>,
    (writer, fields): (&Writer, Fields),
    is_same: bool,
    now: Timestamp,
) {
    let mut all = others;
    let at = all.iter().position(|entry| entry.is_of(writer));
    let before = at.map(|at| all.remove(at));
    let kept = before.filter(|before| is_same && before.fields == fields);
    let time = kept.map_or_else(|| seconds(now), |before| before.time);
    let Writer { manager, operation, subresource } = writer;
    all.push(Entry {
        manager: manager.clone(),
        operation: (*operation).to_owned(),
        subresource: subresource.clone(),
        time,
        fields,
    });
    all.retain(|entry| !entry.fields.is_empty());
    let each = all.iter().map(|entry| {
        let mut value = json!({
            "manager": entry.manager, "operation": entry.operation,
            "apiVersion": kind.api_version(), "time": entry.time,
            "fieldsType": "FieldsV1", "fieldsV1": to_v1(&entry.fields),
        });
        if !entry.subresource.is_empty() {
            value["subresource"] = json!(entry.subresource);
        }
        value
    });
    object["metadata"]["managedFields"] = each.collect();
}

/// Writes a time as metadata does.
pub(crate) fn seconds(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The fields that an object sets, except for the server's own fields. A list is one field. A map
/// that the kind calls atomic is one field, too. Of any other map, only its content counts as
/// fields.
pub(crate) fn fields(object: &Value, kind: &Kind) -> Fields {
    let mut found = Fields::new();
    leaves(object, kind, &mut Vec::new(), &mut found);
    let is_own = |path: &Path| match path.as_slice() {
        [first] => first == "apiVersion" || first == "kind" || first == "metadata",
        [first, second, ..] => first == "metadata" && OWN.contains(&second.as_str()),
        [] => true,
    };
    found.retain(|path| !is_own(path));
    found
}

fn leaves(value: &Value, kind: &Kind, path: &mut Path, found: &mut Fields) {
    match value {
        Value::Object(map) if !kind.atomic.contains(&path.join(".").as_str()) => {
            for (key, value) in map {
                path.push(key.clone());
                leaves(value, kind, path, found);
                path.pop();
            }
        }
        _ => {
            found.insert(path.clone());
        }
    }
}

/// The value at a path.
pub(crate) fn at<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, key| value.get(key))
}

/// Whether one path leads through the other, or both are the same.
pub(crate) fn meet(one: &[String], other: &[String]) -> bool {
    one.iter().zip(other).all(|(one, other)| one == other)
}

fn to_v1(fields: &Fields) -> Value {
    let mut all = Value::Object(Map::new());
    for path in fields {
        let mut place = &mut all;
        for key in path {
            place = &mut place[format!("f:{key}")];
        }
        if place.is_null() {
            *place = Value::Object(Map::new());
        }
    }
    all
}

fn from_v1(value: &Value) -> Fields {
    fn walk(value: &Value, path: &mut Path, found: &mut Fields) {
        let inner = value.as_object().into_iter().flatten();
        let inner: Vec<_> =
            inner.filter_map(|(key, it)| Some((key.strip_prefix("f:")?, it))).collect();
        if inner.is_empty() && !path.is_empty() {
            found.insert(path.clone());
        }
        for (key, value) in inner {
            path.push(key.to_owned());
            walk(value, path, found);
            path.pop();
        }
    }
    let mut found = Fields::new();
    walk(value, &mut Vec::new(), &mut found);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_an_object_are_read_as_they_were_written() {
        let kind = Kind::served("", "v1", "configmaps").unwrap();
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "uid": "u", "labels": {"k8s.io/x": "1"}, "finalizers": ["f"]},
            "data": {"config.yml": "x", "other": "y"},
        });
        let paths: Vec<_> = fields(&object, kind).iter().map(|path| path.join(" ")).collect();
        let expected =
            ["data config.yml", "data other", "metadata finalizers", "metadata labels k8s.io/x"];
        assert_eq!(paths, expected);
        assert_eq!(from_v1(&to_v1(&fields(&object, kind))), fields(&object, kind));
    }
}
