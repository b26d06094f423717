//! The sessions of one Swarm's workers: hands what the API server says of them to the overseer, and
//! carries out what the overseer decides. Nothing is judged here, and nothing of it is stored.

mod alarms;
mod ended;
mod garbage;
mod leases;
mod pods;
mod report;
mod revoke;

pub(super) use alarms::{Alarm, Alarms};
pub(super) use ended::Ended;
pub(super) use leases::Leases;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::ResourceExt;
use swarm_core::Ledger;
use swarm_core::handover::{LeaseTerms, Life, Moment, SessionId};
use swarm_core::overseer::{Fact, Overseer, PoolFacts, Suspicion};
use swarm_core::ports::{LedgerStore, StoreError};

use super::clock;
use super::context::Context;
use crate::api::Swarm;
use leases::Known;

/// How long a turn may rest while something is overdue and held back.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The least pause before another look.
const PAUSE_MIN: Duration = Duration::from_millis(20);

/// What this process knows of the sessions of one Swarm.
#[derive(Default)]
pub(super) struct Sessions {
    pub(super) overseer: Overseer,
    /// On which node each pod was seen: the node's name and UID, by the pod's UID.
    nodes: BTreeMap<String, (String, String)>,
    /// Since when a release has been waiting for its answer, for people.
    owed: report::Since,
}

/// What there is to report of the sessions, beside what the overseer makes of a worker.
#[derive(Default)]
pub(super) struct SessionSummary {
    /// How many sessions live.
    pub(super) living: usize,
    /// The workers that are given nothing because of what they claim.
    pub(super) suspects: Vec<(String, Suspicion)>,
    /// How many sessions are silent and not revoked, since too many are at once.
    pub(super) held_back: usize,
    /// After which time to look again.
    pub(super) again_in: Option<Duration>,
    /// What is waited for if there is nothing but to notice a session that falls silent.
    pub(super) alarm: Option<Alarm>,
}

impl Sessions {
    /// Takes in the ledger as it was read or written just now.
    pub(super) fn note(&mut self, ledger: &Ledger) {
        self.overseer.note(clock::now(), ledger);
    }

    /// Takes in what the Leases say, each since this process first saw it say so.
    fn learn_leases(&mut self, known: &BTreeMap<String, Vec<Known>>) {
        for known in known.values().flatten() {
            let lease = Fact::Lease(known.seen.session.clone(), known.facts());
            self.overseer.learn(known.since, lease);
        }
    }

    /// What there is to report of the workers in `pool`.
    pub(super) fn summary(&self, now: Moment, pool: &PoolFacts) -> SessionSummary {
        let suspicions = self.overseer.suspicions(now, pool.unix_time_us);
        let mut summary = SessionSummary {
            held_back: self.overseer.held_back(now),
            again_in: self.wakes_in(now),
            alarm: self.alarm(now),
            ..SessionSummary::default()
        };
        for worker in pool.workers.values() {
            let pod = worker.pod.as_deref().unwrap_or_default();
            let Some(session) = self.overseer.living(pod) else { continue };
            summary.living += 1;
            let suspicion = suspicions.get(session);
            summary.suspects.extend(suspicion.map(|why| (worker.name.clone(), *why)));
        }
        if self.overseer.is_in_doubt(now) {
            summary.again_in = summary.again_in.into_iter().chain([LOOK_AGAIN]).min();
            summary.alarm = None;
        }
        summary
    }

    fn wakes_in(&self, now: Moment) -> Option<Duration> {
        let at = self.overseer.wakes_at()?;
        Some(if at <= now { LOOK_AGAIN } else { at.since(now).max(PAUSE_MIN) })
    }

    /// The alarm that is enough if all sessions that have not ended live.
    fn alarm(&self, now: Moment) -> Option<Alarm> {
        let at = self.overseer.wakes_at().filter(|at| now < *at)?;
        let mut sessions = Vec::new();
        for (session, watch) in self.overseer.proofs().iter() {
            match watch.life {
                Life::Held { .. } => {
                    sessions.push((session.clone(), watch.claimed(self.overseer.terms())));
                }
                Life::Revoking { .. } | Life::Revoked { .. } => return None,
                Life::Ended(_) => {}
            }
        }
        Some(Alarm { at, sessions })
    }
}

impl Context {
    /// Learns what there is to know of the sessions of a Swarm, of the pods `in_pool` and of all that
    /// the ledger names, and has those revoked that the overseer wants revoked. Returns why the API
    /// server refuses to revoke some.
    pub(super) async fn learn_sessions(
        &self,
        swarm: &Swarm,
        terms: &LeaseTerms,
        in_pool: BTreeSet<String>,
        sessions: &mut Sessions,
        ledgers: &dyn LedgerStore,
    ) -> Result<Vec<String>, StoreError> {
        let namespace = swarm.namespace().unwrap_or_default();
        sessions.overseer.set_terms(*terms);
        if !sessions.overseer.has_ledger()
            && let Some((ledger, _)) = ledgers.load().await?
        {
            sessions.note(&ledger);
        }
        let viewed = self.views.of_swarm(&namespace, &swarm.name_any());
        let mut uids = in_pool;
        let others = sessions.overseer.named().chain(&viewed);
        uids.extend(others.map(|session| session.pod_uid().to_owned()));
        let read = || -> BTreeMap<String, Vec<Known>> {
            let of_pod = |uid: &String| (uid.clone(), self.leases.of_pod(&namespace, uid));
            uids.iter().map(of_pod).filter(|(_, known)| !known.is_empty()).collect()
        };
        let known = read();
        // What nothing names and nobody shows any more needs no proof.
        sessions.overseer.forget(|session| {
            let mut of_pod = known.get(session.pod_uid()).into_iter().flatten();
            of_pod.any(|known| known.seen.session == *session) || viewed.contains(session)
        });
        sessions.nodes.retain(|uid, _| uids.contains(uid));
        sessions.learn_leases(&known);
        for uid in &uids {
            self.learn_pod(&namespace, uid, sessions);
        }
        self.learn_views(&namespace, viewed, sessions);
        if let Some(failed) = self.leases.failed_at() {
            sessions.overseer.learn(failed, Fact::StoreFailed);
        }
        let refused = self.carry_out_due(&namespace, sessions).await?;
        // What the requests brought is newer than what was read before them.
        sessions.learn_leases(&read());
        Ok(refused)
    }

    /// Learns what the views say of the sessions that are known, and of those that have one.
    fn learn_views(&self, namespace: &str, viewed: Vec<SessionId>, sessions: &mut Sessions) {
        let overseer = &mut sessions.overseer;
        let mut all = BTreeSet::from_iter(viewed);
        all.extend(overseer.named().filter(|session| !session.is_plain()).cloned());
        all.extend(overseer.proofs().iter().map(|(session, _)| session.clone()));
        for session in all {
            let fact = match self.views.says(namespace, &session) {
                None if !self.views.is_there(namespace, &session.to_string()) => {
                    Fact::ViewMissing(session)
                }
                mark => Fact::View(session, mark),
            };
            overseer.learn(clock::now(), fact);
        }
    }
}
