//! `logs`: prints the log of one job, in order of time. `--follow` continues after the log is rotated
//! and after the job moves.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::mem;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use swarm_adapters_host::job_log::{Entry, Kind};
use swarm_core::JobName;
use swarm_terminal::output::{Output, complain_in_lines, has_no_reader};
use swarm_view::logs::LogLine;
use tokio::time::{Instant, sleep};

use super::names;
use super::pool::Pool;
use super::ps::has_worker;
use super::{Failure, PoolArgs, ended, standard_output};
use crate::logs::job_log::{JobLog, is_start, shown};
use crate::logs::worker_log;
use crate::state_dir::state;

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
    #[arg(long, short = 'n', value_name = "N", allow_negative_numbers = true, value_parser = lines)]
    pub tail: Option<usize>,
    /// Print lines from this time on, such as `10m` ago or 2026-11-27T06:30:00Z
    #[arg(long, value_name = "TIME", value_parser = swarm_terminal::times::since)]
    pub since: Option<Timestamp>,
    /// Print the lines of the run before the last one
    #[arg(long, conflicts_with = "follow")]
    pub previous: bool,
    /// Print the lines of this worker only [default: all workers]
    #[arg(long, short, value_name = "WORKER")]
    pub worker: Option<String>,
    /// The output format: `TIME WORKER | OUTPUT` and `TIME WORKER - EVENT`, or a JSON object for each
    /// line
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: Output,
}

/// Reads a number of lines.
fn lines(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "write a whole number of lines, for example 20".to_owned())
}

/// Prints the log of a job. Exit code 3 if the pool has no such job.
///
/// # Errors
///
/// If the pool does not answer, or its logs cannot be read.
pub async fn logs(args: LogsArgs) -> anyhow::Result<ExitCode> {
    ended(print(args).await)
}

async fn print(args: LogsArgs) -> Result<(), Failure> {
    let (found, logs) = match args.pool.find().await {
        Ok(pool) => {
            let logs = pool.logs();
            (Some(pool), logs)
        }
        // The logs of an ended pool are still readable.
        Err(failure @ Failure::No(_)) if !args.follow => (None, ended_logs(&args, failure)?),
        Err(failure) => return Err(failure),
    };
    // The pool may have had the job before.
    let unknown = match &found {
        Some(pool) => knows(pool, &args.job).await?,
        None => None,
    };
    if let Some(worker) = &args.worker {
        has_log(found.as_ref(), &logs, worker).await?;
    }
    let shown = args.job.escape_default();
    let Ok(job) = JobName::new(&args.job) else {
        return Err(Failure::No(format!("`{shown}` is not the name of a job")));
    };
    let mut log = JobLog::new(&logs, job, args.worker.clone());
    let to = Box::new(standard_output(args.output));
    let mut printer = Printer { job: args.job.clone(), output: args.output, to };
    let Printed { has_lines, printed } = printer.print_all(&mut log, &args)?;
    if args.previous && has_lines && printed == 0 {
        return Err(Failure::No(format!(
            "the log of `{shown}` has no run before the last one; print that without --previous"
        )));
    }
    let logs = logs.display();
    match (found, unknown) {
        (_, Some(sentence)) if !has_lines => Err(Failure::No(sentence)),
        (_, Some(sentence)) => {
            complain_in_lines(&format!("{sentence} any more; this was its log"));
            Ok(())
        }
        (Some(pool), None) if args.follow => follow(&pool, &mut log, &mut printer).await,
        (None, None) if !has_lines => {
            let near = args.pool.name().map(|name| names::nearest_pools(name)).unwrap_or_default();
            Err(Failure::No(format!(
                "no pool runs there, and nothing in {logs} is about `{shown}`{near}"
            )))
        }
        (Some(_), None) if !has_lines => {
            Err(Failure::No(format!("nothing in {logs} is about `{shown}` yet")))
        }
        (Some(_) | None, None) => Ok(()),
    }
}

