//! The pool of a line, in answers about several pools.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::table::columns;

/// The place where a pool runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// One machine.
    Machine,
    /// A cluster.
    Cluster,
}

impl Home {
    /// Returns the names of the columns for the name of a pool.
    #[must_use]
    pub fn heads(self) -> &'static [&'static str] {
        match self {
            Self::Machine => &[columns::POOL],
            Self::Cluster => &[columns::NAMESPACE, columns::SWARM],
        }
    }
}

/// The name of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum PoolName {
    /// A Swarm on a cluster.
    Cluster {
        /// The namespace of the Swarm.
        namespace: String,
        /// The name of the Swarm.
        swarm: String,
    },
    /// A pool on one machine.
    Machine {
        /// The name of the pool.
        pool: String,
    },
}

impl PoolName {
    /// Returns the home of the pool.
    #[must_use]
    pub fn home(&self) -> Home {
        match self {
            Self::Machine { .. } => Home::Machine,
            Self::Cluster { .. } => Home::Cluster,
        }
    }

    /// Returns the cells of the columns that [`Home::heads`] names.
    #[must_use]
    pub fn cells(&self) -> Vec<String> {
        match self {
            Self::Machine { pool } => vec![pool.clone()],
            Self::Cluster { namespace, swarm } => vec![namespace.clone(), swarm.clone()],
        }
    }
}
