//! The spec of a Swarm: one model for files and for clusters, which knows no client of either.
//!
//! - [`spec`]: the types, with what the schema and the rules of the CRD say of them. The adapter for
//!   Kubernetes makes the resource of them.
//! - [`convert`]: what a spec asks for, in the terms of `swarm-core`; here a value that makes no sense
//!   is refused.
//! - [`hostport`]: jobs that are addresses, as lines `host,port`.
//! - [`manifest`]: a file with one `Swarm`, checked as strictly as an API server would, offline.
//! - [`place`]: where a field stands in a text, for errors.
//! - [`predecessor`]: the operator in Go that came before, and how it is recognized.
//! - [`removal`]: edits that remove so many jobs that a person should be notified.
//! - [`template`]: arguments of programs, with placeholders for the job.
//! - [`view`]: the view that plain workers read, for whoever has to judge one.
//! - [`yaml`]: the documents of a text, read with a limit on what their aliases may repeat.
//!
//! What is refused here and by the schema in a cluster is the same; `testing/specs.yaml` is the table
//! that both are tested with.

/// The example of the guide is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod convert;
mod duration;
pub mod error;
pub mod hostport;
mod json_schema;
pub mod manifest;
mod params;
pub mod place;
pub mod predecessor;
pub mod removal;
mod rule;
mod schema;
pub mod spec;
pub mod template;
pub mod view;
pub mod yaml;

pub use duration::Duration;
pub use json_schema::json_schema;
