//! `verify`: reads run logs and tells whether every job was run by one worker at a time.

mod judge;
mod lines;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use serde_json::{Value, json};

use judge::{Event, Gap, Judge, Overlap, Regression, Replication, RunName, Verdict};
use lines::{Lines, News, Owned, Torn};

/// How many lines are held back so that those of several writers can be put in order.
const HELD_BACK_MAX: usize = 1 << 16;
/// A clock that went back further than this, in nanoseconds, for a session that nobody knows, was
/// started anew with its machine.
const RESTART_NS: u64 = 60_000_000_000;

/// Arguments of `verify`.
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// The run logs of one machine, merged by time
    #[arg(value_name = "LOG", required = true)]
    logs: Vec<PathBuf>,
    /// How to tell it: text for people, or one JSON document
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Every worker runs every job, so only runs on the same worker can overlap
    #[arg(long)]
    replication_all: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people
    Text,
    /// One JSON document
    Json,
}

/// Judges the logs. Exit codes: 0 good, 1 a log is damaged, 2 not a run log, 3 jobs were run by two
/// at once, or tokens went back.
pub(crate) fn verify(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let replication = if args.replication_all { Replication::All } else { Replication::One };
    let (verdict, torn) = match judged(&args.logs, replication) {
        Ok(found) => found,
        Err(sentence) => {
            complain(&sentence);
            return Ok(ExitCode::from(2));
        }
    };
    let mut stdout = io::stdout().lock();
    match args.output {
        Output::Text => stdout.write_all(text(&verdict, torn).as_bytes())?,
        Output::Json => writeln!(stdout, "{:#}", document(&verdict, torn))?,
    }
    if let Some(number) = torn.first {
        let count = torn.unexplained;
        complain(&format!(
            "{count} torn lines that no killed writer explains, first line {number}"
        ));
    }
    Ok(match (verdict.is_good(), torn.unexplained) {
        (false, _) => ExitCode::from(3),
        (true, 0) => ExitCode::SUCCESS,
        (true, _) => ExitCode::FAILURE,
    })
}

/// Reads the logs to their ends, merged by time, in bounded memory.
fn judged(paths: &[PathBuf], replication: Replication) -> Result<(Verdict, Torn), String> {
    let told = |path: &PathBuf, error: io::Error| format!("{}: {error}", path.display());
    let mut logs = Vec::new();
    for path in paths {
        logs.push(Log::open(path).map_err(|error| told(path, error))?);
    }
    let mut judge = Judge::new(replication);
    let mut held_back = BinaryHeap::new();
    let mut epoch = 0;
    let mut judge_next = |held_back: &mut BinaryHeap<Reverse<Held>>| {
        let Some(Reverse(held)) = held_back.pop() else { return };
        if epoch < held.epoch {
            epoch = held.epoch;
            judge.machine_started();
        }
        judge.take(&held.line.line());
    };
    // The log that is behind is read on, so that all advance together.
    while let Some(at) =
        (0..logs.len()).filter(|at| !logs[*at].is_read).min_by_key(|at| logs[*at].at)
    {
        let held = logs[at].next().map_err(|error| told(&paths[at], error))?;
        held_back.extend(held.map(Reverse));
        if HELD_BACK_MAX < held_back.len() {
            judge_next(&mut held_back);
        }
    }
    while !held_back.is_empty() {
        judge_next(&mut held_back);
    }
    let mut all = Torn::default();
    for (log, path) in logs.iter().zip(paths) {
        if !log.lines.is_run_log() {
            let path = path.display();
            return Err(format!("{path} is no run log: no line of it is one of a run log"));
        }
        let torn = log.lines.torn();
        all.lines += torn.lines;
        all.unexplained += torn.unexplained;
        all.first = all.first.or(torn.first);
    }
    Ok((judge.verdict(), all))
}

/// A log that is being read.
struct Log {
    lines: Lines<File>,
    /// How often its machine was started again, and the newest time since.
    at: (u32, u64),
    is_read: bool,
}

/// A line that waits for earlier ones. The order of the fields is the order of judging.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    epoch: u32,
    t: u64,
    /// Who starts at the very moment another ends does not overlap with it.
    event: Event,
    line: Owned,
}

