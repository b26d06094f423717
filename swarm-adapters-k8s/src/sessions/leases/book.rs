//! Leases by their pods, within two limits: the number of Leases of a pod, and the size of the
//! reports about jobs in a namespace.

use std::collections::BTreeMap;
use std::sync::Arc;

use swarm_core::handover::{Ack, SessionId, Stopping};

use super::{Known, Named};

/// The most Leases of one pod that are read: one for each start of its containers that is not over
/// for the operator yet. An admission policy cannot count them.
pub(super) const LEASES_PER_POD_MAX: usize = 16;

/// The most bytes that a namespace's sessions may use for finished, stopping and failing jobs, and
/// for the lives of jobs. It is enough for two hundred workers with 1,000 finished, unreleased jobs each. Nothing else in a
/// Lease is larger than an empty Lease.
const REPORT_BYTES_MAX: usize = 32 << 20;
/// The size of a finished job without its name.
const OF_JOB: usize = 100;

/// A namespace and the UID of a pod.
type Pod = (String, String);

/// Leases by pod, then by session.
#[derive(Default)]
pub(super) struct Book {
    pods: BTreeMap<Pod, BTreeMap<SessionId, Known>>,
    /// The size of the reports about jobs in each namespace, in bytes.
    report_bytes: BTreeMap<String, usize>,
}

impl Book {
    pub(super) fn get(&self, namespace: &str, session: &SessionId) -> Option<&Known> {
        self.pods.get(&pod(namespace, session))?.get(session)
    }

    /// The Leases of one pod.
    pub(super) fn of_pod(&self, namespace: &str, uid: &str) -> impl Iterator<Item = &Known> {
        let found = self.pods.get(&(namespace.to_owned(), uid.to_owned()));
        found.into_iter().flat_map(BTreeMap::values)
    }

    /// Forgets which sessions were seen to write their Leases.
    pub(super) fn forget_renewals(&mut self) {
        let all = self.pods.values_mut().flat_map(BTreeMap::values_mut);
        all.for_each(|known| known.has_renewed = false);
    }

    /// Each Lease with its namespace.
    pub(super) fn all(&self) -> impl Iterator<Item = (&String, &Known)> {
        self.pods.iter().flat_map(|((namespace, _), sessions)| {
            sessions.values().map(move |known| (namespace, known))
        })
    }

    /// Drops the report of a session about jobs if the reports of its namespace are too large
    /// already. Returns whether it did. The session repeats its report with each renewal until
    /// there is room.
    pub(super) fn limit(&self, namespace: &str, known: &mut Known) -> bool {
        let all = self.report_bytes.get(namespace).copied().unwrap_or(0);
        let before = self.get(namespace, &known.seen.session).map_or(0, report_size);
        let own = report_size(known);
        let is_too_much = before < own && REPORT_BYTES_MAX < all - before + own;
        if is_too_much {
            known.seen.lease.ack.finished.clear();
            known.seen.lease.ack.stopping = Stopping::default();
            known.seen.failing = swarm_core::Failing::default();
            known.seen.lives = Arc::default();
        }
        is_too_much
    }

    /// Inserts a Lease. If its pod then has more than [`LEASES_PER_POD_MAX`], removes and returns
    /// the oldest. The newest belongs to the running process.
    pub(super) fn insert(&mut self, namespace: String, known: Known) -> Option<(String, Known)> {
        let session = known.seen.session.clone();
        self.remove(&namespace, &session);
        *self.report_bytes.entry(namespace.clone()).or_default() += report_size(&known);
        let of_pod = self.pods.entry(pod(&namespace, &session)).or_default();
        of_pod.insert(session, known);
        if of_pod.len() <= LEASES_PER_POD_MAX {
            return None;
        }
        let oldest = of_pod.values().min_by_key(|known| (known.began, known.since));
        let oldest = oldest.map(|known| known.seen.session.clone())?;
        self.remove(&namespace, &oldest).map(|known| (namespace, known))
    }

