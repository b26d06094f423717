//! Refreshes workers: nudges them, evicts or deletes their pods, and sets the questions to them.

mod replace;

use replace::Replacing;
pub(crate) use replace::note_started;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use swarm_core::ports::StoreError;
use swarm_core::{Decision, Observed, Presence, Slot, Waiting};
use tokio::time::Instant;

use super::PlainWorkers;
use super::filled_slots::{Live, live, started_with};
use super::nudge::version_of;
use super::refresh_order::{Refresh, RefreshTerms, Worker, refresh};
use super::view::has_only_sessions;
use crate::annotations::{NUDGE_ANNOTATION, STARTED_ANNOTATION};
use crate::pool::slots::Slots;
use crate::pool::workload::Workload;
use crate::requests::{CHANGED_RETRY, REFUSED_RETRY, bounded};
use crate::status::{KnownBy, Refreshed, RefusedRequest};
use crate::turn::Turn;
use crate::version;

/// The number of pods that are nudged at a time.
const AT_A_TIME: usize = 16;

/// State of this process about the pods of one pool.
#[derive(Default)]
pub(crate) struct KnownPods {
    /// State of each pod by its UID.
    pub(crate) by_uid: BTreeMap<String, KnownPod>,
    /// UIDs of the replaced pods by name, with the publication that replaced them. An entry is kept
    /// while its publication is the newest one.
    replaced: BTreeMap<String, (String, u64)>,
    /// The time and the reason of a replacement that failed.
    blocked: Option<(Instant, String)>,
}

/// Inputs of a refresh.
pub(crate) struct Refreshing<'a> {
    pub(crate) pool: &'a Workload,
    pub(crate) slots: &'a Slots,
    pub(crate) observed: &'a Observed,
    /// The published decision.
    pub(crate) decision: &'a Decision,
    /// Time since the view changed.
    pub(crate) since_change: Duration,
    /// The time of the latest repair of the view.
    pub(crate) repaired_at: Option<Instant>,
}

/// State of this process about one pod.
#[derive(Default)]
pub(crate) struct KnownPod {
    /// The latest nudge, and its time.
    nudge: Option<(String, Instant)>,
    /// The latest publication that gave jobs of the pod to other workers, and the time of the pod's
    /// first nudge for it.
    handoff_nudge: Option<(u64, Instant)>,
    /// The newest publication that the pod is known to have.
    has: u64,
    /// The publication with which the pod started, until its annotation records that.
    started: Option<u64>,
    /// The time and the reason of the latest refused annotation.
    refused: Option<(Instant, String)>,
    /// Whether the pod was evicted or deleted, until the cache shows that.
    pub(crate) is_replaced: bool,
    /// The version of the pod after this process's latest write, which the cache may not show yet;
    /// 0 if there was no write.
    written: u64,
}

impl KnownPods {
    /// The newest known version of `pod`, as the precondition of a write. The write fails if
    /// another client, perhaps another replica, has written the pod since.
    pub(crate) fn version_of(&self, pod: &Pod) -> Option<String> {
        let known = self.by_uid.get(pod.metadata.uid.as_deref()?);
        let ours = known.map(|known| known.written).filter(|ours| version::of(pod) < *ours);
        ours.map(|ours| ours.to_string()).or_else(|| pod.resource_version())
    }

    /// Records a write of pod `uid`, and the `version` after it; 0 if the pod had changed before.
    pub(crate) fn wrote(&mut self, uid: &str, version: u64) {
        match self.by_uid.get_mut(uid) {
            Some(known) => known.written = version,
            None if version == 0 => {}
            None => {
                let known = KnownPod { written: version, ..KnownPod::default() };
                self.by_uid.insert(uid.to_owned(), known);
            }
        }
    }
}

