//! Observation of slots and their pods, as the facts about a pool that the overseer judges.
//!
//! Times are ages on this process's monotonic clock, since the process first saw a state. So a
//! restart of the operator makes it wait longer, never shorter.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use swarm_core::overseer::{PoolFacts, WorkerFacts};
use swarm_core::{Presence, Slot};
use tokio::time::Instant;

use super::slots::Slots;

/// The times at which this process first saw the current states of one pool.
#[derive(Debug)]
pub struct FirstSeen {
    watched: Instant,
    away: BTreeMap<Slot, Instant>,
    not_ready: BTreeMap<Slot, Instant>,
    leaving: BTreeMap<Slot, Instant>,
}

impl FirstSeen {
    /// No states seen yet; watching starts `now`.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        let (away, not_ready, leaving) = Default::default();
        Self { watched: now, away, not_ready, leaving }
    }

    /// The facts about a pool at `now`.
    ///
    /// `is_lost` says whether a pod is on an unreachable node. Such a pod counts as away.
    pub fn observe(
        &mut self,
        slots: &Slots,
        is_lost: impl Fn(&Pod) -> bool,
        now: Instant,
    ) -> PoolFacts {
        let Slots { wanted, pods, .. } = slots;
        let all: BTreeSet<_> = wanted.iter().chain(pods.keys()).copied().collect();
        let mut workers = BTreeMap::new();
        for slot in all {
            let pod = pods.get(&slot).map(|pod| &**pod);
            let ending = pod.and_then(|pod| ending(slots, pod));
            let is_lost = pod.is_some_and(|pod| is_lost(pod) || ending.is_some());
            let state = SlotState::of(pod, wanted.contains(&slot), is_lost);
            let away = since(&mut self.away, slot, state == SlotState::Away, now);
            // A pod that is recreated repeatedly is not ready for the whole time.
            let is_unready = matches!(state, SlotState::Away | SlotState::NotReady);
            let not_ready = since(&mut self.not_ready, slot, is_unready, now);
            let leaving = since(&mut self.leaving, slot, state == SlotState::Leaving, now);
            let presence = match state {
                SlotState::Ready => Presence::Ready,
                SlotState::NotReady => Presence::NotReady(not_ready),
                SlotState::Away => match ending {
                    Some(grace) => Presence::Ending { age: away, grace },
                    None => Presence::Away(away),
                },
                SlotState::Leaving => Presence::Leaving(leaving),
                SlotState::Nothing => continue,
            };
            let name = slots.name(slot);
            let pod = pod.filter(|pod| !is_terminal(pod)).and_then(ResourceExt::uid);
            let is_wanted = wanted.contains(&slot);
            // The pod stays, so the jobs of a worker whose Lease was revoked do not wait for it.
            let facts = WorkerFacts { name, presence, pod, is_wanted, is_replaced: false };
            workers.insert(slot, facts);
        }
        self.away.retain(|slot, _| workers.contains_key(slot));
        self.not_ready.retain(|slot, _| workers.contains_key(slot));
        self.leaving.retain(|slot, _| workers.contains_key(slot));
        PoolFacts {
            workers_desired: wanted.len(),
            watched_for: now.saturating_duration_since(self.watched),
            ..PoolFacts::new(workers, unix_time_us())
        }
    }
}

/// The time that a pod has for its end, from the start of its deletion. `None` if the pod is not being deleted, or no other pod can take its slot before it is
/// removed.
fn ending(slots: &Slots, pod: &Pod) -> Option<Duration> {
    let _asked = pod.metadata.deletion_timestamp.as_ref().filter(|_| slots.are_bound())?;
    let grace = pod.metadata.deletion_grace_period_seconds.and_then(|it| u64::try_from(it).ok());
    Some(Duration::from_secs(grace.unwrap_or_default()))
}

/// The state of a slot in one observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotState {
    Ready,
    NotReady,
    Away,
    Leaving,
    Nothing,
}

