//! Starts this program again in new network, mount and process namespaces.
//!
//! Three processes run the same binary, distinguished by an environment variable:
//! - *outside* builds, starts the others, waits, and removes the leftovers of namespaces on the
//!   host;
//! - *init* is the first process inside ([`init`]). When it ends for any reason, the kernel ends
//!   every other process, every mount and every network interface;
//! - *inside* boots the cluster and does the work. The program ends with its exit code.

mod cgroups;
mod init;
mod leftovers;
mod run;

pub use init::init;
pub use leftovers::{cgroup_folders, is_cgroup_in_use, sweep};
use run::Run;
pub use run::{Namespaces, current as run_folder, marked};

use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cache::Cache;
use crate::output::say;
use crate::until::until_blocking;

/// The variable that distinguishes the three processes. It is unset outside.
pub const STAGE: &str = "SWARM_E2E_STAGE";
/// The variable with the name of the run. Every process of the run inherits it, except processes
/// that a container runtime started.
pub const RUN: &str = "SWARM_E2E_RUN";
/// The time in which the kernel has to end all processes.
const GONE_WITHIN: Duration = Duration::from_secs(20);

/// The three processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The process on the host.
    Outside,
    /// The first process of the namespaces.
    Init,
    /// The process that boots the cluster.
    Inside,
}

impl Stage {
    /// Reads the stage of this process from the environment.
    #[must_use]
    pub fn current() -> Self {
        match std::env::var(STAGE).as_deref() {
            Ok("init") => Self::Init,
            Ok("inside") => Self::Inside,
            _ => Self::Outside,
        }
    }
}

/// Fails early, and with advice, if the namespaces cannot work.
///
/// # Errors
///
/// When this is not root, or a program is missing.
pub fn require() -> Result<()> {
    if !geteuid().is_root() {
        bail!("namespaces, mounts and containers need root: try again with sudo");
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there =
        |program: &str| std::env::split_paths(&path).any(|dir| dir.join(program).exists());
    let programs =
        ["unshare", "setpriv", "mount", "ip", "iptables", "containerd", "ctr", "runc", "buildah"];
    let missing: Vec<_> = programs.into_iter().filter(|program| !is_there(program)).collect();
    if !missing.is_empty() {
        bail!(
            "not found: {}; on Debian: apt-get install util-linux iproute2 iptables containerd runc \
             buildah containernetworking-plugins (and Go and Rust)",
            missing.join(", ")
        );
    }
    crate::cluster::plugins_folder().map(drop)
}

/// Runs this program with the same arguments inside, cleans up, and returns its exit code.
///
/// # Errors
///
/// When the namespaces cannot be made, or a part of the run survives its end.
pub fn enter(cache: &Cache) -> Result<i32> {
    let run = begin(cache)?;
    let mut child = Command::new("setpriv")
        // If this process is killed, the kernel kills `unshare`, which kills `init`.
        .args(["--pdeathsig", "KILL"])
        .args(["unshare", "--net", "--pid", "--mount", "--fork", "--mount-proc", "--kill-child"])
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(STAGE, "init")
        .env(RUN, &run.id)
        .spawn()
        .context("cannot start unshare")?;
    let signalled = end_on_signal(&child)?;
    let code = child.wait()?.code().unwrap_or(1);
    run.end(GONE_WITHIN)?;
    Ok(match signalled.load(Ordering::SeqCst) {
        0 => code,
        signal => 128 + signal,
    })
}

/// Sweeps the leftovers of killed runs, and makes the record of a new run.
fn begin(cache: &Cache) -> Result<Run> {
    // A half-made record looks like the record of a killed run, so no other run may sweep now.
    let _alone = cache.lock()?;
    for swept in sweep(cache)? {
        say(format_args!("swept what a killed run left: {}", swept.display()));
    }
    Run::begin(cache)
}

/// Kills `child` on SIGINT or SIGTERM, and remembers the signal.
///
/// The inside needs no orderly shutdown, but this process must outlive it to clean up.
fn end_on_signal(child: &Child) -> Result<Arc<AtomicI32>> {
    let signalled = Arc::new(AtomicI32::new(0));
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let child = Pid::from_child(child);
    let seen = Arc::clone(&signalled);
    std::thread::spawn(move || {
        for signal in signals.forever() {
            seen.store(signal, Ordering::SeqCst);
            let _ = kill_process(child, Signal::KILL);
        }
    });
    Ok(signalled)
}

/// Waits until no process is left in the namespaces of a run.
fn wait_until_gone(namespaces: &Namespaces, within: Duration) -> Result<()> {
    until_blocking("the end of every process of the run", within, || {
        let left = namespaces.processes()?;
        if left.is_empty() { Ok(Some(())) } else { bail!("still there: {}", left.join(", ")) }
    })
}
