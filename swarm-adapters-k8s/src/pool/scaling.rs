//! Scales the pool of a Swarm that decides its size, and notices clients that scale against it.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use swarm_client::api::Swarm;
use swarm_core::ports::StoreError;
use tokio::time::Instant;

use super::Workloads;
use super::workload::{Kind, Workload};
use crate::requests::bounded;
use crate::status::{EventReason, Reason, Verdict};
use crate::turn::Turn;
use crate::version;

/// Number of reverted take-overs, and the time within which that many are a contest.
const CONTEST: (usize, Duration) = (3, Duration::from_mins(5));

/// The number of pods of this process's latest scaling, and the workload's version after it.
#[derive(Clone, Copy, Debug)]
struct Scaled {
    replicas: u32,
    version: u64,
}

/// The field of a Swarm that decides the size of its pool.
enum Decider {
    Replicas,
    Autoscale,
}

fn decider(swarm: &Swarm) -> Decider {
    if swarm.spec.autoscale.is_some() { Decider::Autoscale } else { Decider::Replicas }
}

impl fmt::Display for Decider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Replicas => "spec.replicas",
            Self::Autoscale => "spec.autoscale",
        })
    }
}

/// State of this process about the size of a pool.
#[derive(Debug, Default)]
pub(crate) struct Scaling {
    /// The latest scaling by this process.
    scaled: Option<Scaled>,
    /// UID and replicas of the workload at the previous look.
    seen: Option<(String, u32)>,
    /// The size that another client gave the pool, until the operator reverts it.
    taken_over: Option<u32>,
    /// The times of the latest reverts.
    takeovers: Vec<Instant>,
}

impl Scaling {
    /// The pool after this process's latest scaling, which the cache may not show yet.
    pub(crate) fn as_scaled<'a>(&self, pool: &'a Workload) -> Cow<'a, Workload> {
        let seen = version::number(pool.resource_version.as_deref());
        match self.scaled.filter(|scaled| seen < scaled.version) {
            Some(Scaled { replicas, .. }) => Cow::Owned(Workload { replicas, ..pool.clone() }),
            None => Cow::Borrowed(pool),
        }
    }

    /// Records that another client scaled the pool of a Swarm that decides its size. A recreated
    /// workload has its initial replicas, so it does not count.
    pub(crate) fn note_takeover(&mut self, wanted: Option<u32>, pool: &Workload) {
        let now = pool.replicas;
        let Some(wanted) = wanted else {
            self.seen = None;
            self.takeovers.clear();
            return;
        };
        self.takeovers.retain(|at| at.elapsed() < CONTEST.1);
        let before = self.seen.replace((pool.uid.clone(), now));
        let before = before.filter(|(uid, _)| *uid == pool.uid);
        if before.is_some_and(|(_, before)| before != now) && now != wanted {
            self.taken_over = Some(now);
        }
    }

    /// Forgets states from before a rollback of the store. Take-overs by other clients are kept.
    pub(crate) fn forget_undone(&mut self) {
        (self.scaled, self.seen, self.taken_over) = (None, None, None);
    }

    /// The verdict on another client that keeps scaling the pool of `swarm`, for example an
    /// autoscaler that points to the workload.
    pub(crate) fn contest(&self, swarm: &Swarm, pool: &Workload) -> Option<Verdict> {
        self.contest_ends_in()?;
        let (count, name, kind, pool) =
            (self.takeovers.len(), swarm.name_any(), pool.kind, &pool.name);
        let minutes = CONTEST.1.as_secs() / 60;
        let remedy = match decider(swarm) {
            field @ Decider::Replicas => format!(
                "let the autoscaler point to Swarm `{name}` instead of the {kind}, or take \
                 {field} out of the Swarm"
            ),
            field @ Decider::Autoscale => {
                format!("remove the other autoscaler, or take {field} out of the Swarm")
            }
        };
        let message = format!(
            "another client set the replicas of {kind} `{pool}` {count} times within {minutes} \
             minutes, and the operator reset them each time, since {} of the Swarm decides: \
             {remedy}",
            decider(swarm)
        );
        Some(Verdict { reason: Reason::ScaleContested, message })
    }

    /// Time until the contest ends without further scaling; `None` if there is none.
    fn contest_ends_in(&self) -> Option<Duration> {
        let (count, within) = CONTEST;
        let first = self.takeovers.len().checked_sub(count)?;
        within.checked_sub(self.takeovers[first].elapsed()).filter(|left| !left.is_zero())
    }
}

impl Workloads {
    /// Scales the pool to this number of pods, unless the pool has changed since it was read.
    pub(crate) async fn scale(
        &self,
        turn: &Turn<'_>,
        pool: &Workload,
        replicas: u32,
        scaling: &mut Scaling,
    ) -> Result<(), StoreError> {
        let Workload { kind, namespace, name, replicas: before, .. } = pool;
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": pool.resource_version},
            "spec": {"replicas": replicas},
        }));
        let params = PatchParams::default();
        let what = format!("scale of {kind} `{name}`");
        let client = self.client.clone();
        let scaled = match kind {
            Kind::StatefulSet => {
                let api: Api<StatefulSet> = Api::namespaced(client, namespace);
                bounded(what, api.patch_scale(name, &params, &patch)).await?
            }
            Kind::Deployment => {
                let api: Api<Deployment> = Api::namespaced(client, namespace);
                bounded(what, api.patch_scale(name, &params, &patch)).await?
            }
            Kind::Pods => return Ok(()),
        };
        tracing::info!(namespace, pool = name, before, replicas, "pool scaled");
        scaling.scaled = Some(Scaled { replicas, version: version::of(&scaled) });
        scaling.seen = Some((pool.uid.clone(), replicas));
        if let Some(found) = scaling.taken_over.take() {
            scaling.takeovers.push(Instant::now());
            let (swarm_name, wanted) = (turn.name, replicas);
            let remedy = match decider(turn.swarm) {
                field @ Decider::Replicas => format!(
                    "use `kubectl scale swarm {swarm_name}`, or take {field} out of the Swarm"
                ),
                field @ Decider::Autoscale => {
                    format!("change its bounds, or take {field} out of the Swarm")
                }
            };
            let note = format!(
                "another client set the replicas of {kind} `{name}` to {found}; they are {wanted} \
                 again, since Swarm `{swarm_name}` decides: {remedy}"
            );
            self.events.publish(turn.swarm, EventReason::ScaleTakenOver, note).await;
        }
        Ok(())
    }
}
