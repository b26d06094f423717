//! What all turns share: the client, the caches, and what goes on beside turns. It knows no turn, and
//! nothing that belongs to a single Swarm.

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _, stream};
use kube::runtime::reflector::ObjectRef;
use kube::{Client, Resource as _};
use swarm_replicas::{Bucket, Buckets};
use tokio::sync::watch;

use super::alarms::Alarms;
use super::caches::Caches;
use super::cooldown::Cooldowns;
use super::events::Recorder;
use super::kept_jobs::KeptJobs;
use super::made::MadeObjects;
use super::questions::Questions;
use super::records;
use super::seen::{Ended, Leases, SeenSessions, Views};
use crate::api::Swarm;
use crate::background::{self, Background};
use crate::health::Health;
use crate::metrics::{Metrics, RefusalLabels};
use crate::reading::Reading;
use crate::sharing::Sharing;
use crate::status::RefusedRequest;
use crate::workers::{Worker, Workers};
use crate::workload::Kind;

/// From how many jobs on a turn is a large one.
const LARGE: usize = 20_000;

/// What the operator is told about the cluster that it cannot see there.
#[derive(Clone, Debug)]
pub struct Options {
    /// The image of workers of managed pools.
    pub worker_image: String,
    /// Where large turns go on.
    pub background: Background,
}

/// What all turns share.
pub(super) struct Context {
    /// Never retries on its own, and writes by the permit of a turn only.
    pub(super) client: Client,
    /// Which Swarms are this operator's.
    pub(super) sharing: Sharing,
    /// The image of workers of managed pools.
    pub(super) worker_image: String,
    pub(super) caches: Arc<Caches>,
    pub(super) recorder: Recorder,
    pub(super) metrics: Metrics,
    /// The Leases of sessions.
    pub(super) leases: Leases,
    /// The views of sessions.
    pub(super) views: Views,
    /// The pods that were seen to have ended.
    pub(super) ended: Ended,
    /// What was made for managed pools.
    pub(super) made: MadeObjects,
    /// What wakes pools at rest.
    pub(super) alarms: Alarms,
    /// What plain workers are asked.
    pub(super) questions: Questions,
    /// Where large turns go on.
    pub(super) background: Background,
    /// Where lists of jobs and views of others are read.
    pub(super) reading: Reading,
    /// Which tenants' lists of jobs rest.
    pub(super) cooldowns: Cooldowns,
    /// What the lists of jobs take that are kept.
    pub(super) kept_jobs: KeptJobs,
    /// Where large turns go one by one.
    pub(super) large_turns: Workers,
    /// Which turns are under way.
    pub(super) health: Health,
    /// Whether the caches are filled.
    pub(super) filled: watch::Sender<bool>,
    /// Whether those are that only pools other than StatefulSets need.
    pub(super) filled_wide: watch::Sender<bool>,
}

impl Context {
    pub(super) fn new(
        client: Client,
        options: Options,
        sharing: Sharing,
        caches: Caches,
        metrics: Metrics,
        seen: SeenSessions,
        filled: watch::Sender<bool>,
    ) -> Self {
        let Options { worker_image, background } = options;
        let recorder = Recorder::new(sharing.writing.member.clone());
        let SeenSessions { leases, views, ended } = seen;
        let (caches, filled_wide) = (Arc::new(caches), watch::Sender::new(false));
        Self {
            client,
            sharing,
            worker_image,
            caches,
            recorder,
            metrics,
            leases,
            views,
            ended,
            made: MadeObjects::default(),
            alarms: Alarms::default(),
            questions: Questions::default(),
            reading: Reading::new(background.clone()),
            background,
            cooldowns: Cooldowns::default(),
            kept_jobs: KeptJobs::default(),
            large_turns: Workers::new(1),
            health: Health::default(),
            filled,
            filled_wide,
        }
    }

    /// The Swarms that become this operator's.
    pub(super) fn gained(&self) -> impl Stream<Item = ObjectRef<Swarm>> + Send + use<> {
        let swarms = self.caches.swarms.store.clone();
        self.sharing.share.follow().flat_map(move |gained: Buckets| {
            let is_gained = |swarm: &Arc<Swarm>| {
                let uid = swarm.meta().uid.as_deref();
                uid.is_some_and(|uid| gained.contains(Bucket::of(uid)))
            };
            let found: Vec<_> = swarms.state().into_iter().filter(is_gained).collect();
            stream::iter(found.into_iter().map(|swarm| ObjectRef::from_obj(&*swarm)))
        })
    }

