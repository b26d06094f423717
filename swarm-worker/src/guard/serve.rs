//! The guard itself: its loop over requests, signals and timers.

mod deadline;
mod reap;
mod running;
mod start;
mod stop;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use rustix::process::{getpid, set_child_subreaper};
use swarm_adapters_host::caller;
use swarm_adapters_host::clock::millis;
use swarm_adapters_host::job_log::JobLogs;
use swarm_adapters_host::runlog::boottime_ns;
use swarm_adapters_host::runtime::{self, refused};
use swarm_adapters_host::timer::until;
use swarm_core::{JobName, Token};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::asked::{Asked, Ends};
use super::census::Memory;
use super::launch::Surroundings;
use super::oom::Kills;
use super::outbox::Outbox;
use super::output::{Output, Seen, Target};
use super::protocol::{LINE_BYTES_MAX, OutputFormat, Reply, Request, VERSION, name};
use crate::cgroup::Cgroup;
use crate::job_groups::JobGroups;
use crate::marker;
use crate::sweep::RUN;
use deadline::alarm_clock;
use reap::CHECK_MIN;
use running::Run;
use start::Start;

/// The interval at which the run log gets a line that all jobs run.
const TICK: Duration = Duration::from_secs(1);
/// The wait for the disk at the end, for the last output of all jobs.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// Runs the guard of the worker that started this process, until that worker ends.
///
/// It does not obey SIGTERM, SIGINT and SIGHUP: a shutdown sends them to all processes of a
/// machine, and would end jobs that are finalising. The guard only remembers them, to distinguish
/// jobs that were stopped from jobs that ended.
///
/// # Errors
///
/// If the guard cannot start. A started guard ends only when no process of any job is left.
pub(crate) fn serve() -> io::Result<()> {
    caller::check_proc()?;
    caller::unblock_signals()?;
    caller::cope_with_limits()?;
    set_child_subreaper(Some(getpid()))?;
    // The kernel kills the jobs when the thread that started them ends. So a thread that lives as
    // long as the guard starts them.
    let guard = std::thread::Builder::new()
        .name("guard".to_owned())
        .spawn(|| runtime::single()?.block_on(run()));
    let guard = guard.map_err(refused)?;
    guard.join().map_err(|_| io::Error::other("the guard failed"))?
}

async fn run() -> io::Result<()> {
    let stdin = pipe::Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)?;
    let (sender, mut requests) = mpsc::channel(64);
    tokio::spawn(read(stdin, sender));
    let (timer, mut alarms) = alarm_clock()?;
    let mut children = signal(SignalKind::child())?;
    let mut ends = Ends::open()?;
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (found, mut seen) = mpsc::unbounded_channel();
    let mut guard = Serving {
        worker: String::new(),
        session: String::new(),
        operator: std::env::var(RUN).unwrap_or_default(),
        target: Target::Stderr(OutputFormat::default()),
        runs: BTreeMap::new(),
        deadline: u64::MAX,
        lock: None,
        asked: Asked::default(),
        outbox: Outbox::open()?,
        output: Output::open(found)?,
        memory: Memory::default(),
        kills: Kills::new(Cgroup::own()),
        groups: JobGroups::find().ok(),
        check_at: None,
        pause: CHECK_MIN,
    };
    if let Some(groups) = &guard.groups {
        groups.end_stale();
    }
    loop {
        tokio::select! {
            biased;
            Some(()) = alarms.recv() => guard.deadline_passed(),
            // Handle signals before requests, because the same signal also makes the worker send a
            // stop request.
            kind = ends.next() => guard.asked.note(kind),
            request = requests.recv() => match request {
                Some(Request::Deadline { boottime_ns }) => {
                    guard.deadline = boottime_ns;
                    guard.deadline_passed();
                    deadline::set(&timer, boottime_ns)?;
                }
                Some(request) => guard.handle(request)?,
                None => break,
            },
            _ = children.recv() => {
                guard.probes_ended();
                guard.children_ended();
                guard.commands_ended();
            }
            Some(seen) = seen.recv() => guard.seen(&seen),
            () = until(guard.check_at) => guard.check(),
            _ = ticks.tick() => guard.tick(),
        }
    }
    guard.end_all();
    if let Target::File { logs, worker: _ } = &guard.target {
        logs.flush(FLUSH_MAX);
    }
    guard.outbox.close();
    Ok(())
}

