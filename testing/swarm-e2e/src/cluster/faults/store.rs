//! An API server that is unavailable, and a store that is rolled back to an earlier state.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::super::{Cluster, FOLDER, NODES, boot};
use crate::command::run;
use crate::until::until;

/// The flag without which etcd syncs each write before it acknowledges it.
const NO_FSYNC: &str = "--unsafe-no-fsync=true";

/// A copy of the cluster's state at one time.
#[derive(Debug)]
pub struct EtcdCopy(PathBuf);

impl Cluster {
    /// Waits until the API server answers.
    ///
    /// # Errors
    ///
    /// When the API server does not answer within a minute.
    pub async fn api_server_ready(&self) -> Result<()> {
        until("the API server", || boot::is_serving(self)).await
    }

    /// Starts a killed API server, and returns when it answers.
    ///
    /// # Errors
    ///
    /// When the API server is running, or does not come up.
    pub async fn revive_api_server(&self) -> Result<()> {
        self.components.restart("apiserver")?;
        self.api_server_ready().await
    }

    /// Restarts etcd as in production, where it syncs each write before it acknowledges it. So a
    /// copy that is made after a kill has all acknowledged writes.
    ///
    /// # Errors
    ///
    /// When etcd does not come back.
    pub async fn make_etcd_sync(&self) -> Result<()> {
        self.components.kill("etcd")?;
        self.components.restart_with("etcd", |args| args.retain(|arg| arg != NO_FSYNC))?;
        self.api_server_ready().await
    }

    /// Copies the data of etcd, which is down for a moment. A kill ends it, because on a request to
    /// end it would wait for its clients.
    ///
    /// # Errors
    ///
    /// When the data cannot be copied, or etcd does not come back.
    pub async fn copy_etcd(&self) -> Result<EtcdCopy> {
        let copy = tempfile::Builder::new().prefix("etcd-").tempdir_in(FOLDER)?.keep();
        self.components.kill("etcd")?;
        let (from, to) = (format!("{FOLDER}/etcd/."), copy.display().to_string());
        run("cp", &["--archive", &from, &to])?;
        self.components.restart("etcd")?;
        self.api_server_ready().await?;
        Ok(EtcdCopy(copy))
    }

    /// Restores the cluster from a copy, as the Kubernetes documentation describes. The API server
    /// and etcd are stopped, and all other components are restarted after them. Pods keep running,
    /// and the cluster has no record of their acts since the copy.
    ///
    /// # Errors
    ///
    /// When the cluster does not come back.
    pub async fn restore_etcd(&self, EtcdCopy(copy): EtcdCopy) -> Result<()> {
        let mut others =
            ["controller-manager", "scheduler", "kube-proxy", "dns"].map(str::to_owned).to_vec();
        others.extend(NODES.map(|node| format!("kubelet-{node}")));
        for name in others.iter().map(String::as_str).chain(["apiserver", "etcd"]) {
            self.components.kill(name)?;
        }
        let data = Path::new(FOLDER).join("etcd");
        std::fs::remove_dir_all(&data).context("etcd's data cannot be removed")?;
        std::fs::rename(&copy, &data).context("the copy cannot take its place")?;
        self.components.restart("etcd")?;
        self.components.restart("apiserver")?;
        // The other components are still down, as intended.
        until("the API server", || boot::answers(self)).await?;
        for name in others {
            self.components.restart(&name)?;
        }
        self.nodes_ready().await
    }
}
