//! The stop of a program, in terms that need no Kubernetes.

use std::time::Duration;

use crate::spec::{StopSignal, StopSpec, StopTo};

/// The way in which a program is stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stop {
    /// The signal that asks it to end.
    pub signal: StopSignal,
    /// The processes that get the signal.
    pub to: StopTo,
    /// The time until it is killed; `None` means the time that its worker gives to all jobs.
    pub timeout: Option<Duration>,
}

impl Stop {
    /// Reads `spec`.
    pub(super) fn read(spec: &StopSpec) -> Self {
        let StopSpec { signal, to, timeout } = spec;
        Self {
            signal: signal.unwrap_or_default(),
            to: to.unwrap_or_default(),
            timeout: timeout.map(Duration::from),
        }
    }
}
