//! The state of a watch so far, shared by its readers and its one writer.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;

use crate::locks::unpoisoned;

/// A state that a watch keeps up to date, and whether it is complete. Its clones share it.
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

    /// A complete state was seen.
    pub(crate) fn fill(&self) {
        self.0.filled.send_replace(true);
    }

    /// Returns once a complete state was seen.
    pub(crate) async fn wait_until_filled(&self) {
        // The sender lives as long as this.
        let _ = self.0.filled.subscribe().wait_for(|filled| *filled).await;
    }
}
