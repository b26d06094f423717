//! Times in which this operator could write nothing, or in which no operator ran.
//!
//! A replica renews its own Lease every two seconds. So the age of that Lease shows an API server that
//! takes no write, also while no Swarm has a turn. At the start, the Leases of earlier replicas show the
//! last sign of any operator.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use jiff::Timestamp;
use swarm_core::history::{OUTAGE_MIN_MS, Outage, OutageCause, Outages};
use tokio::time::{MissedTickBehavior, interval};

use crate::locks::unpoisoned;
use crate::pool::observe::unix_time_us;
use crate::sharing::Sharing;

/// The time between two looks at the age of the Lease.
const LOOK: Duration = Duration::from_secs(1);
/// A process that does not look for this time was frozen, in milliseconds: five looks.
const FROZEN_MS: u64 = 5 * 1_000;
/// The time after the start in which Swarms that are taken over get the outage before it, in milliseconds:
/// one minute.
const TAKEN_OVER_MS: u64 = 60 * 1_000;
/// The largest number of outages that are kept for Swarms without a turn since.
const KEPT_MAX: usize = 16;

/// The outages of this process. The next turn of a Swarm reports them.
pub(crate) struct SeenOutages(Mutex<State>);

struct State {
    started_ms: u64,
    looked_ms: Option<u64>,
    open: Outages,
    ended: Vec<Outage>,
    /// The number of outages that are not kept any more.
    dropped: usize,
}

/// The outages that were reported for one Swarm.
#[derive(Debug)]
pub(crate) struct Told {
    since_ms: u64,
    count: usize,
}

impl Default for Told {
    fn default() -> Self {
        Self { since_ms: now_ms(), count: 0 }
    }
}

impl Default for SeenOutages {
    fn default() -> Self {
        Self::since(now_ms())
    }
}

