//! `ps`: prints the jobs of a pool, one a line. Memory is bounded by a thousand lines.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;

use super::super::text::counted;
use super::super::web::{self, JobEntry, JobFailure, job_line};
use super::pool::Pool;
use super::{Failure, PoolArgs, ended, standard_output};
use crate::output::{Output, columns};

/// Number of existing workers that an error names if the requested worker does not exist.
const NAMED_MAX: usize = 5;

/// Number of lines that determine the widths of the columns.
const MEASURED: usize = 1_000;

/// Arguments of `ps`.
#[derive(Clone, Debug, Args)]
pub struct PsArgs {
    /// The pool
    #[command(flatten)]
    pub pool: PoolArgs,
    /// Only jobs of this worker
    #[arg(long, short, value_name = "WORKER")]
    pub worker: Option<String>,
    /// Only jobs with this text in their names
    #[arg(long, short, value_name = "TEXT")]
    pub job: Option<String>,
    /// Only jobs that no worker runs, with the reason
    #[arg(long, short)]
    pub unassigned: bool,
    /// Only failing jobs; a pool reports at most its worst hundred
    #[arg(long, short)]
    pub failing: bool,
    /// The output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: Output,
}

impl PsArgs {
    fn shows(&self, entry: &JobEntry<String>) -> bool {
        let Self { pool: _, worker, job, unassigned, failing, output: _ } = self;
        worker.as_ref().is_none_or(|worker| entry.worker.as_ref() == Some(worker))
            && job.as_ref().is_none_or(|text| entry.name.contains(text.as_str()))
            && (!unassigned || entry.unassigned.is_some())
            && (!failing || entry.failing.is_some())
    }
}

/// Prints the jobs of a running pool. Exit code 3 if no such pool runs, or if it has no such worker.
///
/// # Errors
///
/// If the pool does not answer.
pub async fn ps(args: PsArgs) -> anyhow::Result<ExitCode> {
    ended(print(&args).await)
}

async fn print(args: &PsArgs) -> Result<(), Failure> {
    let pool = args.pool.find().await?;
    if let Some(worker) = &args.worker {
        has_worker(&pool, worker).await?;
    }
    let answer = pool.get(web::JOBS).await?;
    let mut output = standard_output(args.output);
    let mut rows: Box<dyn Rows> = match args.output {
        Output::Text => Box::<Table>::default(),
        Output::Json => Box::<List>::default(),
    };
    let each = |line: &[u8]| match job_line(line).transpose()? {
        Some((raw, entry)) if args.shows(&entry) => rows.put(&mut output, raw, entry),
        Some(_) | None => Ok(()),
    };
    answer.lines(each).await?;
    rows.end(&mut output)?;
    Ok(output.flush()?)
}

/// Refuses the name of a worker that the pool lacks.
pub(super) async fn has_worker(pool: &Pool, worker: &str) -> Result<(), Failure> {
    let (_, snapshot) = pool.swarm().await?;
    if !snapshot.is_known() || snapshot.workers.iter().any(|row| row.name == worker) {
        return Ok(());
    }
    let (dir, worker) = (pool.dir.display(), worker.escape_default());
    let some: Vec<_> = snapshot.workers.iter().take(NAMED_MAX).map(|it| &*it.name).collect();
    let rest = counted(snapshot.workers.len() - some.len(), "more worker");
    let rest =
        if snapshot.workers.len() == some.len() { String::new() } else { format!(" and {rest}") };
    let has = if some.is_empty() { "no worker".to_owned() } else { some.join(", ") + &rest };
    Err(Failure::No(format!("the pool in {dir} has no worker `{worker}`; it has {has}")))
}

/// A way to print jobs.
trait Rows {
    /// Prints a job, now or later; `raw` is the received line.
    fn put(&mut self, to: &mut dyn Write, raw: &[u8], entry: JobEntry<String>) -> io::Result<()>;
    fn end(&mut self, to: &mut dyn Write) -> io::Result<()>;
}

/// A JSON document with a line for each job.
#[derive(Default)]
struct List {
    is_begun: bool,
}

impl Rows for List {
    fn put(&mut self, to: &mut dyn Write, raw: &[u8], _: JobEntry<String>) -> io::Result<()> {
        let before: &[u8] = if self.is_begun { b",\n" } else { b"{\"jobs\":[\n" };
        self.is_begun = true;
        to.write_all(before)?;
        to.write_all(raw)
    }

    fn end(&mut self, to: &mut dyn Write) -> io::Result<()> {
        to.write_all(if self.is_begun { b"\n]}\n" } else { b"{\"jobs\":[]}\n" })
    }
}

/// A table whose columns fit the first jobs.
#[derive(Default)]
struct Table {
    first: Vec<[String; 5]>,
    widths: Option<[usize; 5]>,
}

impl Table {
    /// Determines the widths, and prints the buffered rows.
    fn measure(&mut self, to: &mut dyn Write) -> io::Result<[usize; 5]> {
        if let Some(widths) = self.widths {
            return Ok(widths);
        }
        let heads = [columns::JOB, columns::WORKER, columns::STATE, "TOKEN", "LAST EXIT"]
            .map(str::to_owned);
        self.first.insert(0, heads);
        let width = |column: usize| self.first.iter().map(|row| row[column].len()).max();
        let widths = [0, 1, 2, 3, 4].map(|column| width(column).unwrap_or_default());
        for row in self.first.drain(..) {
            write_row(to, &row, widths)?;
        }
        self.widths = Some(widths);
        Ok(widths)
    }
}

impl Rows for Table {
    fn put(&mut self, to: &mut dyn Write, _: &[u8], entry: JobEntry<String>) -> io::Result<()> {
        let JobEntry { name, state, slot: _, worker, token, unassigned, failing } = entry;
        let state = match unassigned {
            Some(reason) => format!("unassigned ({reason})"),
            None => state.to_owned(),
        };
        let worker = worker.unwrap_or_else(|| "-".to_owned());
        let end = failing.map(|JobFailure { restarts, last_exit }| {
            let restarts = restarts.try_into().unwrap_or(usize::MAX);
            format!("{last_exit}, {}", counted(restarts, "restart"))
        });
        let row = [name, worker, state, token.to_string(), end.unwrap_or_default()];
        if self.widths.is_none() && self.first.len() < MEASURED {
            self.first.push(row);
            return Ok(());
        }
        let widths = self.measure(to)?;
        write_row(to, &row, widths)
    }

    fn end(&mut self, to: &mut dyn Write) -> io::Result<()> {
        self.measure(to).map(|_| ())
    }
}

fn write_row(to: &mut dyn Write, row: &[String; 5], widths: [usize; 5]) -> io::Result<()> {
    let [job, worker, state, token, end] = row;
    let [for_job, for_worker, for_state, for_token, _] = widths;
    let line = format!(
        "{job:for_job$}  {worker:for_worker$}  {state:for_state$}  {token:for_token$}  {end}"
    );
    writeln!(to, "{}", line.trim_end())
}
