//! The spec of a Swarm: one model for files and for clusters, without a client of either.
//!
//! - [`spec`]: the types, with the schema and the CEL rules of the CRD. The adapter for Kubernetes
//!   makes a resource of them.
//! - [`convert`]: a spec in the types of `swarm-core`. Here invalid values are refused.
//! - [`fields`]: the fields of a spec that are set, and the edits of them.
//! - [`foreign`]: texts of other tools that list programs or addresses.
//! - [`hostport`]: jobs that are addresses, as lines `host,port`.
//! - [`manifest`]: a file with one `Swarm`, checked offline as strictly as by an API server.
//! - [`place`]: the line and column of a field, for errors.
//! - [`predecessor`]: recognizes the previous operator, which was written in Go.
//! - [`removal`]: edits that remove a large part of the jobs, so that a person should be notified.
//! - [`template`]: arguments of programs, with placeholders for the job.
//! - [`view`]: the view that plain workers read.
//! - [`yaml`]: the documents of a text, with a limit for repetition by aliases.
//!
//! This crate and the schema in a cluster refuse the same values. The tests of both read the table
//! `testing/specs.yaml`.

/// The example of the guide is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod convert;
mod duration;
pub mod error;
pub mod fields;
pub mod foreign;
pub mod hostport;
mod json_schema;
pub mod manifest;
mod params;
pub mod place;
pub mod predecessor;
pub mod removal;
mod rule;
mod schema;
mod size;
pub mod spec;
pub mod template;
pub mod view;
pub mod yaml;

pub use duration::Duration;
pub use json_schema::{json_schema, spec_schema};
pub use size::Size;
