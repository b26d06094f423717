//! Starts the pool again in a new state directory after someone removed or renamed its directory.
//!
//! The leases of the sessions are lost with the directory, and without them no worker may run a job.
//! So all workers end, and new ones start with the ledger as it was. The lock of the path excludes
//! other operators meanwhile.

use std::time::{Duration, Instant};

use swarm_adapters_host::ledger::FileLedgerStore;
use swarm_core::ports::LedgerStore as _;
use swarm_core::{Decider, Ledger};
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};

use super::turns::{Problem, continues};
use super::{JOINED_WITHIN, LOOK, Operation, Stores};
use crate::pool::earlier;
use crate::pool::ending::{Cause, report_killed};
use crate::pool::failures::News;
use crate::pool::shutdown::Shutdown;
use crate::processes::Patience;
use crate::state_dir::state::{StateDir, other_pool};

/// Time between two checks whether the directory is lost.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Delay before a directory that cannot be used is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Returns the times of the checks.
pub(super) fn checks() -> Interval {
    let mut checks = interval(CHECK_EVERY);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    checks
}

/// Waits until the directory is lost. This function is cancel safe.
pub(super) async fn lost(dir: &mut StateDir, checks: &mut Interval) {
    loop {
        checks.tick().await;
        if dir.is_lost() {
            return;
        }
    }
}

impl Operation {
    /// Ends all workers, creates the state directory again, and opens the stores in it. While the
    /// directory cannot be used, this is repeated until the pool ends.
    pub(super) async fn start_again(&mut self, shutdown: &Shutdown) {
        let dir = self.dir.path().display().to_string();
        let lost = format!("the state directory {dir} was removed or renamed while the pool runs");
        let remedy = "all jobs stop, and start again with a new directory";
        self.complain(Problem::Unavailable(lost), remedy);
        self.history.note("the state directory was removed or renamed");
        self.unsettled_since.get_or_insert_with(Instant::now);
        // The new directory must not show the state before.
        self.report_workers();
        // Other commands find the pool in the new directory while the jobs stop.
        let known = self.newest().await;
        if let Err(error) = self.claim_again(known.as_ref()).await {
            self.complain(Problem::Unavailable(format!("{error:#}")), "retrying");
        }
        self.end_all(shutdown).await;
        while !shutdown.is_ending() {
            let Err(error) = self.open_again(known.as_ref()).await else { return };
            self.complain(Problem::Unavailable(format!("{error:#}")), "retrying");
            self.report_workers();
            tokio::select! {
                () = sleep(RETRY) => {}
                () = shutdown.ends() => {}
            }
        }
    }

    /// Ends all workers and publishes how many are left.
    async fn end_all(&mut self, shutdown: &Shutdown) {
        self.processes.ask_to_end();
        let (mut looks, mut cause) = (interval(LOOK), Cause::Late);
        loop {
            tokio::select! {
                biased;
                () = self.processes.ended() => break,
                () = shutdown.kills(), if cause == Cause::Late => {
                    cause = Cause::Asked;
                    self.processes.kill_all();
                }
                _ = looks.tick() => self.report_workers(),
            }
        }
        report_killed(&self.processes, &self.outlets, self.killed_reported, cause);
        self.report_workers();
    }

    fn report_workers(&mut self) {
        let workers = self.workers.borrow().clone();
        self.report(&workers);
    }

    /// Returns the newest ledger of this run. A turn may have failed after it was saved.
    async fn newest(&self) -> Option<Ledger> {
        let decided = self.decision.as_ref().map(|(decision, _)| &decision.ledger);
        let Some(decided) = decided else { return self.ledgers.last().await };
        let saved = self.ledgers.last().await.filter(|saved| continues(saved, decided));
        Some(saved.unwrap_or_else(|| decided.clone()))
    }

    /// Claims the path again, and moves the socket there. A new directory of that path must not
    /// have the ledger of another run: the tokens of that run would decrease.
    async fn claim_again(&mut self, known: Option<&Ledger>) -> anyhow::Result<()> {
        let dir = self.dir.path().to_owned();
        if let Some(sentence) = other_pool(&dir, &self.wanted.name) {
            anyhow::bail!(sentence);
        }
        // A store creates a missing directory.
        if dir.join("ledger.json").exists() {
            let stored = FileLedgerStore::open(&dir)?.load().await?;
            let is_ours = |stored: &Ledger| known.is_some_and(|known| continues(known, stored));
            if stored.is_some_and(|(stored, _)| !is_ours(&stored)) {
                let dir = dir.display();
                anyhow::bail!(
                    "{dir} has the state of another run now; move that directory away, and the pool \
                     goes on in a new one"
                );
            }
        }
        self.dir.claim_again()?;
        if let Some(socket) = &self.socket {
            socket.move_to(&dir)?;
        }
        Ok(())
    }

    async fn open_again(&mut self, known: Option<&Ledger>) -> anyhow::Result<()> {
        self.claim_again(known).await?;
        let dir = self.dir.path();
        // The user may have put another directory there.
        earlier::end(dir, Patience::AsRecorded, &watch::Sender::default()).await?;
        self.wanted.fixed().record(dir)?;
        self.by_hand.record_again()?;
        let Stores { ledgers, views, sessions, processes } =
            Stores::open(dir, &self.wanted, &self.worker, &self.outlets)?;
        (self.workers, self.news) = (processes.watch(), News::of(&processes));
        (self.ledgers, self.views) = (ledgers, views);
        (self.sessions, self.processes) = (sessions, processes);
        self.killed_reported = 0;
        self.deaths_reported.clear();
        // The ledger is written again, so that no token is granted twice.
        self.known = known.cloned();
        self.decider = Decider::default();
        // The problem stays until the first turn, since no job runs before.
        self.seen = None;
        self.joined_by = Some(Instant::now() + JOINED_WITHIN);
        Ok(())
    }
}
