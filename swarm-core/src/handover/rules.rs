//! The rules that keep two sessions from running one job, by name.

/// A rule of the protocol without which two live sessions could run one job, or a job would wait for
/// longer than it has to.
///
/// Callers cannot choose among the rules: all rules hold. They have names so that a model check can
/// break each rule on purpose (feature `mutations`) and show that it notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// The ledger changes only if it still is the ledger from which the change was made.
    CompareAndSet,
    /// A session acts only on views that are newer than all views it has seen.
    NewerViewsOnly,
    /// A session acknowledges a view only after the jobs that it releases were stopped and joined.
    JoinBeforeAck,
    /// A job that is being released is granted only after the acknowledgement, or an end by proof.
    AckBeforeGrant,
    /// A silent session is fenced only after its lease was revoked; watching it proves nothing.
    RevokeBeforeFence,
    /// The wait after a revocation allows for clocks that run at different rates.
    DriftMargin,
    /// A session counts its deadline from before it sent the renewal, not from the answer.
    DeadlineFromSending,
    /// A session that was paused checks its deadline before anything else runs.
    CheckOnResume,
    /// A view is for one session, not for any worker with the same pod name.
    SessionIdentity,
    /// A session closes only after all its jobs were joined.
    JoinBeforeClose,
    /// A lease is revoked only at the version from which the wait is counted.
    RevokeAtSeenVersion,
    /// A session lists a job as one that it is stopping until the job was joined.
    NameUntilJoined,
    /// A session lists all jobs that it is stopping, or lists none.
    NameAllOrNone,
    /// A job that its session lists as stopping counts as not released.
    HoldTheNamed,
    /// Revisions of another incarnation of the ledger prove nothing.
    AckOfThisIncarnation,
    /// A copy of a lease withdraws nothing that an earlier or later copy proved.
    KeepWhatIsProved,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 16] = [
        Self::CompareAndSet,
        Self::NewerViewsOnly,
        Self::JoinBeforeAck,
        Self::AckBeforeGrant,
        Self::RevokeBeforeFence,
        Self::DriftMargin,
        Self::DeadlineFromSending,
        Self::CheckOnResume,
        Self::SessionIdentity,
        Self::JoinBeforeClose,
        Self::RevokeAtSeenVersion,
        Self::NameUntilJoined,
        Self::NameAllOrNone,
        Self::HoldTheNamed,
        Self::AckOfThisIncarnation,
        Self::KeepWhatIsProved,
    ];
}

/// The rules in force: all of them, unless a model check broke one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rules {
    #[cfg(feature = "mutations")]
    broken: Option<Rule>,
}

impl Rules {
    /// All rules but one.
    #[cfg(feature = "mutations")]
    #[must_use]
    pub fn without(rule: Rule) -> Self {
        Self { broken: Some(rule) }
    }

    /// Whether `rule` is in force.
    #[cfg(feature = "mutations")]
    #[must_use]
    pub fn keep(self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }

    /// Whether `rule` is in force: always.
    #[cfg(not(feature = "mutations"))]
    #[must_use]
    pub const fn keep(self, _: Rule) -> bool {
        true
    }
}
