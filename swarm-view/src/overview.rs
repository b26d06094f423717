//! `status` of several pools: a summary of each.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::replicas::OutOfDate;
use crate::status::{Condition, Status};

/// The pools of one machine, or the Swarms of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Overview {
    /// The Swarms of a cluster.
    Swarms {
        /// Each Swarm, by namespace and name.
        swarms: Vec<Summary>,
    },
    /// The pools of one machine.
    Pools {
        /// Each pool, by its state directory.
        pools: Vec<ListedPool>,
    },
}

/// A Swarm of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// The most important fact in a word.
    pub status: String,
    /// Whether it is ready.
    pub ready: bool,
    /// Whether it is settled.
    pub settled: bool,
    /// Whether it is healthy.
    pub healthy: bool,
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// Reason why all of this may be wrong now, since no operator works on the Swarm.
    #[serde(rename = "outOfDate", default, skip_serializing_if = "Option::is_none")]
    pub out_of_date: Option<OutOfDate>,
}

/// A pool of one machine, which answers or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ListedPool {
    /// The pool does not answer.
    Silent {
        /// The state directory.
        dir: String,
        /// The reason in a sentence.
        error: String,
    },
    /// The answer of the pool, with all fields of `status`.
    Answered {
        /// The state directory.
        dir: String,
        /// The document, as the pool answered it.
        #[serde(flatten)]
        #[schemars(with = "Status")]
        document: Value,
    },
}
