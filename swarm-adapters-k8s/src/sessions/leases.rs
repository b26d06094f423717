//! The Leases of sessions, from one watch. Each is kept with the time at which this process first
//! saw its present version.
//!
//! The time is taken when the event arrives. A renewal is recorded and triggers no turn:
//! acknowledgements trigger turns, heartbeats do not.

mod book;

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::MutexGuard;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::coordination::v1::Lease as Object;
use kube::runtime::watcher::{self, Event};
use kube::{Api, ResourceExt};
use swarm_client::session::{self, SESSION_LABEL, SeenLease};
use swarm_core::FailingState;
use swarm_core::handover::{LeaseTerms, Moment, Renewals, SessionId};
use swarm_core::overseer::{Began, LeaseFacts};

use book::{Book, LEASES_PER_POD_MAX};

use crate::clock;
use crate::watch::followed::Followed;
use crate::watch::rollback::{Epoch, Rollbacks};
use crate::watch::streams;
use crate::watch::strip::{self, Cut, Slim};

/// The source of a Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The watch.
    Watch,
    /// The answer to a request of this process. The Lease may be older than the last list.
    Answer,
}

/// A Lease as it was last seen.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) seen: SeenLease,
    /// The time at which this process first saw this version.
    pub(crate) since: Moment,
    /// The last renewals that this process saw.
    pub(crate) renewals: Renewals,
    /// The object's UID.
    pub(crate) uid: String,
    /// The order of the session's beginning among others.
    pub(crate) began: Began,
    /// Whether this process saw the session write the Lease since the last rollback of the store.
    pub(crate) has_renewed: bool,
}

impl Known {
    /// The facts about the Lease for the overseer.
    pub(crate) fn facts(&self) -> LeaseFacts {
        let SeenLease { lease, duration, former, .. } = self.seen.clone();
        let (began, has_renewed, pause) = (self.began, self.has_renewed, self.renewals.pause);
        LeaseFacts { lease, duration, began, former, has_renewed, pause }
    }

    /// Whether the session has not written the Lease for so long that it can no longer run a job.
    pub(super) fn is_silent(&self, now: Moment) -> bool {
        let terms = LeaseTerms { duration: self.seen.duration, ..LeaseTerms::default() };
        terms.fence_wait() < now.since(self.since)
    }

    fn has_news_for(&self, before: &Self) -> bool {
        let news = |known: &Self| {
            // The ignored fields are the same in every write of a session, but for the lives of jobs, which the
            // next turn reads.
            let SeenLease { lease, former, duration, failing, .. } = &known.seen;
            let SeenLease { session: _, knows_runners: _, is_unprotected: _, .. } = &known.seen;
            // Of the restarts of a job only each doubling counts. Otherwise a job that keeps
            // failing would keep triggering turns.
            let given_up = failing.worst.iter().filter(|it| it.state == FailingState::Failed);
            let doublings = failing.worst.iter().filter_map(|it| it.restarts.checked_ilog2());
            let reported = (failing.count, given_up.count(), doublings.sum::<u32>());
            (lease.holder, lease.ack.clone(), former.clone(), *duration, reported)
        };
        news(self) != news(before)
    }
}

/// Strips a Lease down to the fields that a session reports by.
pub(crate) struct LeaseCut;

impl Cut<Object> for LeaseCut {
    fn cut(object: &mut Object) {
        let said = object.metadata.annotations.take();
        strip::metadata(&mut object.metadata, &[]);
        // The reader of these texts limits their length.
        let said = said
            .into_iter()
            .flatten()
            .filter(|(name, _)| session::ANNOTATIONS.contains(&name.as_str()));
        object.metadata.annotations = Some(said.collect());
    }
}

/// A session in its namespace.
pub(crate) type Named = (String, SessionId);

/// All Leases of sessions. Its clones share one state.
#[derive(Clone, Default)]
pub(crate) struct Leases(Followed<State>);

#[derive(Default)]
struct State {
    current: Book,
    /// The complete state while it is being listed.
    fresh: Book,
    /// The number of Leases that appeared since the first list.
    appeared: u64,
    /// The time of the last failure of the watch.
    failed: Option<Moment>,
    /// The unusable Leases, by namespace and name, so that each is reported once.
    ignored: BTreeSet<(String, String)>,
    /// The Leases in excess of the maximum for one pod, with their UIDs. The operator ignores them,
    /// and the sweep deletes them.
    surplus: BTreeMap<(String, String), String>,
    /// The namespaces whose sessions report too many jobs.
    full: BTreeSet<String>,
    /// The rollbacks of the store that were noticed before the last list began.
    epoch: Epoch,
}

