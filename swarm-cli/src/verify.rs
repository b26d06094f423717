//! `verify`: checks run logs for jobs that two workers ran at once.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use swarm_adapters_host::runlog::alone::{Company, Solitude};
use swarm_adapters_host::runlog::judge::{
    Gap, Overlap, Regression, Replication, RunName, Unseen, Verdict,
};
use swarm_adapters_host::runlog::{self, Coverage, Damage, Entry, Missing, ReadError, judged};
use swarm_local::NamedPool;
use swarm_terminal::output::{NO, Output, WRONG, complain, print};
use swarm_view::printable::{Form, printable};
use swarm_view::verify::{self as document, Verification};

/// Arguments of `verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  swarm verify --pool streams                                the logs of a pool
  swarm verify run.log.1 run.log -o json                     with the log before it was rotated")]
pub(crate) struct VerifyArgs {
    /// Run logs of one machine; their lines are merged by time
    #[arg(value_name = "LOG", required_unless_present_any = ["pool", "dir"])]
    #[arg(conflicts_with_all = ["pool", "dir"])]
    logs: Vec<PathBuf>,
    /// The pool whose run logs are checked
    #[command(flatten)]
    pool: NamedPool,
    /// The output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t)]
    output: Output,
    /// Expect every worker to run every job: only runs on the same worker count as overlaps
    #[arg(long)]
    replication_all: bool,
    /// Expect jobs that one worker ran at some times, and every worker at others. A job may run on
    /// several workers under one token, and never under two tokens at once
    #[arg(long, conflicts_with = "replication_all")]
    replication_changes: bool,
    /// Expect no other job on a worker while it runs JOB, as beside one with a share of 100; may be
    /// given several times
    #[arg(long, value_name = "JOB")]
    alone: Vec<String>,
}

impl VerifyArgs {
    fn replication(&self) -> Replication {
        match (self.replication_all, self.replication_changes) {
            (false, false) => Replication::One,
            (true, _) => Replication::All,
            (false, true) => Replication::Changing,
        }
    }
}

/// Checks the logs. Exit code 0: they are good. 1: they are empty, incomplete or damaged. 2: a file
/// is not a run log. 3: two workers ran a job at once, or a token decreased.
pub(crate) fn verify(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let logs = match args.logs.as_slice() {
        [] => match args.pool.run_logs() {
            Ok(logs) => logs,
            Err(sentence) => {
                complain(&sentence);
                return Ok(ExitCode::from(WRONG));
            }
        },
        named => named.to_vec(),
    };
    let found = judged(&logs, args.replication())
        .and_then(|found| Ok((found, company(&logs, &args.alone)?)));
    let ((verdict, damage), company) = match found {
        Ok(found) => found,
        Err(error) => {
            complain(&error.to_string());
            return Ok(ExitCode::from(WRONG));
        }
    };
    // Names in a log are untrusted.
    let (answer, form) = match args.output {
        Output::Text => (text(&verdict, &damage, &company), Form::Lines),
        Output::Json => {
            (format!("{:#}\n", json!(document(&verdict, &damage, &company))), Form::Json)
        }
    };
    print(&printable(&answer, form))?;
    if let Some(number) = damage.torn.first {
        let count = counted(damage.torn.unexplained, "damaged line");
        complain(&format!(
            "{count} that a killed writer does not explain; the first is line {number}"
        ));
    }
    for log in logs.iter().filter(|_| 0 < verdict.runs_without_start) {
        let before = runlog::rotated(log);
        if before.exists() && !logs.contains(&before) {
            let before = before.display();
            complain(&format!("{before} has what was written before; check it as well"));
        }
    }
    let is_whole = verdict.is_complete() && damage.is_none();
    Ok(match (verdict.is_good() && company.is_empty(), is_whole) {
        (false, _) => ExitCode::from(NO),
        (true, true) => ExitCode::SUCCESS,
        (true, false) => ExitCode::FAILURE,
    })
}

/// Finds jobs that ran in parallel with a job that must run alone.
fn company(logs: &[PathBuf], alone: &[String]) -> Result<Vec<Company>, ReadError> {
    let mut solitude = Solitude::of(alone.iter().cloned());
    if !alone.is_empty() {
        runlog::read(logs, |entry| match entry {
            Entry::Line(line) => solitude.take(&line),
            Entry::MachineStarted => solitude.machine_started(),
        })?;
    }
    Ok(solitude.company())
}

/// Formats a number and its noun.
fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn ms(ns: u64) -> f64 {
    // Microseconds are precise enough, and shorter to read.
    (Duration::from_nanos(ns).as_secs_f64() * 1e6).round() / 1e3
}

/// Formats a time since boot in seconds.
fn at(ns: u64) -> String {
    format!("{:.3} s", Duration::from_nanos(ns).as_secs_f64())
}

fn run_of(run: &RunName) -> document::RunName {
    let RunName { worker, session, token } = run.clone();
    document::RunName { worker, session, token }
}

fn overlap_of(overlap: &Overlap) -> document::Overlap {
    let Overlap { job, older, newer, from, until } = overlap;
    document::Overlap {
        job: job.clone(),
        older: run_of(older),
        newer: run_of(newer),
        from: *from,
        until: *until,
        ms: ms(until - from),
    }
}

fn regression_of(regression: &Regression) -> document::Regression {
    let Regression { job, t, token, after, session } = regression.clone();
    document::Regression { job, t, token, after, session }
}

fn unseen_of(unseen: &Unseen) -> document::Unseen {
    let Unseen { job, run, since } = unseen;
    document::Unseen { job: job.clone(), run: run_of(run), since: *since }
}

