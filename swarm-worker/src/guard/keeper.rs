//! The worker's task that owns the guard's process.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Pid;
use swarm_adapters_host::caller;
use swarm_adapters_host::channel::{Event, Events};
use swarm_adapters_host::clock::{millis, unix_s};
use swarm_adapters_host::runlog::{RunEvent, RunLog};
use swarm_adapters_host::runtime::refused;
use swarm_core::{JobName, Token};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::client::{AwaitedLine, Ended, GuardCommand, Identity, Start, Stop};
use super::lost::Lost;
use super::protocol::{End, LINE_BYTES_MAX, Reply, Request, StopWay, VERSION, name};
use crate::job_groups::JobGroups;
use crate::procs;
use crate::sweep::{self, Marker};

/// The interval of pings, and the number of pings in a row that may remain without any reply. A
/// frozen guard is therefore detected after two to three seconds.
const PING: Duration = Duration::from_secs(1);
const UNANSWERED_MAX: u32 = 2;
/// The time that a guard has to end by itself.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// The first and the longest pause between two checks of processes that this user may not end. Each
/// check reads all of `/proc`, and such a process may live for days.
const LOST_CHECK: Duration = Duration::from_millis(200);
const LOST_CHECK_MAX: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_secs(1);

type Done<T> = oneshot::Sender<Result<T, String>>;

/// A request to the keeper.
#[derive(Debug)]
pub(super) enum Ask {
    Start(Start, Done<Ended>),
    Stop(JobName, Stop),
    Probe(JobName, Vec<String>, Done<End>),
    Quiet(JobName, oneshot::Sender<Duration>),
    Deadline(u64),
    End(oneshot::Sender<()>),
}

/// The message of a worker whose guard kills a job. If no operator receives it, it is only in the
/// log.
pub const KILLING: &str = "did not end after SIGTERM: killing it";

pub(super) struct Keeper {
    command: GuardCommand,
    identity: Identity,
    deadline: Option<u64>,
    runs: BTreeMap<JobName, Run>,
    process: Option<Process>,
    /// The jobs of guards that were lost, until they have ended.
    lost: Lost<(Run, String)>,
    /// The pause before the next check of these jobs.
    lost_pause: Duration,
    events: Events,
    /// The warnings so far.
    warned: BTreeSet<String>,
}

struct Run {
    token: Token,
    /// The time from the request to stop until SIGKILL.
    grace: Duration,
    /// Whether it has been asked to stop.
    is_stopping: bool,
    /// The job's process group, once the guard has started the job.
    group: Option<Pid>,
    /// Notified when the output contains the awaited text.
    seen: Option<Arc<Notify>>,
    /// The program that runs next to the job, if there is one.
    probe: Option<Done<End>>,
    /// The receiver of the time without output, if it was asked for.
    quiet: Option<oneshot::Sender<Duration>>,
    done: Done<Ended>,
}

/// A running guard.
struct Process {
    child: Child,
    /// The encoded requests to it.
    requests: mpsc::UnboundedSender<Vec<u8>>,
    replies: mpsc::Receiver<Reply>,
    unanswered: u32,
    /// The start of the guard, in clock ticks since boot: its descendants are not older.
    started: u64,
}

impl Keeper {
    pub(super) fn new(command: GuardCommand, identity: Identity, events: Events) -> Self {
        let (runs, warned, lost) = (BTreeMap::new(), BTreeSet::new(), Lost::default());
        let (lost_pause, deadline, process) = (LOST_CHECK, None, None);
        Self { command, identity, deadline, runs, process, lost, lost_pause, events, warned }
    }

