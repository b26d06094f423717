//! Pods of a session pool that run without a session, so that they get no jobs. If they never had
//! one, most often their service account lacks the right to write Leases. If they had one, most
//! often their worker is frozen or cut off. No right is needed to see that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use swarm_spec::spec::ProtocolSpec;
use tokio::time::Instant;

use super::{KnownSessions, Sessions};
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

/// The pods without a session, by UID.
#[derive(Debug, Default)]
pub(super) struct Silent {
    /// The time at which this process first saw each of them run without a session.
    since: BTreeMap<String, Instant>,
    /// The pods of the pool that this process has seen with a session.
    had_session: BTreeSet<String>,
}

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
        self.since.retain(|uid, _| silent.contains(uid));
        let mut too_long = Vec::new();
        let mut requeue_after: Option<Duration> = None;
        for uid in silent {
            let since = *self.since.entry(uid.clone()).or_insert(now);
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
        KnownSessions { silent, .. }: &mut KnownSessions,
    ) -> Silence {
        if turn.swarm.protocol() != ProtocolSpec::Session {
            *silent = Silent::default();
            return Silence::default();
        }
        let has_lease = |pod: &&Pod| !self.leases.of_pod(&pool.namespace, uid(pod)).is_empty();
        let wanted = slots.pods.iter().filter(|(slot, _)| slots.wanted.contains(slot));
        let pods: Vec<_> = wanted.map(|(_, pod)| &**pod).collect();
        let present: BTreeSet<_> = pods.iter().map(|pod| uid(pod)).collect();
        silent.had_session.retain(|known| present.contains(known.as_str()));
        let (live, without): (Vec<_>, Vec<_>) = pods.into_iter().partition(has_lease);
        let live = live.into_iter().map(uid).filter(|uid| !silent.had_session.contains(*uid));
        let found: Vec<_> = live.map(str::to_owned).collect();
        silent.had_session.extend(found);
        let pods: Vec<_> = without.into_iter().filter(|pod| runs(pod)).collect();
        let uids: Vec<_> = pods.iter().map(|pod| uid(pod).to_owned()).collect();
        let (too_long, requeue_after) = silent.note(&uids, Instant::now());
        let is_too_long = |pod: &&Pod| too_long.iter().any(|known| known == uid(pod));
        let mut pods: Vec<_> = pods.into_iter().filter(is_too_long).collect();
        let had_session = |pod: &&Pod| silent.had_session.contains(uid(pod));
        // A missing right is the same for all pods, and the first to correct.
        let is_lost = pods.iter().all(had_session);
        pods.retain(|pod| had_session(pod) == is_lost);
        let account = pods.first().and_then(|pod| self.caches.account_of(pool, pod));
        let names: Vec<_> = pods.iter().map(|pod| pod.name_any()).collect();
        let sentence = if is_lost { lost } else { missing };
        Silence { misfit: sentence(&pool.namespace, account.as_deref(), &names), requeue_after }
    }
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// Whether containers of a pod run, if known.
fn runs(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_troubled = trouble::shown([pod]).is_some();
    phase == Some("Running") && pod.metadata.deletion_timestamp.is_none() && !is_troubled
}

/// Describes pods that have never opened a session. They run as `account`, if it is known.
fn missing(namespace: &str, account: Option<&str>, pods: &[String]) -> Option<Misfit> {
    let first = pods.first()?;
    let names: Vec<_> = pods.iter().map(String::as_str).collect();
    let seconds = OPENS_WITHIN.as_secs();
    let message = format!(
        "these pods have run for {seconds}s without opening a session, so they get no jobs: {}; most \
         likely {} may not write Leases. Bind it with `{}`; if it is bound, \
         `kubectl logs -n {namespace} {first}` says what the worker waits for",
        shortened(&names),
        shown(account),
        binding(namespace, account),
    );
    Some(Misfit { reason: "SessionsMissing", message })
}

/// Describes pods whose session has ended, and which have opened no other one.
fn lost(namespace: &str, account: Option<&str>, pods: &[String]) -> Option<Misfit> {
    let first = pods.first()?;
    let names: Vec<_> = pods.iter().map(String::as_str).collect();
    let message = format!(
        "these pods run without a session, so they get no jobs: {}. Their last session ended at least \
         {}s ago; most likely the worker is frozen or cut off from the API server. `kubectl logs -n \
         {namespace} {first}` shows its log, and `kubectl delete pod -n {namespace} {first}` replaces \
         it. If {} may not write Leases any more, bind it with `{}`",
        shortened(&names),
        OPENS_WITHIN.as_secs(),
        shown(account),
        binding(namespace, account),
    );
    Some(Misfit { reason: "SessionsLost", message })
}

fn shown(account: Option<&str>) -> String {
    match account {
        Some(account) => format!("ServiceAccount `{account}`"),
        None => "their ServiceAccount".to_owned(),
    }
}

/// Returns the command that gives `account` the right to write Leases.
fn binding(namespace: &str, account: Option<&str>) -> String {
    let account = account.unwrap_or("ACCOUNT");
    format!(
        "kubectl create rolebinding {WORKER_ROLE}-{account} -n {namespace} \
         --clusterrole={WORKER_ROLE} --serviceaccount={namespace}:{account}"
    )
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
    fn the_sentences_have_the_commands_that_help() {
        let pods = ["w-0".to_owned(), "w-1".to_owned()];
        let Misfit { reason, message } = missing("n", Some("backup"), &pods).unwrap();
        assert_eq!(reason, "SessionsMissing");
        for part in [
            " 15s ",
            ": w-0, w-1; ",
            "ServiceAccount `backup` may not write Leases",
            "`kubectl create rolebinding swarm-session-worker-backup -n n \
             --clusterrole=swarm-session-worker --serviceaccount=n:backup`",
            "`kubectl logs -n n w-0`",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
        assert_eq!(missing("n", None, &[]), None);
        let Misfit { reason, message } = lost("n", None, &pods).unwrap();
        assert_eq!(reason, "SessionsLost");
        for part in [
            ": w-0, w-1. ",
            " 15s ago",
            "`kubectl logs -n n w-0`",
            "`kubectl delete pod -n n w-0`",
            "`kubectl create rolebinding swarm-session-worker-ACCOUNT -n n \
             --clusterrole=swarm-session-worker --serviceaccount=n:ACCOUNT`",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}
