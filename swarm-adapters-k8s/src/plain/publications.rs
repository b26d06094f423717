//! Latest publications of this process for a Swarm, with their times. Later turns wait for workers
//! to read them.

use std::time::Duration;

use swarm_core::Turn;
use tokio::time::Instant;

/// The latest publications of this process for a Swarm.
pub(crate) struct Publications {
    /// The time at which this process began to manage the Swarm.
    since: Instant,
    /// The view's version, and the time at which this process changed it.
    version: u64,
    pub(crate) changed: Option<Instant>,
    /// The time at which plain workers were last asked to release jobs. At first it is the start of
    /// the watch, since an earlier process may have asked them.
    pub(crate) handed_over: Instant,
}

impl Publications {
    /// No publications before `now`.
    pub(crate) fn since(now: Instant) -> Self {
        Self { since: now, version: 0, changed: None, handed_over: now }
    }

    /// Time since this process changed the view, or since it began.
    pub(crate) fn since_change(&self) -> Duration {
        self.changed.unwrap_or(self.since).elapsed()
    }

    /// Records the times of the turn's publications.
    pub(crate) fn remember(&mut self, turn: &Turn) {
        let Turn { decision, changed, .. } = turn;
        if *changed && self.version != decision.ledger.version {
            self.changed = Some(Instant::now());
        }
        self.version = decision.ledger.version;
        if *changed && decision.plan.moves.iter().any(|step| step.from.is_some()) {
            self.handed_over = Instant::now();
        }
    }
}
