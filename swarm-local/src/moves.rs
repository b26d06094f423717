//! Detects moves of jobs from one worker to another in snapshots.

use std::collections::BTreeMap;

use super::snapshot::Snapshot;

/// The last known holder of each job.
#[derive(Debug, Default)]
pub(super) struct Moves {
    held: BTreeMap<String, u32>,
}

/// A job that has another worker than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) job: String,
    pub(super) from: u32,
    pub(super) to: u32,
}

impl Moves {
    /// The jobs that were granted to another worker than their last one, in the order of their
    /// names. New jobs do not count. O(jobs · log jobs).
    pub(super) fn seen(&mut self, snapshot: &Snapshot) -> Vec<Move> {
        let mut moves = Vec::new();
        // While a job is being released, it still belongs to its old worker.
        for row in snapshot.holders.iter().filter(|row| row.state == "granted") {
            let Some(to) = row.slot else { continue };
            match self.held.get_mut(&row.name) {
                Some(slot) => {
                    let from = std::mem::replace(slot, to);
                    if from != to {
                        moves.push(Move { job: row.name.clone(), from, to });
                    }
                }
                None => {
                    self.held.insert(row.name.clone(), to);
                }
            }
        }
        let is_known = |job: &String| {
            snapshot.holders.binary_search_by(|row| row.name.as_str().cmp(job)).is_ok()
        };
        self.held.retain(|job, _| is_known(job));
        moves
    }
}
