//! Bounds how many pools roll at a time because the operator has changed, for example after its
//! upgrade. A change by a user never waits.
//!
//! Every replica of the operator watches all workloads. Their annotations show which ones another
//! replica rolls. Until the watch shows that, the replicas together could start too many rollouts.
//! So each replica starts only its own part of the limit.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::observed::Place;

/// The most pools that roll at a time.
const AT_A_TIME: usize = 5;
/// The longest time for which a pool holds up others.
const ROLLS_WITHIN: Duration = Duration::from_mins(10);
/// The time that the caches may take to show that a rollout has begun.
const SHOWN_WITHIN: Duration = Duration::from_secs(5);

/// The workloads that roll because of the operator, or may do so.
#[derive(Debug, Default)]
pub(crate) struct Rolls(BTreeMap<Place, Roll>);

#[derive(Debug)]
struct Roll {
    since: Instant,
    /// The time that the caches may take to show the rollout.
    shown_within: Duration,
    /// Whether this replica started the rollout.
    is_ours: bool,
}

impl Rolls {
    /// Records a workload that exists when this operator starts. It may be rolling, and may have
    /// begun long ago.
    pub(crate) fn found(&mut self, place: &Place) {
        let roll = Roll { since: Instant::now(), shown_within: Duration::ZERO, is_ours: false };
        self.0.entry(place.clone()).or_insert(roll);
    }

    /// Records a rollout that this or another replica has started.
    pub(crate) fn begun(&mut self, place: &Place) {
        self.0.retain(|_, roll| roll.since.elapsed() < ROLLS_WITHIN);
        let is_ours = self.0.get(place).is_some_and(|roll| roll.is_ours);
        self.note(place, is_ours);
    }

    /// Whether the workload may roll now, if this many `replicas` of the operator start rollouts.
    /// If so, it counts as rolling until it `has_rolled`.
    pub(crate) fn may_begin(
        &mut self,
        place: &Place,
        replicas: usize,
        has_rolled: impl Fn(&Place) -> bool,
    ) -> bool {
        self.0.retain(|place, roll| {
            let age = roll.since.elapsed();
            age < roll.shown_within || (age < ROLLS_WITHIN && !has_rolled(place))
        });
        let ours = self.0.values().filter(|roll| roll.is_ours).count();
        let part = (AT_A_TIME / replicas.max(1)).max(1);
        let is_full = AT_A_TIME <= self.0.len() || part <= ours;
        if is_full && !self.0.contains_key(place) {
            return false;
        }
        self.note(place, true);
        true
    }

    fn note(&mut self, place: &Place, is_ours: bool) {
        let roll = Roll { since: Instant::now(), shown_within: SHOWN_WITHIN, is_ours };
        self.0.insert(place.clone(), roll);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managed::wanted::ObjectKind;

    fn place(n: usize) -> Place {
        (ObjectKind::Deployment, "n".to_owned(), n.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn five_pools_roll_at_a_time_and_a_broken_one_does_not_hold_up_others_for_ever() {
        let mut rolls = Rolls::default();
        let never = |_: &Place| false;
        assert!((0..5).all(|n| rolls.may_begin(&place(n), 1, never)));
        assert!(!rolls.may_begin(&place(5), 1, never));
        assert!(rolls.may_begin(&place(0), 1, never), "it counts once");
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(rolls.may_begin(&place(5), 1, |it| *it == place(3)));
        assert!(!rolls.may_begin(&place(6), 1, never));
        tokio::time::advance(ROLLS_WITHIN).await;
        assert!(rolls.may_begin(&place(6), 1, never));
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_begins_with_its_part_and_counts_what_others_roll() {
        let mut rolls = Rolls::default();
        let never = |_: &Place| false;
        assert!((0..2).all(|n| rolls.may_begin(&place(n), 2, never)));
        assert!(!rolls.may_begin(&place(2), 2, never), "two of five are its part");
        assert!(!rolls.may_begin(&place(2), 9, never));
        // The other replica has started as many rollouts, and then leaves.
        rolls.begun(&place(10));
        rolls.begun(&place(11));
        assert!(rolls.may_begin(&place(2), 1, never));
        assert!(!rolls.may_begin(&place(3), 1, never), "five roll");
    }

    #[tokio::test(start_paused = true)]
    async fn what_rolls_when_an_operator_starts_counts() {
        let mut rolls = Rolls::default();
        (0..9).for_each(|n| rolls.found(&place(n)));
        let all_but_five = |it: &Place| ["5", "6", "7", "8"].contains(&&*it.2);
        assert!(!rolls.may_begin(&place(10), 1, all_but_five));
        assert!(rolls.may_begin(&place(10), 1, |it| all_but_five(it) || *it == place(0)));
    }
}
