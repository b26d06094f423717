//! Decides turn after turn for one pool, and keeps a decision that cannot have changed.
//!
//! Most turns of a large pool find no change: a worker renewed its lease, or a periodic resync ran.
//! Such a turn costs only a look at the observed workers, however many jobs there are.
//!
//! `decide` is pure, so equal inputs give the kept decision. Durations count only when they reach a
//! limit, and `recheck_in` is the time until the first one does. A kept decision grants nothing, so
//! a forgotten limit only makes a decision late, by a minute at most. Debug builds also decide from
//! scratch, and compare.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Decision, Desired, Observed, WorkerSeen, decide};
use crate::handover::Evidence;
use crate::{Ledger, Presence};

/// The time after which a decision is computed again in any case. It is a safety net under the rule
/// that predicts when time alone changes the decision.
const AGAIN: Duration = Duration::from_secs(60);

/// Decides for one pool, and keeps the previous decision as long as it changes nothing.
///
/// ```
/// use swarm_core::{Decider, Desired, Ledger, Observed, jobs};
///
/// let desired = Desired::new(jobs(["a", "b"])?);
/// let (mut decider, ledger) = (Decider::default(), Ledger::new(1));
/// let observed = Observed::new([], 1, []);
/// let first = decider.decide(&ledger, &desired, &observed);
/// assert_eq!(decider.decide(&ledger, &desired, &observed), first);
/// # Ok::<(), swarm_core::JobsError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Decider {
    rest: Option<Rest>,
}

/// A decision that leaves the ledger unchanged, with its inputs.
#[derive(Clone, Debug)]
struct Rest {
    desired: Desired,
    observed: Observed,
    decision: Decision,
}

impl Decider {
    /// Returns the result of [`decide`].
    ///
    /// O(workers · log jobs) for a repeated decision. It is repeated if the ledger and the jobs are
    /// clones of the previous ones, only time has passed since a turn without a change, and its
    /// `recheck_in` has not elapsed. Otherwise the cost is that of [`decide`].
    ///
    /// ```
    /// use swarm_core::{Decider, Desired, Ledger, Observed, decide, jobs};
    ///
    /// let (mut decider, observed) = (Decider::default(), Observed::new([], 1, []));
    /// let mut desired = Desired::new(jobs(["a"])?);
    /// let saved = decider.decide(&Ledger::new(1), &desired, &observed).ledger;
    /// desired.jobs.insert("b".parse()?, swarm_core::Job::default());
    /// let next = decider.decide(&saved, &desired, &observed); // something changed, so this is a new decision
    /// assert_eq!(next, decide(&saved, &desired, &observed));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn decide(&mut self, ledger: &Ledger, desired: &Desired, observed: &Observed) -> Decision {
        if let Some(decision) =
            self.rest.as_ref().and_then(|it| it.still(ledger, desired, observed))
        {
            debug_assert!(
                is_same(&decision, &decide(ledger, desired, observed)),
                "time alone changed a decision before it was to be made again: {:?}",
                decision.recheck_in
            );
            return decision;
        }
        let decision = decide(ledger, desired, observed);
        self.rest = (decision.ledger == *ledger).then(|| Rest {
            desired: desired.clone(),
            observed: observed.clone(),
            decision: decision.clone(),
        });
        decision
    }
}

impl Rest {
    /// Returns the decision with its remaining time, if it still holds.
    fn still(&self, ledger: &Ledger, desired: &Desired, observed: &Observed) -> Option<Decision> {
        let Self { desired: wanted, observed: before, decision } = self;
        let passed = observed.passed_since(before)?;
        let left = match decision.recheck_in {
            Some(wait) => Some(wait.checked_sub(passed).filter(|left| !left.is_zero())?),
            None => None,
        };
        let is_same = passed < AGAIN && decision.ledger == *ledger && wanted == desired;
        is_same.then(|| Decision { recheck_in: left, ..decision.clone() })
    }
}

/// Returns whether two decisions differ at most in their times.
fn is_same(one: &Decision, other: &Decision) -> bool {
    let untimed = |of: &Decision| Decision { recheck_in: None, ..of.clone() };
    untimed(one) == untimed(other)
}

