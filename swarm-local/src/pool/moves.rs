//! Detects moves of jobs from one worker to another in snapshots.

use std::sync::Arc;

use super::snapshot::Snapshot;

/// Maximum number of described moves between two snapshots; further moves are only counted.
const DESCRIBED_MAX: usize = 100;

/// The last known holder of each job.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    before: Arc<Snapshot>,
    /// Last slot of each job of the snapshot.
    held: Vec<Option<u32>>,
}

/// Moves between two snapshots.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Number of moved jobs.
    pub(crate) count: usize,
    /// The first moves, by name of the job.
    pub(crate) first: Vec<Move>,
}

/// A job whose worker changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) job: String,
    pub(crate) from: u32,
    pub(crate) to: u32,
}

impl Moves {
    /// Returns the jobs that another worker was granted. New jobs do not count. O(jobs).
    pub(crate) fn seen(&mut self, snapshot: &Arc<Snapshot>) -> Moved {
        let mut moved = Moved::default();
        let mut held = Vec::with_capacity(snapshot.holders.len());
        // Both lists are sorted by name.
        let mut before = self.before.holders.iter().zip(&self.held).peekable();
        for row in &snapshot.holders {
            while before.next_if(|(old, _)| old.name < row.name).is_some() {}
            let from = before.next_if(|(old, _)| old.name == row.name).and_then(|(_, slot)| *slot);
            // A job that is being released still belongs to its previous worker.
            let to = row.slot.filter(|_| matches!(row.state, "granted" | "published"));
            if let (Some(from), Some(to)) = (from, to)
                && from != to
            {
                moved.count += 1;
                if moved.first.len() < DESCRIBED_MAX {
                    moved.first.push(Move { job: row.name.clone(), from, to });
                }
            }
            held.push(to.or(from));
        }
        (self.before, self.held) = (Arc::clone(snapshot), held);
        moved
    }
}
