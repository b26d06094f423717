//! A turn through the stores, in the order of its reads and writes.

use std::collections::BTreeSet;

use super::{Decider, Decision, Desired, Observed};
use crate::handover::Cell;
use crate::merge::left_join;
use crate::ports::{LedgerStore, StoreError, ViewStore};
use crate::{JobName, Ledger};

/// The result of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Turn {
    /// The decision. Its ledger is stored, and its view is published.
    pub decision: Decision,
    /// The ledger before the turn. A pool without a ledger begins with an empty one.
    pub before: Ledger,
    /// Whether the ledger was written in this turn.
    pub changed: bool,
    /// The jobs that this turn granted, to a worker or to all.
    pub granted: BTreeSet<JobName>,
}

/// Carries out one turn: reads the ledger, decides, saves the ledger if it changes, and publishes
/// its view.
///
/// A lost ledger is recreated. Until it assigns a job, workers keep their previous view. After
/// that, versions continue from there.
///
/// # Errors
///
/// Returns the error of a store. After [`StoreError::Conflict`], repeat the turn from fresh reads.
/// After [`StoreError::Refused`], the previous valid view stays published.
///
/// ```
/// use std::sync::Mutex;
///
/// use async_trait::async_trait;
/// use swarm_core::ports::{LedgerStore, Seen, StoreError, ViewStore};
/// use swarm_core::{Decider, Desired, Ledger, Observed, turn};
///
/// /// A ledger in memory. How often it was saved names its state.
/// #[derive(Default)]
/// struct Memory(Mutex<(Option<Ledger>, u64)>);
///
/// #[async_trait]
/// impl LedgerStore for Memory {
///     async fn load(&self) -> Result<Option<(Ledger, Seen)>, StoreError> {
///         let (ledger, saves) = self.0.lock().unwrap().clone();
///         Ok(ledger.map(|ledger| (ledger, Seen(saves.to_string()))))
///     }
///
///     async fn save(&self, ledger: &Ledger, seen: Option<&Seen>) -> Result<Seen, StoreError> {
///         let (saved, saves) = &mut *self.0.lock().unwrap();
///         if seen != saved.as_ref().map(|_| Seen(saves.to_string())).as_ref() {
///             return Err(StoreError::Conflict { what: "the ledger".to_owned() });
///         }
///         (*saved, *saves) = (Some(ledger.clone()), *saves + 1);
///         Ok(Seen(saves.to_string()))
///     }
/// }
///
/// /// The text that workers read.
/// #[derive(Default)]
/// struct Text(Mutex<String>);
///
/// #[async_trait]
/// impl ViewStore for Text {
///     async fn version(&self) -> Result<u64, StoreError> {
///         Ok(swarm_core::View::version_in(&self.0.lock().unwrap()))
///     }
///
///     async fn publish(&self, ledger: &Ledger) -> Result<(), StoreError> {
///         *self.0.lock().unwrap() = ledger.view().to_yaml();
///         Ok(())
///     }
/// }
///
/// # fn now<T>(future: impl Future<Output = T>) -> T {
/// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
/// #     match std::pin::pin!(future).poll(&mut context) {
/// #         std::task::Poll::Ready(output) => output,
/// #         std::task::Poll::Pending => unreachable!("nothing here waits"),
/// #     }
/// # }
/// # now(async {
/// let (ledger, view) = (Memory::default(), Text::default());
/// let (desired, observed) = (Desired::default(), Observed::new([], 1, []));
/// let mut decider = Decider::default();
/// assert!(turn(&ledger, &view, &mut decider, &desired, &observed).await?.changed);
/// // There is nothing more to do.
/// assert!(!turn(&ledger, &view, &mut decider, &desired, &observed).await?.changed);
/// # Ok::<(), StoreError>(())
/// # })?;
/// # Ok::<(), StoreError>(())
/// ```
pub async fn turn(
    ledgers: &dyn LedgerStore,
    views: &dyn ViewStore,
    decider: &mut Decider,
    desired: &Desired,
    observed: &Observed,
) -> Result<Turn, StoreError> {
    let stored = ledgers.load().await?;
    let (ledger, seen) = stored.unzip();
    let is_new = ledger.is_none();
    let ledger = ledger.unwrap_or_else(|| Ledger::new(observed.unix_time_us));
    let mut decision = decider.decide(&ledger, desired, observed);
    // The version that an earlier ledger published; workers may still run its jobs.
    let published = if ledger.version == 0 { views.version().await? } else { 0 };
    if decision.adopted.is_none() {
        // Workers would ignore a new view under a version that they already have.
        decision.ledger.count_on_from(published);
    }
    let changed = is_new || decision.ledger != ledger;
    if changed {
        views.check(&decision.ledger)?;
        ledgers.save(&decision.ledger, seen.as_ref()).await?;
    }
    // A ledger that has published nothing yet does not release jobs of plain workers either, even
    // if another operator granted them. Sessions of a lost ledger have to close before any job is
    // granted again.
    let is_vacant = published == 0 && observed.adoptable.is_none();
    if decision.ledger.version > 0 || is_vacant {
        views.publish(&decision.ledger).await?;
    } else {
        views.publish_to_sessions(&decision.ledger).await?;
    }
    let granted = if changed { granted(&ledger, &decision.ledger) } else { BTreeSet::new() };
    Ok(Turn { decision, before: ledger, changed, granted })
}

