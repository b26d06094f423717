//! The rules that keep two members from acting on one key, by name.

/// A rule without which two members could act on one key at a time.
///
/// All rules always hold. Each has a name so that a model check can break it on purpose (feature
/// `mutations`) and show that it notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// A gained bucket starts only after the watch has returned the member's own write.
    AwaitOwnWrite,
    /// A member declares a set only after it has stopped everything that it loses by that set.
    StopBeforeWrite,
    /// A member whose Lease is revoked or deleted counts until it has been waited out.
    FenceBeforeTaking,
    /// The sets of all other members count, not only the set of the previous owner.
    AllAcknowledge,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 4] =
        [Self::AwaitOwnWrite, Self::StopBeforeWrite, Self::FenceBeforeTaking, Self::AllAcknowledge];
}

/// The rules in force: all of them, unless a model check has broken one.
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

    /// Whether `rule` is in force, which is always true here.
    #[cfg(not(feature = "mutations"))]
    #[must_use]
    pub const fn keep(self, _: Rule) -> bool {
        true
    }
}
