//! Every sample works as it is shipped, and the operator reports no warning meanwhile. The workload
//! comes first, and a state that ends in a moment causes no Event.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use swarm_client::api::FIELD_MANAGER;

use crate::binaries::repository;
use crate::operator::SAMPLES_NAMESPACE;
use crate::scenario::Context;

/// The samples with the names of their Swarms. A sample that needs another one comes after it.
const SAMPLES: [(&str, &str); 7] = [
    ("streams.yaml", "streams"),
    ("deployment.yaml", "streams-deployment"),
    ("sessions.yaml", "backups"),
    ("plain/plain.yaml", "plain"),
    ("managed.yaml", "streams-managed"),
    ("autoscale.yaml", "streams-autoscale"),
    ("peering.yaml", "peering"),
];

pub(super) async fn run(context: Context) -> Result<()> {
    context.operator().await?;
    for (file, swarm) in SAMPLES {
        let path = repository().join("deploy/samples").join(file);
        let text = std::fs::read_to_string(&path).with_context(|| file.to_owned())?;
        let (shipped, here) = (SAMPLES_NAMESPACE, &context.namespace);
        let text =
            text.replace(&format!("namespace: {shipped}\n"), &format!("namespace: {here}\n"));
        // The operator makes the budget of a managed pool.
        ensure!(
            !text.contains("\nkind: StatefulSet\n") || text.contains("kind: PodDisruptionBudget\n"),
            "{file} has no budget"
        );
        context.apply(&text).await?;
        let swarm = format!("swarm/{swarm}");
        context.kubectl(&["wait", "--for=condition=Ready", &swarm, "--timeout=5m"]).await?;
        context.laps.lap(format!("{file} is ready"));
        context.kubectl(&["delete", &swarm, "--timeout=5m"]).await?;
    }
    let network = repository().join("deploy/samples/network.yaml").display().to_string();
    context.kubectl(&["apply", "--filename", &network]).await?;
    let events = context.api::<Event>().list(&ListParams::default()).await?;
    let ours = events.iter().filter(|it| it.reporting_controller.as_deref() == Some(FIELD_MANAGER));
    let ours: Vec<_> = ours.collect();
    ensure!(SAMPLES.len() <= ours.len(), "there are only {} Events", ours.len());
    let warnings: Vec<_> = ours
        .iter()
        .filter(|it| it.type_.as_deref() == Some("Warning"))
        .map(|it| (it.reason.as_deref(), it.note.as_deref()))
        .collect();
    ensure!(warnings.is_empty(), "warnings: {warnings:?}");
    context.laps.lap(format!("{} Events of the operator, none a warning", ours.len()));
    Ok(())
}
