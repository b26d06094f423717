//! `verify`: checks in run logs whether every job was run by one worker at a time.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use serde_json::{Value, json};
use swarm_adapters_host::runlog::judge::{Gap, Overlap, Regression, Replication, RunName, Verdict};
use swarm_adapters_host::runlog::{Torn, judged};

/// Arguments of `verify`.
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// Run logs of one machine; their lines are merged by time
    #[arg(value_name = "LOG", required = true)]
    logs: Vec<PathBuf>,
    /// The output format
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Expect every worker to run every job: only runs on the same worker count as overlaps
    #[arg(long)]
    replication_all: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Text for people
    Text,
    /// One JSON document
    Json,
}

/// Checks the logs. Exit codes: 0 if they are good, 1 if a log is damaged, 2 if a file is not a run
/// log, 3 if two workers ran a job at once, or a token decreased.
pub(crate) fn verify(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let replication = if args.replication_all { Replication::All } else { Replication::One };
    let (verdict, torn) = match judged(&args.logs, replication) {
        Ok(found) => found,
        Err(error) => {
            complain(&error.to_string());
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
            "{count} damaged lines that a killed writer does not explain; the first is line {number}"
        ));
    }
    Ok(match (verdict.is_good(), torn.unexplained) {
        (false, _) => ExitCode::from(3),
        (true, 0) => ExitCode::SUCCESS,
        (true, _) => ExitCode::FAILURE,
    })
}

fn complain(sentence: &str) {
    // If standard error is closed, the message is lost.
    let _ = writeln!(io::stderr(), "swarm-operator: {sentence}");
}

fn ms(ns: u64) -> f64 {
    // Microseconds are precise enough, and shorter to read.
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
        format!("token decreased: {job} started with {token} after {after} in {session} at {t}")
    }));
    let left_out = overlaps_left_out + regressions_left_out;
    if 0 < left_out {
        lines.push(format!("and {left_out} more"));
    }
    if verdict.is_good() {
        lines.push("no job was run by two workers at once, and no token decreased".to_owned());
    }
    if let Some(Gap { job, from: _, ns }) = longest_gap {
        lines.push(format!("longest gap: {} ms, {job}", ms(*ns)));
    }
    if 0 < torn.lines {
        lines.push(format!("{} damaged lines, {} unexplained", torn.lines, torn.unexplained));
    }
    lines.push(String::new());
    lines.join("\n")
}
