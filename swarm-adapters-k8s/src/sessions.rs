//! The sessions of one Swarm's workers. This module passes facts from the API server to the
//! overseer, and carries out its decisions. It makes no decision and stores nothing.

pub(crate) mod alarms;
pub(crate) mod ended;
mod fenced;
mod garbage;
pub(crate) mod leases;
mod pods;
mod report;
mod revoke;
pub(crate) mod seen;
pub(crate) mod silent;
pub(crate) mod views;
pub(crate) mod worker_views;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::{Client, ResourceExt};
use swarm_client::session::SeenLease;
use swarm_core::handover::{Moment, SessionId, TWO_CLOCKS_MARGIN, WatchStage};
use swarm_core::life::Lives;
use swarm_core::overseer::{Fact, Overseer, PoolFacts, Suspicion};
use swarm_core::ports::{LedgerStore as _, StoreError};
use swarm_core::session::Details;
use swarm_core::{Desired, Failing, Failover, JobName, Jobs, Ledger, Relocation, Unacknowledged};
use swarm_spec::spec::SwarmSpec;

use crate::clock;
use crate::jobs::convert;
use crate::ledger::KubeLedgerStore;
use crate::metrics::Metrics;
use crate::pool::slots::Slots;
use crate::turn::Turn;
use crate::watch::caches::Caches;
use alarms::{Alarm, Alarms};
use ended::Ended;
use leases::{Known, Leases};
use silent::Silent;
use views::Views;

/// Maximum requeue delay while a revocation is due but held back.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The least pause before another look.
const PAUSE_MIN: Duration = Duration::from_millis(20);

/// Watches the sessions of Swarms, revokes silent sessions, and removes the objects of ended ones.
pub(crate) struct Sessions {
    pub(crate) client: Client,
    pub(crate) caches: Arc<Caches>,
    pub(crate) metrics: Metrics,
    /// The Leases of all sessions.
    pub(crate) leases: Leases,
    /// The views of all sessions.
    pub(crate) views: Views,
    /// The pods that were seen to have ended.
    pub(crate) ended: Ended,
    /// The alarms that wake pools at rest.
    pub(crate) alarms: Alarms,
}

/// The knowledge of this process about the sessions of one Swarm.
#[derive(Default)]
pub(crate) struct KnownSessions {
    pub(crate) overseer: Overseer,
    /// The pods that count, by UID: those in the pool, and those whose sessions the ledger or a view
    /// names.
    pods: BTreeSet<String>,
    /// The node on which each pod was seen: its name and UID, by the pod's UID.
    nodes: BTreeMap<String, (String, String)>,
    /// The failing jobs that sessions report.
    failing: BTreeMap<SessionId, Failing>,
    /// The lives of jobs that sessions report.
    pub(crate) lives: BTreeMap<SessionId, Arc<Lives>>,
    /// Jobs that try another worker.
    failover: Failover,
    /// The grants that their sessions have not acknowledged.
    unacknowledged: Unacknowledged,
    /// The sessions whose pods may write the Leases of other pods, since no policy prevents it.
    unprotected: BTreeSet<SessionId>,
    /// The sessions that know the runners that jobs name.
    knowing: BTreeSet<SessionId>,
    /// The number of jobs that wait for the update of their worker, by its session.
    waiting: BTreeMap<SessionId, usize>,
    /// The moment at which each release began to wait for its acknowledgement, for people.
    owed: report::Since,
    /// The moment at which the release of each job began, for people.
    released: report::Released,
    /// The revoked sessions whose jobs run nowhere yet, for people.
    standing: fenced::Standing,
    /// The pods that run without a session, for people.
    silent: Silent,
}

/// The summary of the sessions for the report, without the overseer's judgement of each worker.
#[derive(Default)]
pub(crate) struct SessionSummary {
    /// The number of live sessions.
    pub(crate) living: usize,
    /// The workers that get no jobs because their claims are suspicious.
    pub(crate) suspects: Vec<(String, Suspicion)>,
    /// The sessions whose workers report failing jobs, with the name of the worker.
    pub(crate) failing: BTreeMap<SessionId, (String, Failing)>,
    /// The workers that no policy keeps from writing the Leases of others.
    pub(crate) unprotected: Vec<String>,
    /// The number of silent sessions that are not revoked, because many are silent at once.
    pub(crate) held_back: usize,
    /// The time until the next check.
    pub(crate) again_in: Option<Duration>,
    /// The alarm that is enough while the Swarm waits only for a session to fall silent.
    pub(crate) alarm: Option<Alarm>,
}

