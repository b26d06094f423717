//! Takes over pools whose jobs another operator assigned. Finds the view that their workers read,
//! and detects an operator that may still write it. The core decides which assignments to take
//! over.
//!
//! The spec has to ask for it, since a view that is years old would otherwise decide. The former
//! operator held no Lease, so its container and its entry in `managedFields` are the only signs of
//! it. No time makes its last write too old, since it writes only when its list changes.

use futures::TryStreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Container;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use swarm_client::api::Swarm;
use swarm_core::ports::{LedgerStore as _, StoreError};
use swarm_core::{Adoption, View};
use swarm_spec::predecessor;

use super::stores::{Ledgers, OpenStores};
use crate::plain::view::writers::Writer;
use crate::requests::bounded;
use crate::status::EventReason;
use crate::turn::Turn;
use crate::watch::streams;

/// The number of Deployments in a page: each may be larger than a megabyte.
const PAGE: u32 = 25;

impl Ledgers {
    /// The view that the first ledger of the Swarm takes over. `None` unless the Swarm asks for a
    /// takeover, has assigned nothing yet, and the view has workers with jobs.
    ///
    /// # Errors
    ///
    /// [`StoreError::Refused`] if the ConfigMap is not a view, belongs to another Swarm, or if the
    /// previous operator still runs.
    pub(crate) async fn adoptable(
        &self,
        turn: &Turn<'_>,
        stores: &mut OpenStores<'_>,
    ) -> Result<Option<View>, StoreError> {
        let swarm = turn.swarm;
        if !swarm.adopts() {
            return Ok(None);
        }
        let ledger = stores.ledgers.load().await?;
        if ledger.is_some_and(|(ledger, _)| 0 < ledger.version) {
            return Ok(None);
        }
        let since = swarm.creation_timestamp().map_or(Timestamp::MAX, |created| created.0);
        let running = stores.views.running(since).await?;
        let is_run = |view: &View| view.workers.values().any(|entry| !entry.jobs.is_empty());
        let Some((view, writer)) = running.filter(|(view, _)| is_run(view)) else {
            return Ok(None);
        };
        self.refuse_former_operator(turn.namespace).await?;
        writer.map_or(Ok(()), |writer| refuse_writer(swarm, &writer))?;
        Ok(Some(view))
    }

    /// Refuses the takeover while a Deployment runs the previous operator. Two operators that write
    /// one view would overwrite each other.
    async fn refuse_former_operator(&self, namespace: &str) -> Result<(), StoreError> {
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), namespace);
        let pages = streams::pages(ListParams::default().limit(PAGE), |page| {
            let api = &api;
            async move { bounded("Deployments".to_owned(), api.list(&page)).await }
        });
        let mut pages = std::pin::pin!(pages);
        while let Some(page) = pages.try_next().await? {
            if let Some(former) = page.iter().find(|it| is_former_operator(it)) {
                let reason = format!(
                    "Deployment `{}` runs the previous operator, which writes the same view: \
                     delete it, or scale it to 0; until then the workers keep their jobs",
                    former.name_any()
                );
                return Err(StoreError::Refused { code: "FormerOperatorRuns", reason });
            }
        }
        Ok(())
    }

    /// Publishes an Event about the takeover.
    pub(crate) async fn report_adoption(&self, turn: &Turn<'_>, adoption: Adoption, moves: usize) {
        let Adoption { jobs, workers, doubled, .. } = adoption;
        let note = format!(
            "took over {jobs} jobs as {workers} workers ran them; several workers ran {doubled} of \
             the jobs; {moves} jobs are moved or new"
        );
        self.events.publish(turn.swarm, EventReason::Adopted, note).await;
    }
}

/// Refuses to take over a view that another program wrote after the Swarm was created. A migration
/// stops the previous operator first. Only this check detects a previous operator that runs
/// elsewhere.
fn refuse_writer(swarm: &Swarm, writer: &Writer) -> Result<(), StoreError> {
    let (manager, at, name) = (writer.manager.escape_debug(), writer.at, swarm.name_any());
    let reason = format!(
        "field manager `{manager}` wrote the view at {at}, after this Swarm was created, so the \
         previous operator still runs. Stop it, then delete Swarm `{name}` and apply it again; the \
         workers keep their jobs"
    );
    Err(StoreError::Refused { code: "FormerOperatorRuns", reason })
}

/// Whether a Deployment has pods of the Go operator: its container has the name of ours, and other
/// arguments.
fn is_former_operator(deployment: &Deployment) -> bool {
    let Some(spec) = &deployment.spec else { return false };
    let pods = deployment.status.as_ref().and_then(|status| status.replicas).unwrap_or_default();
    let is_on = spec.replicas != Some(0) || 0 < pods;
    let containers = spec.template.spec.iter().flat_map(|pod| &pod.containers);
    is_on && containers.into_iter().any(is_of_former_operator)
}

fn is_of_former_operator(container: &Container) -> bool {
    let words = container.command.iter().chain(&container.args).flatten();
    predecessor::runs_in(&container.name, words.map(String::as_str))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(replicas: i32, pods: i32, container: &str, args: &[&str]) -> Deployment {
        let container = json!({"name": container, "args": args});
        serde_json::from_value(json!({
            "spec": {
                "replicas": replicas, "selector": {},
                "template": {"spec": {"containers": [container]}},
            },
            "status": {"replicas": pods},
        }))
        .unwrap()
    }

    #[test]
    fn the_previous_operator_is_known_by_its_container_and_arguments() {
        assert!(is_former_operator(&deployment(1, 1, "swarm-controller", &["internal"])));
        assert!(is_former_operator(&deployment(1, 0, "swarm-controller", &[])));
        assert!(is_former_operator(&deployment(0, 1, "swarm-controller", &[])), "it still ends");
        assert!(!is_former_operator(&deployment(0, 0, "swarm-controller", &[])));
        assert!(!is_former_operator(&deployment(
            1,
            1,
            "swarm-controller",
            &["run", "--listen=:1"]
        )));
        assert!(!is_former_operator(&deployment(1, 1, "web", &["internal"])));
    }
}
