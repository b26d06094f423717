//! Prepares what the screen learns. A large pool takes a while to look through, which must not delay
//! keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;

use super::super::moves::{Moved, Moves};
use super::super::outlets::Message;
use super::super::snapshot::{Snapshot, Word};

/// How much may wait to be shown.
const QUEUE_MAX: usize = 100;

/// What the screen learns.
pub(super) enum Learned {
    Pool(Digest),
    Message(Message),
}

/// The state of the pool, and what was found in it.
pub(super) struct Digest {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) moved: Moved,
    /// The most jobs of any worker, including those that it is releasing.
    pub(super) most: usize,
    /// How many jobs have no worker, by reason.
    pub(super) unassigned: BTreeMap<Word, usize>,
}

impl Digest {
    /// Looks through a snapshot. O(jobs).
    pub(super) fn of(moves: &mut Moves, snapshot: Arc<Snapshot>) -> Self {
        let seen = moves.seen(&snapshot);
        let loads = snapshot.workers.iter().map(|worker| worker.jobs + worker.releasing);
        let most = loads.max().unwrap_or_default();
        let unassigned = snapshot.unassigned_by_reason();
        Self { snapshot, moved: seen, most, unassigned }
    }
}

/// Starts to learn from snapshots and messages. It ends after the last message.
pub(super) fn start(
    snapshots: watch::Receiver<Arc<Snapshot>>,
    messages: mpsc::Receiver<Message>,
) -> mpsc::Receiver<Learned> {
    let (sender, learned) = mpsc::channel(QUEUE_MAX);
    tokio::spawn(learn(snapshots, messages, sender));
    learned
}

async fn learn(
    mut snapshots: watch::Receiver<Arc<Snapshot>>,
    mut messages: mpsc::Receiver<Message>,
    learned: mpsc::Sender<Learned>,
) {
    let (mut moves, mut has_snapshots) = (Moves::default(), true);
    loop {
        // Snapshots come before messages: the moves in a snapshot are older than the messages after
        // it.
        let one = tokio::select! {
            biased;
            changed = snapshots.changed(), if has_snapshots => {
                has_snapshots = changed.is_ok();
                let snapshot = Arc::clone(&snapshots.borrow_and_update());
                let mut seen = moves;
                let digested = spawn_blocking(move || (Digest::of(&mut seen, snapshot), seen));
                let Ok((digest, seen)) = digested.await else { return };
                moves = seen;
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
