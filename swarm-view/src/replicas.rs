//! `replicas`: the operators that share the Swarms of a cluster.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A replica of the operator: its Lease, and beside these fields what it says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Replica {
    /// Report of the replica, such as `version`, `objects` and `isHealthy`. An earlier version says less.
    #[serde(flatten)]
    pub said: Map<String, Value>,
    /// The name of its Lease.
    pub id: String,
    /// Whether it holds its Lease.
    pub is_alive: bool,
    /// Time of the last renewal.
    pub renewed: String,
}

impl Replica {
    /// Makes the document of a replica. What it says about the fields of its Lease does not count.
    #[must_use]
    pub fn new(id: &str, is_alive: bool, renewed: &str, mut said: Map<String, Value>) -> Self {
        said.retain(|field, _| !["id", "isAlive", "renewed"].contains(&field.as_str()));
        Self { said, id: id.to_owned(), is_alive, renewed: renewed.to_owned() }
    }
}