impl Leases {
    /// Follows the Leases that `api` reaches, while the stream is polled. The stream yields the
    /// sessions that appeared, disappeared, or reported something new.
    pub(crate) fn follow(
        &self,
        api: Api<Slim<Object, LeaseCut>>,
        rollbacks: &Rollbacks,
    ) -> impl Stream<Item = Named> + Send + use<> {
        let noted = self.clone();
        let config = watcher::Config::default().labels(SESSION_LABEL);
        let (epochs, events) = (rollbacks.clone(), streams::events(api, config, rollbacks));
        events.flat_map(move |event| {
            stream::iter(match event {
                Ok(event) => {
                    if matches!(event, Event::Init) {
                        noted.list_in(epochs.epoch());
                    }
                    noted.note(event, clock::now())
                }
                Err(error) => {
                    tracing::warn!(%error, "the watch of Leases failed and is tried again");
                    noted.failed(clock::now());
                    Vec::new()
                }
            })
        })
    }

    /// Returns once all Leases were seen.
    pub(crate) async fn wait_until_filled(&self) {
        self.0.wait_until_filled().await;
    }

    /// The known Leases of the sessions of one pod.
    pub(crate) fn of_pod(&self, namespace: &str, uid: &str) -> Vec<Known> {
        let state = self.state();
        state.current.of_pod(namespace, uid).cloned().collect()
    }

    /// The known Lease of a session.
    pub(crate) fn get(&self, namespace: &str, session: &SessionId) -> Option<Known> {
        self.state().current.get(namespace, session).cloned()
    }

    /// The time at which the first of `sessions` falls silent. Each is given with the longest time
    /// between its renewals. `None` without sessions, or if one of them has no Lease.
    pub(crate) fn first_silent_at(
        &self,
        namespace: &str,
        sessions: &[(SessionId, Duration)],
    ) -> Option<Moment> {
        let state = self.state();
        let silent_at = |(session, claimed): &(SessionId, Duration)| {
            Some(state.current.get(namespace, session)?.since.after(*claimed))
        };
        sessions.iter().map(silent_at).min().flatten()
    }

    /// Every session that has a Lease.
    pub(crate) fn all(&self) -> Vec<(String, Known)> {
        let state = self.state();
        let each = state.current.all();
        each.map(|(namespace, known)| (namespace.clone(), known.clone())).collect()
    }

    /// Records a Lease that a request of this process has read.
    pub(crate) fn note_read(&self, object: Object, now: Moment) {
        let _ = self.take(Event::Apply(object), now, Source::Answer);
    }

    /// Records that a Lease is missing in the store itself.
    pub(crate) fn note_missing(&self, namespace: &str, session: &SessionId) {
        self.state().current.remove(namespace, session);
    }

    /// The surplus Leases of pods, as namespace, name and UID.
    pub(crate) fn surplus(&self) -> Vec<(String, String, String)> {
        let state = self.state();
        let each = state.surplus.iter();
        each.map(|((namespace, name), uid)| (namespace.clone(), name.clone(), uid.clone()))
            .collect()
    }

