//! The worker's side of a guard.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{getpid, set_child_subreaper};
use swarm_core::{JobName, Token};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::keeper::{Ask, Keeper};
use super::protocol::End;

/// Which program is a guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments; those of the step between guard and job are the same and `exec`.
    pub arguments: Vec<OsString>,
}

/// For whom jobs run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The worker's name.
    pub worker: String,
    /// The worker's session. It marks every process and must not have been used before.
    pub session: String,
    /// Where to write the run log.
    pub run_log: Option<PathBuf>,
}

/// A job to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Its name.
    pub job: JobName,
    /// Its fencing number.
    pub token: Token,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// What to add to the environment.
    pub env: BTreeMap<String, String>,
    /// The time between SIGTERM and SIGKILL.
    pub grace: Duration,
}

/// A worker's guard; see [the module](super). It is started with the first job. When the last
/// handle is dropped, it ends every job and itself.
#[derive(Clone, Debug)]
pub struct Guard {
    asks: mpsc::UnboundedSender<Ask>,
}

impl Guard {
    /// A guard that is started by `command` when it is needed, for the jobs of one session.
    ///
    /// From now on this process adopts orphans: what a killed guard leaves behind becomes its
    /// child. It must be called within a runtime.
    ///
    /// # Errors
    ///
    /// If the system does not let it adopt orphans.
    pub fn new(command: GuardCommand, identity: Identity) -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        let (asks, inbox) = mpsc::unbounded_channel();
        tokio::spawn(Keeper::new(command, identity).run(inbox));
        Ok(Self { asks })
    }

    /// Runs a job until it ends by itself or `stop` is cancelled, and returns when no process of
    /// it is left. A job of the same name must not run. The run must not be abandoned.
    ///
    /// # Errors
    ///
    /// A sentence for a person if the job could not be started, or the guard was lost; nothing of
    /// the job is left then either.
    pub async fn run(&self, start: Start, stop: CancellationToken) -> Result<End, String> {
        let lost = |_| "the guard of the worker has ended".to_owned();
        let (done, mut ended) = oneshot::channel();
        let (job, grace) = (start.job.clone(), start.grace);
        let _ = self.asks.send(Ask::Start(start, done));
        tokio::select! {
            ended = &mut ended => return ended.unwrap_or_else(|error| Err(lost(error))),
            () = stop.cancelled() => {}
        }
        let _ = self.asks.send(Ask::Stop(job, grace));
        ended.await.unwrap_or_else(|error| Err(lost(error)))
    }

    /// Moves the time until which jobs may act, in nanoseconds of
    /// [`boottime_ns`](crate::runlog::boottime_ns); it is unlimited at first.
    pub fn permit_until(&self, boottime_ns: u64) {
        let _ = self.asks.send(Ask::Deadline(boottime_ns));
    }

    /// Ends every job at once, and the guard, and returns when nothing of them is left. Runs that
    /// were under way return.
    pub async fn end(&self) {
        let (done, ended) = oneshot::channel();
        let _ = self.asks.send(Ask::End(done));
        let _ = ended.await;
    }
}
