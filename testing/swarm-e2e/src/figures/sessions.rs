//! The times and costs of sessions: the legs of a move, recovery after a fault, requests,
//! heartbeats.
//!
//! The run log has the times when a job starts and stops. All other times come from watches of this
//! program, so a leg that ends with such a time includes the delivery of an event to a client.

mod faults;
mod heartbeats;
mod moves;
mod watches;

use std::sync::Arc;

use anyhow::Result;

use crate::cluster::Cluster;
use crate::scenario::Context;

pub(super) async fn measure(cluster: &Arc<Cluster>) -> Result<()> {
    let context = Context::new(cluster, "figures-sessions").await?;
    context.operator().await?;
    moves::measure(&context).await?;
    faults::measure(&context).await?;
    heartbeats::measure(&context).await
}
