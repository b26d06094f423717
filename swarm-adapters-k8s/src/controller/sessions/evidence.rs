//! What follows from what is seen of sessions and their pods. Decided here, as data.

use std::collections::BTreeMap;
use std::time::Duration;

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
}

/// The session that came right after another one of the same pod, by that other one. One container
/// of a pod has one session at a time, so the former has ended.
pub(in crate::controller) fn successors(of_pod: &[Known]) -> BTreeMap<SessionId, &Known> {
    let mut found = BTreeMap::new();
    for former in of_pod {
        let later = of_pod.iter().filter(|known| known.is_after(former));
        let next = later.min_by_key(|known| known.age());
        found.extend(next.map(|next| (former.seen.session.clone(), next)));
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
        let presence = if presence == Presence::Ready { Presence::NotReady } else { presence };
        return Some(WorkerSeen { name, presence, session: None });
    }
    let presence = match presence {
        Presence::Leaving(_) => Presence::Draining,
        Presence::Ready | Presence::NotReady if session.is_draining => Presence::Draining,
        Presence::Ready | Presence::NotReady | Presence::Away(_) | Presence::Draining => presence,
    };
    Some(WorkerSeen { name, presence, session: Some(living.clone()) })
}

/// How a worker counts that cannot run anything now.
fn without_session(presence: Presence, was_revoked: bool, is_wanted: bool) -> Option<Presence> {
    match presence {
        Presence::Ready | Presence::NotReady if was_revoked => Some(Presence::Draining),
        Presence::Ready | Presence::NotReady => Some(Presence::NotReady),
        // Its successor is expected.
        Presence::Leaving(since) => is_wanted.then_some(Presence::Away(since)),
        Presence::Away(_) | Presence::Draining => Some(presence),
    }
}

/// What is known of a session beyond its Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::controller) struct Beyond {
    /// Why it has ended, if that is known without its Lease.
    pub(in crate::controller) ended: Option<Proof>,
    /// For how long its worker has been gone.
    pub(in crate::controller) gone_for: Option<Duration>,
    /// The job that crashed it, as its successor believes.
    pub(in crate::controller) culprit: Option<JobName>,
}

/// What is known of `session` beyond its Lease.
pub(in crate::controller) fn beyond(
    session: &SessionId,
    pod: PodFacts,
    next: Option<&Known>,
    gone_for: Option<Duration>,
) -> Beyond {
    // A plain worker has no Lease to be waited out: once its pod is gone, so is it.
    let is_over = pod.has_ended || next.is_some() || (session.is_plain() && pod.is_gone);
    Beyond {
        ended: is_over.then_some(Proof::ProcessEnded),
        gone_for: gone_for.filter(|_| pod.is_gone),
        culprit: next.and_then(|next| next.seen.culprit.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Duration = Duration::from_secs(3);

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
            (Presence::NotReady, false, Presence::NotReady),
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
        let not_ready = Some((Presence::NotReady, None));
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
        assert_eq!((worker.presence, worker.session), (Presence::NotReady, None));
    }

    #[test]
    fn a_pod_that_is_merely_gone_proves_nothing_about_its_session() {
        let session = SessionId::new("pod", 1);
        let gone = PodFacts { is_gone: true, ..PodFacts::default() };
        let merely = beyond(&session, gone, None, Some(AGE));
        assert_eq!((merely.ended, merely.gone_for), (None, Some(AGE)));
        let ended = beyond(&session, PodFacts { has_ended: true, ..gone }, None, None);
        assert_eq!(ended.ended, Some(Proof::ProcessEnded));
        let plain = beyond(&SessionId::plain("pod"), gone, None, None);
        assert_eq!(plain.ended, Some(Proof::ProcessEnded));
        let there = beyond(&session, PodFacts::default(), None, Some(AGE));
        assert_eq!(there, Beyond::default());
    }
}