    pub(super) fn remove(&mut self, namespace: &str, session: &SessionId) -> Option<Known> {
        let pod = pod(namespace, session);
        let sessions = self.pods.get_mut(&pod)?;
        let known = sessions.remove(session)?;
        if sessions.is_empty() {
            self.pods.remove(&pod);
        }
        if let Some(all) = self.report_bytes.get_mut(namespace) {
            *all -= report_size(&known);
            if *all == 0 {
                self.report_bytes.remove(namespace);
            }
        }
        Some(known)
    }

    /// The sessions that appeared, disappeared, or reported something new in a later complete
    /// state.
    pub(super) fn differences(&self, later: &Self) -> Vec<Named> {
        let named =
            |namespace: &String, known: &Known| (namespace.clone(), known.seen.session.clone());
        let is_news = |(namespace, known): &(&String, &Known)| {
            let before = self.get(namespace, &known.seen.session);
            before.is_none_or(|before| known.has_news_for(before))
        };
        let changed = later.all().filter(is_news).map(|(namespace, it)| named(namespace, it));
        let is_gone = |(namespace, known): &(&String, &Known)| {
            later.get(namespace, &known.seen.session).is_none()
        };
        let gone = self.all().filter(is_gone).map(|(namespace, it)| named(namespace, it));
        changed.chain(gone).collect()
    }
}

fn pod(namespace: &str, session: &SessionId) -> Pod {
    (namespace.to_owned(), session.pod_uid().to_owned())
}

/// The size of the report of a session about jobs, in bytes.
fn report_size(known: &Known) -> usize {
    let Ack { stopping, finished, .. } = &known.seen.lease.ack;
    let jobs = finished.keys().chain(stopping.jobs.keys());
    let jobs = jobs.map(|job| job.as_str().len() + OF_JOB);
    let failing = known.seen.failing.worst.iter().map(|it| {
        let lines = it.last_output.iter().map(String::len).sum::<usize>();
        it.job.as_str().len() + it.last_exit.len() + lines + OF_JOB
    });
    jobs.chain(failing).sum::<usize>() + known.seen.lives.bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::leases::tests::lease;
    use crate::sessions::leases::{Event, Leases, SessionId};
    use swarm_core::handover::Moment;

    #[test]
    fn the_reported_jobs_of_a_namespace_are_limited_and_the_rest_of_each_lease_is_kept() {
        let leases = Leases::default();
        let finished: Vec<_> = (0..900).map(|n| format!("\"{n:0100}\":1")).collect();
        let ack = format!(
            r#"{{"write": 1, "durationMs": 5000, "revision": 7, "finished": {{{}}}}}"#,
            finished.join(",")
        );
        let of = |pod: u64, version: u64, ack: &str| {
            let mut object = lease(1, version, ack);
            let name = SessionId::new(&format!("pod{pod}"), 1).to_string();
            object.spec.as_mut().unwrap().holder_identity = Some(name.clone());
            object.metadata.name = Some(name);
            object
        };
        let known = |pod: u64| leases.get("n", &SessionId::new(&format!("pod{pod}"), 1)).unwrap();
        let count = |pod: u64| known(pod).seen.lease.ack.finished.len();
        let note = |object| leases.note(Event::Apply(object), Moment::default()).len();
        for pod in 0..200 {
            assert_eq!(note(of(pod, pod + 1, &ack)), 1);
        }
        let most = (0..200).filter(|pod| count(*pod) == 900).count();
        assert_eq!(most, REPORT_BYTES_MAX / (900 * 200), "those that came first");
        let last = known(199);
        assert_eq!((count(199), last.seen.lease.ack.revision, last.seen.lease.number), (0, 7, 1));
        assert_eq!(note(of(199, 300, &ack)), 0, "a renewal that says the same is no news");
        let few = r#"{"write": 2, "durationMs": 5000, "revision": 7}"#;
        assert_eq!(note(of(0, 301, few)), 1);
        assert_eq!(note(of(199, 302, &ack)), 1, "now there is room for it");
        assert_eq!(count(199), 900);
        let mut other = of(1, 303, &ack);
        other.metadata.namespace = Some("other".into());
        note(other);
        let other = leases.get("other", &SessionId::new("pod1", 1)).unwrap();
        assert_eq!(other.seen.lease.ack.finished.len(), 900, "others are not concerned");
    }
}
