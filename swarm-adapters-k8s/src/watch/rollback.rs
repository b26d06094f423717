//! Detects that the store behind the API server was rolled back to an older copy, and tracks the
//! watches that have listed everything again since.
//!
//! A resumed watch names the version that it has seen. A store that was rolled back has not reached
//! this version, and sends nothing until it has. So that watch never shows undone writes, nor the
//! writes of that interval. Any component that finds evidence of a rollback reports it here. Every
//! watch then begins with a list, and no turn runs before all lists are complete.
//!
//! Evidence is an answer from the store itself that is older than an earlier observation. Evidence
//! counts once: an observation from before the last rollback proves nothing about another one.
//!
//! Each watch also lists every ten minutes, for a rollback that left no evidence. The newest
//! version of a list proves nothing: a restored store writes dozens of versions before it serves
//! requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

use super::refused::RefusedWatches;

/// The number of rollbacks noticed so far. Each memory about the store belongs to one epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(u64);

/// The rollbacks of one API server's store, and the watches that it refuses. Its clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Rollbacks(Arc<watch::Sender<State>>, RefusedWatches);

#[derive(Debug, Default)]
struct State {
    epoch: Epoch,
    /// The epoch in which each watch last listed everything, by the number of the watch.
    listed: BTreeMap<u64, Epoch>,
    registered: u64,
}

impl Rollbacks {
    /// Makes the state of watches whose refusals are noted in `refused`.
    pub(crate) fn noting(refused: RefusedWatches) -> Self {
        Self(Arc::default(), refused)
    }

    /// The watches that the API server refuses.
    pub(crate) fn refused(&self) -> &RefusedWatches {
        &self.1
    }

    /// The present epoch.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.0.borrow().epoch
    }

    /// Reports that the store's answer is older than an observation from the epoch `seen_in`.
    /// Returns whether this is news.
    ///
    /// `evidence` is a sentence for the log.
    pub fn report(&self, seen_in: Epoch, evidence: &str) -> bool {
        let is_news = self.0.send_if_modified(|state| {
            let is_news = state.epoch == seen_in;
            state.epoch.0 += u64::from(is_news);
            is_news
        });
        if is_news {
            tracing::warn!(evidence, "the API server's store was rolled back; listing everything");
        }
        is_news
    }

    /// Compares an answer of the store with the version that was `seen` before the request, and
    /// reports a rollback if the answer is older. Returns whether it is. Version 0 means no
    /// version, and proves nothing.
    pub(crate) fn compare(
        &self,
        seen_in: Epoch,
        seen: u64,
        answered: u64,
        object: impl FnOnce() -> String,
    ) -> bool {
        let is_older = 0 < answered && answered < seen;
        if is_older {
            let object = object();
            self.report(seen_in, &format!("{object} is at version {answered} and was at {seen}"));
        }
        is_older
    }

    /// The epoch of all that the watches keep; `None` while one of them has not listed everything
    /// since the last rollback.
    #[must_use]
    pub fn listed(&self) -> Option<Epoch> {
        let state = self.0.borrow();
        state.listed.values().all(|listed| *listed == state.epoch).then_some(state.epoch)
    }

    /// Returns once the epoch is another than `epoch`.
    pub(crate) async fn after(&self, epoch: Epoch) {
        // The sender lives as long as `self`, so the wait cannot fail.
        let _ = self.0.subscribe().wait_for(|state| state.epoch != epoch).await;
    }

    /// Registers a watch that lists for the first time, in the present epoch. Turns do not wait for
    /// it here, since its state has no readers before its first list is complete.
    pub(crate) fn register(&self) -> Listing {
        let mut id = 0;
        self.0.send_modify(|state| {
            state.registered += 1;
            id = state.registered;
            state.listed.insert(id, state.epoch);
        });
        Listing { rollbacks: self.clone(), id }
    }
}

/// The part of one watch. Turns wait for it until it is dropped.
#[derive(Debug)]
pub(crate) struct Listing {
    rollbacks: Rollbacks,
    id: u64,
}

impl Listing {
    /// Records that a list was completed that began in this epoch.
    pub(crate) fn done(&self, epoch: Epoch) {
        self.rollbacks.0.send_if_modified(|state| {
            let listed = state.listed.entry(self.id).or_default();
            std::mem::replace(listed, epoch) != epoch
        });
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        self.rollbacks.0.send_modify(|state| {
            state.listed.remove(&self.id);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_counts_once() {
        let rollbacks = Rollbacks::default();
        let before = rollbacks.epoch();
        assert!(rollbacks.report(before, "a ledger is older"));
        assert!(!rollbacks.report(before, "so is another"));
        let between = rollbacks.epoch();
        assert!(before < between);
        assert!(rollbacks.report(between, "and again"));
    }

    #[test]
    fn an_answer_is_evidence_only_if_it_is_older_than_what_was_seen() {
        let rollbacks = Rollbacks::default();
        let epoch = rollbacks.epoch();
        let older = |seen, answered| rollbacks.compare(epoch, seen, answered, || "it".to_owned());
        assert_eq!([older(5, 5), older(5, 6), older(5, 0), older(0, 5)], [false; 4]);
        assert_eq!(rollbacks.epoch(), epoch);
        assert!(older(5, 4));
        assert_ne!(rollbacks.epoch(), epoch);
    }

    #[test]
    fn turns_wait_until_every_watch_has_listed_since_the_last_rollback() {
        let rollbacks = Rollbacks::default();
        let (one, other) = (rollbacks.register(), rollbacks.register());
        assert!(rollbacks.listed().is_some());
        let before = rollbacks.epoch();
        rollbacks.report(before, "a ledger is older");
        assert!(rollbacks.listed().is_none());
        one.done(rollbacks.epoch());
        other.done(before);
        assert!(rollbacks.listed().is_none(), "that list began before");
        drop(other);
        assert!(rollbacks.listed().is_some(), "one that has ended is waited for no more");
        let late = rollbacks.register();
        assert!(rollbacks.listed().is_some(), "it has never listed anything that is past");
        drop((one, late));
    }

    #[tokio::test]
    async fn a_rollback_is_noticed_by_who_waits_for_it() {
        let rollbacks = Rollbacks::default();
        let epoch = rollbacks.epoch();
        let after = rollbacks.after(epoch);
        tokio::pin!(after);
        assert!(futures::poll!(after.as_mut()).is_pending());
        let _listing = rollbacks.register();
        assert!(futures::poll!(after.as_mut()).is_pending());
        rollbacks.report(epoch, "a ledger is older");
        after.await;
    }
}
