//! Faults of containers, nodes, the network, and the cluster's store.
//!
//! A lasting fault is a value with a method that undoes it. [`Cluster::mend`] undoes the rest after
//! the scenario. A single component is broken by its name, through
//! [`Components`](super::Components): `kill("kubelet-1")` leaves the pods of that node running.

mod containers;
mod network;
mod store;

pub use containers::Frozen;
pub use network::CutOff;
pub(super) use network::mend;
pub use store::EtcdCopy;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, Result};

use super::{Cluster, NODES, node, node_name};
use crate::until::until;

impl Cluster {
    /// Kills all processes of a node at once, as a power cut would.
    ///
    /// # Errors
    ///
    /// When the node does not exist, or a process cannot be killed.
    pub fn kill_node(&self, node: u8) -> Result<()> {
        for component in [format!("kubelet-{node}"), format!("containerd-{node}")] {
            self.components.kill(&component)?;
        }
        for process in processes_of(node)? {
            containers::kill(process)?;
        }
        Ok(())
    }

    /// Starts a killed node again.
    ///
    /// # Errors
    ///
    /// When the node is running, or does not become ready.
    pub async fn revive_node(&self, node: u8) -> Result<()> {
        self.components.restart(&format!("containerd-{node}"))?;
        // A kubelet ends if it does not find the runtime.
        until("the container runtime", || node::answers(node)).await?;
        self.components.restart(&format!("kubelet-{node}"))?;
        self.nodes_ready().await
    }

    /// Evicts the pods with this label from a node, which takes no new pods until it is
    /// [uncordoned](Self::uncordon).
    ///
    /// # Errors
    ///
    /// When a pod is left after a minute.
    pub async fn drain(&self, node: u8, selector: &str) -> Result<()> {
        let selector = format!("--pod-selector={selector}");
        // The state directories of these pods are deleted with them.
        let local = "--delete-emptydir-data";
        let drain = ["drain", &node_name(node), &selector, local, "--timeout=5m"];
        self.kubectl(&drain).await.map(drop)
    }

    /// Lets a drained node take pods again.
    ///
    /// # Errors
    ///
    /// When the API server refuses the change.
    pub async fn uncordon(&self, node: u8) -> Result<()> {
        self.kubectl(&["uncordon", &node_name(node)]).await.map(drop)
    }

    /// Lets all nodes take pods again.
    pub(super) async fn uncordon_all(&self) -> Result<()> {
        let cordoned = "--field-selector=spec.unschedulable=true";
        let found = self.kubectl(&["get", "nodes", "--output=name", cordoned]).await?;
        for node in NODES {
            if found.contains(&node_name(node)) {
                self.uncordon(node).await?;
            }
        }
        Ok(())
    }
}

/// The shims of a node's containers, and their descendants.
fn processes_of(node: u8) -> Result<BTreeSet<u32>> {
    let (mut parents, mut found) = (BTreeMap::new(), BTreeSet::new());
    for entry in fs::read_dir("/proc")? {
        let Ok(process) = entry?.file_name().to_string_lossy().parse::<u32>() else { continue };
        // A process that has ended since the folder was read is skipped.
        let read = |file: &str| fs::read_to_string(format!("/proc/{process}/{file}"));
        let (Ok(stat), Ok(line)) = (read("stat"), read("cmdline")) else { continue };
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

/// The second field after the name. The name is in parentheses, and may contain any character.
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
