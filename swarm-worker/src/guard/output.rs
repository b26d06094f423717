//! Copies the output of jobs to their [files](JobLogs), or to the guard's standard error, which the
//! worker shares. The output is split into [`Lines`]. On standard error each line has the job's
//! name as a prefix. A [`Meter`] limits the amount per job. The last lines of a job are always
//! copied.
//!
//! The copying has its own thread. If the reader of standard error stalls, jobs have to wait, but
//! the guard does not. A slow disk stalls no job: lines are lost instead, and counted.

use std::fmt::Write as _;
use std::io::{self, PipeReader, Write as _};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::Pid;
use swarm_adapters_host::job_log::{self, JobLogs, Kind};
use swarm_core::{JobName, Token};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::lines::{Line, Lines};
use super::meter::Meter;
use super::protocol::OutputFormat;
use super::search::Search;
pub(super) use super::tail::Tail;
use swarm_adapters_host::timer::until;

/// The size limit of one read, which is the capacity of a pipe.
const READ_BYTES_MAX: usize = 64 << 10;

/// The pause after each of several reads in quick succession. In the meantime the pipe collects the
/// lines that a job prints.
const PAUSE: Duration = Duration::from_millis(5);
/// The pause while the pipe is at least half full, so that it does not fill up.
const SHORT_PAUSE: Duration = Duration::from_millis(1);

/// Copies the outputs of jobs.
pub(super) struct Output(mpsc::UnboundedSender<Followed>);

/// A text to find in the output of a job, and the first process of that job.
pub(super) struct Awaited {
    pub(super) text: String,
    pub(super) leader: Pid,
}

/// Reports that the output of a job contains the awaited text.
pub(super) struct Seen {
    pub(super) job: JobName,
    pub(super) leader: Pid,
}

/// The output of a job.
pub(super) struct Followed {
    pub(super) job: JobName,
    pub(super) pipe: PipeReader,
    pub(super) target: Target,
    pub(super) awaited: Option<Awaited>,
    pub(super) tail: Tail,
}

/// The target of lines.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// Standard error.
    Stderr(OutputFormat),
    /// The file of the job.
    File { logs: JobLogs, worker: String },
}

impl Target {
    /// Remarks that a run of a job begins, before any of its output. On standard error the worker
    /// does that.
    pub(super) fn begin(&self, job: &JobName, token: Token, leader: Pid) {
        if let Self::File { logs, worker } = self {
            let text = format!("started token={} pid={leader}", token.0);
            let mut line = String::new();
            job_log::Line::now(worker, Kind::Remark, &text).append_to(&mut line);
            // If the disk is too slow, the worker's own line is left.
            let _ = logs.append(job, line, 1);
        }
    }
}

impl Output {
    /// Starts the thread that copies outputs. `seen` receives the awaited texts that were found.
    pub(super) fn open(seen: mpsc::UnboundedSender<Seen>) -> io::Result<Self> {
        let (sender, mut pipes) = mpsc::unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::spawn(move || {
            runtime.block_on(async move {
                // The outputs share one buffer: only one of them is read at a time.
                let buffer = Arc::new(Mutex::new(vec![0; READ_BYTES_MAX]));
                while let Some(followed) = pipes.recv().await {
                    tokio::spawn(follow(followed, seen.clone(), Arc::clone(&buffer)));
                }
            });
        });
        Ok(Self(sender))
    }

    /// Copies the output of a job until all writers have closed it.
    pub(super) fn follow(&self, followed: Followed) {
        let _ = self.0.send(followed);
    }
}

async fn follow(
    followed: Followed,
    seen: mpsc::UnboundedSender<Seen>,
    buffer: Arc<Mutex<Vec<u8>>>,
) {
    let Followed { job, pipe, target, awaited, tail } = followed;
    let Ok(pipe) = Receiver::from_owned_fd(OwnedFd::from(pipe)) else { return };
    let awaiting = awaited.map(|Awaited { text, leader }| {
        let search = Search::new(&text);
        Awaiting { text, search, leader, seen }
    });
    let now = Instant::now();
    let log = Log::new(job, target, now);
    let mut copier = Copier { lines: Lines::default(), log, awaiting, tail };
    let (mut read_at, mut resumes_at) = (now, None);
    loop {
        let is_readable = async {
            if let Some(at) = resumes_at {
                sleep_until(at).await;
            }
            pipe.readable().await
        };
        let ready = tokio::select! {
            ready = is_readable => Some(ready),
            () = until(copier.due_at()) => None,
        };
        let now = Instant::now();
        if let Some(ready) = ready {
            let mut buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
            let length = match ready.and_then(|()| pipe.try_read(&mut buffer)) {
                Ok(length @ 1..) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Ok(0) | Err(_) => return copier.end(now),
            };
            copier.take(&buffer[..length], now);
            let pause = if length < READ_BYTES_MAX / 2 { PAUSE } else { SHORT_PAUSE };
            // A read after a pause is a little later than the pause itself.
            resumes_at = (now < read_at + 2 * PAUSE).then_some(now + pause);
            read_at = now;
        }
        copier.pass(now);
        // Gives the outputs of other jobs their turn.
        tokio::task::yield_now().await;
    }
}

/// Copies the output of one job.
struct Copier {
    lines: Lines,
    log: Log,
    awaiting: Option<Awaiting>,
    tail: Tail,
}