impl KnownSessions {
    /// Learns that the store was rolled back. Knowledge about sessions stays, since it includes how
    /// far the ledger was. Their ends are in doubt until every Lease was read again.
    pub(crate) fn forget_undone(&mut self) {
        self.overseer.learn(clock::now(), Fact::StoreRolledBack);
    }

    /// Records the content of each Lease, with the moment at which this process first saw that
    /// content.
    fn learn_leases(&mut self, leases: Vec<Known>) {
        self.failing.clear();
        self.lives.clear();
        self.unprotected.clear();
        self.knowing.clear();
        for known in leases {
            self.lives.insert(known.seen.session.clone(), Arc::clone(&known.seen.lives));
            let SeenLease { session, failing, knows_runners, is_unprotected, .. } = &known.seen;
            if *knows_runners {
                self.knowing.insert(session.clone());
            }
            if *is_unprotected {
                self.unprotected.insert(session.clone());
            }
            if 0 < failing.count {
                self.failing.insert(session.clone(), failing.clone());
            }
            let lease = Fact::Lease(known.seen.session.clone(), known.facts());
            self.overseer.learn(known.since, lease);
        }
    }

    /// Returns the data for workers other than the names of `jobs`. A session that does not know the
    /// runners that jobs name gets no such job.
    pub(crate) fn details(&self, spec: &SwarmSpec, jobs: &Jobs) -> Details {
        let runners = spec.runners().into_iter().map(|(name, it)| (name, it.to_json())).collect();
        let details = Details::of(jobs).with_output(spec.output()).with_pace(spec.pace());
        let details = match spec.runner() {
            Some(runner) => details.with_runner(runner.to_json()),
            None => details,
        };
        if jobs.values().any(|job| job.runner.is_some()) {
            details.with_runners(runners).with_knowing(self.knowing.clone())
        } else {
            details
        }
    }

    /// Counts the jobs of `ledger` that wait for the update of their worker. O(jobs · log details) if
    /// there can be any.
    pub(crate) fn note_waiting(&mut self, ledger: &Ledger, details: &Details) {
        self.waiting.clear();
        if details.runners().is_empty() {
            return;
        }
        let old = |session: &SessionId| !session.is_plain() && !self.knowing.contains(session);
        for (session, view) in ledger.session_views().into_iter().filter(|(it, _)| old(it)) {
            let count = view.jobs.keys().filter(|job| details.is_beyond(&session, job)).count();
            if 0 < count {
                self.waiting.insert(session, count);
            }
        }
    }

    /// Returns the grants that their sessions have not acknowledged.
    pub(crate) fn unacknowledged(&self) -> &Unacknowledged {
        &self.unacknowledged
    }

    /// Returns the jobs that avoid workers on which they failed.
    pub(crate) fn relocations(&self) -> BTreeMap<JobName, Relocation> {
        self.failover.relocations()
    }

    /// Takes the sessions' reports about jobs that `ledger` grants to them. Returns whether another
    /// job should avoid a worker from now on, or no longer.
    pub(crate) fn observe_failures(
        &mut self,
        now: Moment,
        desired: &Desired,
        ledger: &Ledger,
    ) -> bool {
        let before = self.failover.relocations();
        if !desired.has_failover() && before.is_empty() {
            return false;
        }
        let slots = ledger.sessions();
        let slot = |(session, failing)| Some((*slots.get(session)?, failing));
        let reports = self.failing.iter().filter_map(slot);
        self.failover.observe(desired, ledger, reports, now.since(Moment::default()));
        self.failover.relocations() != before
    }

    /// Summarizes the sessions of the workers in `pool`.
    pub(crate) fn summary(&self, now: Moment, pool: &PoolFacts) -> SessionSummary {
        let suspicions = self.overseer.suspicions(now, pool.unix_time_us);
        // For several sessions of one pod, the last one counts.
        let by_pod = suspicions.iter().map(|(session, why)| (session.pod_uid(), *why));
        let by_pod: BTreeMap<_, _> = by_pod.collect();
        let mut summary = SessionSummary {
            held_back: self.overseer.held_back(now),
            again_in: self.wakes_in(now),
            alarm: self.alarm(now),
            ..SessionSummary::default()
        };
        for worker in pool.workers.values() {
            let pod = worker.pod.as_deref().unwrap_or_default();
            let living = self.overseer.living(pod);
            summary.living += usize::from(living.is_some());
            if let Some((session, failing)) = living.and_then(|it| self.failing.get_key_value(it)) {
                let reported = (worker.name.clone(), failing.clone());
                summary.failing.insert(session.clone(), reported);
            }
            let is_unprotected = living.is_some_and(|it| self.unprotected.contains(it));
            summary.unprotected.extend(is_unprotected.then(|| worker.name.clone()));
            let suspicion = by_pod.get(pod);
            summary.suspects.extend(suspicion.map(|why| (worker.name.clone(), *why)));
        }
        // A renewal triggers no turn, although it may end the doubt or the hold. So look again
        // soon.
        if self.overseer.is_in_doubt(now) || 0 < summary.held_back {
            summary.again_in = summary.again_in.into_iter().chain([LOOK_AGAIN]).min();
            summary.alarm = None;
        }
        if let Some(at) = self.overseer.unheard_at(TWO_CLOCKS_MARGIN) {
            // The next renewal of a silent session is looked for as often as one is due.
            let pause = self.overseer.terms().renew.max(LOOK_AGAIN);
            let again_in = if at <= now { pause } else { at.since(now).max(PAUSE_MIN) };
            summary.again_in = summary.again_in.into_iter().chain([again_in]).min();
        }
        summary
    }

