//! Times small writes that no operator takes part in, and the time until a watch shows the last
//! one. The watch covers all ConfigMaps, as the watch of each replica of the operator does. So the
//! times show which part of a delay comes from the API server.

use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::WITHIN;
use crate::scenario::Context;

/// The number of small writes that are timed together, one after the other. A turn has three
/// writes: the ledger, the view and the status.
pub(super) const WRITES: usize = 3;
/// The ConfigMap that is written, in the namespace of each tenant.
const NAME: &str = "probe";

pub(super) struct Probe {
    newest: watch::Receiver<u64>,
    task: JoinHandle<()>,
}

impl Probe {
    pub(super) fn new(client: Client) -> Self {
        let (publish, newest) = watch::channel(0);
        let task = tokio::spawn(async move {
            let mut events = pin!(watcher(
                Api::<PartialObjectMeta<ConfigMap>>::all(client),
                watcher::Config::default()
            ));
            while let Some(event) = events.next().await {
                // The stream itself restarts a watch that failed.
                let Ok(Event::Apply(map) | Event::InitApply(map)) = event else { continue };
                if map.name_any() == NAME {
                    publish.send_replace(version(&map).unwrap_or_default());
                }
            }
        });
        Self { newest, task }
    }

    /// Does the small writes. Returns the time that they took, and the time after them until the
    /// watch showed the last one.
    pub(super) async fn take(
        &mut self,
        tenant: &Context,
        n: usize,
    ) -> Result<(Duration, Duration)> {
        let (maps, asked): (Api<ConfigMap>, _) = (tenant.api(), Instant::now());
        let mut written = 0;
        for write in 0..WRITES {
            let data = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME},
                "data": {"write": format!("{n}-{write}-{}", asked.elapsed().as_nanos())},
            });
            let params = PatchParams::apply("figures");
            let map = maps.patch(NAME, &params, &Patch::Apply(data)).await?;
            written = version(&map).context("a version")?;
        }
        let (took, done) = (asked.elapsed(), Instant::now());
        let shown = self.newest.wait_for(|newest| written <= *newest);
        timeout(WITHIN, shown).await.context("the watch does not show a write")??;
        Ok((took, done.elapsed()))
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn version(map: &impl ResourceExt) -> Option<u64> {
    map.resource_version()?.parse().ok()
}