impl PlainWorkers {
    /// Brings the workers of a pool closer to their publication. Returns the workers that do not
    /// have it yet.
    pub(crate) async fn refresh(
        &self,
        turn: &mut Turn<'_>,
        refreshing: &Refreshing<'_>,
        pods: &mut KnownPods,
    ) -> Result<Refreshed, StoreError> {
        let Refreshing { pool, decision, since_change, .. } = *refreshing;
        let terms = RefreshTerms::of(turn.swarm);
        let live = live(refreshing.slots, &decision.ledger);
        let alive: BTreeSet<&str> = live.iter().map(|it| it.uid.as_str()).collect();
        pods.by_uid.retain(|uid, _| alive.contains(uid.as_str()));
        for known in pods.by_uid.values_mut().filter(|known| known.nudge.is_none()) {
            // Nudges are repeated, and a refused annotation may be allowed now.
            known.refused.take_if(|(at, _)| REFUSED_RETRY <= at.elapsed());
        }
        let endpoint = turn.swarm.spec.worker.as_ref().and_then(|it| it.version_endpoint.as_ref());
        let answers = if let Some(endpoint) = endpoint {
            let key = (turn.namespace.to_owned(), turn.name.to_owned());
            self.version_polls.set(&key, endpoint, &live, &decision.ledger)
        } else {
            self.version_polls.forget(turn.namespace, turn.name);
            BTreeMap::new()
        };
        let workers = workers(&live, refreshing, &answers, pods, Instant::now());
        let unavailable = unavailable(refreshing, &live, pods);
        let mut plan = refresh(&terms, &workers, unavailable, since_change);
        if decision.waiting == Some(Waiting::Paused) {
            plan.replace.clear();
        }
        let has_nudged = self.nudge(pool, &live, &plan, pods).await?;
        let has_marked = self.mark_started(pool, &live, pods).await?;
        let changed_in = (!has_nudged || !has_marked).then_some(CHANGED_RETRY);
        let replacing =
            Replacing { mode: terms.mode, plan: &plan, version: decision.ledger.version };
        let retry_in = self.replace(pool, &live, replacing, pods).await?;
        let after = self::workers(&live, refreshing, &answers, pods, Instant::now());
        // A second plan shows what remains after these attempts.
        let next = refresh(&terms, &after, unavailable, since_change);
        let refused = pods.by_uid.values().filter_map(|known| known.refused.as_ref());
        let allowed_in = refused.clone().map(|(at, _)| REFUSED_RETRY.saturating_sub(at.elapsed()));
        let allowed_in = allowed_in.min();
        for (_, reason) in refused {
            turn.refusals.add(RefusedRequest::Annotation, reason.clone());
        }
        let name = |slot| decision.ledger.slots.get(slot).map(|it| it.worker.clone());
        let known_by = if has_only_sessions(&decision.ledger) {
            KnownBy::Sessions
        } else if terms.knows() {
            KnownBy::Workers
        } else {
            KnownBy::Nobody
        };
        let mut refreshed = Refreshed {
            stale: next.stale.iter().filter_map(name).collect(),
            // Sessions acknowledge their jobs.
            known_by,
            replaces: terms.replaces(),
            is_full: plan.is_full,
            blocked: pods.blocked.as_ref().map(|(_, why)| why.clone()),
            since_change,
            requeue_after: [retry_in, next.requeue_after, allowed_in, changed_in]
                .into_iter()
                .flatten()
                .min(),
        };
        if endpoint.is_some() {
            refreshed.requeue_in_time();
        }
        Ok(refreshed)
    }

    /// Writes the annotations of `plan`, in its order. Returns whether no pod has changed
    /// meanwhile.
    async fn nudge(
        &self,
        pool: &Workload,
        live: &[Live],
        plan: &Refresh,
        pods: &mut KnownPods,
    ) -> Result<bool, StoreError> {
        let mut due = Vec::new();
        for (slot, annotation) in &plan.nudge {
            let named = live.iter().find(|it| it.slot == *slot);
            due.extend(named.map(|it| Note::on(it, pods, NUDGE_ANNOTATION, annotation.clone())));
        }
        for it in live {
            // A refused annotation may be allowed now.
            let known = pods.by_uid.get(&it.uid);
            let is_due = known.and_then(|known| known.refused.as_ref());
            let is_due = is_due.is_some_and(|(at, _)| REFUSED_RETRY <= at.elapsed());
            let last = known.and_then(|known| known.nudge.as_ref()).filter(|_| is_due);
            let last = last.filter(|_| plan.nudge.iter().all(|(slot, _)| *slot != it.slot));
            due.extend(last.map(|(text, _)| Note::on(it, pods, NUDGE_ANNOTATION, text.clone())));
        }
        let (done, has_done_all) = self.annotate(pool, due, pods).await?;
        for (uid, annotation) in done {
            self.metrics.nudges.inc();
            pods.by_uid.entry(uid).or_default().nudge = Some((annotation, Instant::now()));
        }
        Ok(has_done_all)
    }

