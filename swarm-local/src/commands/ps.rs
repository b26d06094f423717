//! `ps`: prints the jobs of a pool, one a line. Memory is bounded by a thousand lines.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use swarm_adapters_host::clock::unix_s;
use swarm_adapters_host::usage::Usage;
use swarm_view::age::age;
use swarm_view::jobs::JobEntry;
use swarm_view::printable::{Form, printable};
use swarm_view::shell;
use swarm_view::status::RUNS_WELL;
use swarm_view::table::{columns, columns_of, line, width_of};
use swarm_view::words::{counted, quoted};

use super::super::web::{self, job_line};
use super::pool::Pool;
use super::{Failure, PoolArgs, finished, names, pool};
use crate::show::{Answer, Display, Format};

/// Number of existing workers that an error names if the requested worker does not exist.
const NAMED_MAX: usize = 5;

/// Columns that are left out if no job has a value there.
const OPTIONAL: [&str; 2] = [columns::POOL, columns::TITLE];

/// Number of lines that determine the widths of the columns.
const MEASURED: usize = 1_000;

/// Arguments of `ps`.
#[derive(Clone, Debug, Args)]
pub struct PsArgs {
    /// The pool
    #[command(flatten)]
    pub pool: PoolArgs,
    /// List the jobs of all pools
    #[arg(long, short = 'A', conflicts_with_all = ["pool", "dir", "by_option", "worker"])]
    pub all: bool,
    /// Only jobs of this worker
    #[arg(long, short, value_name = "WORKER")]
    pub worker: Option<String>,
    /// Only jobs with this text in their names or titles
    #[arg(long, short, value_name = "TEXT")]
    pub job: Option<String>,
    /// Only jobs that no worker runs, with the reason
    #[arg(long, short)]
    pub unassigned: bool,
    /// Only failing jobs; a pool reports at most its worst hundred
    #[arg(long, short)]
    pub failing: bool,
    /// The way to show the answer
    #[command(flatten)]
    pub display: Display,
}

impl PsArgs {
    fn shows(&self, entry: &JobEntry<String>) -> bool {
        let Self { worker, job, unassigned, failing, .. } = self;
        let is_on = |worker| entry.is_everywhere() || entry.worker.as_ref() == Some(worker);
        worker.as_ref().is_none_or(is_on)
            && job.as_ref().is_none_or(|text| has(entry, text))
            && (!unassigned || entry.unassigned.is_some())
            && (!failing || entry.failing.is_some())
    }
}

/// Whether the name or the title of a job contains a text.
fn has(entry: &JobEntry<String>, text: &str) -> bool {
    entry.name.contains(text) || entry.title.as_ref().is_some_and(|title| title.contains(text))
}

/// Prints the jobs of a running pool. Exit code 3 if no such pool runs, or if it has no such worker.
///
/// # Errors
///
/// If the pool does not answer.
pub async fn ps(args: PsArgs) -> anyhow::Result<ExitCode> {
    finished(print(&args).await)
}

async fn print(args: &PsArgs) -> Result<ExitCode, Failure> {
    let Display { output, watch } = args.display;
    if watch {
        let read = async || {
            let mut text = Vec::new();
            write(args, output, &mut text).await?;
            Ok::<_, Failure>(Answer::of(String::from_utf8_lossy(&text).into_owned()))
        };
        return args.display.show(read).await;
    }
    let mut stdout = io::BufWriter::new(anstream::stdout());
    write(args, output, &mut stdout).await?;
    stdout.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the jobs, escaped for the format.
async fn write(args: &PsArgs, format: Format, to: &mut dyn Write) -> Result<(), Failure> {
    let mut rows: Box<dyn Rows> = match format {
        Format::Text | Format::Wide if args.unassigned => Box::new(Table::of_unassigned()),
        Format::Text => Box::new(Table::new(false)?),
        Format::Wide => Box::new(Table::new(true)?),
        Format::Json => Box::<List>::default(),
        Format::Yaml => Box::<YamlList>::default(),
        Format::Name => Box::new(Names),
    };
    for pool in pool::every_or(args.all, &args.pool).await? {
        if let Some(worker) = &args.worker {
            has_worker(&pool, worker).await?;
        }
        let answer = pool.get(web::JOBS).await?;
        let name = args.all.then(|| pool.name());
        let each = |line: &[u8]| match job_line(line).transpose()? {
            Some((raw, entry)) if args.shows(&entry) => {
                rows.put(to, Received { pool: name.as_deref(), raw, entry })
            }
            Some(_) | None => Ok(()),
        };
        answer.lines(each).await?;
    }
    Ok(rows.end(to)?)
}

/// Refuses the name of a worker that the pool lacks.
pub(super) async fn has_worker(pool: &Pool, worker: &str) -> Result<(), Failure> {
    let (_, status) = pool.swarm().await?;
    if !status.is_known() || status.workers.iter().any(|row| row.name == worker) {
        return Ok(());
    }
    let dir = pool.dir.display();
    let names: Vec<_> = status.workers.into_iter().map(|row| row.name).collect();
    Err(Failure::No(format!("the pool in {dir} has {}", no_worker(worker, &names))))
}

/// Returns a clause about a worker that the pool lacks. It has all `names`, or the nearest ones if there
/// are many, or else the first ones.
fn no_worker(worker: &str, names: &[String]) -> String {
    let near = || names::nearest_of(worker, names.iter().cloned());
    let has = (NAMED_MAX < names.len()).then(near).flatten();
    let has = has.unwrap_or_else(|| {
        let some = names.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
        match names.len().checked_sub(NAMED_MAX).filter(|more| 0 < *more) {
            _ if names.is_empty() => "; it has no worker".to_owned(),
            None => format!("; it has {some}"),
            Some(more) => format!("; it has {some} and {}", counted(more, "more worker")),
        }
    });
    format!("no worker `{}`{has}", worker.escape_default())
}

/// A job as a pool answers it.
struct Received<'a> {
    /// The name of its pool, in a list of several pools.
    pool: Option<&'a str>,
    /// The received line.
    raw: &'a [u8],
    entry: JobEntry<String>,
}