    pub(super) async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Ask>) {
        let mut pings = interval(PING);
        // If this process was stopped for a while, the guard gets its full time to answer
        // afterwards.
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut checks = interval(LOST_CHECK);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let has_process = self.process.is_some();
            let reply = async {
                match &mut self.process {
                    Some(process) => process.replies.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                reply = reply => match reply {
                    Some(reply) => self.handle(reply),
                    None => self.recover("the guard of the worker has ended").await,
                },
                ask = inbox.recv() => match ask {
                    Some(Ask::Start(start, done)) => self.start(start, done),
                    Some(Ask::Stop(job, stop)) => self.stop(&job, stop),
                    Some(Ask::Probe(job, argv, done)) => self.probe(&job, argv, done),
                    Some(Ask::Quiet(job, done)) => self.quiet(&job, done),
                    Some(Ask::Deadline(at)) => {
                        self.deadline = Some(at);
                        self.request(&Request::Deadline { boottime_ns: at });
                    }
                    Some(Ask::End(done)) => {
                        self.end().await;
                        let _ = done.send(());
                    }
                    None => return self.end().await,
                },
                _ = pings.tick(), if has_process => self.ping().await,
                _ = checks.tick(), if !self.lost.is_empty() => {
                    self.check_lost().await;
                    checks.reset_after(self.lost_pause());
                }
            }
        }
    }

    fn start(&mut self, start: Start, done: Done<Ended>) {
        if self.runs.contains_key(&start.job) || self.lost.has(&start.job) {
            let _ = done.send(Err(format!("{} runs already", start.job)));
            return;
        }
        if self.process.is_none() {
            match self.spawn() {
                Ok(process) => self.process = Some(process),
                Err(error) => {
                    let _ = done.send(Err(format!("the guard cannot be started: {error}")));
                    return;
                }
            }
            let Identity { worker, session, run_log, format, lock, job_logs } =
                self.identity.clone();
            let version = VERSION;
            let hello =
                Request::Hello { version, worker, session, run_log, format, lock, job_logs };
            self.request(&hello);
            if let Some(boottime_ns) = self.deadline {
                self.request(&Request::Deadline { boottime_ns });
            }
        }
        let Start { job, token, argv, env, inherit, dir, grace, line, limits } = start;
        let name = job.to_string();
        let (line, seen) = line.map(|AwaitedLine { text, seen }| (text, seen)).unzip();
        let (is_stopping, group, probe, quiet) = (false, None, None, None);
        let (number, grace_ms) = (token.0, millis(grace));
        let request = Request::Start {
            job: name,
            token: number,
            argv,
            env,
            inherit,
            grace_ms,
            dir,
            line,
            limits,
        };
        let line = match request.line() {
            Ok(line) => line,
            Err(reason) => {
                let _ = done.send(Err(reason));
                return;
            }
        };
        self.runs.insert(job, Run { token, grace, is_stopping, group, seen, probe, quiet, done });
        self.send(line);
    }

    fn stop(&mut self, job: &JobName, Stop { grace, mut way }: Stop) {
        let Some(run) = self.runs.get_mut(job) else { return };
        (run.grace, run.is_stopping) = (grace, true);
        let (name, grace_ms) = (job.to_string(), millis(grace));
        tracing::info!(%job, grace_ms, "stopping: {way}, and SIGKILL after the grace");
        let request = |way: StopWay| Request::Stop { job: name.clone(), grace_ms, way };
        let line = request(way.clone()).line().unwrap_or_else(|reason| {
            tracing::warn!(%job, "stop.command: {reason}; the job gets its signal instead");
            way.command.clear();
            request(way).line().unwrap_or_default()
        });
        self.send(line);
    }

    fn probe(&mut self, job: &JobName, argv: Vec<String>, done: Done<End>) {
        let request = Request::Probe { job: job.to_string(), argv };
        match (self.runs.get_mut(job), request.line()) {
            (Some(run), Ok(line)) => {
                run.probe = Some(done);
                self.send(line);
            }
            (Some(_), Err(reason)) => {
                let _ = done.send(Err(reason));
            }
            (None, _) => {
                let _ = done.send(Err(format!("{job} does not run")));
            }
        }
    }

    fn quiet(&mut self, job: &JobName, done: oneshot::Sender<Duration>) {
        if let Some(run) = self.runs.get_mut(job) {
            run.quiet = Some(done);
            self.request(&Request::Quiet { job: job.to_string() });
        }
    }

    /// Sends a request whose length has a bound.
    fn request(&self, request: &Request) {
        if let Ok(line) = request.line() {
            self.send(line);
        }
    }

    fn send(&self, line: Vec<u8>) {
        if let Some(process) = &self.process {
            let _ = process.requests.send(line);
        }
    }

    fn handle(&mut self, reply: Reply) {
        // Any reply proves that the guard responds: during many starts it answers pings late.
        if let Some(process) = &mut self.process {
            process.unanswered = 0;
        }
        match reply {
            Reply::Started { job, pid, warning } => {
                self.warn(&job, warning);
                if let Some(run) = self.named(&job) {
                    run.group = Pid::from_raw(pid);
                    tracing::info!(%job, token = run.token.0, pid, "started");
                    let at_unix_s = Some(unix_s());
                    self.events.emit(Event::Started { job, pid: Some(pid), at_unix_s });
                }
            }
            Reply::Refused { job, reason } => self.done(&job, Err(reason)),
            Reply::Seen { job } => {
                if let Some(seen) = self.named(&job).and_then(|run| run.seen.take()) {
                    seen.notify_one();
                }
            }
            Reply::Probed { job, end } => {
                if let Some(done) = self.named(&job).and_then(|run| run.probe.take()) {
                    let _ = done.send(Ok(end));
                }
            }
            Reply::Quiet { job, for_ms } => {
                if let Some(done) = self.named(&job).and_then(|run| run.quiet.take()) {
                    let _ = done.send(Duration::from_millis(for_ms));
                }
            }
            Reply::StopFailed { job, reason } => {
                tracing::warn!(job, "stop.command: {reason}; the job gets its signal instead");
            }
            Reply::Killing { job } => {
                if let Some(run) = self.named(&job) {
                    let grace_ms = millis(run.grace);
                    tracing::warn!(%job, grace_ms, "{KILLING}");
                    self.events.emit(Event::Killed { job });
                }
            }
            Reply::Held { job, processes } => {
                if self.named(&job).is_some() {
                    if let Some(sentence) = procs::sentence(&job, &processes) {
                        tracing::error!("{sentence}");
                    }
                    self.events.emit(Event::Held { job, processes });
                }
            }
            Reply::Joined { job, end, output, was_stopped, out_of_memory, left } => {
                self.done(&job, Ok(Ended { end, output, was_stopped, out_of_memory, left }));
            }
            Reply::Pong { number: _ } => {}
            Reply::RunLogFailed { reason } => {
                tracing::warn!("the run log cannot be written; jobs continue without it: {reason}");
            }
        }
    }

    /// Warns of a program with other rights, once.
    fn warn(&mut self, job: &str, warning: Option<String>) {
        let Some(warning) = warning.filter(|it| self.warned.insert(it.clone())) else { return };
        tracing::warn!(job, "{warning}");
        self.events.emit(Event::Warned { job: job.to_owned(), reason: warning });
    }

    fn named(&mut self, job: &str) -> Option<&mut Run> {
        self.runs.get_mut(&name(job)?)
    }

    fn done(&mut self, job: &str, end: Result<Ended, String>) {
        if let Some(run) = name(job).and_then(|job| self.runs.remove(&job)) {
            let _ = run.done.send(end);
        }
    }

    async fn ping(&mut self) {
        let Some(process) = &mut self.process else { return };
        if process.unanswered == UNANSWERED_MAX {
            return self.recover("the guard of the worker did not answer").await;
        }
        process.unanswered += 1;
        let number = u64::from(process.unanswered);
        self.request(&Request::Ping { number });
    }

    /// Asks the guard to end every job and itself. Returns when no job is left.
    async fn end(&mut self) {
        if let Some(process) = &mut self.process {
            // Its standard input closes with the task that writes to it.
            process.requests = mpsc::unbounded_channel().0;
            while let Ok(Some(reply)) = timeout(END_TIMEOUT, self.next_reply()).await {
                self.handle(reply);
            }
            self.recover("the worker ended its guard").await;
        }
        while !self.lost.is_empty() {
            sleep(self.lost_pause()).await;
            self.check_lost().await;
        }
    }

    /// Returns the pause before the next check of lost jobs, and doubles it for the check after it.
    fn lost_pause(&mut self) -> Duration {
        let pause = self.lost_pause;
        self.lost_pause = LOST_CHECK_MAX.min(2 * pause);
        pause
    }

    async fn next_reply(&mut self) -> Option<Reply> {
        self.process.as_mut()?.replies.recv().await
    }

    /// Kills the guard and the remaining processes of its jobs, and then reports the jobs as ended. A job
    /// with a process that this user may not end is reported once that process has ended by itself.
    async fn recover(&mut self, reason: &str) {
        let Some(mut process) = self.process.take() else { return };
        if !self.runs.is_empty() {
            tracing::error!(
                jobs = self.runs.len(),
                "{reason}; killing the remaining processes of its jobs"
            );
        }
        let _ = process.child.start_kill();
        let _ = process.child.wait().await;
        // The last replies still count, so they are handled.
        while let Some(reply) = process.replies.recv().await {
            self.handle(reply);
        }
        if let Ok(groups) = JobGroups::find() {
            groups.end_stale();
        }
        let marker = Marker::Session(self.identity.session.clone());
        while let Err(error) = sweep::end_all(&marker).await {
            tracing::error!(%error, "cannot check which processes of the jobs are left; retrying");
            sleep(RETRY).await;
        }
        let runs = std::mem::take(&mut self.runs).into_iter();
        let runs = runs.map(|(job, run)| (job, (run.group, (run, reason.to_owned()))));
        self.lost.add(process.started, runs);
        self.lost_pause = LOST_CHECK;
        self.check_lost().await;
        let log = self.run_log();
        for (job, (run, _), processes) in self.lost.held() {
            if let Some(sentence) = procs::sentence(job.as_str(), &processes) {
                tracing::error!("{sentence}");
            }
            let _ = log.as_ref().map(|log| log.write(job, run.token, RunEvent::Held));
            self.events.emit(Event::Held { job: job.to_string(), processes });
        }
    }

    /// Reports the jobs of lost guards that have ended.
    async fn check_lost(&mut self) {
        let ended = self.lost.ended().await;
        let log = if ended.is_empty() { None } else { self.run_log() };
        for (job, (run, reason)) in ended {
            if run.is_stopping && run.group.is_some() {
                self.events.emit(Event::Killed { job: job.to_string() });
            }
            if let (Some(log), Some(_)) = (&log, run.group) {
                let _ = log.write(&job, run.token, RunEvent::Stop);
            }
            let _ = run.done.send(Err(reason));
        }
    }

    /// Opens the run log, to write to it instead of a guard that was lost.
    fn run_log(&self) -> Option<RunLog> {
        let Identity { worker, session, run_log, .. } = &self.identity;
        run_log.as_ref().and_then(|path| RunLog::open(path, worker, session).ok())
    }

    fn spawn(&self) -> io::Result<Process> {
        let (name, value) = (sweep::SESSION, &self.identity.session);
        let mut child = Command::new(&self.command.program)
            .args(&self.command.arguments)
            .env(name, value)
            .envs(caller::open_files_of_jobs().map(|it| (caller::OPEN_FILES, it.to_string())))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Signals to the worker's process group, such as Ctrl-C, are for the worker and must
            // not reach the guard.
            .process_group(0)
            .kill_on_drop(false)
            .spawn()
            .map_err(refused)?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).unwrap_or_default();
        if let Err(error) = procs::check_child(pid) {
            let _ = child.start_kill();
            return Err(error);
        }
        let (requests, outgoing) = mpsc::unbounded_channel();
        let (incoming, replies) = mpsc::channel(64);
        if let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) {
            tokio::spawn(write(stdin, outgoing));
            tokio::spawn(read(stdout, incoming));
        }
        let started = procs::one(pid).map_or(0, |guard| guard.started);
        Ok(Process { child, requests, replies, unanswered: 0, started })
    }
}

