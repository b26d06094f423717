//! Checks whether the operator's own loop makes progress, for `/healthz`.
//!
//! A controller beats while it polls its triggers, and every turn is known from its start to its
//! end. Neither waits for the API server. A failed watch is only one more event of the loop, and
//! every request of a turn ends after ten seconds. So an operator that fails this check hangs, and
//! only a restart helps. An operator without an API server passes the check.
//!
//! It also knows the watches that the API server refuses, for `/readyz` and the Lease of a replica.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::watch::refused::RefusedWatches;

/// The interval between the beats of a controller.
const BEAT: Duration = Duration::from_secs(5);
/// The longest healthy time without a beat.
const LOOP_MAX: Duration = Duration::from_mins(1);
/// The longest healthy turn. A turn of a thousand workers takes seconds. With an API server that
/// needs most of its ten seconds for every answer, it takes minutes.
const TURN_MAX: Duration = Duration::from_mins(10);

/// The health of one process. Its clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The time of each controller's last beat, on a monotonic clock.
    loops: BTreeMap<u64, Instant>,
    /// The turns under way, each with its Swarm and its start.
    turns: BTreeMap<u64, (String, Instant)>,
    last: u64,
    /// The number of turns that have begun.
    begun: u64,
    /// The time of the last request for `/healthz`.
    probed: Option<Instant>,
    refused: RefusedWatches,
}

/// The load of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// The turns that are under way.
    pub(crate) under_way: usize,
    /// The number of turns that have begun so far.
    pub(crate) begun: u64,
    /// The time of the last health check.
    pub(crate) probed: Option<Instant>,
}

impl Health {
    /// Whether the loop makes progress.
    ///
    /// # Errors
    ///
    /// A sentence that says what hangs, and for how long.
    pub fn check(&self) -> Result<(), String> {
        let (state, now) = (self.state(), Instant::now());
        for at in state.loops.values() {
            let silent = now.saturating_duration_since(*at);
            if LOOP_MAX <= silent {
                return Err(format!("the controller's loop hangs for {} s", silent.as_secs()));
            }
        }
        for (swarm, since) in state.turns.values() {
            let takes = now.saturating_duration_since(*since);
            if TURN_MAX <= takes {
                return Err(format!("a turn of Swarm `{swarm}` hangs for {} s", takes.as_secs()));
            }
        }
        Ok(())
    }

    /// The answer to a probe. Records the time of the probe.
    ///
    /// # Errors
    ///
    /// As for [`check`](Self::check).
    pub fn probe(&self) -> Result<(), String> {
        self.state().probed = Some(Instant::now());
        self.check()
    }

    /// The watches that the API server refuses to this process.
    #[must_use]
    pub fn refused(&self) -> RefusedWatches {
        self.state().refused.clone()
    }

    pub(crate) fn load(&self) -> Load {
        let state = self.state();
        Load { under_way: state.turns.len(), begun: state.begun, probed: state.probed }
    }

    /// The beats of one controller, while the stream is polled. The stream yields no item.
    pub(crate) fn beats<T>(&self) -> impl Stream<Item = T> + Send + use<T>
    where
        T: Send + 'static,
    {
        let controller = self.begin(|state, id, now| {
            state.loops.insert(id, now);
        });
        let mut ticks = interval(BEAT);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let beat = async |(controller, mut ticks): (UnderWay, tokio::time::Interval)| {
            ticks.tick().await;
            controller.health.state().loops.insert(controller.id, Instant::now());
            Some((stream::empty(), (controller, ticks)))
        };
        stream::unfold((controller, ticks), beat).flatten()
    }

    /// Records that a turn of this Swarm is under way, until the value is dropped.
    pub(crate) fn turn(&self, namespace: &str, swarm: &str) -> UnderWay {
        let name = format!("{namespace}/{swarm}");
        self.begin(|state, id, now| {
            state.begun += 1;
            state.turns.insert(id, (name, now));
        })
    }

    fn begin(&self, enter: impl FnOnce(&mut State, u64, Instant)) -> UnderWay {
        let mut state = self.state();
        state.last += 1;
        let id = state.last;
        enter(&mut state, id, Instant::now());
        UnderWay { health: self.clone(), id }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An activity that has to make progress until this guard is dropped.
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub(crate) struct UnderWay {
    health: Health,
    id: u64,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.health.state();
        state.loops.remove(&self.id);
        state.turns.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use futures::poll;
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_is_not_polled_for_a_minute_hangs() {
        let health = Health::default();
        let mut beats = health.beats::<()>().boxed();
        for _ in 0..100 {
            advance(BEAT).await;
            assert!(poll!(beats.next()).is_pending());
            assert_eq!(health.check(), Ok(()));
        }
        advance(LOOP_MAX).await;
        assert_eq!(health.check(), Err("the controller's loop hangs for 60 s".to_owned()));
        assert!(poll!(beats.next()).is_pending());
        assert_eq!(health.check(), Ok(()), "it goes on");
        advance(LOOP_MAX).await;
        drop(beats);
        assert_eq!(health.check(), Ok(()), "it has ended");
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_is_never_polled_hangs() {
        let health = Health::default();
        let beats = health.beats::<()>();
        advance(LOOP_MAX).await;
        assert!(health.check().is_err());
        drop(beats);
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_does_not_end_hangs_though_others_do() {
        let health = Health::default();
        let long = health.turn("n", "stuck");
        for _ in 0..9 {
            let other = health.turn("n", "other");
            advance(Duration::from_mins(1)).await;
            drop(other);
            assert_eq!(health.check(), Ok(()));
        }
        advance(Duration::from_mins(1)).await;
        let expected = "a turn of Swarm `n/stuck` hangs for 600 s".to_owned();
        assert_eq!(health.check(), Err(expected));
        drop(long);
        assert_eq!(health.check(), Ok(()));
    }
}
