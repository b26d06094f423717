//! The values of the chart as `values.yaml`, as a schema, and as a table for its README.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde_json::json;
use serde_yaml::{Mapping, Value};

use super::fields::{self, Change, Default, Field};
use super::objects::Object;
use super::template::at;

/// The width of comments in `values.yaml`.
const WIDTH: usize = 100;

/// The values of the table with their defaults, in its order.
pub(super) type Defaults = Vec<(&'static Field, Value)>;

/// Looks the defaults up in the manifests.
///
/// # Errors
///
/// When a place of the table is not in the manifests.
pub(super) fn defaults(objects: &[Object]) -> Result<Defaults> {
    let default = |field: &'static Field| {
        let value = match field.default {
            Default::Is(yaml) => serde_yaml::from_str(yaml).context("the default is no YAML"),
            Default::OfManifest => of_manifest(objects, field),
        };
        Ok((field, value.with_context(|| field.key)?))
    };
    fields::all().map(default).collect()
}

fn of_manifest(objects: &[Object], field: &Field) -> Result<Value> {
    let place = field.places.first().context("a place")?;
    let object = objects.iter().find(|object| place.is_in(object)).context("no such object")?;
    let value = at(&object.value, place.path).context("no such field in the manifests")?;
    Ok(match place.change {
        Change::Scalar(_) | Change::Block(_) => value.clone(),
        Change::After(prefix, _) => {
            let text = value.as_str().and_then(|text| text.strip_prefix(prefix));
            text.with_context(|| format!("no text {prefix}…"))?.into()
        }
        Change::Ports(_) => {
            let ports = value.as_sequence().context("no list")?.iter();
            Value::Sequence(ports.filter_map(|port| port.get("port").cloned()).collect())
        }
        Change::Key(_) | Change::Entries(_) | Change::Lines(_) => bail!("it adds something new"),
    })
}

/// The text of `values.yaml`.
pub(super) fn yaml(defaults: &Defaults) -> Result<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut previous = "";
    for (field, value) in defaults {
        let (group, key) = field.key.rsplit_once('.').unwrap_or(("", field.key));
        let indent = if group.is_empty() { 0 } else { 2 };
        if !lines.is_empty() && (group.is_empty() || group != previous) {
            lines.push(String::new());
        }
        if !group.is_empty() && group != previous {
            lines.push(format!("{group}:"));
        }
        previous = group;
        let comment = wrapped(field.comment, WIDTH - 2 - indent);
        let comment = comment.into_iter().map(|line| format!("# {line}"));
        let entry = Mapping::from_iter([(Value::from(key), value.clone())]);
        let entry = serde_yaml::to_string(&entry)?;
        let entry = comment.chain(entry.lines().map(str::to_owned));
        lines.extend(entry.map(|line| format!("{:indent$}{line}", "")));
    }
    Ok(lines.join("\n") + "\n")
}

/// The lines of a text with at most `width` characters each.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The text of `values.schema.json`. A key that it does not name is refused.
pub(super) fn schema(defaults: &Defaults) -> Result<String> {
    let mut properties: BTreeMap<&str, serde_json::Value> = BTreeMap::new();
    for (field, default) in defaults {
        let mut schema: serde_json::Value =
            serde_json::from_str(field.schema).with_context(|| field.key)?;
        schema["description"] = field.comment.into();
        schema["default"] = serde_json::to_value(default)?;
        match field.key.split_once('.') {
            None => drop(properties.insert(field.key, schema)),
            Some((group, key)) => {
                let closed = || json!({"type": "object", "additionalProperties": false});
                properties.entry(group).or_insert_with(closed)["properties"][key] = schema;
            }
        }
    }
    // Helm gives it to a chart that is part of another one.
    properties.insert("global", json!({"type": "object"}));
    let schema = sorted(json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart swarm",
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    }));
    Ok(serde_json::to_string_pretty(&schema)? + "\n")
}

/// Sorts the keys of all objects, so that the features of `serde_json` do not change a file.
fn sorted(value: serde_json::Value) -> serde_json::Value {
    match value {
        serde_json::Value::Object(all) => {
            let all: BTreeMap<_, _> =
                all.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            all.into_iter().collect()
        }
        serde_json::Value::Array(all) => all.into_iter().map(sorted).collect(),
        other => other,
    }
}

/// The table of values.
pub(super) fn table(defaults: &Defaults) -> Result<String> {
    let mut rows = vec!["| value | default | meaning |\n|---|---|---|".to_owned()];
    for (field, default) in defaults {
        let default = serde_json::to_string(default)?;
        rows.push(format!("| `{}` | `{default}` | {} |", field.key, field.comment));
    }
    Ok(rows.join("\n") + "\n")
}
