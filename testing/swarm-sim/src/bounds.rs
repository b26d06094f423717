//! How large a world is, and what may happen in it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use swarm_core::handover::{HandoverTerms, LeaseTerms, Policy, Rule, Seat, SessionId};

/// One tick of the world's clock.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// Something that may happen, or not, by the bounds of a world.
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
    /// Ownerships end by waiting, too: the policy is at least once. How long is not counted: all
    /// that is waited for may be over at any turn.
    Timeout,
    /// Jobs are wanted in slots whose workers are expected back, and wait for them.
    Hold,
    /// All sessions are of one pod, one after the other: the next starts once the last has died. That
    /// it started is the only proof that the last has ended without a word.
    Restart,
    /// The first job a worker runs is to blame for its crash, and was for two crashes before. The next
    /// session of its pod says so.
    Poison,
    /// Leases are deleted.
    Delete,
    /// Reads of Leases may be old: what a session said before it said something else.
    OldLease,
    /// Reads of Leases may be of another incarnation of the ledger, in which all was acknowledged.
    ForeignLease,
}

/// More sessions than any world has: each in a pod of its own, and all in one.
static SESSIONS: LazyLock<[Vec<SessionId>; 2]> = LazyLock::new(|| {
    const MOST: u64 = 16;
    let apart = (0..MOST).map(|n| SessionId::new(&format!("pod-{n}"), n));
    [apart.collect(), (0..MOST).map(|n| SessionId::new("pod", n)).collect()]
});

/// How large a world is, and what may happen in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How many states of the ledger there can be, the empty one included.
    pub versions: usize,
    /// How many sessions there can be.
    pub sessions: usize,
    /// How many jobs there are.
    pub jobs: usize,
    /// The most jobs that a session may have; `None` for any number.
    pub max_jobs: Option<u32>,
    /// How many operators act, without knowing of each other.
    pub operators: usize,
    /// The duration of a lease, in ticks.
    pub lease: u32,
    /// How often a session renews, in ticks; zero for always.
    pub renew: u32,
    /// How many ticks a worker's clock may miss per lease.
    pub drift: u32,
    /// The stop timeout, in ticks.
    pub stop: u32,
    /// How many writes of one session may be on their way at once; more than one allows late ones.
    pub in_flight: usize,
    /// Whether it begins with an empty ledger and workers that have only just sent their first
    /// write, or with all sessions known and all jobs granted to the first.
    pub starts_empty: bool,
    /// What may happen besides the protocol, lost and delayed messages, and time.
    pub faults: &'static [Fault],
    /// Which rule is broken on purpose.
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

    /// The identity of a session.
    pub(crate) fn session(&self, n: usize) -> &'static SessionId {
        &SESSIONS[usize::from(self.may(Fault::Restart))][n]
    }

    /// What holds for every session.
    pub(crate) fn seats(&self) -> BTreeMap<SessionId, Seat> {
        let seat = Seat { max_jobs: self.max_jobs, ..Seat::default() };
        (0..self.sessions).map(|n| (self.session(n).clone(), seat)).collect()
    }

    /// How many sessions there are from the beginning.
    pub(crate) fn sessions_at_first(&self) -> usize {
        if self.may(Fault::Restart) { 1 } else { self.sessions }
    }

    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }

    /// The drift is the slack: both are counted in whole ticks here. Without the rule, an operator
    /// waits for the duration alone.
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

/// As in `3 2 1 1 T2 d1 s0 w1 Crash Pause`: versions, sessions, jobs, operators, lease, drift, stop
/// timeout, writes in flight; `r1` if renewals are not always due.
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
