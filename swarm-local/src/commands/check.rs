//! `check`: whether this machine can run pools, and whether the present ones are sound.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use rustix::fs::statvfs;
use serde_json::json;
use swarm_adapters_host::{caller, watch};
use swarm_terminal::output::{self, NO, Output};
use swarm_view::check::{Check, Finding, Outcome};
use swarm_view::shell;
use swarm_worker::job_groups::{self, JobGroups};

use super::super::processes::remaining;
use super::pool::{Pool, Pools, known_dirs, ran_in, sorted};
use super::{Failure, PoolArgs, ended, old_program};
use crate::settings::fixed::Fixed;
use crate::state_dir::state;

/// Free bytes below which logs and ledgers may soon not fit.
const ROOM_MIN: u64 = 256 << 20;
/// Open files that suffice for a worker with a hundred jobs.
const OPEN_FILES_MIN: u64 = 256;

/// Arguments of `check`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  swarm check                     this machine, and all pools
  swarm check cams                this machine, and one pool
  swarm check --dir /srv/cams     a pool in a directory of its own")]
pub struct CheckArgs {
    /// The only pool to check, next to this machine
    #[command(flatten)]
    pub pool: PoolArgs,
    /// The output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: Output,
}

/// Checks this machine and the pools of this user, or one of them. Exit code 3 if something is wrong.
///
/// # Errors
///
/// If standard output cannot be written.
pub async fn check(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let findings = match findings(&args.pool).await {
        Ok(findings) => findings,
        Err(failure) => return ended(Err(failure)),
    };
    let check = Check::of(findings);
    match args.output {
        Output::Text => output::print(&check.text())?,
        Output::Json => output::print_json(&format!("{:#}\n", json!(check)))?,
    }
    Ok(ExitCode::from(if check.sound { 0 } else { NO }))
}

async fn findings(args: &PoolArgs) -> Result<Vec<Finding>, Failure> {
    let mut findings = vec![
        Finding::of("processes", processes()),
        Finding::of("open files", open_files()),
        Finding::of("file watches", watches()),
    ];
    let (place, dirs) = match (args.named_dir()?, state::default_home()) {
        (Some(named), _) => {
            let Some(dir) = state::find(&named)?.filter(|dir| ran_in(dir)) else {
                return Err(args.was_never_run(&named));
            };
            (dir.clone(), vec![dir])
        }
        (None, Ok(home)) => (home.clone(), known_dirs(&home)),
        (None, Err(sentence)) => {
            findings.push(Finding::of("state", (Outcome::Wrong, sentence)));
            return Ok(findings);
        }
    };
    findings.push(Finding::of("state", state_of(&place)));
    findings.push(Finding::of("room", room(&place)));
    let pools = sorted(dirs).await;
    findings.push(Finding::of("job groups", judge_groups(&pools).await));
    findings.push(Finding::of("pools", judge_running(&pools).await));
    findings.push(Finding::of("leftovers", judge_ended(&pools).await));
    Ok(findings)
}

/// Judges `/proc`. A guard finds the processes of a job there.
fn processes() -> (Outcome, String) {
    match caller::check_proc() {
        Ok(()) => (Outcome::Good, "/proc shows the processes of this machine".to_owned()),
        Err(error) => (Outcome::Wrong, error.to_string()),
    }
}

fn open_files() -> (Outcome, String) {
    match caller::open_files() {
        None => (Outcome::Good, "without a limit".to_owned()),
        Some(limit) if limit < OPEN_FILES_MIN => (
            Outcome::Wrong,
            format!(
                "the hard limit is {limit}; raise it to {OPEN_FILES_MIN} at least (`ulimit -Hn`, or \
                 LimitNOFILE= of a systemd unit)"
            ),
        ),
        Some(limit) => (Outcome::Good, format!("the hard limit is {limit}")),
    }
}

/// Judges the limits of inotify. Without it, an edit of a file is noticed after seconds.
fn watches() -> (Outcome, String) {
    match watch::check() {
        Ok(()) => (Outcome::Good, "a change of a file is noticed at once".to_owned()),
        Err(sentence) => (Outcome::Wrong, sentence),
    }
}

