//! Pods of a session pool that run and open no session, so that they get no jobs. Most often their
//! service account lacks the right to write Leases. No right is needed to see that.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use swarm_spec::spec::ProtocolSpec;
use tokio::time::Instant;

use super::Sessions;
use crate::managed::wanted::WORKER_ROLE;
use crate::pool::fit::Misfit;
use crate::pool::slots::Slots;
use crate::pool::trouble;
use crate::pool::workload::Workload;
use crate::status::shortened;
use crate::turn::Turn;

/// Time that a pod may run before it has opened a session. A worker that may write its Lease needs
/// about a second.
pub(crate) const OPENS_WITHIN: Duration = Duration::from_secs(15);

/// The time at which this process first saw each pod run without a session, by UID.
#[derive(Debug, Default)]
pub(crate) struct Silent(BTreeMap<String, Instant>);

/// A finding about such pods, and the time until another look.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Silence {
    pub(crate) misfit: Option<Misfit>,
    /// The time until the next pod has been silent for too long.
    pub(crate) requeue_after: Option<Duration>,
}

impl Silent {
    /// Records the pods that run without a session at `now`. Returns the pods that have done so for
    /// too long, and the time until the next one has.
    fn note(&mut self, silent: &[String], now: Instant) -> (Vec<String>, Option<Duration>) {
        self.0.retain(|uid, _| silent.contains(uid));
        let mut too_long = Vec::new();
        let mut requeue_after: Option<Duration> = None;
        for uid in silent {
            let since = *self.0.entry(uid.clone()).or_insert(now);
            match OPENS_WITHIN.checked_sub(now.saturating_duration_since(since)) {
                None | Some(Duration::ZERO) => too_long.push(uid.clone()),
                Some(left) => {
                    requeue_after = Some(requeue_after.map_or(left, |before| before.min(left)));
                }
            }
        }
        (too_long, requeue_after)
    }
}

impl Sessions {
    /// Finds pods of `pool` that run and have no Lease.
    pub(crate) fn silence(
        &self,
        turn: &Turn<'_>,
        pool: &Workload,
        slots: &Slots,
        silent: &mut Silent,
    ) -> Silence {
        if turn.swarm.protocol() != ProtocolSpec::Session {
            *silent = Silent::default();
            return Silence::default();
        }
        let has_lease = |pod: &Pod| {
            let uid = pod.metadata.uid.as_deref().unwrap_or_default();
            !self.leases.of_pod(&pool.namespace, uid).is_empty()
        };
        let wanted = slots.pods.iter().filter(|(slot, _)| slots.wanted.contains(slot));
        let pods = wanted.map(|(_, pod)| &**pod);
        let pods: Vec<_> = pods.filter(|pod| runs(pod) && !has_lease(pod)).collect();
        let uids: Vec<_> = pods.iter().filter_map(|pod| pod.uid()).collect();
        let (too_long, requeue_after) = silent.note(&uids, Instant::now());
        let is_too_long = |pod: &&Pod| pod.uid().is_some_and(|uid| too_long.contains(&uid));
        let pods: Vec<_> = pods.into_iter().filter(is_too_long).collect();
        let account = pods.first().and_then(|pod| self.caches.account_of(pool, pod));
        let names: Vec<_> = pods.iter().map(|pod| pod.name_any()).collect();
        Silence { misfit: sentence(&pool.namespace, account.as_deref(), &names), requeue_after }
    }
}

/// Whether containers of a pod run, if known.
fn runs(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_troubled = trouble::shown([pod]).is_some();
    phase == Some("Running") && pod.metadata.deletion_timestamp.is_none() && !is_troubled
}

/// The sentence about these pods, which run as `account`, if known.
fn sentence(namespace: &str, account: Option<&str>, pods: &[String]) -> Option<Misfit> {
    let first = pods.first()?;
    let names: Vec<_> = pods.iter().map(String::as_str).collect();
    let seconds = OPENS_WITHIN.as_secs();
    let (who, account) = match account {
        Some(account) => (format!("ServiceAccount `{account}`"), account),
        None => ("their ServiceAccount".to_owned(), "ACCOUNT"),
    };
    let message = format!(
        "these pods have run for {seconds}s without opening a session, so they get no jobs: {}; most \
         likely {who} may not write Leases. Bind it with `kubectl create rolebinding \
         {WORKER_ROLE}-{account} -n {namespace} --clusterrole={WORKER_ROLE} \
         --serviceaccount={namespace}:{account}`; if it is bound, `kubectl logs -n {namespace} {first}` \
         says what the worker waits for",
        shortened(&names)
    );
    Some(Misfit { reason: "SessionsMissing", message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pod_is_silent_for_too_long_once_its_time_has_passed_and_forgotten_when_it_opens_one()
    {
        let mut silent = Silent::default();
        let start = Instant::now();
        let (a, b) = ("a".to_owned(), "b".to_owned());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let both = [a.clone(), b.clone()];
        assert_eq!(silent.note(&both[..1], start), (vec![], Some(OPENS_WITHIN)));
        assert_eq!(silent.note(&both, at(5)), (vec![], Some(Duration::from_secs(10))));
        assert_eq!(silent.note(&both, at(15)), (vec![a.clone()], Some(Duration::from_secs(5))));
        assert_eq!(silent.note(&[b], at(16)), (vec![], Some(Duration::from_secs(4))));
        let again = silent.note(&[a], at(17));
        assert_eq!(again, (vec![], Some(OPENS_WITHIN)), "it had a session meanwhile");
    }

    #[test]
    fn the_sentence_has_the_command_that_binds_the_account() {
        let pods = ["w-0".to_owned(), "w-1".to_owned()];
        let Misfit { reason, message } = sentence("n", Some("backup"), &pods).unwrap();
        assert_eq!(reason, "SessionsMissing");
        let expected = "these pods have run for 15s without opening a session, so they get no jobs: \
                        w-0, w-1; most likely ServiceAccount `backup` may not write Leases. Bind it \
                        with `kubectl create rolebinding swarm-session-worker-backup -n n \
                        --clusterrole=swarm-session-worker --serviceaccount=n:backup`; if it is bound, \
                        `kubectl logs -n n w-0` says what the worker waits for";
        assert_eq!(message, expected);
        assert_eq!(sentence("n", None, &[]), None);
    }
}
