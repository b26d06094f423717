//! Times in which this operator could write nothing, or in which no operator ran.
//!
//! A replica renews its own Lease every two seconds. So the age of that Lease shows an API server that
//! takes no write, also while no Swarm has a turn. At the start, the Leases of earlier replicas show the
//! last sign of any operator.
//!
//! An operator that runs alone has no Lease. Its watch of Swarms lists again after each failure, so the time
//! without an answer shows an API server that is away. A server that only takes no write, and the time
//! before the start, do not show.
//!
//! Each Swarm that belonged to this replica before and after an outage gets it once. The memory of
//! a Swarm does not outlive the outage, since a replica without a good Lease forgets it. So this file
//! keeps on its own since when the replica has each Swarm, and the number of outages that the Swarm got.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use swarm_core::history::{OUTAGE_MIN_MS, Outage, OutageCause, Outages};
use tokio::time::{MissedTickBehavior, interval};

use crate::locks::unpoisoned;
use crate::pool::observe::unix_time_us;
use crate::sharing::{Presence, Sharing};
use crate::watch::refused::RefusedWatches;

/// The time between two looks at the age of the Lease.
const LOOK: Duration = Duration::from_secs(1);
/// A process that does not look for this time was frozen, in milliseconds: five looks.
const FROZEN_MS: u64 = 5 * 1_000;
/// The time after the start in which Swarms that are taken over get the outage before it, in milliseconds:
/// one minute.
const TAKEN_OVER_MS: u64 = 60 * 1_000;
/// The time after the start in which another replica may still say since when it runs, in milliseconds:
/// ten renewals.
const SAYS_ITS_START_MS: u64 = 10 * 2 * 1_000;
/// The largest number of outages that are kept for Swarms without a turn since.
const KEPT_MAX: usize = 16;

/// The outages of this process. The next turn of a Swarm reports them.
pub(crate) struct SeenOutages(Mutex<State>);

struct State {
    started_ms: u64,
    /// Whether the outage before the start is known, if there was one.
    has_begun: bool,
    looked_ms: Option<u64>,
    open: Outages,
    ended: Vec<Outage>,
    /// The number of outages that are not kept any more.
    dropped: usize,
    /// The Swarms of this replica, by UID.
    told: HashMap<String, Told>,
}

/// The outages that were reported for one Swarm.
#[derive(Debug)]
struct Told {
    /// The moment since when the Swarm belongs to this replica, without a pause.
    since_ms: u64,
    count: usize,
}

impl Default for SeenOutages {
    fn default() -> Self {
        Self::since(now_ms())
    }
}

