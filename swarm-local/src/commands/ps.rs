//! `ps`: prints the jobs of a pool, one a line. Memory is bounded by a thousand lines.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use swarm_adapters_host::clock::unix_s;
use swarm_adapters_host::usage::Usage;
use swarm_terminal::show::{Answer, Display, Format};
use swarm_view::jobs::{Columns, JobEntry, JobTable, Used};
use swarm_view::pool::{Home, PoolName};
use swarm_view::printable::{Form, printable};
use swarm_view::words::counted;

use super::pool::Pool;
use super::{Failure, PoolArgs, finished, names, pool};
use crate::serve::web::{self, job_line};

/// Number of existing workers that an error names if the requested worker does not exist.
const NAMED_MAX: usize = 5;

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
        worker.as_ref().is_none_or(|worker| entry.is_on(worker))
            && job.as_ref().is_none_or(|text| entry.has(text))
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
        Format::Text | Format::Wide => Box::new(Table::new(args, format == Format::Wide)?),
        Format::Json => Box::<List>::default(),
        Format::Yaml => Box::<YamlList>::default(),
        Format::Name => Box::new(Names),
    };
    for pool in pool::every_or(args.all, &args.pool).await? {
        if let Some(worker) = &args.worker {
            has_worker(&pool, worker).await?;
        }
        let answer = pool.get(web::JOBS).await?;
        let name = args.all.then(|| pool.shown());
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

/// A table.
struct Table {
    table: JobTable,
    /// Memory and processor time of process groups, for a wide table.
    usage: Option<BTreeMap<i32, Usage>>,
}

impl Table {
    fn new(args: &PsArgs, is_wide: bool) -> io::Result<Self> {
        let usage = is_wide.then(Usage::of_groups).transpose()?;
        let columns = Columns {
            home: Home::Machine,
            is_of_all: args.all,
            is_wide,
            is_of_unassigned: args.unassigned,
        };
        Ok(Self { table: JobTable::new(columns, unix_s()), usage })
    }

    /// Returns the memory and the processor time of the job's process group.
    fn used(&self, entry: &JobEntry<String>) -> Option<Used> {
        let used = self.usage.as_ref()?.get(&entry.pid?)?;
        Some((mebibytes(used.memory_bytes), format!("{:.1} s", used.cpu.as_secs_f64())))
    }
}

impl Rows for Table {
    fn put(&mut self, to: &mut dyn Write, job: Received<'_>) -> io::Result<()> {
        let Received { pool, entry, .. } = job;
        let pool = pool.map(|pool| PoolName::Machine { pool: pool.to_owned() });
        let (used, mut text) = (self.used(&entry), String::new());
        self.table.put(&mut text, &entry, pool.as_ref(), used);
        to.write_all(text.as_bytes())
    }

    fn end(&mut self, to: &mut dyn Write) -> io::Result<()> {
        let mut text = String::new();
        self.table.end(&mut text);
        to.write_all(text.as_bytes())
    }
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
