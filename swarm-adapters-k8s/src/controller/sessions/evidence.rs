//! What follows from what is seen of sessions and their pods. Decided here, as data.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use swarm_core::handover::{Proof, SessionId, Watch, Watches};
use swarm_core::{JobName, Presence, WorkerSeen};

use super::leases::Known;
use crate::api::ProtocolSpec;

/// What is known of a pod that has, or had, a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::controller) struct PodFacts {
    /// Whether nobody expects it to do anything any more: it is not there, has ended, or its node is
    /// out of reach, and no session of it renews its Lease.
    pub(in crate::controller) is_gone: bool,
    /// Whether its processes have ended for certain.
    pub(in crate::controller) has_ended: bool,
    /// Whether its node is said to be off, and yet it was heard of a moment ago.
    pub(in crate::controller) is_doubted: bool,
    /// Which of its containers may be workers.
    pub(in crate::controller) containers: Containers,
}

/// What a pod's containers say about whose sessions are whose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::controller) enum Containers {
    /// Nothing: there are several, and some may have run for as long as any session.
    #[default]
    Unknown,
    /// There is one, which runs one process after another.
    One,
    /// There are several, and by their kubelet all of them were started at this time or later.
    AllSince(Timestamp),
}

/// The session that proves the end of another one of the same pod, by that other one.
///
/// A later session alone proves nothing: it may be another container's, beside the former. It does if
/// it names the former as its predecessor, or if the former's container is known to have terminated
/// since: there is no other container, or all of them were started after the former began.
pub(in crate::controller) fn successors(
    of_pod: &[Known],
    pod: PodFacts,
) -> BTreeMap<SessionId, &Known> {
    let mut found = BTreeMap::new();
    for former in of_pod {
        let session = &former.seen.session;
        let named = of_pod.iter().find(|it| it.seen.former.session.as_ref() == Some(session));
        let has_terminated = match pod.containers {
            Containers::Unknown => false,
            Containers::One => true,
            Containers::AllSince(start) => former.is_before(start),
        };
        let later = of_pod.iter().filter(|it| has_terminated && it.is_after(former));
        let next = named.or_else(|| later.min_by_key(|it| it.age()));
        found.extend(next.map(|next| (session.clone(), next)));
    }
    found
}

/// The newest session of a pod that may renew its Lease.
pub(in crate::controller) fn living<'a>(
    of_pod: &'a [Known],
    watches: &Watches,
) -> Option<&'a Known> {
    let may_renew = |known: &&Known| watches.get(&known.seen.session).is_some_and(Watch::may_renew);
    of_pod.iter().filter(may_renew).max_by_key(|known| (known.age(), known.since))
}

/// What a pod's sessions come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::controller) struct Session<'a> {
    /// The living one.
    pub(in crate::controller) living: Option<&'a SessionId>,
    /// Whether it waits for its jobs to be moved.
    pub(in crate::controller) is_draining: bool,
    /// Whether its Lease lasts longer than the Swarm allows.
    pub(in crate::controller) is_too_long: bool,
    /// Whether the latest one was silent, and its Lease was taken away.
    pub(in crate::controller) was_revoked: bool,
}

/// A session is judged by its lease, so it does not matter for how long.
const NOT_READY: Presence = Presence::NotReady(Duration::ZERO);

/// A worker with its session in place of its pod; `None` if it does not count any more.
///
/// One that cannot be given anything is not ready. One whose Lease was taken away may never answer
/// again although its pod is there, so its jobs do not wait for it.
pub(in crate::controller) fn worker(
    seen: WorkerSeen,
    session: &Session<'_>,
    protocol: ProtocolSpec,
    is_wanted: bool,
) -> Option<WorkerSeen> {
    let WorkerSeen { name, presence, session: plain } = seen;
    let Some(living) = session.living else {
        return match (protocol, presence) {
            (ProtocolSpec::Plain, _) => Some(WorkerSeen { name, presence, session: plain }),
            (ProtocolSpec::Session, _) => {
                let presence = without_session(presence, session.was_revoked, is_wanted)?;
                Some(WorkerSeen { name, presence, session: None })
            }
        };
    };
    if session.is_too_long {
        let presence = if presence == Presence::Ready { NOT_READY } else { presence };
        return Some(WorkerSeen { name, presence, session: None });
    }
    let presence = match presence {
        Presence::Leaving(_) => Presence::Draining,
        Presence::Ready | Presence::NotReady(_) if session.is_draining => Presence::Draining,
        Presence::Ready | Presence::NotReady(_) | Presence::Away(_) | Presence::Draining => {
            presence
        }
    };
    Some(WorkerSeen { name, presence, session: Some(living.clone()) })
}

