//! Proves that nothing of a run is left on this machine, however it ends.
//!
//! The check starts this program with a whole cluster and pods in it, and ends it in a rough way.
//! Then:
//! - no process has the run's name in its environment, or runs in one of its namespaces. Only their
//!   namespaces identify containers, since they do not inherit our environment;
//! - nothing holds a namespace open;
//! - no cgroup folder is left. If the outside process itself is killed, it cannot remove these
//!   folders. They must then be empty, and the next run sweeps them.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::cache::Cache;
use crate::cluster::Cluster;
use crate::output::{Laps, say};
use crate::sandbox::{self, Namespaces, RUN};
use crate::until::{until_blocking, until_within};

const BOOTED_WITHIN: Duration = Duration::from_mins(3);
const ENDED_WITHIN: Duration = Duration::from_secs(30);
/// The bound on traces: the kernel needs a moment to clean up after a killed process.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// The file that [`hold`] writes into the folder of its run once the pods are up.
const HOLDING: &str = "holding";

const PODS: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: held}
spec:
  replicas: 2
  selector: {matchLabels: {app: held}}
  template:
    metadata: {labels: {app: held}}
    spec:
      containers: [{name: idle, image: "registry.local/pause:1", imagePullPolicy: Never}]
"#;

/// A way to end a run.
#[derive(Debug, Clone, Copy)]
enum End {
    /// Panics inside, as a bug of ours would.
    Panic,
    /// Sends the signal of Ctrl-C, which every process of the group gets.
    Interrupt,
    /// Sends `kill -9` to the outside process, whose number a person knows.
    Kill,
}

/// Ends three runs in three ways and looks for traces of each.
///
/// # Errors
///
/// When a trace is left, or a run ends with an unexpected code.
pub fn check(cache: &Cache) -> Result<()> {
    for end in [End::Panic, End::Interrupt, End::Kill] {
        say(format_args!("\nended by {end:?}:"));
        check_one(cache, end).with_context(|| format!("after {end:?}"))?;
    }
    let _alone = cache.lock()?;
    let swept = sandbox::sweep(cache)?;
    let left = sandbox::cgroup_folders(&id_of(End::Kill));
    ensure!(left.is_empty(), "the sweep after the killed run left {left:?}");
    say(format_args!(
        "\nnothing is left; the killed run's {} empty folders were swept",
        swept.len()
    ));
    Ok(())
}

fn check_one(cache: &Cache, end: End) -> Result<()> {
    let laps = Laps::start();
    let id = id_of(end);
    let folder = cache.runs().join(&id);
    let mut run = start(&id, end)?;
    until_blocking("a booted cluster", BOOTED_WITHIN, || match run.0.try_wait()? {
        Some(status) => Ok(Some(Err(anyhow::anyhow!("it ended early with {status}")))),
        None => Ok(folder.join(HOLDING).exists().then_some(Ok(()))),
    })??;
    laps.lap("cluster with pods");
    let namespaces = Namespaces::read(&folder)?;
    ensure!(!namespaces.processes()?.is_empty(), "the check itself sees no process of the run");
    ensure!(!sandbox::cgroup_folders(&id).is_empty(), "the check itself sees no cgroup of the run");

    let ending = Instant::now();
    let status = strike(&mut run, end, &folder)?;
    laps.lap(format_args!("ended, {} ms after the blow", ending.elapsed().as_millis()));
    expect_status(end, status)?;
    until_blocking("every trace to go", GONE_WITHIN, || {
        let left = traces(&id, &namespaces, end)?;
        if left.is_empty() { Ok(Some(())) } else { bail!("{}", left.join(", ")) }
    })?;
    laps.lap(format_args!("gone: {} namespaces, no process in any", namespaces.0.len()));
    Ok(())
}

/// The name of the run. It is chosen here, so that its traces can be found.
fn id_of(end: End) -> String {
    format!("gone-{}-{end:?}", std::process::id()).to_lowercase()
}

/// The program that holds a cluster. It ends with this check, also after a failure.
struct Holder(Child);

impl Drop for Holder {
    fn drop(&mut self) {
        // Both fail harmlessly if the program has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(id: &str, end: End) -> Result<Holder> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("hold").env(RUN, id).env("RUST_BACKTRACE", "0").process_group(0);
    if matches!(end, End::Panic) {
        command.arg("--panic");
    }
    command.spawn().map(Holder).context("cannot start this program again")
}

/// Ends the run and waits until its outside process has ended.
fn strike(run: &mut Holder, end: End, folder: &Path) -> Result<ExitStatus> {
    let pid = Pid::from_child(&run.0);
    match end {
        // The program waits for this file, so that its namespaces were read before it ends.
        End::Panic => fs::write(folder.join("go"), "")?,
        End::Interrupt => kill_process_group(pid, Signal::INT)?,
        End::Kill => kill_process(pid, Signal::KILL)?,
    }
    until_blocking("the end of the run", ENDED_WITHIN, || Ok(run.0.try_wait()?))
}

fn expect_status(end: End, status: ExitStatus) -> Result<()> {
    let wanted = match end {
        End::Panic => Some(101),
        End::Interrupt => Some(130),
        End::Kill => None,
    };
    ensure!(status.code() == wanted, "ended with {status}, not with code {wanted:?}");
    Ok(())
}

/// The traces that are left of a run.
fn traces(id: &str, namespaces: &Namespaces, end: End) -> Result<Vec<String>> {
    let mut left = sandbox::marked(id)?;
    left.extend(namespaces.processes()?);
    left.extend(namespaces.held_open());
    left.extend(cgroups_left(id, end)?.iter().map(|path| path.display().to_string()));
    Ok(left)
}

/// Cgroup folders that should have been removed, or should at least be empty.
fn cgroups_left(id: &str, end: End) -> Result<Vec<PathBuf>> {
    let mut left = sandbox::cgroup_folders(id);
    if matches!(end, End::Kill) {
        let mut used = Vec::new();
        for folder in left {
            used.extend(sandbox::is_cgroup_in_use(&folder)?.then_some(folder));
        }
        left = used;
    }
    Ok(left)
}

/// Fills a booted cluster with pods, reports that, and waits for its end.
///
/// # Errors
///
/// When the pods do not come up.
pub async fn hold(cache: &Cache, cluster: &Cluster, panics: bool) -> Result<()> {
    cluster.apply("default", PODS).await?;
    let available = ["wait", "--for=condition=Available", "deployment/held", "--timeout=5m"];
    cluster.kubectl(&available).await?;
    Namespaces::record(cache)?;
    let folder = sandbox::run_folder(cache)?;
    fs::write(folder.join(HOLDING), "")?;
    until_within("the blow", BOOTED_WITHIN, || async {
        Ok(folder.join("go").exists().then_some(()))
    })
    .await?;
    if panics {
        blow_up();
    }
    bail!("nobody ended this run");
}

#[expect(clippy::panic, reason = "what a panic leaves behind is the question")]
fn blow_up() {
    panic!("on purpose, to see whether anything survives it");
}
