//! Prepares data for the screen in the background, since examining a large pool would delay keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;

use crate::pool::outlets::Timed;
use crate::pool::snapshot::Snapshot;

/// Maximum number of prepared items that wait.
const QUEUE_MAX: usize = 100;

/// Prepared data for the screen.
pub(super) enum Learned {
    Pool(Digest),
    Message(Timed),
}

/// The state of the pool, and facts derived from it.
pub(super) struct Digest {
    pub(super) snapshot: Arc<Snapshot>,
    /// Maximum number of jobs of a worker, including jobs that it is releasing.
    pub(super) most: usize,
    /// Number of jobs without a worker, by reason.
    pub(super) unassigned: BTreeMap<String, usize>,
}

impl Digest {
    /// Examines a snapshot. O(jobs).
    pub(super) fn of(snapshot: Arc<Snapshot>) -> Self {
        let loads = snapshot.status.workers.iter().map(|worker| worker.jobs + worker.releasing);
        let most = loads.max().unwrap_or_default();
        let unassigned = snapshot.status.unassigned_by_reason();
        Self { snapshot, most, unassigned }
    }
}

/// Starts to prepare snapshots and messages. The task ends after the last message.
pub(super) fn start(
    snapshots: watch::Receiver<Arc<Snapshot>>,
    messages: mpsc::Receiver<Timed>,
) -> mpsc::Receiver<Learned> {
    let (sender, learned) = mpsc::channel(QUEUE_MAX);
    tokio::spawn(learn(snapshots, messages, sender));
    learned
}

async fn learn(
    mut snapshots: watch::Receiver<Arc<Snapshot>>,
    mut messages: mpsc::Receiver<Timed>,
    learned: mpsc::Sender<Learned>,
) {
    let mut has_snapshots = true;
    loop {
        // Snapshots precede messages: a message may be about the newest snapshot.
        let one = tokio::select! {
            biased;
            changed = snapshots.changed(), if has_snapshots => {
                has_snapshots = changed.is_ok();
                let snapshot = Arc::clone(&snapshots.borrow_and_update());
                let Ok(digest) = spawn_blocking(move || Digest::of(snapshot)).await else { return };
                Learned::Pool(digest)
            }
            message = messages.recv() => match message {
                Some(message) => Learned::Message(message),
                None => return,
            },
        };
        if learned.send(one).await.is_err() {
            return;
        }
    }
}
