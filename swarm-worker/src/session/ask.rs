//! A session's requests to its store, each with a timeout, and the events in their answers.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use swarm_core::handover::LeaseWrite;
use swarm_core::ports::{SessionStore, StoreError};
use swarm_core::session::SessionEvent;
use tokio::time::timeout;

/// The result of a request.
#[derive(Debug)]
pub(super) struct Answer {
    /// The event for the session, if there is one.
    pub(super) event: Option<SessionEvent>,
    /// The problem, if there was one: a sentence without its full stop.
    pub(super) problem: Option<String>,
}

impl Answer {
    fn event(event: SessionEvent) -> Self {
        Self { event: Some(event), problem: None }
    }

    /// Creates the answer for a lost response: write `number` may have landed or not.
    pub(super) fn lost(number: u64, reason: &dyn std::fmt::Display) -> Self {
        let event = Some(SessionEvent::Lost { number });
        Self { event, problem: Some(reason.to_string()) }
    }
}

pub(super) async fn write(
    store: Arc<dyn SessionStore>,
    write: LeaseWrite,
    limit: Duration,
) -> Answer {
    let number = write.number;
    match timeout(limit, store.write(&write)).await {
        Ok(Ok(version)) => Answer::event(SessionEvent::Written { number, version }),
        Ok(Err(StoreError::Conflict { .. })) => Answer::event(SessionEvent::Conflict { number }),
        Ok(Err(error)) => Answer::lost(number, &in_full(&error)),
        Err(_) => Answer::lost(number, &format!("the lease was not written within {limit:?}")),
    }
}

/// Reads the lease after a conflict with write `number`.
pub(super) async fn read_lease(
    store: Arc<dyn SessionStore>,
    number: u64,
    limit: Duration,
) -> Answer {
    match timeout(limit, store.read()).await {
        Ok(Ok(lease)) => Answer::event(SessionEvent::LeaseRead(lease)),
        Ok(Err(error)) => Answer::lost(number, &in_full(&error)),
        Err(_) => Answer::lost(number, &format!("the lease was not read within {limit:?}")),
    }
}

/// Reads the ledger's position after write `number`. If the read fails, it is repeated after the
/// next write.
pub(super) async fn read_ledger(
    store: Arc<dyn SessionStore>,
    number: u64,
    limit: Duration,
) -> Answer {
    let problem = match timeout(limit, store.position()).await {
        Ok(Ok(Some(position))) => {
            let (incarnation, revision) = (position.incarnation, position.revision);
            return Answer::event(SessionEvent::LedgerRead { number, incarnation, revision });
        }
        Ok(Ok(None)) => {
            "the ledger's position is not published, so the jobs stay stopped".to_owned()
        }
        Ok(Err(error)) => in_full(&error),
        Err(_) => format!("the ledger was not read within {limit:?}"),
    };
    Answer { event: None, problem: Some(problem) }
}

/// Formats an error with all its causes.
fn in_full(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
