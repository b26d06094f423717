//! One Kubernetes cluster of two nodes: etcd, the control plane, one kube-proxy for both nodes, and
//! containerd and kubelet twice.
//!
//! Everything is below [`FOLDER`], in memory and in separate namespaces. So every boot starts
//! empty, and a cluster needs no shutdown. The addresses and node ports of Services work for pods
//! and for this process. Names ([`dns`](crate::dns)) work for pods only.

mod audit;
mod boot;
mod components;
mod faults;
mod node;
mod services;

pub use audit::{Audit, Mark, Request};
pub use boot::{Setup, client, takes_pods};
pub use components::Components;
pub use faults::{CutOff, EtcdCopy, Frozen};

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use kube::{Api, Client};
use tokio::process::Command;

use crate::binaries::Binaries;
use crate::command::stdout_of;
use crate::output::say;
use crate::until::until;

/// The folder of all files of the cluster, inside the sandbox.
pub const FOLDER: &str = "/run/swarm-e2e";
/// The address of the `kubernetes` Service, which every pod gets.
pub const SERVICE_ADDRESS: &str = "10.96.0.1";
/// The address of the DNS responder. No Service gets this address by chance: Services that ask for
/// no address get higher ones.
pub const DNS_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
/// The addresses of pods. Each node has a range of 256 of them.
pub const POD_ADDRESSES: &str = "10.88.0.0/16";
/// The numbers of the nodes. The API server advertises the address of node 1.
pub const NODES: [u8; 2] = [1, 2];
/// The number of runs of kubectl on a machine that is too busy for a handshake of TLS in ten seconds.
/// Such a run has sent nothing.
const HANDSHAKES: usize = 5;

/// A node's address.
#[must_use]
pub fn node_address(node: u8) -> String {
    format!("10.90.0.{node}")
}

/// The address of the API server for a node's kubelet, on our loopback device. Each node has
/// another address, so that one node can be cut off.
#[must_use]
pub fn server_address(node: u8) -> String {
    format!("10.91.0.{node}")
}

/// A node's name.
#[must_use]
pub fn node_name(node: u8) -> String {
    format!("node-{node}")
}

/// The folder of this machine's network plugins.
///
/// # Errors
///
/// When it has none.
pub fn plugins_folder() -> Result<&'static str> {
    let places = ["/usr/lib/cni", "/opt/cni/bin"];
    let found = places.into_iter().find(|place| Path::new(place).join("bridge").exists());
    found.context("no network plugins; on Debian: apt-get install containernetworking-plugins")
}

/// A running cluster.
pub struct Cluster {
    /// The client of the API server, as administrator.
    pub client: Client,
    /// The kubeconfig of the administrator, for kubectl and similar programs.
    pub kubeconfig: PathBuf,
    /// The processes of the cluster, whose logs can be read, and which can be broken.
    pub components: Components,
    /// The audit log: the requests to the API server, with their users.
    pub audit: Audit,
    /// The programs of the cluster, kubectl among them, and our own programs.
    pub binaries: Binaries,
    /// Whether the operator is installed. It is installed at most once.
    pub(crate) operator: tokio::sync::OnceCell<bool>,
}

impl Cluster {
    /// Runs kubectl as administrator, and returns its output.
    ///
    /// # Errors
    ///
    /// When kubectl fails. The error has its stderr.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(self.binaries.control_plane.join("kubectl"));
        command.args(args).envs(self.environment()).kill_on_drop(true);
        let mut output = command.output().await?;
        for _ in 1..HANDSHAKES {
            if !String::from_utf8_lossy(&output.stderr).contains("TLS handshake timeout") {
                break;
            }
            output = command.output().await?;
        }
        stdout_of(&format!("kubectl {}", args.join(" ")), &output)
    }

    /// Applies a manifest, as `kubectl apply --filename -`.
    ///
    /// # Errors
    ///
    /// When the API server refuses the manifest.
    pub async fn apply(&self, namespace: &str, manifest: &str) -> Result<()> {
        let folder = tempfile::tempdir_in(FOLDER)?;
        let file = folder.path().join("manifest.yaml");
        // Without the separator, an older kubectl takes a flow mapping for JSON.
        tokio::fs::write(&file, format!("---\n{manifest}")).await?;
        let file = file.display().to_string();
        self.kubectl(&["apply", "--namespace", namespace, "--filename", &file]).await.map(drop)
    }

    /// The environment in which a program reaches this cluster. The kubectl that was built for it
    /// and our own programs are on its path.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, std::ffi::OsString)> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let Binaries { control_plane, ours } = self.binaries.clone();
        let folders = [control_plane, ours].into_iter().chain(std::env::split_paths(&path));
        vec![
            ("KUBECONFIG", self.kubeconfig.clone().into()),
            // kubectl caches an API server by its address, and each boot starts a new one.
            ("KUBECACHEDIR", format!("{FOLDER}/kubectl").into()),
            ("PATH", std::env::join_paths(folders).unwrap_or(path.clone())),
        ]
    }

    /// Sends GET to a pod's port through the API server and returns the body.
    ///
    /// # Errors
    ///
    /// When the pod cannot be reached, or does not answer with success.
    pub async fn pod_http(
        &self,
        namespace: &str,
        pod: &str,
        port: u16,
        path: &str,
    ) -> Result<String> {
        let path = path.trim_start_matches('/');
        let uri = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy/{path}");
        Ok(self.client.request_text(http::Request::get(uri).body(Vec::new())?).await?)
    }

    /// A pod's log.
    ///
    /// # Errors
    ///
    /// When the pod does not exist, or has not started.
    pub async fn pod_log(&self, namespace: &str, pod: &str) -> Result<String> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        Ok(pods.logs(pod, &LogParams::default()).await?)
    }

    /// Repairs the faults that a scenario has left: frozen components continue, ended ones are
    /// restarted, and nodes are reconnected and take pods.
    ///
    /// # Errors
    ///
    /// When the cluster does not come back.
    pub async fn mend(&self) -> Result<()> {
        faults::mend()?;
        until("the nodes to be mended", || async {
            // Without its container runtime a kubelet ends seconds after its start, while its node
            // is still reported as ready. So the runtimes come first.
            let mut ended = self.components.mend(|name| !name.starts_with("kubelet"))?;
            for node in NODES {
                node::answers(node).await?;
            }
            ended.extend(self.components.mend(|_| true)?);
            for name in ended {
                say(format_args!("{name} was left broken; started again"));
            }
            self.components.refresh(&["controller-manager", "scheduler"], "apiserver")?;
            boot::nodes_ready(self).await
        })
        .await?;
        self.uncordon_all().await
    }

    /// The socket of a node's container runtime, for `ctr`.
    ///
    /// # Errors
    ///
    /// When the node does not exist.
    pub fn runtime_socket(&self, node: u8) -> Result<String> {
        if !NODES.contains(&node) {
            bail!("there is no node {node}");
        }
        Ok(node::socket(node))
    }
}