    /// Records that a surplus Lease was deleted.
    pub(crate) fn note_swept(&self, namespace: &str, name: &str) {
        self.state().surplus.remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// Records that the watch failed: a session that seems silent may have renewed unnoticed.
    pub(crate) fn failed(&self, now: Moment) {
        self.state().failed = Some(now);
    }

    /// The time at which the watch last failed.
    pub(crate) fn failed_at(&self) -> Option<Moment> {
        self.state().failed
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state()
    }

    /// Begins a list. After a rollback of the store, earlier renewals prove nothing.
    fn list_in(&self, epoch: Epoch) {
        let mut state = self.state();
        if std::mem::replace(&mut state.epoch, epoch) != epoch {
            state.current.forget_renewals();
        }
    }

    /// Records an event of the watch.
    pub(crate) fn note(&self, event: Event<Object>, now: Moment) -> Vec<Named> {
        self.take(event, now, Source::Watch)
    }

    fn take(&self, event: Event<Object>, now: Moment, source: Source) -> Vec<Named> {
        let mut guard = self.state();
        let state = &mut *guard;
        match event {
            Event::Init => {
                state.fresh = Book::default();
                state.surplus.clear();
                state.full.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                let read = state.read(&object, now, self.0.is_filled());
                if let Some((namespace, mut known)) = read {
                    let is_less = state.fresh.limit(&namespace, &mut known);
                    state.warn_of_limit(&namespace, is_less);
                    let surplus = state.fresh.insert(namespace, known);
                    state.set_aside(surplus);
                }
                Vec::new()
            }
            Event::InitDone => {
                let before = mem::replace(&mut state.current, mem::take(&mut state.fresh));
                state.appeared += 1;
                state.ignored.clear();
                let changed = before.differences(&state.current);
                self.0.fill();
                changed
            }
            Event::Apply(object) => {
                let key = (object.namespace().unwrap_or_default(), object.name_any());
                if state.surplus.contains_key(&key) {
                    return Vec::new();
                }
                let Some((namespace, mut known)) = state.read(&object, now, true) else {
                    return Vec::new();
                };
                let is_less = state.current.limit(&namespace, &mut known);
                state.warn_of_limit(&namespace, is_less);
                let session = known.seen.session.clone();
                let before = state.current.get(&namespace, &session);
                if before.is_none() {
                    state.appeared = known.began.order;
                    // A Lease that a watch is the first to show was created after the last list.
                    known.has_renewed |= source == Source::Watch;
                }
                // The answer to a request may have arrived before an older event.
                if before.is_some_and(|before| known.seen.lease.version.0 < version(before)) {
                    return Vec::new();
                }
                let is_news = before.is_none_or(|before| known.has_news_for(before));
                let surplus = state.current.insert(namespace.clone(), known);
                state.set_aside(surplus);
                is_news.then_some((namespace, session)).into_iter().collect()
            }
            Event::Delete(object) => {
                let namespace = object.namespace().unwrap_or_default();
                let session = SessionId::from_stored(&object.name_any());
                let key = (namespace.clone(), object.name_any());
                state.ignored.remove(&key);
                if state.surplus.remove(&key).is_some() {
                    return Vec::new();
                }
                state.current.remove(&namespace, &session);
                vec![(namespace, session)]
            }
        }
    }
}

impl State {
    /// Reads `object`, and determines since when it has this content. An unusable object keeps its
    /// previous content under its present version, and counts as not renewed. `appears` is false
    /// during the first list.
    fn read(&mut self, object: &Object, now: Moment, appears: bool) -> Option<(String, Known)> {
        let namespace = object.namespace().unwrap_or_default();
        let name = object.name_any();
        let before = self.current.get(&namespace, &SessionId::from_stored(&name));
        let (seen, is_ignored) = match session::seen(object) {
            Ok(seen) => (seen, false),
            Err(reason) => {
                if self.ignored.insert((namespace.clone(), name)) {
                    tracing::warn!(namespace, reason, "the Lease of a session is ignored");
                }
                let version = session::version(object)?;
                let mut seen = before?.seen.clone();
                (seen.lease.version, seen.lease.holder) = (version, session::holder(object));
                (seen, true)
            }
        };
        // Versions may repeat after a rollback of the store; numbers of writes do not.
        let write = |seen: &SeenLease| (seen.lease.version, seen.lease.number);
        let is_same = |before: &&Known| write(&before.seen) == write(&seen);
        let is_later = |before: &Known| before.seen.lease.number < seen.lease.number;
        let same = before.filter(|before| is_ignored || is_same(before));
        let order = if appears { self.appeared + 1 } else { 0 };
        let mut renewals = before.map_or(Renewals::first(now), |before| before.renewals);
        if before.is_some_and(is_later) {
            renewals.renewed(now);
        }
        let known = Known {
            since: same.map_or(now, |same| same.since),
            renewals,
            uid: object.uid().unwrap_or_default(),
            has_renewed: before.is_some_and(|before| before.has_renewed || is_later(before)),
            began: Began {
                order: before.map_or(order, |before| before.began.order),
                created_s: object.metadata.creation_timestamp.as_ref().map(|it| it.0.as_second()),
            },
            seen,
        };
        Some((namespace, known))
    }
}

impl State {
    /// Logs, once after each list, that some reports of a namespace are left out.
    fn warn_of_limit(&mut self, namespace: &str, is_less: bool) {
        if is_less && self.full.insert(namespace.to_owned()) {
            tracing::warn!(
                namespace,
                "sessions report more jobs than the operator keeps; some count as neither \
                 finished, released in part nor failing until others are released"
            );
        }
    }

