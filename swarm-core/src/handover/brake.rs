//! The brake on mass failures. If very many sessions fall silent at once, the fault is more likely
//! with the observer than with all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{LeaseTerms, Moment, SessionId};

/// The number of silent sessions up to which the brake never engages.
const SILENT_MAX: usize = 3;
/// The percentage of silent sessions up to which the brake never engages.
const SILENT_PERCENT_MAX: usize = 30;
/// The percentage of all sessions that may be revoked per lease duration once the brake allows any.
const RATE_PERCENT: usize = 10;
/// The number of lease durations for which an engaged brake holds all sessions back.
const DURATIONS_HELD: u32 = 2;

/// Returns how many of `all` workers may fail at a time before a common fault is more likely:
/// max([`SILENT_MAX`], [`SILENT_PERCENT_MAX`] % of `all`).
pub(crate) fn few(all: usize) -> usize {
    SILENT_MAX.max(all.saturating_mul(SILENT_PERCENT_MAX) / 100)
}

/// Returns how many of `all` sessions may be revoked per lease duration: [`RATE_PERCENT`] % of
/// `all`, and at least one.
fn rate(all: usize) -> usize {
    (all.saturating_mul(RATE_PERCENT) / 100).max(1)
}

/// The health of the observer itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    /// Its reads and watches are fresh.
    Good,
    /// Its reads are slow or its watches lag, so the silence may be its own fault.
    Poor,
}

/// Decides which silent sessions may be revoked now. It is not stored; each observer has one per
/// pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Brake {
    engaged: Option<Engaged>,
    /// The sessions that were let through while the brake was not engaged, with the moments. They
    /// count as silent for one lease duration. Otherwise a mass failure that shows in one session
    /// after the other would look like many single failures.
    lately: BTreeMap<SessionId, Moment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Engaged {
    since: Moment,
    /// The sessions that were let through, with the moments. Each counts for one lease duration.
    let_through: Vec<(Moment, SessionId)>,
}

impl Brake {
    /// Returns the `silent` sessions that may be revoked at `now`, out of `total` sessions.
    ///
    /// If few sessions are silent, all of them may be revoked. Sessions that were let through
    /// within the last lease duration count as silent. The brake engages if more than three
    /// sessions and more than 30 % are silent, or if the observer's own health is poor. Then no
    /// session may be revoked for two lease durations, and afterwards 10 % of all per lease
    /// duration (at least one), until few are silent again.
    ///
    /// ```
    /// use std::collections::BTreeSet;
    /// use swarm_core::handover::{Brake, Health, LeaseTerms, Moment, SessionId};
    ///
    /// let silent = |count| (0..count).map(|n| SessionId::new("pod", n)).collect::<BTreeSet<_>>();
    /// let allowed = |count, health| {
    ///     let terms = LeaseTerms::default();
    ///     Brake::default().allow(Moment::default(), &silent(count), 100, health, &terms).len()
    /// };
    /// assert_eq!(allowed(30, Health::Good), 30);
    /// assert_eq!(allowed(31, Health::Good), 0); // more than 30 %: a common fault is more likely
    /// assert_eq!(allowed(1, Health::Poor), 0);
    /// ```
    pub fn allow(
        &mut self,
        now: Moment,
        silent: &BTreeSet<SessionId>,
        total: usize,
        health: Health,
        terms: &LeaseTerms,
    ) -> BTreeSet<SessionId> {
        self.lately.retain(|_, at| now.since(*at) < terms.duration);
        let lately = self.lately.keys().filter(|session| !silent.contains(*session)).count();
        let all = total.saturating_add(lately);
        if silent.len() + lately <= few(all) && health == Health::Good {
            self.engaged = None;
            for session in silent {
                self.lately.entry(session.clone()).or_insert(now);
            }
            return silent.clone();
        }
        let engaged =
            self.engaged.get_or_insert_with(|| Engaged { since: now, let_through: Vec::new() });
        if now.since(engaged.since) < terms.duration.saturating_mul(DURATIONS_HELD) {
            return BTreeSet::new();
        }
        engaged.let_through(now, silent, total, terms.duration)
    }