impl Log {
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { lines: Lines::open(path)?, at: (0, 0), is_read: false })
    }

    fn next(&mut self) -> io::Result<Option<Held>> {
        let Some((line, news)) = self.lines.next()? else {
            self.is_read = true;
            return Ok(None);
        };
        let (epoch, newest) = self.at;
        self.at = match news {
            News::Session if line.t.saturating_add(RESTART_NS) < newest => (epoch + 1, line.t),
            News::Session | News::Nothing => (epoch, newest.max(line.t)),
        };
        Ok(Some(Held { epoch: self.at.0, t: line.t, event: line.event, line }))
    }
}

fn complain(sentence: &str) {
    // Where standard error is closed, nobody is there to be told.
    let _ = writeln!(io::stderr(), "swarm-operator: {sentence}");
}

fn ms(ns: u64) -> f64 {
    // Thousandths are exact enough, and shorter to read.
    (Duration::from_nanos(ns).as_secs_f64() * 1e6).round() / 1e3
}

fn document(verdict: &Verdict, torn: Torn) -> Value {
    let Verdict {
        jobs,
        runs,
        overlaps,
        regressions,
        overlaps_left_out,
        regressions_left_out,
        longest_gap,
    } = verdict;
    let run = |run: &RunName| {
        let RunName { worker, session, token } = run;
        json!({"worker": worker, "session": session, "token": token})
    };
    let overlap = |overlap: &Overlap| {
        let Overlap { job, older, newer, from, until } = overlap;
        let ms = ms(until - from);
        json!({
            "job": job, "older": run(older), "newer": run(newer),
            "from": from, "until": until, "ms": ms,
        })
    };
    let regression = |regression: &Regression| {
        let Regression { job, t, token, after, session } = regression;
        json!({"job": job, "t": t, "token": token, "after": after, "session": session})
    };
    let Torn { lines, unexplained, first: _ } = torn;
    json!({
        "jobs": jobs,
        "runs": runs,
        "overlaps": overlaps.iter().map(overlap).collect::<Vec<_>>(),
        "overlaps_left_out": overlaps_left_out,
        "token_regressions": regressions.iter().map(regression).collect::<Vec<_>>(),
        "token_regressions_left_out": regressions_left_out,
        "longest_gap_ms": longest_gap.as_ref().map_or(0.0, |gap| ms(gap.ns)),
        "longest_gap_job": longest_gap.as_ref().map(|gap| &gap.job),
        "torn_lines": lines,
        "torn_lines_unexplained": unexplained,
    })
}

fn text(verdict: &Verdict, torn: Torn) -> String {
    let Verdict {
        jobs,
        runs,
        overlaps,
        regressions,
        overlaps_left_out,
        regressions_left_out,
        longest_gap,
    } = verdict;
    let mut lines = vec![format!("{jobs} jobs, {runs} runs")];
    let run = |run: &RunName| {
        let RunName { worker, session, token } = run;
        format!("{worker} (session {session}, token {token})")
    };
    lines.extend(overlaps.iter().map(|overlap| {
        let Overlap { job, older, newer, from, until } = overlap;
        let (older, newer, ms) = (run(older), run(newer), ms(until - from));
        format!("overlap: {job} still ran on {older} {ms} ms after {newer} had started it")
    }));
    lines.extend(regressions.iter().map(|regression| {
        let Regression { job, t, token, after, session } = regression;
        format!("token went back: {job} started with {token} after {after} in {session} at {t}")
    }));
    let left_out = overlaps_left_out + regressions_left_out;
    if 0 < left_out {
        lines.push(format!("and {left_out} more"));
    }
    if verdict.is_good() {
        lines.push("no job was run by two at once, and tokens only rose".to_owned());
    }
    if let Some(Gap { job, from: _, ns }) = longest_gap {
        lines.push(format!("longest gap: {} ms, {job}", ms(*ns)));
    }
    if 0 < torn.lines {
        lines.push(format!("{} torn lines, {} unexplained", torn.lines, torn.unexplained));
    }
    lines.push(String::new());
    lines.join("\n")
}
