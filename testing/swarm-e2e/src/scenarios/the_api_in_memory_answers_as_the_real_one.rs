//! The API server in memory, on which the operator is tested without a cluster, keeps the contract that
//! the real one keeps, and answers the same random operations alike.

use anyhow::{Result, ensure};
use swarm_apiserver::ApiServer;

use crate::contract::api::{Place, api_server, transcript};
use crate::scenario::Context;

/// How many operations are sent from each seed.
const OPERATIONS: usize = 120;

pub(super) async fn run(context: Context) -> Result<()> {
    // Its CRDs are part of the contract.
    context.operator().await?;
    let (client, namespace) = (&context.client, context.namespace.as_str());
    // The history of an API server begins where it was started.
    api_server(&Place { client, namespace, forgotten: "1" }).await?;
    context.laps.lap("the real one keeps the contract");
    for seed in 1..=5 {
        let real = transcript(client, namespace, seed, OPERATIONS).await?;
        let in_memory = ApiServer::new().client(namespace);
        let in_memory = transcript(&in_memory, namespace, seed, OPERATIONS).await?;
        for (place, (real, in_memory)) in real.iter().zip(&in_memory).enumerate() {
            ensure!(
                real == in_memory,
                "seed {seed}, line {place}:\n  real      {real}\n  in memory {in_memory}"
            );
        }
        ensure!(real.len() == in_memory.len(), "seed {seed}: watches show different changes");
    }
    Ok(())
}
