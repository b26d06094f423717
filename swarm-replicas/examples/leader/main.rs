//! An election of a leader. Start it twice, with different IDs, and end the leader.

#![expect(clippy::print_stdout, reason = "this is what it shows")]

mod election;

use std::sync::Arc;

use swarm_replicas::{Group, Permit};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let id = std::env::args().nth(1).unwrap_or_else(|| "leader-0".to_owned());
    let client = kube::Client::try_default().await?;
    let member = Group::new(client, "default", "leader").id(&id).join().await?;
    // The work of a leader: requests by `permit.run(…)`, until it is dropped.
    let lead = |permit: Arc<Permit>| {
        println!("{id} leads, in term {}", permit.term());
        std::future::pending()
    };
    tokio::select! {
        done = election::run(&member, lead) => done?,
        _ = tokio::signal::ctrl_c() => {
            member.leave().await;
        }
    }
    Ok(())
}
