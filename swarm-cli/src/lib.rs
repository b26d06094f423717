//! The command line of swarm, as two programs with one set of verbs: [`swarm`] for pools on this machine,
//! and [`kubectl_swarm`], a plugin of kubectl, for a cluster.
//!
//! Formats of output, names of columns, tables and messages are those of [`swarm_local::output`] in both
//! programs, and exit codes those of [`exit_codes`]. A verb that both have is one module: [`plan`] and [`import`] read files, and ask the home
//! that the program is for.

mod complete;
mod exit_codes;
mod folder;
mod import;
mod init;
mod input;
mod kubectl;
pub mod kubectl_swarm;
mod manual;
mod plan;
mod replicas;
pub mod swarm;
mod verify;
mod words;
