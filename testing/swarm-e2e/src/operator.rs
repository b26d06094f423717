//! Installs the product into a cluster, from the manifests a user would apply.

use anyhow::Result;

use crate::binaries::repository;
use crate::cluster::Cluster;

/// The namespace the manifests put the operator into.
pub const NAMESPACE: &str = "swarm";

/// Installs custom resources and operator, once per cluster, and waits until it is available.
///
/// Answers `false` where the repository has no manifests.
///
/// # Errors
///
/// When a manifest is refused or the operator does not come up.
pub async fn install_operator(cluster: &Cluster) -> Result<bool> {
    cluster.operator.get_or_try_init(|| install(cluster)).await.copied()
}

/// Installs them, also again after they were removed.
pub(crate) async fn install(cluster: &Cluster) -> Result<bool> {
    let deploy = repository().join("deploy");
    let (crds, base) = (deploy.join("crds"), deploy.join("base"));
    if !crds.is_dir() || !base.is_dir() {
        return Ok(false);
    }
    cluster.kubectl(&["apply", "--kustomize", &crds.display().to_string()]).await?;
    let established = ["--for=condition=Established", "customresourcedefinition", "--all"];
    wait(cluster, &established).await?;
    cluster.kubectl(&["apply", "--kustomize", &base.display().to_string()]).await?;
    let available = ["--for=condition=Available", "deployment", "--all", "--namespace", NAMESPACE];
    wait(cluster, &available).await?;
    Ok(true)
}

async fn wait(cluster: &Cluster, what: &[&str]) -> Result<()> {
    let args = [&["wait", "--timeout=60s"], what].concat();
    cluster.kubectl(&args).await.map(drop)
}

/// Applies the samples a reader of the documentation would try; `false` where there are none.
///
/// # Errors
///
/// When one is refused.
pub async fn install_samples(cluster: &Cluster) -> Result<bool> {
    let samples = repository().join("deploy/samples");
    if !samples.is_dir() {
        return Ok(false);
    }
    let samples = samples.display().to_string();
    cluster.kubectl(&["apply", "--namespace", NAMESPACE, "--filename", &samples]).await?;
    Ok(true)
}
