//! The resource `SwarmLedgerPart`: some of the jobs of a ledger that is too large for one object.

use std::fmt;
use std::str::FromStr;

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use swarm_core::parts::StoredPart;

/// Some of the jobs of a ledger: those with the same low bits of their hash. It never changes.
///
/// It counts only while its `SwarmLedger` names it.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "swarm.k8slab.info",
    version = "v1alpha1",
    kind = "SwarmLedgerPart",
    namespaced,
    doc = "Some of the jobs of a SwarmLedger that is too large for one object. Written by the operator alone.",
    derive = "PartialEq",
    printcolumn(json_path = ".spec.ledger", name = "Ledger", type_ = "string"),
    printcolumn(json_path = ".metadata.creationTimestamp", name = "Age", type_ = "date")
)]
#[x_kube(validation = kube::core::Rule::new("self == oldSelf")
    .message("a part of a ledger never changes: the operator writes another one"))]
#[serde(rename_all = "camelCase")]
pub struct SwarmLedgerPartSpec {
    /// The `SwarmLedger` that it is a part of.
    #[schemars(length(min = 1, max = 253))]
    pub ledger: String,
    /// Who holds which of these jobs, grouped by holder.
    #[schemars(schema_with = "holdings")]
    pub holdings: StoredPart,
}

/// One value, like the holdings of a ledger.
fn holdings(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "description": "Who holds which of these jobs, grouped by holder.",
        "x-kubernetes-map-type": "atomic",
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

/// What a ledger calls one of its parts, as in `17-9f3a5c0000000001`: the revision that wrote it, and
/// the digest of what it says. The object's name has the ledger's before it, and a dot.
///
/// A part is first named by the ledger of its own revision, or never. So one that is not named by a
/// ledger of this revision or a later one is garbage for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PartName {
    /// The revision of the ledger that it was written for.
    pub revision: u64,
    /// What tells it from others.
    pub digest: u64,
}

impl PartName {
    /// The name of its object.
    #[must_use]
    pub fn of(self, ledger: &str) -> String {
        format!("{ledger}.{self}")
    }
}

impl fmt::Display for PartName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}", self.revision, self.digest)
    }
}

impl From<PartName> for String {
    fn from(name: PartName) -> Self {
        name.to_string()
    }
}

/// A text that names no part of a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartNameError(String);

impl std::error::Error for PartNameError {}

impl fmt::Display for PartNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} names no part: that is a revision, a dash and 16 hexadecimal digits",
            self.0
        )
    }
}

impl FromStr for PartName {
    type Err = PartNameError;

    fn from_str(text: &str) -> Result<Self, PartNameError> {
        let parsed = text.split_once('-').and_then(|(revision, digest)| {
            let digest = u64::from_str_radix(digest, 16).ok()?;
            Some(Self { revision: revision.parse().ok()?, digest })
        });
        // Only in the form that it is written in: two names never stand for the same part.
        parsed.filter(|name| name.to_string() == text).ok_or_else(|| PartNameError(text.to_owned()))
    }
}

impl TryFrom<String> for PartName {
    type Error = PartNameError;

    fn try_from(text: String) -> Result<Self, PartNameError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use swarm_spec::spec::WORKLOAD_NAME_MAX;

    use super::*;

    #[test]
    fn what_is_named_after_a_workload_of_the_longest_name_has_a_name_that_fits() {
        let ledger = format!("statefulset.{}", "w".repeat(WORKLOAD_NAME_MAX));
        let part = PartName { revision: 10_u64.pow(20 - 1), digest: 0 }.of(&ledger);
        assert_eq!(part.len(), 253);
    }

    #[test]
    fn a_part_has_one_name() {
        let name = PartName { revision: 17, digest: 0x9f3a };
        assert_eq!(name.of("statefulset.w"), "statefulset.w.17-0000000000009f3a");
        assert_eq!(name.to_string().parse(), Ok(name));
        for other in
            ["", "17", "17-", "-1", "17-9f3a", "017-0000000000009f3a", "17-0000000000009F3A"]
        {
            assert!(other.parse::<PartName>().is_err(), "{other}");
        }
    }
}