/// Returns the logs of a pool that has ended: the named one, or the only one with lines about the
/// job. `failure` is the error if there is none.
fn ended_logs(args: &LogsArgs, failure: Failure) -> Result<PathBuf, Failure> {
    if let Some(dir) = args.pool.named_dir()? {
        return Ok(state::find(&dir)?.unwrap_or(dir).join("logs"));
    }
    let Ok(job) = JobName::new(&args.job) else { return Err(failure) };
    names::logs_about(&job)?.ok_or(failure)
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
    let near = names::nearest_of(worker, known.into_iter()).unwrap_or_default();
    let (logs, worker) = (logs.display(), worker.escape_default());
    Err(Failure::No(format!(
        "no pool runs there, and {logs} has no log of a worker `{worker}`{near}"
    )))
}

/// Returns a sentence if the pool does not have the job.
async fn knows(pool: &Pool, job: &str) -> Result<Option<String>, Failure> {
    let answer = pool.job(job).await?;
    let (job, dir) = (job.escape_default(), pool.dir.display());
    Ok(answer.is_none().then(|| format!("the pool in {dir} has no job `{job}`")))
}

/// The outcome of printing a log.
struct Printed {
    /// Whether the log has any line.
    has_lines: bool,
    /// The number of lines that were selected by `--tail` or `--previous`.
    printed: usize,
}

/// Prints lines.
struct Printer {
    job: String,
    output: Output,
    to: Box<dyn Write>,
}

impl Printer {
    /// Prints the lines so far that `args` ask for.
    fn print_all(&mut self, log: &mut JobLog, args: &LogsArgs) -> io::Result<Printed> {
        let mut has_lines = false;
        let mut selected = VecDeque::new();
        // The lines of the run before the last one.
        let mut previous = VecDeque::new();
        let keeps = args.tail.is_some() || args.previous;
        log.read(&mut |entry| {
            has_lines = true;
            if args.previous && is_start(&entry) {
                previous = mem::take(&mut selected);
            }
            if args.since.is_some_and(|since| entry.time < since) {
                return Ok(());
            }
            if !keeps {
                return self.print(&entry);
            }
            selected.push_back(entry);
            if !args.previous && args.tail < Some(selected.len()) {
                selected.pop_front();
            }
            Ok(())
        })?;
        let selected = if args.previous { previous } else { selected };
        let before = selected.len().saturating_sub(args.tail.unwrap_or(usize::MAX));
        for entry in selected.iter().skip(before) {
            self.print(entry)?;
        }
        self.to.flush()?;
        Ok(Printed { has_lines, printed: selected.len() })
    }

    fn print(&mut self, entry: &Entry) -> io::Result<()> {
        let Entry { time, worker, kind, text } = entry;
        match self.output {
            Output::Text => writeln!(self.to, "{}", shown(entry)),
            Output::Json => {
                let text = Some(Cow::from(text));
                let (output, event) = match kind {
                    Kind::Output => (text, None),
                    Kind::Remark => (None, text),
                };
                let time = format!("{time:.6}");
                let (job, worker) = (Cow::from(&self.job), Cow::from(worker));
                let line = LogLine { time, job, worker, output, event };
                serde_json::to_writer(&mut self.to, &line)?;
                writeln!(self.to)
            }
        }
    }
}

/// Prints new lines until the pool ends, or has the job no more.
async fn follow(pool: &Pool, log: &mut JobLog, printer: &mut Printer) -> Result<(), Failure> {
    let mut ask_at = Instant::now();
    loop {
        log.read(&mut |entry| printer.print(&entry))?;
        printer.to.flush()?;
        if ask_at <= Instant::now() {
            ask_at = Instant::now() + ASK_EVERY;
            if let Some(sentence) = knows(pool, &printer.job).await? {
                log.read(&mut |entry| printer.print(&entry))?;
                printer.to.flush()?;
                complain_in_lines(&sentence);
                return Ok(());
            }
        }
        sleep(READ_EVERY).await;
        if has_no_reader(&io::stdout()) {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_lines_is_whole_and_a_time_is_a_time_or_a_span() {
        assert_eq!(lines("20"), Ok(20));
        assert!(
            swarm_terminal::times::since("2026-11-27T06:30:00Z").is_ok()
                && swarm_terminal::times::since("10m").unwrap() < Timestamp::now()
        );
        assert!(
            swarm_terminal::times::since("yesterday")
                .unwrap_err()
                .starts_with("`yesterday` is not a time; write")
        );
        assert!(lines("x").unwrap_err().contains("a whole number"));
    }
}
