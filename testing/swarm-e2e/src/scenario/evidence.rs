//! The evidence of a failure. It is kept on the host, where it survives the end of the namespaces.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, LogParams};
use kube::{Api, ResourceExt as _};

use crate::cache::Cache;
use crate::cluster::Cluster;
use crate::run_log;

/// Copies `failure`, the logs of all components, and the objects in `namespaces` into a new folder,
/// and returns the folder. A reason replaces each part that cannot be copied.
///
/// # Errors
///
/// When the folder cannot be written.
pub async fn collect(
    cache: &Cache,
    cluster: &Cluster,
    name: &str,
    failure: &str,
    namespaces: &[String],
) -> Result<PathBuf> {
    let folder = component_logs(cache, cluster.components.logs(), name)?;
    fs::write(folder.join("failure.txt"), failure)?;
    let nodes = cluster.kubectl(&["describe", "nodes"]).await;
    fs::write(folder.join("nodes.txt"), or_reason(nodes))?;
    for namespace in namespaces {
        let folder = folder.join(namespace);
        fs::create_dir_all(&folder)?;
        for log in fs::read_dir(run_log::folder(namespace)).into_iter().flatten() {
            let log = log?;
            fs::copy(log.path(), folder.join(log.file_name()))?;
        }
        objects(cluster, namespace, &folder).await?;
        if let Err(err) = pod_logs(cluster, namespace, &folder).await {
            fs::write(folder.join("logs-missing.txt"), format!("{err:#}"))?;
        }
    }
    Ok(folder)
}

/// Copies the logs of all components into a new folder. A failed boot leaves no other evidence.
///
/// # Errors
///
/// When the folder cannot be written.
pub fn component_logs(cache: &Cache, logs: &Path, name: &str) -> Result<PathBuf> {
    let time = Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    let folder = cache.failures().join(format!("{name}-{time}"));
    fs::create_dir_all(folder.join("components"))?;
    for log in fs::read_dir(logs)? {
        let log = log?;
        fs::copy(log.path(), folder.join("components").join(log.file_name()))?;
    }
    Ok(folder)
}

/// Writes the objects of a namespace by kind, and its events in order of time.
async fn objects(cluster: &Cluster, namespace: &str, folder: &Path) -> Result<()> {
    let get = |what| ["get", what, "--namespace", namespace, "--output", "yaml"];
    let mut kinds =
        vec!["all,configmaps,leases.coordination.k8s.io,poddisruptionbudgets".to_owned()];
    // The group identifies the installed CRDs of swarm.
    let ours = cluster.kubectl(&["api-resources", "--namespaced", "--output", "name"]).await;
    let ours = ours.unwrap_or_default();
    kinds.extend(ours.lines().filter(|kind| kind.contains(".k8slab.info")).map(str::to_owned));
    for (index, kind) in kinds.iter().enumerate() {
        let name = if index == 0 { "objects" } else { kind };
        let yaml = or_reason(cluster.kubectl(&get(kind)).await);
        fs::write(folder.join(format!("{name}.yaml")), yaml)?;
    }
    let events = ["events", "--namespace", namespace];
    Ok(fs::write(folder.join("events.txt"), or_reason(cluster.kubectl(&events).await))?)
}

/// Writes the log of every container, and of its previous instance if it had one.
async fn pod_logs(cluster: &Cluster, namespace: &str, folder: &Path) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), namespace);
    for pod in pods.list(&ListParams::default()).await? {
        let name = pod.name_any();
        let spec = pod.spec.unwrap_or_default();
        let containers =
            spec.init_containers.unwrap_or_default().into_iter().chain(spec.containers);
        for container in containers.map(|container| container.name) {
            for (previous, ending) in [(false, ""), (true, ".previous")] {
                let container = Some(container.clone());
                let params = LogParams { container, previous, ..LogParams::default() };
                let Ok(log) = pods.logs(&name, &params).await else { continue };
                let container = params.container.unwrap_or_default();
                fs::write(folder.join(format!("{name}.{container}{ending}.log")), log)?;
            }
        }
    }
    Ok(())
}

fn or_reason(said: Result<String>) -> String {
    said.unwrap_or_else(|err| format!("# not to be had: {err:#}\n"))
}
