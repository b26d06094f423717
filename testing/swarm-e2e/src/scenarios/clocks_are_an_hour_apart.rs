//! Two replicas of the operator share the Swarms, and the clock of one is an hour behind, as on a
//! node without time synchronization. Each replica takes over ledgers that the other one wrote
//! last. The replica that is behind recreates a deleted ledger. No session is revoked because of
//! the time of day, and epochs and tokens only rise. So no job runs twice, and Swarms that are not
//! edited are undisturbed.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use kube::api::DeleteParams;
use swarm_client::api::SwarmLedger;
use tokio::process::Command;

use super::replicas_share_the_swarms::{Stage, TAKEOVER};
use super::session_pool::{LONG_SILENCE, TICK};
use crate::binaries::repository;
use crate::operator::{self, Process};
use crate::proxy::Proxy;
use crate::run_log::Moment;
use crate::scenario::Context;

/// The library that shifts the clock. The loader expands `$LIB` to the folder of libraries.
const FAKETIME: &str = "/usr/$LIB/faketime/libfaketime.so.1";

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    let program = linked_dynamically(&context).await?;
    let replicas = |proxy| Replicas { context: &context, proxy, program };
    operator::replaced(&context.cluster, |proxy| replicas(proxy).take_over_from_each_other()).await
}

/// Compiles the operator as tests do, so that the loader accepts a library for it. The operator of
/// the images accepts none.
async fn linked_dynamically(context: &Context) -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    let mut build = Command::new("cargo");
    build.args([
        "build",
        "--quiet",
        "--locked",
        "--offline",
        "--workspace",
        "--bin=swarm-operator",
    ]);
    let status = build.current_dir(repository()).stdin(Stdio::null()).status().await?;
    ensure!(status.success(), "the operator does not compile");
    context.laps.lap("an operator compiled whose clock can be shifted");
    Ok(here.parent().context("a folder")?.join("swarm-operator"))
}

struct Replicas<'a> {
    context: &'a Context,
    proxy: Proxy,
    program: PathBuf,
}

impl Replicas<'_> {
    async fn take_over_from_each_other(self) -> Result<()> {
        let (behind, right) = (self.behind()?, self.right()?);
        self.both_act().await?;
        self.is_an_hour_behind().await?;
        let mut stage = Stage::begin(self.context).await?;
        stage.edit("both", Moment::now(), TAKEOVER).await?;

        let mark = Moment::now();
        behind.kill().await?;
        stage.edit("the one behind was killed", mark, TAKEOVER).await?;
        let behind = self.behind()?;
        self.both_act().await?;
        stage.edit("it is back", mark, TAKEOVER).await?;

        let mark = Moment::now();
        right.kill().await?;
        stage.edit("the one in time was killed", mark, TAKEOVER).await?;
        self.ledger_is_deleted(&stage).await?;
        let right = self.right()?;
        self.both_act().await?;
        stage.edit("both again", Moment::now(), TAKEOVER).await?;

        let takeovers = stage.judged().await?;
        self.context.laps.lap(format!("{takeovers} takeovers"));
        behind.kill().await?;
        right.kill().await
    }

    fn right(&self) -> Result<Process> {
        self.start("right", Command::new(&self.program))
    }

    fn behind(&self) -> Result<Process> {
        let mut program = Command::new(&self.program);
        program.envs([
            ("LD_PRELOAD", FAKETIME),
            ("FAKETIME", "-1h"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ]);
        self.start("behind", program)
    }

    fn start(&self, id: &str, program: Command) -> Result<Process> {
        let Self { context, proxy, .. } = self;
        let (cluster, namespace) = (&context.cluster, &context.namespace);
        Process::start_program(program, cluster, proxy.address, namespace, &["--id", id])
    }

    /// Waits until both replicas have a share of the Swarms.
    async fn both_act(&self) -> Result<()> {
        let Context { cluster, namespace, .. } = self.context;
        // An operator for one namespace has the namespace in the name of its controller, too.
        operator::all_share(cluster, 2, &format!("swarm-{namespace}")).await
    }

    /// Checks that the Lease of the replica that is behind has its renewal time from that clock.
    async fn is_an_hour_behind(&self) -> Result<()> {
        let leases = operator::leases(&self.context.cluster).await?;
        let mut renewed = leases.iter().filter_map(|lease| {
            let is_behind = lease.metadata.name.as_ref()?.starts_with("behind-");
            is_behind.then(|| lease.spec.as_ref()?.renew_time.as_ref().map(|time| time.0))?
        });
        let behind = Timestamp::now().duration_since(renewed.next().context("no Lease of it")?);
        let expected = SignedDuration::from_mins(59);
        ensure!(
            expected < behind,
            "its clock is {behind:?} behind: is libfaketime installed (apt-get install libfaketime)?"
        );
        Ok(())
    }

    /// Deletes the ledger. The replica that is behind recreates it, with higher tokens than the
    /// other replica has granted.
    async fn ledger_is_deleted(&self, stage: &Stage) -> Result<()> {
        let pool = stage.pools.first().context("a pool")?;
        let (before, mark) = (pool.at_rest().await?, Moment::now());
        let ledgers = self.context.api::<SwarmLedger>();
        let name = format!("statefulset.{}", pool.name);
        ledgers.delete(&name, &DeleteParams::default()).await?;
        pool.begun_again(mark, "0").await?;
        let after = pool.at_rest().await?;
        for (job, run) in &before {
            let now = after.get(job).context("a job is missing")?;
            ensure!(run.token < now.token, "{job}: {run:?}, {now:?}");
        }
        pool.judge("the ledger was deleted", mark, LONG_SILENCE + TICK)
    }
}
