//! The events of watches, each with the moment it arrived.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::runtime::watcher;
use serde::de::DeserializeOwned;
use swarm_client::api::SwarmLedger;
use swarm_client::session;
use tokio::task::JoinHandle;

use crate::run_log::Moment;
use crate::scenario::Context;
use crate::until::until_within;

/// One event.
#[derive(Clone, Debug)]
pub(super) enum Observed {
    Ledger(Box<SwarmLedger>),
    /// A session acknowledges a revision; 0 when it has none yet.
    Lease {
        session: String,
        revision: u64,
    },
    /// A container of a pod has ended, with this many restarts.
    Ended {
        pod: String,
    },
}

type Events = Arc<Mutex<Vec<(Moment, Observed)>>>;

/// Watches of one namespace; they end with this value.
pub(super) struct Watches {
    events: Events,
    tasks: Vec<JoinHandle<()>>,
}

impl Watches {
    pub(super) fn start(context: &Context) -> Self {
        let events = Events::default();
        let ledger = |it: SwarmLedger| Some(Observed::Ledger(Box::new(it)));
        let lease = |it: Lease| {
            let seen = session::seen(&it).ok()?;
            let revision = seen.lease.ack.revision;
            Some(Observed::Lease { session: it.name_any(), revision })
        };
        let pod = |it: Pod| {
            let statuses = it.status.clone()?.container_statuses?;
            let has_ended = |status: &k8s_openapi::api::core::v1::ContainerStatus| {
                status.state.as_ref().is_some_and(|state| state.terminated.is_some())
                    || 0 < status.restart_count
            };
            statuses.iter().any(has_ended).then(|| Observed::Ended { pod: it.name_any() })
        };
        let tasks = vec![
            follow(context, &events, ledger),
            follow(context, &events, lease),
            follow(context, &events, pod),
        ];
        Self { events, tasks }
    }

    /// The first event since `mark` for which `find` returns a value, with the time of its arrival.
    pub(super) async fn find<T>(
        &self,
        what: &str,
        mark: Moment,
        within: Duration,
        find: impl Fn(&Observed) -> Option<T>,
    ) -> Result<(Moment, T)> {
        until_within(what, within, || async { Ok(self.found(mark, &find)) })
            .await
            .context("no event")
    }

    fn found<T>(&self, mark: Moment, find: impl Fn(&Observed) -> Option<T>) -> Option<(Moment, T)> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let since = events.iter().filter(|(at, _)| mark <= *at);
        since.clone().find_map(|(at, event)| Some((*at, find(event)?)))
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn follow<K>(
    context: &Context,
    events: &Events,
    to_event: impl Fn(K) -> Option<Observed> + Send + 'static,
) -> JoinHandle<()>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let (api, events) = (context.api::<K>(), Arc::clone(events));
    tokio::spawn(async move {
        let mut stream = watcher(api, watcher::Config::default()).boxed();
        while let Some(event) = stream.next().await {
            let at = Moment::now();
            // The stream itself restarts a watch that failed.
            let Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) = event
            else {
                continue;
            };
            let event = to_event(object).map(|event| (at, event));
            events.lock().unwrap_or_else(PoisonError::into_inner).extend(event);
        }
    })
}
