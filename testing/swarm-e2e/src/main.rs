//! Runs scenarios in a real two-node cluster, which exists as long as this program runs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};

use swarm_e2e::binaries::Profile;
use swarm_e2e::cache::Cache;
use swarm_e2e::cluster::{Cluster, DNS_ADDRESS, FOLDER, Setup};
use swarm_e2e::dns;
use swarm_e2e::figures;
use swarm_e2e::output::{Laps, complain, say};
use swarm_e2e::previous::Previous;
use swarm_e2e::sandbox::{self, Stage};
use swarm_e2e::scenario::{self, Scenario, Set};
use swarm_e2e::{binaries, gone, images, operator, scenarios};

/// Boots a real two-node Kubernetes cluster on this machine and runs scenarios in it.
///
/// Needs root, containerd, runc, the CNI plugins, buildah, Go and Rust. Nothing outside of the cache
/// folder is changed, and nothing is left when the program ends, however it ends.
///
/// `SWARM_E2E_KUBERNETES` chooses another Kubernetes version, such as 1.30, for which a module in
/// `testing/swarm-e2e/control-plane` exists.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the scenarios whose name contains one of the filters, or without a filter a whole set.
    Scenarios {
        /// Parts of names.
        filters: Vec<String>,
        /// The set of scenarios to run.
        #[arg(long, value_enum, default_value = "gate", conflicts_with = "filters")]
        set: Set,
    },
    /// Lists the scenarios.
    List,
    /// Measures the operator in the cluster and prints Markdown tables.
    Figures(figures::Options),
    /// Boots the cluster with operator and samples and runs a command in it, by default $SHELL.
    ///
    /// KUBECONFIG and PATH are set. The cluster ends with the command.
    Shell {
        /// The command and its arguments.
        #[arg(last = true)]
        command: Vec<OsString>,
    },
    /// Kills booted clusters in several ways and proves that nothing of them is left.
    Gone,
    /// Boots the cluster and waits to be killed; for `gone`.
    #[command(hide = true)]
    Hold {
        /// Panic instead of waiting.
        #[arg(long)]
        panic: bool,
    },
    /// Answers queries for names; started inside, as a part of the cluster.
    #[command(hide = true)]
    Dns {
        /// The kubeconfig with its identity.
        kubeconfig: PathBuf,
    },
}

fn main() -> ExitCode {
    let code = run(Args::parse()).unwrap_or_else(|err| {
        complain(format_args!("error: {err:#}"));
        1
    });
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

fn run(args: Args) -> Result<i32> {
    let cache = Cache::open()?;
    match Stage::current() {
        Stage::Outside => outside(&cache, &args.command),
        Stage::Init => sandbox::init(&cache),
        Stage::Inside => tokio::runtime::Runtime::new()?.block_on(inside(&cache, args.command)),
    }
}

fn outside(cache: &Cache, command: &Command) -> Result<i32> {
    let mut previous = None;
    match command {
        Command::List => {
            for scenario in scenarios::all() {
                say(scenario.name);
            }
            return Ok(0);
        }
        // Unknown names fail here, before anything is built.
        Command::Scenarios { filters, set } => {
            if chosen(filters, *set)?.iter().any(Scenario::needs_previous) {
                previous = Some(Previous::named(cache)?);
            }
        }
        Command::Gone => {
            sandbox::require()?;
            gone::check(cache)?;
            return Ok(0);
        }
        Command::Dns { .. } => bail!("this command runs inside of a cluster only"),
        Command::Shell { .. } | Command::Figures(_) | Command::Hold { .. } => (),
    }
    sandbox::require()?;
    build(cache, profile_of(command), previous.as_ref())?;
    sandbox::enter(cache)
}

/// The profile in which a command compiles the programs of the cluster.
const fn profile_of(command: &Command) -> Profile {
    if matches!(command, Command::Figures(_)) { Profile::Release } else { Profile::Quick }
}

/// Builds all programs and images of the cluster, and the `previous` version if a scenario needs
/// it. Inside the sandbox no registry can be reached.
fn build(cache: &Cache, profile: Profile, previous: Option<&Previous>) -> Result<()> {
    say("building what the cluster runs: minutes the first time, a moment after that");
    let laps = Laps::start();
    let _alone = cache.lock()?;
    let binaries = binaries::build(cache, profile)?;
    images::build(cache, &binaries)?;
    if let Some(previous) = previous {
        previous.build(cache)?;
        images::build_previous(cache, previous)?;
    }
    laps.lap("everything built");
    Ok(())
}

async fn inside(cache: &Cache, command: Command) -> Result<i32> {
    if let Command::Dns { kubeconfig } = &command {
        return dns::serve(kubeconfig, DNS_ADDRESS).await.map(|()| 0);
    }
    let cluster = boot(cache, profile_of(&command)).await?;
    match command {
        Command::Scenarios { filters, set } => {
            let chosen = chosen(&filters, set)?;
            let filtered_out = scenarios::all().len() - chosen.len();
            let failed = scenario::run_all(cache, &Arc::new(cluster), &chosen, filtered_out).await;
            Ok(i32::from(0 < failed))
        }
        Command::Figures(options) => {
            figures::measure(&Arc::new(cluster), &options).await.map(|()| 0)
        }
        Command::Shell { command } => shell(&cluster, &command).await,
        Command::Hold { panic } => gone::hold(cache, &cluster, panic).await.map(|()| 0),
        Command::List | Command::Gone | Command::Dns { .. } => {
            bail!("this command needs no cluster")
        }
    }
}

async fn boot(cache: &Cache, profile: Profile) -> Result<Cluster> {
    let laps = Laps::start();
    let setup = Setup { binaries: binaries::built(cache, profile)?, images: images::built(cache)? };
    let booted = Cluster::boot(&setup, &laps).await;
    if booted.is_err() {
        let logs = Path::new(FOLDER).join("log");
        let kept = scenario::component_logs(cache, &logs, "boot")?;
        say(format_args!("evidence: {}", kept.display()));
    }
    booted.context("the cluster does not boot")
}

fn chosen(filters: &[String], set: Set) -> Result<Vec<Scenario>> {
    let chosen = scenario::chosen(&scenarios::all(), filters, set);
    if chosen.is_empty() {
        bail!(
            "no scenario that can be run without the others is named like {}; `swarm-e2e list` names \
             them all",
            filters.join(" or ")
        );
    }
    Ok(chosen)
}

async fn shell(cluster: &Cluster, command: &[OsString]) -> Result<i32> {
    if !operator::install_operator(cluster).await? {
        say("no manifests in deploy/: the cluster is bare");
    } else if operator::install_samples(cluster).await? {
        say("operator and samples are installed");
    }
    let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    let (program, args) = command.split_first().map_or((&shell, &[][..]), |split| split);
    let mut command = tokio::process::Command::new(program);
    command.args(args).envs(cluster.environment()).env_remove(sandbox::STAGE);
    let status = command.status().await.context("cannot start the command")?;
    Ok(status.code().unwrap_or(1))
}
