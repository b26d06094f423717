//! Image layouts: folders with an image as the OCI describes them, each file named by its digest.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::sums;

/// Layout of one image, for one or more architectures.
pub(crate) struct Layout {
    folder: PathBuf,
}

impl Layout {
    /// Takes a folder that contains a layout.
    pub(crate) fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Returns the digest that a registry shows after a push: the digest of the manifest,
    /// or of the index if the layout has several architectures.
    pub(crate) fn digest(&self) -> Result<String> {
        let manifests = self.manifests()?;
        if let [only] = manifests.as_slice() {
            return Ok(text(only, "digest")?.to_owned());
        }
        Ok(format!("sha256:{}", sums::of(&self.folder.join("index.json"))?))
    }

    /// Returns the labels of each architecture.
    pub(crate) fn labels(&self) -> Result<BTreeMap<String, Value>> {
        let mut found = BTreeMap::new();
        for manifest in self.manifests()? {
            let config = self.config(&manifest)?;
            let architecture = text(&config, "architecture")?.to_owned();
            found.insert(architecture, config["config"]["Labels"].clone());
        }
        Ok(found)
    }

    /// Checks that every file has the digest in its name, and that all files of the image are there.
    ///
    /// # Errors
    ///
    /// When one has not. The error names the file.
    pub(crate) fn verify(&self) -> Result<()> {
        for manifest in self.manifests()? {
            let parsed = self.json(&self.blob(&manifest)?)?;
            self.blob(&parsed["config"])?;
            let layers = parsed["layers"].as_array();
            for layer in layers.with_context(|| format!("{} has no layers", self.name()))? {
                self.blob(layer)?;
            }
        }
        Ok(())
    }

    /// Adds the architectures of another layout to this one.
    ///
    /// # Errors
    ///
    /// When both have the same architecture, or when a file cannot be copied.
    pub(crate) fn add(&self, other: &Self) -> Result<()> {
        let mut index = self.json(&self.folder.join("index.json"))?;
        let mut manifests = Vec::new();
        for layout in [self, other] {
            for mut manifest in layout.manifests()? {
                let config = layout.config(&manifest)?;
                manifest["platform"] = serde_json::json!({
                    "architecture": config["architecture"], "os": config["os"],
                });
                manifests.push(manifest);
            }
        }
        manifests.sort_by_key(|manifest| manifest["platform"]["architecture"].to_string());
        if let Some(pair) =
            manifests.windows(2).find(|pair| pair[0]["platform"] == pair[1]["platform"])
        {
            bail!("{} has {} already", self.name(), pair[0]["platform"]["architecture"]);
        }
        let blobs = Path::new("blobs/sha256");
        for blob in fs::read_dir(other.folder.join(blobs))? {
            let blob = blob?;
            fs::copy(blob.path(), self.folder.join(blobs).join(blob.file_name()))?;
        }
        index["mediaType"] = "application/vnd.oci.image.index.v1+json".into();
        index["manifests"] = manifests.into();
        fs::write(self.folder.join("index.json"), serde_json::to_string(&index)?)?;
        Ok(())
    }

    fn name(&self) -> String {
        self.folder.display().to_string()
    }

    fn manifests(&self) -> Result<Vec<Value>> {
        let index = self.json(&self.folder.join("index.json"))?;
        match index["manifests"].as_array() {
            Some(manifests) if !manifests.is_empty() => Ok(manifests.clone()),
            _ => bail!("{}/index.json names no image", self.name()),
        }
    }

    fn config(&self, manifest: &Value) -> Result<Value> {
        let manifest = self.json(&self.blob(manifest)?)?;
        self.json(&self.blob(&manifest["config"])?)
    }

    /// Returns the path of a file of the image, after a check of its digest.
    fn blob(&self, descriptor: &Value) -> Result<PathBuf> {
        let digest = text(descriptor, "digest")?;
        let hex =
            super::names::digest(digest).map_err(|hint| anyhow::anyhow!("{digest}: {hint}"))?;
        let hex = hex.trim_start_matches("sha256:");
        let path = self.folder.join("blobs/sha256").join(hex);
        let found = sums::of(&path)?;
        if found != hex {
            bail!("{} is changed: its digest is {found}", path.display());
        }
        Ok(path)
    }

    fn json(&self, path: &Path) -> Result<Value> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&bytes)
            .with_context(|| format!("{}: {} is no JSON", self.name(), path.display()))
    }
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    value[key].as_str().with_context(|| format!("an image layout has no `{key}` in {value}"))
}
