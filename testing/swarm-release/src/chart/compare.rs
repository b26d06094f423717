//! Compares what Helm renders with what kustomize renders.
//!
//! Both must have the same objects, with the same fields. These things may differ:
//!
//! - the order of objects, of fields, and of entries with names, such as environment variables;
//! - labels that the chart adds to an object, and the annotation that keeps an object;
//! - the namespace as an object, unless the values ask for it;
//! - the images of a release: in a clone the kustomizations call them `swarm-operator:dev` and
//!   `swarm-worker:dev`, and in a tagged tree they have the released names;
//! - the name of the binding for a list of namespaces, since Helm replaces a binding whose role
//!   changes, and `kubectl apply` cannot.

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};
use serde_yaml::Value;

use super::objects::{documents, kind, metadata};
use crate::release::pins;
use crate::repository::{VERSION, kustomize, root};

/// Folders of `deploy/`, and the values with which the chart has the same objects.
pub(super) struct Pair {
    folders: &'static [&'static str],
    /// The names of values files.
    pub(super) values: &'static [&'static str],
    /// Whether the chart has the namespace as an object.
    has_namespace: bool,
}

/// The pairs that are compared.
pub(super) const PAIRS: [Pair; 6] = [
    Pair { folders: &["deploy/base", "deploy/crds"], values: &[], has_namespace: false },
    Pair {
        folders: &["deploy/overlays/managed"],
        values: &["images", "managed"],
        has_namespace: false,
    },
    Pair {
        folders: &["deploy/overlays/listed"],
        values: &["images", "listed"],
        has_namespace: false,
    },
    Pair {
        folders: &["deploy/overlays/prod", "deploy/overlays/prod/crds"],
        values: &["prod"],
        has_namespace: true,
    },
    Pair { folders: &["deploy/overlays/dev"], values: &["images", "dev"], has_namespace: false },
    Pair { folders: &["deploy/overlays/all"], values: &["images", "all"], has_namespace: true },
];

/// Labels and annotations that only the chart adds.
const ADDED: [&str; 6] = [
    "app.kubernetes.io/name",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "helm.sh/chart",
    "helm.sh/resource-policy",
];

/// Objects by kind, namespace and name.
type Objects = BTreeMap<[String; 3], Value>;

/// Fails if `rendered` has other objects than the folders of the pair.
///
/// # Errors
///
/// When an object is missing, or one too many, or differs.
pub(super) fn same(pair: &Pair, rendered: &str) -> Result<()> {
    let mut expected = String::new();
    for folder in pair.folders {
        expected.push_str("---\n");
        expected.push_str(&kustomize(folder)?);
    }
    for pin in pins::read(root())? {
        expected = expected.replace(&pin.image(), &format!("{}:dev", pin.name));
    }
    if pair.values.is_empty() {
        for image in ["swarm-operator", "swarm-worker"] {
            let released = format!("registry.example.com/swarm/{image}:{VERSION}");
            expected = expected.replace(&format!("{image}:dev"), &released);
        }
    }
    let mut expected = comparable(&expected)?;
    if !pair.has_namespace {
        expected.retain(|[kind, ..], _| kind != "Namespace");
    }
    let mut rendered = comparable(rendered)?;
    for (id, object) in expected {
        let Some(other) = rendered.remove(&id) else { bail!("the chart has no {}", id.join(" ")) };
        if let Some(difference) = difference(&object, &other, "") {
            bail!("{}: {difference}", id.join(" "));
        }
    }
    let surplus: Vec<_> = rendered.keys().map(|id| id.join(" ")).collect();
    ensure!(surplus.is_empty(), "only the chart has {}", surplus.join(", "));
    Ok(())
}

