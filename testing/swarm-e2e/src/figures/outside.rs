//! The operator as a process outside of the cluster, so that its memory and CPU can be read.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

use super::process::{self, Cost};
use crate::cluster::Cluster;
use crate::operator;
use crate::until::until_within;

const LISTEN: &str = "127.0.0.1:8089";
/// The time without a turn or a nudge after which it is at rest. The last nudge follows after five
/// seconds.
const QUIET: Duration = Duration::from_secs(8);

/// A running operator, which ends with this value.
pub(super) struct Operator {
    child: Child,
    pub(super) started: Instant,
}

impl Operator {
    /// Starts the operator with the administrator's kubeconfig.
    pub(super) fn start(cluster: &Cluster, program: &Path) -> Result<Self> {
        let log = File::create(cluster.components.logs().join("operator.log"))?;
        let child = Command::new(program)
            .args(["run", "--listen", LISTEN, "--kubeconfig"])
            .arg(&cluster.kubeconfig)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the operator")?;
        Ok(Self { child, started: Instant::now() })
    }

    /// The cost of the operator so far.
    pub(super) fn cost(&self) -> Result<Cost> {
        process::cost(self.child.id().context("the operator has ended")?)
    }

    /// The sum of all series of a counter.
    pub(super) async fn counted(&self, counter: &str) -> Result<u64> {
        let text = get("/metrics").await?;
        let series = text.lines().filter(|line| line.starts_with(counter));
        let values = series.filter_map(|line| line.rsplit_once(' ')?.1.trim().parse::<u64>().ok());
        Ok(values.sum())
    }

    /// Waits until the operator is at rest.
    pub(super) async fn quiet(&self, within: Duration) -> Result<()> {
        let since = Mutex::new((Instant::now(), (0, 0)));
        until_within("the operator at rest", within, || async {
            let now = (
                self.counted("swarm_turns_total").await?,
                self.counted("swarm_nudges_total").await?,
            );
            let mut since = since.lock().await;
            if since.1 != now {
                *since = (Instant::now(), now);
            }
            if since.0.elapsed() < QUIET {
                bail!("{} turns, {} nudges", now.0, now.1);
            }
            Ok(Some(()))
        })
        .await
    }

    /// Ends the operator.
    pub(super) async fn stop(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }
}

/// Removes an operator that runs in the cluster.
pub(super) async fn remove_inside(cluster: &Cluster) -> Result<()> {
    let all = ["--all", "--namespace", operator::NAMESPACE, "--cascade=foreground"];
    cluster.kubectl(&[&["delete", "deployment"], all.as_slice()].concat()).await.map(drop)
}

async fn get(path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(LISTEN).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}
