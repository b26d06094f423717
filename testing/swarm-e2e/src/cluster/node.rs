//! One node: a container runtime, a pod network and a kubelet, separate from the other node's.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::json;
use tokio::process::Command;

use super::{Cluster, DNS_ADDRESS, FOLDER, node_address, node_name, plugins_folder};
use crate::command::stdout_of;
use crate::images::{NEXT_WORKER, PAUSE, WORKER};
use crate::pki::Authority;

fn folder(node: u8) -> String {
    format!("{FOLDER}/{}", node_name(node))
}

/// The socket of a node's container runtime.
pub(super) fn socket(node: u8) -> String {
    format!("{}/containerd.sock", folder(node))
}

/// Starts a node's container runtime.
pub(super) fn runtime(cluster: &Cluster, node: u8) -> Result<()> {
    let folder = folder(node);
    fs::create_dir_all(format!("{folder}/cni"))?;
    fs::write(format!("{folder}/cni/10-pods.conflist"), pod_network(node).to_string())?;
    let config = format!("{folder}/containerd.toml");
    fs::write(&config, runtime_config(node)?)?;
    let args = vec!["--config".to_owned(), config];
    // A control plane that needs a newer containerd than Debian's has one, with its shim.
    let own = cluster.binaries.control_plane.join("containerd");
    let program = if own.exists() { &own } else { Path::new("containerd") };
    cluster.components.start(&format!("containerd-{node}"), program, args)
}

fn runtime_config(node: u8) -> Result<String> {
    let folder = folder(node);
    // Without `restrict_oom_score_adj` no pod starts if root lacks CAP_SYS_RESOURCE, as in most CI
    // containers. The `opt` plugin would make a folder on the host, and both nodes would share the
    // socket of the `nri` plugin.
    Ok(format!(
        r#"version = 2
root = "{folder}/containerd/root"
state = "{folder}/containerd/state"
[grpc]
address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
path = "{folder}/containerd/opt"
[plugins."io.containerd.nri.v1.nri"]
disable = true
[plugins."io.containerd.grpc.v1.cri"]
restrict_oom_score_adj = true
sandbox_image = "{PAUSE}"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{plugins}"
conf_dir = "{folder}/cni"
"#,
        socket = socket(node),
        plugins = plugins_folder()?,
    ))
}

/// A bridge and a subnet per node. Both nodes share one network stack, so their pods reach each
/// other. A pod may reach itself through a Service, because its port may send packets back (hairpin
/// mode).
fn pod_network(node: u8) -> serde_json::Value {
    json!({
        "cniVersion": "0.4.0",
        "name": format!("pods-{node}"),
        "plugins": [{
            "type": "bridge",
            "bridge": format!("pods-{node}"),
            "isGateway": true,
            "hairpinMode": true,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": format!("10.88.{node}.0/24")}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }],
    })
}

/// Whether a node's container runtime takes requests.
pub(super) async fn answers(node: u8) -> Result<Option<()>> {
    ctr(node, &["version"]).await?;
    Ok(Some(()))
}

/// Imports images on a node.
pub(super) async fn import(node: u8, images: &[PathBuf]) -> Result<()> {
    for image in images {
        let image = image.display().to_string();
        ctr(node, &["--namespace", "k8s.io", "images", "import", &image]).await?;
    }
    let [worker, next] = [WORKER, NEXT_WORKER].map(|name| format!("docker.io/library/{name}"));
    ctr(node, &["--namespace", "k8s.io", "images", "tag", &worker, &next]).await.map(drop)
}

/// The processes of a node's running containers, by container.
pub(super) async fn tasks(node: u8) -> Result<BTreeMap<String, u32>> {
    let table = ctr(node, &["--namespace", "k8s.io", "tasks", "list"]).await?;
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
    };
    Ok(table.lines().skip(1).filter_map(row).collect())
}

async fn ctr(node: u8, args: &[&str]) -> Result<String> {
    let socket = socket(node);
    let mut command = Command::new("ctr");
    command.args(["--address", &socket]).args(args).kill_on_drop(true);
    stdout_of(&format!("ctr {}", args.join(" ")), &command.output().await?)
}

/// Starts a node's kubelet.
pub(super) fn kubelet(cluster: &Cluster, authority: &Authority, node: u8) -> Result<()> {
    let (folder, name) = (folder(node), node_name(node));
    let config = format!("{folder}/kubelet.json");
    fs::write(&config, kubelet_config(authority, node).to_string())?;
    let args = vec![
        format!("--config={config}"),
        format!("--kubeconfig={}", authority.path(&format!("{name}.kubeconfig"))),
        format!("--hostname-override={name}"),
        format!("--root-dir={folder}/kubelet"),
        // A kubelet refuses a loopback address.
        format!("--node-ip={}", node_address(node)),
    ];
    cluster.components.start(
        &format!("kubelet-{node}"),
        &cluster.binaries.control_plane.join("kubelet"),
        args,
    )
}

fn kubelet_config(authority: &Authority, node: u8) -> serde_json::Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": format!("unix://{}", socket(node)),
        "port": 10249 + u16::from(node),
        "healthzPort": 0,
        "readOnlyPort": 0,
        "volumePluginDir": format!("{}/volume-plugins", folder(node)),
        // Once a minute a kubelet removes logs of unknown pods, so the nodes must not share a
        // folder.
        "podLogsDir": format!("{}/pod-logs", folder(node)),
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": false},
            "x509": {"clientCAFile": authority.path("ca.crt")},
        },
        "authorization": {"mode": "AlwaysAllow"},
        // The machine may have cgroup v1. Both kubelets share one tree, so neither may arrange it,
        // and their containers are siblings.
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "failSwapOn": false,
        "localStorageCapacityIsolation": false,
        "makeIPTablesUtilChains": false,
        "clusterDNS": [DNS_ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": "",
        // Imported images cannot be pulled again, so they must not be collected.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        // With these settings a lost node is noticed within seconds.
        "nodeStatusUpdateFrequency": "2s",
        "nodeLeaseDurationSeconds": 10,
    })
}