/// A way to print jobs, escaped.
trait Rows {
    /// Prints a job, now or later.
    fn put(&mut self, to: &mut dyn Write, job: Received<'_>) -> io::Result<()>;
    fn end(&mut self, to: &mut dyn Write) -> io::Result<()>;
}

/// A JSON document with a line for each job.
#[derive(Default)]
struct List {
    is_begun: bool,
}

impl Rows for List {
    fn put(&mut self, to: &mut dyn Write, job: Received<'_>) -> io::Result<()> {
        let Received { pool, raw, .. } = job;
        let before: &[u8] = if self.is_begun { b",\n" } else { b"{\"jobs\":[\n" };
        self.is_begun = true;
        to.write_all(before)?;
        let mut entry = String::from_utf8_lossy(raw).into_owned();
        if let Some(pool) = pool {
            entry.replace_range(..1, &format!("{{\"pool\":{},", serde_json::to_string(pool)?));
        }
        to.write_all(printable(&entry, Form::Json).as_bytes())
    }

    fn end(&mut self, to: &mut dyn Write) -> io::Result<()> {
        to.write_all(if self.is_begun { b"\n]}\n" } else { b"{\"jobs\":[]}\n" })
    }
}

/// The same document as YAML.
#[derive(Default)]
struct YamlList {
    is_begun: bool,
}

impl Rows for YamlList {
    fn put(&mut self, to: &mut dyn Write, job: Received<'_>) -> io::Result<()> {
        let Received { pool, raw, .. } = job;
        let before: &[u8] = if self.is_begun { b"" } else { b"jobs:\n" };
        self.is_begun = true;
        let mut entry: serde_json::Value = serde_json::from_slice(raw)?;
        if let Some(pool) = pool {
            entry["pool"] = pool.into();
        }
        let yaml = serde_yaml::to_string(&[entry]).map_err(io::Error::other)?;
        to.write_all(before)?;
        to.write_all(printable(&yaml, Form::Lines).as_bytes())
    }

    fn end(&mut self, to: &mut dyn Write) -> io::Result<()> {
        to.write_all(if self.is_begun { b"" } else { b"jobs: []\n" })
    }
}

/// The names only.
struct Names;

impl Rows for Names {
    fn put(&mut self, to: &mut dyn Write, job: Received<'_>) -> io::Result<()> {
        writeln!(to, "{}", printable(&job.entry.name, Form::Line))
    }

    fn end(&mut self, _: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
}

/// A table whose columns fit the first jobs.
struct Table {
    /// Whether it has only the jobs without a worker, with the reason of each in a sentence.
    is_of_unassigned: bool,
    now_unix_s: u64,
    /// Memory and processor time of process groups, for a wide table.
    usage: Option<BTreeMap<i32, Usage>>,
    first: Vec<Vec<String>>,
    heads: Vec<String>,
    widths: Option<Vec<usize>>,
}

impl Table {
    fn new(is_wide: bool) -> io::Result<Self> {
        let usage = is_wide.then(Usage::of_groups).transpose()?;
        let mut heads = vec![columns::POOL];
        heads.extend([columns::JOB, columns::TITLE, columns::WORKER, columns::PHASE, "PID", "UP"]);
        heads.extend(if is_wide { &["TOKEN", "MEMORY", "CPU"][..] } else { &[] });
        heads.extend(["RESTARTS", "LAST EXIT"]);
        let heads = heads.into_iter().map(str::to_owned).collect::<Vec<_>>();
        Ok(Self {
            is_of_unassigned: false,
            now_unix_s: unix_s(),
            usage,
            first: Vec::new(),
            heads,
            widths: None,
        })
    }

    fn of_unassigned() -> Self {
        let heads = [columns::POOL, columns::JOB, columns::PHASE, columns::REASON];
        let heads = heads.map(str::to_owned);
        Self {
            is_of_unassigned: true,
            now_unix_s: unix_s(),
            usage: None,
            first: Vec::new(),
            heads: heads.into(),
            widths: None,
        }
    }