/// How a worker counts that cannot run anything now.
fn without_session(presence: Presence, was_revoked: bool, is_wanted: bool) -> Option<Presence> {
    match presence {
        Presence::Ready | Presence::NotReady(_) if was_revoked => Some(Presence::Draining),
        Presence::Ready | Presence::NotReady(_) => Some(NOT_READY),
        // Its successor is expected.
        Presence::Leaving(since) => is_wanted.then_some(Presence::Away(since)),
        Presence::Away(_) | Presence::Draining => Some(presence),
    }
}

/// What is known of a session beyond its Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::controller) struct PodEvidence {
    /// Why it has ended, if that is known without its Lease.
    pub(in crate::controller) ended: Option<Proof>,
    /// For how long its worker has been gone.
    pub(in crate::controller) gone_for: Option<Duration>,
    /// The job that crashed it, as its successor believes.
    pub(in crate::controller) culprit: Option<JobName>,
}

/// What is known of `session` beyond its Lease.
pub(in crate::controller) fn pod_evidence(
    session: &SessionId,
    pod: PodFacts,
    next: Option<&Known>,
    gone_for: Option<Duration>,
) -> PodEvidence {
    // A plain worker has no Lease to be waited out: once its pod is gone, so is it.
    let is_over = pod.has_ended || next.is_some() || (session.is_plain() && pod.is_gone);
    PodEvidence {
        ended: is_over.then_some(Proof::ProcessEnded),
        gone_for: gone_for.filter(|_| pod.is_gone),
        culprit: next.and_then(|next| next.seen.former.culprit.clone()),
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;

    use super::super::leases::tests::{TOLD, at, filled, lease};
    use super::*;
    use crate::session::PREDECESSOR_ANNOTATION;

    const AGE: Duration = Duration::from_secs(3);

    /// The Leases of sessions 1 and 2 of a pod, of which the second appeared later.
    fn two_sessions(predecessor: Option<u64>) -> Vec<Known> {
        let leases = filled([lease(1, 5, TOLD)]);
        let mut second = lease(2, 6, TOLD);
        let name = predecessor.map(|nonce| SessionId::new("pod", nonce).to_string());
        let annotations = second.metadata.annotations.get_or_insert_default();
        annotations.extend(name.map(|name| (PREDECESSOR_ANNOTATION.to_owned(), name)));
        leases.note(Event::Apply(second), at(1));
        leases.of_pod("n", "pod")
    }

    fn proved(of_pod: &[Known], containers: Containers) -> Vec<SessionId> {
        let pod = PodFacts { containers, ..PodFacts::default() };
        successors(of_pod, pod).into_keys().collect()
    }

    #[test]
    fn of_two_containers_a_later_session_does_not_prove_the_end_of_another() {
        assert_eq!(proved(&two_sessions(None), Containers::Unknown), []);
        assert_eq!(proved(&two_sessions(Some(3)), Containers::Unknown), [], "it names a third");
    }

    #[test]
    fn a_successor_proves_the_end_of_the_predecessor_it_names() {
        let first = SessionId::new("pod", 1);
        assert_eq!(proved(&two_sessions(Some(1)), Containers::Unknown), [first]);
    }

    #[test]
    fn a_container_that_terminated_since_proves_the_end_of_its_session() {
        let first = SessionId::new("pod", 1);
        assert_eq!(proved(&two_sessions(None), Containers::One), std::slice::from_ref(&first));
        // The first Lease was made at 00:00:00 by the API server's clock.
        let since = |time: &str| Containers::AllSince(time.parse().unwrap());
        assert_eq!(proved(&two_sessions(None), since("2026-01-01T00:00:05Z")), [first]);
        assert_eq!(proved(&two_sessions(None), since("2026-01-01T00:00:04Z")), [], "clocks differ");
        let alone = &two_sessions(None)[..1];
        assert_eq!(proved(alone, since("2026-01-01T01:00:00Z")), [], "nobody came after it");
    }

    fn seen(presence: Presence) -> WorkerSeen {
        let session = Some(SessionId::plain("pod"));
        WorkerSeen { name: "w-0".into(), presence, session }
    }

    fn none() -> Session<'static> {
        Session { living: None, is_draining: false, is_too_long: false, was_revoked: false }
    }

    #[test]
    fn a_worker_with_a_session_is_served_as_one_whatever_the_protocol() {
        let id = SessionId::new("pod", 1);
        let session = Session { living: Some(&id), ..none() };
        let cases = [
            (Presence::Ready, false, Presence::Ready),
            (NOT_READY, false, NOT_READY),
            (Presence::Ready, true, Presence::Draining),
            (Presence::Leaving(AGE), false, Presence::Draining),
            (Presence::Away(AGE), false, Presence::Away(AGE)),
        ];
        for protocol in [ProtocolSpec::Plain, ProtocolSpec::Session] {
            for (presence, is_draining, expected) in cases {
                let session = Session { is_draining, ..session.clone() };
                let worker = worker(seen(presence), &session, protocol, true).unwrap();
                assert_eq!((worker.presence, worker.session), (expected, Some(id.clone())));
            }
        }
    }

    #[test]
    fn a_worker_without_a_session_gets_nothing_where_sessions_are_asked_for() {
        let ready = seen(Presence::Ready);
        let plain = worker(ready.clone(), &none(), ProtocolSpec::Plain, true);
        assert_eq!(plain, Some(ready));
        let of = |presence, was_revoked, is_wanted| {
            let session = Session { was_revoked, ..none() };
            worker(seen(presence), &session, ProtocolSpec::Session, is_wanted)
        };
        let presence = |worker: Option<WorkerSeen>| worker.map(|it| (it.presence, it.session));
        let not_ready = Some((NOT_READY, None));
        assert_eq!(presence(of(Presence::Ready, false, true)), not_ready);
        assert_eq!(presence(of(Presence::Ready, true, true)), Some((Presence::Draining, None)));
        let away = Some((Presence::Away(AGE), None));
        assert_eq!(presence(of(Presence::Leaving(AGE), false, true)), away);
        assert_eq!(presence(of(Presence::Leaving(AGE), false, false)), None);
    }

    #[test]
    fn a_worker_whose_lease_is_too_long_keeps_what_it_has_and_gets_no_more() {
        let id = SessionId::new("pod", 1);
        let session = Session { living: Some(&id), is_too_long: true, ..none() };
        let worker = worker(seen(Presence::Ready), &session, ProtocolSpec::Session, true).unwrap();
        assert_eq!((worker.presence, worker.session), (NOT_READY, None));
    }

    #[test]
    fn a_pod_that_is_merely_gone_proves_nothing_about_its_session() {
        let session = SessionId::new("pod", 1);
        let gone = PodFacts { is_gone: true, ..PodFacts::default() };
        let merely = pod_evidence(&session, gone, None, Some(AGE));
        assert_eq!((merely.ended, merely.gone_for), (None, Some(AGE)));
        let ended = pod_evidence(&session, PodFacts { has_ended: true, ..gone }, None, None);
        assert_eq!(ended.ended, Some(Proof::ProcessEnded));
        let plain = pod_evidence(&SessionId::plain("pod"), gone, None, None);
        assert_eq!(plain.ended, Some(Proof::ProcessEnded));
        let there = pod_evidence(&session, PodFacts::default(), None, Some(AGE));
        assert_eq!(there, PodEvidence::default());
    }
}