    /// Returns when the brake next lets through some of the `silent` sessions that the last
    /// [`allow`](Self::allow) held back. This assumes that these sessions stay silent and no others
    /// fall silent. `None` if the brake holds no session back. The observer's health is good again
    /// from `well_at` on.
    ///
    /// ```
    /// use swarm_core::handover::{Brake, Health, LeaseTerms, Moment, SessionId};
    ///
    /// let (now, terms) = (Moment::default(), LeaseTerms::default());
    /// let silent = (0..31).map(|n| SessionId::new("pod", n)).collect();
    /// let mut brake = Brake::default();
    /// assert!(brake.allow(now, &silent, 100, Health::Good, &terms).is_empty());
    /// let next = brake.opens_at(&silent, 100, now, &terms);
    /// assert_eq!(next, Some(now.after(terms.duration * 2)));
    /// ```
    #[must_use]
    pub fn opens_at(
        &self,
        silent: &BTreeSet<SessionId>,
        total: usize,
        well_at: Moment,
        terms: &LeaseTerms,
    ) -> Option<Moment> {
        let engaged = self.engaged.as_ref()?;
        if engaged.let_through.iter().filter(|(_, id)| silent.contains(id)).count() == silent.len()
        {
            return None;
        }
        let few_at = self.few_at(silent, total, terms.duration).map(|at| at.max(well_at));
        few_at.into_iter().chain([engaged.opens_at(total, terms.duration)]).min()
    }

    /// Returns when enough sessions that were let through lately are old enough that the `silent`
    /// sessions are few. `None` if they are too many anyway.
    fn few_at(&self, silent: &BTreeSet<SessionId>, total: usize, per: Duration) -> Option<Moment> {
        let lately = self.lately.iter().filter(|(session, _)| !silent.contains(*session));
        let mut over: Vec<_> = lately.map(|(_, at)| at.after(per)).collect();
        over.sort_unstable();
        let is_few = |left: usize| silent.len() + left <= few(total.saturating_add(left));
        if is_few(over.len()) {
            return Some(Moment::default());
        }
        let mut passed = over.iter().enumerate();
        passed.find(|(n, _)| is_few(over.len() - n - 1)).map(|(_, at)| *at)
    }

    /// Returns whether the brake holds sessions back; a condition should report this.
    ///
    /// ```
    /// use swarm_core::handover::{Brake, Health, LeaseTerms, Moment, SessionId};
    ///
    /// let mut brake = Brake::default();
    /// let silent = [SessionId::new("pod", 1)].into();
    /// brake.allow(Moment::default(), &silent, 1, Health::Poor, &LeaseTerms::default());
    /// assert!(brake.is_engaged());
    /// ```
    #[must_use]
    pub fn is_engaged(&self) -> bool {
        self.engaged.is_some()
    }
}

impl Engaged {
    /// Returns when it lets the next session through.
    fn opens_at(&self, total: usize, per: Duration) -> Moment {
        let from = self.since.after(per.saturating_mul(DURATIONS_HELD));
        let is_full = rate(total) <= self.let_through.len();
        let first = self.let_through.iter().map(|(at, _)| at.after(per)).min();
        first.filter(|_| is_full).map_or(from, |at| from.max(at))
    }

