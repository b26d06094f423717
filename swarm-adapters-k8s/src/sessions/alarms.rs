//! Wakes pools at rest when one of their sessions has fallen silent.
//!
//! A pool at rest waits for nothing else. Every renewal moves that moment, so a timer of the last
//! turn would expire in vain after every lease. Instead, an alarm that expires checks the Leases,
//! and asks for a turn only if a session is silent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use kube::runtime::reflector::ObjectRef;
use swarm_client::api::Swarm;
use swarm_core::handover::{Moment, SessionId};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::leases::Leases;
use crate::clock;
use crate::locks::unpoisoned;

/// The sessions of a pool at rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alarm {
    /// The time at which the first of them falls silent without a further renewal.
    pub(crate) at: Moment,
    /// The sessions, each with the longest time between its renewals.
    pub(crate) sessions: Vec<(SessionId, Duration)>,
}

/// A namespace and the name of a Swarm.
type Key = (String, String);

/// The alarms of all pools. Clones share the state.
#[derive(Clone, Default)]
pub(crate) struct Alarms(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Notifies the waiting task that the first alarm is now an earlier one.
    is_earlier: Notify,
}

#[derive(Default)]
struct State {
    of_swarm: BTreeMap<Key, Alarm>,
    in_time: BTreeSet<(Moment, Key)>,
}

impl Alarms {
    /// Sets the alarm of a Swarm and replaces the previous one. `None` removes the alarm.
    pub(crate) fn set(&self, namespace: &str, name: &str, alarm: Option<Alarm>) {
        let key = (namespace.to_owned(), name.to_owned());
        let mut state = self.state();
        state.remove(&key);
        if let Some(alarm) = alarm {
            let first = state.in_time.first().map(|(at, _)| *at);
            if first.is_none_or(|first| alarm.at < first) {
                self.0.is_earlier.notify_one();
            }
            state.insert(key, alarm);
        }
    }

    /// Drops the alarms of all Swarms for which `keep` returns false.
    pub(crate) fn retain(&self, keep: impl Fn(&str, &str) -> bool) {
        let mut state = self.state();
        let gone = state.of_swarm.keys().filter(|(namespace, name)| !keep(namespace, name));
        for key in gone.cloned().collect::<Vec<_>>() {
            state.remove(&key);
        }
    }

    /// The Swarms whose alarms ring, while the stream is polled. An alarm rings once.
    pub(crate) fn follow(
        &self,
        leases: &Leases,
    ) -> impl Stream<Item = ObjectRef<Swarm>> + Send + use<> {
        let ring = |(alarms, leases): (Self, Leases)| async {
            let rung = alarms.ring(&leases).await;
            Some((stream::iter(rung), (alarms, leases)))
        };
        stream::unfold((self.clone(), leases.clone()), ring).flatten()
    }

    async fn ring(&self, leases: &Leases) -> Vec<ObjectRef<Swarm>> {
        loop {
            let now = clock::now();
            let (rung, next) = self.state().due(leases, now);
            if !rung.is_empty() {
                return rung;
            }
            let earlier = self.0.is_earlier.notified();
            match next {
                // After the timeout or the notification, check again.
                Some(next) => drop(timeout(next.since(now), earlier).await),
                None => earlier.await,
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        unpoisoned(&self.0.state)
    }
}

impl State {
    fn insert(&mut self, key: Key, alarm: Alarm) {
        self.in_time.insert((alarm.at, key.clone()));
        self.of_swarm.insert(key, alarm);
    }

    fn remove(&mut self, key: &Key) -> Option<Alarm> {
        let alarm = self.of_swarm.remove(key)?;
        self.in_time.remove(&(alarm.at, key.clone()));
        Some(alarm)
    }

    /// Removes and returns the Swarms with a session that is silent at `now`, with the time of the
    /// next check. O(sessions of the alarms that were set for `now`).
    fn due(&mut self, leases: &Leases, now: Moment) -> (Vec<ObjectRef<Swarm>>, Option<Moment>) {
        let mut rung = Vec::new();
        while let Some((_, key)) = self.in_time.first().filter(|(at, _)| *at <= now).cloned() {
            let Some(alarm) = self.remove(&key) else { continue };
            match leases.first_silent_at(&key.0, &alarm.sessions) {
                Some(at) if now < at => self.insert(key, Alarm { at, ..alarm }),
                Some(_) | None => rung.push(ObjectRef::new(&key.1).within(&key.0)),
            }
        }
        (rung, self.in_time.first().map(|(at, _)| *at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::leases::tests::{ACK, at, filled, lease};
    use kube::runtime::watcher::Event;

    fn set(alarms: &Alarms, swarm: &str, nonces: &[u64], at: Moment) {
        let session = |nonce: &u64| (SessionId::new("pod", *nonce), Duration::from_secs(20));
        let sessions = nonces.iter().map(session).collect();
        alarms.set("n", swarm, Some(Alarm { at, sessions }));
    }

    fn due(alarms: &Alarms, leases: &Leases, secs: u64) -> (Vec<String>, Option<Moment>) {
        let (rung, next) = alarms.state().due(leases, at(secs));
        (rung.into_iter().map(|swarm| swarm.name).collect(), next)
    }

    #[test]
    fn an_alarm_rings_once_when_a_session_is_silent_however_often_others_renew() {
        let leases = filled([lease(1, 1, ACK), lease(2, 2, ACK)]);
        let alarms = Alarms::default();
        set(&alarms, "s", &[1, 2], at(20));
        assert_eq!(due(&alarms, &leases, 19), (vec![], Some(at(20))));
        leases.note(Event::Apply(lease(1, 3, ACK)), at(12));
        leases.note(Event::Apply(lease(2, 4, ACK)), at(13));
        assert_eq!(due(&alarms, &leases, 20), (vec![], Some(at(32))), "both live");
        leases.note(Event::Apply(lease(1, 5, ACK)), at(31));
        assert_eq!(due(&alarms, &leases, 32), (vec![], Some(at(33))));
        assert_eq!(due(&alarms, &leases, 33), (vec!["s".into()], None));
        assert_eq!(due(&alarms, &leases, 99), (vec![], None));
    }

    #[test]
    fn a_lease_that_is_gone_rings_and_the_last_alarm_counts() {
        let leases = filled([lease(1, 1, ACK)]);
        let alarms = Alarms::default();
        set(&alarms, "s", &[1, 7], at(5));
        set(&alarms, "other", &[1], at(6));
        assert_eq!(due(&alarms, &leases, 5), (vec!["s".into()], Some(at(6))));
        set(&alarms, "other", &[1], at(9));
        assert_eq!(due(&alarms, &leases, 6), (vec![], Some(at(9))));
        alarms.set("n", "other", None);
        assert_eq!(due(&alarms, &leases, 99), (vec![], None));
    }

    #[tokio::test]
    async fn an_earlier_alarm_is_looked_at_though_a_later_one_is_waited_for() {
        let (leases, alarms) = (filled([]), Alarms::default());
        let later = clock::now().after(Duration::from_hours(1));
        set(&alarms, "later", &[1], later);
        let mut rung = Box::pin(alarms.follow(&leases));
        assert!(futures::poll!(rung.next()).is_pending());
        set(&alarms, "now", &[1], at(0));
        assert_eq!(rung.next().await.map(|swarm| swarm.name), Some("now".into()));
    }
}