impl SeenOutages {
    fn since(started_ms: u64) -> Self {
        let (open, ended, told) = (Outages::default(), Vec::new(), HashMap::new());
        let (has_begun, looked_ms, dropped) = (false, None, 0);
        Self(Mutex::new(State { started_ms, has_begun, looked_ms, open, ended, dropped, told }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        unpoisoned(&self.0)
    }

    /// Looks at the Lease of this replica without end, or at the `watches` of an operator that runs alone.
    pub(crate) async fn watch(&self, sharing: &Sharing, watches: &RefusedWatches) {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            self.look(sharing, watches);
        }
    }

    /// Looks at the Leases of all replicas and at the age of the own one, or at the `watches`.
    fn look(&self, sharing: &Sharing, watches: &RefusedWatches) {
        let Some(age) = sharing.lease_age() else {
            let unanswered = watches.unanswered_for().unwrap_or_default();
            let unanswered_ms = u64::try_from(unanswered.as_millis()).unwrap_or(u64::MAX);
            return self.state().look_alone(now_ms(), unanswered_ms);
        };
        let others = sharing.others();
        let mut state = self.state();
        if let Some(others) = others {
            state.begin(&others, now_ms());
        }
        state.look(now_ms(), u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
    }

    /// Notes that this replica has taken over the Swarm with this UID, which another replica may have
    /// had before.
    pub(crate) fn taken_over(&self, uid: &str) {
        self.state().taken_over(uid, now_ms());
    }

    /// Forgets all Swarms for which `keep` returns false.
    pub(crate) fn retain(&self, keep: impl Fn(&str) -> bool) {
        self.state().told.retain(|uid, _| keep(uid));
    }

    /// Returns the outages that were not reported yet for the Swarm with this UID, which was made at
    /// `made_ms`.
    pub(crate) fn news(
        &self,
        sharing: &Sharing,
        watches: &RefusedWatches,
        (uid, made_ms): (&str, u64),
    ) -> Vec<Outage> {
        // The turn that comes first after an outage may come before the next look.
        self.look(sharing, watches);
        self.state().news(uid, made_ms)
    }
}

impl State {
    /// Takes the other replicas of the group. The time before this process in which none ran is an
    /// outage.
    fn begin(&mut self, others: &[Presence], now_ms: u64) {
        if self.has_begun {
            return;
        }
        let before = Before::of(self.started_ms, others);
        let is_late = self.started_ms + SAYS_ITS_START_MS <= now_ms;
        self.has_begun = before != Before::Unknown || is_late;
        if let Before::Nobody { from_ms, to_ms } = before {
            self.end(Outage { cause: OutageCause::Operators, from_ms, to_ms, jobs: 0 });
        }
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

    /// Takes the time without an answer of an operator that runs alone, in milliseconds. Its own looks are
    /// the evidence that it was not frozen.
    fn look_alone(&mut self, now_ms: u64, unanswered_ms: u64) {
        let pause_ms = self.looked_ms.map_or(0, |at| now_ms.saturating_sub(at));
        let frozen_ms = if FROZEN_MS <= pause_ms { pause_ms } else { 0 };
        self.look(now_ms, unanswered_ms.max(frozen_ms));
    }

    fn end(&mut self, outage: Outage) {
        tracing::warn!(%outage, "an outage is over");
        self.ended.push(outage);
        if KEPT_MAX < self.ended.len() {
            self.ended.remove(0);
            self.dropped += 1;
        }
    }

    fn taken_over(&mut self, uid: &str, now_ms: u64) {
        let told = Told { since_ms: now_ms, count: 0 };
        self.told.entry(uid.to_owned()).or_insert(told).since_ms = now_ms;
    }

    fn news(&mut self, uid: &str, made_ms: u64) -> Vec<Outage> {
        let Some(told) = self.told.get_mut(uid) else { return Vec::new() };
        let new = self.ended.iter().skip(told.count.saturating_sub(self.dropped));
        let concerns = |it: &&Outage| {
            // Another replica may have had the Swarm during an outage of this one.
            let is_before = it.to_ms <= self.started_ms;
            let is_soon = told.since_ms <= self.started_ms + TAKEN_OVER_MS;
            made_ms <= it.from_ms && (told.since_ms <= it.from_ms || (is_before && is_soon))
        };
        let new = new.filter(concerns).copied().collect();
        told.count = self.dropped + self.ended.len();
        new
    }
}

/// The time before the start of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// A replica does not say since when it runs.
    Unknown,
    /// A replica ran, or none ever did, or the others have recorded that none did.
    Told,
    /// No replica ran within these bounds.
    Nobody { from_ms: u64, to_ms: u64 },
}

impl Before {
    /// Judges the time before `started_ms`. Replicas that start together are one start, whichever of them
    /// looks.
    fn of(started_ms: u64, others: &[Presence]) -> Self {
        let mut to_ms = started_ms;
        let mut earlier: Vec<_> = others.iter().collect();
        earlier.sort_unstable_by_key(|it| it.renewed_ms);
        while let Some(last) = earlier.pop() {
            if last.renewed_ms.saturating_add(OUTAGE_MIN_MS) <= to_ms {
                let is_recent = started_ms <= to_ms.saturating_add(TAKEN_OVER_MS);
                let nobody = Self::Nobody { from_ms: last.renewed_ms, to_ms };
                return if is_recent { nobody } else { Self::Told };
            }
            let Some(began_ms) = last.started_ms else { return Self::Unknown };
            to_ms = to_ms.min(began_ms);
        }
        Self::Told
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

    /// The API server takes no write from `from_s` to `to_s`, and the process looks each second.
    fn api_away(state: &mut State, from_s: u64, to_s: u64) {
        for now_s in from_s..to_s {
            state.look(now_s * 1_000, (now_s - from_s) * 1_000);
        }
        state.look(to_s * 1_000, 500);
    }

    fn second(from_s: u64, to_s: u64) -> Presence {
        Presence { started_ms: Some(from_s * 1_000), renewed_ms: to_s * 1_000 }
    }

    #[test]
    fn a_lease_without_renewals_is_an_outage_for_the_swarms_that_this_process_had() {
        let mut state = started();
        for uid in ["had", "new"] {
            state.taken_over(uid, 101_000);
        }
        for now_s in 110..170 {
            state.look(now_s * 1_000, (now_s - 110) * 1_000);
            assert!(state.news("had", 0).is_empty(), "it goes on");
        }
        state.taken_over("came", 130_000);
        state.look(170_000, 500);
        let outage = ["the API server took no write for 59 s"];
        assert_eq!(texts(&state.news("had", 0)), outage);
        assert!(state.news("had", 0).is_empty(), "each outage is told once");
        assert!(state.news("came", 0).is_empty(), "another replica had this one");
        assert!(state.news("new", 150_000).is_empty(), "a Swarm that is newer");
        assert!(state.news("of another replica", 0).is_empty());
        state.look(179_000, 9_000);
        state.look(180_000, 500);
        assert!(state.news("had", 0).is_empty(), "a slow answer is no outage");
    }

    #[test]
    fn of_two_replicas_that_come_through_an_outage_one_tells_each_swarm() {
        let (mut a, mut b) = (started(), started());
        a.taken_over("of a", 101_000);
        a.taken_over("moves", 101_000);
        b.taken_over("of b", 101_000);
        // Turns forget the memory of each Swarm while the Lease is over. No replica takes one over.
        for state in [&mut a, &mut b] {
            api_away(state, 110, 140);
        }
        // A Swarm has another turn, and moves, only after it got the outage.
        let told = |state: &mut State, uid| state.news(uid, 0).len();
        assert_eq!([told(&mut a, "of a"), told(&mut b, "of b"), told(&mut a, "moves")], [1, 1, 1]);
        b.taken_over("moves", 141_000);
        assert_eq!([told(&mut a, "of a"), told(&mut b, "of b"), told(&mut b, "moves")], [0, 0, 0]);
        a.taken_over("moves", 150_000);
        assert_eq!(told(&mut a, "moves"), 0);
        a.taken_over("made since", 150_000);
        assert!(a.news("made since", 150_000).is_empty());
    }

    #[test]
    fn a_frozen_process_is_an_outage_without_an_operator() {
        let mut state = started();
        state.taken_over("s", 101_000);
        state.look(110_000, 1_000);
        state.look(150_000, 41_000);
        state.look(151_000, 100);
        assert_eq!(texts(&state.news("s", 0)), ["no operator ran for 41 s"]);
    }

    #[test]
    fn an_operator_that_runs_alone_knows_an_outage_by_its_watches_and_its_own_looks() {
        let mut state = started();
        state.taken_over("s", 101_000);
        let mut look = |now_s: u64, unanswered_s: u64| {
            state.look_alone(now_s * 1_000, unanswered_s * 1_000);
            texts(&state.news("s", 0))
        };
        let none = Vec::<String>::new();
        for now_s in 110..170 {
            assert_eq!(look(now_s, now_s - 110), none, "it goes on");
        }
        assert_eq!(look(170, 0), ["the API server took no write for 60 s"]);
        for now_s in 171..180 {
            assert_eq!(look(now_s, now_s - 171), none);
        }
        assert_eq!(look(180, 0), none, "a short failure is no outage");
        look(220, 0);
        assert_eq!(look(221, 0), ["no operator ran for 41 s"]);
    }

    #[test]
    fn swarms_that_are_taken_over_after_a_time_without_replicas_get_it_as_an_outage() {
        let mut state = started();
        state.begin(&[second(1, 40), second(2, 30)], 101_000);
        for (since_ms, made_ms, count) in [
            (101_000, 0, 1),
            (101_000, 50_000, 0),
            // A replica that came later has moved it here.
            (180_000, 0, 0),
        ] {
            let uid = format!("{since_ms} {made_ms}");
            state.taken_over(&uid, since_ms);
            assert_eq!(state.news(&uid, made_ms).len(), count, "{uid}");
        }
        state.begin(&[second(1, 40)], 102_000);
        assert_eq!(state.ended.len(), 1, "there is one start");
    }

    #[test]
    fn replicas_that_start_together_find_the_same_outage_before_them() {
        let nobody = |from_ms, to_ms| Before::Nobody { from_ms, to_ms };
        for (others, expected) in [
            (vec![], Before::Told),
            (vec![second(1, 99), second(1, 3)], Before::Told),
            (vec![second(90, 120)], Before::Told),
            (vec![second(1, 40)], nobody(40_000, 100_000)),
            // The second replica started a little earlier, and a third one soon after that.
            (vec![second(1, 40), second(97, 103)], nobody(40_000, 97_000)),
            (vec![second(1, 40), second(97, 103), second(99, 98)], nobody(40_000, 97_000)),
            // A replica has run since before.
            (vec![second(1, 40), second(30, 103)], Before::Told),
            // The others have recorded it.
            (vec![second(1, 10), second(30, 103)], Before::Told),
        ] {
            assert_eq!(Before::of(100_000, &others), expected, "{others:?}");
        }
        let silent = Presence { started_ms: None, renewed_ms: 101_000 };
        let others = [second(1, 40), silent];
        let mut state = started();
        state.begin(&others, 102_000);
        assert!(!state.has_begun, "it may say it with its next renewal");
        state.begin(&others, 130_000);
        assert!(state.has_begun && state.ended.is_empty(), "an earlier version never says it");
        let ended = Presence { renewed_ms: 40_000, ..silent };
        assert_eq!(Before::of(100_000, &[ended]), nobody(40_000, 100_000));
    }

    #[test]
    fn the_oldest_outages_are_dropped_and_none_is_told_twice() {
        let mut state = started();
        state.taken_over("s", 0);
        let outage = |n: u64| Outage {
            cause: OutageCause::ApiServer,
            from_ms: 200_000 + n,
            to_ms: 300_000 + n,
            jobs: 0,
        };
        (0..20).for_each(|n| state.end(outage(n)));
        assert_eq!(state.news("s", 0).len(), KEPT_MAX);
        state.end(outage(20));
        assert_eq!(state.news("s", 0), [outage(20)]);
    }
}
