//! Records the signals that a shutdown sends to all processes at once, with the time at which this
//! process received each.

use std::io;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use swarm_adapters_host::caller;
use tokio::signal::unix::{Signal as Signals, SignalKind};
use tokio::time::Instant;

use crate::procs;

/// The time after such a signal within which the end of a job counts as caused by the signal.
pub(crate) const STOPPED_WITHIN: Duration = Duration::from_secs(2);

/// Receivers of the signals that ask a process to end. Signals that the caller ignores are left
/// out.
pub(super) struct Ends {
    terminate: Option<Signals>,
    interrupt: Option<Signals>,
    hangup: Option<Signals>,
}

impl Ends {
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self {
            terminate: caller::heard(SignalKind::terminate())?,
            interrupt: caller::heard(SignalKind::interrupt())?,
            hangup: caller::heard(SignalKind::hangup())?,
        })
    }

    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            () = caller::next(&mut self.terminate) => Signal::TERM,
            () = caller::next(&mut self.interrupt) => Signal::INT,
            () = caller::next(&mut self.hangup) => Signal::HUP,
        }
    }
}

/// The signals that asked this process to end, each with its latest time. All processes may have
/// received them.
#[derive(Debug, Default)]
pub(super) struct Asked(Vec<(Signal, Instant)>);

impl Asked {
    pub(super) fn note(&mut self, kind: Signal) {
        self.0.retain(|(before, _)| *before != kind);
        self.0.push((kind, Instant::now()));
    }

    pub(super) fn last(&self) -> Option<Instant> {
        self.0.last().map(|(_, at)| *at)
    }

    /// Returns whether one of these signals may have reached a live job. A program that neither
    /// catches nor ignores the signal would have died of it.
    pub(super) fn may_have_reached(&self, leader: Pid, started_at: Instant, now: Instant) -> bool {
        self.0.iter().any(|(kind, at)| {
            started_at <= *at
                && now <= *at + STOPPED_WITHIN
                && procs::catches(leader, *kind).unwrap_or(true)
        })
    }
}
