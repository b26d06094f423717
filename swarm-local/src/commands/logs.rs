//! `logs`: prints the lines about one job from its worker's log. `--follow` continues after the log
//! is rotated and after the job moves.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::super::output::complain_in_lines;
use super::super::state;
use super::super::web::{self, JobEntry};
use super::super::worker_log::{self, JobLines, Line, WorkerLog};
use super::pool::Pool;
use super::ps::has_worker;
use super::{Failure, PoolArgs, ended, standard_output};
use crate::output::Output;

/// Time between two reads of new lines.
const READ_EVERY: Duration = Duration::from_millis(100);

/// Time between two requests for the job's worker.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Arguments of `logs`.
#[derive(Clone, Debug, Args)]
pub struct LogsArgs {
    /// The job
    #[arg(value_name = "JOB")]
    pub job: String,
    /// The pool
    #[command(flatten)]
    pub pool: PoolArgs,
    /// Print new lines until the pool ends, also when the job moves to another worker
    #[arg(long, short)]
    pub follow: bool,
    /// Begin with the last N lines
    #[arg(long, short = 'n', value_name = "N", value_parser = lines)]
    pub tail: Option<usize>,
    /// Read the log of this worker [default: the worker that runs the job, or else all workers]
    #[arg(long, short, value_name = "WORKER")]
    pub worker: Option<String>,
    /// The output format: the lines of the job without its name and unchanged lines of the worker, or
    /// a JSON object for each line
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: Output,
}

/// Reads a number of lines.
fn lines(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "write a whole number of lines, for example 20".to_owned())
}

/// Prints the lines about a job. Exit code 3 if the pool has no such job.
///
/// # Errors
///
/// If the pool does not answer, or its logs cannot be read.
pub async fn logs(args: LogsArgs) -> anyhow::Result<ExitCode> {
    ended(print(args).await)
}

async fn print(args: LogsArgs) -> Result<(), Failure> {
    let found = match args.pool.find().await {
        Ok(pool) => Some(pool),
        // The logs of an ended pool are still readable.
        Err(Failure::No(_)) if !args.follow && args.pool.named_dir()?.is_some() => None,
        Err(failure) => return Err(failure),
    };
    let logs = if let Some(pool) = &found {
        pool.logs()
    } else {
        let dir = args.pool.named_dir()?.unwrap_or_default();
        state::find(&dir)?.unwrap_or(dir).join("logs")
    };
    let holder = match &found {
        Some(pool) => holder(pool, &args.job).await?,
        None => None,
    };
    if let Some(worker) = &args.worker {
        has_log(found.as_ref(), &logs, worker).await?;
    }
    let lines = JobLines::of(&args.job);
    let to = Box::new(standard_output(args.output));
    let printer = Printer { job: args.job, output: args.output, to, has_printed: false };
    let mut reader = Reader { logs, lines, printer };
    let at = args.worker.as_ref().or(holder.as_ref());
    let workers =
        at.map_or_else(|| worker_log::workers(&reader.logs), |one| Ok(vec![one.clone()]))?;
    // The job may move to these workers later. Their present lines are old at that time.
    let mut others = BTreeMap::new();
    for worker in worker_log::workers(&reader.logs)? {
        let log = WorkerLog::from_end(&reader.logs, &worker)?;
        others.insert(worker, log);
    }
    let mut last = None;
    for worker in workers {
        last = Some(reader.read_all(&worker, args.tail)?);
    }
    if found.is_none() && !reader.printer.has_printed {
        let (logs, job) = (reader.logs.display(), reader.printer.job.escape_default());
        return Err(Failure::No(format!(
            "no pool runs there, and nothing in {logs} is about `{job}`"
        )));
    }
    match found {
        Some(pool) if args.follow => {
            let is_chosen = args.worker.is_some();
            let at = at.cloned().zip(last);
            Following { pool, reader, at, others, is_chosen }.run().await
        }
        Some(_) | None => Ok(()),
    }
}

/// Refuses a worker without a log, unless the pool has that worker. Other names could lead out of the
/// directory, since they become part of a path.
async fn has_log(pool: Option<&Pool>, logs: &Path, worker: &str) -> Result<(), Failure> {
    let known = worker_log::workers(logs)?;
    if known.iter().any(|it| it == worker) {
        return Ok(());
    }
    if let Some(pool) = pool {
        return has_worker(pool, worker).await;
    }
    let (logs, worker) = (logs.display(), worker.escape_default());
    Err(Failure::No(format!("no pool runs there, and {logs} has no log of a worker `{worker}`")))
}

/// Returns the worker of the job, if it has one.
async fn holder(pool: &Pool, job: &str) -> Result<Option<String>, Failure> {
    let answer = pool.get_if_any(&format!("{}/{}", web::JOBS, escaped(job))).await?;
    let answer = answer.ok_or_else(|| {
        let (job, dir) = (job.escape_default(), pool.dir.display());
        Failure::No(format!("the pool in {dir} has no job `{job}`"))
    })?;
    let entry: JobEntry<String> = serde_json::from_slice(&answer.whole().await?)?;
    Ok(entry.worker)
}

