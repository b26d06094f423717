//! Plan of a refresh: which plain workers are nudged, which are replaced, and which wait for
//! others. It is data, which the controller carries out.
//!
//! A worker is known to have a publication if its `versionEndpoint` says so, or if its pod was
//! created after the publication. If neither can be known, nudges are the only means.
//!
//! Workers that gave jobs to others come first. The others wait until each of these is known to
//! have stopped the jobs, or until [`PLAIN_HANDOVER`] after its nudge. So a job hardly ever runs
//! twice. That needs no memory: the ledger records which workers gave jobs, and annotations record
//! which were nudged.
//!
//! Sessions release, acknowledge and get jobs in separate writes. Plain workers without an endpoint
//! cannot acknowledge, so each of their moves would wait for a timeout. A restart of the container
//! proves nothing either, since the container may start with the old mount.

use std::time::Duration;

use swarm_client::api::{RefreshMode, Swarm};
use swarm_core::{PLAIN_HANDOVER, Slot};

use super::nudge::{Nudge, again, nudge, version_of};

/// The longest time for which a worker that gains jobs waits for the replacement of a worker that
/// gave some.
pub(crate) const RELEASE_TIMEOUT: Duration = Duration::from_mins(1);

/// The refresh settings of a Swarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefreshTerms {
    /// The way to update a stale worker.
    pub mode: RefreshMode,
    /// The most unavailable workers with which a replacement may begin.
    pub unavailable_max: usize,
    /// Whether workers can be asked which jobs they run.
    pub asks: bool,
}

impl RefreshTerms {
    /// The settings of `swarm`.
    #[must_use]
    pub fn of(swarm: &Swarm) -> Self {
        let refresh = swarm.spec.refresh.clone().unwrap_or_default();
        let most = refresh.max_unavailable.and_then(|most| usize::try_from(most).ok());
        let worker = swarm.spec.worker.as_ref();
        Self {
            mode: refresh.mode.unwrap_or_default(),
            unavailable_max: most.unwrap_or(1),
            asks: worker.is_some_and(|worker| worker.version_endpoint.is_some()),
        }
    }

    /// Whether stale workers are replaced.
    #[must_use]
    pub fn replaces(&self) -> bool {
        matches!(self.mode, RefreshMode::Evict | RefreshMode::Delete)
    }

    /// Whether the jobs of a worker can be known.
    #[must_use]
    pub fn knows(&self) -> bool {
        self.asks || self.replaces()
    }
}

/// One existing worker, and its known state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Its slot.
    pub slot: Slot,
    /// The publication that last changed its jobs.
    pub version: u64,
    /// The publication that last gave one of its jobs to another worker.
    pub last_handoff_version: u64,
    /// The newest publication that the worker is known to have.
    pub has: u64,
    /// The nudge in the worker's annotation, and its age.
    pub nudge: Option<(String, Duration)>,
    /// Whether the view was repaired since the nudge. The worker may have read another client's
    /// view before the repair.
    pub is_repaired: bool,
    /// Time since the first nudge for the jobs that the worker gave; `None` if another process made
    /// it.
    pub handoff_nudged_for: Option<Duration>,
    /// Whether the worker is ready.
    pub is_ready: bool,
    /// Whether the worker's pod is being deleted.
    pub is_leaving: bool,
}

impl Worker {
    fn nudged_for(&self) -> u64 {
        self.nudge.as_ref().and_then(|(annotation, _)| version_of(annotation)).unwrap_or(0)
    }

    /// The time for which other workers wait for this one.
    fn delays_others_for(&self, terms: &RefreshTerms) -> Duration {
        let has_released = terms.asks && self.last_handoff_version <= self.has;
        if self.last_handoff_version == 0 || has_released {
            return Duration::ZERO;
        }
        if self.nudged_for() < self.last_handoff_version {
            return PLAIN_HANDOVER;
        }
        PLAIN_HANDOVER.saturating_sub(self.handoff_nudged_for.unwrap_or(Duration::MAX))
    }
}

/// The actions of a refresh.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refresh {
    /// The workers to nudge, in this order, each with its annotation.
    pub nudge: Vec<(Slot, String)>,
    /// The workers to replace, in this order.
    pub replace: Vec<Slot>,
    /// The workers that are not known to have their newest jobs, or were not nudged for them yet.
    pub stale: Vec<Slot>,
    /// Whether replacements wait because too many workers are unavailable.
    pub is_full: bool,
    /// Time until the next look.
    pub requeue_after: Option<Duration>,
}

/// Plans the refresh of `workers`, which are sorted by slot.
///
/// `unavailable` is the number of the pool's slots without a ready worker. `since_change` is the
/// time since the newest publication. O(workers).
#[must_use]
pub fn refresh(
    terms: &RefreshTerms,
    workers: &[Worker],
    unavailable: usize,
    since_change: Duration,
) -> Refresh {
    match terms.mode {
        RefreshMode::None if !terms.asks => Refresh::default(),
        RefreshMode::None => Refresh { stale: unknown(workers), ..Refresh::default() },
        RefreshMode::HotReload => nudges(terms, workers),
        RefreshMode::Evict | RefreshMode::Delete => {
            replacements(terms, workers, unavailable, since_change)
        }
    }
}

