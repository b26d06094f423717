//! The phases of a job on its worker.

use serde::{Deserialize, Serialize};

/// The phase of a job on its worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "&'static str")]
pub enum JobPhase {
    /// It is not restarted any more.
    Failed,
    /// It ended by itself and begins again after a pause.
    Restarting,
    /// It failed its check of liveness, and is stopped to begin again.
    Stalled,
    /// It was asked to stop.
    Stopping,
    /// It is being started, or has not passed its check of readiness.
    Starting,
    /// It runs, without a check of readiness.
    #[default]
    Running,
    /// It has passed its check of readiness.
    Ready,
}

impl JobPhase {
    const ALL: [Self; 7] = [
        Self::Failed,
        Self::Restarting,
        Self::Stalled,
        Self::Stopping,
        Self::Starting,
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
