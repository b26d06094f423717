//! Where the operation tells what happens: plain lines or a screen, snapshots, counters.

use std::sync::Arc;
use std::time::Duration;

use swarm_adapters_host::metrics::PoolMetrics;
use swarm_core::Turn;
use swarm_core::ports::StoreError;
use tokio::sync::{mpsc, watch};

use super::snapshot::Snapshot;
use super::text::{self, Settled};

/// Everything that the operation tells, and to whom.
pub(super) struct Outlets {
    pub(super) voice: Voice,
    pub(super) snapshots: watch::Sender<Arc<Snapshot>>,
    pub(super) metrics: PoolMetrics,
}

/// What a person is told. All of it goes to the operator's log as well.
#[derive(Clone, Debug)]
pub(super) enum Voice {
    /// Lines on standard output, complaints on standard error.
    Lines,
    /// The log of a screen.
    Screen(mpsc::Sender<Happening>),
}

/// One thing that a person is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Happening {
    /// Something that was to be expected.
    Said(String),
    /// Something that went wrong.
    Complaint(String),
    /// Every job runs where it should.
    Settled(String),
}

impl Outlets {
    /// Counts a turn.
    pub(super) fn turned(&self, took: Duration, turned: &Result<Turn, StoreError>) {
        let result = match turned {
            Ok(turn) => {
                if turn.changed {
                    self.metrics.wrote();
                }
                "ok"
            }
            Err(StoreError::Conflict { .. }) => "conflict",
            Err(StoreError::Unavailable { .. }) => "unavailable",
            Err(StoreError::Refused { .. }) => "refused",
        };
        self.metrics.turned(result, took);
    }
}

impl Voice {
    pub(super) fn say(&self, sentence: &str) {
        tracing::info!("{sentence}");
        match self {
            Self::Lines => text::say(sentence),
            Self::Screen(_) => self.show(Happening::Said(sentence.to_owned())),
        }
    }

    pub(super) fn complain(&self, sentence: &str) {
        tracing::warn!("{sentence}");
        match self {
            Self::Lines => text::complain(sentence),
            Self::Screen(_) => self.show(Happening::Complaint(sentence.to_owned())),
        }
    }

    pub(super) fn settled(&self, settled: &Settled<'_>) {
        let headline = settled.headline();
        tracing::info!("{headline}");
        match self {
            Self::Lines => text::say(&settled.told(swarm_adapters_host::terminal::columns())),
            Self::Screen(_) => self.show(Happening::Settled(headline)),
        }
    }

    fn show(&self, happening: Happening) {
        if let Self::Screen(screen) = self {
            // A terminal that takes nothing any more must not hold up the workers; what does not
            // fit is in the log.
            let _ = screen.try_send(happening);
        }
    }
}
