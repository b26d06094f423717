//! `swarm-operator local`: the whole system on this machine, with child processes as workers.
//!
//! It decides nothing that the core does not decide: it wires the file stores and the processes to
//! the same turn that runs on a cluster, and tells a person what came of it.

mod input;
mod operate;
mod sessions;
mod snapshot;
mod state;
mod text;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use clap::Args;
use swarm_adapters_host::processes::end_leftovers;
use swarm_adapters_host::sweep::{self, Marker};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use input::Input;
use operate::Operation;
use state::StateDir;

/// Arguments of `local`.
#[derive(Clone, Debug, Args)]
pub(crate) struct LocalArgs {
    /// The manifest that holds the Swarm, followed while it is edited; `-` reads standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Which Swarm of FILE is meant, if it holds several
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// How many workers to run [default: replicas of the Swarm's StatefulSet in FILE]
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<u32>,
    /// Where to keep state and logs [default: ~/.local/state/swarm/NAME, or as XDG says]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// End with exit code 0 as soon as every job runs where it should
    #[arg(long)]
    pub(crate) until_settled: bool,
}

/// When to end without being asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    Told,
    Settled,
}

/// Runs a Swarm on this machine until a signal ends it, or until it is settled.
pub(crate) async fn local(args: LocalArgs) -> anyhow::Result<ExitCode> {
    let since = Instant::now();
    let shutdown = CancellationToken::new();
    cancel_on_signals(&shutdown)?;
    let (input, wanted) = match Input::open(&args).await {
        Ok(opened) => opened,
        Err(sentence) => return Ok(wrong_usage(&sentence)),
    };
    let dir = match args.dir.map_or_else(|| state::default_dir(&wanted.name), Ok) {
        Ok(dir) => dir,
        Err(sentence) => return Ok(wrong_usage(&sentence)),
    };
    let dir = StateDir::claim(&dir)?;
    text::say(&text::opening(&wanted, dir.path(), &args.file));
    let leftovers = end_leftovers(dir.path()).await;
    // Jobs outlive worker and guard if all of them were killed at once.
    let swept = sweep::end_all(&Marker::Dir(dir.path().to_owned())).await;
    swept.context("it is not known what an earlier run has left behind")?;
    if 0 < leftovers {
        let workers = text::counted(leftovers, "worker");
        text::say(&format!("ended {workers} that an earlier run had left behind"));
    }
    let until = if args.until_settled { Until::Settled } else { Until::Told };
    let operation = Operation::start(dir.path(), input, wanted, since).await?;
    operation.run(until, &shutdown).await
}

/// Says what is wrong with the input; nothing was started, nothing is on standard output.
fn wrong_usage(sentence: &str) -> ExitCode {
    text::complain(sentence);
    ExitCode::from(2)
}

/// Cancels `shutdown` when the process is asked to end.
fn cancel_on_signals(shutdown: &CancellationToken) -> anyhow::Result<()> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()] {
        let mut signals = signal(kind).context("signals cannot be received")?;
        let shutdown = shutdown.clone();
        tokio::spawn(async move {
            signals.recv().await;
            shutdown.cancel();
        });
    }
    Ok(())
}
