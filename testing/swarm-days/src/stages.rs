//! The stages of a day, as data: the act of each stage, and its allowed cost for the recorders.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::files::Run;
use crate::judge::Judge;
use crate::pool::{Launch, Pool, until};
use crate::procs::{self, Role};
use crate::recorders::{self, Kind, STOP_TIMEOUT};

/// A stage. It begins and ends with a pool in which every recorder records, except the last one.
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    /// The cause of stand-stills, for the table.
    pub(crate) cause: &'static str,
    /// The preparation, which is not judged.
    pub(crate) prepare: Option<fn(&mut Pool) -> io::Result<()>>,
    pub(crate) act: fn(&mut Pool) -> io::Result<()>,
    pub(crate) judge: Judge,
}

/// The time for which a pool is watched that should not change.
const WATCHED: Duration = Duration::from_secs(5);
/// The longest time without a process, for a recorder that moves or is restarted.
const MOVE: Duration = Duration::from_millis(1500);
/// The same after the end of everything: the operator and its workers start as well.
const RESTART: Duration = Duration::from_secs(3);

const fn stops_for(bound: Duration) -> Judge {
    Judge::StopsFor { bound }
}

/// All stages of a day, in their order.
pub(crate) const STAGES: [Stage; 19] = [
    Stage {
        name: "start",
        cause: "the pool starts, with one worker",
        prepare: None,
        act: start,
        judge: Judge::NothingStops,
    },
    Stage {
        name: "grow",
        cause: "`replicas` 1 → 8",
        prepare: None,
        act: |pool| scale(pool, 8),
        judge: stops_for(MOVE),
    },
    Stage {
        name: "shrink",
        cause: "`replicas` 8 → 2",
        prepare: None,
        act: |pool| scale(pool, 2),
        judge: stops_for(MOVE),
    },
    Stage {
        name: "slow-list",
        cause: "the file is rewritten in place, with a pause of 5 s in the middle",
        prepare: None,
        act: slow_list,
        judge: Judge::NothingStops,
    },
    Stage {
        name: "appended-list",
        cause: "the file is rewritten in place, line by line",
        prepare: None,
        act: appended_list,
        judge: Judge::NothingStops,
    },
    Stage {
        name: "cut-list",
        cause: "the file ends in the middle of a line for 5 s",
        prepare: None,
        act: cut_list,
        judge: Judge::NothingStops,
    },
    Stage {
        name: "limit",
        cause: "an edit of `restart.limit`",
        prepare: None,
        act: edit_limit,
        judge: Judge::NothingStops,
    },
    Stage {
        name: "command",
        cause: "an edit of `command`",
        prepare: None,
        act: edit_command,
        judge: stops_for(MOVE),
    },
    Stage {
        name: "recorder",
        cause: "a recorder is killed",
        prepare: None,
        act: kill_a_recorder,
        judge: stops_for(MOVE),
    },
    Stage {
        name: "worker",
        cause: "a worker is killed",
        prepare: None,
        act: |pool| kill_of_a_worker(pool, Role::Worker),
        judge: stops_for(MOVE),
    },
    Stage {
        name: "guard",
        cause: "a guard is killed",
        prepare: None,
        act: |pool| kill_of_a_worker(pool, Role::Guard),
        judge: stops_for(MOVE),
    },
    Stage {
        name: "nohup",
        cause: "the terminal of a pool with `nohup` is closed",
        prepare: Some(|pool| on_a_terminal(pool, Launch::Nohup)),
        act: close_with_nohup,
        judge: Judge::NothingStops,
    },
    Stage {
        name: "hangup",
        cause: "the terminal of a pool without `nohup` is closed, and the pool started again",
        prepare: Some(|pool| on_a_terminal(pool, Launch::Bare)),
        act: |pool| ended_by(pool, Pool::close_the_terminal),
        judge: stops_for(STOP_TIMEOUT.saturating_add(RESTART)),
    },
    Stage {
        name: "operator",
        cause: "the operator is killed, and started again",
        prepare: None,
        act: |pool| ended_by(pool, kill_the_operator),
        judge: stops_for(STOP_TIMEOUT.saturating_add(RESTART)),
    },
    Stage {
        name: "term-operator",
        cause: "SIGTERM to the operator, and a new start",
        prepare: None,
        act: |pool| ended_by(pool, term_the_operator),
        judge: stops_for(STOP_TIMEOUT.saturating_add(RESTART)),
    },
    Stage {
        name: "term-all",
        cause: "SIGTERM to every process, and a new start",
        prepare: None,
        act: |pool| ended_by(pool, |pool| pool.signal_all(Signal::TERM)),
        judge: stops_for(STOP_TIMEOUT.saturating_add(RESTART)),
    },
    Stage {
        name: "kill-all",
        cause: "every process is killed, and a new start",
        prepare: None,
        act: |pool| ended_by(pool, |pool| pool.signal_all(Signal::KILL)),
        judge: stops_for(RESTART),
    },
    Stage {
        name: "stop-start",
        cause: "`stop`, and a new start",
        prepare: None,
        act: |pool| ended_by(pool, Pool::stop),
        judge: stops_for(STOP_TIMEOUT.saturating_add(RESTART)),
    },
    Stage {
        name: "stop",
        cause: "`stop`; then `verify` of the run log",
        prepare: None,
        act: stop_and_verify,
        judge: Judge::NothingStops,
    },
];