    /// Writes the publication with which pods started into annotations, for later processes.
    /// Returns whether no pod has changed meanwhile.
    async fn mark_started(
        &self,
        pool: &Workload,
        live: &[Live],
        pods: &mut KnownPods,
    ) -> Result<bool, StoreError> {
        let mut due = Vec::new();
        for it in live {
            let known = pods.by_uid.get(&it.uid);
            let started =
                known.filter(|known| known.refused.is_none()).and_then(|known| known.started);
            due.extend(started.map(|of| Note::on(it, pods, STARTED_ANNOTATION, of.to_string())));
        }
        let (done, has_done_all) = self.annotate(pool, due, pods).await?;
        for (uid, _) in done {
            let known = pods.by_uid.entry(uid).or_default();
            known.started.take_if(|_| known.refused.is_none());
        }
        Ok(has_done_all)
    }

    /// Writes an annotation into each of these pods. Returns the completed annotations by UID, and
    /// whether all are completed. The other pods have changed or no longer exist, which the watch
    /// shows.
    async fn annotate(
        &self,
        pool: &Workload,
        due: Vec<Note>,
        pods: &mut KnownPods,
    ) -> Result<(Vec<(String, String)>, bool), StoreError> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pool.namespace);
        let patches = due.into_iter().map(|note| {
            let api = api.clone();
            async move { (note.write(&api).await, note.uid, note.value) }
        });
        let mut patches = futures::stream::iter(patches).buffered(AT_A_TIME);
        let (mut done, mut has_done_all) = (Vec::new(), true);
        while let Some((result, uid, value)) = patches.next().await {
            match result {
                Ok(version) => {
                    pods.wrote(&uid, version);
                    pods.by_uid.entry(uid.clone()).or_default().refused = None;
                }
                Err(StoreError::Conflict { .. }) => {
                    pods.wrote(&uid, 0);
                    has_done_all = false;
                    continue;
                }
                // The view arrives without the annotation too, only later.
                Err(StoreError::Refused { reason, .. }) => {
                    tracing::warn!(reason, "a pod was not annotated");
                    self.metrics.count_refused(RefusedRequest::Annotation);
                    pods.by_uid.entry(uid.clone()).or_default().refused =
                        Some((Instant::now(), reason));
                }
                Err(error) => return Err(error),
            }
            done.push((uid, value));
        }
        Ok((done, has_done_all))
    }
}

/// An annotation to be written.
struct Note {
    uid: String,
    version: Option<String>,
    pod: String,
    key: &'static str,
    value: String,
}

impl Note {
    fn on(it: &Live, pods: &KnownPods, key: &'static str, value: String) -> Self {
        let version = pods.version_of(&it.pod);
        Self { uid: it.uid.clone(), version, pod: it.pod.name_any(), key, value }
    }

    /// Writes the annotation, and returns the version of the pod after it.
    async fn write(&self, api: &Api<Pod>) -> Result<u64, StoreError> {
        let Self { uid, version, pod, key, value } = self;
        // Preconditions: the write must not reach another pod of the same name. It must not
        // overwrite newer annotations of another replica, either.
        let metadata =
            json!({"uid": uid, "resourceVersion": version, "annotations": {*key: value}});
        let (patch, params) = (Patch::Merge(json!({"metadata": metadata})), PatchParams::default());
        let patched = api.patch_metadata(pod, &params, &patch);
        bounded(format!("pod `{pod}`"), patched).await.map(|pod| version::of(&pod))
    }
}

