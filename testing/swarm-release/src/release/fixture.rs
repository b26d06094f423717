//! A small release for tests: every kind of file, without real programs.

use std::fs::{self, File};
use std::path::Path;

use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{contents, descriptor, krew, layout::Layout, names, pins, sums, verify};

/// Description of the chart.
pub(crate) const CHART: &str = "name: swarm\nversion: 0.1.0\nappVersion: 0.1.0\n";

/// Returns the values of the chart, as far as they name the images of the release in `dist`.
pub(crate) fn values(dist: &Path) -> String {
    let value = |name: &str| {
        let image = dist.join("images").join(name.trim_start_matches("swarm-"));
        let digest = Layout::at(image).digest().unwrap();
        format!("x:\n  repository: {}/{name}\n  digest: {digest}\n", names::REGISTRY)
    };
    pins::IMAGES.map(value).concat()
}

/// Makes the release 0.1.0 of one machine.
pub(crate) fn dist() -> tempfile::TempDir {
    dist_for("amd64")
}

/// Makes the release 0.1.0 of a machine with the architecture.
pub(crate) fn dist_for(architecture: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let dist = folder.path();
    let plugin = format!("kubectl-swarm-0.1.0-linux-{architecture}.tar.gz");
    let files = [
        ("top/kubectl-swarm", "a program"),
        ("top/kubectl_complete-swarm", "a script"),
        ("top/LICENSE", "a licence"),
        ("top/THIRD-PARTY.txt", "licences"),
    ];
    archive(&dist.join(plugin), &files);
    let others = contents::of_architecture("0.1.0", architecture).into_iter();
    for name in others.chain(contents::of_version("0.1.0")) {
        if !dist.join(&name).exists() {
            fs::write(dist.join(&name), format!("{name}\n")).unwrap();
        }
    }
    let mut installed = Vec::new();
    for name in verify::LAYOUTS {
        let folder = dist.join("images").join(name);
        layout(&folder, architecture, "0.1.0");
        let digest = Layout::at(folder).digest().unwrap();
        installed.push(format!("image: {}/swarm-{name}:0.1.0@{digest}\n", names::REGISTRY));
    }
    fs::write(dist.join("install.yaml"), installed.concat()).unwrap();
    let chart = [("swarm/Chart.yaml", CHART), ("swarm/values.yaml", &values(dist))];
    archive(&dist.join("swarm-0.1.0.tgz"), &chart);
    let manifest = krew::manifest(dist, "0.1.0", names::DOWNLOADS).unwrap();
    fs::write(dist.join(krew::FILE), manifest).unwrap();
    sums::write(dist).unwrap();
    folder
}

/// Packs files into an archive.
pub(crate) fn archive(path: &Path, files: &[(&str, &str)]) {
    let gzip = GzBuilder::new().write(File::create(path).unwrap(), Compression::fast());
    let mut archive = tar::Builder::new(gzip);
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap();
}

/// Writes an image with one layer as a layout.
pub(crate) fn layout(folder: &Path, architecture: &str, version: &str) {
    let name = folder.file_name().unwrap().display();
    let layer = format!("layer of {name} for {architecture}");
    layout_with(folder, architecture, version, layer.as_bytes(), |_| ());
}

/// Writes such an image with a layer, and with a manifest that is changed before it gets its digest.
pub(crate) fn layout_with(
    folder: &Path,
    architecture: &str,
    version: &str,
    layer: &[u8],
    change: impl FnOnce(&mut Value),
) {
    let blobs = folder.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let put = |bytes: &[u8], kind| {
        let hex = format!("{:x}", Sha256::digest(bytes));
        fs::write(blobs.join(&hex), bytes).unwrap();
        json!({"mediaType": kind, "digest": format!("sha256:{hex}"), "size": bytes.len()})
    };
    let put_json = |value: Value, kind| put(value.to_string().as_bytes(), kind);
    let labels = json!({
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.revision": "0123456789".repeat(4),
    });
    let config = json!({"architecture": architecture, "os": "linux", "config": {"Labels": labels}});
    let layer = put(layer, descriptor::LAYER);
    let config = put_json(config, descriptor::CONFIG);
    let mut manifest =
        json!({"mediaType": descriptor::MANIFEST, "config": config, "layers": [layer]});
    change(&mut manifest);
    let mut manifest = put_json(manifest, descriptor::MANIFEST);
    manifest["annotations"] = json!({"org.opencontainers.image.ref.name": version});
    let index = json!({"schemaVersion": 2, "manifests": [manifest]});
    fs::write(folder.join("index.json"), index.to_string()).unwrap();
    fs::write(folder.join("oci-layout"), r#"{"imageLayoutVersion": "1.0.0"}"#).unwrap();
}
