//! What a session asks its store for, each question bounded in time, and what the answers mean.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use swarm_core::handover::LeaseWrite;
use swarm_core::ports::{SessionStore, StoreError};
use swarm_core::session::SessionEvent;
use tokio::time::timeout;

/// What came of a question.
#[derive(Debug)]
pub(super) struct Answer {
    /// What it means for the session, if anything.
    pub(super) event: Option<SessionEvent>,
    /// What went wrong: a sentence without its full stop.
    pub(super) complaint: Option<String>,
}

impl Answer {
    fn told(event: SessionEvent) -> Self {
        Self { event: Some(event), complaint: None }
    }

    /// None came, so write `number` may have happened or not.
    pub(super) fn lost(number: u64, reason: &dyn std::fmt::Display) -> Self {
        let event = Some(SessionEvent::Lost { number });
        Self { event, complaint: Some(reason.to_string()) }
    }
}

pub(super) async fn write(
    store: Arc<dyn SessionStore>,
    write: LeaseWrite,
    patience: Duration,
) -> Answer {
    let number = write.number;
    match timeout(patience, store.write(&write)).await {
        Ok(Ok(version)) => Answer::told(SessionEvent::Written { number, version }),
        Ok(Err(StoreError::Conflict { .. })) => Answer::told(SessionEvent::Conflict { number }),
        Ok(Err(error)) => Answer::lost(number, &in_full(&error)),
        Err(_) => Answer::lost(number, &format!("the lease was not written within {patience:?}")),
    }
}

/// Reads the lease, since write `number` was in conflict with it.
pub(super) async fn read_lease(
    store: Arc<dyn SessionStore>,
    number: u64,
    patience: Duration,
) -> Answer {
    match timeout(patience, store.read()).await {
        Ok(Ok(lease)) => Answer::told(SessionEvent::LeaseRead(lease)),
        Ok(Err(error)) => Answer::lost(number, &in_full(&error)),
        Err(_) => Answer::lost(number, &format!("the lease was not read within {patience:?}")),
    }
}

/// Reads how far the ledger is. It is asked again after the next write if there is no answer.
pub(super) async fn read_ledger(store: Arc<dyn SessionStore>, patience: Duration) -> Answer {
    let complaint = match timeout(patience, store.position()).await {
        Ok(Ok(Some(position))) => {
            let (incarnation, revision) = (position.incarnation, position.revision);
            return Answer::told(SessionEvent::LedgerRead { incarnation, revision });
        }
        Ok(Ok(None)) => "nobody says how far the ledger is, so the jobs stay stopped".to_owned(),
        Ok(Err(error)) => in_full(&error),
        Err(_) => format!("the ledger was not read within {patience:?}"),
    };
    Answer { event: None, complaint: Some(complaint) }
}

/// An error with all its causes.
fn in_full(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
