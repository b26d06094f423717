//! The outputs of the operation: plain lines or a screen, snapshots, metrics.
#![cfg_attr(
    not(feature = "terminal"),
    allow(dead_code, reason = "without a screen nothing reads what it would show")
)]

use std::sync::Arc;
use std::time::Duration;

use swarm_adapters_host::metrics::PoolMetrics;
use swarm_core::Turn;
use swarm_core::ports::StoreError;
use swarm_spec::manifest::Explained;
use tokio::sync::{mpsc, watch};

use super::output::complain_in_lines;
use super::reports::Reports;
use super::snapshot::Snapshot;
use super::terminal;
use super::text::{self, Settled};

/// The outputs of the operation.
pub(super) struct Outlets {
    pub(super) voice: Voice,
    pub(super) snapshots: watch::Sender<Arc<Snapshot>>,
    pub(super) metrics: PoolMetrics,
    /// The reports of the workers.
    pub(super) reports: Reports,
}

/// Messages to the user. All of them also go to the operator's log.
#[derive(Clone, Debug)]
pub(super) enum Voice {
    /// Lines on standard output, problems on standard error.
    Lines,
    /// The log of a screen.
    Screen(mpsc::Sender<Message>),
}

/// A message to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// An expected event.
    Info(String),
    /// A problem.
    Problem(String),
    /// The pool became settled.
    Settled(String),
}

/// Paths of the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Paths {
    /// The file to edit, as the user wrote it, if edits are followed.
    pub(super) file: Option<String>,
    /// The state directory.
    pub(super) dir: String,
}

impl Outlets {
    /// Reports and publishes the end of the pool.
    pub(super) fn ended(&self, sentence: &str) {
        self.voice.say(sentence);
        self.snapshots.send_modify(|snapshot| {
            let mut ended = Snapshot::clone(snapshot);
            ended.ending.get_or_insert_default().last = Some(sentence.to_owned());
            *snapshot = Arc::new(ended);
        });
    }

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
            Self::Screen(_) => self.show(Message::Info(sentence.to_owned())),
        }
    }

    pub(super) fn complain(&self, sentence: &str) {
        tracing::warn!("{sentence}");
        match self {
            Self::Lines => complain_in_lines(sentence),
            Self::Screen(_) => self.show(Message::Problem(sentence.to_owned())),
        }
    }

    /// Reports a refused edit, with the invalid line.
    pub(super) fn refuse(&self, explained: &Explained) {
        let Explained { sentence, excerpt } = explained;
        self.complain(&format!("{sentence}; the last valid state stays"));
        if let (Self::Lines, Some(excerpt)) = (self, excerpt) {
            text::remark(excerpt);
        }
    }

    pub(super) fn settled(&self, settled: &Settled<'_>) {
        let headline = settled.headline();
        tracing::info!("{headline}");
        match self {
            Self::Lines => text::say(&settled.report(terminal::columns())),
            Self::Screen(_) if 0 < settled.failing => self.show(Message::Problem(headline)),
            Self::Screen(_) => self.show(Message::Settled(headline)),
        }
    }

    fn show(&self, message: Message) {
        if let Self::Screen(screen) = self {
            // A blocked terminal must not delay the workers. Messages that do not fit are still in
            // the log.
            let _ = screen.try_send(message);
        }
    }
}
