//! Compares the schema of the documents with `docs/reference/documents.schema.json`.
//!
//! A field may be added. No field may be removed, renamed, or get another type, since scripts read it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{env, fs};

use serde_json::{Value, json};
use swarm_core::history::Episode;
use swarm_view::schema::documents;

/// The types of each field, by the path of the field.
type Fields = BTreeMap<String, BTreeSet<String>>;

/// Adds the fields of a schema. `root` has the definitions.
fn add(fields: &mut Fields, root: &Value, schema: &Value, path: &str) {
    let definition = |reference: &str| root.pointer(reference.trim_start_matches('#'));
    if let Some(schema) = schema["$ref"].as_str().and_then(definition) {
        add(fields, root, schema, path);
    }
    let types = fields.entry(path.to_owned()).or_default();
    match &schema["type"] {
        Value::String(one) => drop(types.insert(one.clone())),
        Value::Array(all) => types.extend(all.iter().filter_map(Value::as_str).map(str::to_owned)),
        _ => {}
    }
    for choice in ["anyOf", "oneOf", "allOf"] {
        for schema in schema[choice].as_array().into_iter().flatten() {
            add(fields, root, schema, path);
        }
    }
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        add(fields, root, schema, &format!("{path}.{name}"));
    }
    for (part, name) in [("items", "[]"), ("additionalProperties", "{}")] {
        if schema[part].is_object() {
            add(fields, root, &schema[part], &format!("{path}{name}"));
        }
    }
}

fn fields(schema: &Value) -> Fields {
    let mut fields = Fields::new();
    add(&mut fields, schema, schema, "");
    fields.remove("");
    fields
}

/// Returns the fields of `before` that `now` lacks, or that have another type there.
fn broken(before: &Value, now: &Value) -> Vec<String> {
    let now = fields(now);
    let before = fields(before).into_iter();
    let is_broken = |(path, types): &(String, BTreeSet<String>)| now.get(path) != Some(types);
    before.filter(is_broken).map(|(path, types)| format!("{path}: {types:?}")).collect()
}

#[test]
fn documents_lose_no_field_and_the_committed_schema_is_complete() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/documents.schema.json");
    let committed = fs::read_to_string(&path).unwrap_or_else(|_| "{}".to_owned());
    let (committed, now) = (serde_json::from_str::<Value>(&committed).unwrap(), documents());
    let broken = broken(&committed, &now);
    assert!(broken.is_empty(), "scripts read these fields; keep them: {broken:#?}");
    if env::var_os("UPDATE").is_some() {
        fs::write(path, format!("{now:#}\n")).unwrap();
    } else {
        assert!(committed == now, "the documents have new fields; run `just generate`");
    }
}

#[test]
fn a_field_that_is_removed_renamed_or_changed_is_found() {
    let schema = |fields: Value| {
        json!({"properties": {"status": {"$ref": "#/$defs/Status"}},
        "$defs": {"Status": {"properties": fields}}})
    };
    let text = json!({"type": "string"});
    let before = schema(json!({"name": text, "jobs": {"items": {"properties": {"a": text}}}}));
    let more = schema(json!({"name": text, "new": text, "jobs": {"items": {"properties":
        {"a": text, "b": text}}}}));
    assert_eq!(broken(&before, &more), [""; 0]);
    let removed = schema(json!({"name": text}));
    assert_eq!(
        broken(&before, &removed),
        [".status.jobs: {}", ".status.jobs[]: {}", ".status.jobs[].a: {\"string\"}"]
    );
    let renamed = schema(json!({"title": text, "jobs": {"items": {"properties": {"a": text}}}}));
    assert_eq!(broken(&before, &renamed), [".status.name: {\"string\"}"]);
    let changed = schema(json!({"name": {"type": ["string", "null"]},
        "jobs": {"items": {"properties": {"a": {"type": "integer"}}}}}));
    assert_eq!(broken(&before, &changed).len(), 2);
}

/// Returns the paths of all fields of a document.
fn paths(document: &Value, path: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::from([path.to_owned()]);
    match document {
        Value::Object(object) => {
            all.extend(object.iter().flat_map(|(name, it)| paths(it, &format!("{path}.{name}"))));
        }
        Value::Array(list) => {
            all.extend(list.iter().flat_map(|it| paths(it, &format!("{path}[]"))));
        }
        _ => {}
    }
    all
}

#[test]
fn the_schema_has_the_fields_of_an_episode_of_the_core() {
    let document = json!({
        "startMs": 1, "endMs": 2, "causes": ["a"], "firstRevision": 1, "lastRevision": 2,
        "counts": {"new": 1}, "editsOmitted": 1, "omitted": 1, "holders": "7f", "isCut": true,
        "isOpen": true, "isGap": true, "outage": "disk",
        "moves": [{"job": "a", "from": "w-0", "to": "w-1", "reason": "pin", "revision": 2,
            "releasedMs": 1, "acknowledgedMs": 2, "grantedMs": 3, "runningMs": 4}],
        "edits": [{"atMs": 1, "fields": ["pin"], "jobs": ["a"]}],
    });
    let episode: Episode = serde_json::from_value(document.clone()).unwrap();
    assert_eq!(serde_json::to_value(episode).unwrap(), document, "a field of an episode is new");
    let prefix = ".history.episodes[]";
    let of_schema = fields(&documents()).into_keys().filter(|path| path.starts_with(prefix));
    let of_schema: BTreeSet<_> = of_schema.map(|path| path.replace("{}", ".new")).collect();
    assert_eq!(paths(&document, prefix), of_schema);
}
