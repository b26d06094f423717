//! The components behind Services: one kube-proxy for both nodes, which share a network stack, and
//! DNS.
//!
//! The Service `kubernetes` is left out. Its address is on our loopback device, and works while
//! kube-proxy is down.

use std::fs;
use std::path::Path;

use anyhow::Result;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{Cluster, FOLDER, NODES, POD_ADDRESSES, node_name};
use crate::pki::Authority;
use crate::until::until;

/// The addresses of the nodes, on which node ports are open.
const NODE_ADDRESSES: &str = "10.90.0.0/24";
/// The label of Services that kube-proxy leaves to another proxy.
const PROXY_LABEL: &str = "service.kubernetes.io/service-proxy-name";

/// Starts kube-proxy.
pub(super) async fn kube_proxy(cluster: &Cluster, authority: &Authority) -> Result<()> {
    until("the kubernetes Service", || leave_out_api_server(cluster)).await?;
    let config = format!("{FOLDER}/kube-proxy.json");
    fs::write(&config, kube_proxy_config(authority).to_string())?;
    let program = cluster.binaries.control_plane.join("kube-proxy");
    cluster.components.start("kube-proxy", &program, vec![format!("--config={config}")])
}

/// Starts the DNS responder, which is this same program.
pub(super) fn dns(cluster: &Cluster, authority: &Authority) -> Result<()> {
    let args = vec!["dns".to_owned(), authority.path("dns.kubeconfig")];
    // A mount of the sandbox may cover the path of the program.
    cluster.components.start("dns", Path::new("/proc/self/exe"), args)
}

/// Hides the Service `kubernetes` from kube-proxy. The Service has no endpoints, so kube-proxy
/// would refuse connections to it.
async fn leave_out_api_server(cluster: &Cluster) -> Result<Option<()>> {
    let services: Api<Service> = Api::namespaced(cluster.client.clone(), "default");
    let label = json!({"metadata": {"labels": {PROXY_LABEL: "none"}}});
    services.patch("kubernetes", &PatchParams::default(), &Patch::Merge(label)).await?;
    Ok(Some(()))
}

fn kube_proxy_config(authority: &Authority) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": authority.path("kube-proxy.kubeconfig")},
        // The name matters only to Services that are restricted to the pods of one node.
        "hostnameOverride": node_name(NODES[0]),
        "mode": "iptables",
        "iptables": {
            // Without masquerading, answers between two pods on one bridge bypass the rules, unless
            // the kernel filters bridges. They would come from an address that the client did not
            // contact.
            "masqueradeAll": true,
            "localhostNodePorts": false,
            // No other program changes the rules. They are written when Services change.
            "syncPeriod": "1h",
        },
        "detectLocalMode": "ClusterCIDR",
        "clusterCIDR": POD_ADDRESSES,
        "nodePortAddresses": [NODE_ADDRESSES],
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        // Limits of the whole machine stay unchanged.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    })
}
