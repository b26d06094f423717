//! `report`: a file about a pool for a bug report.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use jiff::Timestamp;
use rustix::system::uname;
use serde_json::Value;
use swarm_adapters_host::file::{read_regular_text, regular};
use swarm_adapters_host::http::Build;
use swarm_core::history::Episode;
use swarm_spec::yaml;
use swarm_terminal::output;
use swarm_terminal::report::{LOG_LINES, LOOK, Report, With, file_name, plain};
use swarm_view::history::Past;

use super::pool::{Pool, only_ended, ran_in};
use super::{Failure, PoolArgs, ended};
use crate::pool::history;
use crate::processes::job_logs;
use crate::settings::fixed::Fixed;
use crate::settings::run_log;
use crate::state_dir::state;

/// Maximum size of a file that is read as a whole: the largest manifest.
const READ_MAX: u64 = 64 << 20;
/// Maximum size of the end of a log that is read: 1 MiB.
const TAIL_MAX: u64 = 1 << 20;
/// Maximum number of logs of one directory.
const LOGS_MAX: usize = 200;
/// Path of the metrics, which name the version of the operator.
const METRICS: &str = "/metrics";

/// Arguments of `report`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  swarm report                    the only pool, into the current directory
  swarm report cams --logs        also the last 1,000 lines of each log
  swarm report --with-values      with params, arguments and output, which may be passwords
  swarm report cams -o a.zip      into this file")]
pub struct ReportArgs {
    /// The pool, which may have ended
    #[command(flatten)]
    pub pool: PoolArgs,
    /// The file to write, which must not exist yet [default: swarm-report-POOL-TIME.zip]
    #[arg(long, short, value_name = "FILE.zip", value_parser = file_name)]
    pub output: Option<PathBuf>,
    /// Add logs or values
    #[command(flatten)]
    pub with: With,
}

/// Writes a report about a pool to a file. Exit code 3 if no such pool exists.
///
/// # Errors
///
/// If the file cannot be written, or exists already.
pub async fn report(args: ReportArgs) -> anyhow::Result<ExitCode> {
    ended(write(&args).await)
}

async fn write(args: &ReportArgs) -> Result<(), Failure> {
    let (pool, why_ended) = found(&args.pool).await?;
    let name = match Fixed::recorded(&pool.dir) {
        Ok(Some(fixed)) => fixed.swarm,
        Ok(None) | Err(_) => pool.name(),
    };
    let program = format!("swarm {}", env!("CARGO_PKG_VERSION"));
    let mut report = Report::new(&format!("pool {name}"), &program, args.with);
    let file = report.file(args.output.as_deref(), &[&name]).map_err(anyhow::Error::msg)?;
    match why_ended {
        None => add_answers(&mut report, &pool).await,
        Some(why) => report.leave_out(format!("manifest.yaml, status.json and events.json: {why}")),
    }
    add_state(&mut report, &pool.dir);
    let operator = pool.get(METRICS).await;
    let operator = match operator {
        Ok(answer) => answer.whole().await.unwrap_or_default(),
        Err(_) => Vec::new(),
    };
    report.lines("versions.txt", &versions(&String::from_utf8_lossy(&operator)));
    if args.with.logs {
        add_logs(&mut report, &pool.logs());
    } else {
        report.leave_out("logs: --logs adds the last 1,000 lines of each log");
    }
    report.save(&file).map_err(anyhow::Error::msg)?;
    output::print(&format!("{}\n{LOOK}\n", file.display()))?;
    Ok(())
}

/// Finds a pool, and the reason for which it gives no answers, as when it has ended.
async fn found(args: &PoolArgs) -> Result<(Pool, Option<String>), Failure> {
    let failure = match args.find().await {
        Ok(pool) => return Ok((pool, None)),
        Err(failure) => failure,
    };
    let dir = match args.named_dir()? {
        Some(named) => state::find(&named)?.filter(|dir| ran_in(dir)),
        None if matches!(failure, Failure::No(_)) => only_ended()?,
        None => None,
    };
    match (failure, dir) {
        (Failure::No(why), Some(dir)) => Ok((Pool { dir }, Some(why))),
        (Failure::Failed(why), Some(dir)) => Ok((Pool { dir }, Some(format!("{why:#}")))),
        (failure, _) => Err(failure),
    }
}

/// Adds the answers of a running pool.
async fn add_answers(report: &mut Report, pool: &Pool) {
    match pool.swarm().await {
        Ok((mut document, status)) => {
            document["dir"] = pool.dir.to_string_lossy().into();
            report.json("status.json", document);
            match &status.file {
                Some(file) => add_manifest(report, Path::new(file)),
                None => report.leave_out("manifest.yaml: the pool follows no file"),
            }
        }
        Err(failure) => {
            report.leave_out(format!("status.json and manifest.yaml: {}", failure.sentence()));
        }
    }
    match pool.events(0).await {
        Ok(events) => match serde_json::to_value(&events) {
            Ok(events) => report.json("events.json", events),
            Err(error) => report.leave_out(format!("events.json: {error}")),
        },
        Err(failure) => report.leave_out(format!("events.json: {}", failure.sentence())),
    }
}

