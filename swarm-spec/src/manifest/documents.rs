//! The documents of a file: finds the Swarm, and the other documents that it needs.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::location::Location;
use super::{ManifestError, short};
use crate::error::SpecError;
use crate::fields::Fields;
use crate::place;
use crate::spec::API_VERSION;
use crate::yaml::{Document, Unreadable};

/// One object of a file.
#[derive(Debug)]
pub(super) struct Object<'t> {
    pub(super) value: Value,
    /// The text with the object; empty if the object is from a cluster.
    text: &'t str,
    location: Location,
    /// An error about a key that is another text in Kubernetes.
    renamed: Option<Unreadable>,
    /// An error about two forms of one field.
    doubled: Option<SpecError>,
}

/// All objects of a file. It remembers which objects were used.
#[derive(Debug)]
pub(super) struct Objects<'t> {
    all: Vec<Object<'t>>,
    /// The source of the objects, for messages.
    pub(super) place: &'static str,
    is_a_file: bool,
    used: RefCell<BTreeSet<usize>>,
}

impl<'t> Objects<'t> {
    /// The objects of the documents, in their long form. Items of a `List`, as `kubectl get` prints
    /// it, count as documents. If `namespace` is given, objects of other namespaces are left out.
    pub(super) fn of(documents: Vec<Document<'t>>, namespace: Option<&str>) -> Self {
        let mut all = Vec::new();
        for (index, document) in documents.into_iter().enumerate() {
            let Document { text, number, mut value, renamed } = document;
            let object = |mut value: Value, path: String| {
                let location = Location { index, document: number, path, within: None };
                let doubled = short::expand(&mut value).err();
                Object { value, text, location, renamed: renamed.clone(), doubled }
            };
            match value.get_mut("items").map(Value::take) {
                Some(Value::Array(items)) if text_at(&value, "/kind") == "List" => {
                    let items = items.into_iter().enumerate();
                    all.extend(items.map(|(n, value)| object(value, format!("items[{n}]"))));
                }
                Some(items) => {
                    value["items"] = items;
                    all.push(object(value, String::new()));
                }
                None => all.push(object(value, String::new())),
            }
        }
        all.retain(|object| {
            let its = object.text("/metadata/namespace");
            namespace.is_none_or(|namespace| its.is_empty() || its == namespace)
        });
        Self { all, place: "this file", is_a_file: true, used: RefCell::default() }
    }

    /// The objects that were fetched from a namespace of a cluster.
    pub(super) fn of_namespace(values: impl IntoIterator<Item = Value>) -> Self {
        let all = values.into_iter().map(Object::alone).collect();
        Self { all, place: "this namespace", is_a_file: false, used: RefCell::default() }
    }

    /// Whether the source is a file, to which a document could be added.
    pub(super) fn is_a_file(&self) -> bool {
        self.is_a_file
    }

    /// The Swarm `name`, or the only Swarm.
    pub(super) fn swarm(&self, name: Option<&str>) -> Result<&Object<'t>, ManifestError> {
        let swarms: Vec<_> = self.of_kind("Swarm").collect();
        let names = || swarms.iter().map(|(_, swarm)| swarm.name().to_owned()).collect::<Vec<_>>();
        let meant =
            |(_, swarm): &&(usize, &Object<'_>)| name.is_none_or(|name| swarm.name() == name);
        let meant: Vec<_> = swarms.iter().filter(meant).collect();
        let (index, swarm) = match (meant.as_slice(), name) {
            _ if swarms.is_empty() => return Err(ManifestError::NoSwarm),
            ([(index, swarm)], _) => (*index, *swarm),
            ([], Some(name)) => {
                let wanted = name.to_owned();
                return Err(ManifestError::NoSuchSwarm { wanted, found: names() });
            }
            ([(_, first), (_, second), ..], Some(_)) => return Err(twice("Swarm", first, second)),
            _ => return Err(ManifestError::WhichSwarm { found: names() }),
        };
        if swarm.text("/apiVersion") != API_VERSION {
            let (at, found) =
                (Box::new(swarm.at("apiVersion")), swarm.text("/apiVersion").to_owned());
            return Err(ManifestError::ApiVersion { at, found });
        }
        swarm.has_its_keys()?;
        swarm.is_single_form()?;
        self.used.borrow_mut().insert(index);
        Ok(swarm)
    }

    /// Every object in its long form.
    pub(super) fn in_full(self) -> Result<Vec<Value>, ManifestError> {
        let whole = |object: Object<'_>| object.is_single_form().map(|()| object.value);
        self.all.into_iter().map(whole).collect()
    }

