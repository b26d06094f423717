//! The worker's side of a guard.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{getpid, set_child_subreaper};
use swarm_adapters_host::channel::Events;
use swarm_core::{JobName, Token};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::keeper::{Ask, Keeper};
use super::protocol::{End, OutputFormat};

/// The program of a guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GuardCommand {
    /// The program.
    pub(crate) program: PathBuf,
    /// Its arguments. The process between guard and job has the same ones, followed by `exec`.
    pub(crate) arguments: Vec<OsString>,
}

/// The worker and session that jobs run for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The worker's name.
    pub(crate) worker: String,
    /// The worker's session. It marks every process, and must never have been used before.
    pub(crate) session: String,
    /// Where to write the run log.
    pub(crate) run_log: Option<PathBuf>,
    /// How the output of jobs is written.
    pub(crate) format: OutputFormat,
    /// A file that this process has a shared lock on, and that the guard locks, too: who can lock it alone
    /// knows that neither is left.
    pub(crate) lock: Option<PathBuf>,
}

/// A job to start.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    /// Its name.
    pub(crate) job: JobName,
    /// Its fencing token.
    pub(crate) token: Token,
    /// The program and its arguments.
    pub(crate) argv: Vec<String>,
    /// Variables of its environment, beside those that every job gets.
    pub(crate) env: BTreeMap<String, String>,
    /// Further variables that it gets from the worker's environment if that has them, by name.
    pub(crate) inherit: Vec<String>,
    /// The directory it runs in; `None` stands for that of the worker.
    pub(crate) dir: Option<PathBuf>,
    /// The time between SIGTERM and SIGKILL.
    pub(crate) grace: Duration,
    /// A text to look for in its output.
    pub(crate) line: Option<AwaitedLine>,
}

/// A run of a job that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// How its first process ended.
    pub(crate) end: End,
    /// The last lines of its output, at most five, each of 256 bytes at most.
    pub(crate) output: Vec<String>,
    /// Whether it ended by itself within [`STOPPED_WITHIN`](super::STOPPED_WITHIN) of a signal that asked
    /// the guard to end as well, as a shutdown of the machine sends it.
    pub(crate) was_stopped: bool,
    /// The end of a sentence with the limit, if the kernel ended it because memory ran out.
    pub(crate) out_of_memory: Option<String>,
}

/// A text that the output of a job is searched for.
#[derive(Clone, Debug)]
pub(crate) struct AwaitedLine {
    /// The text; it cannot span lines.
    pub(crate) text: String,
    /// Notified once, by the first line that has it.
    pub(crate) seen: Arc<Notify>,
}

/// A worker's guard; see [the module](super). It is started with the first job. When the last
/// handle is dropped, it ends every job and itself.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    asks: mpsc::UnboundedSender<Ask>,
}

impl Guard {
    /// A guard that is started by `command` when it is needed, for the jobs of one session. `told`
    /// learns which processes were started, and which killed.
    ///
    /// From now on this process adopts orphans: the processes that a killed guard leaves behind become
    /// its children. It must be called within a runtime.
    ///
    /// # Errors
    ///
    /// If this process cannot become a subreaper.
    pub(crate) fn new(command: GuardCommand, identity: Identity, told: Events) -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        let (asks, inbox) = mpsc::unbounded_channel();
        tokio::spawn(Keeper::new(command, identity, told).run(inbox));
        Ok(Self { asks })
    }

    /// Runs a job until it ends by itself or `stop` is cancelled, and returns when none of its
    /// processes is left. No other job of the same name may run. The future must not be dropped before
    /// it completes.
    ///
    /// # Errors
    ///
    /// A sentence for a person if the job could not be started, or the guard was lost. In these cases,
    /// too, none of the job's processes is left.
    pub(crate) async fn run(&self, start: Start, stop: CancellationToken) -> Result<Ended, String> {
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

    /// Runs a program beside a job that runs, with its directory and environment and as one of its
    /// processes, and returns how it ended. There is one at a time for a job: another one takes the
    /// place of the former.
    ///
    /// # Errors
    ///
    /// A sentence for a person if the job does not run, or ended before the program did.
    pub(crate) async fn probe(&self, job: &JobName, argv: Vec<String>) -> Result<End, String> {
        let (done, ended) = oneshot::channel();
        let _ = self.asks.send(Ask::Probe(job.clone(), argv, done));
        ended.await.unwrap_or_else(|_| Err("the job has ended".to_owned()))
    }

    /// Sets the time until which jobs may act, in nanoseconds of
    /// [`boottime_ns`](swarm_adapters_host::runlog::boottime_ns). There is no limit before the first call.
    pub(crate) fn permit_until(&self, boottime_ns: u64) {
        let _ = self.asks.send(Ask::Deadline(boottime_ns));
    }

    /// Kills every job at once, and the guard, and returns when none of their processes is left.
    /// Pending runs return.
    pub(crate) async fn end(&self) {
        let (done, ended) = oneshot::channel();
        let _ = self.asks.send(Ask::End(done));
        let _ = ended.await;
    }
}