async fn write(mut stdin: ChildStdin, mut requests: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(line) = requests.recv().await {
        if stdin.write_all(&line).await.is_err() {
            return;
        }
    }
}

/// Forwards the guard's replies until the guard ends, or sends an invalid line.
async fn read(stdout: ChildStdout, replies: mpsc::Sender<Reply>) {
    let mut stdout = BufReader::new(stdout);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = (&mut stdout).take(LINE_BYTES_MAX as u64);
        if !matches!(limited.read_until(b'\n', &mut line).await, Ok(1..)) {
            return;
        }
        let Ok(reply) = serde_json::from_slice(&line) else { return };
        if replies.send(reply).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::client::Guard;
    use super::super::protocol::{Limits, OutputFormat};
    use super::*;

    #[tokio::test]
    async fn a_guard_that_is_busy_with_starts_is_not_taken_for_a_frozen_one() {
        // The guard needs longer for three starts than it may stay silent, and answers no ping.
        const BUSY: &str = r#"while read -r line; do case $line in *'"start"'*)
            sleep 1.3; echo '{"is":"refused","job":"a","reason":"not today"}';; esac; done"#;
        let arguments = ["-c", BUSY].map(Into::into).to_vec();
        let command = GuardCommand { program: "sh".into(), arguments };
        let identity = Identity {
            worker: "w-0".to_owned(),
            session: format!("busy-{}", std::process::id()),
            run_log: None,
            format: OutputFormat::default(),
            lock: None,
            job_logs: None,
        };
        let guard = Guard::new(command, identity, Events::default()).unwrap();
        for token in 1..=3 {
            let start = Start {
                job: "a".parse().unwrap(),
                token: Token(token),
                argv: Vec::new(),
                env: BTreeMap::new(),
                inherit: Vec::new(),
                dir: None,
                grace: Duration::ZERO,
                line: None,
                limits: Limits::default(),
            };
            let stop = tokio_util::sync::CancellationToken::new();
            let ended = guard.run(start, stop, Stop::default).await;
            assert_eq!(ended, Err("not today".to_owned()));
        }
        guard.end().await;
    }
}