impl Copier {
    /// Takes the bytes that were read at `now`.
    fn take(&mut self, bytes: &[u8], now: Instant) {
        self.begin_second(now);
        self.tail.lock().printed(now);
        // An awaited text is noticed even if its line is not copied.
        if let Some(found) = self.awaiting.take_if(|it| it.search.completes(bytes)) {
            found.report(&self.log.job);
        }
        self.each(|lines, emit| lines.take(bytes, now, emit));
    }

    /// Copies the lines that are due at `now`.
    fn pass(&mut self, now: Instant) {
        self.each(|lines, emit| lines.pass(now, emit));
        self.begin_second(now);
        self.log.write();
    }

    /// Copies the remaining text.
    fn end(&mut self, now: Instant) {
        self.each(|lines, emit| lines.end(now, emit));
        self.log.report(&self.tail, now);
        self.log.write();
        self.tail.end();
    }

    /// Returns when [`pass`](Self::pass) has to be called, unless more is read before.
    fn due_at(&self) -> Option<Instant> {
        [self.lines.due_at(), self.log.meter.reports_at()].into_iter().flatten().min()
    }

    fn begin_second(&mut self, now: Instant) {
        if self.log.meter.is_due(now) {
            self.log.report(&self.tail, now);
        }
    }

    /// Copies the lines that `split` emits.
    fn each(&mut self, split: impl FnOnce(&mut Lines, &mut dyn FnMut(Line<'_>))) {
        let Self { lines, log, awaiting, tail } = self;
        let mut tail = tail.lock();
        split(lines, &mut |line| {
            let text = log.copy(&line);
            // The awaited text may be written as the log shows it, with escapes.
            let is_awaited =
                |it: &mut Awaiting| text.as_ref().is_some_and(|text| text.contains(&it.text));
            if let Some(found) = awaiting.take_if(is_awaited) {
                found.report(&log.job);
            }
            tail.push(&line, text.is_some());
        });
    }
}

/// A text that the output is searched for.
struct Awaiting {
    text: String,
    search: Search,
    leader: Pid,
    seen: mpsc::UnboundedSender<Seen>,
}

impl Awaiting {
    fn report(self, job: &JobName) {
        let _ = self.seen.send(Seen { job: job.clone(), leader: self.leader });
    }
}

/// Writes lines of the output of one job to the log.
struct Log {
    job: JobName,
    target: Target,
    meter: Meter,
    shown: String,
    /// The number of lines in `shown`.
    lines: u64,
    /// The number of lines that were lost, since too many others wait for the disk.
    lost: u64,
}

impl Log {
    fn new(job: JobName, target: Target, now: Instant) -> Self {
        Self { job, target, meter: Meter::new(now), shown: String::new(), lines: 0, lost: 0 }
    }

    /// Copies a line and returns its text, unless the meter drops it.
    fn copy(&mut self, line: &Line<'_>) -> Option<String> {
        let text = self.meter.admit(line.bytes(), || line.text())?;
        self.show(Kind::Output, &text);
        Some(text)
    }

    /// Reports the number of dropped lines, if there are any, and copies the last ones of them.
    fn report(&mut self, tail: &Tail, now: Instant) {
        let mut last = Vec::new();
        if self.meter.reports_at().is_some() {
            last.extend(tail.lock().unlogged());
            last.iter().filter_map(|line| line.whole).for_each(|bytes| self.meter.recovered(bytes));
        }
        if let Some(report) = self.meter.report(now) {
            self.show(Kind::Remark, &report);
        }
        for line in last {
            self.show(Kind::Output, &line.text);
        }
    }

    /// Appends a line to the text to write.
    fn show(&mut self, kind: Kind, text: &str) {
        let Self { job, target, shown, lines, .. } = self;
        *lines += 1;
        // Writing to memory does not fail.
        let _ = match target {
            Target::Stderr(OutputFormat::Text) => writeln!(shown, "{job}: {text}"),
            Target::Stderr(OutputFormat::Json) => {
                writeln!(shown, "{}", serde_json::json!({"job": job.as_str(), "output": text}))
            }
            Target::File { logs: _, worker } => {
                job_log::Line::now(worker, kind, text).append_to(shown);
                Ok(())
            }
        };
    }

    fn write(&mut self) {
        if self.shown.is_empty() {
            return;
        }
        if let Target::File { logs, .. } = &self.target {
            let logs = logs.clone();
            if 0 < self.lost {
                let text = std::mem::take(&mut self.shown);
                let noun = if self.lost == 1 { "line was" } else { "lines were" };
                self.show(
                    Kind::Remark,
                    &format!("{} {noun} lost: the disk is too slow", self.lost),
                );
                self.shown.push_str(&text);
            }
            let (text, lines) = (std::mem::take(&mut self.shown), std::mem::take(&mut self.lines));
            self.lost = if logs.append(&self.job, text, lines) { 0 } else { self.lost + lines };
        } else {
            // If standard error is closed, the output is lost.
            let _ = io::stderr().lock().write_all(self.shown.as_bytes());
            self.shown.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_written_after_the_name_of_their_job_or_as_json() {
        let job = JobName::new("a\"b").unwrap();
        let written = |format: OutputFormat| {
            let mut log = Log::new(job.clone(), Target::Stderr(format), Instant::now());
            log.show(Kind::Output, "x \"y\"");
            log.shown
        };
        assert_eq!(written(OutputFormat::Text), "a\"b: x \"y\"\n");
        let json = "{\"job\":\"a\\\"b\",\"output\":\"x \\\"y\\\"\"}\n";
        assert_eq!(written(OutputFormat::Json), json);
    }
}
