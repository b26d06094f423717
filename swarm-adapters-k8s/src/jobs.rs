//! The jobs of a Swarm: the list in its spec, and the lists in the ConfigMaps that it names.
//!
//! - [`convert`]: what a Swarm asks for, in the terms of the core.
//! - `sources`: fetches lists of jobs; `reading`: where they are read.
//! - `cooldown` and `memory_budget`: how often lists are read that cost much, and how many are kept.
//! - `listed`: notices edits that remove most jobs.

pub mod convert;
pub(crate) mod cooldown;
pub(crate) mod listed;
pub(crate) mod memory_budget;
pub(crate) mod reading;
pub(crate) mod sources;
