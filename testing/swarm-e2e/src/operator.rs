//! Installs the product into a cluster, from the manifests that a user would apply.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::process::{Child, Command};

use crate::binaries::repository;
use crate::cluster::{Cluster, FOLDER, Request};
use crate::proxy::Proxy;
use crate::until::until;

/// The namespace of the operator in the manifests.
pub const NAMESPACE: &str = "swarm-system";
/// The namespace of the samples.
pub const SAMPLES_NAMESPACE: &str = "streams";
/// The number of replicas in the manifests.
pub const REPLICAS: usize = 2;
/// The operator's user name at the API server.
pub const ACCOUNT: &str = "system:serviceaccount:swarm-system:swarm-operator";

/// Installs the CRDs and the operator once per cluster, and waits until it is available.
///
/// Returns `false` if the repository has no manifests.
///
/// # Errors
///
/// When a manifest is refused or the operator does not come up.
pub async fn install_operator(cluster: &Cluster) -> Result<bool> {
    cluster.operator.get_or_try_init(|| install(cluster)).await.copied()
}

/// Installs the CRDs and the operator, also again after they were removed.
pub(crate) async fn install(cluster: &Cluster) -> Result<bool> {
    // The overlay adds the rights for managed pools to the base.
    let base = repository().join("deploy/overlays/managed");
    if !base.is_dir() || !install_resources(cluster).await? {
        return Ok(false);
    }
    apply(cluster, &base).await?;
    let available = ["--for=condition=Available", "deployment", "--all", "--namespace", NAMESPACE];
    wait(cluster, &available).await?;
    Ok(true)
}

/// Installs the CRDs alone, for an operator that runs outside of the cluster.
///
/// Returns `false` if the repository has none.
///
/// # Errors
///
/// When the API server refuses an object.
pub async fn install_resources(cluster: &Cluster) -> Result<bool> {
    let crds = repository().join("deploy/crds");
    if !crds.is_dir() {
        return Ok(false);
    }
    apply(cluster, &crds).await?;
    let established = ["--for=condition=Established", "customresourcedefinition", "--all"];
    wait(cluster, &established).await?;
    Ok(true)
}

/// Applies a folder of manifests as the documentation does, also over changes by scenarios.
///
/// # Errors
///
/// When the API server refuses an object.
pub(crate) async fn apply(cluster: &Cluster, folder: &Path) -> Result<()> {
    let folder = folder.display().to_string();
    let apply = ["apply", "--server-side", "--force-conflicts", "--kustomize", &folder];
    cluster.kubectl(&apply).await.map(drop)
}

async fn wait(cluster: &Cluster, what: &[&str]) -> Result<()> {
    let args = [&["wait", "--timeout=5m"], what].concat();
    cluster.kubectl(&args).await.map(drop)
}

/// Applies the samples that a reader of the documentation would try; `false` if the repository has
/// none.
///
/// # Errors
///
/// When the API server refuses an object.
pub async fn install_samples(cluster: &Cluster) -> Result<bool> {
    let samples = repository().join("deploy/samples");
    if !samples.is_dir() {
        return Ok(false);
    }
    let samples = samples.display().to_string();
    cluster.kubectl(&["create", "namespace", SAMPLES_NAMESPACE]).await?;
    cluster.kubectl(&["apply", "--namespace", SAMPLES_NAMESPACE, "--filename", &samples]).await?;
    Ok(true)
}

/// Whether a request renews the Lease of an operator's replica, as happens all the time.
#[must_use]
pub fn renews(request: &Request) -> bool {
    (&*request.verb, &*request.resource, &*request.namespace) == ("update", "leases", NAMESPACE)
}

/// Ends the operator that [`install_operator`] has started, and returns when its pods are deleted.
///
/// # Errors
///
/// When the operator does not end.
pub async fn stop(cluster: &Cluster) -> Result<()> {
    scale(cluster, 0).await?;
    let pods = ["--for=delete", "pod", "--selector=app=swarm-controller", "--namespace", NAMESPACE];
    wait(cluster, &pods).await
}

/// Starts the installed operator again, and returns when it is available.
///
/// # Errors
///
/// When the operator does not come up.
pub async fn go_on(cluster: &Cluster) -> Result<()> {
    scale(cluster, REPLICAS).await
}

/// Scales the installed operator to `replicas`, and returns when they are available.
///
/// # Errors
///
/// When the replicas do not come up.
pub async fn scale(cluster: &Cluster, replicas: usize) -> Result<()> {
    let replicas = format!("--replicas={replicas}");
    let scale = ["scale", "deployment", "swarm-controller", &replicas, "--namespace", NAMESPACE];
    cluster.kubectl(&scale).await?;
    let status = ["rollout", "status", "deployment/swarm-controller", "--timeout=5m"];
    cluster.kubectl(&[&status[..], &["--namespace", NAMESPACE]].concat()).await.map(drop)
}

/// The pods of the installed operator, ending ones included.
///
/// # Errors
///
/// When the API server does not list them.
pub async fn pods(cluster: &Cluster) -> Result<Vec<Pod>> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    Ok(pods.list(&ListParams::default().labels("app=swarm-controller")).await?.items)
}

