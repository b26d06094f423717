//! Everything of swarm that knows the host it runs on, and nothing that knows Kubernetes.
//!
//! - [`ledger`] and [`view`] keep the ledger and the view in files, as adapters of the core's
//!   ports; [`mod@file`] holds the two ways to write a file that a reader never sees half of.
//! - [`leases`] and [`worker_view`] are what a worker's session and the operator tell each other;
//!   [`clock`] is the clock they count on; [`session`] is what a worker drives its session with.
//!   [`pool_views`] publishes to all workers of a pool.
//! - [`watch`] follows one file by its directory, through the swaps of a mounted `ConfigMap` too.
//! - [`processes`] runs the workers of a pool as child processes, and ends them.
//! - [`runner`] runs jobs inside a worker; [`guard`] and [`sweep`] see to it that none of their
//!   processes outlives it; [`runlog`] is the record of who ran what when.
//! - [`marker`] says at the next start which job ended a process that crashed.
//! - [`report`] is what a worker tells about them.
//! - [`http`] and [`metrics`] are what both programs serve.
//! - [`terminal`] knows how wide the terminal is, and draws on it.

mod procs;

pub mod file;

pub mod ledger;
pub mod view;

pub mod clock;
pub mod leases;
pub mod pool_views;
pub mod random;
pub mod session;
mod unique;
pub mod worker_view;

pub mod watch;

pub mod guard;
pub mod marker;
pub mod processes;
pub mod report;
pub mod runlog;
pub mod runner;
pub mod sweep;

pub mod http;
pub mod metrics;
pub mod terminal;
