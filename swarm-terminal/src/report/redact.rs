//! Redacts objects: values that may be secret, by their places.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Output;
use super::words::{REDACTED, is_secret, is_secret_option, without_output, without_passwords};

/// Fields that lose all values: params, contents of files, ConfigMaps and Secrets.
const WHOLE: [&str; 5] = ["params", "data", "stringData", "binaryData", "files"];
/// Fields with names of objects as keys, which are left out of paths.
const NAMED: [&str; 2] = ["jobs", "runners"];
/// Fields of the variables of an environment that stay.
const OF_VARIABLE: [&str; 2] = ["name", "valueFrom"];
/// The prefix of the annotations of this project.
const OURS: &str = "swarm.k8slab.info/";
/// The annotation with the whole object as a user wrote it.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The number of redacted values, by path.
pub(super) type Redacted = BTreeMap<String, usize>;

/// Redacts a value, and returns the paths of all redactions. Passwords in texts and in words of
/// commands are redacted everywhere. O(value).
pub(super) fn redact(value: &mut Value, output: Output) -> Redacted {
    let mut walk = Walk { output, redacted: Redacted::new() };
    walk.any("", value);
    walk.redacted
}

struct Walk {
    output: Output,
    redacted: Redacted,
}

impl Walk {
    fn count(&mut self, path: &str, number: usize) {
        if 0 < number {
            *self.redacted.entry(path.to_owned()).or_default() += number;
        }
    }

    fn any(&mut self, path: &str, value: &mut Value) {
        match value {
            Value::String(text) => self.text(path, text),
            Value::Array(items) => self.items(path, items),
            Value::Object(fields) => self.fields(path, fields),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn text(&mut self, path: &str, text: &mut String) {
        let mut clean = without_passwords(text).into_owned();
        if self.output == Output::Redacted {
            clean = without_output(&clean).into_owned();
        }
        if clean != *text {
            *text = clean;
            self.count(path, 1);
        }
    }

    /// Redacts the items of a list. In a command, the word after an option can be a password.
    fn items(&mut self, path: &str, items: &mut [Value]) {
        let path = format!("{path}[*]");
        let mut is_value = false;
        for item in items {
            let is_option = item.as_str().is_some_and(is_secret_option);
            if is_value && item.is_string() {
                self.whole(&path, item);
            } else {
                self.any(&path, item);
            }
            is_value = is_option;
        }
    }

    fn fields(&mut self, path: &str, fields: &mut Map<String, Value>) {
        if fields.remove("managedFields").is_some() {
            self.count(&below(path, "managedFields"), 1);
        }
        self.keys(path, fields);
        let is_named =
            NAMED.iter().any(|name| path == *name || path.ends_with(&format!(".{name}")));
        for (name, value) in fields {
            let path = if is_named { below(path, "*") } else { below(path, name) };
            match name.as_str() {
                name if WHOLE.contains(&name) || is_password(name) => self.whole(&path, value),
                "env" => self.env(&path, value),
                "httpHeaders" => self.variables(&path, value),
                "annotations" => self.annotations(&path, value),
                "lastOutput" if self.output == Output::Redacted => self.whole(&path, value),
                // Kubernetes may put the last lines of a container there.
                "terminated" if self.output == Output::Redacted => self.terminated(&path, value),
                _ => self.any(&path, value),
            }
        }
    }

    /// Redacts the keys of a map: the name of a job can be an address with a password.
    fn keys(&mut self, path: &str, fields: &mut Map<String, Value>) {
        let is_dirty = |key: &&String| *without_passwords(key) != ***key;
        let dirty: Vec<_> = fields.keys().filter(is_dirty).cloned().collect();
        self.count(path, dirty.len());
        for key in dirty {
            let Some(value) = fields.remove(&key) else { continue };
            let clean = without_passwords(&key).into_owned();
            let others = (2..).map(|number| format!("{clean} ({number})"));
            let mut names = std::iter::once(clean.clone()).chain(others);
            if let Some(free) = names.find(|name| !fields.contains_key(name)) {
                fields.insert(free, value);
            }
        }
    }

    /// Redacts a value, or each value of a map or list. Names stay.
    fn whole(&mut self, path: &str, value: &mut Value) {
        let number = match value {
            Value::Null => 0,
            Value::Object(fields) => fields.values_mut().map(replace).sum(),
            Value::Array(items) => items.iter_mut().map(replace).sum(),
            one => replace(one),
        };
        self.count(path, number);
    }

    /// Redacts an environment: a map of a runner, or a list of a container.
    fn env(&mut self, path: &str, value: &mut Value) {
        if value.is_array() { self.variables(path, value) } else { self.whole(path, value) }
    }

    /// Redacts the values in a list of objects with names.
    fn variables(&mut self, path: &str, value: &mut Value) {
        let Value::Array(items) = value else { return self.whole(path, value) };
        let path = format!("{path}[*]");
        for item in items {
            let Value::Object(fields) = item else {
                let number = replace(item);
                self.count(&path, number);
                continue;
            };
            for (name, value) in fields {
                let path = below(&path, name);
                match value {
                    value if !OF_VARIABLE.contains(&name.as_str()) => self.whole(&path, value),
                    Value::String(_) if name != "name" => self.whole(&path, value),
                    value => self.any(&path, value),
                }
            }
        }
    }

    /// Redacts annotations. Tools keep whole objects in them.
    fn annotations(&mut self, path: &str, value: &mut Value) {
        let Value::Object(fields) = value else { return self.any(path, value) };
        for (name, value) in fields {
            let path = below(path, name);
            let Value::String(text) = value else {
                self.whole(&path, value);
                continue;
            };
            let is_ours = name.starts_with(OURS);
            let document = serde_json::from_str::<Value>(text);
            match document {
                Ok(mut document) if is_ours && !document.is_string() => {
                    let before = document.clone();
                    self.any(&path, &mut document);
                    if document != before {
                        *text = document.to_string();
                    }
                }
                _ if name == LAST_APPLIED || text.contains('{') => self.whole(&path, value),
                _ => self.text(&path, text),
            }
        }
    }

    fn terminated(&mut self, path: &str, value: &mut Value) {
        if let Some(message) = value.get_mut("message") {
            self.whole(&below(path, "message"), message);
        }
        self.any(path, value);
    }
}

/// Whether a field with this name has a password. The names of Secrets stay.
fn is_password(name: &str) -> bool {
    is_secret(name) && name.to_lowercase().contains("pass")
}

/// Replaces a value, and returns the number of replaced ones.
fn replace(value: &mut Value) -> usize {
    if value.is_null() {
        return 0;
    }
    *value = REDACTED.into();
    1
}

/// Returns the path of a field.
fn below(path: &str, name: &str) -> String {
    let is_plain = name == "*" || name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    match (path, is_plain) {
        (_, false) => format!("{path}[{}]", name.escape_debug()),
        ("", true) => name.to_owned(),
        (_, true) => format!("{path}.{name}"),
    }
}

#[cfg(test)]
mod tests;
