//! What crashes beside components: containers, and nodes as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use super::{Cluster, NODES, node, node_name};
use crate::until::until;

/// How long a container runtime may take to start.
const RUNTIME_WITHIN: Duration = Duration::from_secs(30);

impl Cluster {
    /// Kills the processes of all containers of `pod` from outside, as the kernel does when memory
    /// runs out.
    ///
    /// # Errors
    ///
    /// When it has no running container.
    pub async fn kill_containers(&self, pod: &Pod) -> Result<()> {
        let on = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        let node = NODES.into_iter().find(|node| node_name(*node) == on);
        let processes = node::tasks(node.context("the pod is on no node")?).await?;
        let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter());
        let ids = statuses.flatten().filter_map(|status| status.container_id.clone());
        let mut killed = 0;
        for id in ids {
            let id = id.trim_start_matches("containerd://");
            let process = processes.get(id).context("a container has no process")?;
            kill(*process)?;
            killed += 1;
        }
        if killed == 0 {
            bail!("{} has no container", pod.name_any());
        }
        Ok(())
    }

    /// Ends everything that runs on a node at once, as a power cut would.
    ///
    /// # Errors
    ///
    /// When there is no such node, or not all of it can be ended.
    pub fn kill_node(&self, node: u8) -> Result<()> {
        for component in [format!("kubelet-{node}"), format!("containerd-{node}")] {
            self.components.kill(&component)?;
        }
        for process in processes_of(node)? {
            kill(process)?;
        }
        Ok(())
    }

    /// Lets a node that was killed start again.
    ///
    /// # Errors
    ///
    /// When it is running, or does not become ready.
    pub async fn revive_node(&self, node: u8) -> Result<()> {
        self.components.restart(&format!("containerd-{node}"))?;
        // A kubelet that does not find it ends.
        until("the container runtime", RUNTIME_WITHIN, || node::answers(node)).await?;
        self.components.restart(&format!("kubelet-{node}"))?;
        self.nodes_ready().await
    }
}

/// One that has ended meanwhile is as good as killed.
fn kill(process: u32) -> Result<()> {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw).context("no process")?;
    match kill_process(process, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(err) => Err(err.into()),
    }
}

/// The shims of a node's containers, and what they have started.
fn processes_of(node: u8) -> Result<BTreeSet<u32>> {
    let (mut parents, mut found) = (BTreeMap::new(), BTreeSet::new());
    for entry in fs::read_dir("/proc")? {
        let Ok(process) = entry?.file_name().to_string_lossy().parse::<u32>() else { continue };
        // One that has ended since the folder was read tells nothing.
        let told = |file: &str| fs::read_to_string(format!("/proc/{process}/{file}"));
        let (Ok(stat), Ok(line)) = (told("stat"), told("cmdline")) else { continue };
        parents.insert(process, parent(&stat)?);
        let mut words = line.split('\0');
        let is_shim = words.next().is_some_and(|program| program.contains("containerd-shim"));
        if is_shim && words.any(|word| word == node::socket(node)) {
            found.insert(process);
        }
    }
    loop {
        let more = parents.iter().filter(|(_, parent)| found.contains(parent));
        let more: BTreeSet<_> = more.map(|(process, _)| *process).collect();
        if more.is_subset(&found) {
            return Ok(found);
        }
        found.extend(more);
    }
}

/// The second field after the name, which is in parentheses and may hold anything.
fn parent(stat: &str) -> Result<u32> {
    let (_, rest) = stat.rsplit_once(')').context("no name in a stat file")?;
    Ok(rest.split_whitespace().nth(1).context("no parent in a stat file")?.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_of_a_process_is_found_behind_any_name() {
        assert_eq!(parent("7 (a) b (c)) S 5 7 7 0").unwrap(), 5);
        let own = fs::read_to_string("/proc/self/stat").unwrap();
        assert_eq!(parent(&own).unwrap(), std::os::unix::process::parent_id());
    }
}
