//! Kills and freezes containers from the outside.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use super::super::{Cluster, NODES, node, node_name};

/// The most searches of a container for processes that started during the previous search.
const LOOKS_MAX: usize = 100;

/// Frozen processes. They are thawed at the latest when this value is dropped.
#[derive(Debug)]
#[must_use = "frozen processes continue as soon as this is dropped"]
pub struct Frozen(BTreeMap<u32, OwnedFd>);

impl Frozen {
    /// Lets the processes continue, except those killed in the meantime.
    ///
    /// # Errors
    ///
    /// When the kernel refuses the signal.
    pub fn thaw(mut self) -> Result<()> {
        self.go_on()
    }

    fn go_on(&mut self) -> Result<()> {
        for process in std::mem::take(&mut self.0).into_values() {
            match pidfd_send_signal(&process, Signal::CONT) {
                Ok(()) | Err(Errno::SRCH) => (),
                Err(err) => return Err(err.into()),
            }
        }
        Ok(())
    }

    fn stop(&mut self, process: u32) -> Result<()> {
        // The process id may be reused before the thaw. The descriptor stays with its process.
        let Ok(opened) = pidfd_open(pid(process)?, PidfdFlags::empty()) else { return Ok(()) };
        match pidfd_send_signal(&opened, Signal::STOP) {
            Ok(()) => drop(self.0.insert(process, opened)),
            Err(Errno::SRCH) => (),
            Err(err) => return Err(err.into()),
        }
        Ok(())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = self.go_on();
    }
}

impl Cluster {
    /// Kills the processes of all containers of `pod` from outside, as the kernel does when memory
    /// runs out.
    ///
    /// # Errors
    ///
    /// When the pod has no running container.
    pub async fn kill_containers(&self, pod: &Pod) -> Result<()> {
        for process in first_processes(pod).await? {
            kill(process)?;
        }
        Ok(())
    }

    /// The first process of a pod's first container, as seen from the namespaces of this process.
    ///
    /// # Errors
    ///
    /// When the pod has no running container.
    pub async fn first_process(&self, pod: &Pod) -> Result<u32> {
        first_processes(pod).await?.first().copied().context("no container")
    }

    /// Stops every process of every container of `pod`. No process in it can act, and no component
    /// is notified.
    ///
    /// # Errors
    ///
    /// When the pod has no running container.
    pub async fn freeze_pod(&self, pod: &Pod) -> Result<Frozen> {
        let mut frozen = Frozen(BTreeMap::new());
        for first in first_processes(pod).await? {
            freeze_namespace_of(first, &mut frozen)?;
        }
        Ok(frozen)
    }

    /// The first process of the container of `pod`.
    ///
    /// # Errors
    ///
    /// When the pod has no running container, or several.
    pub async fn process(&self, pod: &Pod) -> Result<u32> {
        let [process] = first_processes(pod).await?[..] else { bail!("it has several containers") };
        Ok(process)
    }

    /// Stops the first process of every container of `pod`, and none of its child processes.
    ///
    /// # Errors
    ///
    /// When the pod has no running container.
    pub async fn freeze_first_process(&self, pod: &Pod) -> Result<Frozen> {
        let mut frozen = Frozen(BTreeMap::new());
        for first in first_processes(pod).await? {
            frozen.stop(first)?;
        }
        Ok(frozen)
    }
}

/// The first process of each container of a pod, as seen from the namespaces of this process.
pub(super) async fn first_processes(pod: &Pod) -> Result<Vec<u32>> {
    let on = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    let node = NODES.into_iter().find(|node| node_name(*node) == on);
    let processes = node::tasks(node.context("the pod is on no node")?).await?;
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter());
    let ids = statuses.flatten().filter_map(|status| status.container_id.clone());
    let process = |id: String| {
        let id = id.trim_start_matches("containerd://");
        processes.get(id).copied().context("a container has no process")
    };
    let found = ids.map(process).collect::<Result<Vec<_>>>()?;
    if found.is_empty() {
        bail!("{} has no container", pod.name_any());
    }
    Ok(found)
}

/// Stops all processes in the process namespace of `first`, until a search finds no new process.
fn freeze_namespace_of(first: u32, frozen: &mut Frozen) -> Result<()> {
    let namespace = |process: &Path| fs::read_link(process.join("ns/pid"));
    let wanted = namespace(Path::new(&format!("/proc/{first}")))?;
    if wanted == namespace(Path::new("/proc/self"))? {
        bail!("the container shares the processes of this side");
    }
    for _ in 0..LOOKS_MAX {
        let mut is_new = false;
        for process in processes()? {
            let number = process.file_name().and_then(|name| name.to_string_lossy().parse().ok());
            let Some(number) = number.filter(|number| !frozen.0.contains_key(number)) else {
                continue;
            };
            // A process that has ended since the folder was read has no namespace.
            if namespace(&process).is_ok_and(|found| found == wanted) {
                frozen.stop(number)?;
                is_new = true;
            }
        }
        if !is_new {
            return Ok(());
        }
    }
    bail!("the container starts processes faster than they can be stopped")
}

fn processes() -> Result<Vec<PathBuf>> {
    let is_process = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().parse::<u32>().is_ok())
    };
    let entries = fs::read_dir("/proc")?.flatten().map(|entry| entry.path());
    Ok(entries.filter(is_process).collect())
}

/// Kills a process. A process that has already ended counts as killed.
pub(super) fn kill(process: u32) -> Result<()> {
    match kill_process(pid(process)?, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(err) => Err(err.into()),
    }
}

fn pid(process: u32) -> Result<Pid> {
    i32::try_from(process).ok().and_then(Pid::from_raw).context("no process")
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::until::until_blocking;

    fn state(process: u32) -> Option<char> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        stat.rsplit_once(')')?.1.trim().chars().next()
    }

    fn is_in(process: u32, wanted: char) {
        until_blocking(&format!("state {wanted}"), std::time::Duration::from_secs(5), || {
            Ok((state(process) == Some(wanted)).then_some(()))
        })
        .unwrap();
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_frozen_process_stops_until_it_is_thawed_or_dropped() {
        let child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        for by_drop in [false, true] {
            let mut frozen = Frozen(BTreeMap::new());
            frozen.stop(child.id()).unwrap();
            is_in(child.id(), 'T');
            if by_drop {
                drop(frozen);
            } else {
                frozen.thaw().unwrap();
            }
            is_in(child.id(), 'S');
        }
        end(child);
    }

    #[test]
    fn processes_of_this_side_are_never_frozen_by_mistake() {
        let child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let mut frozen = Frozen(BTreeMap::new());
        assert!(freeze_namespace_of(child.id(), &mut frozen).is_err());
        is_in(child.id(), 'S');
        end(child);
    }
}
