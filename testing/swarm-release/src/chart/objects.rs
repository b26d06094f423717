//! The objects of the chart, as kustomize renders them, with their comments.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize as _;
use serde_yaml::{Mapping, Value};

use crate::repository::{kustomize, root};

/// The folders that are rendered, and the value that must be set for objects that only they have.
const RENDERED: [(&str, Part); 4] = [
    ("deploy/crds", Part::Crds),
    ("deploy/base", Part::Base),
    ("deploy/overlays/managed", Part::ManagedPools),
    ("deploy/overlays/listed", Part::Listed),
];
/// The folders of the sources, where the comments are.
const SOURCES: [&str; 3] = ["deploy/base", "deploy/components", "deploy/crds"];

/// The part of the manifests that an object is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The custom resources and the roles of their users.
    Crds,
    /// The operator for all namespaces.
    Base,
    /// The component `managed-pools`.
    ManagedPools,
    /// The component `listed-namespaces`.
    Listed,
}

/// An object of the manifests.
pub(super) struct Object {
    /// The folder that has the object first.
    pub(super) part: Part,
    /// The kind, such as `Deployment`.
    pub(super) kind: String,
    /// The name of the object.
    pub(super) name: String,
    /// The whole object.
    pub(super) value: Value,
    /// The file that defines it, and the comment above its definition.
    pub(super) source: Option<Source>,
}

/// The definition of an object in a file of `deploy/`.
#[derive(Clone)]
pub(super) struct Source {
    /// The path of the file, in the checkout.
    pub(super) file: String,
    /// The comment above the definition, a line each, with `#`.
    pub(super) comment: Vec<String>,
}

impl Object {
    /// The name of the template of this object.
    pub(super) fn file(&self) -> String {
        let short = self.name.strip_suffix(".swarm.k8slab.info").unwrap_or(&self.name);
        let kind = match &*self.kind {
            "CustomResourceDefinition" => "crd".to_owned(),
            other => other.to_lowercase(),
        };
        format!("{kind}-{short}.yaml")
    }
}

/// The documents of a YAML stream, without empty ones.
pub(super) fn documents(text: &str) -> Result<Vec<Value>> {
    let documents = serde_yaml::Deserializer::from_str(text).map(Value::deserialize);
    let documents = documents.collect::<Result<Vec<_>, _>>().context("no YAML")?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// The kind of an object.
pub(super) fn kind(object: &Value) -> &str {
    object.get("kind").and_then(Value::as_str).unwrap_or_default()
}

/// The text of a field of the metadata of an object, or an empty text.
pub(super) fn metadata<'a>(object: &'a Value, field: &str) -> &'a str {
    let field = object.get("metadata").and_then(|metadata| metadata.get(field));
    field.and_then(Value::as_str).unwrap_or_default()
}

/// Renders all parts. An object that several parts have is from the first of them.
///
/// # Errors
///
/// When kustomize fails.
pub(super) fn all() -> Result<Vec<Object>> {
    let sources = sources()?;
    let mut found: Vec<Object> = Vec::new();
    for (folder, part) in RENDERED {
        for value in documents(&kustomize(folder)?)? {
            let (kind, name) = (kind(&value).to_owned(), metadata(&value, "name").to_owned());
            if found.iter().any(|object| (&object.kind, &object.name) == (&kind, &name)) {
                continue;
            }
            let source = sources.get(&(kind.clone(), name.clone())).cloned();
            found.push(Object { part, kind, name, value: in_order(value), source });
        }
    }
    Ok(found)
}

/// Puts the fields with kind and name first. kustomize sorts the fields of a CRD.
fn in_order(value: Value) -> Value {
    let Value::Mapping(mut rest) = value else { return value };
    let mut ordered = Mapping::new();
    for key in ["apiVersion", "kind", "metadata"] {
        ordered.extend(rest.shift_remove(key).map(|value| (key.into(), value)));
    }
    ordered.extend(rest);
    Value::Mapping(ordered)
}

/// The definitions in the sources, by kind and name.
fn sources() -> Result<BTreeMap<(String, String), Source>> {
    let mut found = BTreeMap::new();
    for path in SOURCES.map(|folder| yaml_files(&root().join(folder))).into_iter().flatten() {
        let text = std::fs::read_to_string(&path)?;
        let file = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        for document in text.split("\n---\n") {
            let Ok(value) = serde_yaml::from_str::<Value>(document) else { continue };
            let comment = document.lines().take_while(|line| line.starts_with('#'));
            let source =
                Source { file: file.clone(), comment: comment.map(str::to_owned).collect() };
            let key = (kind(&value).to_owned(), metadata(&value, "name").to_owned());
            found.entry(key).or_insert(source);
        }
    }
    Ok(found)
}

fn yaml_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    let files = paths.into_iter();
    let files = files.flat_map(|it| if it.is_dir() { yaml_files(&it) } else { vec![it] });
    files.filter(|path| path.extension().is_some_and(|it| it == "yaml")).collect()
}
