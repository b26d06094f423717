//! The stop of a program, in terms that need no Kubernetes.

use std::time::Duration;

use crate::spec::{StopSignal, StopSpec, StopTo};
use crate::template::Template;

/// The way in which a program is stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stop {
    /// The signal that asks it to end.
    pub signal: StopSignal,
    /// The processes that get the signal.
    pub to: StopTo,
    /// The program that stops it instead of the signal; empty without one.
    pub command: Vec<Template>,
    /// The time until it is killed; `None` means the time that its worker gives to all jobs.
    pub timeout: Option<Duration>,
}

impl Stop {
    /// Takes the fields of `spec`, with its command as it was read.
    pub(super) fn of(spec: &StopSpec, command: Vec<Template>) -> Self {
        let StopSpec { signal, to, command: _, timeout } = spec;
        Self {
            signal: signal.unwrap_or_default(),
            to: to.unwrap_or_default(),
            command,
            timeout: timeout.map(Duration::from),
        }
    }
}
