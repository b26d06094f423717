//! Image layouts: folders with an image as the OCI describes them, each file named by its digest.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::{descriptor, file, sums};

/// Name of the file that names the image of each architecture.
const INDEX: &str = "index.json";
/// Name of the file that makes a folder a layout.
const MARK: &str = "oci-layout";
/// Folder of the files that are named by their digests.
const BLOBS: &str = "blobs/sha256";

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
        Ok(format!("sha256:{}", sums::of(&self.folder.join(INDEX))?))
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

    /// Checks the image of a version. Every file has the digest in its name, and the size and the type that the
    /// image says. All files are there, and nothing else.
    ///
    /// # Errors
    ///
    /// When one of these does not hold. The error names the file.
    pub(crate) fn verify(&self, version: &str) -> Result<()> {
        file::has_only(&self.folder, ["blobs", INDEX, MARK])?;
        file::has_only(&self.folder.join("blobs"), ["sha256"])?;
        let mark = json!({"imageLayoutVersion": "1.0.0"});
        let found = self.json(&self.folder.join(MARK))?;
        if found != mark {
            bail!("{}/{MARK} has {found}, not {mark}", self.name());
        }
        let place = format!("{}/{INDEX}", self.name());
        descriptor::index(&self.json(&self.folder.join(INDEX))?, &place)?;
        let mut blobs = BTreeSet::new();
        let mut platforms = BTreeSet::new();
        let manifests = self.manifests()?;
        for manifest in &manifests {
            descriptor::of_manifest(manifest, version, &place)?;
            let platform = self.verify_manifest(manifest, &mut blobs)?;
            if manifests.len() > 1 || manifest.get("platform").is_some() {
                descriptor::equal(manifest, "platform", &platform, &place)?;
            }
            if !platforms.insert(platform.to_string()) {
                bail!("{place} names two images for {platform}");
            }
        }
        file::has_only(&self.folder.join(BLOBS), blobs.iter().map(String::as_str))
    }

    /// Checks the files of one architecture, adds their names to `blobs`, and returns the platform.
    fn verify_manifest(&self, manifest: &Value, blobs: &mut BTreeSet<String>) -> Result<Value> {
        let path = self.sized(manifest, blobs)?;
        let (parsed, place) = (self.json(&path)?, path.display().to_string());
        descriptor::equal(&parsed, "mediaType", &descriptor::MANIFEST.into(), &place)?;
        descriptor::equal(&parsed["config"], "mediaType", &descriptor::CONFIG.into(), &place)?;
        let config = self.json(&self.sized(&parsed["config"], blobs)?)?;
        let layers = parsed["layers"].as_array().filter(|layers| !layers.is_empty());
        for layer in layers.with_context(|| format!("{place} has no layers"))? {
            descriptor::equal(layer, "mediaType", &descriptor::LAYER.into(), &place)?;
            self.sized(layer, blobs)?;
        }
        Ok(platform(&config))
    }

    /// Returns the path of a file of the image, after a check of its digest and its size.
    fn sized(&self, descriptor: &Value, blobs: &mut BTreeSet<String>) -> Result<PathBuf> {
        let path = self.blob(descriptor)?;
        let size = fs::metadata(&path)?.len();
        if descriptor["size"] != size {
            let said = &descriptor["size"];
            bail!("{} has {size} bytes, and the image says {said}", path.display());
        }
        blobs.extend(path.file_name().map(|name| name.to_string_lossy().into_owned()));
        Ok(path)
    }

    /// Returns the paths of the layers for one architecture.
    ///
    /// # Errors
    ///
    /// When the image is not for this architecture.
    pub(crate) fn layers(&self, architecture: &str) -> Result<Vec<PathBuf>> {
        for manifest in self.manifests()? {
            if self.config(&manifest)?["architecture"] == architecture {
                let manifest = self.json(&self.blob(&manifest)?)?;
                let layers = manifest["layers"].as_array().into_iter().flatten();
                return layers.map(|layer| self.blob(layer)).collect();
            }
        }
        bail!("{} has no image for {architecture}", self.name())
    }

    /// Adds the architectures of another layout to this one.
    ///
    /// # Errors
    ///
    /// When both have the same architecture, or when a file cannot be copied.
    pub(crate) fn add(&self, other: &Self) -> Result<()> {
        let mut index = self.json(&self.folder.join(INDEX))?;
        let mut manifests = Vec::new();
        for layout in [self, other] {
            for mut manifest in layout.manifests()? {
                let config = layout.config(&manifest)?;
                manifest["platform"] = platform(&config);
                manifests.push(manifest);
            }
        }
        manifests.sort_by_key(|manifest| manifest["platform"]["architecture"].to_string());
        if let Some(pair) =
            manifests.windows(2).find(|pair| pair[0]["platform"] == pair[1]["platform"])
        {
            bail!("{} has {} already", self.name(), pair[0]["platform"]["architecture"]);
        }
        for blob in fs::read_dir(other.folder.join(BLOBS))? {
            let blob = blob?;
            fs::copy(blob.path(), self.folder.join(BLOBS).join(blob.file_name()))?;
        }
        index["mediaType"] = descriptor::INDEX.into();
        index["manifests"] = manifests.into();
        fs::write(self.folder.join(INDEX), serde_json::to_string(&index)?)?;
        Ok(())
    }

    fn name(&self) -> String {
        self.folder.display().to_string()
    }

    fn manifests(&self) -> Result<Vec<Value>> {
        let index = self.json(&self.folder.join(INDEX))?;
        match index["manifests"].as_array() {
            Some(manifests) if !manifests.is_empty() => Ok(manifests.clone()),
            _ => bail!("{}/{INDEX} names no image", self.name()),
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
        let path = self.folder.join(BLOBS).join(hex);
        let found = sums::of(&path)?;
        if found != hex {
            bail!("{} is changed: its digest is {found}", path.display());
        }
        Ok(path)
    }

    fn json(&self, path: &Path) -> Result<Value> {
        serde_json::from_str(&file::text(path)?)
            .with_context(|| format!("{}: {} is no JSON", self.name(), path.display()))
    }
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    value[key].as_str().with_context(|| format!("an image layout has no `{key}` in {value}"))
}

/// Returns the platform of an image with a configuration.
fn platform(config: &Value) -> Value {
    json!({"architecture": config["architecture"], "os": config["os"]})
}