fn unknown(workers: &[Worker]) -> Vec<Slot> {
    workers.iter().filter(|it| it.has < it.version).map(|it| it.slot).collect()
}

fn nudges(terms: &RefreshTerms, workers: &[Worker]) -> Refresh {
    let wait = workers.iter().map(|it| it.delays_others_for(terms)).max().unwrap_or_default();
    let wait = wait.min(RELEASE_TIMEOUT);
    let (mut givers, mut others, mut refresh) = (Vec::new(), Vec::new(), Refresh::default());
    for worker in workers {
        let Worker { slot, version, last_handoff_version, has, nudge: made, .. } = worker;
        if worker.is_repaired {
            let made = made.as_ref().map(|(annotation, _)| annotation.as_str());
            others.push((*slot, again(made, *version)));
            continue;
        }
        let is_known = terms.asks && version <= has;
        if is_known {
            continue;
        }
        let is_nudged = worker.nudged_for() == *version;
        if terms.asks || !is_nudged {
            refresh.stale.push(*slot);
        }
        let gains = *last_handoff_version <= worker.nudged_for();
        let requeue_after = if gains && !is_nudged && !wait.is_zero() {
            wait
        } else {
            let since = made.as_ref().map_or(Duration::MAX, |(_, since)| *since);
            let made = made.as_ref().map(|(annotation, _)| annotation.as_str());
            match nudge(made, *version, since) {
                Nudge::Done => continue,
                Nudge::In(left) => left,
                Nudge::Now(annotation) => {
                    let list = if gains { &mut others } else { &mut givers };
                    list.push((*slot, annotation));
                    continue;
                }
            }
        };
        refresh.requeue_after = refresh.requeue_after.into_iter().chain([requeue_after]).min();
    }
    givers.append(&mut others);
    Refresh { nudge: givers, ..refresh }
}

