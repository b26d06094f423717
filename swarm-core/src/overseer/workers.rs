//! The workers of a pool as a turn sees them, with sessions instead of pods.

use std::time::Duration;

use super::facts::{Protocol, WorkerFacts};
use super::proofs::{Known, Proofs};
use crate::handover::{LeaseTerms, SessionId};
use crate::{Presence, WorkerSeen};

/// The age is zero, since a session is judged by its lease.
const NOT_READY: Presence = Presence::NotReady(Duration::ZERO);

/// Returns the worker as a turn counts it; `None` if it does not count any more.
///
/// A worker that cannot receive jobs counts as not ready. A worker whose Lease was revoked may
/// never answer again although its pod exists, also on a lost node. So its jobs do not wait for it,
/// unless the observer replaces it. Only a session can hand its jobs over before it ends.
pub(super) fn seen(
    proofs: &Proofs,
    facts: WorkerFacts,
    protocol: Protocol,
    known: Known,
    terms: &LeaseTerms,
) -> Option<WorkerSeen> {
    let WorkerFacts { name, presence, pod, is_wanted, is_replaced } = facts;
    let living = pod.as_deref().and_then(|uid| proofs.living(uid));
    let Some(living) = living else {
        return match protocol {
            Protocol::Plain => {
                let session = pod.as_deref().map(SessionId::plain);
                Some(WorkerSeen { name, presence: without_handover(presence), session })
            }
            Protocol::Session => {
                let was_revoked = pod.is_some_and(|uid| proofs.was_revoked(&uid)) && !is_replaced;
                let presence = without_handover(presence);
                let presence = without_session(presence, was_revoked, is_wanted)?;
                Some(WorkerSeen { name, presence, session: None })
            }
        };
    };
    if proofs.suspicion(living, known, terms).is_some() {
        let presence = without_handover(presence);
        let presence = if presence == Presence::Ready { NOT_READY } else { presence };
        return Some(WorkerSeen { name, presence, session: None });
    }
    let is_draining = proofs.get(living).is_some_and(|watch| watch.ack.is_draining);
    let presence = match presence {
        Presence::Leaving(_) => Presence::Draining,
        Presence::Ready | Presence::NotReady(_) if is_draining => Presence::Draining,
        Presence::Ready
        | Presence::NotReady(_)
        | Presence::Away(_)
        | Presence::Ending { .. }
        | Presence::Draining => presence,
    };
    Some(WorkerSeen { name, presence, session: Some(living.clone()) })
}

/// Returns the presence of a worker whose jobs only wait for another one in its slot.
fn without_handover(presence: Presence) -> Presence {
    match presence {
        Presence::Ending { age, .. } => Presence::Away(age),
        Presence::Ready
        | Presence::NotReady(_)
        | Presence::Away(_)
        | Presence::Leaving(_)
        | Presence::Draining => presence,
    }
}

/// Returns the presence of a worker that cannot run any job now.
fn without_session(presence: Presence, was_revoked: bool, is_wanted: bool) -> Option<Presence> {
    match presence {
        // Of a pod that exists and is away, the node is lost, or it hangs while it ends.
        Presence::Ready | Presence::NotReady(_) | Presence::Away(_) if was_revoked => {
            Some(Presence::Draining)
        }
        Presence::Ready | Presence::NotReady(_) => Some(NOT_READY),
        // A successor of this worker is expected.
        Presence::Leaving(since) => is_wanted.then_some(Presence::Away(since)),
        Presence::Away(_) | Presence::Ending { .. } | Presence::Draining => Some(presence),
    }
}
