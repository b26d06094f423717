//! What is seen of the workers: their processes and the leases of their sessions.
//!
//! A life of a worker that is not among the living has ended for certain: it was awaited, and all
//! it had started was ended with it. So every session of another life is at its end, whatever its
//! lease says, and nobody here waits for leases of the dead to run out.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use swarm_adapters_host::clock;
use swarm_adapters_host::leases::{LeaseFollower, Leases};
use swarm_adapters_host::processes::{Phase, Processes, WorkerProcess, Workers};
use swarm_adapters_host::worker_view;
use swarm_core::handover::{
    Ages, Health, LeaseTerms, Moment, Proof, SessionId, WatchEvent, Watches,
};
use swarm_core::{Ledger, Observed, Presence, Slot, WorkerSeen};
use tokio::sync::watch;

use super::outlets::Voice;

/// How long a turn may rest while something waits to be looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// The workers of the pool, as far as they are known.
pub(super) struct Sessions {
    dir: std::path::PathBuf,
    leases: Leases,
    follower: LeaseFollower,
    watches: Watches,
    /// The sessions that the ledger names.
    named: BTreeSet<SessionId>,
    ages: Ages,
    terms: LeaseTerms,
    watched_since: Instant,
}

impl Sessions {
    /// Begins to watch the leases in `dir`.
    pub(super) fn open(dir: &Path, terms: LeaseTerms) -> anyhow::Result<Self> {
        let leases = Leases::open(dir).context("the leases cannot be kept")?;
        leases.sweep().context("the leases cannot be kept")?;
        let follower = LeaseFollower::new(&leases);
        Ok(Self {
            dir: dir.to_owned(),
            leases,
            follower,
            watches: Watches::default(),
            named: BTreeSet::new(),
            ages: Ages::default(),
            terms,
            watched_since: Instant::now(),
        })
    }

