//! A machine with systemd, in a container whose files are copies in memory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::done;

const BOOTED_WITHIN: Duration = Duration::from_mins(1);
/// The bound on a command inside, in seconds.
const COMMAND_WITHIN: &str = "120";
/// The bound on the end of killed processes.
const GONE_WITHIN: Duration = Duration::from_secs(10);
/// The bound on a condition inside.
const HOLDS_WITHIN: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(100);

/// A machine that runs. It ends when it is dropped.
pub(super) struct Machine {
    base: PathBuf,
    container: Child,
    /// The number of the first process inside.
    leader: String,
}

impl Machine {
    /// Boots a machine with the files of `base`, which stay as they are, and with `packages` at `/packages`.
    pub(super) fn boot(base: &Path, packages: &Path) -> Result<Self> {
        let since = Instant::now();
        // All processes are in namespaces that end with `unshare`, and `unshare` ends with this program.
        let container = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork"])
            .args(["--mount-proc", "--kill-child", "systemd-nspawn", "--quiet", "--boot"])
            .args(["--register=no", "--keep-unit", "--private-network", "--volatile=overlay"])
            .args(["--link-journal=no", "--machine=swarm-package-check", "--console=pipe"])
            .arg(format!("--directory={}", base.display()))
            .arg(format!("--bind-ro={}:/packages", packages.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start setpriv")?;
        let mut machine = Self { base: base.to_owned(), container, leader: String::new() };
        machine.wait_for_boot()?;
        done("booted", since);
        Ok(machine)
    }

    fn wait_for_boot(&mut self) -> Result<()> {
        let since = Instant::now();
        loop {
            ensure!(
                self.container.try_wait()?.is_none(),
                "the machine did not start; it needs systemd-nspawn: apt-get install systemd-container"
            );
            if let Some(leader) = self.find_leader() {
                self.leader = leader;
                let state = self.output("systemctl is-system-running")?.stdout;
                if ["running\n", "degraded\n"].iter().any(|ready| state == ready.as_bytes()) {
                    return Ok(());
                }
            }
            ensure!(since.elapsed() < BOOTED_WITHIN, "the machine did not boot in a minute");
            sleep(PAUSE);
        }
    }

    /// Returns the first process of the machine: the child of systemd-nspawn, which is the child of unshare.
    fn find_leader(&self) -> Option<String> {
        let nspawn = child_of(&self.container.id().to_string())?;
        let leader = child_of(&nspawn)?;
        let name = fs::read_to_string(format!("/proc/{leader}/comm")).ok()?;
        (name == "systemd\n").then_some(leader)
    }

    /// Runs a line of shell inside as root, and returns how it ended.
    pub(super) fn output(&self, line: &str) -> Result<Output> {
        Command::new("timeout")
            .args([COMMAND_WITHIN, "nsenter", "--all", "--target", &self.leader])
            .args(["--", "sh", "-c", line])
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot run `{line}`"))
    }

    /// Runs a line of shell inside that must succeed, and returns what it printed.
    pub(super) fn run(&self, line: &str) -> Result<String> {
        let output = self.output(line)?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            bail!("`{line}`: {}\n{said}{errors}", output.status);
        }
        Ok(said)
    }

    /// Runs a line of shell inside that must fail, and returns its messages.
    pub(super) fn refused(&self, line: &str) -> Result<String> {
        let output = self.output(line)?;
        ensure!(!output.status.success(), "`{line}` succeeded");
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Waits until `holds`, for a minute at most.
    pub(super) fn until(&self, what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
        let since = Instant::now();
        while !holds()? {
            if HOLDS_WITHIN < since.elapsed() {
                let journal = self.run("journalctl --no-pager --lines=50")?;
                bail!("not within a minute: {what}\n{journal}");
            }
            sleep(PAUSE);
        }
        Ok(())
    }

    /// Ends the machine, and proves that nothing of it is left.
    pub(super) fn end(mut self) -> Result<()> {
        self.kill();
        let process = format!("/proc/{}", self.leader);
        ensure!(!Path::new(&process).exists(), "the machine still runs as process {}", self.leader);
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let base = self.base.display().to_string();
        let left: Vec<_> = mounts.lines().filter(|line| line.contains(&base)).collect();
        ensure!(left.is_empty(), "mounts are left: {left:?}");
        Ok(())
    }

    /// Kills all processes of the machine, and removes their cgroups.
    fn kill(&mut self) {
        let _ = self.container.kill();
        let _ = self.container.wait();
        let since = Instant::now();
        while Path::new("/proc").join(&self.leader).exists() && since.elapsed() < GONE_WITHIN {
            sleep(PAUSE);
        }
        for folder in cgroups() {
            for name in ["payload", "supervisor"] {
                let _ = remove_folders(&folder.join(name));
            }
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill();
    }
}

fn child_of(process: &str) -> Option<String> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).ok()?;
    children.split_whitespace().next().map(str::to_owned)
}

/// Returns the folders of this process's cgroups in which systemd-nspawn makes the machine's.
fn cgroups() -> Vec<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mounts = Path::new("/sys/fs/cgroup");
    let folders = own.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let path = path.trim_start_matches('/');
        match controllers {
            "" if mounts.join("unified").exists() => Some(mounts.join("unified").join(path)),
            "" => Some(mounts.join(path)),
            "name=systemd" => Some(mounts.join("systemd").join(path)),
            _ => None,
        }
    });
    folders.collect()
}

/// Removes a folder of cgroups. The kernel refuses folders with processes.
fn remove_folders(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_folders(&entry.path())?;
        }
    }
    fs::remove_dir(folder)
}