fn replacements(
    terms: &RefreshTerms,
    workers: &[Worker],
    unavailable: usize,
    since_change: Duration,
) -> Refresh {
    let gives = |it: &&Worker| it.has < it.last_handoff_version;
    let left = RELEASE_TIMEOUT.saturating_sub(since_change);
    let waits_for_givers = !left.is_zero() && workers.iter().any(|it| gives(&it));
    let mut refresh = Refresh { stale: unknown(workers), ..Refresh::default() };
    let mut room = terms.unavailable_max.saturating_sub(unavailable);
    let stale = || workers.iter().filter(|it| it.has < it.version && !it.is_leaving);
    for worker in stale().filter(gives).chain(stale().filter(|it| !gives(it))) {
        if waits_for_givers && !gives(&worker) {
            refresh.requeue_after = Some(left);
        } else if !worker.is_ready {
            refresh.replace.push(worker.slot);
        } else if 0 < room {
            room -= 1;
            refresh.replace.push(worker.slot);
        } else {
            refresh.is_full = true;
        }
    }
    refresh
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG_AGO: Duration = Duration::from_hours(1);

    fn terms(mode: RefreshMode) -> RefreshTerms {
        RefreshTerms { mode, unavailable_max: 1, asks: false }
    }

    /// A ready worker whose slot changed at publication 2, and which has publication 1.
    fn stale(slot: u32) -> Worker {
        let nudge = Some(("1.3".to_owned(), LONG_AGO));
        let (version, has) = (2, 1);
        let (last_handoff_version, handoff_nudged_for, is_ready, is_leaving) =
            (0, None, true, false);
        let is_repaired = false;
        Worker {
            slot: Slot(slot),
            version,
            last_handoff_version,
            has,
            nudge,
            is_repaired,
            handoff_nudged_for,
            is_ready,
            is_leaving,
        }
    }

    fn giver(slot: u32) -> Worker {
        Worker { last_handoff_version: 2, ..stale(slot) }
    }

    fn nudged(worker: &Worker, ago: Duration) -> Worker {
        let handoff_nudged_for = (0 < worker.last_handoff_version).then_some(ago);
        Worker { nudge: Some(("2.1".to_owned(), ago)), handoff_nudged_for, ..worker.clone() }
    }

    fn slots(nudges: &[(Slot, String)]) -> Vec<u32> {
        nudges.iter().map(|(slot, _)| slot.0).collect()
    }

    #[test]
    fn losers_are_nudged_at_once_and_gainers_when_those_had_time_to_release() {
        let hot = terms(RefreshMode::HotReload);
        let first = refresh(&hot, &[stale(0), giver(1)], 0, Duration::ZERO);
        assert_eq!((slots(&first.nudge), first.requeue_after), (vec![1], Some(PLAIN_HANDOVER)));
        let second = Duration::from_secs(1);
        let then = refresh(&hot, &[stale(0), nudged(&giver(1), second)], 0, Duration::ZERO);
        assert_eq!(
            (slots(&then.nudge), then.stale),
            (vec![1], vec![Slot(0)]),
            "again, in the race"
        );
        assert_eq!(then.requeue_after, PLAIN_HANDOVER.checked_sub(second));
        let last = refresh(&hot, &[stale(0), nudged(&giver(1), PLAIN_HANDOVER)], 0, Duration::ZERO);
        assert_eq!(slots(&last.nudge), [0, 1]);
    }

    #[test]
    fn after_the_view_was_repaired_all_are_nudged_once_more_also_those_known_to_have_it() {
        let asks = RefreshTerms { asks: true, ..terms(RefreshMode::HotReload) };
        let known = Worker { has: 2, nudge: Some(("2.3".to_owned(), LONG_AGO)), ..stale(0) };
        assert_eq!(refresh(&asks, std::slice::from_ref(&known), 0, LONG_AGO), Refresh::default());
        let repaired = Worker { is_repaired: true, ..known };
        let decided = refresh(&asks, std::slice::from_ref(&repaired), 0, LONG_AGO);
        assert_eq!(decided.nudge, [(Slot(0), "2.4".to_owned())]);
        let nobody = terms(RefreshMode::None);
        assert_eq!(refresh(&nobody, &[repaired], 0, LONG_AGO), Refresh::default());
    }

    #[test]
    fn a_loser_that_says_so_has_released() {
        let asks = RefreshTerms { asks: true, ..terms(RefreshMode::HotReload) };
        let answered = Worker { has: 2, ..nudged(&giver(1), Duration::ZERO) };
        let decided = refresh(&asks, &[stale(0), answered], 0, Duration::ZERO);
        assert_eq!((slots(&decided.nudge), decided.stale), (vec![0], vec![Slot(0)]));
    }

    #[test]
    fn who_was_nudged_by_an_earlier_process_holds_up_nobody() {
        let nudged_once = Worker { handoff_nudged_for: None, ..nudged(&giver(1), LONG_AGO) };
        let decided =
            refresh(&terms(RefreshMode::HotReload), &[stale(0), nudged_once], 0, LONG_AGO);
        assert_eq!(slots(&decided.nudge), [0, 1]);
    }

    #[test]
    fn where_nobody_gives_all_are_nudged_at_once() {
        let hot = terms(RefreshMode::HotReload);
        let decided = refresh(&hot, &[stale(0), stale(1)], 0, Duration::ZERO);
        assert_eq!((slots(&decided.nudge), decided.requeue_after), (vec![0, 1], None));
    }

    #[test]
    fn losers_are_replaced_first_and_never_more_than_may_be_unavailable() {
        let evict = terms(RefreshMode::Evict);
        let workers = [stale(0), giver(1), giver(2)];
        let first = refresh(&evict, &workers, 0, Duration::ZERO);
        assert_eq!((first.replace, first.is_full), (vec![Slot(1)], true));
        assert_eq!(first.stale, [Slot(0), Slot(1), Slot(2)]);
        let leaving = Worker { is_leaving: true, is_ready: false, ..giver(1) };
        let then = refresh(&evict, &[stale(0), leaving, giver(2)], 1, Duration::ZERO);
        assert_eq!(then.replace, [], "one is on its way out");
        let replaced = Worker { has: 2, ..giver(1) };
        let then = refresh(&evict, &[stale(0), replaced.clone(), giver(2)], 0, Duration::ZERO);
        assert_eq!(then.replace, [Slot(2)]);
        let both = Worker { has: 2, ..giver(2) };
        let last = refresh(&evict, &[stale(0), replaced, both], 0, Duration::ZERO);
        assert_eq!((last.replace, last.is_full), (vec![Slot(0)], false));
    }

    #[test]
    fn a_worker_that_is_not_ready_is_replaced_without_waiting_for_the_others() {
        let down = Worker { is_ready: false, ..stale(0) };
        let decided = refresh(&terms(RefreshMode::Delete), &[down, stale(1)], 1, LONG_AGO);
        assert_eq!((decided.replace, decided.is_full), (vec![Slot(0)], true));
    }

    #[test]
    fn gainers_wait_for_a_loser_that_cannot_be_replaced_until_the_release_times_out() {
        let evict = terms(RefreshMode::Evict);
        let stuck = Worker { is_leaving: true, is_ready: false, ..giver(1) };
        let down = Worker { is_ready: false, ..stale(0) };
        let second = Duration::from_secs(1);
        let early = refresh(&evict, &[down.clone(), stuck.clone()], 1, second);
        assert_eq!(
            (early.replace, early.requeue_after),
            (vec![], RELEASE_TIMEOUT.checked_sub(second))
        );
        let late = refresh(&evict, &[down, stuck], 1, RELEASE_TIMEOUT);
        assert_eq!(late.replace, [Slot(0)]);
    }

    #[test]
    fn nobody_is_touched_where_nothing_is_to_be_done_for_workers() {
        let none = terms(RefreshMode::None);
        assert_eq!(refresh(&none, &[giver(0)], 0, LONG_AGO), Refresh::default());
        let asks = RefreshTerms { asks: true, ..none };
        let stale = Refresh { stale: vec![Slot(0)], ..Refresh::default() };
        assert_eq!(refresh(&asks, &[giver(0)], 0, LONG_AGO), stale);
    }
}
