//! Observes the workers: their processes and the leases of their sessions.
//!
//! A worker instance that is not listed, or is away, has certainly ended: no process of it is left. So
//! its sessions have ended independent of their leases, which are never waited for. Conversely, a lease
//! that has expired proves no end of a listed instance: its worker and guard cannot end a process of
//! another user.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use swarm_adapters_host::awaited;
use swarm_adapters_host::clock;
use swarm_adapters_host::failing;
use swarm_adapters_host::leases::{LeaseFollower, Leases};
use swarm_adapters_host::worker_view;
use swarm_core::handover::{LeaseTerms, Moment, ONE_CLOCK_MARGIN, Proof, Renewals, SessionId};
use swarm_core::overseer::{
    Answer, Began, Containers, Effect, Fact, LeaseFacts, Overseer, PodFacts, PoolFacts, Protocol,
    ViewMark, WorkerFacts,
};
use swarm_core::session::Former;
use swarm_core::{Decision, Desired, Failing, Ledger, Observed, Presence, Progress, Slot};
use swarm_view::age::age;
use tokio::sync::watch;

use super::outlets::Voice;
use super::until::NotUp;
use crate::processes::reports::Reports;
use crate::processes::{Phase, Processes, WorkerProcess, Workers};

/// Minimum delay before the overseer is polled again.
const POLL_MIN: Duration = Duration::from_millis(200);

/// Observed sessions of the pool.
pub(super) struct Sessions {
    dir: std::path::PathBuf,
    leases: Leases,
    follower: LeaseFollower,
    overseer: Overseer,
    /// Sessions in the order of their appearance.
    order: BTreeMap<SessionId, u64>,
    /// Failing jobs that each worker instance reports, if any.
    failing: BTreeMap<String, Arc<Failing>>,
    /// The session of each instance, the number of its last write, and the renewals that were seen.
    heard: BTreeMap<String, (SessionId, u64, Renewals)>,
    reports: Reports,
    watched_since: Instant,
}

impl Sessions {
    /// Starts to follow the leases in `dir`.
    pub(super) fn open(dir: &Path, terms: LeaseTerms, reports: Reports) -> anyhow::Result<Self> {
        let leases = Leases::open(dir).context("the leases cannot be stored")?;
        leases.sweep().context("the leases cannot be stored")?;
        let follower = LeaseFollower::new(&leases);
        Ok(Self {
            dir: dir.to_owned(),
            leases,
            follower,
            overseer: Overseer::new(terms),
            order: BTreeMap::new(),
            failing: BTreeMap::new(),
            heard: BTreeMap::new(),
            reports,
            watched_since: Instant::now(),
        })
    }

    /// Waits until leases change, and reads them.
    pub(super) async fn changed(&mut self) {
        match self.follower.changed().await {
            Ok(sessions) => self.read(&sessions),
            Err(error) => {
                tracing::warn!(%error, "the leases cannot be followed; retrying");
                tokio::time::sleep(POLL_MIN).await;
            }
        }
    }

