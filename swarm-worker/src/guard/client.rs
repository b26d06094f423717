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
use super::protocol::{End, Limits, OutputFormat, StopWay};

/// The program of a guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GuardCommand {
    /// The program.
    pub(crate) program: PathBuf,
    /// The arguments of the guard. The process between guard and job has the same arguments,
    /// followed by `exec`.
    pub(crate) arguments: Vec<OsString>,
}

/// The worker and session that jobs run for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The worker's name.
    pub(crate) worker: String,
    /// The worker's session. It marks every process, so no earlier process may have used it.
    pub(crate) session: String,
    /// The file of the run log.
    pub(crate) run_log: Option<PathBuf>,
    /// The format in which the output of jobs is written.
    pub(crate) format: OutputFormat,
    /// A file that both this process and the guard hold a shared lock on. A process that can lock
    /// it exclusively knows that both have ended.
    pub(crate) lock: Option<PathBuf>,
    /// The files that get the output of jobs, instead of standard error.
    pub(crate) job_logs: Option<PathBuf>,
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
    /// Environment variables, in addition to the variables that every job gets.
    pub(crate) env: BTreeMap<String, String>,
    /// Names of further variables, which the job gets from the worker's environment if they are set
    /// there.
    pub(crate) inherit: Vec<String>,
    /// The working directory; `None` means the worker's own directory.
    pub(crate) dir: Option<PathBuf>,
    /// The time that its other processes have to end once the first one has ended by itself.
    pub(crate) grace: Duration,
    /// A text that its output is searched for.
    pub(crate) line: Option<AwaitedLine>,
    /// The limits of its processes.
    pub(crate) limits: Limits,
}

/// The stop of a job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop {
    /// The time until what is left is killed.
    pub(crate) grace: Duration,
    /// The way in which it is asked to end.
    pub(crate) way: StopWay,
}

/// A run of a job that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// The end of its first process.
    pub(crate) end: End,
    /// The last lines of its output: at most five lines of at most 256 bytes each. Of a job that was
    /// asked to stop, the last lines before that.
    pub(crate) output: Vec<String>,
    /// Whether it ended by itself within [`STOPPED_WITHIN`](super::STOPPED_WITHIN) of a signal that
    /// asked the guard to end as well. A shutdown of the machine sends such signals.
    pub(crate) was_stopped: bool,
    /// The end of a sentence that names the limit, if the kernel killed it because memory ran out.
    pub(crate) out_of_memory: Option<String>,
    /// The number of processes that it left when it ended by itself. They were ended as well.
    pub(crate) left: usize,
}

/// A text that the output of a job is searched for.
#[derive(Clone, Debug)]
pub(crate) struct AwaitedLine {
    /// The text, which is part of a single line.
    pub(crate) text: String,
    /// Notified once, by the first line that contains the text.
    pub(crate) seen: Arc<Notify>,
}

/// A handle to a worker's guard; see [the module](super). The first job starts the guard. Dropping
/// the last handle ends every job and the guard.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    asks: mpsc::UnboundedSender<Ask>,
}

impl Guard {
    /// Prepares a guard for the jobs of one session. `command` starts it when it is needed.
    /// `events` receives the processes that were started or killed.
    ///
    /// From this call on, this process adopts orphans: processes that a killed guard leaves behind
    /// become its children. The call needs a runtime.
    ///
    /// # Errors
    ///
    /// If this process cannot become a subreaper.
    pub(crate) fn new(
        command: GuardCommand,
        identity: Identity,
        events: Events,
    ) -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        let (asks, inbox) = mpsc::unbounded_channel();
        tokio::spawn(Keeper::new(command, identity, events).run(inbox));
        Ok(Self { asks })
    }

    /// Runs a job until it ends by itself or `stop` is cancelled, and returns when none of its
    /// processes is left. `how` says how it is stopped once `stop` is cancelled. No other job with the
    /// same name may run at that time. The future must not be dropped before it completes.
    ///
    /// # Errors
    ///
    /// A sentence for a person if the job could not be started, or the guard was lost. None of the
    /// job's processes is left then, either.
    pub(crate) async fn run(
        &self,
        start: Start,
        stop: CancellationToken,
        how: impl FnOnce() -> Stop + Send,
    ) -> Result<Ended, String> {
        let lost = |_| "the guard of the worker has ended".to_owned();
        let (done, mut ended) = oneshot::channel();
        let job = start.job.clone();
        let _ = self.asks.send(Ask::Start(start, done));
        tokio::select! {
            ended = &mut ended => return ended.unwrap_or_else(|error| Err(lost(error))),
            () = stop.cancelled() => {}
        }
        let _ = self.asks.send(Ask::Stop(job, how()));
        ended.await.unwrap_or_else(|error| Err(lost(error)))
    }

    /// Runs a program next to a running job, with the job's directory and environment and as one of
    /// its processes. Returns how the program ended. A job has at most one such program: the next
    /// one replaces it.
    ///
    /// # Errors
    ///
    /// A sentence for a person if the job does not run, or ended before the program did.
    pub(crate) async fn probe(&self, job: &JobName, argv: Vec<String>) -> Result<End, String> {
        let (done, ended) = oneshot::channel();
        let _ = self.asks.send(Ask::Probe(job.clone(), argv, done));
        ended.await.unwrap_or_else(|_| Err("the job has ended".to_owned()))
    }

    /// Returns the time since the job's last output, or since its start if it has printed nothing.
    /// `None` if the job does not run.
    pub(crate) async fn quiet(&self, job: &JobName) -> Option<Duration> {
        let (done, quiet) = oneshot::channel();
        let _ = self.asks.send(Ask::Quiet(job.clone(), done));
        quiet.await.ok()
    }

    /// Sets the time until which jobs may act, in nanoseconds of
    /// [`boottime_ns`](swarm_adapters_host::runlog::boottime_ns). Before the first call the time is
    /// unlimited.
    pub(crate) fn permit_until(&self, boottime_ns: u64) {
        let _ = self.asks.send(Ask::Deadline(boottime_ns));
    }

    /// Kills every job and the guard at once, and returns when none of their processes is left.
    /// Pending runs return.
    pub(crate) async fn end(&self) {
        let (done, ended) = oneshot::channel();
        let _ = self.asks.send(Ask::End(done));
        let _ = ended.await;
    }
}