fn comparable(text: &str) -> Result<Objects> {
    let mut objects = Objects::new();
    for mut object in documents(text)? {
        for notes in ["labels", "annotations"] {
            without_added(&mut object, notes);
        }
        sort_named(&mut object);
        let is_binding = kind(&object) == "ClusterRoleBinding";
        if is_binding && metadata(&object, "name") == "swarm-operator-watch" {
            object["metadata"]["name"] = "swarm-operator".into();
        }
        let id = [kind(&object), metadata(&object, "namespace"), metadata(&object, "name")];
        let id = id.map(str::to_owned);
        ensure!(!objects.contains_key(&id), "{} is there twice", id.join(" "));
        objects.insert(id, object);
    }
    Ok(objects)
}

/// Removes what the chart adds to labels or annotations, and the map if it is empty then.
fn without_added(object: &mut Value, notes: &str) {
    let metadata = object.get_mut("metadata").and_then(Value::as_mapping_mut);
    let Some(metadata) = metadata else { return };
    let Some(all) = metadata.get_mut(notes).and_then(Value::as_mapping_mut) else { return };
    all.retain(|key, _| key.as_str().is_none_or(|key| !ADDED.contains(&key)));
    if all.is_empty() {
        metadata.remove(notes);
    }
}

/// Sorts lists of entries with names, such as environment variables, by these names.
fn sort_named(value: &mut Value) {
    match value {
        Value::Sequence(all) => {
            all.iter_mut().for_each(sort_named);
            let name = |entry: &Value| Some(entry.get("name")?.as_str()?.to_owned());
            if all.iter().all(|entry| name(entry).is_some()) {
                all.sort_by_key(name);
            }
        }
        Value::Mapping(all) => all.values_mut().for_each(sort_named),
        _ => {}
    }
}

/// The first difference of two values, with its path.
fn difference(expected: &Value, found: &Value, path: &str) -> Option<String> {
    match (expected, found) {
        (Value::Mapping(some), Value::Mapping(others)) => {
            let surplus = others.keys().filter(|key| !some.contains_key(*key));
            let mut keys = some.keys().chain(surplus).filter_map(Value::as_str);
            keys.find_map(|key| {
                let none = Value::Null;
                let pair = [some, others].map(|map| map.get(key).unwrap_or(&none));
                difference(pair[0], pair[1], &format!("{path}/{key}"))
            })
        }
        (Value::Sequence(some), Value::Sequence(others)) if some.len() == others.len() => {
            let mut pairs = some.iter().zip(others).enumerate();
            pairs.find_map(|(at, (one, other))| difference(one, other, &format!("{path}/{at}")))
        }
        _ => (expected != found).then(|| {
            let [expected, found] = [expected, found].map(serde_yaml::to_string);
            let [expected, found] = [expected, found].map(Result::unwrap_or_default);
            format!("{path} is `{}`, and in the chart `{}`", expected.trim(), found.trim())
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(yaml: &str) -> Value {
        serde_yaml::from_str(yaml).unwrap()
    }

    #[test]
    fn a_difference_has_its_path() {
        let found = difference(&value("{a: [{b: 1}]}"), &value("{a: [{b: 2}]}"), "");
        assert_eq!(found.unwrap(), "/a/0/b is `1`, and in the chart `2`");
        let found = difference(&value("{a: 1}"), &value("{a: 1, b: 2}"), "");
        assert_eq!(found.unwrap(), "/b is `null`, and in the chart `2`");
        let found = difference(&value("[1]"), &value("[1, 2]"), "/a");
        assert!(found.unwrap().starts_with("/a is "));
        assert_eq!(difference(&value("{a: 1, b: 2}"), &value("{b: 2, a: 1}"), ""), None);
    }

    #[test]
    fn only_what_helm_adds_is_left_out() {
        let objects = comparable(
            "{kind: A, metadata: {name: a, labels: {app: b, helm.sh/chart: c}}, env: [{name: z}, {name: y}]}",
        );
        let expected =
            value("{kind: A, metadata: {name: a, labels: {app: b}}, env: [{name: y}, {name: z}]}");
        assert_eq!(objects.unwrap().into_values().collect::<Vec<_>>(), [expected]);
    }
}
