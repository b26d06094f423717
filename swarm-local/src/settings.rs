//! The settings of a pool: the file of its user, and what holds while the pool runs.

pub(crate) mod fixed;
pub(crate) mod input;
pub(crate) mod limits;
pub(crate) mod run_log;
pub(crate) mod writers;
