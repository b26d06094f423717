//! Asks workers what they run, ever less often, until they run what was published for them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use futures::StreamExt;
use swarm_core::{Ledger, Slot, ViewEntry};

use super::{AT_A_TIME, Live, Memory, started_with};
use crate::answer::{ask, pause};
use crate::api::VersionEndpoint;

/// A worker that is to be asked now.
struct Due {
    slot: Slot,
    uid: String,
    address: IpAddr,
    /// About this publication.
    version: u64,
}

/// Asks the workers that are due, and tells when the next one is.
pub(super) async fn ask_workers(
    endpoint: &VersionEndpoint,
    live: &[Live],
    ledger: &Ledger,
    memory: &mut Memory,
) -> Option<Duration> {
    let (due, next) = due(live, ledger, memory, Instant::now());
    if due.is_empty() {
        return next;
    }
    let mut view = ledger.view();
    let mut entries: BTreeMap<Slot, ViewEntry> = BTreeMap::new();
    for (slot, record) in &ledger.slots {
        entries.extend(view.workers.remove(&record.worker).map(|entry| (*slot, entry)));
    }
    let questions = due.into_iter().map(|due| {
        let endpoint = endpoint.clone();
        async move { (ask(due.address, &endpoint).await, due) }
    });
    let mut answers = futures::stream::iter(questions).buffer_unordered(AT_A_TIME);
    while let Some((answer, Due { slot, uid, version, address: _ })) = answers.next().await {
        if answer.zip(entries.get(&slot)).is_some_and(|(it, entry)| it.is_of(entry)) {
            memory.told.entry(uid).or_default().has = version;
        }
    }
    next
}

/// Who is to be asked at `now`, and when the next one is.
fn due(
    live: &[Live],
    ledger: &Ledger,
    memory: &mut Memory,
    now: Instant,
) -> (Vec<Due>, Option<Duration>) {
    let (mut due, mut next) = (Vec::new(), None);
    for it in live {
        let Some(record) = ledger.slots.get(&it.slot) else { continue };
        let address = it.pod.status.as_ref().and_then(|status| status.pod_ip.as_deref());
        let Some(address) = address.and_then(|address| address.parse().ok()) else { continue };
        let told = memory.told.entry(it.uid.clone()).or_default();
        let has = told.has.max(started_with(&it.pod, ledger.version));
        if record.version <= has || it.pod.metadata.deletion_timestamp.is_some() {
            continue;
        }
        // Nobody runs what was told this very moment, so the first question waits, too.
        let before = told.asked.filter(|(version, ..)| *version == record.version);
        let (version, asked, at) = before.unwrap_or((record.version, 0, now));
        let left = pause(asked).saturating_sub(now.saturating_duration_since(at));
        let wait = if left.is_zero() {
            told.asked = Some((version, asked + 1, now));
            due.push(Due { slot: it.slot, uid: it.uid.clone(), address, version });
            pause(asked + 1)
        } else {
            told.asked = Some((version, asked, at));
            left
        };
        next = next.into_iter().chain([wait]).min();
    }
    (due, next)
}
