//! Measures pools of real processes on one machine while nothing changes: processor time, memory,
//! open files, and written bytes.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use crate::local::{self, Operator};

/// The time for which a pool is watched.
const WATCHED: Duration = Duration::from_mins(1);
/// The time after the start that is left out, in which programs load and logs are opened.
const SETTLES: Duration = Duration::from_secs(5);
/// Seconds of an hour.
const HOUR_S: f64 = 3_600.0;

/// A job that prints nothing.
const SILENT: &str = "[sleep, infinity]";
/// A job that prints a line of ten bytes every five seconds.
const TALKS: &str = "[sh, -c, 'while :; do echo recording; sleep 5; done']";

/// The processes of a pool by their part in it: `operator`, `worker` and `guard`.
type Parts = BTreeMap<&'static str, Vec<u32>>;

/// The sums of one part's processes at one moment.
#[derive(Clone, Copy, Default)]
struct Use {
    cpu_s: f64,
    written: u64,
    to_disk: u64,
    memory_kb: u64,
    files: usize,
    log_files: usize,
}

pub(crate) fn all() -> io::Result<()> {
    let programs = local::build()?;
    println!(
        "| at rest, for {WATCHED:?} | processes | CPU of all | memory of all | open files of all | \
         log files of jobs | written an hour | reached the disk |\n|---|---|---|---|---|---|---|---|"
    );
    for (workers, jobs, command) in
        [(4, 40, SILENT), (4, 40, TALKS), (1, 1_000, SILENT), (1, 1_000, TALKS)]
    {
        measure(&programs, workers, jobs, command)?;
    }
    Ok(())
}

fn measure(programs: &Path, workers: u32, jobs: u32, command: &str) -> io::Result<()> {
    let dir = local::tempdir("rest")?;
    let file = dir.join("swarm.yaml");
    let manifest = local::manifest(workers, &local::listed("job", jobs));
    let runner = format!("spec:\n  worker: {{runner: {{command: {command}}}}}\n");
    local::save(&file, &manifest.replacen("spec:\n", &runner, 1))?;
    let operator = Operator::start(programs, &file, &dir)?;
    operator.settled()?;
    sleep(SETTLES);
    let parts = parts(operator.pid())?;
    let before = uses(&parts)?;
    sleep(WATCHED);
    let after = uses(&parts)?;
    let says = if command == SILENT { "silent" } else { "a line each 5 s" };
    for (part, now) in &after {
        let earlier = before.get(part).copied().unwrap_or_default();
        let percent = 100.0 * (now.cpu_s - earlier.cpu_s) / WATCHED.as_secs_f64();
        let written = an_hour(now.written.saturating_sub(earlier.written));
        let to_disk = an_hour(now.to_disk.saturating_sub(earlier.to_disk));
        println!(
            "| {jobs} jobs on {workers}, {says}: {part} | {} | {percent:.2} % | {} MB | {} | {} | \
             {written:.2} MB | {to_disk:.2} MB |",
            parts.get(part).map_or(0, Vec::len),
            now.memory_kb / 1_000,
            now.files,
            now.log_files,
        );
    }
    drop(operator);
    fs::remove_dir_all(dir)
}

/// Finds the processes of a pool: the workers are children of the operator, and each has a guard.
fn parts(operator: u32) -> io::Result<Parts> {
    let workers = local::children(operator)?;
    let mut guards = Vec::new();
    for worker in &workers {
        guards.extend(local::children(*worker)?);
    }
    Ok(Parts::from([("operator", vec![operator]), ("worker", workers), ("guard", guards)]))
}

fn uses(parts: &Parts) -> io::Result<BTreeMap<&'static str, Use>> {
    let of = |pids: &Vec<u32>| -> io::Result<Use> {
        let mut all = Use { cpu_s: local::cpu(pids)?, ..Use::default() };
        for pid in pids {
            let counts = fs::read_to_string(format!("/proc/{pid}/io"))?;
            all.written += count(&counts, "wchar: ")?;
            let cancelled = count(&counts, "cancelled_write_bytes: ")?;
            all.to_disk += count(&counts, "write_bytes: ")?.saturating_sub(cancelled);
            all.memory_kb += local::memory(*pid)?;
            for file in fs::read_dir(format!("/proc/{pid}/fd"))? {
                all.files += 1;
                // A file may be closed between the list and this look.
                let target = fs::read_link(file?.path()).unwrap_or_default();
                all.log_files += usize::from(target.to_string_lossy().contains("/logs/jobs/"));
            }
        }
        Ok(all)
    };
    parts.iter().map(|(part, pids)| Ok((*part, of(pids)?))).collect()
}

/// Reads one line of `/proc/PID/io`. `wchar` counts the bytes of all calls of `write`, to pipes too.
/// `write_bytes` counts whole pages, and `cancelled_write_bytes` removed pages that never reached the
/// disk.
fn count(counts: &str, name: &str) -> io::Result<u64> {
    let number = counts.lines().find_map(|line| line.strip_prefix(name));
    number
        .and_then(|number| number.parse().ok())
        .ok_or_else(|| io::Error::other(format!("the kernel does not count {name}")))
}

/// Extends bytes of the watched time to megabytes of an hour.
#[expect(clippy::cast_precision_loss, reason = "a minute's bytes are few")]
fn an_hour(bytes: u64) -> f64 {
    bytes as f64 * HOUR_S / WATCHED.as_secs_f64() / 1e6
}
