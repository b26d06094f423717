//! Starts the pool again in a new state directory after someone removed or renamed its directory.
//!
//! The leases of the sessions are lost with the directory, and without them no worker may run a job.
//! So all workers end, and new ones start with the ledger as it was. The lock of the path excludes
//! other operators meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use swarm_adapters_host::http::Socket;
use swarm_adapters_host::ledger::FileLedgerStore;
use swarm_core::Ledger;
use swarm_core::ports::LedgerStore as _;
use swarm_terminal::shutdown::Shutdown;
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};

use super::stores::{Stores, continues};
use super::turns::Problem;
use super::{LOOK, Operation};
use crate::pool::earlier;
use crate::pool::ending::Cause;
use crate::pool::lives::LivesFile;
use crate::processes::Patience;
use crate::state_dir::state::{StateDir, other_pool};

/// Time between two checks whether the directory is lost.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Delay before a directory that cannot be used is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// The claim of the state directory.
pub(super) struct Claim {
    pub(super) dir: StateDir,
    /// The socket in the directory, if it could be made.
    socket: Option<Arc<Socket>>,
    /// The times of the checks whether the directory is lost.
    checks: Interval,
}

impl Claim {
    pub(super) fn new(dir: StateDir, socket: Option<Arc<Socket>>) -> Self {
        let mut checks = interval(CHECK_EVERY);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { dir, socket, checks }
    }

    /// Waits until the directory is lost. This function is cancel safe.
    pub(super) async fn lost(&mut self) {
        loop {
            self.checks.tick().await;
            if self.dir.is_lost() {
                return;
            }
        }
    }

    /// Claims the path again for the pool `name`, and moves the socket there. A new directory of that
    /// path must not have the ledger of another run: the tokens of that run would decrease.
    async fn renew(&mut self, name: &str, known: Option<&Ledger>) -> anyhow::Result<()> {
        let dir = self.dir.path().to_owned();
        if let Some(sentence) = other_pool(&dir, name) {
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
}

impl Operation {
    /// Ends all workers, creates the state directory again, and opens the stores in it. While the
    /// directory cannot be used, this is repeated until the pool ends.
    pub(super) async fn start_again(&mut self, shutdown: &Shutdown) {
        let dir = self.claim.dir.path().display().to_string();
        let lost = format!("the state directory {dir} was removed or renamed while the pool runs");
        let remedy = "all jobs stop, and start again with a new directory";
        self.turns.complain(Problem::Unavailable(lost), remedy, &self.outlets.voice);
        self.history.note("the state directory was removed or renamed");
        self.unsettled_since.get_or_insert_with(Instant::now);
        // The new directory must not show the state before.
        self.report_workers();
        // Other commands find the pool in the new directory while the jobs stop.
        let known = self.stores.newest(self.turns.ledger()).await;
        if let Err(error) = self.claim.renew(&self.inputs.wanted.name, known.as_ref()).await {
            self.cannot_go_on(&error);
        }
        self.end_all(shutdown).await;
        while !shutdown.is_ending() {
            let Err(error) = self.open_again(known.as_ref()).await else { return };
            self.cannot_go_on(&error);
            self.report_workers();
            tokio::select! {
                () = sleep(RETRY) => {}
                () = shutdown.ends() => {}
            }
        }
    }

    fn cannot_go_on(&mut self, error: &anyhow::Error) {
        let problem = Problem::Unavailable(format!("{error:#}"));
        self.turns.complain(problem, "retrying", &self.outlets.voice);
    }

    /// Ends all workers and publishes how many are left.
    async fn end_all(&mut self, shutdown: &Shutdown) {
        self.stores.processes.ask_to_end();
        let (mut looks, mut cause) = (interval(LOOK), Cause::Late);
        loop {
            tokio::select! {
                biased;
                () = self.stores.processes.ended() => break,
                () = shutdown.kills(), if cause == Cause::Late => {
                    cause = Cause::Asked;
                    self.stores.processes.kill_all();
                }
                _ = looks.tick() => self.report_workers(),
            }
        }
        self.said.killed(&self.stores.processes, &self.outlets, cause);
        self.report_workers();
    }

    fn report_workers(&mut self) {
        let workers = self.stores.workers.borrow().clone();
        self.report(&workers);
    }

    async fn open_again(&mut self, known: Option<&Ledger>) -> anyhow::Result<()> {
        let wanted = &self.inputs.wanted;
        self.claim.renew(&wanted.name, known).await?;
        let dir = self.claim.dir.path();
        // The user may have put another directory there.
        earlier::end(dir, Patience::AsRecorded, &watch::Sender::default()).await?;
        wanted.fixed().following(self.outlets.origin.file.clone()).record(dir)?;
        self.inputs.by_hand.record_again()?;
        self.stores = Stores::open(dir, wanted, &self.worker, &self.outlets)?;
        self.lives = LivesFile::at(dir);
        self.said.forget_processes();
        self.turns.begin_again(known.cloned());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_directory_with_the_ledger_of_another_run_is_not_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        let mut claim = Claim::new(StateDir::claim(dir.path()).unwrap(), None);
        let stored = Ledger::new(7);
        claim.renew("streams", None).await.unwrap();
        let ledgers = FileLedgerStore::open(dir.path()).unwrap();
        ledgers.save(&stored, None).await.unwrap();
        for known in [None, Some(Ledger::new(8))] {
            let error = claim.renew("streams", known.as_ref()).await.unwrap_err();
            assert!(error.to_string().contains("has the state of another run now"), "{error}");
        }
        claim.renew("streams", Some(&stored)).await.unwrap();
    }
}