fn company_of(company: &Company) -> document::Company {
    let Company { worker, job, other, from, until } = company.clone();
    document::Company { worker, job, other, from, until, ms: ms(until - from) }
}

fn missing_of(missing: &Missing) -> document::Missing {
    let Missing { session, from, until } = missing.clone();
    document::Missing { session, from, until, ms: ms(until - from) }
}

fn document(verdict: &Verdict, damage: &Damage, company: &[Company]) -> Verification {
    let Damage { torn, repeated, coverage } = damage;
    let Coverage { from, until, reboots, gaps, gaps_left_out, without_end, off_since } = coverage;
    let longest_gap = verdict.longest_gap.as_ref();
    Verification {
        from: *from,
        until: from.map(|_| *until),
        reboots: *reboots,
        gaps: gaps.iter().map(missing_of).collect(),
        gaps_left_out: *gaps_left_out,
        off_since: *off_since,
        sessions_without_end: *without_end,
        jobs: verdict.jobs,
        runs: verdict.runs,
        runs_without_start: verdict.runs_without_start,
        runs_without_stop: verdict.runs_without_stop,
        repeated_lines: *repeated,
        overlaps: verdict.overlaps.iter().map(overlap_of).collect(),
        overlaps_left_out: verdict.overlaps_left_out,
        token_regressions: verdict.regressions.iter().map(regression_of).collect(),
        token_regressions_left_out: verdict.regressions_left_out,
        beside: company.iter().map(company_of).collect(),
        unseen_ends: verdict.unseen.iter().map(unseen_of).collect(),
        longest_gap_ms: longest_gap.map_or(0.0, |gap| ms(gap.ns)),
        longest_gap_job: longest_gap.map(|gap| gap.job.clone()),
        torn_lines: torn.lines,
        torn_lines_unexplained: torn.unexplained,
    }
}

fn text(verdict: &Verdict, damage: &Damage, company: &[Company]) -> String {
    let Verdict {
        jobs,
        runs,
        runs_without_start: _,
        runs_without_stop: _,
        overlaps,
        regressions,
        overlaps_left_out,
        regressions_left_out,
        unseen,
        longest_gap,
    } = verdict;
    let jobs = counted(u64::try_from(*jobs).unwrap_or(u64::MAX), "job");
    let mut lines = vec![format!("{jobs}, {}", counted(*runs, "run"))];
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
    lines.extend(company.iter().map(|company| {
        let Company { worker, job, other, from, until } = company;
        format!("not alone: {other} ran on {worker} beside {job} for {} ms", ms(until - from))
    }));
    let left_out = overlaps_left_out + regressions_left_out;
    if 0 < left_out {
        lines.push(format!("and {left_out} more"));
    }
    if verdict.is_good() {
        let judgement = if verdict.is_complete() && damage.is_none() {
            "no job was run by two workers at once, and no token decreased"
        } else {
            "not judged: the logs are empty or incomplete"
        };
        lines.push(judgement.to_owned());
    }
    lines.extend(unseen.iter().map(|Unseen { job, run: of, since }| {
        let (of, since) = (run(of), at(*since));
        format!(
            "not seen: the end of {job} on {of}, which should have ended at {since}; its processes \
             could not be ended"
        )
    }));
    lines.extend(covered(&damage.coverage));
    lines.extend(unknown(verdict));
    if let Some(Gap { job, from: _, ns }) = longest_gap {
        lines.push(format!("longest gap: {} ms, {job}", ms(*ns)));
    }
    let Damage { torn, repeated, .. } = damage;
    if 0 < torn.lines {
        let lines_torn = counted(torn.lines, "damaged line");
        lines.push(format!("{lines_torn}, {} unexplained", torn.unexplained));
    }
    if 0 < *repeated {
        lines.push(format!("{} left out: read before", counted(*repeated, "repeated line")));
    }
    lines.push(String::new());
    lines.join("\n")
}

/// Returns sentences about the time that the logs cover, and about missing lines.
fn covered(coverage: &Coverage) -> Vec<String> {
    let Coverage { from, until, reboots, gaps, gaps_left_out, without_end: _, off_since } =
        coverage;
    let Some(from) = from else { return Vec::new() };
    let (from, until) = (at(*from), at(*until));
    let mut lines = vec![match reboots {
        0 => format!("judged: from {from} to {until} after the boot"),
        count => format!(
            "judged: from {from} after the first boot to {until} after the last, across {}",
            counted(u64::from(*count), "reboot")
        ),
    }];
    lines.extend(gaps.iter().map(|Missing { session, from, until }| {
        let of = session.as_ref().map(|session| format!(" of session {session}"));
        let (of, from, until) = (of.unwrap_or_default(), at(*from), at(*until));
        format!("missing: lines{of} from {from} to {until}")
    }));
    if 0 < *gaps_left_out {
        lines.push(format!("and {gaps_left_out} more"));
    }
    if let Some(since) = off_since {
        let since = at(*since);
        lines.push(format!(
            "off: since {since} the pool runs with `--run-log off`, and is not judged"
        ));
    }
    lines
}

/// Returns sentences about runs whose start or stop is missing from the logs.
fn unknown(verdict: &Verdict) -> impl Iterator<Item = String> {
    let Verdict { runs_without_start, runs_without_stop, .. } = verdict;
    let started =
        (*runs_without_start, "without a start in the logs: the runs before it are unknown");
    let stopped = (
        *runs_without_stop,
        "without a stop, as of a killed worker: it counts as ended after its last line",
    );
    [started, stopped]
        .into_iter()
        .filter(|(count, _)| 0 < *count)
        .map(|(count, what)| format!("{} {what}", counted(count, "run")))
}
