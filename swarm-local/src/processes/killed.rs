//! Jobs and workers that did not end in time and were killed.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A killed job, or a killed worker as a whole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Killed {
    /// The worker.
    pub(crate) worker: String,
    /// The job; `None` for the worker, if it had no jobs or did not report them.
    pub(crate) job: Option<String>,
}

impl fmt::Display for Killed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.job {
            Some(job) => write!(f, "{job} on {}", self.worker),
            None => write!(f, "worker {}", self.worker),
        }
    }
}
