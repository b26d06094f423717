//! Two versions of the operator share the Swarms, as during an update of it and when it is taken back. Each
//! takes over what the other one wrote last, whether that one leaves or is killed; jobs that nobody edits
//! never notice.
//!
//! `OTHER_OPERATOR` has the path of the other version's program. Without it both replicas are of this one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use tokio::process::Command;

use super::replicas_share_the_swarms::{Stage, TAKEOVER};
use super::session_pool::GRACEFUL;
use crate::operator::{self, Process};
use crate::proxy::Proxy;
use crate::run_log::Moment;
use crate::scenario::Context;

/// Names the program of another version.
const OTHER: &str = "OTHER_OPERATOR";
/// How long a replica may take to leave.
const LEAVES_WITHIN: Duration = Duration::from_secs(40);

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let ours = context.cluster.binaries.ours.join("swarm-operator");
    let other = std::env::var_os(OTHER).map_or_else(|| ours.clone(), PathBuf::from);
    for program in [&ours, &other] {
        let said = Command::new(program).arg("--version").output().await?;
        ensure!(said.status.success(), "{} --version: {said:?}", program.display());
        context.laps.lap(String::from_utf8_lossy(&said.stdout).trim());
    }
    let replicas = |proxy| Replicas { context: &context, proxy };
    operator::replaced(&context.cluster, |proxy| replicas(proxy).updated(other, ours)).await
}

struct Replicas<'a> {
    context: &'a Context,
    proxy: Proxy,
}

impl Replicas<'_> {
    async fn updated(self, before: PathBuf, after: PathBuf) -> Result<()> {
        let old = self.start("old", &before)?;
        let mut stage = Stage::begin(self.context).await?;
        let new = self.start("new", &after)?;
        self.both_act().await?;
        stage.edit("one of each", Moment::now(), TAKEOVER).await?;
        let mark = Moment::now();
        leaves(old).await?;
        stage.edit("the older one has left", mark, GRACEFUL).await?;

        let old = self.start("old", &before)?;
        self.both_act().await?;
        stage.edit("one of each again", mark, TAKEOVER).await?;
        let mark = Moment::now();
        new.kill().await?;
        stage.edit("the newer one was killed", mark, TAKEOVER).await?;

        let new = self.start("new", &after)?;
        self.both_act().await?;
        let mark = Moment::now();
        old.kill().await?;
        stage.edit("the older one was killed", mark, TAKEOVER).await?;

        let old = self.start("old", &before)?;
        self.both_act().await?;
        let mark = Moment::now();
        leaves(new).await?;
        stage.edit("the newer one has left", mark, GRACEFUL).await?;
        let takeovers = stage.judged().await?;
        self.context.laps.lap(format!("{takeovers} takeovers"));
        old.kill().await
    }

    fn start(&self, id: &str, program: &Path) -> Result<Process> {
        let Context { cluster, namespace, .. } = self.context;
        let (program, address) = (Command::new(program), self.proxy.address);
        Process::start_program(program, cluster, address, namespace, &["--id", id])
    }

    /// Waits until both replicas have a share of the Swarms.
    async fn both_act(&self) -> Result<()> {
        let Context { cluster, namespace, .. } = self.context;
        // Of operators for one namespace the name of the controller has that, too.
        operator::all_share(cluster, 2, &format!("swarm-{namespace}")).await
    }
}

/// Lets a replica let its Swarms go and end.
async fn leaves(mut replica: Process) -> Result<()> {
    replica.signal(Signal::TERM)?;
    let ended = tokio::time::timeout(LEAVES_WITHIN, replica.ended()).await;
    let ended = ended.context("it does not leave")??;
    ensure!(ended.success(), "it left with {ended}");
    Ok(())
}
