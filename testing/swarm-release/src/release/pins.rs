//! The images that every overlay runs: `deploy/components/images`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

/// Names of the images, as `deploy/base` has them.
pub(crate) const IMAGES: [&str; 2] = ["swarm-operator", "swarm-worker"];

/// Place of the component, from the top folder of a checkout.
pub(crate) const FILE: &str = "deploy/components/images/kustomization.yaml";

/// One image of a kustomization.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Pin {
    /// Name in `deploy/base`.
    pub(crate) name: String,
    /// Name of the image that is run, if it is another one.
    new_name: Option<String>,
    /// Tag of the image that is run.
    new_tag: Option<String>,
}

impl Pin {
    /// Returns the name of the image that is run.
    pub(crate) fn current(&self) -> &str {
        self.new_name.as_deref().unwrap_or(&self.name)
    }

    /// Returns the name and the tag of the image that is run.
    pub(crate) fn image(&self) -> String {
        format!("{}:{}", self.current(), self.new_tag.as_deref().unwrap_or("dev"))
    }
}

#[derive(Deserialize)]
struct Component {
    images: Vec<Pin>,
}

/// Reads the images of the component in the checkout `root`.
pub(crate) fn read(root: &Path) -> Result<Vec<Pin>> {
    let text =
        fs::read_to_string(root.join(FILE)).with_context(|| format!("cannot read {FILE}"))?;
    let component: Component =
        serde_yaml::from_str(&text).with_context(|| format!("cannot understand {FILE}"))?;
    Ok(component.images)
}

/// Writes the images of a version into the component, or the images of a clone.
pub(crate) fn write(root: &Path, release: Option<(&str, &str)>) -> Result<()> {
    let path = root.join(FILE);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {FILE}"))?;
    let head = text.split_once("\nimages:\n").map_or(text.as_str(), |(head, _)| head);
    let images: String = IMAGES
        .iter()
        .map(|name| match release {
            Some((version, registry)) => {
                format!("  - name: {name}\n    newName: {registry}/{name}\n    newTag: {version}\n")
            }
            None => format!("  - name: {name}\n    newTag: dev\n"),
        })
        .collect();
    fs::write(&path, format!("{}\nimages:\n{images}", head.trim_end()))
        .with_context(|| format!("cannot write {FILE}"))
}
