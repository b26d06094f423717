//! The buckets of one controller on which a member may act, and the running turns on them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use swarm_core::handover::Moment;
use tokio::sync::{Notify, broadcast};
use tokio_util::sync::CancellationToken;

use super::clock;
use crate::machine::{Bucket, Buckets};

/// The largest lag of a follower, in changes. After a larger lag it receives all owned buckets.
const BEHIND_MAX: usize = 64;
/// The interval at which a turn checks the Lease. The runtime's timers do not advance while the
/// machine is suspended.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The buckets of one controller on which its member may act.
#[derive(Debug)]
pub(crate) struct Held {
    state: Mutex<State>,
    /// A turn has ended.
    ended: Notify,
    /// The buckets that become owned.
    gained: broadcast::Sender<Buckets>,
}

impl Default for Held {
    fn default() -> Self {
        let (state, ended) = (Mutex::default(), Notify::new());
        Self { state, ended, gained: broadcast::Sender::new(BEHIND_MAX) }
    }
}

#[derive(Debug, Default)]
struct State {
    owned: Buckets,
    /// The end of the member's right to act, by its Lease.
    until: Moment,
    turns: BTreeMap<Bucket, Turns>,
    /// The number of times that buckets became owned.
    starts: u64,
    /// The number of the start since which each bucket has been owned without a pause.
    since: BTreeMap<Bucket, u64>,
}

/// The turns on objects of one bucket.
#[derive(Debug, Default)]
struct Turns {
    count: usize,
    /// Cancelled when the bucket must be released.
    lost: CancellationToken,
}

impl Held {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether its member may act on the object with this UID now.
    pub(crate) fn has(&self, uid: &str) -> bool {
        let state = self.state();
        state.owned.contains(Bucket::of(uid)) && clock::now() < state.until
    }

    /// Returns whether the object with this UID belongs to its member. That includes the time after
    /// the end of the Lease, until another member has revoked it.
    pub(crate) fn owns(&self, uid: &str) -> bool {
        self.state().owned.contains(Bucket::of(uid))
    }

    /// Permits a turn on the object with this UID; `None` if the member may not act on it.
    pub(crate) fn permit(self: &Arc<Self>, uid: &str) -> Option<Permit> {
        let bucket = Bucket::of(uid);
        let mut state = self.state();
        if !state.owned.contains(bucket) || state.until <= clock::now() {
            return None;
        }
        let turns = state.turns.entry(bucket).or_default();
        turns.count += 1;
        let lost = turns.lost.clone();
        let term = state.since.get(&bucket).copied().unwrap_or_default();
        drop(state);
        Some(Permit { held: Arc::clone(self), bucket, term, lost })
    }

    /// Returns the right to all objects, without end, for a process outside of any group.
    pub(crate) fn everything() -> Self {
        let held = Self::default();
        held.start(&Buckets::all());
        held.extend(Moment(Duration::MAX));
        held
    }

    /// Allows the member to act on these buckets, too.
    pub(crate) fn start(&self, buckets: &Buckets) {
        let mut state = self.state();
        state.starts += 1;
        let (new, number) = (buckets.without(&state.owned), state.starts);
        state.since.extend(new.iter().map(|bucket| (bucket, number)));
        state.owned = state.owned.or(buckets);
        drop(state);
        // There may be no follower.
        let _ = self.gained.send(new);
    }

    /// Subscribes to the buckets that become owned from now on.
    pub(crate) fn follow(&self) -> broadcast::Receiver<Buckets> {
        self.gained.subscribe()
    }

    /// Stops new turns on these buckets, and cancels the running ones.
    pub(crate) fn stop(&self, buckets: &Buckets) {
        let mut state = self.state();
        state.owned = state.owned.without(buckets);
        let turns = state.turns.iter().filter(|(bucket, _)| buckets.contains(**bucket));
        turns.for_each(|(_, turns)| turns.lost.cancel());
    }

    /// Sets the end of the member's right to act. If the right had lapsed, returns the buckets on
    /// which the member may act again, since changes in the meantime led to no turn.
    pub(crate) fn extend(&self, until: Moment) -> Option<Buckets> {
        let now = clock::now();
        let mut state = self.state();
        let was_over = state.until <= now && now < until && !state.owned.is_empty();
        state.until = until;
        let resumed = was_over.then(|| state.owned.clone());
        drop(state);
        if let Some(resumed) = &resumed {
            // There may be no follower.
            let _ = self.gained.send(resumed.clone());
        }
        resumed
    }

    /// Returns the owned buckets.
    pub(crate) fn owned(&self) -> Buckets {
        self.state().owned.clone()
    }

    /// Waits until no turn on these buckets is running. Cancel safe.
    pub(crate) async fn ended(&self, buckets: &Buckets) {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            // The notification is enabled first, so that no end of a turn is missed.
            ended.as_mut().enable();
            if !self.state().turns.keys().any(|bucket| buckets.contains(*bucket)) {
                return;
            }
            ended.await;
        }
    }

    /// Returns the time within which a request on an object of this bucket may still be sent;
    /// `None` if it may not.
    fn time_left(&self, bucket: Bucket) -> Option<Duration> {
        let state = self.state();
        let left = state.until.since(clock::now());
        (state.owned.contains(bucket) && !left.is_zero()).then_some(left)
    }
}

/// The right to act on one object, for one turn. While a permit exists, no other member acts on the
/// object: the bucket is released once all its permits are dropped.
#[derive(Debug)]
pub struct Permit {
    held: Arc<Held>,
    bucket: Bucket,
    term: u64,
    lost: CancellationToken,
}

