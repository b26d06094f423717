//! The command `manifests`: one file that installs a release, one with its CRDs, and one with a first pool.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::release::{names, pins};
use crate::repository;

/// Arguments of `manifests`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Version of the release, such as 0.1.0
    #[arg(long, value_parser = names::version)]
    pub(crate) version: String,
    /// Registry of the images: host and path
    #[arg(long, value_parser = names::registry, default_value = names::REGISTRY)]
    pub(crate) registry: String,
    /// Folder that gets `install.yaml`, `crds.yaml` and `sample-managed.yaml`
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: PathBuf,
    /// Digest of the operator's image, such as sha256:2cf2…
    #[arg(long, value_name = "DIGEST", value_parser = names::digest)]
    pub(crate) operator_digest: Option<String>,
    /// Digest of the worker's image, such as sha256:2cf2…
    #[arg(long, value_name = "DIGEST", value_parser = names::digest)]
    pub(crate) worker_digest: Option<String>,
}

/// Name of the file with a first pool.
pub(crate) const SAMPLE: &str = "sample-managed.yaml";

/// Place of the first pool in the checkout.
const SAMPLE_OF_CHECKOUT: &str = "deploy/samples/managed.yaml";

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    fs::create_dir_all(&arguments.out)
        .with_context(|| format!("cannot create {}", arguments.out.display()))?;
    let installed = render("deploy/overlays/all", &images(arguments)?)?;
    let version = &arguments.version;
    write(&arguments.out.join("install.yaml"), &install_head(version), &installed)?;
    let crds = repository::kustomize("deploy/crds")?;
    write(&arguments.out.join("crds.yaml"), &crds_head(version), &crds)?;
    let sample = fs::read_to_string(repository::root().join(SAMPLE_OF_CHECKOUT))
        .with_context(|| format!("cannot read {SAMPLE_OF_CHECKOUT}"))?;
    write(&arguments.out.join(SAMPLE), &sample_head(version), without_head(&sample)?)
}

fn write(path: &Path, head: &str, objects: &str) -> Result<()> {
    fs::write(path, format!("{head}{objects}"))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn install_head(version: &str) -> String {
    format!(
        "\
# swarm {version}: its CRDs, and the operator with the rights for managed pools.
#
# Check the file, install it, and wait until the operator is ready:
#
#   sha256sum --check --strict --ignore-missing SHA256SUMS
#   kubectl apply --server-side -f install.yaml
#   kubectl -n swarm-system rollout status deployment/swarm-controller --timeout=120s
#
# Remove it. The Swarms go first, while the operator can still release their workers:
#
#   kubectl delete swarms --all --all-namespaces --timeout=60s
#   kubectl delete -f install.yaml --timeout=120s
"
    )
}

fn crds_head(version: &str) -> String {
    format!(
        "\
# swarm {version}: its CRDs, and the roles of their users. `install.yaml` contains them, too.
#
# Apply this file before an upgrade of an operator from another source, such as a kustomization:
#
#   kubectl apply --server-side -f crds.yaml
#
# Deleting it deletes every Swarm of the cluster, so delete the Swarms and the operator first:
#
#   kubectl delete -f crds.yaml --timeout=60s
"
    )
}

fn sample_head(version: &str) -> String {
    format!(
        "\
# swarm {version}: a first pool. The operator makes three pods, and shares 27 streams among them.
#
# On a cluster with the operator:
#
#   kubectl create namespace demo
#   kubectl apply -n demo -f {SAMPLE}
#   kubectl wait -n demo --for=condition=Ready swarm/streams-managed --timeout=120s
#
# Remove it:
#
#   kubectl delete namespace demo
#
# On one machine the same file runs without a cluster:
#
#   swarm local {SAMPLE}
"
    )
}

/// Returns a sample without its first comments, which name files of the checkout.
fn without_head(sample: &str) -> Result<&str> {
    let start = sample.find("\napiVersion: ").map(|line| line + 1);
    let start = start.with_context(|| format!("{SAMPLE_OF_CHECKOUT} has no line `apiVersion:`"))?;
    Ok(&sample[start..])
}

/// Lists the images of the release, as a kustomization puts them over the images of the checkout.
fn images(arguments: &Arguments) -> Result<Vec<Value>> {
    let current = pins::read(repository::root())?;
    let image = |pin: &pins::Pin| {
        let mut image = json!({
            "name": pin.current(),
            "newName": format!("{}/{}", arguments.registry, pin.name),
            "newTag": arguments.version,
        });
        let digest = match pin.name.as_str() {
            "swarm-operator" => arguments.operator_digest.as_ref(),
            _ => arguments.worker_digest.as_ref(),
        };
        if let Some(digest) = digest {
            image["digest"] = json!(digest);
        }
        image
    };
    Ok(current.iter().map(image).collect())
}

/// Renders a folder of the checkout with other images.
fn render(folder: &str, images: &[Value]) -> Result<String> {
    // Kustomize takes folders by relative paths only, so the kustomization is in the checkout, in a
    // folder that git ignores.
    let ignored = repository::root().join("target");
    fs::create_dir_all(&ignored).context("cannot create the folder target")?;
    let place = tempfile::Builder::new().prefix("manifests-").tempdir_in(&ignored);
    let place = place.context("cannot create a folder in target")?;
    let kustomization = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [format!("../../{folder}")],
        "sortOptions": {"order": "fifo"},
        "images": images,
    });
    fs::write(place.path().join("kustomization.yaml"), serde_yaml::to_string(&kustomization)?)?;
    repository::kustomize(&place.path().display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_of_a_release_names_no_file_of_the_checkout() {
        let sample = fs::read_to_string(repository::root().join(SAMPLE_OF_CHECKOUT)).unwrap();
        let released = sample_head("0.1.0") + without_head(&sample).unwrap();
        assert!(!released.contains("deploy/") && !released.contains("../"), "{released}");
        let read = |text: &str| serde_yaml::from_str::<Value>(text).unwrap();
        assert_eq!(read(&released), read(&sample));
        assert!(without_head("# Only a comment\n").is_err());
    }
}
