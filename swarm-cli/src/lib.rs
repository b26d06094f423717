//! The command line of swarm, as two programs with one set of verbs. [`swarm`] runs pools on this
//! machine, and [`kubectl_swarm`], a plugin of kubectl, works on a cluster.
//!
//! Both programs use the output formats, column names, tables and messages of
//! [`swarm_local::output`], and the exit codes of `exit_codes`. A verb that both programs have is
//! one module: `plan` and `import` read files, and query the machine or the cluster.

mod color;
mod complete;
mod exit_codes;
mod folder;
mod import;
mod init;
mod input;
mod kubectl;
pub mod kubectl_swarm;
mod live;
mod manual;
mod plan;
mod refusal;
mod replicas;
pub mod swarm;
mod verify;
mod words;
