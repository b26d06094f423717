//! An object as a template of Helm.
//!
//! Each place of the table gets a marker, which no text of a manifest contains. The object becomes
//! YAML, then each marker becomes a template.

use anyhow::{Context, Result, ensure};
use serde_yaml::{Mapping, Value};

use super::fields::{Change, condition, places};
use super::objects::Object;

/// The namespace of the manifests. In a template it is the namespace of the release.
pub(super) const NAMESPACE: &str = "swarm-system";
/// Labels of every object of the chart.
const LABELS: Change = Change::Lines(r#"{{- include "swarm.labels" $ | nindent INDENT }}"#);

/// The template of an object, with the comment of its source.
///
/// # Errors
///
/// When a place of the table is not in the object.
pub(super) fn of(object: &Object) -> Result<String> {
    let mut value = object.value.clone();
    let mut markers = Markers::default();
    markers.set_namespace(&mut value);
    markers.change(&mut value, "metadata/labels", &LABELS)?;
    for place in places(object) {
        markers
            .change(&mut value, place.path, &place.change)
            .with_context(|| format!("{} {} has no {}", object.kind, object.name, place.path))?;
    }
    let yaml = serde_yaml::to_string(&value)?;
    let mut text = String::new();
    let condition = condition(object);
    text.extend(condition.iter().map(|line| format!("{line}\n")));
    text.push_str(&head(object));
    text.push_str(&markers.replaced(&yaml));
    text.push_str(if condition.is_some() { "{{- end }}\n" } else { "" });
    Ok(text)
}

/// The origin of an object, and its comment.
fn head(object: &Object) -> String {
    let Some(source) = &object.source else { return String::new() };
    let origin =
        format!("# Written by `just chart` from {}, which explains its fields.\n", source.file);
    let comment = source.comment.iter().filter(|line| !line.starts_with("# Generated"));
    comment.fold(origin, |text, line| text + line + "\n")
}

/// The value at a path, if there is one.
pub(super) fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('/').try_fold(object, |value, step| match value {
        Value::Sequence(all) => all.get(index(all, step)?),
        other => other.get(key(step)),
    })
}

fn at_mut<'a>(object: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    path.split('/').try_fold(object, |value, step| match value {
        Value::Sequence(all) => {
            let index = index(all, step)?;
            all.get_mut(index)
        }
        other => other.get_mut(key(step)),
    })
}

/// The position in a list: a number, or the name of an entry.
fn index(all: &[Value], step: &str) -> Option<usize> {
    let named = || all.iter().position(|entry| entry.get("name").is_some_and(|it| it == step));
    step.parse().ok().or_else(named)
}

/// The key of a step. `~1` means a slash, as in a JSON Pointer.
fn key(step: &str) -> String {
    step.replace("~1", "/")
}

