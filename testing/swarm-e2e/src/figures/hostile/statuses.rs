//! The statuses of the tenants' Swarms, from a watch of each namespace. Polling would take the API
//! server's time away from the measured turn.

use std::collections::BTreeMap;
use std::pin::pin;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use kube::ResourceExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use swarm_client::api::{Swarm, SwarmStatus};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::WITHIN;
use crate::scenario::Context;

/// The newest status of each Swarm, by its name, which no two tenants share.
pub(super) struct Statuses {
    newest: watch::Receiver<BTreeMap<String, SwarmStatus>>,
    _watches: JoinSet<()>,
}

impl Statuses {
    pub(super) fn new(tenants: &[Context]) -> Self {
        let ((publish, newest), mut watches) = (watch::channel(BTreeMap::new()), JoinSet::new());
        for tenant in tenants {
            let (swarms, publish) = (tenant.api::<Swarm>(), publish.clone());
            watches.spawn(async move {
                let mut events = pin!(watcher(swarms, watcher::Config::default()));
                while let Some(event) = events.next().await {
                    // The stream itself restarts a watch that failed.
                    let Ok(Event::Apply(swarm) | Event::InitApply(swarm)) = event else { continue };
                    let (name, status) = (swarm.name_any(), swarm.status.unwrap_or_default());
                    publish.send_modify(|all| drop(all.insert(name, status)));
                }
            });
        }
        Self { newest, _watches: watches }
    }

    /// Waits for a status, and returns the number of jobs in it.
    pub(super) async fn until(
        &mut self,
        name: &str,
        is_so: impl Fn(&SwarmStatus) -> bool,
    ) -> Result<i32> {
        let found = self.newest.wait_for(|all| all.get(name).is_some_and(&is_so));
        let all = timeout(WITHIN, found).await.with_context(|| format!("{name} is not done"))??;
        all.get(name).map(|status| status.jobs).context("a status")
    }
}