    /// The object of this kind and name in the namespace of `swarm`, if any. It may occur again
    /// with equal contents.
    pub(super) fn named(
        &self,
        swarm: &Object<'_>,
        kind: &str,
        name: &str,
    ) -> Result<Option<&Object<'t>>, ManifestError> {
        let mut found = self.in_namespace_of(swarm, kind);
        found.retain(|(_, object)| object.name() == name);
        self.used.borrow_mut().extend(found.iter().map(|(index, _)| *index));
        let Some((_, first)) = found.first() else { return Ok(None) };
        match found.iter().find(|(_, object)| object.value != first.value) {
            Some((_, second)) => Err(twice(kind, first, second)),
            None => first.has_its_keys().map(|()| Some(*first)),
        }
    }

    /// The objects of this kind that have all these labels, sorted by name.
    pub(super) fn labelled(
        &self,
        swarm: &Object<'_>,
        kind: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<Vec<&Object<'t>>, ManifestError> {
        let bears = |object: &Object<'_>| {
            let has = |(key, value): (&String, &String)| {
                let label = object.value.pointer("/metadata/labels").and_then(|all| all.get(key));
                label.and_then(Value::as_str) == Some(value)
            };
            labels.iter().all(has)
        };
        let mut found = self.in_namespace_of(swarm, kind);
        found.retain(|(_, object)| bears(object));
        let names: BTreeSet<_> = found.iter().map(|(_, object)| object.name()).collect();
        let each = names.into_iter().map(|name| self.named(swarm, kind, name));
        each.filter_map(Result::transpose).collect()
    }

    /// A note for every object that was not used.
    pub(super) fn notes(&self) -> Vec<String> {
        let used = self.used.borrow();
        let unused = self.all.iter().enumerate().filter(|(index, _)| !used.contains(index));
        let note = |(_, object): (usize, &Object<'_>)| match object.text("/kind") {
            "" => {
                format!("document {}, which has no kind, is passed over", object.location.document)
            }
            kind => {
                let (kind, name) = (kind.escape_default(), object.name().escape_default());
                format!("{kind} `{name}` is passed over")
            }
        };
        unused.map(note).collect()
    }

    fn of_kind<'a>(&'a self, kind: &str) -> impl Iterator<Item = (usize, &'a Object<'t>)> {
        self.all.iter().enumerate().filter(move |(_, object)| object.text("/kind") == kind)
    }

    /// The objects of a kind in the namespace of `swarm`. An object without a namespace counts as
    /// well.
    fn in_namespace_of(&self, swarm: &Object<'_>, kind: &str) -> Vec<(usize, &Object<'t>)> {
        let mine = swarm.text("/metadata/namespace");
        let may_share_namespace = |object: &Object<'_>| {
            let its = object.text("/metadata/namespace");
            mine == its || mine.is_empty() || its.is_empty()
        };
        self.of_kind(kind).filter(|(_, object)| may_share_namespace(object)).collect()
    }
}

impl Object<'_> {
    /// An object without a text.
    pub(super) fn alone(value: Value) -> Self {
        let location = Location { index: 0, document: 1, path: String::new(), within: None };
        Self { value, text: "", location, renamed: None, doubled: None }
    }

    /// The location of a field of the object.
    pub(super) fn at(&self, path: &str) -> Location {
        Location { path: self.path_of(path), ..self.location.clone() }
    }

    /// The number, truth value or text without quotes at a path, as it is written.
    pub(super) fn written(&self, path: &str) -> Option<String> {
        place::written(self.text, self.location.document, &self.path_of(path))
    }

    /// The path in the document of a field of the object.
    fn path_of(&self, path: &str) -> String {
        let dot = if self.location.path.is_empty() || path.is_empty() { "" } else { "." };
        format!("{}{dot}{path}", self.location.path)
    }

    /// Refuses an object with a key that is another text in Kubernetes.
    fn has_its_keys(&self) -> Result<(), ManifestError> {
        let found = |source: &Unreadable| ManifestError::RenamedKey {
            at: Box::new(self.location.clone()),
            source: source.clone(),
        };
        self.renamed.as_ref().map_or(Ok(()), |source| Err(found(source)))
    }

    /// Refuses an object with two forms of one field.
    fn is_single_form(&self) -> Result<(), ManifestError> {
        let Some(source) = self.doubled.clone() else { return Ok(()) };
        let (at, swarm) = (Some(Box::new(self.at(&source.place))), self.name().to_owned());
        Err(ManifestError::Spec { swarm, at, source })
    }

    pub(super) fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// Refuses a list without a value, since a file that is being written begins like that.
    pub(super) fn has_lists(&self) -> Result<(), SpecError> {
        let spec = self.value.get("spec");
        let is_null =
            |field: &&str| spec.and_then(|spec| spec.get(field)).is_some_and(Value::is_null);
        match ["jobs", "jobSources"].into_iter().find(is_null) {
            None => Ok(()),
            Some(field) => Err(SpecError {
                place: format!("spec.{field}"),
                reason: "it has no value; write `[]` for an empty list".to_owned(),
            }),
        }
    }

    /// The fields of the spec that are set, without the jobs.
    pub(super) fn fields(&self) -> Fields {
        self.value.get("spec").map(Fields::of).unwrap_or_default()
    }

    fn text(&self, pointer: &str) -> &str {
        text_at(&self.value, pointer)
    }
}

fn text_at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn twice(kind: &str, first: &Object<'_>, second: &Object<'_>) -> ManifestError {
    ManifestError::Twice {
        kind: kind.to_owned(),
        name: first.name().to_owned(),
        first: Box::new(first.location.clone()),
        second: Box::new(second.location.clone()),
    }
}
