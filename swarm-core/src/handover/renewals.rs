//! The renewals of a session, as evidence that it runs.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::Moment;

/// The last two renewals of a session that an observer has seen. It is for people: no grant and no proof
/// rests on it.
///
/// A session is heard until its last renewal has reached a bound of age. After such a silence the first
/// renewal is not enough, since a session may come and go. The second one ends the silence, if it comes
/// within the bound.
///
/// ```
/// use std::time::Duration;
/// use swarm_core::handover::{Moment, Renewals};
///
/// let (at, bound) = (|s| Moment(Duration::from_secs(s)), Duration::from_secs(17));
/// let mut renewals = Renewals::first(at(0));
/// assert!(renewals.is_heard(at(16), bound) && !renewals.is_heard(at(17), bound));
/// renewals.renewed(at(30));
/// assert!(!renewals.is_heard(at(30), bound));
/// renewals.renewed(at(34));
/// assert!(renewals.is_heard(at(34), bound));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewals {
    /// The moment of the last renewal.
    pub last: Moment,
    /// The time between the renewal before and the last one; zero for the first one.
    pub pause: Duration,
}

impl Renewals {
    /// Returns the first renewal that was seen.
    #[must_use]
    pub fn first(at: Moment) -> Self {
        Self { last: at, pause: Duration::ZERO }
    }

    /// Records another renewal.
    pub fn renewed(&mut self, at: Moment) {
        (self.pause, self.last) = (at.since(self.last), at);
    }

    /// Returns the moment from which the session is silent unless it renews before; `None` while a
    /// silence lasts that only a further renewal ends.
    ///
    /// ```
    /// use std::time::Duration;
    /// use swarm_core::handover::{Moment, Renewals};
    ///
    /// let (start, bound) = (Moment::default(), Duration::from_secs(17));
    /// let mut renewals = Renewals::first(start);
    /// assert_eq!(renewals.heard_until(bound), Some(start.after(bound)));
    /// renewals.renewed(start.after(bound));
    /// assert_eq!(renewals.heard_until(bound), None);
    /// ```
    #[must_use]
    pub fn heard_until(&self, bound: Duration) -> Option<Moment> {
        (self.pause < bound).then(|| self.last.after(bound))
    }

    /// Returns whether the session is heard at `now`.
    #[must_use]
    pub fn is_heard(&self, now: Moment, bound: Duration) -> bool {
        self.heard_until(bound).is_some_and(|until| now < until)
    }
}
