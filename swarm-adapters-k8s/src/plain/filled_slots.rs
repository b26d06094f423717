//! The pods of plain workers that fill slots of the ledger.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use swarm_core::{Ledger, Slot};

use crate::annotations::STARTED_ANNOTATION;
use crate::pool::slots::Slots;

/// A pod that fills a slot of the ledger.
pub(crate) struct Live {
    pub(crate) slot: Slot,
    pub(crate) uid: String,
    pub(crate) pod: Arc<Pod>,
}

/// The pods whose slots are in the ledger, by slot.
pub(crate) fn live(slots: &Slots, ledger: &Ledger) -> Vec<Live> {
    let live = |(slot, pod): (&Slot, &Arc<Pod>)| {
        let (slot, uid, pod) = (*slot, pod.uid()?, pod.clone());
        // A session has its own view, and acknowledges it.
        let record = ledger.slots.get(&slot)?;
        record.session.is_plain().then_some(Live { slot, uid, pod })
    };
    slots.pods.iter().filter_map(live).collect()
}

/// The publication with which the pod is known to have started; 0 if none.
pub(crate) fn started_with(pod: &Pod, newest: u64) -> u64 {
    let text = pod.annotations().get(STARTED_ANNOTATION);
    // A version above the newest one belongs to an earlier incarnation of the ledger.
    let version = text.and_then(|text| text.parse().ok()).filter(|version| *version <= newest);
    version.unwrap_or(0)
}