/// The path of the parent, and the last step.
fn parent(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// The templates that replace the markers of an object.
#[derive(Default)]
struct Markers(Vec<Template>);

/// The text that replaces a marker.
enum Template {
    /// A value, in the line of its key.
    Value(String),
    /// Lines instead of the line of the marker.
    Lines(String),
}

impl Markers {
    /// Makes a marker that this template replaces.
    fn mark(&mut self, template: Template) -> String {
        self.0.push(template);
        marker(self.0.len() - 1)
    }

    /// Replaces the namespace of the manifests wherever it is the whole text of a field.
    fn set_namespace(&mut self, value: &mut Value) {
        match value {
            Value::String(text) if text == NAMESPACE => {
                let namespace = "{{ $.Release.Namespace | quote }}".to_owned();
                *text = self.mark(Template::Value(namespace));
            }
            Value::Sequence(all) => all.iter_mut().for_each(|value| self.set_namespace(value)),
            Value::Mapping(all) => all.values_mut().for_each(|value| self.set_namespace(value)),
            _ => {}
        }
    }

    fn change(&mut self, object: &mut Value, path: &str, change: &Change) -> Result<()> {
        match change {
            Change::Scalar(template) => self.replace(object, path, (*template).to_owned()),
            Change::After(prefix, template) => {
                let is_there = at(object, path).and_then(Value::as_str);
                ensure!(is_there.is_some_and(|it| it.starts_with(prefix)), "no text {prefix}…");
                self.replace(object, path, format!("{prefix}{template}"))
            }
            Change::Block(name) => {
                let block = format!("{{{{- toYaml $.Values.{name} | nindent BLOCK }}}}");
                self.replace(object, path, block)
            }
            Change::Ports(name) => {
                let lines = format!(
                    "{{{{- range $.Values.{name} }}}}\n- port: {{{{ . }}}}\n  protocol: TCP\n{{{{- end }}}}"
                );
                *at_mut(object, path).context("no list of ports")? = Value::Sequence(Vec::new());
                self.add(object, path, lines)
            }
            Change::Key(name) => {
                let (parent, key) = parent(path);
                let lines = format!(
                    "{{{{- with $.Values.{name} }}}}\n{key}: {{{{- toYaml . | nindent BLOCK }}}}\n{{{{- end }}}}"
                );
                ensure!(at(object, path).is_none(), "the key is there already");
                self.add(object, parent, lines)
            }
            Change::Entries(name) => {
                let lines = format!(
                    "{{{{- with $.Values.{name} }}}}\n{{{{- toYaml . | nindent INDENT }}}}\n{{{{- end }}}}"
                );
                self.add(object, path, lines)
            }
            Change::Lines(lines) => self.add(object, path, (*lines).to_owned()),
        }
    }

    fn replace(&mut self, object: &mut Value, path: &str, template: String) -> Result<()> {
        *at_mut(object, path).context("no such field")? =
            self.mark(Template::Value(template)).into();
        Ok(())
    }

    /// Adds lines to the map or list at a path. A map of labels or annotations may be absent.
    fn add(&mut self, object: &mut Value, path: &str, lines: String) -> Result<()> {
        if at(object, path).is_none() {
            let (parent, key) = parent(path);
            let parent = at_mut(object, parent).and_then(Value::as_mapping_mut);
            parent.context("no such map")?.insert(key.into(), Mapping::new().into());
        }
        let marker = self.mark(Template::Lines(lines));
        match at_mut(object, path).context("no such field")? {
            Value::Sequence(all) => all.push(marker.into()),
            Value::Mapping(all) => drop(all.insert(marker.into(), Value::Null)),
            _ => anyhow::bail!("neither a map nor a list"),
        }
        Ok(())
    }

    /// Puts the templates into the YAML of the object.
    fn replaced(&self, yaml: &str) -> String {
        yaml.lines().map(|line| self.line(line) + "\n").collect()
    }

    fn line(&self, line: &str) -> String {
        // Helm would read such braces, which the descriptions of CRDs contain.
        let line = line.replace("{{", r#"{{ "{{" }}"#);
        let indent = line.len() - line.trim_start().len();
        let text = line.trim_start();
        let alone = text.trim_start_matches("- ").trim_end_matches(": null");
        // A key in the line of a dash is two columns further to the right.
        let column = indent + if text.starts_with("- ") { 2 } else { 0 };
        let mut written = line.clone();
        for (number, template) in self.0.iter().enumerate() {
            match template {
                Template::Lines(lines) if alone == marker(number) => {
                    let lines = lines.lines().map(|line| format!("{:indent$}{line}", ""));
                    return indented(&lines.collect::<Vec<_>>().join("\n"), indent);
                }
                Template::Lines(_) => {}
                Template::Value(value) => {
                    written = written.replace(&marker(number), &indented(value, column));
                }
            }
        }
        written
    }
}

/// Puts numbers of columns into a template: of its own lines, and of the content of its key.
fn indented(template: &str, column: usize) -> String {
    template.replace("INDENT", &column.to_string()).replace("BLOCK", &(column + 2).to_string())
}

/// A text that YAML writes without quotes, and that no manifest contains.
fn marker(number: usize) -> String {
    format!("MARKER{number}OF")
}