impl SeenOutages {
    fn since(started_ms: u64) -> Self {
        let (open, ended) = (Outages::default(), Vec::new());
        Self(Mutex::new(State { started_ms, looked_ms: None, open, ended, dropped: 0 }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        unpoisoned(&self.0)
    }

    /// Looks at the Lease of this replica without end. An operator that runs alone has none.
    pub(crate) async fn watch(&self, sharing: &Sharing) {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_first = true;
        loop {
            looks.tick().await;
            let Some(age) = sharing.lease_age() else { return };
            if is_first && let Some(others) = sharing.renewals_of_others() {
                is_first = false;
                self.state().begin(&others);
            }
            self.state().look(now_ms(), u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        }
    }

    /// Returns the outages that were not reported yet for a Swarm that was made at `made_ms`.
    pub(crate) fn news(&self, told: &mut Told, made_ms: u64) -> Vec<Outage> {
        self.state().news(told, made_ms, now_ms())
    }
}

impl State {
    /// Takes the last renewals of replicas before this one.
    fn begin(&mut self, others: &[Timestamp]) {
        let last = others.iter().max().and_then(|at| u64::try_from(at.as_millisecond()).ok());
        let Some(from_ms) = last.filter(|last| last + OUTAGE_MIN_MS <= self.started_ms) else {
            return;
        };
        self.end(Outage {
            cause: OutageCause::Operators,
            from_ms,
            to_ms: self.started_ms,
            jobs: 0,
        });
    }

    /// Takes the age of the Lease, in milliseconds.
    fn look(&mut self, now_ms: u64, age_ms: u64) {
        let looked_ms = self.looked_ms.replace(now_ms);
        let is_frozen = looked_ms.is_some_and(|at| FROZEN_MS <= now_ms.saturating_sub(at));
        let written_ms = now_ms.saturating_sub(age_ms);
        if OUTAGE_MIN_MS <= age_ms {
            let cause = if is_frozen { OutageCause::Operators } else { OutageCause::ApiServer };
            self.open.failed(cause, written_ms, 0);
        } else if let Some(outage) = self.open.succeeded(written_ms) {
            self.end(outage);
        }
    }

    fn end(&mut self, outage: Outage) {
        tracing::warn!(%outage, "an outage is over");
        self.ended.push(outage);
        if KEPT_MAX < self.ended.len() {
            self.ended.remove(0);
            self.dropped += 1;
        }
    }

    fn news(&self, told: &mut Told, made_ms: u64, now_ms: u64) -> Vec<Outage> {
        let new = self.ended.iter().skip(told.count.saturating_sub(self.dropped));
        let concerns = |it: &&Outage| {
            // Another replica may have had the Swarm during an outage of this one.
            let is_before = it.to_ms == self.started_ms;
            let was_taken_over = is_before && now_ms <= self.started_ms + TAKEN_OVER_MS;
            made_ms <= it.from_ms && (told.since_ms <= it.from_ms || was_taken_over)
        };
        let new = new.filter(concerns).copied().collect();
        told.count = self.dropped + self.ended.len();
        new
    }
}

fn now_ms() -> u64 {
    unix_time_us() / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that started at 100 s.
    fn started() -> State {
        SeenOutages::since(100_000).0.into_inner().unwrap()
    }

    fn texts(outages: &[Outage]) -> Vec<String> {
        outages.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_lease_without_renewals_is_an_outage_for_the_swarms_that_this_process_had() {
        let mut state = started();
        let mut had = Told { since_ms: 101_000, count: 0 };
        let mut came = Told { since_ms: 130_000, count: 0 };
        for now_s in 110..170 {
            state.look(now_s * 1_000, (now_s - 110) * 1_000);
            assert!(state.news(&mut had, 0, now_s * 1_000).is_empty(), "it goes on");
        }
        state.look(170_000, 500);
        let outage = ["the API server took no write for 59 s"];
        assert_eq!(texts(&state.news(&mut had, 0, 171_000)), outage);
        assert!(state.news(&mut had, 0, 172_000).is_empty(), "each outage is told once");
        assert!(state.news(&mut came, 0, 172_000).is_empty(), "another replica had this one");
        let mut new = Told { since_ms: 101_000, count: 0 };
        assert!(state.news(&mut new, 150_000, 172_000).is_empty(), "a Swarm that is newer");
        state.look(179_000, 9_000);
        state.look(180_000, 500);
        assert!(state.news(&mut had, 0, 181_000).is_empty(), "a slow answer is no outage");
    }

    #[test]
    fn a_frozen_process_and_a_time_without_replicas_are_outages_without_an_operator() {
        let mut state = started();
        let mut told = Told { since_ms: 101_000, count: 0 };
        state.look(110_000, 1_000);
        state.look(150_000, 41_000);
        state.look(151_000, 100);
        let frozen = ["no operator ran for 41 s"];
        assert_eq!(texts(&state.news(&mut told, 0, 151_000)), frozen);

        let at = |second| Timestamp::from_second(second).unwrap();
        let mut state = started();
        state.begin(&[at(40), at(30)]);
        for (since_ms, made_ms, now_ms, count) in [
            (101_000, 0, 105_000, 1),
            (101_000, 50_000, 105_000, 0),
            // A replica that came later has moved it here.
            (180_000, 0, 180_000, 0),
        ] {
            let mut told = Told { since_ms, count: 0 };
            assert_eq!(state.news(&mut told, made_ms, now_ms).len(), count, "{since_ms}");
        }
        for others in [vec![], vec![at(99), at(3)], vec![at(120)]] {
            let mut state = started();
            state.begin(&others);
            assert!(state.ended.is_empty(), "{others:?}");
        }
    }

    #[test]
    fn the_oldest_outages_are_dropped_and_none_is_told_twice() {
        let mut state = started();
        let mut told = Told { since_ms: 0, count: 0 };
        let outage = |n: u64| Outage {
            cause: OutageCause::ApiServer,
            from_ms: 200_000 + n,
            to_ms: 300_000 + n,
            jobs: 0,
        };
        (0..20).for_each(|n| state.end(outage(n)));
        assert_eq!(state.news(&mut told, 0, 0).len(), KEPT_MAX);
        state.end(outage(20));
        assert_eq!(state.news(&mut told, 0, 0), [outage(20)]);
    }
}
