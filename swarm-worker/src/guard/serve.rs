//! The guard itself.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::fstat;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions, WaitStatus, getpid,
    kill_process_group, set_child_subreaper, wait, waitid, waitpid,
};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use swarm_adapters_host::caller;
use swarm_adapters_host::clock::millis;
use swarm_adapters_host::job_log::JobLogs;
use swarm_adapters_host::runlog::{RunEvent, boottime_ns};
use swarm_adapters_host::runtime::{self, refused};
use swarm_adapters_host::timer::until;
use swarm_core::{JobName, Token};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::asked::{Asked, Ends, STOPPED_WITHIN};
use super::census::{self, Census, JOB, Leader, Memory};
use super::launch::{Surroundings, raw};
use super::oom::Kills;
use super::outbox::Outbox;
use super::output::{Awaited, Followed, Output, Seen, Tail, Target};
use super::protocol::{End, LINE_BYTES_MAX, OutputFormat, Reply, Request, VERSION, name};
use crate::cgroup::Cgroup;
use crate::marker;
use crate::sweep::SESSION;

/// The variables that every job has in its environment, in addition to [`SESSION`] and [`JOB`].
const TOKEN: &str = "SWARM_TOKEN";
const WORKER: &str = "SWARM_WORKER";

/// The interval at which the run log gets a line that all jobs run.
const TICK: Duration = Duration::from_secs(1);
/// The minimum and the maximum pause between two checks of an ending job.
const CHECK_MIN: Duration = Duration::from_millis(5);
const CHECK_MAX: Duration = Duration::from_millis(200);
/// The wait for the last output of a job that ended by itself.
const TAIL_MAX: Duration = Duration::from_millis(200);
/// The wait for the disk at the end, for the last output of all jobs.
const FLUSH_MAX: Duration = Duration::from_secs(2);
/// The time within which a signal to all processes reaches every one of them. A job may end before
/// the guard receives the signal.
const SIGNAL_MAX: Duration = Duration::from_millis(50);
/// The time that ended orphans may wait to be reaped while no job ends.
const REAP: Duration = Duration::from_secs(1);

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
        target: Target::Stderr(OutputFormat::default()),
        runs: BTreeMap::new(),
        deadline: u64::MAX,
        lock: None,
        asked: Asked::default(),
        outbox: Outbox::open()?,
        output: Output::open(found)?,
        memory: Memory::default(),
        kills: Kills::new(Cgroup::own()),
        check_at: None,
        pause: CHECK_MIN,
    };
    loop {
        tokio::select! {
            biased;
            Some(()) = alarms.recv() => guard.deadline_passed(),
            // Signals come before requests: a request to stop follows from the same signal.
            kind = ends.next() => guard.asked.note(kind),
            request = requests.recv() => match request {
                Some(Request::Deadline { boottime_ns }) => {
                    guard.deadline = boottime_ns;
                    guard.deadline_passed();
                    set(&timer, boottime_ns)?;
                }
                Some(request) => guard.handle(request)?,
                None => break,
            },
            _ = children.recv() => {
                guard.probes_ended();
                guard.children_ended();
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

/// A timer on the clock that includes suspensions, and a channel that receives its expirations.
fn alarm_clock() -> io::Result<(Arc<OwnedFd>, mpsc::UnboundedReceiver<()>)> {
    let timer = Arc::new(timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?);
    let (sender, alarms) = mpsc::unbounded_channel();
    let waited_for = Arc::clone(&timer);
    // A plain thread waits: the timers of the runtime do not include the time of a suspend.
    let wait = move || {
        let mut expirations = [0; 8];
        while rustix::io::read(&waited_for, &mut expirations).is_ok() && sender.send(()).is_ok() {}
    };
    std::thread::Builder::new().spawn(wait).map_err(refused)?;
    Ok((timer, alarms))
}

/// Sets the timer to the deadline, or disarms it if the deadline has passed.
fn set(timer: &OwnedFd, boottime_ns: u64) -> io::Result<()> {
    let nanos = if boottime_ns_is_ahead(boottime_ns) { boottime_ns } else { 0 };
    let part = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let value =
        Timespec { tv_sec: part(nanos / 1_000_000_000), tv_nsec: part(nanos % 1_000_000_000) };
    let never = Timespec { tv_sec: 0, tv_nsec: 0 };
    let time = Itimerspec { it_interval: never, it_value: value };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &time)?;
    Ok(())
}

fn boottime_ns_is_ahead(at: u64) -> bool {
    at != u64::MAX && boottime_ns() < at
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
    check_at: Option<Instant>,
    pause: Duration,
}

/// A job to start.
struct Start {
    job: String,
    token: Token,
    argv: Vec<String>,
    surroundings: Surroundings,
    grace: Duration,
    line: Option<String>,
}

/// A running job. Its first process is reaped last: until then the kernel reuses neither the
/// process id nor the id of the group, which are the same.
struct Run {
    leader: Pid,
    started_at: Instant,
    /// The pipe of the job's output, which identifies its processes.
    pipe: Option<u64>,
    token: Token,
    grace: Duration,
    surroundings: Surroundings,
    /// The program that runs next to the job, if there is one.
    probe: Option<Pid>,
    has_exited: bool,
    /// The time at which it ended by itself.
    ended_at: Option<Instant>,
    /// The end of a sentence, if the kernel killed it because memory ran out.
    out_of_memory: Option<String>,
    /// The time at which the remaining processes are killed, once the job has to end.
    kill_at: Option<Instant>,
    /// The time at which the job's processes get SIGTERM, once the job has to end.
    term_at: Option<Instant>,
    /// Whether the job's processes have got SIGTERM.
    is_terminated: bool,
    /// The processes outside the group that have got SIGTERM.
    terminated: BTreeSet<i32>,
    /// Whether processes were killed because they did not end in time.
    is_killed: bool,
    /// The number of checks in a row that found no process. A single check can miss a process that
    /// is forked during the check.
    empty_checks: u32,
    tail: Tail,
    /// The last lines of output before the worker asked it to end.
    output_before: Option<Vec<String>>,
    /// The time until which the guard waits for the last output of a job that ended by itself.
    tail_until: Option<Instant>,
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
            Request::Start { job, token, argv, env, inherit, grace_ms, dir, line } => {
                let (token, grace) = (Token(token), Duration::from_millis(grace_ms));
                let surroundings = Surroundings { dir, env, inherit };
                let start = Start { job: job.clone(), token, argv, surroundings, grace, line };
                match self.start(start) {
                    Ok(pid) => self.outbox.reply(Reply::Started { job, pid: raw(pid) }),
                    Err(reason) => self.outbox.reply(Reply::Refused { job, reason }),
                }
            }
            Request::Probe { job, argv } => self.probe(&job, &argv),
            Request::Quiet { job } => {
                if let Some(run) = name(&job).and_then(|job| self.runs.get(&job)) {
                    self.outbox.reply(Reply::Quiet { job, for_ms: millis(run.tail.quiet()) });
                }
            }
            Request::Stop { job, grace_ms } => {
                if let Some(run) = name(&job).and_then(|job| self.runs.get_mut(&job)) {
                    // A stalled job may say goodbye, which hides the cause.
                    if !run.has_exited {
                        run.output_before.get_or_insert_with(|| run.tail.lines());
                    }
                    run.stop(Duration::from_millis(grace_ms), &self.asked);
                    self.check_soon();
                }
            }
            Request::Deadline { boottime_ns } => self.deadline = boottime_ns,
            Request::Ping { number } => self.outbox.reply(Reply::Pong { number }),
        }
        Ok(())
    }

    fn start(&mut self, start: Start) -> Result<Pid, String> {
        let Start { job, token, argv, mut surroundings, grace, line } = start;
        let name = JobName::new(&job).map_err(|error| error.to_string())?;
        if self.runs.contains_key(&name) {
            return Err("it runs already".to_owned());
        }
        if self.deadline != u64::MAX && !boottime_ns_is_ahead(self.deadline) {
            return Err("the time until which jobs may act has passed".to_owned());
        }
        let own = [
            (JOB, job),
            (TOKEN, token.0.to_string()),
            (WORKER, self.worker.clone()),
            (SESSION, self.session.clone()),
        ];
        surroundings.env.extend(own.map(|(variable, value)| (variable.to_owned(), value)));
        let failed = |error: io::Error| format!("its output cannot be read: {error}");
        let (reader, writer) = io::pipe().map_err(failed)?;
        let pipe = fstat(&reader).ok().map(|pipe| pipe.st_ino);
        let output = (writer.try_clone().map_err(failed)?.into(), writer.into());
        let leader = surroundings.start(&argv, None, output)?;
        self.outbox.record(&name, token, RunEvent::Start);
        self.target.begin(&name, token, leader);
        let tail = Tail::default();
        self.output.follow(Followed {
            job: name.clone(),
            pipe: reader,
            target: self.target.clone(),
            awaited: line.map(|text| Awaited { text, leader }),
            tail: tail.clone(),
        });
        let run = Run {
            started_at: Instant::now(),
            leader,
            pipe,
            token,
            grace,
            surroundings,
            probe: None,
            has_exited: false,
            ended_at: None,
            out_of_memory: None,
            kill_at: None,
            term_at: None,
            is_terminated: false,
            terminated: BTreeSet::new(),
            is_killed: false,
            empty_checks: 0,
            tail,
            tail_until: None,
            output_before: None,
        };
        self.runs.insert(name, run);
        Ok(leader)
    }

    /// Runs a program as one of the processes of a job. A program that cannot be started counts as
    /// failed.
    fn probe(&mut self, job: &str, argv: &[String]) {
        let runs = name(job).and_then(|job| self.runs.get_mut(&job));
        let Some(run) = runs.filter(|run| run.kill_at.is_none()) else { return };
        let nowhere = (Stdio::null(), Stdio::null());
        match run.surroundings.start(argv, Some(run.leader), nowhere) {
            Ok(pid) => run.probe = Some(pid),
            Err(_) => {
                self.outbox.reply(Reply::Probed { job: job.to_owned(), end: End::Unknown });
            }
        }
    }

    /// Reports the programs next to jobs that have ended.
    fn probes_ended(&mut self) {
        for (job, run) in &mut self.runs {
            let Some(pid) = run.probe else { continue };
            let end = match waitpid(Some(pid), WaitOptions::NOHANG) {
                Ok(None) => continue,
                Ok(Some((_, status))) => end_of(status),
                // It cannot be waited for, so its end stays unknown.
                Err(_) => End::Unknown,
            };
            run.probe = None;
            self.outbox.reply(Reply::Probed { job: job.to_string(), end });
        }
    }

    /// Reports that the output of a job contains the awaited text.
    fn seen(&self, seen: &Seen) {
        if self.runs.get(&seen.job).is_some_and(|run| run.leader == seen.leader) {
            self.outbox.reply(Reply::Seen { job: seen.job.to_string() });
        }
    }

    /// Marks the jobs whose first processes have ended. These processes are not reaped yet.
    fn children_ended(&mut self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let mut is_any_job = false;
        for run in self.runs.values_mut().filter(|run| !run.has_exited) {
            let ended = waitid(WaitId::Pid(run.leader), options);
            run.has_exited = !matches!(ended, Ok(None));
            if run.has_exited {
                is_any_job = true;
                if run.kill_at.is_none() {
                    let now = Instant::now();
                    run.ended_at = Some(now);
                    run.tail_until = Some(now + TAIL_MAX);
                    if let Ok(Some(ended)) = &ended
                        && may_lack_memory(ended)
                    {
                        run.out_of_memory = self.kills.take(now);
                    }
                    run.stop(run.grace, &self.asked);
                }
            }
        }
        if is_any_job { self.check_soon() } else { self.check_within(REAP) }
    }

    fn check_soon(&mut self) {
        self.pause = CHECK_MIN;
        self.check_within(Duration::ZERO);
    }

    fn check_within(&mut self, span: Duration) {
        let at = Instant::now() + span;
        self.check_at = Some(self.check_at.map_or(at, |before| before.min(at)));
    }

    /// Finds the remaining processes of the ending jobs, and signals them.
    fn check(&mut self) {
        self.check_at = None;
        let leaders = self.runs.iter().map(|(job, run)| (job.as_str(), run.as_leader())).collect();
        // If `/proc` cannot be read, every job counts as running.
        let probes = self.runs.values().filter_map(|run| run.probe.map(raw)).collect();
        let census = Census::take(&leaders, &probes, &self.session, &mut self.memory);
        if let Ok(census) = &census {
            // The jobs of these processes have been reported as joined.
            census.strays().for_each(|process| census::signal(process, Signal::KILL));
        }
        let now = Instant::now();
        let mut gone = Vec::new();
        for (job, run) in self.runs.iter_mut().filter(|(_, run)| run.kill_at.is_some()) {
            let was_killed = run.is_killed;
            if census.as_ref().is_ok_and(|census| run.is_gone(census, now)) && run.is_known(now) {
                gone.push(job.clone());
            }
            if run.is_killed && !was_killed {
                self.outbox.reply(Reply::Killing { job: job.to_string() });
            }
        }
        for job in gone {
            let Some(run) = self.runs.remove(&job) else { continue };
            let end = waitpid(Some(run.leader), WaitOptions::empty());
            self.joined(&job, &run, end.ok().flatten().map(|(_, status)| status));
        }
        if self.runs.values().any(|run| run.kill_at.is_some()) {
            let is_near = self.runs.values().any(|run| run.empty_checks == 1);
            self.check_within(if is_near { Duration::ZERO } else { self.pause });
            self.pause = CHECK_MAX.min(2 * self.pause);
        }
    }

    fn joined(&self, job: &JobName, run: &Run, status: Option<WaitStatus>) {
        let end = status.map_or(End::Unknown, end_of);
        self.outbox.record(job, run.token, RunEvent::Stop);
        let was_stopped = self.asked.last().is_some_and(|at| run.was_stopped(at));
        let output = run.output_before.clone().unwrap_or_else(|| run.tail.lines());
        let job = job.to_string();
        let out_of_memory = run.out_of_memory.clone();
        self.outbox.reply(Reply::Joined { job, end, output, was_stopped, out_of_memory });
    }

    fn deadline_passed(&mut self) {
        // The deadline may have been extended since the timer expired.
        if self.deadline <= boottime_ns() {
            self.end_all();
        }
    }

    /// Kills and reaps every descendant, and returns when none is left.
    fn end_all(&mut self) {
        let mut ends: BTreeMap<i32, WaitStatus> = BTreeMap::new();
        loop {
            let is_unreaped = |run: &&Run| !ends.contains_key(&raw(run.leader));
            for run in self.runs.values().filter(is_unreaped) {
                let _ = kill_process_group(run.leader, Signal::KILL);
            }
            let leaders = self.runs.iter().filter(|(_, run)| is_unreaped(run));
            let leaders = leaders.map(|(job, run)| (job.as_str(), run.as_leader())).collect();
            let none = HashSet::new();
            if let Ok(census) = Census::take(&leaders, &none, &self.session, &mut self.memory) {
                census.all().for_each(|process| census::signal(process, Signal::KILL));
            }
            // Waits for any child, in any group. Without a child, no descendant is left:
            // every orphan becomes a child of this process.
            let is_left = loop {
                match wait(WaitOptions::NOHANG) {
                    Ok(Some((pid, status))) => {
                        ends.insert(raw(pid), status);
                    }
                    Ok(None) => break true,
                    Err(_) => break false,
                }
            };
            if !is_left {
                break;
            }
            std::thread::sleep(CHECK_MIN);
        }
        for (job, run) in std::mem::take(&mut self.runs) {
            self.joined(&job, &run, ends.remove(&raw(run.leader)));
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

impl Run {
    fn as_leader(&self) -> Leader {
        Leader { pid: raw(self.leader), output: self.pipe }
    }

    /// Asks the job to end: every process of its group gets SIGTERM once, and the other processes
    /// get it at the next check.
    ///
    /// A signal to all processes may have just reached the job. Then SIGTERM follows only after
    /// half of the grace, since a second signal makes programs such as ffmpeg break off.
    fn stop(&mut self, grace: Duration, asked: &Asked) {
        let now = Instant::now();
        let kill_at = now + grace;
        self.kill_at = Some(self.kill_at.map_or(kill_at, |before| before.min(kill_at)));
        let is_asked = asked.may_have_reached(self.leader, self.started_at, now);
        let term_at = if is_asked { now + grace / 2 } else { now };
        self.term_at = Some(self.term_at.map_or(term_at, |before| before.min(term_at)));
        self.terminate(now);
    }

    /// Sends SIGTERM to the group once its time has come.
    fn terminate(&mut self, now: Instant) {
        if self.is_terminated || self.term_at.is_none_or(|at| now < at) {
            return;
        }
        self.is_terminated = true;
        let _ = kill_process_group(self.leader, Signal::TERM);
        // A stopped process cannot end before it continues.
        let _ = kill_process_group(self.leader, Signal::CONT);
    }

    /// Returns whether the end of the job is completely known. The waits for its last output and
    /// for a signal that stopped it are over.
    fn is_known(&self, now: Instant) -> bool {
        let has_output = self.tail.has_ended() || self.tail_until.is_none_or(|until| until <= now);
        has_output && self.ended_at.is_none_or(|at| at + SIGNAL_MAX <= now)
    }

    /// Returns whether a signal at `asked_to_end` may have ended the job.
    fn was_stopped(&self, asked_to_end: Instant) -> bool {
        self.ended_at.is_some_and(|ended| {
            asked_to_end <= ended + SIGNAL_MAX && ended <= asked_to_end + STOPPED_WITHIN
        })
    }

    /// Returns whether no process is left. Terminates the remaining processes, and later kills
    /// them.
    fn is_gone(&mut self, census: &Census, now: Instant) -> bool {
        self.terminate(now);
        let is_due = self.kill_at.is_some_and(|at| at <= now);
        let mut is_empty = self.has_exited;
        for process in census.left(raw(self.leader)) {
            is_empty = false;
            let is_outside = process.group != raw(self.leader);
            if is_due {
                census::signal(process, Signal::KILL);
            } else if is_outside && self.is_terminated && self.terminated.insert(raw(process.pid)) {
                census::signal(process, Signal::TERM);
                census::signal(process, Signal::CONT);
            }
        }
        if is_due && !is_empty {
            self.is_killed = true;
            let _ = kill_process_group(self.leader, Signal::KILL);
        }
        self.empty_checks = if is_empty { self.empty_checks + 1 } else { 0 };
        2 <= self.empty_checks
    }
}

/// Returns whether a lack of memory may have ended a process that was not asked to end: the kernel
/// killed the process or one of its children.
fn may_lack_memory(ended: &WaitIdStatus) -> bool {
    match (ended.exit_status(), ended.terminating_signal()) {
        (Some(code), _) => code != 0,
        (None, signal) => signal == Some(Signal::KILL.as_raw()),
    }
}

fn end_of(status: WaitStatus) -> End {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => End::Code(code),
        (None, Some(signal)) => End::Signal(signal),
        (None, None) => End::Unknown,
    }
}