    fn let_through(
        &mut self,
        now: Moment,
        silent: &BTreeSet<SessionId>,
        total: usize,
        per: Duration,
    ) -> BTreeSet<SessionId> {
        self.let_through.retain(|(at, _)| now.since(*at) < per);
        let already: BTreeSet<_> = self.let_through.iter().map(|(_, id)| id.clone()).collect();
        let left = rate(total).saturating_sub(already.len());
        let more = silent.difference(&already).take(left).cloned().collect::<Vec<_>>();
        self.let_through.extend(more.iter().map(|id| (now, id.clone())));
        already.intersection(silent).cloned().chain(more).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sessions(n: u64) -> BTreeSet<SessionId> {
        (0..n).map(|n| SessionId::new("pod", n)).collect()
    }

    fn at(secs: u64) -> Moment {
        Moment(Duration::from_secs(secs))
    }

    #[test]
    fn a_few_silent_sessions_are_revoked_at_once() {
        let (mut brake, terms) = (Brake::default(), LeaseTerms::default());
        for (silent, total) in [(1, 1), (3, 3), (30, 100)] {
            let allowed = brake.allow(at(0), &sessions(silent), total, Health::Good, &terms);
            assert_eq!(allowed.len() as u64, silent, "{silent} of {total}");
        }
    }

    #[test]
    fn many_that_fall_silent_one_after_the_other_are_many() {
        let (mut brake, terms) = (Brake::default(), LeaseTerms::default());
        let mut allowed = |secs: u64, nonce: u64, total| {
            let silent = [SessionId::new("pod", nonce)].into();
            brake.allow(at(secs), &silent, total, Health::Good, &terms).len()
        };
        assert_eq!([allowed(0, 0, 5), allowed(1, 1, 4), allowed(2, 2, 3)], [1, 1, 1]);
        assert_eq!(
            [allowed(3, 3, 2), allowed(19, 3, 2)],
            [0, 0],
            "the fourth of five in one lease"
        );
        assert_eq!(allowed(22, 3, 2), 1, "the others were long ago");
    }

    #[test]
    fn many_silent_sessions_wait_for_two_durations_and_then_go_slowly() {
        let (mut brake, terms) = (Brake::default(), LeaseTerms::default());
        let mut allowed =
            |secs| brake.allow(at(secs), &sessions(31), 100, Health::Good, &terms).len();
        assert_eq!([allowed(0), allowed(39), allowed(40), allowed(59)], [0, 0, 10, 10]);
        assert_eq!(allowed(60), 10, "ten more, the first ten have had their time");
        let few = brake.allow(at(61), &sessions(21), 100, Health::Good, &terms);
        assert_eq!((few.len(), brake.is_engaged()), (21, false));
    }

    #[test]
    fn a_session_that_is_silent_again_counts_once_for_the_time_at_which_the_brake_opens() {
        let (mut brake, terms) = (Brake::default(), LeaseTerms::default());
        assert_eq!(brake.allow(at(0), &sessions(3), 5, Health::Good, &terms).len(), 3);
        // Two of the three renew again. The third, a fourth, and the two that still count make four
        // within one lease duration.
        let silent = [0, 3].map(|nonce| SessionId::new("pod", nonce)).into();
        assert!(brake.allow(at(5), &silent, 5, Health::Good, &terms).is_empty());
        assert_eq!(brake.opens_at(&silent, 5, at(0), &terms), Some(at(20)));
    }

    #[test]
    fn an_observer_that_is_unwell_revokes_nobody_at_first() {
        let (mut brake, terms) = (Brake::default(), LeaseTerms::default());
        let allowed = brake.allow(at(0), &sessions(1), 100, Health::Poor, &terms);
        assert!(allowed.is_empty() && brake.is_engaged());
    }

    proptest! {
        /// Scope: up to 12 sessions, and up to 12 looks in whole seconds, some of them with poor
        /// health.
        #[test]
        fn it_opens_when_it_says_and_not_before(
            looks in prop::collection::vec((0..15_u64, 0..4096_u16, prop::bool::weighted(0.1)), 1..12),
        ) {
            let (mut brake, terms) = (Brake::default(), LeaseTerms::default());
            let per = terms.duration;
            let (mut now, mut well_at) = (0, Moment::default());
            for (pause, bits, fails) in looks {
                now += pause;
                if fails {
                    well_at = at(now).after(per);
                }
                let health = |now| if well_at <= now { Health::Good } else { Health::Poor };
                let silent: BTreeSet<_> =
                    sessions(12).into_iter().filter(|id| bits >> id.nonce().unwrap() & 1 == 1).collect();
                let allowed = brake.allow(at(now), &silent, 12, health(at(now)), &terms);
                let opens_at = brake.opens_at(&silent, 12, well_at, &terms);
                prop_assert_eq!(opens_at.is_some(), allowed != silent);
                let is_active = |id: &SessionId, now: Moment| {
                    let engaged = brake.engaged.iter().flat_map(|it| &it.let_through);
                    engaged.clone().any(|(since, it)| it == id && now.since(*since) < per)
                };
                for now in (now + 1..).map(at).take_while(|now| opens_at.is_some_and(|at| *now <= at)) {
                    let later = brake.clone().allow(now, &silent, 12, health(now), &terms);
                    let lets_through = later.iter().any(|id| !is_active(id, now));
                    prop_assert_eq!(lets_through, Some(now) == opens_at, "at {:?}", now);
                }
            }
        }
    }
}
