//! One Kubernetes cluster of two nodes: etcd, the control plane, one kube-proxy for both nodes, and
//! containerd and kubelet twice.
//!
//! Everything lies below [`FOLDER`], in memory and in namespaces of its own, so a boot starts from
//! nothing and a cluster needs no shutdown. Services have their addresses and node ports, for pods
//! and for this process; pods have their names as well ([`dns`](crate::dns)).

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
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use kube::{Api, Client};
use tokio::process::Command;

use crate::binaries::Binaries;
use crate::command::stdout_of;
use crate::output::say;
use crate::until::until;

/// Where the cluster keeps everything, inside.
pub const FOLDER: &str = "/run/swarm-e2e";
/// The address of the `kubernetes` Service, which every pod gets.
pub const SERVICE_ADDRESS: &str = "10.96.0.1";
/// Where pods find names. No Service is given this address by chance: those without a wish for one
/// get higher ones.
pub const DNS_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
/// How long it may take until everything that a scenario has broken runs again.
const MENDED_WITHIN: Duration = Duration::from_secs(90);
/// Where pods have their addresses: each node has a range of 256 in it.
pub const POD_ADDRESSES: &str = "10.88.0.0/16";
/// The numbers of the nodes; node 1 also lends its address to the API server.
pub const NODES: [u8; 2] = [1, 2];

/// A node's address.
#[must_use]
pub fn node_address(node: u8) -> String {
    format!("10.90.0.{node}")
}

/// Where a node's kubelet finds the API server: each has an address of its own for it, on our
/// loopback device, so that one node can be cut off.
#[must_use]
pub fn server_address(node: u8) -> String {
    format!("10.91.0.{node}")
}

/// A node's name.
#[must_use]
pub fn node_name(node: u8) -> String {
    format!("node-{node}")
}

/// Where this machine has the network plugins.
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
    /// Speaks to the API server as administrator.
    pub client: Client,
    /// The same identity as a file, for kubectl and its like.
    pub kubeconfig: PathBuf,
    /// Its processes, for reading their logs and for breaking them.
    pub components: Components,
    /// What the API server was asked for, and by whom.
    pub audit: Audit,
    /// The programs it was started from, kubectl among them, and our own.
    pub binaries: Binaries,
    /// Whether the operator is installed; it is, at most once.
    pub(crate) operator: tokio::sync::OnceCell<bool>,
}

impl Cluster {
    /// Runs kubectl as administrator and returns what it printed.
    ///
    /// # Errors
    ///
    /// When it ends with anything but success; the text carries its stderr.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(self.binaries.control_plane.join("kubectl"));
        command.args(args).envs(self.environment()).kill_on_drop(true);
        stdout_of(&format!("kubectl {}", args.join(" ")), &command.output().await?)
    }

    /// Applies a manifest, as `kubectl apply --filename -`.
    ///
    /// # Errors
    ///
    /// When the API server refuses it.
    pub async fn apply(&self, namespace: &str, manifest: &str) -> Result<()> {
        let folder = tempfile::tempdir_in(FOLDER)?;
        let file = folder.path().join("manifest.yaml");
        tokio::fs::write(&file, manifest).await?;
        let file = file.display().to_string();
        self.kubectl(&["apply", "--namespace", namespace, "--filename", &file]).await.map(drop)
    }

    /// What a program needs to reach this cluster, with the kubectl that was built for it and with
    /// our own programs on its path.
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
    /// When the pod cannot be reached, or answers with anything but success.
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
    /// When there is no such pod, or it has not started.
    pub async fn pod_log(&self, namespace: &str, pod: &str) -> Result<String> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        Ok(pods.logs(pod, &LogParams::default()).await?)
    }

    /// Repairs whatever a scenario has broken and not repaired: frozen components continue, ended ones
    /// are restarted, and nodes are reconnected and take pods.
    ///
    /// # Errors
    ///
    /// When the cluster does not come back.
    pub async fn mend(&self) -> Result<()> {
        faults::mend()?;
        until("the nodes to be mended", MENDED_WITHIN, || async {
            // A kubelet ends if it does not find its container runtime, seconds after it was started
            // and while its node is still reported as ready.
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
    /// When there is no such node.
    pub fn runtime_socket(&self, node: u8) -> Result<String> {
        if !NODES.contains(&node) {
            bail!("there is no node {node}");
        }
        Ok(node::socket(node))
    }
}
