//! Sources of jobs outside of the Swarm itself.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rule::Rule;

/// Source of jobs: one ConfigMap by name, or all ConfigMaps with some labels.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    Rule::new(
        "has(self.configMap) != has(self.selector)",
        "write either configMap: {name, key}, or selector: {matchLabels} and key"
    ),
    Rule::new(
        "has(self.selector) == has(self.key)",
        "key belongs to selector: it is read in each selected ConfigMap; write the key of \
         configMap inside of configMap"
    ),
    Rule::new(
        "!(has(self.shareSuffix) && self.shareSuffix && has(self.format) && self.format == 'hostports')",
        "shareSuffix has no effect with format: hostports; leave it out"
    ),
]))]
pub struct JobSource {
    /// Key of one ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapKey>,
    /// ConfigMaps with these labels, for generated names and varying numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<SourceSelector>,
    /// Key to read in each selected ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[-._a-zA-Z0-9]+$"))]
    pub key: Option<String>,
    /// Reads a number from 1 to 100 at the end of a name, such as `cnbc:100`, as the share of the
    /// job. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_suffix: Option<bool>,
    /// Format of the jobs. Default: `list`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<SourceFormat>,
    /// Allows the source to be missing: it then has no jobs, and deleting a ConfigMap stops the
    /// ConfigMap's jobs. Without it a missing source stops no job. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

impl JobSource {
    /// Whether the source may be missing.
    #[must_use]
    pub fn is_optional(&self) -> bool {
        self.optional.unwrap_or_default()
    }
}

/// Key of one ConfigMap.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigMapKey {
    /// Name of the ConfigMap.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[a-z0-9][-.a-z0-9]*$"))]
    pub name: String,
    /// Key in the ConfigMap.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[-._a-zA-Z0-9]+$"))]
    pub key: String,
}

/// ConfigMaps by their labels.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceSelector {
    /// Labels that a ConfigMap must have, all of them.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 16))]
    pub match_labels: BTreeMap<String, String>,
}

/// Format of the jobs. `list` is a YAML list of names, or of objects as in `spec.jobs`. `hostports`
/// has lines `host,port`, one for each job `host:port`. Default: `list`.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SourceFormat {
    /// A YAML list.
    #[default]
    List,
    /// Lines `host,port`.
    Hostports,
}