impl Observed {
    /// Returns the time that has passed since `before`, by the duration that grew most. Returns
    /// `None` if anything else changed. O(workers + sessions + jobs that wait).
    fn passed_since(&self, before: &Self) -> Option<Duration> {
        let Self {
            workers,
            workers_desired,
            watched_for,
            // Only a reset of the ledger uses the clock, and a reset changes the ledger.
            unix_time_us: _,
            evidence,
            ages,
            positions,
            first_slot,
            since_change,
            since_handover,
            lease,
            longest_lease,
            fence_wait,
            unrenewed,
            adoptable,
            relocations,
            unsteady,
        } = self;
        let is_same = (workers_desired, first_slot)
            == (&before.workers_desired, &before.first_slot)
            && (lease, longest_lease, fence_wait)
                == (&before.lease, &before.longest_lease, &before.fence_wait)
            && (positions, adoptable, unrenewed)
                == (&before.positions, &before.adoptable, &before.unrenewed)
            && (relocations, unsteady) == (&before.relocations, &before.unsteady);
        let all = [
            grown(Some(*watched_for), Some(before.watched_for)),
            grown(*since_change, before.since_change),
            grown(*since_handover, before.since_handover),
            each(workers, &before.workers, worker_grown),
            each(evidence, &before.evidence, evidence_grown),
            each(ages, &before.ages, |now, then| now.checked_sub(*then)),
        ];
        let all: Option<Vec<_>> = all.into_iter().collect();
        all.filter(|_| is_same)?.into_iter().max()
    }
}

/// Returns the largest growth of the values of two maps with the same keys. Returns `None` if
/// values differ in more than time.
fn each<K: Ord, V>(
    now: &BTreeMap<K, V>,
    then: &BTreeMap<K, V>,
    grown: impl Fn(&V, &V) -> Option<Duration>,
) -> Option<Duration> {
    if !now.keys().eq(then.keys()) {
        return None;
    }
    let mut most = Duration::ZERO;
    for (now, then) in now.values().zip(then.values()) {
        most = most.max(grown(now, then)?);
    }
    Some(most)
}

/// Returns the growth of a duration; `None` if it restarted, or is known only since.
fn grown(now: Option<Duration>, then: Option<Duration>) -> Option<Duration> {
    match (now, then) {
        (Some(now), Some(then)) => now.checked_sub(then),
        (None, None) => Some(Duration::ZERO),
        (Some(_), None) | (None, Some(_)) => None,
    }
}

fn worker_grown(now: &WorkerSeen, then: &WorkerSeen) -> Option<Duration> {
    let WorkerSeen { name, presence, session } = now;
    let is_same = (name, session) == (&then.name, &then.session);
    let grown = match (presence, then.presence) {
        (Presence::Ready, Presence::Ready) | (Presence::Draining, Presence::Draining) => {
            Some(Duration::ZERO)
        }
        (Presence::NotReady(now), Presence::NotReady(then))
        | (Presence::Away(now), Presence::Away(then))
        | (Presence::Leaving(now), Presence::Leaving(then)) => now.checked_sub(then),
        (Presence::Ending { age: now, grace }, Presence::Ending { age: then, grace: before }) => {
            now.checked_sub(then).filter(|_| *grace == before)
        }
        (
            Presence::Ready
            | Presence::Draining
            | Presence::NotReady(_)
            | Presence::Away(_)
            | Presence::Leaving(_)
            | Presence::Ending { .. },
            _,
        ) => None,
    };
    grown.filter(|_| is_same)
}

