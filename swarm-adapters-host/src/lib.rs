//! Adapters for the host that workers and operators share: files, clocks, HTTP. Nothing here depends
//! on Kubernetes.
//!
//! - [`ledger`] and [`view`] store the ledger and the view in files, as adapters of the core's
//!   ports; [`mod@file`] has two ways to write a file so that no reader sees a part of it, and
//!   [`named_file`] one that is appended to whatever becomes of it.
//! - [`leases`] and [`worker_view`] carry the messages between a worker's session and the operator;
//!   [`clock`] is the clock that leases expire by; [`session`] is the store of a worker's session.
//!   [`failing`] is the report of a session about jobs that fail, [`awaited`] about jobs that are
//!   not up yet.
//! - [`caller`] copes with the inheritance of a process: signals, limits, `/proc`. [`runtime`]
//!   builds the runtimes of our programs.
//! - [`watch`] watches one file through its directory, including the swaps of a mounted `ConfigMap`.
//! - [`channel`] carries orders to a worker, and its events back.
//! - [`runlog`] records which worker ran which job when.
//! - [`mod@printable`] keeps what a terminal is shown from steering it.
//! - [`http`] and [`metrics`] are the endpoints and metrics of both programs.

/// The example of the guide is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod caller;
pub mod runtime;
pub mod timer;

pub mod file;
pub mod named_file;
pub mod printable;

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
pub mod runlog;

pub mod http;
pub mod metrics;
