//! The state of a watch so far, shared by its readers and its one writer.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;

use crate::locks::unpoisoned;

/// A state that a watch keeps up to date, and whether it is complete. Clones share the state.
pub(crate) struct Followed<S>(Arc<Shared<S>>);

struct Shared<S> {
    state: Mutex<S>,
    filled: watch::Sender<bool>,
}

impl<S> Clone for Followed<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: Default> Default for Followed<S> {
    fn default() -> Self {
        Self(Arc::new(Shared { state: Mutex::default(), filled: watch::Sender::new(false) }))
    }
}

impl<S> Followed<S> {
    /// Locks the state.
    pub(crate) fn state(&self) -> MutexGuard<'_, S> {
        unpoisoned(&self.0.state)
    }

    /// Whether the first complete state was seen.
    pub(crate) fn is_filled(&self) -> bool {
        *self.0.filled.borrow()
    }

    /// Records that a complete state was seen.
    pub(crate) fn fill(&self) {
        self.0.filled.send_replace(true);
    }

    /// Waits until a complete state was seen.
    pub(crate) async fn wait_until_filled(&self) {
        // The sender lives as long as `self`, so the wait cannot fail.
        let _ = self.0.filled.subscribe().wait_for(|filled| *filled).await;
    }
}
