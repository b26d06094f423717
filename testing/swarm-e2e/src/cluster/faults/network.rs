//! Pods and nodes that cannot reach the API server while they keep running.
//!
//! A pod loses its whole network. A node loses the connection between the API server and its
//! kubelet and pods, in both directions. All other connections still work, such as the probes.

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Pod;

use super::super::{Cluster, NODES, SERVICE_ADDRESS, server_address};
use super::containers::first_processes;
use crate::command::run;

/// The priority of the rules that cut nodes off, before [`LOCAL`].
const CUTS: &str = "50";
/// The priority of the rule for our own addresses. By default it is first, and no rule can precede
/// it.
const LOCAL: &str = "100";

/// A pod or a node that is cut off until it is [reconnected](Self::reconnect).
#[derive(Debug)]
#[must_use = "it is cut off until it is reconnected"]
pub struct CutOff(Cut);

#[derive(Debug)]
enum Cut {
    /// The outer end of the pod's only wire is down.
    Wire(String),
    Node(u8),
}

impl CutOff {
    /// Lets the pod or node reach the API server again.
    ///
    /// # Errors
    ///
    /// When the kernel refuses the change, as for a deleted pod, whose wire no longer exists.
    pub fn reconnect(self) -> Result<()> {
        match self.0 {
            Cut::Wire(wire) => ip(&["link", "set", &wire, "up"]).map(drop),
            Cut::Node(node) => {
                for rule in rules(node) {
                    change("del", &rule)?;
                }
                Ok(())
            }
        }
    }
}

impl Cluster {
    /// Disconnects a pod from the network.
    ///
    /// # Errors
    ///
    /// When the pod has no running container.
    pub async fn cut_off_pod(&self, pod: &Pod) -> Result<CutOff> {
        let first = first_processes(pod).await?.into_iter().next().context("no container")?;
        let file = format!("/proc/{first}/root/sys/class/net/eth0/iflink");
        let number = std::fs::read_to_string(&file).with_context(|| file.clone())?;
        let wire = named(&ip(&["-oneline", "link"])?, number.trim())?;
        ip(&["link", "set", &wire, "down"])?;
        Ok(CutOff(Cut::Wire(wire)))
    }

    /// Disconnects a node's kubelet and pods from the API server.
    ///
    /// # Errors
    ///
    /// When the node does not exist, or the kernel has no rules for routes.
    pub fn cut_off_node(&self, node: u8) -> Result<CutOff> {
        if !NODES.contains(&node) {
            bail!("there is no node {node}");
        }
        if !ip(&["rule", "list", "pref", LOCAL])?.contains("local") {
            ip(&["rule", "add", "pref", LOCAL, "lookup", "local"])?;
            ip(&["rule", "del", "pref", "0"])?;
        }
        for rule in rules(node) {
            change("add", &rule)?;
        }
        Ok(CutOff(Cut::Node(node)))
    }
}

/// Reconnects all nodes. Wires of pods that are still down end with their pods.
pub(in super::super) fn mend() -> Result<()> {
    while !ip(&["rule", "list", "pref", CUTS])?.trim().is_empty() {
        ip(&["rule", "del", "pref", CUTS])?;
    }
    Ok(())
}

/// The rules that drop the traffic of a cut-off node. They match packets between its pods and the
/// API server, and packets from its kubelet to the node's own address of the API server.
fn rules(node: u8) -> [Vec<String>; 3] {
    let words = |line: String| line.split(' ').map(str::to_owned).collect();
    [
        words(format!("iif pods-{node} to {SERVICE_ADDRESS}")),
        words(format!("from {SERVICE_ADDRESS} to 10.88.{node}.0/24")),
        words(format!("to {}", server_address(node))),
    ]
}

fn change(verb: &str, rule: &[String]) -> Result<()> {
    let mut words = vec!["rule", verb, "pref", CUTS];
    words.extend(rule.iter().map(String::as_str));
    words.push("blackhole");
    ip(&words).map(drop)
}

fn ip(words: &[&str]) -> Result<String> {
    run("ip", words)
}

/// The name of the interface with a number, in the table of `ip -oneline link`.
fn named(table: &str, number: &str) -> Result<String> {
    let name = |line: &str| {
        let (found, rest) = line.split_once(": ")?;
        let name = rest.split([':', '@']).next()?;
        (found.trim() == number).then(|| name.to_owned())
    };
    table.lines().find_map(name).with_context(|| format!("no interface {number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outer_end_of_a_wire_is_found_by_its_number() {
        let table = "1: lo: <LOOPBACK,UP> mtu 65536 qdisc noqueue\n\
                     12: veth1@if2: <BROADCAST> mtu 1500\n2: node: <NO-CARRIER> mtu 1500\n";
        assert_eq!(named(table, "12").unwrap(), "veth1");
        assert_eq!(named(table, "2").unwrap(), "node");
        assert!(named(table, "3").is_err());
    }
}