/// The reason why a request has no successful answer.
#[derive(Debug, thiserror::Error)]
pub enum PermitError<E> {
    /// Another member receives the object, or the Lease has ended. No request was sent.
    #[error("the object is another replica's now")]
    Lost,
    /// No answer came while the Lease was valid. The request may have been carried out, or still
    /// be. So it should name the version of the object that it changes.
    #[error("no answer came while the Lease of this replica was good")]
    TimedOut,
    /// The request failed.
    #[error(transparent)]
    Failed(#[from] E),
}

impl Permit {
    /// Sends a request if the object may still be acted on, which is checked right before sending.
    /// Waits for the answer as long as the Lease is valid.
    ///
    /// # Errors
    ///
    /// [`PermitError`] if nothing was sent, no answer came in time, or the request failed.
    pub async fn run<T, E>(
        &self,
        request: impl Future<Output = Result<T, E>>,
    ) -> Result<T, PermitError<E>> {
        let left = self.held.time_left(self.bucket).ok_or(PermitError::Lost)?;
        let answer = tokio::time::timeout(left, request).await;
        Ok(answer.map_err(|_| PermitError::TimedOut)??)
    }

    /// Returns the number of the period for which the object has belonged to this member. It
    /// changes if the object belonged to another member in between: then everything remembered
    /// about it is stale.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Waits until the object must be released, or the Lease has ended. A long turn should end soon
    /// afterwards. Cancel safe.
    pub async fn lost(&self) {
        while let Some(left) = self.held.time_left(self.bucket) {
            tokio::select! {
                () = self.lost.cancelled() => return,
                () = tokio::time::sleep(left.min(LOOK_AGAIN)) => {}
            }
        }
    }

    /// Returns whether the object may still be acted on.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.held.time_left(self.bucket).is_some()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.held.state();
        if let Some(turns) = state.turns.get_mut(&self.bucket) {
            turns.count -= 1;
            if turns.count == 0 {
                state.turns.remove(&self.bucket);
            }
        }
        drop(state);
        self.held.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the right to act on all buckets for an hour.
    fn held() -> Arc<Held> {
        let held = Arc::new(Held::default());
        held.start(&Buckets::all());
        held.extend(clock::now().after(Duration::from_hours(1)));
        held
    }

    #[tokio::test]
    async fn what_is_released_is_waited_for_and_sends_nothing_more() {
        let held = held();
        let (one, other) = (held.permit("a").unwrap(), held.permit("a").unwrap());
        held.stop(&Buckets::all());
        one.lost().await;
        assert!(held.permit("a").is_none() && !one.is_good());
        let sent = one.run(async { Ok::<_, std::io::Error>(()) }).await;
        assert!(matches!(sent, Err(PermitError::Lost)));
        let buckets = Buckets::all();
        let mut ended = std::pin::pin!(held.ended(&buckets));
        drop(one);
        assert!(futures::poll!(ended.as_mut()).is_pending(), "another turn is under way");
        drop(other);
        ended.await;
    }

    #[test]
    fn what_was_another_members_in_between_is_owned_for_another_time() {
        let held = held();
        let before = held.permit("a").unwrap().term();
        held.start(&Buckets::all());
        assert_eq!(held.permit("a").unwrap().term(), before, "it was owned all the time");
        held.stop(&Buckets::all());
        held.start(&Buckets::all());
        assert_ne!(held.permit("a").unwrap().term(), before);
    }

    #[tokio::test]
    async fn nothing_is_sent_after_the_lease_is_over() {
        let held = held();
        let permit = held.permit("a").unwrap();
        held.extend(clock::now());
        assert!(!held.has("a") && held.permit("a").is_none());
        let sent = permit.run(async { Ok::<_, std::io::Error>(()) }).await;
        assert!(matches!(sent, Err(PermitError::Lost)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_is_notified_when_the_lease_is_over_and_not_before() {
        let held = held();
        let lease = Duration::from_secs(9);
        held.extend(clock::now().after(lease));
        let permit = held.permit("a").unwrap();
        let mut lost = std::pin::pin!(permit.lost());
        let most = Duration::from_secs(8);
        assert!(tokio::time::timeout(most, lost.as_mut()).await.is_err());
        held.extend(clock::now().after(lease));
        assert!(tokio::time::timeout(most, lost.as_mut()).await.is_err(), "it was renewed");
        tokio::time::timeout(most, lost).await.unwrap();
        assert!(!permit.is_good());
    }

    #[tokio::test(start_paused = true)]
    async fn buckets_that_may_be_acted_on_again_are_reported() {
        let held = held();
        let mut gained = held.follow();
        let in_an_hour = || clock::now().after(Duration::from_hours(1));
        assert_eq!(held.extend(in_an_hour()), None, "it was good all the time");
        held.extend(clock::now());
        assert!(held.owns("a") && !held.has("a") && gained.try_recv().is_err());
        assert_eq!(held.extend(in_an_hour()), Some(Buckets::all()));
        assert_eq!(gained.try_recv().unwrap(), Buckets::all());
        held.stop(&Buckets::all());
        assert!(!held.owns("a"));
        held.extend(clock::now());
        assert_eq!(held.extend(in_an_hour()), None, "nothing is owned");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_waited_for_as_long_as_the_lease_is_good() {
        let held = held();
        let permit = held.permit("a").unwrap();
        let failed = permit.run(async { Err::<(), _>(std::io::Error::other("no")) }).await;
        assert!(matches!(failed, Err(PermitError::Failed(_))));
        // The Lease is over after that wait.
        let never = std::future::pending::<Result<(), std::io::Error>>();
        assert!(matches!(permit.run(never).await, Err(PermitError::TimedOut)));
    }
}
