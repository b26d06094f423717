//! Adapters for the host, shared by workers and operators: files, clocks and HTTP. This crate does
//! not depend on Kubernetes.
//!
//! - [`ledger`] and [`view`] store the ledger and the view in files, as adapters of the core's
//!   ports. [`mod@file`] has two ways to write a file atomically. [`named_file`] appends to a file
//!   that may be renamed or removed.
//! - [`leases`] and [`worker_view`] carry the messages between a worker's session and the operator.
//!   [`clock`] is the clock of the leases, and [`session`] is the store of a worker's session.
//!   [`failing`] is the report of a session about failing jobs, and [`awaited`] about jobs that are
//!   not up yet.
//! - [`caller`] handles the state that a process inherits: signals, limits, `/proc`. [`runtime`]
//!   builds the runtimes of all programs.
//! - [`watch`] watches one file through its directory, including the swaps of a mounted `ConfigMap`.
//! - [`channel`] carries orders to a worker, and its events back.
//! - [`runlog`] records which worker ran which job when. [`job_log`] has what the jobs printed.
//! - [`usage`] measures memory and processor time of the processes of jobs.
//! - [`http`] and [`metrics`] are the endpoints and metrics of both programs.

/// Compiles and runs the example of the guide.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod caller;
pub mod runtime;
pub mod timer;

pub mod file;
pub mod named_file;

pub mod ledger;
pub mod view;

pub mod awaited;
pub mod clock;
pub mod failing;
pub mod leases;
pub mod random;
pub mod session;
mod session_file;
mod unique;
pub mod worker_view;

pub mod watch;

pub mod channel;
pub mod job_log;
pub mod runlog;

pub mod usage;

pub mod http;
pub mod metrics;

/// Limit of every wait of a unit test: it ends a test that hangs, and judges nothing.
#[cfg(test)]
const DEADLINE: std::time::Duration = std::time::Duration::from_mins(5);