    /// Waits until leases changed, and takes them in.
    pub(super) async fn changed(&mut self) {
        match self.follower.changed().await {
            Ok(sessions) => self.look(&sessions),
            Err(error) => {
                tracing::warn!(%error, "the leases cannot be followed; trying again");
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        }
    }

    fn look(&mut self, sessions: &BTreeSet<SessionId>) {
        for session in sessions {
            let now = clock::now();
            match self.leases.read(session) {
                Ok(Some(lease)) => self.watches.seen(now, session, lease, &self.terms),
                // A lease is missing for good only if its session was once given jobs.
                Ok(None) if self.named.contains(session) => {
                    self.watches.learn(now, session, &WatchEvent::Missing, &self.terms);
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(%session, %error, "a lease cannot be read"),
            }
        }
    }

    /// Revokes the leases of sessions that have fallen silent, and kills their workers: what is
    /// frozen does not let go by itself.
    pub(super) fn revoke_silent(
        &mut self,
        processes: &Processes,
        workers: &Workers,
        voice: &Voice,
    ) {
        for (session, version) in self.watches.due(clock::now(), Health::Good, &self.terms) {
            let event = match self.leases.revoke(&session, version) {
                Ok(_) => WatchEvent::RevocationWritten(version),
                Err(_) => WatchEvent::RevocationFailed,
            };
            self.watches.learn(clock::now(), &session, &event, &self.terms);
            let is_revoked = matches!(event, WatchEvent::RevocationWritten(_));
            if let Some((slot, worker)) = worker_of(&session, workers).filter(|_| is_revoked) {
                voice.say(&format!("{} is silent and is replaced", worker.name));
                processes.kill(*slot, &worker.life);
            }
        }
    }

    /// What is seen of the pool, for a turn that starts from `ledger`. `wanted` are the slots
    /// that should be filled.
    pub(super) fn observed(
        &mut self,
        ledger: &Ledger,
        workers: &Workers,
        wanted: &Range<u32>,
    ) -> Observed {
        let now = clock::now();
        self.ages.see(now, &ledger.cells);
        let mut evidence = self.watches.evidence(ledger.cells.incarnation);
        self.named = ledger.sessions().into_keys().cloned().collect();
        for session in &self.named {
            evidence.entry(session.clone()).or_default();
        }
        let living = lives(workers);
        for (session, known) in &mut evidence {
            if !living.contains(session.pod_uid()) {
                known.ended.get_or_insert(Proof::ProcessEnded);
            }
        }
        let sessions = self.by_life();
        let seen = |(slot, worker): (&Slot, &WorkerProcess)| {
            let session = sessions.get(worker.life.as_str()).copied();
            let session = session
                .filter(|session| evidence.get(session).is_none_or(|known| known.ended.is_none()));
            Some((*slot, self.seen(worker, session, wanted.contains(&slot.0))?))
        };
        let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Observed {
            workers: workers.iter().filter_map(seen).collect(),
            workers_desired: wanted.len(),
            watched_for: self.watched_since.elapsed(),
            unix_time_us: clock.as_micros().try_into().unwrap_or(u64::MAX),
            ages: self.ages.at(now),
            evidence,
            // A ledger that was removed or set back is written again from what this process knows.
            positions: BTreeSet::new(),
        }
    }

    /// How the core sees one worker; `None` if it does not count any more.
    fn seen(
        &self,
        worker: &WorkerProcess,
        session: Option<&SessionId>,
        is_wanted: bool,
    ) -> Option<WorkerSeen> {
        let told_to_drain = || {
            let watch = session.and_then(|session| self.watches.get(session));
            watch.is_some_and(|watch| watch.ack.is_draining)
        };
        let presence = match (worker.phase, session) {
            (Phase::Away(since), _) if is_wanted => Presence::Away(since.elapsed()),
            (Phase::Up | Phase::Leaving(_), Some(_)) if !is_wanted || told_to_drain() => {
                Presence::Draining
            }
            (Phase::Up, Some(_)) => Presence::Ready,
            (Phase::Leaving(_), Some(_)) => Presence::Draining,
            (Phase::Up, None) if is_wanted => Presence::NotReady,
            (Phase::Up | Phase::Leaving(_) | Phase::Away(_), _) => return None,
        };
        Some(WorkerSeen { name: worker.name.clone(), presence, session: session.cloned() })
    }

    /// The sessions that may renew their leases, by the lives of workers they belong to.
    fn by_life(&self) -> BTreeMap<&str, &SessionId> {
        let living = self.watches.iter().filter(|(_, watch)| watch.may_renew());
        living.map(|(session, _)| (session.pod_uid(), session)).collect()
    }

    /// The revision that a session has acknowledged, in the life of the ledger it told it for.
    pub(super) fn acknowledged(&self, session: &SessionId) -> Option<u64> {
        self.watches.get(session).map(|watch| watch.ack.revision)
    }

    /// Removes what was kept of sessions that have ended and that `ledger` does not name.
    pub(super) fn collect_garbage(
        &mut self,
        ledger: &Ledger,
        workers: &watch::Receiver<Workers>,
    ) -> io::Result<()> {
        let sessions = self.leases.list()?;
        // Looked at only now: a life is known before it leaves its first trace.
        let workers = &*workers.borrow();
        let (named, living) = (ledger.sessions(), lives(workers));
        let is_done = |session: &SessionId| {
            !named.contains_key(session) && !living.contains(session.pod_uid())
        };
        for session in sessions.into_iter().filter(is_done) {
            self.leases.remove(&session)?;
            worker_view::remove(&self.dir, &session)?;
        }
        self.watches.retain(|session| !is_done(session));
        Ok(())
    }

    /// After how long something is to be looked at again without any event.
    pub(super) fn wakes_in(&self) -> Option<Duration> {
        let at: Moment = self.watches.wakes_at(&self.terms)?;
        Some(at.since(clock::now()).max(LOOK_AGAIN))
    }

    /// The timing of the workers' sessions.
    pub(super) fn terms(&self) -> &LeaseTerms {
        &self.terms
    }
}

/// The lives that are being lived.
fn lives(workers: &Workers) -> BTreeSet<&str> {
    let living = workers.values().filter(|worker| !matches!(worker.phase, Phase::Away(_)));
    living.map(|worker| worker.life.as_str()).collect()
}

/// The worker that lives, or lived last, the life of a session.
fn worker_of<'a>(
    session: &SessionId,
    workers: &'a Workers,
) -> Option<(&'a Slot, &'a WorkerProcess)> {
    workers.iter().find(|(_, worker)| worker.life == session.pod_uid())
}
