//! The boot of a cluster, until it accepts pods.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use http::Request;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use tokio::task::JoinSet;

use super::{
    Audit, Cluster, Components, FOLDER, NODES, SERVICE_ADDRESS, node, node_address, node_name,
    server_address, services,
};
use crate::binaries::Binaries;
use crate::output::Laps;
use crate::pki::{Authority, Identity};
use crate::until::{until, until_within};

/// The bound on each stage of the boot, many times as long as a stage takes on two cores.
const STAGE_WITHIN: Duration = Duration::from_secs(90);
/// The address of the API server for all clients except nodes.
const SERVER: &str = "https://127.0.0.1:443";
const ETCD: &str = "http://127.0.0.1:2379";
const ETCD_PEER: &str = "http://127.0.0.1:2380";

/// The programs and images of a cluster.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The programs of its processes.
    pub binaries: Binaries,
    /// The image archives that every node imports.
    pub images: Vec<PathBuf>,
}

impl Cluster {
    /// Boots a cluster, and returns when pods can be created in namespace `default`.
    ///
    /// # Errors
    ///
    /// When a component does not come up; the logs are in `{FOLDER}/log`.
    pub async fn boot(setup: &Setup, laps: &Laps) -> Result<Self> {
        let authority = Authority::new(&Path::new(FOLDER).join("pki"))?;
        let kubeconfig = certificates(&authority)?;
        let cluster = Self {
            client: client(&kubeconfig).await?,
            kubeconfig,
            components: Components::new(&Path::new(FOLDER).join("log"))?,
            audit: Audit::new(&Path::new(FOLDER).join("audit"))?,
            binaries: setup.binaries.clone(),
            operator: tokio::sync::OnceCell::new(),
        };
        etcd(&cluster)?;
        api_server(&cluster, &authority)?;
        let runtimes = runtimes(&cluster, setup)?;
        until("the API server", || is_serving(&cluster)).await?;
        laps.lap("API server ready");

        controller_manager(&cluster, &authority)?;
        scheduler(&cluster, &authority)?;
        services::kube_proxy(&cluster, &authority).await?;
        services::dns(&cluster, &authority)?;
        for imported in runtimes.join_all().await {
            let node = imported?;
            node::kubelet(&cluster, &authority, node)?;
        }
        laps.lap("images imported");
        cluster.nodes_ready().await?;
        laps.lap("nodes ready");
        cluster.namespace_ready("default", STAGE_WITHIN).await?;
        laps.lap("service accounts ready");
        Ok(cluster)
    }

    /// Waits until every node is ready.
    ///
    /// # Errors
    ///
    /// When a node is not ready within its bound.
    pub async fn nodes_ready(&self) -> Result<()> {
        until("the nodes", || nodes_ready(self)).await
    }

    /// Waits until pods can be created in a namespace: admission needs its default service account.
    ///
    /// # Errors
    ///
    /// When the account is missing for longer than `within`.
    pub async fn namespace_ready(&self, namespace: &str, within: Duration) -> Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let what = format!("the default service account of {namespace}");
        until_within(&what, within, || async {
            self.components.all_running()?;
            Ok(accounts.get_opt("default").await?)
        })
        .await
        .map(drop)
    }
}

/// Makes every certificate and returns the administrator's kubeconfig.
fn certificates(authority: &Authority) -> Result<PathBuf> {
    let masters = Some("system:masters");
    let own_node = node_address(NODES[0]);
    let for_nodes = NODES.map(server_address);
    let mut names = vec!["127.0.0.1", SERVICE_ADDRESS, &own_node, "localhost"];
    names.extend(for_nodes.iter().map(String::as_str));
    authority.server("apiserver", &names)?;
    authority.signing_pair("service-accounts")?;
    let client =
        |file: &str, user: &str, group| authority.client(file, &Identity { user, group }, SERVER);
    client("apiserver-to-kubelet", "apiserver-to-kubelet", masters)?;
    client("controller-manager", "system:kube-controller-manager", None)?;
    client("scheduler", "system:kube-scheduler", None)?;
    client("kube-proxy", "system:kube-proxy", None)?;
    client("dns", "dns", masters)?;
    for node in NODES {
        let (name, group) = (node_name(node), Some("system:nodes"));
        let identity = Identity { user: &format!("system:node:{name}"), group };
        authority.client(&name, &identity, &format!("https://{}:443", server_address(node)))?;
    }
    client("admin", "admin", masters)
}

/// A client with the identity of a kubeconfig.
///
/// # Errors
///
/// When it cannot be read.
pub async fn client(kubeconfig: &Path) -> Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Client::try_from(config).context("cannot make a client")
}

fn etcd(cluster: &Cluster) -> Result<()> {
    let args = vec![
        format!("--data-dir={FOLDER}/etcd"),
        // The data is in memory, where syncing proves nothing and costs seconds.
        "--unsafe-no-fsync=true".to_owned(),
        format!("--listen-client-urls={ETCD}"),
        format!("--advertise-client-urls={ETCD}"),
        format!("--listen-peer-urls={ETCD_PEER}"),
        format!("--initial-advertise-peer-urls={ETCD_PEER}"),
        format!("--initial-cluster=default={ETCD_PEER}"),
    ];
    cluster.components.start("etcd", &cluster.binaries.control_plane.join("etcd"), args)
}