/// All recorders that leave files.
fn everybody() -> BTreeSet<String> {
    recorders::recording().map(|(job, _)| job).collect()
}

fn start(pool: &mut Pool) -> io::Result<()> {
    pool.start()?;
    pool.all_record()?;
    // The pool names the recorder that never records.
    let broken = recorders::broken();
    until("the broken recorder fails", || Ok(failing(pool)?.contains(&broken).then_some(())))
}

/// The jobs that fail, as the pool reports.
fn failing(pool: &Pool) -> io::Result<BTreeSet<String>> {
    let output = pool.ask(&["ps", "--failing", "-o", "json"])?;
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let jobs = answer["jobs"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(jobs.iter().filter_map(|job| Some(job["job"].as_str()?.to_owned())).collect())
}

fn scale(pool: &mut Pool, workers: usize) -> io::Result<()> {
    let words = format!("jobs on {workers} worker");
    let before = (pool.printed().matches(&words).count(), pool.jobs());
    pool.settings.workers = workers;
    pool.save()?;
    pool.prints(&words, before.0)?;
    pool.all_record()?;
    let after = pool.jobs();
    let has_moved = |job: &String| before.1.get(job) != after.get(job);
    let moved: BTreeSet<_> = everybody().into_iter().filter(has_moved).collect();
    pool.notes.push(format!("{} recorders have moved", moved.len()));
    pool.concerned = Some(moved);
    Ok(())
}

/// Watches a pool that should not change, then makes its file whole again.
fn watched(pool: &mut Pool) -> io::Result<()> {
    sleep(WATCHED);
    pool.save()?;
    sleep(WATCHED);
    pool.all_record()?;
    Ok(())
}

fn slow_list(pool: &mut Pool) -> io::Result<()> {
    let text = pool.manifest();
    let middle = text.find("    - {name: camera-20").unwrap_or_default();
    let (first, rest) = text.split_at(middle);
    pool.rewrite(&[first, rest], WATCHED)?;
    watched(pool)
}

fn appended_list(pool: &mut Pool) -> io::Result<()> {
    let text = pool.manifest();
    let lines: Vec<_> = text.split_inclusive('\n').collect();
    pool.rewrite(&lines, Duration::from_millis(100))?;
    watched(pool)
}

fn cut_list(pool: &mut Pool) -> io::Result<()> {
    let text = pool.manifest();
    let middle = text.find("camera-20").unwrap_or_default();
    pool.rewrite(&[&text[..middle]], Duration::ZERO)?;
    watched(pool)
}

fn edit_limit(pool: &mut Pool) -> io::Result<()> {
    pool.settings.limit += 1;
    pool.save()?;
    watched(pool)
}

fn edit_command(pool: &mut Pool) -> io::Result<()> {
    let before = pool.at_work()?;
    pool.settings.version += 1;
    pool.save()?;
    pool.all_record_but(&before, &everybody())?;
    Ok(())
}

/// Kills the process of one recorder, and measures the time until the pool reports that.
fn kill_a_recorder(pool: &mut Pool) -> io::Result<()> {
    let before = pool.at_work()?;
    let failing_before = failing(pool)?;
    let is_well = |(job, _): &(&String, &Run)| {
        recorders::kind_of(job) == Kind::Plain && !failing_before.contains(*job)
    };
    let Some((job, run)) = before.iter().find(is_well) else {
        return Err(io::Error::other("no recorder is well"));
    };
    let concerned = BTreeSet::from([job.clone()]);
    pool.excuse(&concerned)?;
    let line = format!("{job} on ");
    let lines = pool.printed().matches(&line).count();
    procs::signal(run.pid, Signal::KILL);
    let killed = Instant::now();
    until("`ps --failing` lists the recorder", || Ok(failing(pool)?.contains(job).then_some(())))?;
    let of_status = killed.elapsed().as_millis();
    // If many others fail as well, the output counts them instead.
    let of_output = (lines < pool.printed().matches(&line).count()).then_some("as well");
    let of_output = of_output.unwrap_or("not yet");
    pool.notes
        .push(format!("`ps --failing` listed it after {of_status} ms, the output {of_output}"));
    pool.all_record_but(&before, &concerned)?;
    pool.concerned = Some(concerned);
    Ok(())
}

/// Kills a worker or its guard.
fn kill_of_a_worker(pool: &mut Pool, role: fn(String) -> Role) -> io::Result<()> {
    let (before, jobs) = (pool.at_work()?, pool.jobs());
    let Some(worker) = jobs.values().next().cloned() else {
        return Err(io::Error::other("no worker has a job"));
    };
    let concerned: BTreeSet<_> =
        everybody().into_iter().filter(|job| jobs.get(job) == Some(&worker)).collect();
    let role = role(worker);
    pool.excuse(&concerned)?;
    for pid in pool.pids(|process| process.role == role) {
        procs::signal(pid, Signal::KILL);
    }
    pool.all_record_but(&before, &concerned)?;
    pool.concerned = Some(concerned);
    Ok(())
}

fn on_a_terminal(pool: &mut Pool, launch: Launch) -> io::Result<()> {
    pool.stop()?;
    pool.start_on_a_terminal(launch)?;
    pool.all_record()?;
    Ok(())
}

fn close_with_nohup(pool: &mut Pool) -> io::Result<()> {
    let before = pool.at_work()?;
    pool.close_the_terminal()?;
    // An operator that ends needs as long as the recorders that ignore SIGTERM.
    sleep(WATCHED + STOP_TIMEOUT);
    if pool.pids(|process| process.role == Role::Operator).is_empty() {
        pool.faults.push("the operator ended with its terminal, in spite of nohup".to_owned());
        return again(pool, &before);
    }
    pool.all_record()?;
    Ok(())
}

fn kill_the_operator(pool: &mut Pool) -> io::Result<()> {
    signal_the_operator(pool, Signal::KILL)
}

fn term_the_operator(pool: &mut Pool) -> io::Result<()> {
    signal_the_operator(pool, Signal::TERM)
}

#[expect(clippy::unnecessary_wraps, reason = "it is one of several ways to end a pool")]
fn signal_the_operator(pool: &Pool, kind: Signal) -> io::Result<()> {
    for pid in pool.pids(|process| process.role == Role::Operator) {
        procs::signal(pid, kind);
    }
    Ok(())
}

/// Ends the pool in some way, and starts it again once no process is left.
fn ended_by(pool: &mut Pool, end: impl Fn(&mut Pool) -> io::Result<()>) -> io::Result<()> {
    let before = pool.at_work()?;
    end(pool)?;
    again(pool, &before)
}

fn again(pool: &mut Pool, before: &BTreeMap<String, Run>) -> io::Result<()> {
    let since = Instant::now();
    pool.gone()?;
    pool.notes.push(format!("no process was left after {:.1} s", since.elapsed().as_secs_f64()));
    pool.start()?;
    pool.all_record_but(before, &everybody())?;
    Ok(())
}

fn stop_and_verify(pool: &mut Pool) -> io::Result<()> {
    pool.stop()?;
    let (is_good, said) = pool.verified()?;
    if is_good {
        pool.notes.push(said.replace('\n', "; "));
    } else {
        pool.faults.push(format!("verify: {said}"));
    }
    Ok(())
}
