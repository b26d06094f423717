//! The phases of a job on its worker, and the version of it that runs.

use serde::{Deserialize, Serialize};

/// The phase of a job on its worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "&'static str")]
pub enum JobPhase {
    /// It is not restarted any more.
    Failed,
    /// It ended by itself and begins again after a pause, or it is stopped to begin again.
    Restarting,
    /// It failed its check of liveness, and is stopped to begin again.
    Stalled,
    /// It was asked to stop.
    Stopping,
    /// It is being started, or has not passed its check of readiness.
    Starting,
    /// Its last run succeeded, and the next one begins after a pause.
    Waiting,
    /// It runs, without a check of readiness.
    #[default]
    Running,
    /// It has passed its check of readiness.
    Ready,
}

impl JobPhase {
    const ALL: [Self; 8] = [
        Self::Failed,
        Self::Restarting,
        Self::Stalled,
        Self::Stopping,
        Self::Starting,
        Self::Waiting,
        Self::Running,
        Self::Ready,
    ];

    /// Returns the phase as one word in lower case, such as `running`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Restarting => "restarting",
            Self::Stalled => "stalled",
            Self::Stopping => "stopping",
            Self::Starting => "starting",
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Ready => "ready",
        }
    }
}

impl From<JobPhase> for &'static str {
    fn from(phase: JobPhase) -> Self {
        phase.as_str()
    }
}

/// Reads a word. The phase of a later version counts as running.
impl From<String> for JobPhase {
    fn from(word: String) -> Self {
        Self::ALL.into_iter().find(|phase| phase.as_str() == word).unwrap_or_default()
    }
}

/// The version of a job that runs: the command, environment, directory and params that started it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "&'static str")]
pub enum JobVersion {
    /// The newest version, or none.
    #[default]
    Newest,
    /// A previous version. The job waits for its turn to be restarted.
    Previous,
    /// The newest version, which failed. It may hold back jobs that run a previous version.
    Failed,
}

impl JobVersion {
    const ALL: [Self; 3] = [Self::Newest, Self::Previous, Self::Failed];

    /// Returns the version as one word in lower case, such as `previous`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Newest => "newest",
            Self::Previous => "previous",
            Self::Failed => "failed",
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(super) fn is_newest(&self) -> bool {
        *self == Self::Newest
    }
}

impl From<JobVersion> for &'static str {
    fn from(version: JobVersion) -> Self {
        version.as_str()
    }
}

/// Reads a word. A word of a later version counts as the newest.
impl From<String> for JobVersion {
    fn from(word: String) -> Self {
        Self::ALL.into_iter().find(|version| version.as_str() == word).unwrap_or_default()
    }
}