/// Returns the jobs that `next` grants and `ledger` did not grant, or under another token.
/// O(jobs).
fn granted(ledger: &Ledger, next: &Ledger) -> BTreeSet<JobName> {
    let is_grant = |cell: &Cell| matches!(cell, Cell::Granted { .. } | Cell::Everywhere { .. });
    let all = left_join(&next.cells.jobs, &ledger.cells.jobs);
    let new = all.filter(|(_, record, before)| {
        is_grant(&record.cell) && before.is_none_or(|before| before.cell != record.cell)
    });
    new.map(|(job, ..)| job.clone()).collect()
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;

    use super::*;
    use crate::handover::SessionId;
    use crate::ports::Seen;
    use crate::{Presence, Slot, View, ViewEntry, WorkerSeen, jobs};

    /// Stores that record each call with the revision and the version that they received.
    #[derive(Default)]
    struct Noting {
        calls: std::sync::Mutex<Vec<String>>,
        stored: Option<Ledger>,
        /// The version of the published view.
        published: u64,
        is_full: bool,
    }

    impl Noting {
        fn note(&self, call: &str, ledger: &Ledger) {
            let note = format!("{call} {} {}", ledger.revision(), ledger.version);
            self.calls.lock().unwrap().push(note);
        }
    }

    #[async_trait::async_trait]
    impl LedgerStore for Noting {
        async fn load(&self) -> Result<Option<(Ledger, Seen)>, StoreError> {
            Ok(self.stored.clone().map(|ledger| (ledger, Seen(String::new()))))
        }

        async fn save(&self, ledger: &Ledger, _: Option<&Seen>) -> Result<Seen, StoreError> {
            self.note("save", ledger);
            let what = String::new();
            if self.is_full { Err(StoreError::Conflict { what }) } else { Ok(Seen(what)) }
        }
    }

    #[async_trait::async_trait]
    impl ViewStore for Noting {
        fn check(&self, ledger: &Ledger) -> Result<(), StoreError> {
            self.note("check", ledger);
            Ok(())
        }

        async fn version(&self) -> Result<u64, StoreError> {
            Ok(self.published)
        }

        async fn publish(&self, ledger: &Ledger) -> Result<(), StoreError> {
            self.note("publish", ledger);
            Ok(())
        }

        async fn publish_to_sessions(&self, ledger: &Ledger) -> Result<(), StoreError> {
            self.note("publish to sessions", ledger);
            Ok(())
        }
    }

    fn desired() -> Desired {
        Desired { jobs: jobs(["a"]).unwrap(), ..Desired::default() }
    }

    fn observed(presence: Presence) -> Observed {
        let worker = WorkerSeen::new("w-0", presence, Some(SessionId::plain("w-0")));
        Observed::new([(Slot(0), worker)], 0, [])
    }

    /// Carries out a turn with stores that answer at once.
    fn made(store: &Noting, seen: &Observed) -> Result<Turn, StoreError> {
        let (want, mut decider) = (desired(), Decider::default());
        let mut turn = std::pin::pin!(turn(store, store, &mut decider, &want, seen));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match turn.as_mut().poll(&mut context) {
            std::task::Poll::Ready(made) => made,
            std::task::Poll::Pending => panic!("it waits for something"),
        }
    }

    /// Returns the calls of such a turn.
    fn calls(store: &Noting, seen: &Observed) -> Vec<String> {
        assert_eq!(made(store, seen).is_err(), store.is_full);
        std::mem::take(&mut *store.calls.lock().unwrap())
    }

    const READY: Presence = Presence::Ready;
    /// The presence of a worker that makes the pool incomplete.
    const UNREADY: Presence = Presence::NotReady(std::time::Duration::ZERO);

    #[test]
    fn what_is_published_was_saved_before_and_could_be_published() {
        let seen = observed(READY);
        assert_eq!(calls(&Noting::default(), &seen), ["check 1 1", "save 1 1", "publish 1 1"]);
        let full = Noting { is_full: true, ..Noting::default() };
        assert_eq!(calls(&full, &seen), ["check 1 1", "save 1 1"]);
    }

    #[test]
    fn a_ledger_that_does_not_change_is_published_again_and_not_saved() {
        let stored = made(&Noting::default(), &observed(READY)).unwrap().decision.ledger;
        // The published view may be newer or older: only the ledger decides its content.
        let store = Noting { stored: Some(stored), published: 6, ..Noting::default() };
        let turn = made(&store, &observed(READY)).unwrap();
        assert_eq!((turn.changed, turn.decision.ledger.version), (false, 1));
        assert_eq!(*store.calls.lock().unwrap(), ["publish 1 1"]);
    }

    #[test]
    fn a_ledger_that_publishes_first_counts_on_from_the_view_that_is_there() {
        for stored in [None, Some(Ledger::new(0))] {
            let store = Noting { stored, published: 6, ..Noting::default() };
            let calls = calls(&store, &observed(READY));
            assert_eq!(calls, ["check 1 7", "save 1 7", "publish 1 7"]);
        }
    }

    #[test]
    fn a_ledger_that_takes_over_what_runs_keeps_the_version_that_was_published() {
        let mut seen = observed(READY);
        let entry = ViewEntry { jobs: [("a".parse().unwrap())].into(), ..ViewEntry::default() };
        seen.adoptable = Some(View { version: 6, workers: [("w-0".into(), entry)].into() });
        let store = Noting { published: 6, ..Noting::default() };
        assert_eq!(calls(&store, &seen), ["check 1 6", "save 1 6", "publish 1 6"]);
    }

    #[test]
    fn while_nothing_is_assigned_a_view_is_published_only_where_there_is_none() {
        let mut seen = observed(UNREADY);
        let mut store = Noting::default();
        assert_eq!(calls(&store, &seen), ["check 0 0", "save 0 0", "publish 0 0"]);
        store.stored = Some(Ledger::new(0));
        assert_eq!(calls(&store, &seen), ["publish 0 0"]);
        let to_sessions = ["publish to sessions 0 0"];
        store.published = 6;
        assert_eq!(calls(&store, &seen), to_sessions);
        store.published = 0;
        seen.adoptable = Some(View::default());
        assert_eq!(calls(&store, &seen), to_sessions);
    }
}
