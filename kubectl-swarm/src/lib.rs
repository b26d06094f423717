//! `kubectl swarm`, a plugin of kubectl, and the parts of it that `swarm` has, too.
//!
//! - [`program`] is the plugin: its commands read a live pool of a cluster.
//! - [`plan`] and [`import`] read files. `swarm` has both, and plans for its own pools.
//! - [`color`], [`help`], [`input`] and [`refusal`] are the same for all commands of both
//!   programs.
//!
//! Both programs use the output formats, column names, tables and messages of [`swarm_terminal`].

pub mod color;
mod complete;
mod folder;
pub mod help;
pub mod import;
pub mod input;
mod kubectl;
mod live;
pub mod plan;
pub mod program;
pub mod refusal;
mod replicas;
mod words;

pub use live::Failure;
