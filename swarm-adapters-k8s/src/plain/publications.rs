//! What this process published for a Swarm, and when: later turns wait for workers to read it.

use std::time::Duration;

use swarm_core::Turn;
use tokio::time::Instant;

/// What this process published for a Swarm, and when.
pub(crate) struct Publications {
    /// When this process began to look after it.
    since: Instant,
    /// The view's version, and when this process changed it.
    version: u64,
    pub(crate) changed: Option<Instant>,
    /// When plain workers were last asked to release jobs; at first, when watching began, since an
    /// earlier process may have asked them.
    pub(crate) handed_over: Instant,
}

impl Publications {
    /// Nothing since `now`.
    pub(crate) fn since(now: Instant) -> Self {
        Self { since: now, version: 0, changed: None, handed_over: now }
    }

    /// How long ago this process changed the view, or began.
    pub(crate) fn since_change(&self) -> Duration {
        self.changed.unwrap_or(self.since).elapsed()
    }

    /// Remembers when what was published.
    pub(crate) fn remember(&mut self, turn: &Turn) {
        let Turn { decision, changed } = turn;
        if *changed && self.version != decision.ledger.version {
            self.changed = Some(Instant::now());
        }
        self.version = decision.ledger.version;
        if *changed && decision.plan.moves.iter().any(|step| step.from.is_some()) {
            self.handed_over = Instant::now();
        }
    }
}
