//! The phase of each job, as far as the ledger and the leases of sessions show it.
//!
//! A worker on a cluster reports by its lease alone: the view that it acknowledges, and jobs that
//! fail. A supervisor on the same machine knows more about a job.

use std::collections::{BTreeMap, BTreeSet};

use crate::handover::{Cell, Record, SessionId};
use crate::{Decision, JobName, Ledger, Position, Unassigned};

/// The phase of a job.
///
/// ```
/// use swarm_core::JobPhase;
///
/// assert_eq!(JobPhase::Published.as_str(), "published");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum JobPhase {
    /// Its worker reports that it fails.
    Failing,
    /// A worker was asked to release it and has not acknowledged the release.
    Stopping,
    /// It is granted, and no young evidence says that it runs: its worker has not acknowledged the
    /// grant, or is silent. Plain workers acknowledge nothing, so their jobs stay in this phase.
    Published,
    /// It is granted, its worker has acknowledged the grant, and the worker is not silent.
    Running,
    /// It waits for the worker of its slot, for a decision, or for sessions of another incarnation.
    Waiting,
    /// No worker gets it for a while, because it crashed several workers.
    Quarantined,
    /// It ran to completion.
    Done,
    /// It is suspended.
    Suspended,
    /// It has no worker, for a [reason](crate::Unassigned) that only another input changes.
    Unassigned,
}

impl JobPhase {
    /// All phases that this version knows.
    pub const ALL: &[Self] = &[
        Self::Failing,
        Self::Stopping,
        Self::Published,
        Self::Running,
        Self::Waiting,
        Self::Quarantined,
        Self::Done,
        Self::Suspended,
        Self::Unassigned,
    ];

    /// Returns the phase as one word in lower case, such as `running`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failing => "failing",
            Self::Stopping => "stopping",
            Self::Published => "published",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Quarantined => "quarantined",
            Self::Done => "done",
            Self::Suspended => "suspended",
            Self::Unassigned => "unassigned",
        }
    }
}

/// The facts from which the phases of jobs follow.
///
/// ```
/// use std::collections::BTreeSet;
/// use swarm_core::handover::SessionId;
/// use swarm_core::{
///     Desired, JobPhase, Ledger, Observed, Phases, Presence, Slot, Unacknowledged, WorkerSeen,
///     decide, jobs,
/// };
///
/// let session = Some(SessionId::new("pod", 1));
/// let seen = Observed::new([(Slot(0), WorkerSeen::new("w-0", Presence::Ready, session))], 1, []);
/// let decision = decide(&Ledger::new(1), &Desired::new(jobs(["a"])?), &seen);
/// let (mut unacknowledged, failing) = (Unacknowledged::default(), BTreeSet::new());
/// let unheard = BTreeSet::new();
/// for (acknowledged, phase) in [(0, JobPhase::Published), (u64::MAX, JobPhase::Running)] {
///     unacknowledged.observe(&decision.ledger, &BTreeSet::new(), |_, _| acknowledged);
///     let unacknowledged = &unacknowledged;
///     let phases =
///         Phases { decision: &decision, unacknowledged, unheard: &unheard, failing: &failing };
///     assert_eq!(phases.of("a"), Some(phase));
///     assert_eq!(phases.counts(), [(phase, 1)].into());
/// }
/// # Ok::<(), swarm_core::JobsError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Phases<'a> {
    /// The decision of the turn, as it was saved.
    pub decision: &'a Decision,
    /// The grants without an acknowledgement, [observed](Unacknowledged::observe) since.
    pub unacknowledged: &'a Unacknowledged,
    /// The sessions without young evidence, as
    /// [`Overseer::unheard`](crate::overseer::Overseer::unheard) returns them. None of their jobs
    /// runs as far as is known.
    pub unheard: &'a BTreeSet<SessionId>,
    /// The jobs that fail according to the workers that hold them.
    pub failing: &'a BTreeSet<JobName>,
}

