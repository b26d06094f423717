//! The size of a world, and the faults that may happen in it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use swarm_core::handover::{HandoverTerms, LeaseTerms, Policy, Rule, Seat, SessionId};

/// One tick of the world's clock.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// A fault that the bounds of a world may allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Workers and operators crash.
    Crash,
    /// Workers are paused and resumed.
    Pause,
    /// Workers are asked to end.
    Terminate,
    /// Jobs finish.
    Finish,
    /// Views for one session reach another.
    ForeignView,
    /// Ownerships also end by waiting: the policy is `AtLeastOnce`. The length of a wait is not
    /// counted. At any turn, all waits may be over.
    Timeout,
    /// Jobs may be wanted in slots whose workers are expected back, and wait for these workers.
    Hold,
    /// All sessions belong to one pod, one after the other. The next session starts once the
    /// previous one has died. Its start is the only proof that the previous session has ended
    /// without closing its Lease.
    Restart,
    /// The first job that a worker runs is the culprit of its crash, and of two crashes before. The
    /// next session of its pod reports that.
    Poison,
    /// Leases are deleted.
    Delete,
    /// Reads of Leases may be old: they return a Lease from before the session's last change of it.
    OldLease,
    /// Reads of Leases may be of another incarnation of the ledger, in which everything was
    /// acknowledged.
    ForeignLease,
}

/// More sessions than any world has, in two lists: each session in its own pod, and all in one pod.
static SESSIONS: LazyLock<[Vec<SessionId>; 2]> = LazyLock::new(|| {
    const MOST: u64 = 16;
    let apart = (0..MOST).map(|n| SessionId::new(&format!("pod-{n}"), n));
    [apart.collect(), (0..MOST).map(|n| SessionId::new("pod", n)).collect()]
});

/// The size of a world, and the faults that may happen in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The largest number of states of the ledger, the empty one included.
    pub versions: usize,
    /// The largest number of sessions.
    pub sessions: usize,
    /// The number of jobs.
    pub jobs: usize,
    /// The most jobs that a session may have; `None` for any number.
    pub max_jobs: Option<u32>,
    /// The number of operators, which act without knowing about each other.
    pub operators: usize,
    /// The duration of a lease, in ticks.
    pub lease: u32,
    /// The interval between two renewals of a session, in ticks; zero if a renewal is always due.
    pub renew: u32,
    /// The number of ticks that a worker's clock may miss per lease.
    pub drift: u32,
    /// The stop timeout, in ticks.
    pub stop: u32,
    /// The number of writes of one session that may be on their way at once. More than one allows
    /// late writes.
    pub in_flight: usize,
    /// Whether it begins with an empty ledger and workers that have only just sent their first
    /// write. Otherwise it begins with all sessions known and all jobs granted to the first
    /// session.
    pub starts_empty: bool,
    /// The faults that may happen in addition to lost and delayed messages, and time.
    pub faults: &'static [Fault],
    /// The rule that is broken on purpose.
    pub broken: Option<Rule>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            versions: 3,
            sessions: 2,
            jobs: 1,
            max_jobs: None,
            operators: 1,
            lease: 1,
            renew: 0,
            drift: 0,
            stop: 0,
            in_flight: 1,
            starts_empty: false,
            faults: &[Fault::Crash],
            broken: None,
        }
    }
}

impl Bounds {
    pub(crate) fn may(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    /// The identity of session number `n`.
    pub(crate) fn session(&self, n: usize) -> &'static SessionId {
        &SESSIONS[usize::from(self.may(Fault::Restart))][n]
    }

    /// The seat of every session.
    pub(crate) fn seats(&self) -> BTreeMap<SessionId, Seat> {
        let seat = Seat { max_jobs: self.max_jobs, ..Seat::default() };
        (0..self.sessions).map(|n| (self.session(n).clone(), seat)).collect()
    }

    /// The number of sessions at the beginning.
    pub(crate) fn sessions_at_first(&self) -> usize {
        if self.may(Fault::Restart) { 1 } else { self.sessions }
    }

    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }

    /// The terms of the Leases. The drift is the slack, since both are counted in whole ticks here.
    /// With `DriftMargin` broken, an operator waits for the duration alone.
    pub(crate) fn lease_terms(&self) -> LeaseTerms {
        let drift = if self.keeps(Rule::DriftMargin) { self.drift } else { 0 };
        LeaseTerms {
            duration: TICK * self.lease,
            renew: TICK * self.renew,
            stop_timeout: TICK * self.stop,
            drift_permille: 0,
            slack: TICK * drift,
        }
    }

    pub(crate) fn handover_terms(&self) -> HandoverTerms {
        let policy = if self.may(Fault::Timeout) { Policy::AtLeastOnce } else { Policy::Exclusive };
        HandoverTerms { policy, ..HandoverTerms::default() }
    }
}

/// Writes the bounds as in `3 2 1 1 T2 d1 s0 w1 Crash Pause`. The first four numbers are versions,
/// sessions, jobs and operators. `T`, `d`, `s` and `w` mean lease, drift, stop timeout and writes in
/// flight. The faults follow. `r1` appears if renewals are not always due.
impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { versions, sessions, jobs, operators, lease, drift, stop, in_flight, .. } = self;
        write!(
            f,
            "{versions} {sessions} {jobs} {operators} T{lease} d{drift} s{stop} w{in_flight}"
        )?;
        if self.starts_empty {
            write!(f, " empty")?;
        }
        if self.renew != 0 {
            write!(f, " r{}", self.renew)?;
        }
        if let Some(max) = self.max_jobs {
            write!(f, " max{max}")?;
        }
        self.faults.iter().try_for_each(|fault| write!(f, " {fault:?}"))
    }
}