/// The known state of each worker at `now`.
fn workers(
    live: &[Live],
    refreshing: &Refreshing<'_>,
    answers: &BTreeMap<String, u64>,
    pods: &mut KnownPods,
    now: Instant,
) -> Vec<Worker> {
    let repaired = refreshing.repaired_at;
    let ledger = &refreshing.decision.ledger;
    let worker = |it: &Live| {
        let record = ledger.slots.get(&it.slot)?;
        let known = pods.by_uid.entry(it.uid.clone()).or_default();
        let annotation = |key| it.pod.annotations().get(key);
        // An annotation of an earlier process counts as infinitely old.
        let before = || Some((annotation(NUDGE_ANNOTATION)?.clone(), Duration::MAX));
        let nudge = known.nudge.as_ref();
        let nudge = nudge.map(|(text, at)| (text.clone(), now.saturating_duration_since(*at)));
        let nudge = nudge.or_else(before);
        let is_repaired = repaired
            .is_some_and(|repaired| known.nudge.as_ref().is_none_or(|(_, made)| *made < repaired));
        let nudged_version = nudge.as_ref().and_then(|(text, _)| version_of(text)).unwrap_or(0);
        let is_nudged_now = known.nudge.is_some()
            && 0 < record.last_handoff_version
            && record.last_handoff_version <= nudged_version;
        if is_nudged_now
            && known.handoff_nudge.is_none_or(|(of, _)| of < record.last_handoff_version)
        {
            known.handoff_nudge = Some((record.last_handoff_version, now));
        }
        let handoff_nudge =
            known.handoff_nudge.filter(|(of, _)| *of == record.last_handoff_version);
        let answered = answers.get(&it.uid).copied().unwrap_or_default();
        let is_leaving = known.is_replaced || it.pod.metadata.deletion_timestamp.is_some();
        Some(Worker {
            slot: it.slot,
            version: record.version,
            last_handoff_version: record.last_handoff_version,
            has: [known.has, started_with(&it.pod, ledger.version), answered].into_iter().max()?,
            nudge,
            is_repaired,
            handoff_nudged_for: handoff_nudge.map(|(_, at)| now.saturating_duration_since(at)),
            is_ready: !is_leaving && crate::pool::observe::is_ready(&it.pod),
            is_leaving,
        })
    };
    live.iter().filter_map(worker).collect()
}

/// Number of slots of the pool without a ready worker.
fn unavailable(refreshing: &Refreshing<'_>, live: &[Live], pods: &KnownPods) -> usize {
    let Refreshing { slots, observed, .. } = refreshing;
    let is_going = |it: &&Live| pods.by_uid.get(&it.uid).is_some_and(|known| known.is_replaced);
    let going: BTreeSet<Slot> = live.iter().filter(is_going).map(|it| it.slot).collect();
    let is_ready = |slot: &&Slot| {
        let worker = observed.workers.get(slot);
        let is_ready = worker.is_some_and(|seen| seen.presence == Presence::Ready);
        is_ready && !going.contains(slot)
    };
    observed.workers_desired.saturating_sub(slots.wanted.iter().filter(is_ready).count())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::apps::v1::StatefulSet;

    use super::*;
    use crate::testing::{World, conflict};

    fn pod(version: &str) -> Live {
        let metadata = json!({"name": "w-0", "uid": "u", "resourceVersion": version});
        let pod = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        Live { slot: Slot(0), uid: "u".into(), pod: Arc::new(pod) }
    }

    #[tokio::test]
    async fn a_pod_is_annotated_as_it_is_known_and_looked_at_again_if_it_has_changed() {
        let scene = World::default().with(|asked| {
            let at = asked.body["metadata"]["resourceVersion"].as_str();
            let written = json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                "metadata": {"name": "w-0", "uid": "u", "resourceVersion": "9"},
            });
            if at == Some("7") { (200, written) } else { conflict() }
        });
        let pool = Workload::from(&StatefulSet::default());
        let mut pods = KnownPods::default();
        let mut plan = Refresh { nudge: vec![(Slot(0), "3.1".into())], ..Refresh::default() };
        let mut versions = Vec::new();
        for (seen, attempt, is_as_seen) in
            [("5", "3.1", false), ("7", "3.1", true), ("7", "3.2", false)]
        {
            plan.nudge[0].1 = attempt.into();
            let nudged = scene.services.plain.nudge(&pool, &[pod(seen)], &plan, &mut pods).await;
            assert_eq!(nudged.unwrap(), is_as_seen, "{seen}");
            let asked = scene.asked();
            versions.extend(asked.iter().map(|it| it.body["metadata"]["resourceVersion"].clone()));
        }
        // In the last write the cache was older than the process's own write.
        assert_eq!(versions, ["5", "7", "9"]);
        assert_eq!(pods.by_uid["u"].nudge.as_ref().unwrap().0, "3.1", "that one was made");
        assert_eq!(scene.services.metrics.nudges.get(), 1);
    }
}
