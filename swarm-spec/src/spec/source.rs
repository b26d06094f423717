//! Where jobs stand that are not in the Swarm itself.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rule::Rule;

/// ConfigMaps that hold lists of jobs: one by name, or all that have some labels.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    Rule::new(
        "has(self.configMap) != has(self.selector)",
        "write either configMap: {name, key}, or selector: {matchLabels} and key"
    ),
    Rule::new(
        "has(self.selector) == has(self.key)",
        "key belongs to selector: each selected ConfigMap is read there; configMap has a key of its own"
    ),
    Rule::new(
        "!(has(self.shareSuffix) && self.shareSuffix && has(self.format) && self.format == 'hostports')",
        "shareSuffix means nothing beside format: hostports; leave it out"
    ),
]))]
pub struct JobSource {
    /// One key of one ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapKey>,
    /// All ConfigMaps with these labels, also those whose names a tool makes up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<SourceSelector>,
    /// The key of each selected ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[-._a-zA-Z0-9]+$"))]
    pub key: Option<String>,
    /// Whether a number from 1 to 100 at the end of a text, as in `cnbc:100`, is the job's share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_suffix: Option<bool>,
    /// How the key holds the jobs. Default: `list`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<SourceFormat>,
    /// Whether the ConfigMap, its key, or any ConfigMap with the labels may be missing: then the source
    /// has no jobs, and the jobs of a ConfigMap that is deleted are stopped. Without it a source that is
    /// missing stops nothing. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

impl JobSource {
    /// Whether it may be missing.
    #[must_use]
    pub fn is_optional(&self) -> bool {
        self.optional.unwrap_or_default()
    }
}

/// One key of one ConfigMap.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigMapKey {
    /// The ConfigMap.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[a-z0-9][-.a-z0-9]*$"))]
    pub name: String,
    /// The key in it.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[-._a-zA-Z0-9]+$"))]
    pub key: String,
}

/// ConfigMaps by their labels.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceSelector {
    /// The labels, all of which a ConfigMap must have.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 16))]
    pub match_labels: BTreeMap<String, String>,
}

/// How a key of a ConfigMap holds jobs. `list`, the default: a YAML list of names, or of maps as in
/// `spec.jobs`. `hostports`: lines `host,port`, each of which is the job `host:port`.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SourceFormat {
    /// A YAML list.
    #[default]
    List,
    /// Lines `host,port`.
    Hostports,
}
