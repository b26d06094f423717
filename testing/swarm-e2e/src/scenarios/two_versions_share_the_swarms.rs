//! Two versions of the operator share the Swarms, as during an update and a rollback of the
//! operator. Each version takes over ledgers that the other version wrote last, after the other
//! replica leaves or is killed. Jobs that are not edited are undisturbed.
//!
//! `OTHER_OPERATOR` has the path of the other version's program. Without it both replicas run this
//! version.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use tokio::process::Command;

use super::replicas_share_the_swarms::{Stage, TAKEOVER};
use super::session_pool::GRACEFUL;
use crate::operator::{self, Process};
use crate::proxy::Proxy;
use crate::run_log::Moment;
use crate::scenario::Context;
use crate::until::DEADLINE;

/// The variable that names the program of another version.
const OTHER: &str = "OTHER_OPERATOR";

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
        // An operator for one namespace has the namespace in the name of its controller, too.
        operator::all_share(cluster, 2, &format!("swarm-{namespace}")).await
    }
}

/// Makes a replica release its Swarms and end.
async fn leaves(mut replica: Process) -> Result<()> {
    replica.signal(Signal::TERM)?;
    let ended = tokio::time::timeout(DEADLINE, replica.ended()).await;
    let ended = ended.context("it does not leave")??;
    ensure!(ended.success(), "it left with {ended}");
    Ok(())
}
