//! Fields that the descriptions of an image may have, and their values.
//!
//! No digest covers the index of an image for one architecture, so each of its fields has one right value.

use anyhow::{Result, bail};
use serde_json::Value;

/// Type of an index.
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// Type of a manifest.
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Type of a configuration.
pub(crate) const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// Type of a layer.
pub(crate) const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Annotation with the tag of an image.
const TAG: &str = "org.opencontainers.image.ref.name";

/// Checks all fields of `index.json` except the images that it names.
pub(crate) fn index(index: &Value, place: &str) -> Result<()> {
    only(index, &["schemaVersion", "mediaType", "manifests"], place)?;
    equal(index, "schemaVersion", &2.into(), place)?;
    if index.get("mediaType").is_some() {
        equal(index, "mediaType", &INDEX.into(), place)?;
    }
    Ok(())
}

/// Checks the descriptor of a manifest in `index.json`, except digest, size and platform.
pub(crate) fn of_manifest(descriptor: &Value, version: &str, place: &str) -> Result<()> {
    only(descriptor, &["mediaType", "digest", "size", "annotations", "platform"], place)?;
    equal(descriptor, "mediaType", &MANIFEST.into(), place)?;
    let annotations = serde_json::json!({TAG: version});
    equal(descriptor, "annotations", &annotations, place)
}

/// Checks that a field has the right value.
pub(crate) fn equal(of: &Value, key: &str, right: &Value, place: &str) -> Result<()> {
    if of[key] != *right {
        bail!("{place} has {} as `{key}`, not {right}", of[key]);
    }
    Ok(())
}

fn only(of: &Value, known: &[&str], place: &str) -> Result<()> {
    let Some(fields) = of.as_object() else { bail!("{place} has {of} where an object belongs") };
    if let Some(field) = fields.keys().find(|key| !known.contains(&key.as_str())) {
        bail!("{place} has the field `{field}`, which no image of a release has");
    }
    Ok(())
}