/// Adds the objects of a manifest. A text that cannot be read as objects could have secrets anywhere.
fn add_manifest(report: &mut Report, file: &Path) {
    const NAME: &str = "manifest.yaml";
    let text = match read_regular_text(file, READ_MAX) {
        Ok(text) => text,
        Err(error) => return report.leave_out(format!("{NAME}: {}: {error}", file.display())),
    };
    let Ok(documents) = yaml::documents(&text) else {
        let file = file.display();
        return report.leave_out(format!(
            "{NAME}: {file} cannot be read as YAML, so its values cannot be left out"
        ));
    };
    for (_, document) in documents {
        if !report.object(NAME, document) {
            return;
        }
    }
}

/// Adds the files of the state directory.
fn add_state(report: &mut Report, dir: &Path) {
    for name in ["pool.json", "ledger.json"] {
        let text = read_regular_text(&dir.join(name), READ_MAX).map_err(|error| error.to_string());
        let value = text.and_then(|text| {
            serde_json::from_str::<Value>(&text).map_err(|_| "it cannot be read as JSON".to_owned())
        });
        match value {
            Ok(value) => report.json(name, value),
            Err(why) => report.leave_out(format!("{name}: {why}")),
        }
    }
    let (episodes, unread) = history::read(dir);
    report.lines("history.jsonl", &json_lines(&episodes));
    let past = Past { episodes: &episodes, now: Timestamp::now(), since: None };
    report.lines("history.txt", &past.table(usize::MAX, None));
    if let Some(sentence) = unread {
        report.leave_out(format!("history.jsonl and history.txt: {sentence}"));
    }
    add_tail(report, run_log::NAME, &dir.join(run_log::NAME), usize::MAX);
}

fn json_lines(episodes: &[Episode]) -> String {
    let lines = episodes.iter().filter_map(|it| serde_json::to_string(it).ok());
    lines.map(|line| line + "\n").collect()
}

/// Adds the end of a log.
fn add_tail(report: &mut Report, name: &str, path: &Path, lines: usize) {
    match tail(path, lines) {
        Ok(text) => report.lines(name, &text),
        Err(error) => report.leave_out(format!("{name}: {error}")),
    }
}

/// Returns the last lines of a file, of at most [`TAIL_MAX`] bytes.
fn tail(path: &Path, lines: usize) -> io::Result<String> {
    let mut file: File = regular(path)?;
    let from = file.metadata()?.len().saturating_sub(TAIL_MAX);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(TAIL_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let whole = if from == 0 { 0 } else { text.find('\n').map_or(0, |at| at + 1) };
    let text = text.get(whole..).unwrap_or_default();
    let before = text.trim_end_matches('\n').rmatch_indices('\n').nth(lines.saturating_sub(1));
    Ok(text.get(before.map_or(0, |(at, _)| at + 1)..).unwrap_or_default().to_owned())
}

/// Adds the ends of all logs: of the operator, of workers and of jobs.
fn add_logs(report: &mut Report, logs: &Path) {
    for (dir, shown) in [(logs.to_owned(), "logs"), (job_logs(logs), "logs/jobs")] {
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        let logs = entries.map(|entry| entry.path());
        let mut logs: Vec<_> =
            logs.filter(|path| path.extension().is_some_and(|it| it == "log")).collect();
        logs.sort();
        if LOGS_MAX < logs.len() {
            report.leave_out(format!("{shown}: {} of {} logs", logs.len() - LOGS_MAX, logs.len()));
        }
        for path in logs.iter().take(LOGS_MAX) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            add_tail(report, &format!("{shown}/{}", plain(&name)), path, LOG_LINES);
        }
    }
}

/// Returns the versions of this program, of the operator by its metrics, and of the system.
fn versions(metrics: &str) -> String {
    let Build { version, date } = Build::from_env();
    let system = uname();
    let (name, release) = (system.sysname().to_string_lossy(), system.release().to_string_lossy());
    let machine = system.machine().to_string_lossy();
    let operator = metrics.lines().find(|line| line.starts_with("swarm_build"));
    let operator = operator.unwrap_or("not known, since no operator answers");
    let version_of_crate = env!("CARGO_PKG_VERSION");
    format!(
        "program:  swarm {version_of_crate}, build {version} of {date}\noperator: {operator}\n\
         system:   {name} {release} {machine}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_of_a_log_begins_with_a_whole_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        for (text, lines, expected) in [
            ("a\nb\nc\n", 2, "b\nc\n"),
            ("a\nb\nc", 1, "c"),
            ("a\nb\n", 5, "a\nb\n"),
            ("a\nb\n", usize::MAX, "a\nb\n"),
            ("", 1, ""),
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(tail(&path, lines).unwrap(), expected, "{text:?} {lines}");
        }
        let line = "0123456789".repeat(10) + "\n";
        fs::write(&path, line.repeat(20_000)).unwrap();
        let end = tail(&path, usize::MAX).unwrap();
        assert!(end.len() <= 1 << 20 && end.lines().all(|it| it.len() == 100), "{}", end.len());
        assert!(tail(dir.path(), 1).is_err(), "a directory is no log");
    }
}