/// Forwards the worker's requests until its standard input closes, or it sends an invalid line.
async fn read(stdin: pipe::Receiver, requests: mpsc::Sender<Request>) {
    let mut stdin = BufReader::new(stdin);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = (&mut stdin).take(LINE_BYTES_MAX as u64);
        if !matches!(limited.read_until(b'\n', &mut line).await, Ok(1..)) {
            return;
        }
        let Ok(request) = serde_json::from_slice(&line) else { return };
        if matches!(request, Request::Hello { version, .. } if version != VERSION) {
            return;
        }
        if requests.send(request).await.is_err() {
            return;
        }
    }
}

struct Serving {
    worker: String,
    session: String,
    /// The mark of the run of the operator; empty without one.
    operator: String,
    target: Target,
    runs: BTreeMap<JobName, Run>,
    deadline: u64,
    /// The lock, which this process holds until it ends.
    lock: Option<File>,
    asked: Asked,
    outbox: Outbox,
    output: Output,
    memory: Memory,
    kills: Kills,
    /// The control groups of the jobs, where such groups are delegated.
    groups: Option<JobGroups>,
    check_at: Option<Instant>,
    pause: Duration,
}

impl Serving {
    /// Handles a request. An error ends the guard.
    fn handle(&mut self, request: Request) -> io::Result<()> {
        match request {
            Request::Hello { version: _, worker, session, run_log, format, lock, job_logs } => {
                self.lock = lock.map(|path| marker::join_lock(&path)).transpose()?;
                self.target = match job_logs {
                    Some(dir) => {
                        let logs = JobLogs::open(dir, &worker)?;
                        Target::File { logs, worker: worker.clone() }
                    }
                    None => Target::Stderr(format),
                };
                if let Some(path) = run_log {
                    self.outbox.keep_log(&path, &worker, &session);
                }
                (self.worker, self.session) = (worker, session);
            }
            Request::Start { job, token, argv, env, inherit, grace_ms, dir, line, limits } => {
                let (token, grace) = (Token(token), Duration::from_millis(grace_ms));
                let surroundings = Surroundings { dir, env, inherit, limits };
                let start = Start { job: job.clone(), token, argv, surroundings, grace, line };
                match self.start(start) {
                    Ok((pid, warning)) => {
                        self.outbox.reply(Reply::Started { job, pid: pid.as_raw_pid(), warning });
                    }
                    Err(reason) => self.outbox.reply(Reply::Refused { job, reason }),
                }
            }
            Request::Probe { job, argv } => self.probe(&job, &argv),
            Request::Quiet { job } => {
                if let Some(run) = name(&job).and_then(|job| self.runs.get(&job)) {
                    self.outbox.reply(Reply::Quiet { job, for_ms: millis(run.tail.quiet()) });
                }
            }
            Request::Stop { job, grace_ms, way } => {
                if let Some(run) = name(&job).and_then(|job| self.runs.get_mut(&job)) {
                    // A stalled job may say goodbye, which hides the cause.
                    if !run.has_exited {
                        run.output_before.get_or_insert_with(|| run.tail.lines());
                    }
                    let stopped = run.stop(Duration::from_millis(grace_ms), way, &self.asked);
                    if let Err(reason) = stopped {
                        self.outbox.reply(Reply::StopFailed { job, reason });
                    }
                    self.check_soon();
                }
            }
            Request::Deadline { boottime_ns } => self.deadline = boottime_ns,
            Request::Ping { number } => self.outbox.reply(Reply::Pong { number }),
        }
        Ok(())
    }

    /// Reports that the output of a job contains the awaited text.
    fn seen(&self, seen: &Seen) {
        if self.runs.get(&seen.job).is_some_and(|run| run.leader == seen.leader) {
            self.outbox.reply(Reply::Seen { job: seen.job.to_string() });
        }
    }

    fn deadline_passed(&mut self) {
        // The deadline may have been extended since the timer expired.
        if self.deadline <= boottime_ns() {
            self.end_all();
        }
    }

    fn tick(&mut self) {
        if !self.runs.is_empty() {
            self.kills.note(Instant::now());
        }
        if self.outbox.is_empty() {
            self.outbox.record_alive();
        }
    }
}
