//! The files of the chart beyond its objects: its description, its pages and its helpers.

use anyhow::{Context, Result};
use serde_yaml::{Mapping, Value};

use super::Files;
use super::objects::{Object, Part, metadata};
use super::values::{self, Defaults};
use crate::repository::{VERSION, root};

/// Files as they are, but for the words in capitals below.
const PARTS: [(&str, &str); 4] = [
    ("README.md", include_str!("../../chart/README.md")),
    ("templates/NOTES.txt", include_str!("../../chart/NOTES.txt")),
    ("templates/_helpers.tpl", include_str!("../../chart/helpers.tpl")),
    ("templates/refusals.yaml", include_str!("../../chart/refusals.yaml")),
];

/// The example of a Swarm that the page of the chart shows.
const EXAMPLE: &str = "deploy/samples/autoscale.yaml";

/// All files of the chart beyond its objects.
///
/// # Errors
///
/// When a default or a description is missing.
pub(super) fn all(objects: &[Object], defaults: &Defaults) -> Result<Files> {
    let table = values::table(defaults)?;
    let kept = kept(objects);
    let filled = |text: &str| {
        text.replace("{{VERSION}}", VERSION)
            .replace("{{VALUES}}\n", &table)
            .replace("{{CRDS}}", &kept)
    };
    let mut files: Files =
        PARTS.map(|(name, text)| (name.to_owned(), filled(text))).into_iter().collect();
    files.insert("Chart.yaml".to_owned(), chart(objects)?);
    files.insert("values.yaml".to_owned(), values::yaml(defaults)?);
    files.insert("values.schema.json".to_owned(), values::schema(defaults)?);
    Ok(files)
}

/// The objects that stay when the release is uninstalled, as words for `kubectl delete`.
fn kept(objects: &[Object]) -> String {
    let kept = objects.iter().filter(|object| object.part == Part::Crds);
    let words = kept.map(|object| match &*object.kind {
        "CustomResourceDefinition" => format!("crd/{}", object.name),
        kind => format!("{}/{}", kind.to_lowercase(), object.name),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The text of `Chart.yaml`.
fn chart(objects: &[Object]) -> Result<String> {
    let crds = objects.iter().filter(|object| object.kind == "CustomResourceDefinition");
    let crds = crds.map(crd).collect::<Result<Vec<_>>>()?;
    let example = std::fs::read_to_string(root().join(EXAMPLE))?;
    let example: Value = serde_yaml::from_str(&example)?;
    let annotations = [
        ("artifacthub.io/crds", serde_yaml::to_string(&crds)?),
        ("artifacthub.io/crdsExamples", serde_yaml::to_string(&[example])?),
        ("artifacthub.io/images", images()?),
        ("artifacthub.io/license", "Apache-2.0".to_owned()),
        ("artifacthub.io/operator", "true".to_owned()),
        ("artifacthub.io/operatorCapabilities", "Seamless Upgrades".to_owned()),
    ];
    let keywords = ["operator", "scheduling", "workers", "jobs"];
    let chart = map([
        ("apiVersion", "v2".into()),
        ("name", "swarm".into()),
        ("description", "Gives every job exactly one worker out of a pool.".into()),
        ("type", "application".into()),
        ("version", VERSION.into()),
        ("appVersion", VERSION.into()),
        // The first version in which policies of admission are stable.
        ("kubeVersion", ">=1.30.0-0".into()),
        ("keywords", keywords.map(Value::from).to_vec().into()),
        ("annotations", map(annotations.map(|(key, text)| (key, text.into())))),
    ]);
    let text = serde_yaml::to_string(&chart)?;
    Ok(format!("# Written by `just chart` from the manifests in deploy/.\n{text}"))
}

/// A CRD as the page of the chart lists it.
fn crd(object: &Object) -> Result<Value> {
    let spec = object.value.get("spec").context("a CRD has a spec")?;
    let kind = spec["names"]["kind"].as_str().unwrap_or_default();
    let version = spec["versions"].get(0).context("a CRD has a version")?;
    let description = version["schema"]["openAPIV3Schema"]["description"].as_str();
    let first = description.unwrap_or_default().split(". ").next().unwrap_or_default();
    Ok(map([
        ("kind", kind.into()),
        ("version", version["name"].clone()),
        ("name", metadata(&object.value, "name").into()),
        ("displayName", kind.into()),
        ("description", first.replace('\n', " ").into()),
    ]))
}

fn images() -> Result<String> {
    let image = |name: &str| {
        let image = format!("registry.example.com/swarm/{name}:{VERSION}");
        map([("name", name.into()), ("image", image.into())])
    };
    Ok(serde_yaml::to_string(&["swarm-operator", "swarm-worker"].map(image))?)
}

fn map<const N: usize>(entries: [(&str, Value); N]) -> Value {
    let entries = entries.map(|(key, value)| (key.into(), value));
    Value::Mapping(Mapping::from_iter(entries))
}
