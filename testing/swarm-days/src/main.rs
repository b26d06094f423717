//! Runs ordinary days at speed. Forty recorders go through the events of months in a pool on one
//! machine, and their files are judged.
//!
//! `swarm-days` runs all [`STAGES`], and `swarm-days NAME…` runs the named stages after a start and
//! before a stop. It prints the findings of each stage. Then it prints a table of how long the
//! recorders stood still, by cause. The exit code is 1 if a stage has a fault. `SWARM_OPERATOR`
//! names the program to judge; otherwise one is built. It needs ffmpeg and ffprobe.

mod files;
mod judge;
mod pool;
mod procs;
mod recorders;
mod runs;
mod stages;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime};
use std::{fs, io};

use judge::{Judged, Row};
use pool::Pool;
use stages::{STAGES, Stage};

/// The most faults of a stage that are printed.
const FAULTS_SHOWN: usize = 8;

fn main() -> ExitCode {
    let named: Vec<_> = std::env::args().skip(1).collect();
    if let Some(unknown) = named.iter().find(|name| STAGES.iter().all(|it| it.name != **name)) {
        let known = STAGES.map(|stage| stage.name).join(", ");
        eprintln!("there is no stage {unknown:?}; write any of {known}");
        return ExitCode::FAILURE;
    }
    match days(&named) {
        Ok(rows) => {
            println!("\n{}", judge::table(&rows));
            let failed: Vec<_> =
                rows.iter().filter(|row| !row.faults.is_empty()).map(|row| row.cause).collect();
            if failed.is_empty() {
                println!("\nevery stage is as it should be");
                return ExitCode::SUCCESS;
            }
            println!("\n{} of {} stages have faults:", failed.len(), rows.len());
            for cause in failed {
                println!("- {cause}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the stages. Keeps the directory if a stage has a fault.
fn days(named: &[String]) -> io::Result<Vec<Row>> {
    for program in ["ffmpeg", "ffprobe"] {
        let version = Command::new(program).arg("-version").stdout(Stdio::null()).status();
        if !version.is_ok_and(|status| status.success()) {
            return Err(io::Error::other(format!("install {program}: the recorders need it")));
        }
    }
    let dir = std::env::temp_dir().join(format!("swarm-days-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    let mut pool = Pool::new(program()?, dir.clone())?;
    let needs = recorders::started_alone(&dir.join("alone"))?;
    println!(
        "the machine starts {} recorders in {:.1} s, without a pool",
        recorders::COUNT,
        needs.as_secs_f64()
    );
    let mut judged = Judged::new();
    let mut rows = Vec::new();
    let is_wanted = |stage: &&Stage| {
        named.is_empty()
            || ["start", "stop"].contains(&stage.name)
            || named.iter().any(|it| it == stage.name)
    };
    for stage in STAGES.iter().filter(is_wanted) {
        let row = lived_through(&mut pool, &mut judged, stage, needs)?;
        rows.push(row);
    }
    drop(pool);
    if rows.iter().all(|row| row.faults.is_empty()) {
        fs::remove_dir_all(&dir)?;
    } else {
        println!("everything is kept in {}", dir.display());
    }
    Ok(rows)
}

/// Runs one stage, and prints its findings.
fn lived_through(
    pool: &mut Pool,
    judged: &mut Judged,
    stage: &Stage,
    needs: Duration,
) -> io::Result<Row> {
    println!("\n{}: {}", stage.name, stage.cause);
    // A stand-still between two stages counts. A stand-still while a stage is prepared does not.
    if let Some(prepare) = stage.prepare {
        prepare(pool)?;
        judged.until = SystemTime::now();
    }
    let began = Instant::now();
    if let Err(error) = (stage.act)(pool) {
        // The next stage begins with a pool that records.
        pool.faults.push(error.to_string());
        pool.signal_all(rustix::process::Signal::KILL)?;
        pool.gone()?;
        pool.save()?;
        pool.start()?;
        pool.all_record()?;
    }
    let took = began.elapsed();
    let row = judge::judge(pool, judged, (stage.cause, stage.judge), needs)?;
    println!(
        "  {:.1} s, {} gaps between files, {} files judged",
        took.as_secs_f64(),
        row.gaps.len(),
        row.files
    );
    for note in &row.notes {
        println!("  {note}");
    }
    for fault in row.faults.iter().take(FAULTS_SHOWN) {
        println!("  FAULT {fault}");
    }
    if FAULTS_SHOWN < row.faults.len() {
        println!("  and {} more", row.faults.len() - FAULTS_SHOWN);
    }
    Ok(row)
}

/// The program that is judged.
fn program() -> io::Result<PathBuf> {
    if let Some(program) = std::env::var_os("SWARM_OPERATOR") {
        return fs::canonicalize(program);
    }
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "-p", "swarm-cli", "--bin", "swarm"])
        .status()?;
    if !built.success() {
        return Err(io::Error::other("swarm cannot be built"));
    }
    let me = std::env::current_exe()?;
    Ok(me.parent().unwrap_or(Path::new(".")).join("swarm"))
}
