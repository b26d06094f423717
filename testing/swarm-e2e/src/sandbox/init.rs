//! The first process inside. It prepares mounts and network, starts the real program, and reaps
//! orphans.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus, wait};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::{STAGE, run};
use crate::binaries::repository;
use crate::cache::Cache;
use crate::command;

/// Folders of the host that are covered by empty ones. Containerd, kubelet and the network plugins
/// write there, and no setting prevents it.
const COVERED: [&str; 3] = ["/run", "/var/lib", "/var/log"];
/// Folders that programs expect in a covered folder.
const EXPECTED: [&str; 3] = ["/run/lock", "/var/lib/cni", "/var/log/pods"];
/// Settings of the whole machine that a kubelet insists on changing. It gets copies instead.
const SETTINGS: [&str; 6] = [
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
];

/// Prepares the namespaces, runs the real program, and returns its exit code.
///
/// # Errors
///
/// When the namespaces cannot be prepared or the program cannot be started.
pub fn init(cache: &Cache) -> Result<i32> {
    end_on_signal()?;
    // The record comes first: from here on, the clean-up knows the namespaces to wait for.
    super::Namespaces::record(cache)?;
    mounts(&[&cache.root, repository()])?;
    settings()?;
    network()?;
    // A cover may hide the path of the program.
    let child = Command::new("/proc/self/exe")
        .args(std::env::args_os().skip(1))
        .env(STAGE, "inside")
        .spawn()
        .context("cannot start the program inside")?;
    bury_until(Pid::from_child(&child))
}

/// Handles signals: the first process of a namespace gets only signals that it has handlers for.
fn end_on_signal() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

/// Reaps every process that ends, ours or an orphan, until `child` ends.
///
/// Container shims are orphans by design. Unreaped, each would stay as a zombie with a process id,
/// and scenarios could not see that it has ended.
fn bury_until(child: Pid) -> Result<i32> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == child => return Ok(exit_code(status)),
            Ok(_) | Err(Errno::INTR) => (),
            Err(err) => return Err(err).context("nothing to wait for"),
        }
    }
}

/// The exit code as in a shell: the code, or 128 plus the signal.
fn exit_code(status: WaitStatus) -> i32 {
    let signal = status.terminating_signal().map(|signal| 128 + signal);
    status.exit_status().or(signal).unwrap_or(1)
}

/// Covers the folders that must not be written to, and keeps `visible` folders visible below a
/// cover.
fn mounts(visible: &[&Path]) -> Result<()> {
    // An open folder can be reached after its path is covered.
    let open = |folder: &&Path| Ok((folder.to_path_buf(), File::open(folder)?));
    let visible = visible.iter().map(open).collect::<Result<Vec<_>>>()?;
    mount(&["--make-rprivate", "/"])?;
    for folder in COVERED {
        mount(&["-t", "tmpfs", "-o", "mode=755", "swarm-e2e", folder])?;
    }
    for folder in EXPECTED {
        fs::create_dir_all(folder)?;
    }
    super::cgroups::confine(&run::current_id()?)?;
    for (path, open) in visible {
        if !path.exists() {
            fs::create_dir_all(&path)?;
            let source = format!("/proc/{}/fd/{}", std::process::id(), open.as_raw_fd());
            mount(&["--no-canonicalize", "--rbind", &source, &path.display().to_string()])?;
        }
    }
    // The kubelet mounts below its root folder, and containers need these mounts.
    mount(&["--make-rshared", "/"])
}

/// Mounts copies over [`SETTINGS`], which namespaces do not separate.
fn settings() -> Result<()> {
    for setting in SETTINGS {
        let real = Path::new("/proc/sys").join(setting);
        let Ok(value) = fs::read_to_string(&real) else { continue };
        let copy = Path::new("/run/settings").join(setting.replace('/', "."));
        fs::create_dir_all("/run/settings")?;
        fs::write(&copy, value)?;
        mount(&["--bind", &copy.display().to_string(), &real.display().to_string()])?;
    }
    Ok(())
}

fn mount(args: &[&str]) -> Result<()> {
    command::run("mount", args).map(drop)
}

/// Makes the addresses of the `kubernetes` Service, DNS and two nodes, without a way outside.
fn network() -> Result<()> {
    let ip = |line: &str| command::run("ip", &line.split(' ').collect::<Vec<_>>()).map(drop);
    ip("link set lo up")?;
    // With the API server on port 443 this address needs no kube-proxy, so a node can be cut off
    // from the API server by this address.
    ip(&format!("addr add {}/32 dev lo", crate::cluster::SERVICE_ADDRESS))?;
    ip(&format!("addr add {}/32 dev lo", crate::cluster::DNS_ADDRESS))?;
    for node in crate::cluster::NODES {
        ip(&format!("addr add {}/32 dev lo", crate::cluster::server_address(node)))?;
    }
    // A bridge without ports serves as a dummy device, which not every kernel has.
    ip("link add node type bridge")?;
    ip("link set node up")?;
    for node in crate::cluster::NODES {
        ip(&format!("addr add {}/24 dev node", crate::cluster::node_address(node)))?;
    }
    // The kubelet insists on a default route, which is never used.
    ip("route add default dev node")
}
