//! Orders versions of one object. They are decimal numbers that grow, by promise of the API since
//! Kubernetes 1.35 and in practice ever since.

use kube::Resource;

/// The version of an object; 0 if it has none.
pub(crate) fn of(object: &impl Resource) -> u64 {
    number(object.meta().resource_version.as_deref())
}

/// A version as a number; 0 if there is none.
pub(crate) fn number(version: Option<&str>) -> u64 {
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}