    fn wakes_in(&self, now: Moment) -> Option<Duration> {
        let at = self.overseer.wakes_at()?;
        Some(if at <= now { LOOK_AGAIN } else { at.since(now).max(PAUSE_MIN) })
    }

    /// The alarm that is enough if all sessions that have not ended live.
    fn alarm(&self, now: Moment) -> Option<Alarm> {
        let terms = self.overseer.terms();
        let wakes_at = self.overseer.wakes_at()?;
        let silent_at = self.overseer.unheard_at(TWO_CLOCKS_MARGIN);
        let at = silent_at.map_or(wakes_at, |at| at.min(wakes_at));
        if at <= now {
            return None;
        }
        let mut sessions = Vec::new();
        for (session, watch) in self.overseer.proofs().iter() {
            match watch.stage {
                WatchStage::Held { since, .. } => {
                    let until = watch.heard_until(terms, TWO_CLOCKS_MARGIN)?;
                    sessions.push((session.clone(), until.since(since)));
                }
                WatchStage::Revoking { .. } | WatchStage::Revoked { .. } => return None,
                WatchStage::Ended(_) => {}
            }
        }
        Some(Alarm { at, sessions })
    }
}

impl Sessions {
    /// Learns all facts about the sessions of a Swarm: the sessions of the pods that fill its
    /// slots, and the sessions that the ledger or a view names.
    pub(crate) async fn learn(
        &self,
        turn: &Turn<'_>,
        slots: &Slots,
        sessions: &mut KnownSessions,
        ledgers: &KubeLedgerStore,
    ) -> Result<(), StoreError> {
        let namespace = turn.namespace;
        sessions.overseer.set_terms(convert::lease_terms(turn.swarm).unwrap_or_default());
        if !sessions.overseer.has_ledger()
            && let Some((ledger, _)) = ledgers.load().await?
        {
            sessions.overseer.note(clock::now(), &ledger);
        }
        let viewed = self.views.of_swarm(namespace, turn.name);
        let named = sessions.overseer.named().chain(&viewed).map(|it| it.pod_uid().to_owned());
        let in_pool = slots.pods.values().filter_map(|pod| pod.uid());
        sessions.pods = named.chain(in_pool).collect();
        sessions.nodes.retain(|uid, _| sessions.pods.contains(uid));
        let leases = self.leases_of(namespace, sessions);
        // A session that neither the ledger, a view nor a Lease names needs no proof any more.
        let shown: BTreeSet<_> = leases.iter().map(|known| &known.seen.session).collect();
        let mut viewed = BTreeSet::from_iter(viewed);
        sessions.overseer.forget(|session| shown.contains(session) || viewed.contains(session));
        sessions.learn_leases(leases);
        for uid in sessions.pods.clone() {
            self.learn_pod(namespace, &uid, sessions);
        }
        let overseer = &mut sessions.overseer;
        viewed.extend(overseer.named().filter(|session| !session.is_plain()).cloned());
        viewed.extend(overseer.proofs().iter().map(|(session, _)| session.clone()));
        self.learn_views(namespace, viewed, overseer);
        if let Some(failed) = self.leases.failed_at() {
            sessions.overseer.learn(failed, Fact::StoreFailed);
        }
        Ok(())
    }

    /// The Leases of the pods that count.
    fn leases_of(&self, namespace: &str, sessions: &KnownSessions) -> Vec<Known> {
        sessions.pods.iter().flat_map(|uid| self.leases.of_pod(namespace, uid)).collect()
    }

    /// Learns what the views of `sessions` say.
    pub(crate) fn learn_views(
        &self,
        namespace: &str,
        sessions: BTreeSet<SessionId>,
        overseer: &mut Overseer,
    ) {
        for session in sessions {
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
