//! Proves that all processes of a worker have ended, hidden ones too.
//!
//! The operator of one machine starts its workers through the [`Reaper`] and becomes a child
//! subreaper. A worker is one as well. So once a worker's process has ended, every process that it
//! leaves behind is a child of the operator, or a descendant of one. The kernel hands over these
//! processes before it lets anybody wait for the worker. That holds for any program: with other
//! users and capabilities, in other groups and sessions, and with an empty environment.
//!
//! An instance of a worker has ended when its own process was reaped, and when no process lives
//! that the operator took over from it. A signal that is refused and an entry of `/proc` that
//! cannot be read prove nothing.
//!
//! `Ends` decides which instances an orphan may belong to. It knows no clock and no system.

mod reaper;
mod unmarked;

pub use reaper::Reaper;
pub use unmarked::{Group, Unmarked};

use std::collections::{BTreeMap, BTreeSet};

use crate::procs::Identity;

/// The number of looks in a row without any process of an instance that prove its end. A single
/// look can miss a process that starts or moves during the look.
const CLEAR_LOOKS: u32 = 2;

/// The workers of an operator that have not ended with all their processes, and their orphans.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends {
    workers: BTreeMap<String, Worker>,
    /// The instances that each orphan may belong to; none for an orphan of another origin.
    orphans: BTreeMap<Identity, BTreeSet<String>>,
}

#[derive(Clone, Copy, Debug)]
struct Worker {
    process: Identity,
    is_reaped: bool,
    clear_looks: u32,
}

/// The result of one look at the children of the operator.
#[derive(Clone, Debug, Default)]
pub(crate) struct Look {
    /// The orphans, each with the instance in its environment, if that can be read.
    pub(crate) orphans: BTreeMap<Identity, Option<String>>,
    /// The instances whose own processes have ended. They are read after the orphans.
    pub(crate) ended: BTreeSet<String>,
}

impl Ends {
    /// Adds a worker that was started.
    pub(crate) fn started(&mut self, instance: &str, process: Identity) {
        let worker = Worker { process, is_reaped: false, clear_looks: 0 };
        self.workers.insert(instance.to_owned(), worker);
    }

    /// Notes that the process of a worker was reaped.
    pub(crate) fn reaped(&mut self, instance: &str) {
        if let Some(worker) = self.workers.get_mut(instance) {
            worker.is_reaped = true;
        }
    }

    /// Returns whether an instance was started, and is not proved to have ended.
    pub(crate) fn knows(&self, instance: &str) -> bool {
        self.workers.contains_key(instance)
    }

    /// Returns the processes of the workers that were not reaped.
    pub(crate) fn running(&self) -> impl Iterator<Item = (&String, Identity)> {
        let running = self.workers.iter().filter(|(_, worker)| !worker.is_reaped);
        running.map(|(instance, worker)| (instance, worker.process))
    }

    /// Learns what a look has found. An orphan belongs to the instance in its environment. Any
    /// other new orphan comes from a worker whose process has ended, and counts for each of them
    /// that is as old as the orphan. Before any such end it is of another origin: a living worker
    /// takes over its orphans itself. O(orphans · workers).
    pub(crate) fn see(&mut self, look: &Look) {
        self.orphans.retain(|orphan, _| look.orphans.contains_key(orphan));
        for (orphan, named) in &look.orphans {
            match named.as_ref().filter(|instance| self.workers.contains_key(*instance)) {
                Some(instance) => {
                    self.orphans.insert(*orphan, BTreeSet::from([instance.clone()]));
                }
                None if self.orphans.contains_key(orphan) => {}
                None => {
                    let owners = self.may_have_left(*orphan, &look.ended);
                    self.orphans.insert(*orphan, owners);
                }
            }
        }
    }

    fn may_have_left(&self, (_, started): Identity, ended: &BTreeSet<String>) -> BTreeSet<String> {
        let may_be_its = |(instance, worker): &(&String, &Worker)| {
            (worker.is_reaped || ended.contains(*instance)) && worker.process.1 <= started
        };
        let all = self.workers.iter().filter(may_be_its);
        all.map(|(instance, _)| instance.clone()).collect()
    }

    /// Returns the orphans that may belong to an instance.
    pub(crate) fn left(&self, instance: &str) -> impl Iterator<Item = Identity> {
        let its = self.orphans.iter().filter(move |(_, owners)| owners.contains(instance));
        its.map(|(orphan, _)| *orphan)
    }

    /// Judges an instance after a look, and returns whether it is now proved to have ended; then it
    /// is forgotten. `is_marked` says whether any process was found by its mark.
    pub(crate) fn judge(&mut self, instance: &str, is_marked: bool) -> bool {
        let is_clear = !is_marked && self.left(instance).next().is_none();
        let Some(worker) = self.workers.get_mut(instance) else { return !is_marked };
        worker.clear_looks = if is_clear && worker.is_reaped { worker.clear_looks + 1 } else { 0 };
        let has_ended = CLEAR_LOOKS <= worker.clear_looks;
        if has_ended {
            self.workers.remove(instance);
        }
        has_ended
    }
}

#[cfg(test)]
mod tests;