    /// Waits for a worker that carries out a turn of `swarm`; `None` if none begins any more. One of which
    /// `is_taken_over` alone is new waits for others of its tenant, until somebody edits it.
    pub(super) async fn worker(&self, swarm: &Swarm, is_taken_over: bool) -> Option<Worker> {
        let (workers, tenant) = (&self.sharing.workers, self.sharing.tenant(swarm));
        if is_taken_over && !records::is_edited(swarm) {
            workers.one_later(&tenant, swarm.metadata.uid.as_deref().unwrap_or_default()).await
        } else {
            workers.one(&tenant).await
        }
    }

    /// Waits until a turn of `swarm` with so many jobs may go on; it may until the value is dropped, and
    /// most wait for nothing. Large ones go on in the background, one by one, and tenants take turns: the plan
    /// and the ledger of 200,000 jobs take 90 MB and a thread meanwhile.
    pub(super) async fn lane(&self, swarm: &Swarm, jobs: usize) -> Option<Worker> {
        if jobs < LARGE {
            return None;
        }
        background::go_on().await;
        self.large_turns.one(&self.sharing.tenant(swarm)).await
    }

    /// Returns when the caches are filled that all Swarms need.
    pub(super) async fn wait_until_filled(&self) {
        // The sender lives as long as this context, so the wait cannot fail.
        let _ = self.filled.subscribe().wait_for(|filled| *filled).await;
    }

    /// Whether the caches are filled that only `swarm` may need. It waits for them a little: not
    /// longer, since a turn that waits keeps others from theirs.
    pub(super) async fn is_filled_for(&self, swarm: &Swarm) -> bool {
        const WITHIN: Duration = Duration::from_millis(500);
        const AGAIN: Duration = Duration::from_millis(10);
        let wide = async {
            if swarm.pool().0 == Kind::StatefulSet {
                return true;
            }
            self.caches.pools.non_statefulset.ask();
            self.filled_wide.subscribe().wait_for(|filled| *filled).await.is_ok()
        };
        let made = async {
            // A pool that is released may be one that the operator has no rights for.
            if swarm.spec.pool.managed.is_some() && swarm.metadata.deletion_timestamp.is_none() {
                self.made.ask();
                self.made.wait_until_filled().await;
            }
        };
        let sources = async {
            if swarm.spec.job_sources.is_empty() || swarm.metadata.deletion_timestamp.is_some() {
                return;
            }
            self.caches.asked_sources.ask();
            while !self.caches.sources.is_filled() {
                tokio::time::sleep(AGAIN).await;
            }
        };
        let all = async { tokio::join!(wide, made, sources).0 };
        tokio::time::timeout(WITHIN, all).await.unwrap_or(false)
    }

    /// Forgets what runs beside the turns of a Swarm.
    pub(super) fn forget(&self, namespace: &str, name: &str) {
        self.alarms.set(namespace, name, None);
        self.questions.forget(namespace, name);
    }

    /// Counts that the API server refused a request for good.
    pub(super) fn count_refused(&self, request: RefusedRequest) {
        let request = request.as_str();
        self.metrics.refusals.get_or_create(&RefusalLabels { request }).inc();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use serde_json::json;

    use super::super::testing::{World, swarm};
    use super::*;

    #[tokio::test]
    async fn large_turns_go_one_by_one_and_small_ones_wait_for_nobody() {
        let of = |name: &str| swarm(name, &json!({"pool": {"statefulSet": {"name": name}}}));
        let scene = World { swarms: vec![of("a"), of("b")], ..World::default() };
        let scene = scene.with(|_| (500, json!({})));
        let (context, a, b) = (&scene.context, scene.swarm("a"), scene.swarm("b"));
        let large = context.lane(&a, LARGE).await;
        assert!(large.is_some() && context.lane(&b, LARGE).now_or_never().is_none());
        assert!(context.lane(&b, LARGE - 1).now_or_never().is_some_and(|lane| lane.is_none()));
        drop(large);
        assert!(context.lane(&b, LARGE).now_or_never().flatten().is_some());
    }
}
