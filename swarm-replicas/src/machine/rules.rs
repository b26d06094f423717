//! The rules that keep two members from acting on one key, by name.

/// A rule without which two members could act on one key at a time.
///
/// Nothing chooses among them: they all hold. They have names so that a model check can break each
/// one on purpose (feature `mutations`) and show that it notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// A gained bucket starts only after the watch has returned the member's own write.
    AwaitOwnWrite,
    /// A set is declared only after everything that is lost by it was stopped.
    StopBeforeWrite,
    /// A member whose Lease is revoked or deleted counts until it was waited out.
    FenceBeforeTaking,
    /// Every other member's set counts, and not only that of the former owner.
    AllAcknowledge,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 4] =
        [Self::AwaitOwnWrite, Self::StopBeforeWrite, Self::FenceBeforeTaking, Self::AllAcknowledge];
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
