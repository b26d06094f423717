//! Assignment of pods to slots: by the ordinal in the pod's name, as in a StatefulSet, or by a
//! [binding](bind).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use swarm_core::{Candidate, Ledger, Slot, bind};

use super::observe::{is_ready, is_terminal};
use super::workload::Workload;

/// The pods in the slots of a pool.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    /// The slots that should have a worker.
    pub wanted: BTreeSet<Slot>,
    /// The pod in each slot, including slots that should no longer have a worker.
    pub pods: BTreeMap<Slot, Arc<Pod>>,
    names: Names,
}

/// The names of workers.
#[derive(Clone, Debug)]
enum Names {
    /// Workers have the name of the pool with their slot.
    Ordinal(String),
    /// Workers have the names of their pods. A worker without a pod has its name in the ledger.
    Bound(BTreeMap<Slot, String>),
}

impl Default for Names {
    fn default() -> Self {
        Self::Bound(BTreeMap::new())
    }
}

impl Slots {
    /// The slots of a StatefulSet. Other pods are left out, even if their names match.
    pub fn by_ordinal(pool: &Workload, pods: impl IntoIterator<Item = Arc<Pod>>) -> Self {
        let end = pool.first_slot.saturating_add(pool.replicas);
        let with_slot = |pod: Arc<Pod>| Some((ordinal(pool, &pod)?, pod));
        Self {
            wanted: (pool.first_slot..end).map(Slot).collect(),
            pods: pods.into_iter().filter_map(with_slot).collect(),
            names: Names::Ordinal(pool.name.clone()),
        }
    }

    /// The slots of a pool whose pods have no ordinals, as recorded in `ledger`. All `pods` belong
    /// to the pool. Slots from `end` on are being emptied.
    pub fn by_binding(
        pool: &Workload,
        ledger: Option<&Ledger>,
        pods: impl IntoIterator<Item = Arc<Pod>>,
        end: Option<u32>,
    ) -> Self {
        let pods = pods.into_iter().filter(|pod| !is_terminal(pod));
        let pods: BTreeMap<_, _> = pods.filter_map(|pod| Some((pod.uid()?, pod))).collect();
        let bound = ledger.map(Ledger::bound).unwrap_or_default();
        let candidates: Vec<_> = pods.values().filter_map(|pod| candidate(pod)).collect();
        let binding = bind(&bound, &candidates, pool.replicas as usize, end);
        let records = ledger.iter().flat_map(|ledger| &ledger.slots);
        let of_uid = |(slot, uid)| Some((slot, pods.get(&uid)?.clone()));
        Self {
            wanted: binding.wanted,
            pods: binding.workers.into_iter().filter_map(of_uid).collect(),
            names: Names::Bound(
                records.map(|(slot, record)| (*slot, record.worker.clone())).collect(),
            ),
        }
    }

    /// The name of the worker in `slot`; empty if the slot never had a worker.
    #[must_use]
    pub fn name(&self, slot: Slot) -> String {
        match &self.names {
            Names::Ordinal(pool) => format!("{pool}-{slot}"),
            Names::Bound(remembered) => {
                let pod = self.pods.get(&slot).map(|pod| pod.name_any());
                pod.or_else(|| remembered.get(&slot).cloned()).unwrap_or_default()
            }
        }
    }

    /// Whether another pod may take the slot of a pod that is being deleted before that pod is
    /// removed.
    #[must_use]
    pub fn are_bound(&self) -> bool {
        matches!(self.names, Names::Bound(_))
    }
}

/// An existing pod, as a candidate for the core's binding rule.
fn candidate(pod: &Pod) -> Option<Candidate> {
    let mut candidate = Candidate::ready(pod.name_any());
    candidate.uid = pod.uid()?;
    candidate.created_s = pod.creation_timestamp().map(|created| created.0.as_second());
    candidate.is_leaving = pod.metadata.deletion_timestamp.is_some();
    candidate.is_ready = is_ready(pod);
    Some(candidate)
}

/// The slot of a pod that the StatefulSet `pool` controls.
#[must_use]
pub fn ordinal(pool: &Workload, pod: &Pod) -> Option<Slot> {
    let controller = pod.owner_references().iter().find(|owner| owner.controller == Some(true))?;
    if controller.uid != pool.uid {
        return None;
    }
    let name = pod.metadata.name.as_deref()?;
    name.strip_prefix(&pool.name)?.strip_prefix('-')?.parse().ok().map(Slot)
}
