//! Detects moves of jobs from one worker to another in snapshots.

use std::sync::Arc;

use super::snapshot::Snapshot;

/// How many moves between two snapshots are described; the others are only counted.
const DESCRIBED_MAX: usize = 100;

/// The last known holder of each job.
#[derive(Debug, Default)]
pub(super) struct Moves {
    before: Arc<Snapshot>,
    /// The last slot that each of its jobs was granted to.
    held: Vec<Option<u32>>,
}

/// What moved between two snapshots.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Moved {
    /// How many jobs moved.
    pub(super) count: usize,
    /// The first of them, by name.
    pub(super) first: Vec<Move>,
}

/// A job that has another worker than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) job: String,
    pub(super) from: u32,
    pub(super) to: u32,
}

impl Moves {
    /// The jobs that were granted to another worker than their last one. New jobs do not count.
    /// O(jobs).
    pub(super) fn seen(&mut self, snapshot: &Arc<Snapshot>) -> Moved {
        let mut moved = Moved::default();
        let mut held = Vec::with_capacity(snapshot.holders.len());
        // Both are in the order of their names.
        let mut before = self.before.holders.iter().zip(&self.held).peekable();
        for row in &snapshot.holders {
            while before.next_if(|(old, _)| old.name < row.name).is_some() {}
            let from = before.next_if(|(old, _)| old.name == row.name).and_then(|(_, slot)| *slot);
            // While a job is being released, it still belongs to its old worker.
            let to = row.slot.filter(|_| row.state == "granted");
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
