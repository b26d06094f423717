//! The logs of a pool: of its operator, of its workers, and of each job.

pub(crate) mod job_log;
pub(crate) mod log;
pub(crate) mod worker_log;