impl Phases<'_> {
    /// Returns the phase of a job; `None` if the ledger does not have it. O(log jobs).
    #[must_use]
    pub fn of(&self, job: &str) -> Option<JobPhase> {
        let (name, record) = self.decision.ledger.cells.jobs.get_key_value(job)?;
        Some(self.phase(name, record, self.is_any_unheard()))
    }

    /// Returns the number of jobs in each phase that has some. Each job of the ledger counts once.
    /// O(jobs · log jobs + slots · log unheard).
    #[must_use]
    pub fn counts(&self) -> BTreeMap<JobPhase, usize> {
        let mut counts = BTreeMap::new();
        let is_any_unheard = self.is_any_unheard();
        for (name, record) in &self.decision.ledger.cells.jobs {
            *counts.entry(self.phase(name, record, is_any_unheard)).or_default() += 1;
        }
        counts
    }

    /// Returns these [numbers](Self::counts) if `unnamed` more jobs fail than the named ones. Such
    /// jobs are failing instead of running, or instead of published if their worker is silent.
    /// O(jobs · log jobs).
    #[must_use]
    pub fn counts_with(&self, mut unnamed: usize) -> BTreeMap<JobPhase, usize> {
        let mut counts = self.counts();
        for phase in [JobPhase::Running, JobPhase::Published] {
            let Some(count) = counts.get_mut(&phase).filter(|_| 0 < unnamed) else { continue };
            let failing = unnamed.min(*count);
            *count -= failing;
            unnamed -= failing;
            *counts.entry(JobPhase::Failing).or_default() += failing;
        }
        counts
    }

    /// Returns whether the session of any slot is unheard. Then jobs of all workers are not known to
    /// run on each.
    fn is_any_unheard(&self) -> bool {
        let mut slots = self.decision.ledger.slots.values();
        !self.unheard.is_empty() && slots.any(|record| self.unheard.contains(&record.session))
    }

    fn phase(&self, name: &JobName, record: &Record, is_any_unheard: bool) -> JobPhase {
        match &record.cell {
            Cell::Releasing { .. } | Cell::ReleasingAll { .. } => JobPhase::Stopping,
            Cell::Granted { .. } | Cell::Everywhere { .. } if self.failing.contains(name) => {
                JobPhase::Failing
            }
            Cell::Granted { session, .. } if self.unheard.contains(session) => JobPhase::Published,
            Cell::Everywhere { .. } if is_any_unheard => JobPhase::Published,
            Cell::Granted { session, .. } => self.unacknowledged.phase(name, session.is_plain()),
            Cell::Everywhere { .. } => {
                self.unacknowledged.phase(name, self.unacknowledged.has_newcomer)
            }
            Cell::Quarantined { .. } if record.is_quarantined() => JobPhase::Quarantined,
            Cell::Done { .. } => JobPhase::Done,
            Cell::Free { .. } => match self.decision.plan.unassigned.get(name) {
                Some(Unassigned::Suspended) => JobPhase::Suspended,
                Some(_) => JobPhase::Unassigned,
                None => JobPhase::Waiting,
            },
            Cell::Hold { .. } | Cell::Quarantined { .. } => JobPhase::Waiting,
        }
    }
}

/// The grants that their sessions have not acknowledged yet.
///
/// It is a memory of one observer. An observer that starts late counts every grant of a session
/// that has not acknowledged its newest view. At rest it is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unacknowledged {
    /// The position of the ledger that was observed last.
    seen: Option<Position>,
    /// The revision that grants each of these jobs.
    since: BTreeMap<JobName, u64>,
    /// Whether no worker exists, or one is plain or has acknowledged nothing yet. Then jobs of all
    /// workers are not known to run on each.
    has_newcomer: bool,
}

impl Unacknowledged {
    /// Observes `ledger` after a turn that granted the jobs in `granted`.
    ///
    /// `acknowledged` returns the revision up to which a session has acknowledged a job of its
    /// view, as [`Overseer::acknowledged`](crate::overseer::Overseer::acknowledged) does.
    /// O(jobs) at first and after a gap in the revisions, else O(grants · sessions).
    ///
    /// ```
    /// use std::collections::BTreeSet;
    /// use swarm_core::{Ledger, Unacknowledged};
    ///
    /// let mut unacknowledged = Unacknowledged::default();
    /// unacknowledged.observe(&Ledger::new(1), &BTreeSet::new(), |_, _| 0);
    /// assert!(unacknowledged.is_empty());
    /// ```
    pub fn observe(
        &mut self,
        ledger: &Ledger,
        granted: &BTreeSet<JobName>,
        acknowledged: impl Fn(&SessionId, &str) -> u64,
    ) {
        let now = ledger.position();
        let follows = self.seen.replace(now).is_some_and(|seen| {
            let is_next = seen.revision + 1 == now.revision;
            seen.incarnation == now.incarnation
                && (is_next || granted.is_empty() && seen.revision == now.revision)
        });
        if follows {
            self.since.extend(granted.iter().map(|job| (job.clone(), now.revision)));
        } else {
            let all = ledger.cells.jobs.keys();
            self.since = all.map(|job| (job.clone(), now.revision)).collect();
        }
        let slots: Vec<_> = ledger.slots.values().map(|record| &record.session).collect();
        self.since.retain(|job, since| {
            let is_behind = |session: &SessionId| {
                !session.is_plain() && acknowledged(session, job.as_str()) < *since
            };
            match ledger.cells.jobs.get(job).map(|record| &record.cell) {
                Some(Cell::Granted { session, .. }) => is_behind(session),
                Some(Cell::Everywhere { .. }) => slots.iter().any(|session| is_behind(session)),
                _ => false,
            }
        });
        let is_newcomer =
            |session: &&SessionId| session.is_plain() || acknowledged(session, "") == 0;
        self.has_newcomer = slots.is_empty() || slots.iter().any(is_newcomer);
    }

    /// Returns whether every session has acknowledged what it was granted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.since.is_empty()
    }

    /// Returns whether the session of this job has not acknowledged its grant.
    #[must_use]
    pub fn has(&self, job: &JobName) -> bool {
        self.since.contains_key(job)
    }

    /// Returns the phase of a granted job that does not fail.
    fn phase(&self, job: &JobName, is_of_a_newcomer: bool) -> JobPhase {
        if is_of_a_newcomer || self.has(job) { JobPhase::Published } else { JobPhase::Running }
    }
}

#[cfg(test)]
mod tests;