/// The Leases of the operator's replicas.
///
/// # Errors
///
/// When the API server does not list them.
pub(crate) async fn leases(cluster: &Cluster) -> Result<Vec<Lease>> {
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let of_group = ListParams::default().labels("replicas.k8slab.info/group=swarm-operator");
    let is_held = |lease: &Lease| {
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_ref());
        holder.is_some() && holder == lease.metadata.name.as_ref()
    };
    Ok(leases.list(&of_group).await?.items.into_iter().filter(is_held).collect())
}

/// Waits until `replicas` replicas have, or may have, objects of a controller, according to their
/// Leases.
///
/// # Errors
///
/// When this takes too long.
pub(crate) async fn all_share(cluster: &Cluster, replicas: usize, controller: &str) -> Result<()> {
    until("all replicas to have a share", || async {
        let leases = leases(cluster).await?;
        let of = |lease: &Lease| {
            let status = lease.metadata.annotations.as_ref()?.get("replicas.k8slab.info/status")?;
            let status: serde_json::Value = serde_json::from_str(status).ok()?;
            let buckets = status["controllers"][controller]["buckets"].as_u64()?;
            (0 < buckets).then_some(buckets)
        };
        let all: Vec<_> = leases.iter().filter_map(of).collect();
        ensure!(all.len() == replicas, "{all:?}");
        Ok(Some(()))
    })
    .await
}

/// A client with only the rights of the installed operator. It never repeats a request.
///
/// # Errors
///
/// When the operator's account does not exist.
pub async fn client(cluster: &Cluster) -> Result<Client> {
    let token = ["create", "token", "swarm-operator", "--namespace", NAMESPACE];
    let token = cluster.kubectl(&token).await?;
    let file = Kubeconfig::read_from(&cluster.kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    config.auth_info = AuthInfo { token: Some(token.trim().into()), ..AuthInfo::default() };
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// Stops the installed operator while `scenario` runs its own operators. Each is a [`Process`]
/// behind the proxy, which can stop it at any of its writes.
///
/// # Errors
///
/// When the operator does not stop or come back, or `scenario` fails.
pub async fn replaced<F, Run>(cluster: &Cluster, scenario: F) -> Result<()>
where
    F: FnOnce(Proxy) -> Run,
    Run: Future<Output = Result<()>>,
{
    let proxy = Proxy::start(client(cluster).await?).await?;
    // The installed operator would do the work of the scenario's operators.
    stop(cluster).await?;
    let outcome = scenario(proxy).await;
    go_on(cluster).await?;
    outcome
}

/// An operator as a child process, which can be killed at any moment.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts an operator that serves `namespace` and uses the API server at `address`,
    /// unencrypted.
    ///
    /// # Errors
    ///
    /// When the program is missing.
    pub fn start(cluster: &Cluster, address: SocketAddr, namespace: &str) -> Result<Self> {
        Self::start_as(cluster, address, namespace, &[])
    }

    /// Starts an operator with more arguments.
    ///
    /// # Errors
    ///
    /// When the program is missing.
    pub fn start_as(
        cluster: &Cluster,
        address: SocketAddr,
        namespace: &str,
        args: &[&str],
    ) -> Result<Self> {
        let program = Command::new(cluster.binaries.ours.join("swarm-operator"));
        Self::start_program(program, cluster, address, namespace, args)
    }

    /// Starts an operator from a command with its own program and environment.
    ///
    /// # Errors
    ///
    /// When the program is missing.
    pub fn start_program(
        mut command: Command,
        cluster: &Cluster,
        address: SocketAddr,
        namespace: &str,
        args: &[&str],
    ) -> Result<Self> {
        let port = address.port();
        let kubeconfig = Path::new(FOLDER).join(format!("operator-process-{port}.kubeconfig"));
        let text = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "e2e", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "e2e", "user": {}}],
            "contexts": [{"name": "e2e", "context": {
                "cluster": "e2e", "user": "e2e", "namespace": NAMESPACE,
            }}],
            "current-context": "e2e",
        });
        std::fs::write(&kubeconfig, text.to_string())?;
        let log = cluster.components.logs().join("operator-process.log");
        let log = File::options().create(true).append(true).open(log)?;
        command
            .args(["run", "--listen=127.0.0.1:0", "--namespace", namespace, "--kubeconfig"])
            .arg(kubeconfig)
            .args(args)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        Ok(Self(command.kill_on_drop(true).spawn().context("cannot start the operator")?))
    }

    /// Freezes the operator, or lets it continue.
    ///
    /// # Errors
    ///
    /// When the operator has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let id = self.0.id().context("the operator has ended")?;
        let pid = Pid::from_raw(i32::try_from(id)?).context("no process")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Waits until the operator has ended by itself.
    ///
    /// # Errors
    ///
    /// When the system call for waiting fails.
    pub async fn ended(&mut self) -> Result<ExitStatus> {
        Ok(self.0.wait().await?)
    }

    /// Kills the operator at once, and returns when it has ended.
    ///
    /// # Errors
    ///
    /// When the operator had already ended by itself.
    pub async fn kill(mut self) -> Result<()> {
        if let Some(status) = self.0.try_wait()? {
            bail!("the operator had ended by itself with {status}");
        }
        Ok(self.0.kill().await?)
    }
}