    fn row(&self, entry: JobEntry<String>) -> Vec<String> {
        let last_end = last_end(&entry);
        let known = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let phase = phase(&entry);
        if self.is_of_unassigned {
            return vec![entry.name, phase, known(entry.unassigned_message)];
        }
        let up = entry.since_unix_s.map(|since| self.now_unix_s.saturating_sub(since));
        let up = up.map(|seconds| age(Duration::from_secs(seconds)));
        let worker = entry.shown_worker().to_owned();
        let mut row = vec![
            entry.name,
            entry.title.unwrap_or_default(),
            worker,
            phase,
            known(entry.pid.map(|pid| pid.to_string())),
            known(up),
        ];
        if let Some(usage) = &self.usage {
            let used = entry.pid.and_then(|pid| usage.get(&pid));
            row.extend([
                entry.token.to_string(),
                known(used.map(|used| mebibytes(used.memory_bytes))),
                known(used.map(|used| format!("{:.1} s", used.cpu.as_secs_f64()))),
            ]);
        }
        row.extend([entry.restarts.to_string(), last_end]);
        row
    }

    /// Determines the widths, and prints the buffered rows.
    fn measure(&mut self, to: &mut dyn Write) -> io::Result<()> {
        if self.widths.is_some() {
            return Ok(());
        }
        let all = || std::iter::once(&self.heads).chain(&self.first);
        let width = |column: usize| width_of(all().map(|row| columns_of(&row[column])));
        let mut widths: Vec<_> = (0..self.heads.len()).map(width).collect();
        for (column, head) in self.heads.iter().enumerate() {
            let is_empty = self.first.iter().all(|row| row[column].is_empty());
            if is_empty && OPTIONAL.contains(&head.as_str()) {
                widths[column] = 0;
            }
        }
        writeln!(to, "{}", line(&self.heads, &self.heads, &widths))?;
        for row in self.first.drain(..) {
            writeln!(to, "{}", line(&row, &self.heads, &widths))?;
        }
        self.widths = Some(widths);
        Ok(())
    }
}

impl Rows for Table {
    fn put(&mut self, to: &mut dyn Write, job: Received<'_>) -> io::Result<()> {
        let escaped = |cell: String| printable(&cell, Form::Line).into_owned();
        let mut row = vec![job.pool.unwrap_or_default().to_owned()];
        row.extend(self.row(job.entry));
        let row: Vec<_> = row.into_iter().map(escaped).collect();
        if self.widths.is_none() && self.first.len() < MEASURED {
            self.first.push(row);
            return Ok(());
        }
        self.measure(to)?;
        let widths = self.widths.as_deref().unwrap_or_default();
        writeln!(to, "{}", line(&row, &self.heads, widths))
    }

    fn end(&mut self, to: &mut dyn Write) -> io::Result<()> {
        self.measure(to)
    }
}

/// Returns the phase of a job, and notes about it in brackets.
pub(super) fn phase(entry: &JobEntry<String>) -> String {
    let reason = entry.unassigned.as_deref().filter(|reason| *reason != entry.phase);
    let version = match entry.version {
        "previous" => Some("previous version"),
        "failed" => Some("new version"),
        _ => None,
    };
    let notes = reason.or(version).map(str::to_owned).into_iter().chain(entry.unanswered(unix_s()));
    let notes = notes.collect::<Vec<_>>().join("; ");
    if notes.is_empty() { entry.phase.to_owned() } else { format!("{} ({notes})", entry.phase) }
}

/// Describes the last end of a job by itself, and the state of a failing one.
fn last_end(entry: &JobEntry<String>) -> String {
    let Some(failing) = &entry.failing else {
        return entry.last_exit.clone().unwrap_or_default();
    };
    let exit = entry.last_exit.as_ref().unwrap_or(&failing.last_exit);
    let course = match entry.phase {
        "failed" => format!("; not restarted any more; swarm retry {}", shell::word(&entry.name)),
        "running" | "ready" => format!("; {RUNS_WELL}"),
        _ => String::new(),
    };
    format!("{exit}{}{course}", quoted(failing.last_line.as_deref()))
}

fn mebibytes(bytes: u64) -> String {
    // The precision of a tenth suffices.
    #[expect(clippy::cast_precision_loss, reason = "memory has far fewer than 2^52 bytes")]
    let mebibytes = bytes as f64 / f64::from(1 << 20);
    format!("{mebibytes:.1} MiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_worker_gets_the_nearest_names_or_the_first_ones() {
        let names: Vec<_> = (0..7).map(|number| format!("recorder-{number}")).collect();
        let near = no_worker("recordr-3", &names);
        assert!(near.starts_with("no worker `recordr-3`; the nearest names are `recorder-3`, "));
        let first = "no worker `x`; it has recorder-0, recorder-1, recorder-2, recorder-3, \
                     recorder-4 and 2 more workers";
        assert_eq!(no_worker("x", &names), first);
        let all = "no worker `recordr-3`; it has recorder-0, recorder-1";
        assert_eq!(no_worker("recordr-3", &names[..2]), all);
        assert_eq!(no_worker("x", &[]), "no worker `x`; it has no worker");
    }
}