impl SlotState {
    fn of(pod: Option<&Pod>, wanted: bool, is_lost: bool) -> Self {
        let alive = pod.filter(|pod| !is_terminal(pod));
        match (alive, wanted) {
            (None, true) => Self::Away,
            (None, false) => Self::Nothing,
            // No kubelet reports the pod's end. It may come back unchanged.
            (Some(_), true) if is_lost => Self::Away,
            // A pod that is being deleted still runs its jobs, whether its slot is wanted or not.
            (Some(pod), _) if pod.metadata.deletion_timestamp.is_some() => Self::Leaving,
            (Some(_), false) => Self::Leaving,
            (Some(pod), true) if is_ready(pod) => Self::Ready,
            (Some(_), true) => Self::NotReady,
        }
    }
}

/// The time for which `slot` has been in a state. Keeps the time at which the state was first seen.
fn since(
    first_seen: &mut BTreeMap<Slot, Instant>,
    slot: Slot,
    is_so: bool,
    now: Instant,
) -> Duration {
    if !is_so {
        first_seen.remove(&slot);
        return Duration::ZERO;
    }
    now.saturating_duration_since(*first_seen.entry(slot).or_insert(now))
}

pub(crate) fn is_terminal(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The wall clock in microseconds since 1970.
pub(crate) fn unix_time_us() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_microsecond()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::workload::Workload;
    use k8s_openapi::api::apps::v1::StatefulSet;
    use serde_json::json;
    use std::sync::Arc;

    fn pool(replicas: i32, start: i32) -> Workload {
        let spec = json!({
            "serviceName": "", "selector": {}, "template": {},
            "replicas": replicas, "ordinals": {"start": start},
        });
        let set = json!({"metadata": {"name": "w", "uid": "set"}, "spec": spec});
        Workload::from(&serde_json::from_value::<StatefulSet>(set).unwrap())
    }

    fn slots(pool: &Workload, pods: &[Pod]) -> Slots {
        Slots::by_ordinal(pool, pods.iter().cloned().map(Arc::new))
    }

    fn pod(ordinal: u32, ready: bool) -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "name": format!("w-{ordinal}"),
                "uid": format!("uid-{ordinal}"),
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "w", "uid": "set", "controller": true}
                ],
            },
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": if ready { "True" } else { "False" }}
            ]},
        }))
        .unwrap()
    }

    fn nobody(_: &Pod) -> bool {
        false
    }

    fn presences(observed: &PoolFacts) -> Vec<(u32, Presence)> {
        observed.workers.iter().map(|(slot, seen)| (slot.0, seen.presence)).collect()
    }

    #[test]
    fn slots_are_ordinals_from_the_start_that_the_statefulset_names() {
        let now = Instant::now();
        let pods = [pod(5, true), pod(6, false)];
        let observed = FirstSeen::new(now).observe(&slots(&pool(3, 5), &pods), nobody, now);
        let away = Presence::Away(Duration::ZERO);
        let expected = [(5, Presence::Ready), (6, Presence::NotReady(Duration::ZERO)), (7, away)];
        assert_eq!((presences(&observed), observed.workers_desired), (expected.into(), 3));
    }

    #[test]
    fn absence_is_aged_from_when_it_was_first_seen_and_forgotten_on_return() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut first_seen = FirstSeen::new(start);
        first_seen.observe(&slots(&pool(1, 0), &[]), nobody, start);
        let later = first_seen.observe(&slots(&pool(1, 0), &[]), nobody, start + second);
        assert_eq!(presences(&later), [(0, Presence::Away(second))]);
        first_seen.observe(&slots(&pool(1, 0), &[pod(0, true)]), nobody, start + 2 * second);
        let again = first_seen.observe(&slots(&pool(1, 0), &[]), nobody, start + 3 * second);
        assert_eq!(presences(&again), [(0, Presence::Away(Duration::ZERO))]);
    }

    #[test]
    fn a_worker_is_not_ready_since_it_was_ready_last_whatever_became_of_its_pod() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut first_seen = FirstSeen::new(start);
        let mut seen = |pods: &[Pod], now| {
            presences(&first_seen.observe(&slots(&pool(1, 0), pods), nobody, now))[0].1
        };
        assert_eq!(seen(&[pod(0, true)], start), Presence::Ready);
        assert_eq!(seen(&[pod(0, false)], start), Presence::NotReady(Duration::ZERO));
        assert_eq!(seen(&[], start + second), Presence::Away(Duration::ZERO));
        assert_eq!(seen(&[pod(0, false)], start + 2 * second), Presence::NotReady(2 * second));
        assert_eq!(seen(&[pod(0, true)], start + 3 * second), Presence::Ready);
        let again = seen(&[pod(0, false)], start + 4 * second);
        assert_eq!(again, Presence::NotReady(Duration::ZERO));
    }

    #[test]
    fn a_pod_beyond_the_replicas_leaves_until_it_is_gone() {
        let now = Instant::now();
        let mut first_seen = FirstSeen::new(now);
        let both =
            first_seen.observe(&slots(&pool(1, 0), &[pod(0, true), pod(1, true)]), nobody, now);
        let leaving = Presence::Leaving(Duration::ZERO);
        assert_eq!(presences(&both), [(0, Presence::Ready), (1, leaving)]);
        let mut ended = pod(1, false);
        ended.status.as_mut().unwrap().phase = Some("Failed".into());
        let one = first_seen.observe(&slots(&pool(1, 0), &[pod(0, true), ended]), nobody, now);
        assert_eq!(presences(&one), [(0, Presence::Ready)]);
    }

    #[test]
    fn a_pod_on_a_node_that_nobody_reaches_is_away_as_long_as_that_lasts() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut first_seen = FirstSeen::new(start);
        let mut seen = |pod: Pod, is_lost: bool, now| {
            let observed = first_seen.observe(&slots(&pool(1, 0), &[pod]), |_| is_lost, now);
            let pod = observed.workers[&Slot(0)].pod.clone();
            (presences(&observed)[0].1, pod)
        };
        let same = Some("uid-0".to_owned());
        let away = |age| (Presence::Away(age), same.clone());
        assert_eq!(seen(pod(0, true), true, start), away(Duration::ZERO));
        let mut deleted = pod(0, false);
        deleted.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(
            seen(deleted, true, start + second),
            away(second),
            "no kubelet confirms its end"
        );
        assert_eq!(seen(pod(0, true), false, start + second), (Presence::Ready, same.clone()));
        assert_eq!(seen(pod(0, true), true, start + 2 * second), away(Duration::ZERO));
    }

    #[test]
    fn a_namesake_that_the_statefulset_does_not_control_is_no_worker() {
        let now = Instant::now();
        let mut stranger = pod(0, true);
        stranger.metadata.owner_references = None;
        let observed = FirstSeen::new(now).observe(&slots(&pool(1, 0), &[stranger]), nobody, now);
        assert_eq!(presences(&observed), [(0, Presence::Away(Duration::ZERO))]);
    }

    #[test]
    fn a_bound_pod_that_is_deleted_counts_as_away_until_its_successor_has_its_slot() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let one = swarm_core::Assignment::from_iter([("a".parse().unwrap(), Slot(0))]);
        let mut members = swarm_core::Pool::ready(1);
        members.0.values_mut().for_each(|member| member.name = "uid-0".into());
        let ledger = swarm_core::Ledger::new(1).next(&one, &members);
        let pool = Workload { kind: crate::pool::workload::Kind::Deployment, ..pool(1, 0) };
        let mut deleted = pod(0, true);
        deleted.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        deleted.metadata.deletion_grace_period_seconds = Some(10);
        let mut first_seen = FirstSeen::new(start);
        let mut seen = |pods: &[Pod], now| {
            let pods = pods.iter().cloned().map(Arc::new);
            let slots = Slots::by_binding(&pool, Some(&ledger), pods, None);
            let seen = first_seen.observe(&slots, nobody, now).workers[&Slot(0)].clone();
            (seen.name, seen.presence, seen.pod)
        };
        let of = |n: u32| Some(format!("uid-{n}"));
        let away = |age| ("w-0".to_owned(), Presence::Ending { age, grace: 10 * second }, of(0));
        assert_eq!(seen(&[deleted.clone()], start), away(Duration::ZERO));
        let starting = [deleted.clone(), pod(1, false)];
        assert_eq!(seen(&starting, start + second), away(second));
        assert_eq!(seen(&starting, start + 9 * second), away(9 * second));
        let gone = ("uid-0".to_owned(), Presence::Away(second), None);
        assert_eq!(seen(&[], start + second), gone, "as the ledger remembers it");
        let ready = ("w-1".to_owned(), Presence::Ready, of(1));
        assert_eq!(seen(&[deleted, pod(1, true)], start + 2 * second), ready);
    }
}