    fn read(&mut self, sessions: &BTreeSet<SessionId>) {
        for session in sessions {
            let is_named = self.overseer.named().any(|named| named == session);
            match self.leases.read(session) {
                Ok(Some(lease)) => {
                    let next = self.order.len() as u64 + 1;
                    let order = *self.order.entry(session.clone()).or_insert(next);
                    let pause = self.hear(session, lease.number);
                    let failing = failing::read(&self.dir, session);
                    let instance = session.pod_uid().to_owned();
                    if 0 < failing.count {
                        self.failing.insert(instance, Arc::new(failing));
                    } else {
                        self.failing.remove(&instance);
                    }
                    let facts = LeaseFacts {
                        lease,
                        duration: self.overseer.terms().duration,
                        began: Began { order, created_s: None },
                        former: Former::default(),
                        // This process started every worker that can have a lease.
                        has_renewed: true,
                        pause,
                    };
                    self.overseer.learn(clock::now(), Fact::Lease(session.clone(), facts));
                }
                // A lease counts as missing only if its session was granted jobs.
                Ok(None) if is_named => {
                    self.overseer.learn(clock::now(), Fact::LeaseMissing(session.clone()));
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(%session, %error, "a lease cannot be read"),
            }
        }
    }

    /// Records that the lease of a session was read after this write. Only a new write is a renewal.
    /// Returns the pause before the last renewal.
    fn hear(&mut self, session: &SessionId, number: u64) -> Duration {
        let (now, instance) = (self.now(), session.pod_uid());
        let known = self.heard.get(instance);
        let mut renewals = known.map_or_else(|| Renewals::first(now), |(.., it)| *it);
        if known.is_none_or(|(heard, last, _)| heard != session || *last < number) {
            if known.is_some() {
                renewals.renewed(now);
            }
            self.heard.insert(instance.to_owned(), (session.clone(), number, renewals));
            self.reports.hear(instance);
        }
        renewals.pause
    }

    /// Returns the present moment. A suspend of the machine does not count, since its workers are suspended, too.
    fn now(&self) -> Moment {
        Moment(self.watched_since.elapsed())
    }

    /// Revokes the leases of silent sessions, and kills their workers, which may be frozen. Returns a
    /// sentence about each.
    pub(super) fn revoke_silent(
        &mut self,
        processes: &Processes,
        workers: &Workers,
        voice: &Voice,
    ) -> Vec<String> {
        let mut replaced = Vec::new();
        let known: BTreeSet<_> = self.order.keys().cloned().collect();
        for effect in self.overseer.due(clock::now(), unix_time_us(), |it| known.contains(it)) {
            match effect {
                Effect::LookUp(session) => self.read(&[session].into()),
                Effect::Revoke(session, version) => {
                    let is_revoked = self.leases.revoke(&session, version).is_ok();
                    let answer = if is_revoked { Answer::Written } else { Answer::Failed };
                    let fact = Fact::Revocation(session.clone(), version, answer);
                    self.overseer.learn(clock::now(), fact);
                    if let Some((slot, worker)) = worker_of(&session, workers)
                        .filter(|(_, worker)| is_revoked && worker.pid.is_some())
                    {
                        voice.say(&format!("{} is silent and is replaced", worker.name));
                        let heard = self.heard.get(&worker.instance);
                        let silent = heard.map(|(.., it)| self.now().since(it.last));
                        let silent =
                            silent.map(|it| format!(" for {}", age(it))).unwrap_or_default();
                        replaced.push(format!(
                            "worker {} was silent{silent} and was killed",
                            worker.name
                        ));
                        processes.kill(*slot, &worker.instance);
                    }
                }
            }
        }
        replaced
    }

    /// Returns the failing jobs that sessions of running workers report.
    pub(super) fn failing(&self, workers: &Workers) -> BTreeMap<Slot, Arc<Failing>> {
        let up = workers.iter().filter(|(_, worker)| worker.phase == Phase::Up);
        let of = |(slot, worker): (&Slot, &WorkerProcess)| {
            Some((*slot, Arc::clone(self.failing.get(&worker.instance)?)))
        };
        up.filter_map(of).collect()
    }

    /// Returns the running workers that are not [heard](Renewals::is_heard), and the times of their last
    /// renewals. They may be frozen.
    pub(super) fn silent(&self, workers: &Workers) -> BTreeMap<Slot, Instant> {
        let now = self.now();
        let since = |(slot, worker): (&Slot, &WorkerProcess)| {
            let (.., heard) = self.heard.get(&worker.instance)?;
            let is_silent = worker.phase == Phase::Up && !heard.is_heard(now, self.silent_after());
            is_silent.then(|| (*slot, self.watched_since + heard.last.0))
        };
        workers.iter().filter_map(since).collect()
    }

    /// Returns the time without renewal after which a worker is reported as silent.
    fn silent_after(&self) -> Duration {
        self.overseer.terms().silent_after(ONE_CLOCK_MARGIN)
    }

    /// Returns the sessions of the `silent` workers, and the sessions that have ended or were revoked.
    /// Their jobs are not known to run.
    pub(super) fn unheard(
        &self,
        ledger: &Ledger,
        silent: &BTreeMap<Slot, Instant>,
    ) -> BTreeSet<SessionId> {
        let record = |slot| ledger.slots.get(slot).map(|record| record.session.clone());
        let mut unheard = self.overseer.unheard(clock::now(), ONE_CLOCK_MARGIN);
        unheard.extend(silent.keys().filter_map(record));
        unheard
    }

    /// Returns the observation for a turn from `ledger`. `wanted` are the slots to fill.
    pub(super) fn observed(
        &mut self,
        ledger: &Ledger,
        desired: &Desired,
        workers: &Workers,
        wanted: &Range<u32>,
    ) -> Observed {
        let now = clock::now();
        // Before the first write no ledger exists, and the first write does not start another
        // incarnation.
        if 0 < ledger.revision() || self.overseer.has_ledger() {
            self.overseer.note(now, ledger);
        }
        let living = running(workers);
        let sessions = self.overseer.named().chain(self.overseer.proofs().iter().map(|it| it.0));
        let all: BTreeSet<_> = sessions.map(|it| it.pod_uid().to_owned()).collect();
        for instance in all {
            let has_ended = !living.contains(instance.as_str());
            let facts = PodFacts {
                is_lost: has_ended,
                has_terminated: has_ended,
                is_node_off: false,
                containers: Containers::One,
            };
            self.overseer.learn(now, Fact::Pod(instance, facts));
        }
        let seen = |(slot, worker): (&Slot, &WorkerProcess)| {
            Some((*slot, worker_facts(worker, wanted.contains(&slot.0))?))
        };
        let pool = PoolFacts {
            workers_desired: wanted.len(),
            protocol: Protocol::Session,
            watched_for: self.watched_since.elapsed(),
            ..PoolFacts::new(workers.iter().filter_map(seen), unix_time_us())
        };
        let mut observed = self.overseer.observed(now, desired.policy, pool);
        // A removed or rolled back ledger is written again from this process's copy.
        observed.positions.clear();
        for (session, evidence) in &mut observed.evidence {
            if evidence.ended == Some(Proof::Fenced) && living.contains(session.pod_uid()) {
                evidence.ended = None;
            }
        }
        observed
    }

    /// Records the views that were published to sessions.
    pub(super) fn published(&mut self, marks: Vec<(SessionId, ViewMark)>) {
        for (session, mark) in marks {
            self.overseer.learn(clock::now(), Fact::View(session, Some(mark)));
        }
    }

    /// Returns the pool's progress after a turn.
    pub(super) fn progress(
        &self,
        decision: &Decision,
        desired: &Desired,
        observed: &Observed,
    ) -> Progress {
        self.overseer.progress(decision, desired, observed)
    }

    /// Returns the revision up to which a session has acknowledged a job of its view.
    pub(super) fn acknowledged(&self, ledger: &Ledger, session: &SessionId, job: &str) -> u64 {
        self.overseer.acknowledged(ledger, session, job)
    }

    /// Returns the granted jobs that are not up. `published` are the sessions' newest views; answers
    /// to older views are ignored.
    pub(super) fn not_up(&self, ledger: &Ledger, published: &[(SessionId, ViewMark)]) -> NotUp {
        let mut all = NotUp::default();
        let named = ledger.sessions();
        for (session, mark) in published.iter().filter(|(session, _)| named.contains_key(session)) {
            match awaited::read(&self.dir, session)
                .filter(|reported| mark.revision <= reported.revision)
            {
                Some(reported) => {
                    all.count = all.count.saturating_add(reported.count);
                    all.first.extend(reported.first);
                }
                None => all.unheard += 1,
            }
        }
        all
    }

    /// Removes files of ended sessions that `ledger` does not name.
    pub(super) fn collect_garbage(
        &mut self,
        ledger: &Ledger,
        workers: &watch::Receiver<Workers>,
    ) -> io::Result<()> {
        let sessions = self.leases.list()?;
        // The workers are read after the list: an instance is known before its session has files.
        let workers = &*workers.borrow();
        let (named, living) = (ledger.sessions(), running(workers));
        self.heard.retain(|instance, _| living.contains(instance.as_str()));
        self.reports.retain_heard(|instance| living.contains(instance));
        self.failing.retain(|instance, _| living.contains(instance.as_str()));
        let is_done = |session: &SessionId| {
            !named.contains_key(session) && !living.contains(session.pod_uid())
        };
        for session in sessions.into_iter().filter(is_done) {
            self.leases.remove(&session)?;
            worker_view::remove(&self.dir, &session)?;
            failing::remove(&self.dir, &session)?;
            awaited::remove(&self.dir, &session)?;
        }
        self.order.retain(|session, _| !is_done(session));
        self.overseer.forget(|session| !is_done(session));
        Ok(())
    }

    /// Returns the delay after which the overseer must be polled or a worker becomes
    /// [silent](Self::silent).
    pub(super) fn wakes_in(&self) -> Option<Duration> {
        let overseer = self.overseer.wakes_at().map(|at| at.since(clock::now()).max(POLL_MIN));
        let now = self.now();
        let until = self.heard.values().filter_map(|(.., it)| it.heard_until(self.silent_after()));
        let silent = until.filter(|until| now < *until).map(|until| until.since(now));
        silent.chain(overseer).min()
    }

    /// Returns the timing of the workers' sessions.
    pub(super) fn terms(&self) -> &LeaseTerms {
        self.overseer.terms()
    }
}

/// Returns the facts about one worker for the overseer; `None` if it is away and not wanted.
fn worker_facts(worker: &WorkerProcess, is_wanted: bool) -> Option<WorkerFacts> {
    let presence = match worker.phase {
        Phase::Away(since) => Presence::Away(is_wanted.then(|| since.elapsed())?),
        Phase::Ending(since) if is_wanted => Presence::Away(since.elapsed()),
        Phase::Ending(since) | Phase::Leaving(since) => Presence::Leaving(since.elapsed()),
        Phase::Up if !is_wanted => Presence::Leaving(Duration::ZERO),
        Phase::Up => Presence::Ready,
    };
    let pod = (!matches!(worker.phase, Phase::Away(_))).then(|| worker.instance.clone());
    // A worker with a revoked lease is killed, and its slot is filled again at once.
    Some(WorkerFacts { name: worker.name.clone(), presence, pod, is_wanted, is_replaced: true })
}

fn unix_time_us() -> u64 {
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    clock.as_micros().try_into().unwrap_or(u64::MAX)
}

/// Returns the instances that have not ended with all their processes.
fn running(workers: &Workers) -> BTreeSet<&str> {
    let living = workers.values().filter(|worker| !matches!(worker.phase, Phase::Away(_)));
    living.map(|worker| worker.instance.as_str()).collect()
}

/// Returns the worker whose present or last instance has this session.
fn worker_of<'a>(
    session: &SessionId,
    workers: &'a Workers,
) -> Option<(&'a Slot, &'a WorkerProcess)> {
    workers.iter().find(|(_, worker)| worker.instance == session.pod_uid())
}
