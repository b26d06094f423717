//! Connects operator and workers to the API server. Nothing here sends a request.

use std::path::Path;

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

/// Two clients of one API server. The client for watches retries on its own. The other client sends
/// each request once: a retry could delay a turn for minutes, and the next turn sees a fresher
/// state.
#[derive(Clone)]
pub struct Clients {
    watching: Client,
    control: Client,
}

impl Clients {
    /// A pair for tests and other callers with their own clients. `watching` may retry on its own,
    /// `control` must not.
    #[must_use]
    pub fn new(watching: Client, control: Client) -> Self {
        Self { watching, control }
    }

    /// The client that sends each request once.
    #[must_use]
    pub fn control(&self) -> &Client {
        &self.control
    }

    /// The client for watches.
    #[must_use]
    pub fn watching(&self) -> &Client {
        &self.watching
    }

    /// The default namespace: inside a pod, the namespace of that pod.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.control.default_namespace()
    }
}

/// Finds the cluster that `kubeconfig` names. Without that file, it takes the cluster of the user's
/// kubeconfig, or else the cluster of this pod. No request is sent. All requests will name `agent`,
/// such as `swarm-operator/1.2.3 (pod-7f)`, for the logs of the API server.
///
/// # Errors
///
/// [`ConnectError`] if no usable configuration is found; its source says why.
pub async fn connect(kubeconfig: Option<&Path>, agent: &str) -> Result<Clients, ConnectError> {
    let mut config = match kubeconfig {
        Some(file) => from_file(file).await.map_err(|error| ConnectError(error.into()))?,
        None => Config::infer().await.map_err(|error| ConnectError(error.into()))?,
    };
    // A log cannot show text that is not ASCII.
    config.headers.extend(HeaderValue::from_str(agent).ok().map(|agent| (USER_AGENT, agent)));
    let client = |config: Config| {
        Client::try_from(config).map_err(|error: kube::Error| ConnectError(error.into()))
    };
    let mut no_retry = config.clone();
    no_retry.default_retry = false;
    Ok(Clients { watching: client(config)?, control: client(no_retry)? })
}

async fn from_file(file: &Path) -> Result<Config, KubeconfigError> {
    let kubeconfig = Kubeconfig::read_from(file)?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await
}

/// No usable configuration of an API server was found.
#[derive(Debug, thiserror::Error)]
#[error(
    "no Kubernetes API to talk to; run in a pod with a service account, \
     or name a kubeconfig with --kubeconfig or $KUBECONFIG"
)]
pub struct ConnectError(#[source] Box<dyn std::error::Error + Send + Sync>);
