//! From StatefulSet and pods to what the core calls observed.
//!
//! Times are ages on this process's monotonic clock, counted from when *we* first saw something: a
//! restart of the operator makes it wait longer, never shorter.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use swarm_core::handover::SessionId;
use swarm_core::{Observed, Presence, Slot, WorkerSeen};

/// Since when this process has seen what it sees of one pool.
#[derive(Debug)]
pub struct Sightings {
    watched: Instant,
    away: BTreeMap<Slot, Instant>,
    leaving: BTreeMap<Slot, Instant>,
}

impl Sightings {
    /// Nothing seen yet; watching starts `now`.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { watched: now, away: BTreeMap::new(), leaving: BTreeMap::new() }
    }

    /// What is seen of `pool` and its `pods` at `now`.
    ///
    /// Pods that the StatefulSet does not control are left out; a name proves nothing. Those that
    /// `is_lost` says stand on a node that nobody reaches are as good as gone.
    pub fn observe<'a>(
        &mut self,
        pool: &StatefulSet,
        pods: impl IntoIterator<Item = &'a Pod>,
        is_lost: impl Fn(&Pod) -> bool,
        now: Instant,
    ) -> Observed {
        let wanted = wanted_slots(pool);
        let pods: BTreeMap<_, _> =
            pods.into_iter().filter_map(|pod| Some((slot_of(pool, pod)?, pod))).collect();
        let slots: BTreeSet<_> = wanted.iter().chain(pods.keys()).copied().collect();
        let mut workers = BTreeMap::new();
        for slot in slots {
            let pod = pods.get(&slot).copied();
            let sight = Sight::of(pod, wanted.contains(&slot), pod.is_some_and(&is_lost));
            let away = since(&mut self.away, slot, sight == Sight::Away, now);
            let leaving = since(&mut self.leaving, slot, sight == Sight::Leaving, now);
            let presence = match sight {
                Sight::Ready => Presence::Ready,
                Sight::NotReady => Presence::NotReady,
                Sight::Away => Presence::Away(away),
                Sight::Leaving => Presence::Leaving(leaving),
                Sight::Nothing => continue,
            };
            let name = format!("{}-{slot}", pool.name_any());
            let uid = pod.filter(|pod| !is_terminal(pod)).and_then(ResourceExt::uid);
            let session = uid.map(|uid| SessionId::plain(&uid));
            workers.insert(slot, WorkerSeen { name, presence, session });
        }
        self.away.retain(|slot, _| workers.contains_key(slot));
        self.leaving.retain(|slot, _| workers.contains_key(slot));
        Observed {
            workers,
            workers_desired: wanted.len(),
            watched_for: now.saturating_duration_since(self.watched),
            unix_time_us: unix_time_us(),
            // Plain workers answer nothing, so nothing is known of them but their pods.
            ..Observed::default()
        }
    }
}

/// What one look at a slot shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    Ready,
    NotReady,
    Away,
    Leaving,
    Nothing,
}

impl Sight {
    fn of(pod: Option<&Pod>, wanted: bool, is_lost: bool) -> Self {
        let alive = pod.filter(|pod| !is_terminal(pod));
        match (alive, wanted) {
            (None, true) => Self::Away,
            (None, false) => Self::Nothing,
            // Nobody there tells when it ends. It may come back as it was.
            (Some(_), true) if is_lost => Self::Away,
            // A pod on its way out still runs its jobs, whether its slot is wanted or not.
            (Some(pod), _) if pod.metadata.deletion_timestamp.is_some() => Self::Leaving,
            (Some(_), false) => Self::Leaving,
            (Some(pod), true) if is_ready(pod) => Self::Ready,
            (Some(_), true) => Self::NotReady,
        }
    }
}

/// For how long `slot` has been in a state, keeping the time it was first seen in it.
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

/// The slots that the StatefulSet is meant to fill.
fn wanted_slots(pool: &StatefulSet) -> BTreeSet<Slot> {
    let start = first_slot(pool);
    (start..start.saturating_add(replicas(pool))).map(Slot).collect()
}

/// The lowest slot of a StatefulSet.
#[must_use]
pub fn first_slot(pool: &StatefulSet) -> u32 {
    let start = pool.spec.as_ref().and_then(|spec| spec.ordinals.as_ref()?.start);
    start.and_then(|start| u32::try_from(start).ok()).unwrap_or(0)
}

/// How many pods a StatefulSet is meant to have.
#[must_use]
pub fn replicas(pool: &StatefulSet) -> u32 {
    let replicas = pool.spec.as_ref().and_then(|spec| spec.replicas);
    replicas.map_or(1, |count| u32::try_from(count).unwrap_or(0))
}

