//! A session that lies: it writes anything into its own Lease, and its runs do not count.

use std::collections::BTreeMap;
use std::time::Duration;

use swarm_core::JobName;
use swarm_core::handover::{Ack, Holder, Lease, SessionId, Stopping};

use super::{Fleet, Honesty};

/// A lie: content of a Lease that breaks the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lie {
    /// The incarnation of the ledger that it claims to act on.
    pub incarnation: Edge,
    /// The revision that it acknowledges.
    pub revision: Edge,
    /// The part of the view that it acknowledges.
    pub extent: Extent,
    /// The time for which it claims that it may act, in seconds.
    pub claims: Edge,
    /// Whether it reports every job as finished, under the token that the job has.
    pub finishes: bool,
    /// Whether it asks for its jobs to be moved.
    pub is_draining: bool,
    /// The job that it names as the culprit of a crash.
    pub blames: Option<usize>,
    /// Whether it opens another session in its pod for the lie.
    pub is_new: bool,
    /// The earlier acknowledgement that it writes again instead.
    pub replays: Option<usize>,
    /// The numbers of its writes.
    pub numbers: Numbers,
}

/// The numbers that a session gives its writes, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numbers {
    /// Each is higher than the one before.
    #[default]
    Rising,
    /// All are the same.
    Same,
    /// Each is lower than the one before.
    Falling,
    /// All are zero.
    Zero,
}

/// The acknowledged part of a view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extent {
    /// All of it.
    #[default]
    Whole,
    /// All except the jobs that still stop. The lie names none of these jobs.
    InPart,
}

/// A number at the edge of its valid range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Edge {
    /// Zero.
    Zero,
    /// One less than the true number.
    Before,
    /// The true number.
    #[default]
    Present,
    /// One more than the true number.
    After,
    /// Far more than the true number.
    Far,
    /// The highest number.
    Max,
}

impl Edge {
    fn of(self, present: u64) -> u64 {
        match self {
            Self::Zero => 0,
            Self::Before => present.saturating_sub(1),
            Self::Present => present,
            Self::After => present.saturating_add(1),
            Self::Far => present.saturating_add(1_000_000_000),
            Self::Max => u64::MAX,
        }
    }
}

impl Fleet {
    pub(super) fn lie(&mut self, n: usize, lie: Lie) {
        if self.pods[n].is_dead() || !self.is_latest(n) {
            return;
        }
        self.pods[n].worker.die();
        self.pods[n].honesty = Honesty::Lies;
        let n = if lie.is_new { self.open_liar(n) } else { n };
        let is_open = |lease: &Lease| lease.holder == Holder::Session;
        if !lie.is_new && !self.pods[n].lease().is_some_and(is_open) {
            return;
        }
        let ack = self.false_ack(n, lie);
        let names: Vec<JobName> = self.ledger().cells.jobs.keys().cloned().collect();
        let blames = lie.blames.and_then(|k| names.get(k % names.len().max(1)).cloned());
        let pod = &mut self.pods[n];
        pod.claims = Duration::from_secs(lie.claims.of(4));
        pod.longest_claim = pod.longest_claim.max(pod.claims);
        pod.blames = blames;
        pod.numbers = lie.numbers;
        self.write_lie(n, ack);
    }

    /// Opens another session of a liar, in the same pod.
    fn open_liar(&mut self, n: usize) -> usize {
        let slot = self.pods[n].slot;
        let id = SessionId::new(&self.pods[n].uid(), self.pods.len() as u64);
        self.start_pod(slot);
        let last = self.pods.len() - 1;
        let pod = &mut self.pods[last];
        pod.worker = crate::worker::Worker::open(id, &self.bounds);
        pod.worker.die();
        pod.worker.requests.clear();
        pod.honesty = Honesty::Lies;
        self.pods[n].honesty = Honesty::Lied;
        last
    }

    fn false_ack(&self, n: usize, lie: Lie) -> Ack {
        let replayed = lie.replays.and_then(|k| {
            let leases: Vec<_> = self.pods[n].leases.iter().flatten().collect();
            Some(leases.get(k % leases.len().max(1))?.ack.clone())
        });
        let ledger = self.ledger();
        let tokens = ledger.cells.jobs.iter();
        let tokens = tokens.map(|(job, record)| (job.clone(), record.cell.token()));
        let revision = lie.revision.of(ledger.revision());
        let (revision, reads) = match lie.extent {
            Extent::Whole => (revision, 0),
            Extent::InPart => (0, revision),
        };
        replayed.unwrap_or_else(|| Ack {
            incarnation: lie.incarnation.of(ledger.cells.incarnation),
            revision,
            stopping: Stopping { reads, jobs: BTreeMap::new() },
            finished: if lie.finishes { tokens.collect() } else { BTreeMap::new() },
            is_draining: lie.is_draining,
        })
    }

    fn write_lie(&mut self, n: usize, ack: Ack) {
        let version = self.next_lease_version();
        let before = self.pods[n].lease().map_or(1, |lease| lease.number);
        let number = match self.pods[n].numbers {
            Numbers::Rising => before.saturating_add(1),
            Numbers::Same => before,
            Numbers::Falling => before.saturating_sub(1),
            Numbers::Zero => 0,
        };
        let lease = Lease { version, holder: Holder::Session, number, ack };
        self.pods[n].leases.push(Some(lease));
    }

    /// Renews the Leases of liars with their last lies.
    pub(super) fn renew_lies(&mut self) {
        for n in 0..self.pods.len() {
            let held = self.pods[n].lease().filter(|lease| lease.holder == Holder::Session);
            let ack = held
                .filter(|_| self.pods[n].honesty == Honesty::Lies)
                .map(|lease| lease.ack.clone());
            if let Some(ack) = ack {
                self.write_lie(n, ack);
            }
        }
    }

    /// Deletes the pods of liars, as a user would; kubelets report that they have ended.
    pub(super) fn remove_liars(&mut self) {
        for pod in self.pods.iter_mut().filter(|pod| pod.honesty == Honesty::Lies) {
            pod.honesty = Honesty::Removed;
        }
    }
}
