//! Leaves values out of an object, by their places.

use serde_json::Value;
use swarm_view::blank::MARK;

/// Fields that lose all values below them: params, environments, arguments, contents and output.
const LEFT_OUT: [&str; 11] = [
    "args",
    "binaryData",
    "command",
    "data",
    "env",
    "exec",
    "files",
    "httpHeaders",
    "lastOutput",
    "params",
    "stringData",
];
/// Lists of objects with names, which keep the name and the source of each value.
const VARIABLES: [&str; 2] = ["env", "httpHeaders"];
/// Prefix of annotations of this project.
const OURS: &str = "swarm.k8slab.info/";
/// Marks around the last line of a job's output in a sentence.
const QUOTE: (&str, &str) = ("(`", "`)");

/// Leaves out the values of params, environments, arguments, contents and quoted output. Names and
/// the number of values stay. O(value).
pub(super) fn leave_out(value: &mut Value) {
    match value {
        Value::String(text) => *text = without_output(text),
        Value::Array(items) => items.iter_mut().for_each(leave_out),
        Value::Object(fields) => {
            fields.remove("managedFields");
            for (name, value) in fields {
                match (name.as_str(), value) {
                    (name, Value::Array(items)) if VARIABLES.contains(&name) => {
                        items.iter_mut().for_each(variable);
                    }
                    (name, value) if LEFT_OUT.contains(&name) => blank(value),
                    ("annotations", Value::Object(all)) => {
                        all.iter_mut().for_each(|(name, value)| annotation(name, value));
                    }
                    // Kubernetes may put the last lines of a container there.
                    ("terminated", value) => value.get_mut("message").into_iter().for_each(blank),
                    (_, value) => leave_out(value),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Replaces each value below.
fn blank(value: &mut Value) {
    match value {
        Value::Null => {}
        Value::Array(items) => items.iter_mut().for_each(blank),
        Value::Object(fields) => fields.values_mut().for_each(blank),
        _ => *value = MARK.into(),
    }
}

/// Replaces the value of a variable or header.
fn variable(item: &mut Value) {
    let Value::Object(fields) = item else { return blank(item) };
    let is_value = |name: &str| !["name", "valueFrom"].contains(&name);
    fields.iter_mut().filter(|(name, _)| is_value(name)).for_each(|(_, value)| blank(value));
}

/// Replaces an annotation. One of this project may be a document, and keeps what documents keep.
fn annotation(name: &str, value: &mut Value) {
    let text = value.as_str().filter(|_| name.starts_with(OURS));
    let Some(text) = text else { return blank(value) };
    match serde_json::from_str::<Value>(text) {
        Ok(mut document) if !document.is_string() => {
            leave_out(&mut document);
            *value = document.to_string().into();
        }
        _ => leave_out(value),
    }
}

/// Removes the output of a job that a sentence quotes. A line may have the closing mark in it.
fn without_output(text: &str) -> String {
    let (open, close) = QUOTE;
    let quoted = text.split_once(open);
    let around = quoted.and_then(|(before, rest)| Some((before, rest.rsplit_once(close)?.1)));
    match around {
        Some((before, after)) => format!("{before}{open}{MARK}{close}{after}"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
