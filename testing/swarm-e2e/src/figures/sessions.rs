//! What sessions take and cost: the legs of a move, the times after a fault, requests, heartbeats.
//!
//! The run log has the times when a job starts and stops. All other times are those of watches of this
//! program, so a leg that ends with one includes the way of an event to a client.

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
