//! Actions of a person on one job.

/// An action on one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Stop the run of the job, and begin another one at once.
    Restart,
    /// Begin a job again that is not restarted any more.
    Retry,
    /// Stop the job until it is resumed.
    Suspend,
    /// Let a suspended job run again.
    Resume,
}

impl Action {
    /// All actions.
    pub const ALL: [Self; 4] = [Self::Restart, Self::Retry, Self::Suspend, Self::Resume];

    /// Returns the word about an action that had an effect, such as `restarted`.
    #[must_use]
    pub const fn done(self) -> &'static str {
        match self {
            Self::Restart => "restarted",
            Self::Retry => "retried",
            Self::Suspend => "suspended",
            Self::Resume => "resumed",
        }
    }

    /// Returns the word of the command, such as `restart`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Restart => "restart",
            Self::Retry => "retry",
            Self::Suspend => "suspend",
            Self::Resume => "resume",
        }
    }
}