/// Escapes a name as part of a path.
fn escaped(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let escape = |byte: u8| {
        if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    name.bytes().map(escape).collect()
}

/// Prints lines.
struct Printer {
    job: String,
    output: Output,
    to: Box<dyn Write>,
    has_printed: bool,
}

impl Printer {
    fn print(&mut self, worker: &str, line: &Line<'_>) -> io::Result<()> {
        self.has_printed = true;
        match (self.output, line) {
            (Output::Text, line) => writeln!(self.to, "{}", line.text()),
            (Output::Json, Line::Output(text)) => {
                let object = json!({"job": self.job, "worker": worker, "output": text});
                writeln!(self.to, "{object}")
            }
            (Output::Json, Line::Event(text)) => {
                let object = json!({"job": self.job, "worker": worker, "event": text});
                writeln!(self.to, "{object}")
            }
        }
    }
}

/// Reads the lines about the job.
struct Reader {
    logs: PathBuf,
    lines: JobLines,
    printer: Printer,
}

impl Reader {
    /// Prints a worker's log, or its last lines, and returns the log for further reading.
    fn read_all(&mut self, worker: &str, tail: Option<usize>) -> io::Result<WorkerLog> {
        let Self { logs, lines, printer } = self;
        let mut log = WorkerLog::from_beginning(logs, worker)?;
        let mut kept = VecDeque::new();
        let mut each = |text: &str| {
            let Some(line) = lines.find(text) else { return Ok(()) };
            let Some(tail) = tail else { return printer.print(worker, &line) };
            kept.push_back(text.to_owned());
            if tail < kept.len() {
                kept.pop_front();
            }
            Ok(())
        };
        log.read_rotated(&mut each)?;
        log.read(&mut each)?;
        for line in kept.iter().filter_map(|text| lines.find(text)) {
            printer.print(worker, &line)?;
        }
        printer.to.flush()?;
        Ok(log)
    }

    /// Prints new lines.
    fn read_on(&mut self, worker: &str, log: &mut WorkerLog) -> io::Result<()> {
        let Self { logs: _, lines, printer } = self;
        log.read(&mut |text| match lines.find(text) {
            Some(line) => printer.print(worker, &line),
            None => Ok(()),
        })?;
        printer.to.flush()
    }
}

/// Whether the pipe has lost its reader, as after `head` has ended. A write would report that, but the
/// job may write nothing for hours.
fn has_no_reader(pipe: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(pipe, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| 0 < ready)
}

/// Follows a job from worker to worker.
struct Following {
    pool: Pool,
    reader: Reader,
    /// The worker whose log is read.
    at: Option<(String, WorkerLog)>,
    /// Logs of the other workers, positioned after their old lines.
    others: BTreeMap<String, WorkerLog>,
    /// Whether the user named the worker, so that moves are ignored.
    is_chosen: bool,
}

impl Following {
    async fn run(mut self) -> Result<(), Failure> {
        let mut ask_at = Instant::now();
        loop {
            if let Some((worker, log)) = &mut self.at {
                self.reader.read_on(worker, log)?;
            }
            if ask_at <= Instant::now() {
                ask_at = Instant::now() + ASK_EVERY;
                match holder(&self.pool, &self.reader.printer.job).await {
                    Ok(Some(holder)) if !self.is_chosen => self.turn_to(holder)?,
                    Ok(_) => {}
                    Err(Failure::No(sentence)) => {
                        if let Some((worker, log)) = &mut self.at {
                            self.reader.read_on(worker, log)?;
                        }
                        complain_in_lines(&sentence);
                        return Ok(());
                    }
                    Err(failure) => return Err(failure),
                }
            }
            sleep(READ_EVERY).await;
            if has_no_reader(&io::stdout()) {
                return Ok(());
            }
        }
    }

    /// Switches to the log of the job's new worker.
    fn turn_to(&mut self, worker: String) -> io::Result<()> {
        if self.at.as_ref().is_some_and(|(current, _)| *current == worker) {
            return Ok(());
        }
        if let Some((before, mut log)) = self.at.take() {
            // The job has already stopped there.
            self.reader.read_on(&before, &mut log)?;
            self.others.insert(before, log);
            complain_in_lines(&format!("{} runs on {worker} now", self.reader.printer.job));
        }
        let log = match self.others.remove(&worker) {
            Some(log) => log,
            None => WorkerLog::from_beginning(&self.reader.logs, &worker)?,
        };
        self.at = Some((worker, log));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_lines_is_whole() {
        assert_eq!(lines("20"), Ok(20));
        assert_eq!(lines("x"), Err("write a whole number of lines, for example 20".to_owned()));
    }
}
