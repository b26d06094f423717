//! The time that the holder of a Lease gives its store for an answer.

use std::time::Duration;

use super::LeaseTerms;

/// The time for an answer about a Lease. It begins at half a renewal interval, so that a request that
/// was lost on the way is soon sent again. It doubles with each request that is not answered in time,
/// and halves with each write that succeeds. On a slow store, a holder that never waits for longer
/// never renews.
///
/// It is at most a quarter of the time from a renewal until the jobs must stop. So before that, at least
/// three more requests are sent.
///
/// ```
/// use swarm_core::handover::{LeaseTerms, Patience};
///
/// let mut patience = Patience::new(&LeaseTerms::default());
/// assert_eq!(patience.limit().as_millis(), 2_000);
/// patience.learn(false);
/// assert_eq!(patience.limit().as_millis(), 3_750);
/// patience.learn(true);
/// assert_eq!(patience.limit().as_millis(), 2_000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    least: Duration,
    most: Duration,
    limit: Duration,
}

impl Patience {
    /// Makes the patience of a holder under these terms.
    #[must_use]
    pub fn new(terms: &LeaseTerms) -> Self {
        let least = terms.renew / 2;
        let most = terms.duration.saturating_sub(terms.stop_timeout) / 4;
        Self { least, most: most.max(least), limit: least }
    }

    /// Returns the time for the next answer.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Learns that a write has succeeded, or that a request got no answer.
    pub fn learn(&mut self, has_written: bool) {
        let next = if has_written { self.limit / 2 } else { self.limit * 2 };
        self.limit = next.clamp(self.least, self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handover::{Lease, LeaseVersion, LeaseWrite, Moment, SessionId};
    use crate::session::{Session, SessionEffect, SessionEvent};

    /// A step of a request.
    enum Step {
        /// The write reaches the store, and the answer reaches the session if it still waits.
        Lands(LeaseWrite, bool),
        /// The Lease is read.
        IsRead,
        /// The session gives the request up.
        IsLate(u64),
    }

    /// Runs a session for ten minutes on a store that answers after `latency`. Returns whether it kept
    /// its Lease from the first renewal on.
    fn keeps_its_lease(terms: LeaseTerms, latency: Duration, mut patience: Patience) -> bool {
        let mut now = Moment::default();
        let (mut session, mut effects) = Session::open(SessionId::new("pod", 1), terms, now);
        let (mut stored, mut version, mut number) = (None::<Lease>, 0, 0);
        let mut steps = Vec::<(Moment, Step)>::new();
        while now.since(Moment::default()) < Duration::from_mins(10) {
            for effect in effects.drain(..) {
                let limit = patience.limit();
                let is_in_time = latency <= limit;
                match effect {
                    SessionEffect::Write(write) => {
                        number = write.number;
                        steps.push((now.after(latency), Step::Lands(write, is_in_time)));
                    }
                    SessionEffect::ReadLease if is_in_time => {
                        steps.push((now.after(latency), Step::IsRead));
                    }
                    SessionEffect::ReadLease => {}
                    _ => continue,
                }
                if !is_in_time {
                    steps.push((now.after(limit), Step::IsLate(number)));
                }
            }
            steps.sort_by_key(|(at, _)| *at);
            let wakes_at = session.wakes_at().unwrap_or(Moment(Duration::MAX));
            let event = if steps.first().is_some_and(|(at, _)| *at <= wakes_at) {
                let (at, step) = steps.remove(0);
                now = now.max(at);
                match step {
                    Step::Lands(write, is_awaited) => {
                        let result = write.onto(stored.as_ref(), LeaseVersion(version + 1));
                        let number = write.number;
                        let answer = result.map_or(SessionEvent::Conflict { number }, |lease| {
                            version += 1;
                            stored = Some(lease);
                            SessionEvent::Written { number, version: LeaseVersion(version) }
                        });
                        if !is_awaited {
                            continue;
                        }
                        answer
                    }
                    Step::IsRead => SessionEvent::LeaseRead(stored.clone()),
                    Step::IsLate(number) => SessionEvent::Lost { number },
                }
            } else if session.wakes_at().is_some() {
                now = now.max(wakes_at);
                SessionEvent::Tick
            } else {
                return false;
            };
            match event {
                SessionEvent::Lost { .. } => patience.learn(false),
                SessionEvent::Written { .. } => patience.learn(true),
                _ => {}
            }
            let had = session.deadline();
            if had != Moment::default() && had < now {
                return false;
            }
            effects = session.step_all(now, [event]);
        }
        session.deadline() != Moment::default()
    }

    #[test]
    fn a_session_keeps_its_lease_on_a_store_that_is_slow() {
        let short = LeaseTerms {
            renew: Duration::from_secs(1),
            stop_timeout: Duration::from_secs(2),
            ..LeaseTerms::default()
        };
        assert_eq!(short.duration, Duration::from_secs(20));
        for (terms, latencies) in [
            (short, &[0_u64, 400, 600, 1_000, 1_500, 2_000][..]),
            (LeaseTerms::default(), &[0, 1_900, 2_100, 3_000][..]),
        ] {
            let patience = Patience::new(&terms);
            let fixed = Patience { most: patience.least, ..patience };
            for latency in latencies.iter().copied().map(Duration::from_millis) {
                assert!(keeps_its_lease(terms, latency, patience), "{latency:?} under {terms:?}");
                let is_fast = latency <= patience.least;
                assert_eq!(keeps_its_lease(terms, latency, fixed), is_fast, "{latency:?}");
            }
        }
    }
}