/// Judges the parent of the default directories, or the directory of a pool.
fn state_of(home: &Path) -> (Outcome, String) {
    match state::find(home) {
        Ok(Some(dir)) => (Outcome::Good, dir.display().to_string()),
        Ok(None) => (Outcome::Good, format!("{}; the first pool creates it", home.display())),
        Err(error) => (Outcome::Wrong, format!("{error:#}")),
    }
}

/// Judges the free space below the nearest existing directory.
fn room(home: &Path) -> (Outcome, String) {
    match home.ancestors().find_map(|dir| statvfs(dir).ok()) {
        Some(room) => judge_room(room.f_bavail.saturating_mul(room.f_frsize)),
        None => (Outcome::Wrong, format!("{} has no file system", home.display())),
    }
}

fn judge_room(free: u64) -> (Outcome, String) {
    let outcome = if free < ROOM_MIN { Outcome::Wrong } else { Outcome::Good };
    let advice = if free < ROOM_MIN {
        "; logs and ledgers need more, so free some or set another directory with --dir"
    } else {
        ""
    };
    (outcome, format!("{} MiB are free{advice}", free >> 20))
}

/// Names the pools whose jobs have a control group each: the running ones, or a pool that this shell
/// would start. Nothing is wrong without them.
async fn judge_groups(pools: &Pools) -> (Outcome, String) {
    let mut all = Vec::new();
    for (dir, _) in &pools.running {
        let pool = Pool { dir: dir.clone() };
        if let Ok(Some(operator)) = pool.operator().await {
            all.push((pool.shown(), job_groups::delegated_to(operator.pid()).map(drop)));
        }
    }
    if all.is_empty() {
        all.push(("a pool of this shell".to_owned(), JobGroups::find().map(drop)));
    }
    let said = all.into_iter().map(|(pool, found)| match found {
        Ok(()) => format!("{pool} has one for each job, which also ends programs that became root"),
        Err(reason) => format!("{pool} has none: {reason}"),
    });
    (Outcome::Good, said.collect::<Vec<_>>().join("; "))
}

/// Judges the pools that run: each must answer.
async fn judge_running(pools: &Pools) -> (Outcome, String) {
    if pools.running.is_empty() {
        return (Outcome::Good, "none runs".to_owned());
    }
    let (mut problems, mut notes) = (Vec::new(), Vec::new());
    for (dir, operator) in &pools.running {
        let pool = Pool { dir: dir.clone() };
        let name = pool.shown();
        if let Some(process) = operator {
            problems.push(format!("the operator of {name} (process {process}) has no socket"));
            continue;
        }
        match pool.swarm().await {
            Ok((_, status)) => {
                let sentences = status.problems().into_iter();
                problems.extend(sentences.map(|it| format!("{name}: {it}")));
                let of_pool = old_program::notes(&pool, &status).await.into_iter();
                notes.extend(of_pool.map(|it| format!("; {name}: {it}")));
            }
            Err(failure) => problems.push(failure.sentence()),
        }
    }
    let count = pools.running.len();
    match problems.as_slice() {
        [] => {
            let notes = notes.concat();
            (Outcome::Good, format!("{count} of {count} answer; `swarm status` shows them{notes}"))
        }
        problems => (Outcome::Wrong, problems.join("; ") + &notes.concat()),
    }
}

/// Judges the pools that have ended: a person asked for the end, and no process is left.
async fn judge_ended(pools: &Pools) -> (Outcome, String) {
    let mut problems = Vec::new();
    for dir in &pools.ended {
        let left = match remaining(dir).await {
            Ok(None) if Fixed::is_expected(dir) => {
                problems.push(Pool { dir: dir.clone() }.lost_sentence());
                continue;
            }
            Ok(None) => continue,
            Ok(Some(_)) => "processes of an earlier run go on".to_owned(),
            Err(error) => error.to_string(),
        };
        let dir = shell::file(dir);
        problems.push(format!("{left}; `swarm stop --dir {dir}` ends them"));
    }
    match problems.as_slice() {
        [] => (Outcome::Good, "no process of an ended pool goes on".to_owned()),
        problems => (Outcome::Wrong, problems.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_room_is_wrong() {
        assert_eq!(judge_room(ROOM_MIN), (Outcome::Good, "256 MiB are free".to_owned()));
        let (outcome, message) = judge_room(ROOM_MIN - 1);
        assert_eq!(outcome, Outcome::Wrong);
        assert!(message.starts_with("255 MiB are free; logs"), "{message}");
    }
}
