//! The state that is checked: ledger and leases as stored, workers, operators.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use swarm_core::handover::{Cells, Lease, LeaseVersion, Moment, Rule, SessionId, WatchStage};
use swarm_core::overseer::Proofs;
use swarm_core::{JobName, Token};

use crate::{Bounds, Fault, Invariant, ProcessState, Worker};

/// The state that is checked.
#[derive(Clone, Debug, PartialEq)]
pub struct World {
    /// The bounds of the world; the same in all states of one check.
    pub bounds: Arc<Bounds>,
    /// The states of the ledger, the latest last. Any of them may reach a worker at any time.
    pub history: Vec<Arc<Cells>>,
    /// The stored leases, by session.
    pub leases: Vec<Option<Arc<Lease>>>,
    /// The stored Leases as they were before their sessions last changed them, by session. Only
    /// present if reads may be old.
    pub copies: Vec<Option<Arc<Lease>>>,
    /// The workers that were ever started, by session.
    pub workers: Vec<Arc<Worker>>,
    /// The knowledge of each operator, which it loses completely when it crashes.
    pub operators: Vec<Arc<Proofs>>,
    /// The clock of the operators, which runs with the world's.
    pub now: Moment,
    /// The number of versions of Leases so far.
    pub versions: u64,
    /// The runs whose ownership ended by waiting, by job, session and token. Only `AtLeastOnce`
    /// allows these. They may go on, or even begin, until their worker reads a newer view.
    pub excused: BTreeSet<(JobName, SessionId, Token)>,
    /// An invariant about steps that was broken on the way here.
    pub broken: Option<Invariant>,
}

/// The jobs of every world with these bounds.
pub(crate) fn jobs(bounds: &Bounds) -> impl Iterator<Item = JobName> {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    NAMES.into_iter().take(bounds.jobs).filter_map(|name| JobName::new(name).ok())
}

impl World {
    /// The ledger as it is stored.
    #[must_use]
    pub fn cells(&self) -> &Cells {
        // The first state always exists.
        &self.history[self.history.len() - 1]
    }

    pub(crate) fn next_version(&mut self) -> LeaseVersion {
        self.versions += 1;
        LeaseVersion(self.versions)
    }

    /// The workers that really run `job` at this moment.
    pub fn runners<'a>(&'a self, job: &'a JobName) -> impl Iterator<Item = usize> + 'a {
        let runs = move |(_, worker): &(usize, &Arc<Worker>)| {
            worker.process == ProcessState::Up && worker.running.contains_key(job)
        };
        self.workers.iter().enumerate().filter(runs).map(|(n, _)| n)
    }

    /// The workers that run `job` without an excuse.
    pub fn accountable<'a>(&'a self, job: &'a JobName) -> impl Iterator<Item = usize> + 'a {
        self.runners(job).filter(move |n| {
            let token = self.workers[*n].running.get(job).copied().unwrap_or(Token(0));
            !self.excused.contains(&(job.clone(), self.bounds.session(*n).clone(), token))
        })
    }

    /// Whether the ledger can no longer change within the bounds. The knowledge and the acts of
    /// operators can then only hold workers back. So the search neither distinguishes nor takes
    /// them.
    pub(crate) fn is_last(&self) -> bool {
        self.bounds.versions <= self.history.len()
    }

    /// Whether something from the past may reach a session that the rules would make it drop.
    fn goes_back(&self) -> bool {
        self.bounds.may(Fault::ForeignView) || !self.bounds.keeps(Rule::NewerViewsOnly)
    }

    /// Whether the acts of session `n` can matter: it runs a job, holds a job, or may be asked to
    /// run one. The Leases of other sessions still matter, since an operator may choose these
    /// sessions.
    pub(crate) fn is_active(&self, n: usize) -> bool {
        let Some(worker) = self.workers.get(n) else { return false };
        let id = self.bounds.session(n);
        let is_asked = |cells: &&Arc<Cells>| {
            worker.process != ProcessState::Dead
                && worker.seen < cells.revision
                && !cells.view(id).jobs.is_empty()
        };
        let has_news = self.history.iter().any(|cells| is_asked(&cells));
        let is_new = self.leases[n].is_none() && worker.process != ProcessState::Dead;
        self.goes_back() || is_new || !worker.running.is_empty() || self.holds(n) || has_news
    }

    /// Whether the ledger names session `n`.
    pub(crate) fn holds(&self, n: usize) -> bool {
        let id = Some(self.bounds.session(n));
        self.cells().jobs.values().any(|record| record.cell.holder() == id)
    }

    /// The first revision of the ledger that can still matter for session `n`.
    fn matters_from(&self, n: usize) -> u64 {
        let acked = self.leases[n].as_ref().map_or(0, |lease| lease.ack.revision);
        let is_dead =
            self.workers.get(n).is_some_and(|worker| worker.process == ProcessState::Dead);
        if self.goes_back() || !self.bounds.keeps(Rule::CompareAndSet) {
            0
        } else if is_dead {
            u64::MAX
        } else {
            acked
        }
    }
}

impl World {
    /// Hashes the copy of a Lease that may still be read, and which operators saw that copy last.
    fn digest_copy<H: Hasher>(&self, n: usize, to: &mut H) {
        let Some(copy) = &self.copies[n] else { return };
        (copy.holder, &copy.ack).hash(to);
        for proofs in &self.operators {
            let stage = proofs.get(self.bounds.session(n)).map(|watch| watch.stage);
            let is_copy = match stage {
                Some(WatchStage::Held { version, .. } | WatchStage::Revoking { version, .. }) => {
                    version == copy.version
                }
                Some(WatchStage::Revoked { .. } | WatchStage::Ended(_)) | None => false,
            };
            is_copy.hash(to);
        }
    }
}

/// Two worlds are equal for the check if the same steps can follow in both. Moments count as
/// distances from now, and versions of Leases only as "is it the stored one".
impl Hash for World {
    fn hash<H: Hasher>(&self, to: &mut H) {
        (self.history.len(), self.cells(), &self.excused, self.broken).hash(to);
        if !self.bounds.keeps(Rule::CompareAndSet) {
            self.history.hash(to);
        }
        for n in 0..self.bounds.sessions {
            if self.is_last() && !self.is_active(n) {
                continue;
            }
            let from = self.matters_from(n);
            for cells in self.history.iter().filter(|cells| from <= cells.revision) {
                (cells.revision, cells.view(self.bounds.session(n)).jobs).hash(to);
            }
            let lease = self.leases[n].as_deref();
            lease.map(|lease| (lease.holder, &lease.ack)).hash(to);
            if !self.is_last() {
                self.digest_copy(n, to);
            }
            if let Some(worker) = self.workers.get(n) {
                worker.digest(lease, &self.bounds, to);
            }
        }
        let terms = self.bounds.lease_terms();
        for proofs in self.operators.iter().filter(|_| !self.is_last()) {
            let stored = |session: &SessionId| {
                let n = (0..self.leases.len()).find(|n| self.bounds.session(*n) == session)?;
                self.leases[n].as_ref().map(|lease| (lease.version, lease.number))
            };
            proofs.digest(self.now, &terms, stored, to);
        }
    }
}
