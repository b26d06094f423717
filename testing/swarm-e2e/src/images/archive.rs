//! The quick route: a docker-archive of a few files, written by hand in milliseconds.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tar::{Builder, Header};

use crate::cache::hex;

/// A file for an image: its path in the image, without the leading slash, and its path on this
/// machine.
pub(super) type Placed = (String, PathBuf);

/// Writes an image `name` with these programs and libraries; the first is its entry point.
pub(super) fn write(archive: &Path, name: &str, files: &[Placed]) -> Result<()> {
    let (program, _) = files.first().context("an image without files")?;
    let mut layer = Builder::new(Vec::new());
    for (place, file) in files {
        let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        append(&mut layer, place, &bytes, 0o755)?;
    }
    let layer = layer.into_inner()?;
    let digest = hex(&Sha256::digest(&layer));
    let config = serde_json::to_vec(&json!({
        "architecture": architecture(),
        "os": "linux",
        "config": {
            "Entrypoint": [format!("/{program}")],
            "Env": ["PATH=/bin"],
            "User": "65532:65532",
        },
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
    }))?;
    let config_name = format!("{}.json", hex(&Sha256::digest(&config)));
    let layer_name = format!("{digest}.tar");
    let manifest = serde_json::to_vec(&json!([{
        "Config": config_name, "RepoTags": [name], "Layers": [layer_name],
    }]))?;

    let mut image = Builder::new(File::create(archive)?);
    append(&mut image, &layer_name, &layer, 0o644)?;
    append(&mut image, &config_name, &config, 0o644)?;
    append(&mut image, "manifest.json", &manifest, 0o644)?;
    image.finish()?;
    Ok(())
}

/// Adds a file without time or owner, so that the same binary makes the same image.
fn append<W: std::io::Write>(
    tar: &mut Builder<W>,
    name: &str,
    bytes: &[u8],
    mode: u32,
) -> Result<()> {
    let mut header = Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(mode);
    header.set_mtime(0);
    tar.append_data(&mut header, name, bytes)?;
    Ok(())
}

/// The name of this machine's architecture in images.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeMap;
    use std::io::Read as _;

    fn files(tar: &[u8]) -> BTreeMap<String, (u32, Vec<u8>)> {
        let mut archive = tar::Archive::new(tar);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            let name = entry.path().unwrap().display().to_string();
            (name, (entry.header().mode().unwrap(), bytes))
        });
        entries.collect()
    }

    #[test]
    fn an_archive_holds_executables_and_names_the_first_as_entry_point() {
        let folder = tempfile::tempdir().unwrap();
        let (binary, archive) = (folder.path().join("pause"), folder.path().join("image.tar"));
        fs::write(&binary, "a program").unwrap();
        write(&archive, "registry.local/pause:1", &[("pause".into(), binary)]).unwrap();

        let image = files(&fs::read(archive).unwrap());
        let manifest: Value = serde_json::from_slice(&image["manifest.json"].1).unwrap();
        assert_eq!(manifest[0]["RepoTags"], json!(["registry.local/pause:1"]));
        let (_, config) = &image[manifest[0]["Config"].as_str().unwrap()];
        let config: Value = serde_json::from_slice(config).unwrap();
        assert_eq!(config["config"]["Entrypoint"], json!(["/pause"]));
        let (_, layer) = &image[manifest[0]["Layers"][0].as_str().unwrap()];
        let digest = format!("sha256:{}", hex(&Sha256::digest(layer)));
        assert_eq!(config["rootfs"]["diff_ids"], json!([digest]));
        let expected = BTreeMap::from([("pause".into(), (0o755, b"a program".to_vec()))]);
        assert_eq!(files(layer), expected);
    }
}
