//! A real two-node Kubernetes cluster on this machine, and the scenarios that run in it.
//!
//! Read the modules in the order of a run:
//! 1. [`binaries`] and [`images`] build everything first, into the [`cache`], and [`previous`] the
//!    previous version;
//! 2. [`sandbox`] restarts the program in new namespaces, which end with it;
//! 3. [`cluster`] boots etcd, the control plane and two nodes inside, with a [`dns`] responder;
//! 4. [`scenario`] runs the [`scenarios`] one after another, and keeps evidence of failed ones;
//! 5. [`proxy`] runs in front of the API server, for scenarios that stop at a write;
//! 6. [`run_log`] judges which worker ran which job at which time;
//! 7. [`external_metrics`] answers an autoscaler with a gauge of the operator;
//! 8. [`figures`] measures the operator in the cluster;
//! 9. [`contract`] checks the duties of every adapter of a port, on files and on the cluster;
//! 10. [`gone`] proves that no run leaves anything behind, however it ends.
//!
//! This crate is never shipped, and no crate of the product depends on it.
#![cfg(feature = "harness")]

mod bare_ledger;
pub mod binaries;
pub mod cache;
pub mod cluster;
pub mod command;
pub mod contract;
pub mod dns;
pub mod external_metrics;
pub mod figures;
pub mod gone;
pub mod images;
pub mod operator;
pub mod output;
pub mod pki;
pub mod previous;
pub mod proxy;
pub mod rights;
pub mod run_log;
pub mod sandbox;
pub mod scenario;
pub mod scenarios;
pub mod until;