fn api_server(cluster: &Cluster, authority: &Authority) -> Result<()> {
    let file = |flag: &str, file: &str| format!("--{flag}={}", authority.path(file));
    let mut args = vec![
        format!("--etcd-servers={ETCD}"),
        "--bind-address=0.0.0.0".to_owned(),
        "--secure-port=443".to_owned(),
        format!("--advertise-address={}", node_address(NODES[0])),
        // The Service's address is on our loopback device, so an endpoint would be useless.
        "--endpoint-reconciler-type=none".to_owned(),
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--allow-privileged=true".to_owned(),
        file("tls-cert-file", "apiserver.crt"),
        file("tls-private-key-file", "apiserver.key"),
        file("client-ca-file", "ca.crt"),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        file("service-account-key-file", "service-accounts.pub"),
        file("service-account-signing-key-file", "service-accounts.key"),
        // Names of nodes cannot be resolved, so logs, exec and port-forward use addresses.
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        file("kubelet-client-certificate", "apiserver-to-kubelet.crt"),
        file("kubelet-client-key", "apiserver-to-kubelet.key"),
    ];
    args.extend(cluster.audit.flags());
    cluster.components.start(
        "apiserver",
        &cluster.binaries.control_plane.join("kube-apiserver"),
        args,
    )
}

fn controller_manager(cluster: &Cluster, authority: &Authority) -> Result<()> {
    let mut args = authenticated(authority, "controller-manager");
    args.extend([
        "--use-service-account-credentials=true".to_owned(),
        format!("--service-account-private-key-file={}", authority.path("service-accounts.key")),
        format!("--root-ca-file={}", authority.path("ca.crt")),
        // At the default of 20 requests a second, starting the controllers would take four seconds.
        "--kube-api-qps=500".to_owned(),
        "--kube-api-burst=1000".to_owned(),
        // By default the controller manager makes this folder on the host.
        format!("--flex-volume-plugin-dir={FOLDER}/volume-plugins"),
        // A horizontal autoscaler acts within a second instead of 15.
        "--horizontal-pod-autoscaler-sync-period=1s".to_owned(),
        // A silent node counts as lost within seconds instead of most of a minute.
        "--node-monitor-period=1s".to_owned(),
        "--node-monitor-grace-period=8s".to_owned(),
    ]);
    let program = cluster.binaries.control_plane.join("kube-controller-manager");
    cluster.components.start("controller-manager", &program, args)
}

fn scheduler(cluster: &Cluster, authority: &Authority) -> Result<()> {
    let args = authenticated(authority, "scheduler");
    cluster.components.start(
        "scheduler",
        &cluster.binaries.control_plane.join("kube-scheduler"),
        args,
    )
}

/// The flags that both clients of the API server share.
fn authenticated(authority: &Authority, name: &str) -> Vec<String> {
    let kubeconfig = authority.path(&format!("{name}.kubeconfig"));
    vec![
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--bind-address=127.0.0.1".to_owned(),
        // Each has one replica, and waiting for a lease would cost seconds.
        "--leader-elect=false".to_owned(),
    ]
}

/// Starts the container runtimes and imports images on all nodes at once, while the API server
/// boots.
fn runtimes(cluster: &Cluster, setup: &Setup) -> Result<JoinSet<Result<u8>>> {
    let mut imports = JoinSet::new();
    for node in NODES {
        node::runtime(cluster, node)?;
        let images = setup.images.clone();
        imports.spawn(async move {
            until("the container runtime", || node::answers(node)).await?;
            node::import(node, &images).await?;
            Ok(node)
        });
    }
    Ok(imports)
}

/// Whether the API server takes requests, and all components run.
pub(super) async fn is_serving(cluster: &Cluster) -> Result<Option<()>> {
    cluster.components.all_running()?;
    answers(cluster).await
}

/// Whether the API server takes requests.
pub(super) async fn answers(cluster: &Cluster) -> Result<Option<()>> {
    let ready = Request::get("/readyz").body(Vec::new())?;
    cluster.client.request_text(ready).await?;
    Ok(Some(()))
}

/// Whether the scheduler places pods on a node again. Kubernetes removes its taint a moment after
/// the node is ready, and until then every new pod goes to the other node.
#[must_use]
pub fn takes_pods(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let mut keys = taints.map(|taint| taint.key.as_str());
    !keys.any(|key| key.ends_with("/not-ready") || key.ends_with("/unreachable"))
}

/// Whether all nodes are ready and take pods.
pub(super) async fn nodes_ready(cluster: &Cluster) -> Result<Option<()>> {
    cluster.components.all_running()?;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    for name in NODES.map(node_name) {
        let node = nodes.get(&name).await?;
        let taken = takes_pods(&node);
        let conditions = node.status.and_then(|status| status.conditions);
        let ready = conditions.unwrap_or_default().into_iter().find(|c| c.type_ == "Ready");
        match ready {
            Some(condition) if condition.status == "True" && taken => (),
            Some(condition) if condition.status == "True" => bail!("{name} is still tainted"),
            Some(condition) => bail!("{name}: {}", condition.message.unwrap_or_default()),
            None => bail!("{name} has not reported"),
        }
    }
    Ok(Some(()))
}