    /// Notes a surplus Lease of a pod.
    fn set_aside(&mut self, surplus: Option<(String, Known)>) {
        let Some((namespace, known)) = surplus else { return };
        let name = known.seen.session.to_string();
        tracing::warn!(
            namespace,
            pod = known.seen.session.pod_uid(),
            lease = name,
            "a pod has more than {LEASES_PER_POD_MAX} Leases; the oldest is ignored and deleted"
        );
        self.surplus.insert((namespace, name), known.uid);
    }
}

fn version(known: &Known) -> u64 {
    known.seen.lease.version.0
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;

    pub(crate) fn lease(nonce: u64, version: u64, ack: &str) -> Object {
        let session = SessionId::new("pod", nonce).to_string();
        let annotations = json!({session::ACK_ANNOTATION: ack});
        serde_json::from_value(json!({
            "metadata": {
                "name": session, "namespace": "n", "uid": session,
                "resourceVersion": version.to_string(), "annotations": annotations,
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"holderIdentity": session},
        }))
        .unwrap()
    }

    pub(crate) const ACK: &str = r#"{"write":1,"durationMs":20000}"#;
    const ACKED: &str = r#"{"write":2,"durationMs":20000,"incarnation":1,"revision":7}"#;

    pub(crate) fn at(secs: u64) -> Moment {
        Moment(Duration::from_secs(secs))
    }

    pub(crate) fn filled(objects: impl IntoIterator<Item = Object>) -> Leases {
        let leases = Leases::default();
        leases.note(Event::Init, at(0));
        for object in objects {
            leases.note(Event::InitApply(object), at(0));
        }
        leases.note(Event::InitDone, at(0));
        leases
    }

    fn since(leases: &Leases, nonce: u64) -> Moment {
        leases.get("n", &SessionId::new("pod", nonce)).unwrap().since
    }

    #[test]
    fn a_renewal_is_noted_and_triggers_nothing_while_an_answer_does() {
        let leases = filled([lease(1, 5, ACK)]);
        assert_eq!(leases.note(Event::Apply(lease(1, 6, ACK)), at(4)).len(), 0);
        assert_eq!(since(&leases, 1), at(4));
        assert_eq!(leases.note(Event::Apply(lease(1, 7, ACKED)), at(5)).len(), 1);
        assert_eq!(leases.note(Event::Apply(lease(1, 6, ACK)), at(6)).len(), 0, "it is late");
        assert_eq!(since(&leases, 1), at(5));
        assert_eq!(leases.note(Event::Delete(lease(1, 8, ACKED)), at(7)).len(), 1);
        assert!(leases.get("n", &SessionId::new("pod", 1)).is_none());
    }

    #[test]
    fn the_pause_before_a_renewal_is_that_between_two_writes() {
        let pause = |leases: &Leases| {
            leases.get("n", &SessionId::new("pod", 1)).unwrap().facts().pause.as_secs()
        };
        let write = |number| format!(r#"{{"write":{number},"durationMs":20000}}"#);
        let leases = filled([lease(1, 5, &write(7))]);
        assert_eq!(pause(&leases), 0, "it is the first one");
        for (secs, version, number, expected) in
            [(30, 6, 8, 30), (31, 7, 8, 30), (32, 7, 8, 30), (34, 8, 9, 4)]
        {
            leases.note(Event::Apply(lease(1, version, &write(number))), at(secs));
            assert_eq!(pause(&leases), expected, "after {secs} s");
        }
    }

    #[test]
    fn a_session_counts_as_renewed_once_another_write_is_seen_since_the_last_rollback() {
        let has_renewed = |leases: &Leases| {
            leases.get("n", &SessionId::new("pod", 1)).unwrap().facts().has_renewed
        };
        let leases = filled([lease(1, 5, ACK)]);
        leases.note(Event::Apply(lease(1, 6, ACK)), at(1));
        assert!(!has_renewed(&leases), "it is the same write");
        leases.note(Event::Apply(lease(1, 7, ACKED)), at(4));
        assert!(has_renewed(&leases));
        leases.list_in(Epoch::default());
        assert!(has_renewed(&leases), "a list alone is no rollback");

        let rollbacks = Rollbacks::default();
        rollbacks.report(Epoch::default(), "a ledger is older");
        leases.list_in(rollbacks.epoch());
        leases.note(Event::Init, at(5));
        leases.note(Event::InitApply(lease(1, 5, ACK)), at(5));
        leases.note(Event::InitDone, at(5));
        assert!(!has_renewed(&leases));
        leases.note(Event::Apply(lease(1, 8, ACKED)), at(6));
        assert!(has_renewed(&leases));

        // A Lease that appears was made by its session, unless an answer shows it.
        let leases = filled([]);
        leases.note_read(lease(1, 5, ACK), at(1));
        assert!(!has_renewed(&leases));
        let leases = filled([]);
        leases.note(Event::Apply(lease(1, 5, ACK)), at(1));
        assert!(has_renewed(&leases));
    }

    #[test]
    fn names_of_jobs_that_still_stop_are_kept_and_each_that_ends_triggers_a_turn() {
        let stopping = |version: u64, write: u64, jobs: &str| {
            let ack = ACKED.replace("\"write\":2", &format!("\"write\":{write}"));
            let mut object = lease(1, version, &ack);
            let text = format!(r#"{{"write":{write},"reads":8,"jobs":{{{jobs}}}}}"#);
            object.annotations_mut().insert(session::STOPPING_ANNOTATION.to_owned(), text);
            LeaseCut::cut(&mut object);
            object
        };
        let leases = filled([lease(1, 5, ACKED)]);
        let news = |object| leases.note(Event::Apply(object), at(4)).len();
        assert_eq!(news(stopping(6, 3, r#""a":1,"b":1"#)), 1);
        assert_eq!(news(stopping(7, 4, r#""a":1,"b":1"#)), 0, "a renewal");
        assert_eq!(news(stopping(8, 5, r#""b":1"#)), 1);
        let known = leases.get("n", &SessionId::new("pod", 1)).unwrap();
        assert_eq!(known.seen.lease.ack.stopping.reads, 8);
    }

    #[test]
    fn a_session_that_writes_what_cannot_be_used_has_not_renewed_and_can_be_revoked() {
        let leases = filled([lease(1, 5, ACKED)]);
        assert_eq!(leases.note(Event::Apply(lease(1, 6, "{}")), at(4)).len(), 0);
        let known = leases.get("n", &SessionId::new("pod", 1)).unwrap();
        assert_eq!((known.since, known.seen.lease.version.0), (at(0), 6));
        assert_eq!(known.seen.lease.ack.revision, 7, "what it said before");
        leases.note(Event::Apply(lease(1, 7, ACKED)), at(5));
        assert_eq!(since(&leases, 1), at(5));
        leases.note(Event::Apply(lease(2, 8, "{}")), at(6));
        assert!(leases.get("n", &SessionId::new("pod", 2)).is_none(), "it never said anything");
    }

    #[test]
    fn of_too_many_leases_of_a_pod_the_oldest_are_ignored_and_swept() {
        let leases = filled([lease(1, 1, ACK)]);
        for nonce in 2..=20 {
            leases.note(Event::Apply(lease(nonce, nonce, ACK)), at(nonce));
        }
        assert_eq!(leases.of_pod("n", "pod").len(), LEASES_PER_POD_MAX);
        assert!(leases.get("n", &SessionId::new("pod", 20)).is_some(), "the newest runs");
        let names: Vec<_> = leases.surplus().into_iter().map(|(_, name, _)| name).collect();
        let oldest: Vec<_> =
            (1..=4).map(|nonce| SessionId::new("pod", nonce).to_string()).collect();
        assert_eq!(names, oldest);
        // The renewals of such Leases cause nothing, and neither does their end.
        assert_eq!(leases.note(Event::Apply(lease(1, 30, ACKED)), at(21)), []);
        assert_eq!(leases.note(Event::Delete(lease(1, 31, ACKED)), at(22)), []);
        assert_eq!(leases.surplus().len(), 3);
    }

    #[test]
    fn a_list_that_shows_the_same_version_again_does_not_make_it_younger() {
        let leases = filled([lease(1, 5, ACK), lease(2, 6, ACK)]);
        leases.note(Event::Init, at(9));
        leases.note(Event::InitApply(lease(1, 5, ACK)), at(9));
        leases.note(Event::InitApply(lease(3, 7, ACK)), at(9));
        let changed = leases.note(Event::InitDone, at(9));
        let changed: Vec<_> = changed.into_iter().map(|(_, session)| session).collect();
        assert_eq!(changed, [SessionId::new("pod", 3), SessionId::new("pod", 2)]);
        assert_eq!((since(&leases, 1), since(&leases, 3)), (at(0), at(9)));
    }

    #[test]
    fn of_sessions_that_began_within_a_moment_only_the_observed_order_shows_the_later_one() {
        let leases = filled([lease(1, 5, ACK), lease(2, 6, ACK)]);
        leases.note(Event::Apply(lease(3, 7, ACK)), at(1));
        leases.note(Event::Apply(lease(4, 8, ACK)), at(1));
        let known = |nonce| leases.get("n", &SessionId::new("pod", nonce)).unwrap();
        let is_after = |one, other| known(one).began.is_after(known(other).began);
        assert!(!is_after(1, 2) && !is_after(2, 1));
        assert!(is_after(3, 2) && !is_after(2, 3));
        assert!(is_after(4, 3) && is_after(4, 1));
        assert_eq!(known(1).began.created_s, Some(1_767_225_600));
    }
}
