//! The lives of workers: it shows the workers that end again and again without being asked.
//!
//! Each end of such a worker stops its jobs. So from its second end on, the worker gets only jobs
//! that no other worker can take, until it has lived for [`HOLD_OFF`]. Each further end doubles that
//! time. The first end is free: a worker that crashed once goes on with its own jobs.
//!
//! Nothing is stored: an observer that restarts counts from zero.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::facts::WorkerFacts;
use super::proofs::Proofs;
use crate::handover::{Moment, SessionId};
use crate::{Presence, Slot, WorkerSeen};

/// The time that a worker has to live after its second end in a row.
const HOLD_OFF: Duration = Duration::from_secs(10);
/// The longest such time.
const HOLD_OFF_MAX: Duration = Duration::from_secs(5 * 60);
/// The life after which an end counts as the first one again, 2 × [`HOLD_OFF_MAX`].
const STEADY: Duration = Duration::from_secs(2 * HOLD_OFF_MAX.as_secs());

/// The latest lives of the workers of one pool, by the worker's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lives(BTreeMap<String, Life>);

/// The latest life of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Life {
    session: SessionId,
    since: Moment,
    /// Whether it was asked to end, or asked for its end itself.
    is_asked: bool,
    has_ended: bool,
    /// The number of its ends in a row without being asked.
    ends: u32,
}

impl Life {
    /// Returns the moment from which the worker is steady: after its first end at once, after the
    /// n-th end `HOLD_OFF · 2^(n - 2)` after its start, at most [`HOLD_OFF_MAX`].
    fn steady_from(&self) -> Moment {
        let doubled = self.ends.checked_sub(2).map(|more| 2_u32.saturating_pow(more));
        let wait = doubled.map_or(Duration::ZERO, |times| HOLD_OFF.saturating_mul(times));
        self.since.after(wait.min(HOLD_OFF_MAX))
    }

    fn is_unsteady(&self, now: Moment) -> bool {
        if self.has_ended { 1 < self.ends } else { now < self.steady_from() }
    }

    fn end(&mut self, now: Moment) {
        if self.has_ended {
            return;
        }
        self.has_ended = true;
        let is_steady = STEADY <= now.since(self.since);
        if !self.is_asked {
            self.ends = if is_steady { 1 } else { self.ends.saturating_add(1) };
        }
    }
}

impl Lives {
    /// Notes the lives of the workers at `now`. O(workers · log sessions).
    pub(super) fn see(
        &mut self,
        now: Moment,
        proofs: &Proofs,
        workers: &BTreeMap<Slot, WorkerFacts>,
    ) {
        let mut before = std::mem::take(&mut self.0);
        for facts in workers.values() {
            let living = facts.pod.as_deref().and_then(|uid| proofs.living(uid));
            let mut life = before.remove(&facts.name);
            if let Some(life) = life.as_mut().filter(|life| Some(&life.session) != living) {
                life.end(now);
            }
            let begins = living.filter(|_| life.as_ref().is_none_or(|life| life.has_ended));
            if let Some(session) = begins {
                let ends = life.map_or(0, |life| life.ends);
                let (session, since) = (session.clone(), now);
                life = Some(Life { session, since, is_asked: false, has_ended: false, ends });
            }
            if let Some(mut life) = life {
                life.is_asked |= is_asked(facts, proofs, &life.session);
                self.0.insert(facts.name.clone(), life);
            }
        }
    }

    /// Returns the slots of unsteady workers that live. An unsteady worker without a session is not
    /// waited for: others get its jobs. O(workers · log workers).
    pub(super) fn unsteady(
        &self,
        now: Moment,
        workers: &mut BTreeMap<Slot, WorkerSeen>,
    ) -> BTreeSet<Slot> {
        let mut unsteady = BTreeSet::new();
        for (slot, seen) in workers {
            if !self.0.get(&seen.name).is_some_and(|life| life.is_unsteady(now)) {
                continue;
            }
            if seen.session.is_some() {
                unsteady.insert(*slot);
            } else if let Presence::Ready | Presence::NotReady(_) | Presence::Away(_) =
                seen.presence
            {
                seen.presence = Presence::Draining;
            }
        }
        unsteady
    }

    /// Returns the next moment after `at` when a worker becomes steady. O(workers).
    pub(super) fn wakes_at(&self, at: Moment) -> Option<Moment> {
        let living = self.0.values().filter(|life| !life.has_ended);
        living.map(Life::steady_from).filter(|from| at < *from).min()
    }
}

fn is_asked(facts: &WorkerFacts, proofs: &Proofs, session: &SessionId) -> bool {
    let is_leaving = match facts.presence {
        Presence::Leaving(_) | Presence::Ending { .. } | Presence::Draining => true,
        Presence::Ready | Presence::NotReady(_) | Presence::Away(_) => false,
    };
    is_leaving || proofs.get(session).is_some_and(|watch| watch.ack.is_draining)
}
