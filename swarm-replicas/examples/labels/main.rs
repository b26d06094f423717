//! A controller that runs several times at once, each process for its share of the objects. Start
//! it twice, with different IDs, and watch `kubectl get leases`.

mod controller;

use swarm_replicas::Group;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let id = std::env::args().nth(1).unwrap_or_else(|| "labels-0".to_owned());
    let client = kube::Client::try_default().await?;
    let member = Group::new(client.clone(), "default", "labels").id(&id).join().await?;
    tokio::select! {
        done = controller::run(client, "default", &member) => done?,
        _ = tokio::signal::ctrl_c() => {
            member.leave().await;
        }
    }
    Ok(())
}