fn evidence_grown(now: &Evidence, then: &Evidence) -> Option<Duration> {
    let Evidence { acked, stopping, finished, ended, gone_for, culprit, lease } = now;
    let is_same = (acked, ended, culprit, lease)
        == (&then.acked, &then.ended, &then.culprit, &then.lease)
        && (stopping, finished) == (&then.stopping, &then.finished);
    grown(*gone_for, then.gone_for).filter(|_| is_same)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::handover::{Cell, Policy, Proof, Record, SessionId, Stopping};
    use crate::{Position, Slot, Token, View, jobs};

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns a pool of three in which worker 0 has this presence.
    fn observed(presence: Presence) -> Observed {
        let worker = |n: u32| {
            let presence = if n == 0 { presence } else { Presence::Ready };
            let session = Some(SessionId::new("pod", u64::from(n)));
            (Slot(n), WorkerSeen { name: format!("w-{n}"), presence, session })
        };
        Observed::new((0..3).map(worker), 1, [])
    }

    fn desired() -> Desired {
        Desired { jobs: jobs(["a", "b", "c", "d"]).unwrap(), ..Desired::default() }
    }

    /// Returns a decider whose pool has come to rest, and its ledger.
    fn at_rest(desired: &Desired, observed: &Observed) -> (Decider, Ledger) {
        let mut decider = Decider::default();
        let ledger = decide(&Ledger::new(1), desired, &self::observed(Presence::Ready)).ledger;
        let again = decider.decide(&ledger, desired, observed);
        assert_eq!(again.ledger, ledger);
        (decider, ledger)
    }

    fn holds(decider: &Decider, ledger: &Ledger, desired: &Desired, observed: &Observed) -> bool {
        decider.rest.as_ref().is_some_and(|it| it.still(ledger, desired, observed).is_some())
    }

    #[test]
    fn a_decision_that_changes_nothing_holds_until_its_time_has_come() {
        let (want, away) = (desired(), |secs| observed(Presence::Away(SECOND * secs)));
        let (mut decider, ledger) = at_rest(&want, &away(1));
        assert!(holds(&decider, &ledger, &want, &away(29)));
        let kept = decider.decide(&ledger, &want, &away(29));
        assert_eq!(kept.recheck_in, Some(SECOND));
        assert!(!holds(&decider, &ledger, &want, &away(30)));
        assert_ne!(decider.decide(&ledger, &want, &away(30)).ledger, ledger);
        assert!(
            !holds(&decider, &ledger, &want, &away(30)),
            "one that changes something is not kept"
        );
    }

    #[test]
    fn whatever_else_happens_is_decided_upon() {
        let (want, seen) = (desired(), observed(Presence::NotReady(SECOND)));
        let (decider, ledger) = at_rest(&want, &seen);
        assert!(holds(&decider, &ledger, &want, &seen));
        assert!(!holds(&decider, &ledger, &want, &observed(Presence::Ready)));
        assert!(!holds(&decider, &ledger, &want, &observed(Presence::NotReady(Duration::ZERO))));
        let more = Desired { jobs: jobs(["a", "b", "c", "d", "e"]).unwrap(), ..want.clone() };
        assert!(!holds(&decider, &ledger, &more, &seen));
        assert!(!holds(&decider, &Ledger::new(1), &want, &seen));
        let ended = Evidence { ended: Some(Proof::Closed), ..Evidence::default() };
        let proved =
            Observed { evidence: [(SessionId::new("pod", 0), ended)].into(), ..seen.clone() };
        assert!(!holds(&decider, &ledger, &want, &proved));
        let late = Observed { watched_for: AGAIN, ..seen };
        assert!(!holds(&decider, &ledger, &want, &late), "there is a net under it");
    }

    #[test]
    fn whatever_else_is_seen_of_a_pool_is_decided_upon() {
        let (want, seen) = (desired(), observed(Presence::Ready));
        let (decider, ledger) = at_rest(&want, &seen);
        assert!(holds(&decider, &ledger, &want, &seen));
        let changes: [fn(&mut Observed); 10] = [
            |it| it.workers_desired += 1,
            |it| it.first_slot += 1,
            |it| it.lease += SECOND,
            |it| it.longest_lease += SECOND,
            |it| it.fence_wait += SECOND,
            |it| it.positions.extend([Position::default()]),
            |it| it.adoptable = Some(View::default()),
            |it| it.since_change = Some(SECOND),
            |it| it.workers.values_mut().for_each(|it| it.name.push('x')),
            |it| it.workers.values_mut().for_each(|it| it.session = None),
        ];
        for (n, change) in changes.into_iter().enumerate() {
            let mut other = seen.clone();
            change(&mut other);
            assert!(!holds(&decider, &ledger, &want, &other), "change {n}");
        }
    }

    #[test]
    fn whatever_else_is_known_of_a_session_is_decided_upon() {
        let known = |known| {
            let evidence = [(SessionId::new("pod", 0), known)].into();
            Observed { evidence, ..observed(Presence::Ready) }
        };
        let seconds = |n| Evidence { gone_for: Some(SECOND * n), ..Evidence::default() };
        let want = Desired { policy: Policy::Exclusive, ..desired() };
        let (decider, ledger) = at_rest(&want, &known(seconds(1)));
        assert!(holds(&decider, &ledger, &want, &known(seconds(2))), "time has passed");
        let job = || "a".parse().unwrap();
        for other in [
            Evidence::default(),
            Evidence { acked: 1, ..seconds(1) },
            Evidence { stopping: Stopping { reads: 1, ..Stopping::default() }, ..seconds(1) },
            Evidence { ended: Some(Proof::Closed), ..seconds(1) },
            Evidence { culprit: Some(job()), ..seconds(1) },
            Evidence { lease: Some(SECOND), ..seconds(1) },
            Evidence { finished: [(job(), Token(1))].into(), ..seconds(1) },
        ] {
            assert!(!holds(&decider, &ledger, &want, &known(other.clone())), "{other:?}");
        }
    }

    #[test]
    fn decisions_that_differ_in_their_times_at_most_are_the_same() {
        let one = decide(&Ledger::new(1), &desired(), &observed(Presence::Ready));
        assert!(is_same(&one, &Decision { recheck_in: Some(SECOND), ..one.clone() }));
        assert!(!is_same(&one, &Decision { replicas: Some(9), ..one.clone() }));
    }

    fn any_presence() -> impl Strategy<Value = Presence> {
        let age = (0..400_u32).prop_map(|secs| SECOND * secs);
        prop_oneof![
            3 => Just(Presence::Ready),
            1 => Just(Presence::Draining),
            1 => age.clone().prop_map(Presence::NotReady),
            1 => age.clone().prop_map(Presence::Away),
            1 => age.clone().prop_map(Presence::Leaving),
            1 => (age.clone(), age).prop_map(|(age, grace)| Presence::Ending { age, grace }),
        ]
    }

    /// Returns the same presence, `by` later.
    fn later(presence: Presence, by: Duration) -> Presence {
        match presence {
            Presence::Ready | Presence::Draining => presence,
            Presence::NotReady(age) => Presence::NotReady(age + by),
            Presence::Away(age) => Presence::Away(age + by),
            Presence::Leaving(age) => Presence::Leaving(age + by),
            Presence::Ending { age, grace } => Presence::Ending { age: age + by, grace },
        }
    }

    proptest! {
        /// An assertion in the decider compares each repeated decision with a fresh one.
        #[test]
        fn a_kept_decision_is_the_one_that_would_be_made(
            presences in prop::collection::vec(any_presence(), 3),
            plain in any::<bool>(),
            paused in any::<bool>(),
            policy in prop_oneof![Just(Policy::Exclusive), Just(Policy::AtLeastOnce)],
            gone in prop::option::of(0..60_u32),
            since in prop::option::of(0..9_u32),
            moves_max in prop::option::of(0..2_usize),
            steps in prop::collection::vec(0..20_u32, 1..12),
        ) {
            let mut want = Desired { policy, ..desired() };
            let mut ledger = decide(&Ledger::new(1), &want, &observed(Presence::Ready)).ledger;
            want.rules.moves_max = moves_max;
            want.paused = paused;
            want.batch_window = SECOND * 5;
            let mut seen = observed(Presence::Ready);
            for ((slot, worker), presence) in seen.workers.iter_mut().zip(presences) {
                worker.presence = presence;
                if plain {
                    worker.session = Some(SessionId::plain(&format!("pod-{slot}")));
                }
            }
            if let Some(gone) = gone {
                let gone_for = Some(SECOND * gone);
                let evidence = Evidence { gone_for, ..Evidence::default() };
                seen.evidence.insert(SessionId::new("pod", 1), evidence);
            }
            (seen.since_change, seen.since_handover) =
                (since.map(|it| SECOND * it), since.map(|it| SECOND * it));
            let mut decider = Decider::default();
            for by in steps.into_iter().map(|it| SECOND * it) {
                let fresh = decide(&ledger, &want, &seen);
                let made = decider.decide(&ledger, &want, &seen);
                prop_assert!(is_same(&made, &fresh));
                // A repeated decision is looked at no later than a new one would be.
                prop_assert!(fresh.recheck_in.is_none_or(|at| made.recheck_in.is_some_and(|it| it <= at)));
                let waits = |record: &Record| {
                    !matches!(record.cell, Cell::Granted { .. })
                };
                seen.ages = ledger.cells.jobs.iter().filter(|(_, record)| waits(record)).map(|(job, _)| {
                    (job.clone(), seen.ages.get(job).map_or(Duration::ZERO, |age| *age + by))
                }).collect();
                if made.ledger != ledger {
                    ledger = made.ledger;
                    seen.ages.clear();
                }
                seen.watched_for += by;
                for worker in seen.workers.values_mut() {
                    worker.presence = later(worker.presence, by);
                }
                for evidence in seen.evidence.values_mut() {
                    evidence.gone_for = evidence.gone_for.map(|it| it + by);
                }
                seen.since_change = seen.since_change.map(|it| it + by);
                seen.since_handover = seen.since_handover.map(|it| it + by);
            }
        }
    }
}