/// The slot of a pod that `pool` controls.
#[must_use]
pub fn slot_of(pool: &StatefulSet, pod: &Pod) -> Option<Slot> {
    let controller = pod.owner_references().iter().find(|owner| owner.controller == Some(true))?;
    if Some(&controller.uid) != pool.metadata.uid.as_ref() {
        return None;
    }
    let name = pod.metadata.name.as_deref()?;
    let ordinal = name.strip_prefix(pool.metadata.name.as_deref()?)?.strip_prefix('-')?;
    ordinal.parse().ok().map(Slot)
}

pub(crate) fn is_terminal(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn unix_time_us() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_microsecond()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pool(replicas: i32, start: i32) -> StatefulSet {
        let spec = json!({
            "serviceName": "", "selector": {}, "template": {},
            "replicas": replicas, "ordinals": {"start": start},
        });
        serde_json::from_value(json!({"metadata": {"name": "w", "uid": "set"}, "spec": spec}))
            .unwrap()
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

    fn presences(observed: &Observed) -> Vec<(u32, Presence)> {
        observed.workers.iter().map(|(slot, seen)| (slot.0, seen.presence)).collect()
    }

    #[test]
    fn slots_are_ordinals_from_the_start_that_the_statefulset_names() {
        let now = Instant::now();
        let pods = [pod(5, true), pod(6, false)];
        let observed = Sightings::new(now).observe(&pool(3, 5), &pods, nobody, now);
        let away = Presence::Away(Duration::ZERO);
        let expected = [(5, Presence::Ready), (6, Presence::NotReady), (7, away)];
        assert_eq!((presences(&observed), observed.workers_desired), (expected.into(), 3));
    }

    #[test]
    fn absence_is_aged_from_when_it_was_first_seen_and_forgotten_on_return() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut sightings = Sightings::new(start);
        sightings.observe(&pool(1, 0), &[], nobody, start);
        let later = sightings.observe(&pool(1, 0), &[], nobody, start + second);
        assert_eq!(presences(&later), [(0, Presence::Away(second))]);
        sightings.observe(&pool(1, 0), &[pod(0, true)], nobody, start + 2 * second);
        let again = sightings.observe(&pool(1, 0), &[], nobody, start + 3 * second);
        assert_eq!(presences(&again), [(0, Presence::Away(Duration::ZERO))]);
    }

    #[test]
    fn a_pod_beyond_the_replicas_leaves_until_it_is_gone() {
        let now = Instant::now();
        let mut sightings = Sightings::new(now);
        let both = sightings.observe(&pool(1, 0), &[pod(0, true), pod(1, true)], nobody, now);
        let leaving = Presence::Leaving(Duration::ZERO);
        assert_eq!(presences(&both), [(0, Presence::Ready), (1, leaving)]);
        let mut ended = pod(1, false);
        ended.status.as_mut().unwrap().phase = Some("Failed".into());
        let one = sightings.observe(&pool(1, 0), &[pod(0, true), ended], nobody, now);
        assert_eq!(presences(&one), [(0, Presence::Ready)]);
    }

    #[test]
    fn a_pod_on_a_node_that_nobody_reaches_is_away_as_long_as_that_lasts() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut sightings = Sightings::new(start);
        let mut seen = |pod: Pod, is_lost: bool, now| {
            let observed = sightings.observe(&pool(1, 0), &[pod], |_| is_lost, now);
            let session = observed.workers[&Slot(0)].session.clone();
            (presences(&observed)[0].1, session)
        };
        let same = Some(SessionId::plain("uid-0"));
        let away = |age| (Presence::Away(age), same.clone());
        assert_eq!(seen(pod(0, true), true, start), away(Duration::ZERO));
        let mut deleted = pod(0, false);
        deleted.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(seen(deleted, true, start + second), away(second), "nobody confirms its end");
        assert_eq!(seen(pod(0, true), false, start + second), (Presence::Ready, same.clone()));
        assert_eq!(seen(pod(0, true), true, start + 2 * second), away(Duration::ZERO));
    }

    #[test]
    fn a_namesake_that_the_statefulset_does_not_control_is_no_worker() {
        let now = Instant::now();
        let mut stranger = pod(0, true);
        stranger.metadata.owner_references = None;
        let observed = Sightings::new(now).observe(&pool(1, 0), &[stranger], nobody, now);
        assert_eq!(presences(&observed), [(0, Presence::Away(Duration::ZERO))]);
    }
}
