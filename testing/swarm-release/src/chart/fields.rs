//! The table of the chart's values: where each is in the manifests, its default, and what it does.

mod cluster;
mod operator;

use super::objects::{Object, Part};

/// A value of the chart.
pub(super) struct Field {
    /// The path in `values.yaml`, such as `log.format`.
    pub(super) key: &'static str,
    /// The sentences above the value in `values.yaml`.
    pub(super) comment: &'static str,
    /// The JSON Schema of the value.
    pub(super) schema: &'static str,
    /// The value of an installation that sets nothing.
    pub(super) default: Default,
    /// Another value, as YAML, with which the check compares: it must change the objects.
    pub(super) example: &'static str,
    /// The places in the manifests; none for a value that another place or a condition uses.
    pub(super) places: &'static [Place],
}

/// The origin of a default.
pub(super) enum Default {
    /// YAML.
    Is(&'static str),
    /// The value at the first place of the field.
    OfManifest,
}

/// A place in an object.
pub(super) struct Place {
    /// The kind of the object.
    pub(super) kind: &'static str,
    /// The name of the object; an empty text means every object of the kind.
    pub(super) name: &'static str,
    /// The keys and indexes that lead to the place, with `/` between them.
    pub(super) path: &'static str,
    /// The change at the place.
    pub(super) change: Change,
}

/// A change of an object into a template. Expressions begin at `$`, since a template may be a loop.
pub(super) enum Change {
    /// Replaces a scalar by this template.
    Scalar(&'static str),
    /// Replaces a text after its prefix by this template.
    After(&'static str, &'static str),
    /// Replaces a map or a list by the value of this name.
    Block(&'static str),
    /// Replaces a list of TCP ports by the list of numbers of this name.
    Ports(&'static str),
    /// Adds a key with the value of this name, unless the value is empty.
    Key(&'static str),
    /// Adds the entries of the value of this name to a map or a list.
    Entries(&'static str),
    /// Adds these lines to a map or a list.
    Lines(&'static str),
}

/// All values, in the order of `values.yaml`.
pub(super) fn all() -> impl Iterator<Item = &'static Field> {
    operator::IMAGES.iter().chain(operator::PODS).chain(cluster::FIELDS)
}

/// The places in an object.
pub(super) fn places(object: &Object) -> impl Iterator<Item = &'static Place> {
    let places = all().flat_map(|field| field.places);
    places.filter(|place| place.is_in(object))
}

impl Place {
    /// Whether the place is in this object.
    pub(super) fn is_in(&self, object: &Object) -> bool {
        self.kind == object.kind && [object.name.as_str(), ""].contains(&self.name)
    }
}

/// The lines before an object, for objects that are not in every installation.
pub(super) fn condition(object: &Object) -> Option<String> {
    let of_part = match object.part {
        Part::Base => None,
        Part::Crds => Some("$.Values.crds.enabled"),
        Part::ManagedPools => Some("$.Values.managedPools.enabled"),
        Part::Listed => Some("$.Values.namespaces"),
    };
    let of_kind = match &*object.kind {
        "Namespace" => Some("$.Values.namespace.create"),
        "NetworkPolicy" => Some("$.Values.networkPolicy.enabled"),
        "PodDisruptionBudget" => Some("$.Values.podDisruptionBudget.enabled"),
        "FlowSchema" | "PriorityLevelConfiguration" => Some("$.Values.flowSchema.enabled"),
        "ValidatingAdmissionPolicy" | "ValidatingAdmissionPolicyBinding" => {
            Some("$.Values.policies.enabled")
        }
        _ => None,
    };
    // One object for each namespace of the list.
    if (object.part, &*object.kind, &*object.name)
        == (Part::Listed, "RoleBinding", "swarm-operator")
    {
        return Some("{{- range $.Values.namespaces }}\n---".to_owned());
    }
    match (of_part, of_kind) {
        (None, None) => None,
        (Some(one), None) | (None, Some(one)) => Some(format!("{{{{- if {one} }}}}")),
        (Some(one), Some(other)) => Some(format!("{{{{- if and {one} {other} }}}}")),
    }
}
