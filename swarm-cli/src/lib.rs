//! The program `swarm`: pools on this machine, and the files that describe them.

mod export;
mod init;
mod manual;
mod plan;
pub mod swarm;
mod verify;
