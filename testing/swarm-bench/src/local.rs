//! Measures `swarm local` from outside, with real processes: the time of a handover, the cost of
//! ten thousand jobs, and the speed of a plan.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};

use crate::shown;

/// The number of moves that are measured.
const MOVES: usize = 200;
/// The limit for every wait.
const DEADLINE: Duration = Duration::from_mins(1);
/// The time for which a pool is watched at rest.
const REST: Duration = Duration::from_secs(20);

/// A running operator and the directory of its state.
pub(crate) struct Operator {
    child: Child,
    dir: PathBuf,
}

pub(crate) fn all() -> io::Result<()> {
    let programs = build()?;
    println!("| on one machine | median | 99 % | worst |\n|---|---|---|---|");
    let mut latencies = handovers(&programs)?;
    latencies.sort_unstable();
    let at = |percent: usize| shown(latencies[(latencies.len() - 1) * percent / 100]);
    println!(
        "| edit saved → job runs on its new worker, {MOVES} moves | {} | {} | {} |",
        at(50),
        at(99),
        at(100)
    );
    println!();
    println!("| on one machine | |\n|---|---|");
    ten_thousand(&programs)?;
    plan(&programs)
}

/// Builds the measured programs, and returns their directory.
pub(crate) fn build() -> io::Result<PathBuf> {
    let built = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--release",
            "--locked",
            "-p",
            "swarm-cli",
            "-p",
            "kubectl-swarm",
        ])
        .status()?;
    if !built.success() {
        return Err(io::Error::other("swarm and kubectl-swarm cannot be built"));
    }
    let me = std::env::current_exe()?;
    let directory = me.parent().unwrap_or(Path::new(".")).to_owned();
    Ok(directory)
}

pub(crate) fn manifest(workers: u32, jobs: &str) -> String {
    format!(
        "apiVersion: swarm.k8slab.info/v1alpha1\nkind: Swarm\nmetadata: {{name: bench}}\nspec:\n  \
         replicas: {workers}\n  pool: {{statefulSet: {{name: w}}}}\n  jobs:\n{jobs}"
    )
}

/// Lists `count` jobs, each on its own line.
pub(crate) fn listed(name: &str, count: u32) -> String {
    (0..count).map(|n| ["    - name: ", name, "-", &n.to_string(), "\n"].concat()).collect()
}

/// Replaces the file as careful editors do: whole, by renaming.
pub(crate) fn save(path: &Path, text: &str) -> io::Result<()> {
    let temporary = path.with_extension("new");
    fs::write(&temporary, text)?;
    fs::rename(temporary, path)
}

/// Measures the times from an edit that pins a job to the other worker until the job runs there.
fn handovers(programs: &Path) -> io::Result<Vec<Duration>> {
    let dir = tempdir("handovers")?;
    let file = dir.join("swarm.yaml");
    let rest = listed("stream", 26);
    let pinned = |slot: usize| manifest(3, &format!("{rest}    - {{name: mover, pin: {slot}}}\n"));
    save(&file, &pinned(0))?;
    let operator = Operator::start(programs, &file, &dir)?;
    operator.settled()?;
    let mut log = Log::open(&dir.join("state/run.log"))?;
    log.next_start_of("mover")?;
    let mut latencies = Vec::with_capacity(MOVES);
    for n in 1..=MOVES {
        let text = pinned(n % 2);
        let saved = boottime();
        save(&file, &text)?;
        latencies.push(log.next_start_of("mover")?.saturating_sub(saved));
    }
    drop(operator);
    fs::remove_dir_all(dir)?;
    Ok(latencies)
}

/// Measures the cost of ten thousand jobs on ten workers.
fn ten_thousand(programs: &Path) -> io::Result<()> {
    let dir = tempdir("ten-thousand")?;
    let file = dir.join("swarm.yaml");
    let jobs = listed("job", 10_000);
    save(&file, &manifest(10, &jobs))?;
    let operator = Operator::start(programs, &file, &dir)?;
    let took = operator.settled()?;
    println!("| 10,000 jobs on 10 workers: start → all run | {} |", shown(took));
    let operator_pid = operator.pid();
    let workers = children(operator_pid)?;
    let before = (cpu(&[operator_pid])?, cpu(&workers)?);
    sleep(REST);
    let after = (cpu(&[operator_pid])?, cpu(&workers)?);
    let percent = |before: f64, after: f64, processes: f64| {
        100.0 * (after - before) / REST.as_secs_f64() / processes
    };
    #[expect(clippy::cast_precision_loss, reason = "there are ten workers")]
    let count = workers.len().max(1) as f64;
    println!("| at rest: CPU of the operator | {:.1} % |", percent(before.0, after.0, 1.0));
    println!(
        "| at rest: CPU of a worker, run log included | {:.1} % |",
        percent(before.1, after.1, count)
    );
    println!("| at rest: memory of the operator | {} MB |", memory(operator_pid)? / 1_000);
    let worst = workers.iter().filter_map(|pid| memory(*pid).ok()).max().unwrap_or_default();
    println!("| at rest: memory of a worker | {} MB |", worst / 1_000);
    drop(operator);
    fs::remove_dir_all(dir)
}

/// Lists the children of a process, whichever of its threads started them.
pub(crate) fn children(pid: u32) -> io::Result<Vec<u32>> {
    let mut children = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let listed = fs::read_to_string(task?.path().join("children")).unwrap_or_default();
        children.extend(listed.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    Ok(children)
}

/// The seconds of processor time that processes have used.
pub(crate) fn cpu(pids: &[u32]) -> io::Result<f64> {
    let mut ticks = 0_u32;
    for pid in pids {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let words =
            stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace()).into_iter().flatten();
        ticks += words.skip(11).take(2).filter_map(|word| word.parse::<u32>().ok()).sum::<u32>();
    }
    Ok(f64::from(ticks) / 100.0)
}

/// The resident memory of a process, in kB.
pub(crate) fn memory(pid: u32) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| io::Error::other("the process has no memory"))
}

/// Measures the time of `kubectl-swarm plan` with many jobs.
fn plan(programs: &Path) -> io::Result<()> {
    let dir = tempdir("plan")?;
    let file = dir.join("swarm.yaml");
    let jobs = listed("job", 200_000);
    save(&file, &manifest(1_000, &jobs))?;
    let mut took = Vec::new();
    for _ in 0..5 {
        let start = Instant::now();
        let mut plan = Command::new(programs.join("kubectl-swarm"));
        plan.args(["plan", "-o", "json", "-f"]).arg(&file).stdout(Stdio::null());
        if !plan.status()?.success() {
            return Err(io::Error::other("the plan failed"));
        }
        took.push(start.elapsed());
    }
    took.sort_unstable();
    println!("| `kubectl swarm plan`, 200,000 jobs on 1,000 workers | {} |", shown(took[2]));
    fs::remove_dir_all(dir)
}

impl Operator {
    pub(crate) fn start(programs: &Path, file: &Path, dir: &Path) -> io::Result<Self> {
        let mut command = Command::new(programs.join("swarm"));
        command.arg("local").arg(file).arg("--dir").arg(dir.join("state"));
        command.env("XDG_STATE_HOME", dir.join("home"));
        command.stdin(Stdio::null()).stdout(File::create(dir.join("out"))?);
        Ok(Self { child: command.spawn()?, dir: dir.to_owned() })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the operator reports a settled pool, and returns the reported time.
    pub(crate) fn settled(&self) -> io::Result<Duration> {
        until("the pool is settled", || {
            let said = fs::read_to_string(self.dir.join("out"))?;
            let took = said.split_once("settled in ").and_then(|(_, rest)| rest.split_once(':'));
            Ok(took.and_then(|(took, _)| match took.split_once(' ')? {
                (millis, "ms") => Some(Duration::from_millis(millis.parse().ok()?)),
                (seconds, _) => Some(Duration::from_secs_f64(seconds.parse().ok()?)),
            }))
        })
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
        let _ = self.child.wait();
    }
}

/// A run log that is read while it is written.
struct Log {
    reader: BufReader<File>,
    line: String,
}

impl Log {
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { reader: BufReader::new(File::open(path)?), line: String::new() })
    }

    /// Waits for the next start of a job, and returns its time.
    fn next_start_of(&mut self, job: &str) -> io::Result<Duration> {
        let job = format!(r#""job":"{job}""#);
        until("the job starts", || {
            while self.reader.read_line(&mut self.line)? > 0 {
                if !self.line.ends_with('\n') {
                    return Ok(None);
                }
                let line = std::mem::take(&mut self.line);
                if line.contains(&job) && line.contains(r#""event":"start""#) {
                    let t = line.strip_prefix("{\"at\":").and_then(|rest| rest.split_once(','));
                    return Ok(t.and_then(|(t, _)| Some(Duration::from_nanos(t.parse().ok()?))));
                }
            }
            Ok(None)
        })
    }
}

fn until<T>(what: &str, mut look: impl FnMut() -> io::Result<Option<T>>) -> io::Result<T> {
    let since = Instant::now();
    while since.elapsed() < DEADLINE {
        if let Some(found) = look()? {
            return Ok(found);
        }
        sleep(Duration::from_millis(2));
    }
    Err(io::Error::other(format!("not within {DEADLINE:?}: {what}")))
}

fn boottime() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(
        now.tv_sec.try_into().unwrap_or_default(),
        now.tv_nsec.try_into().unwrap_or_default(),
    )
}

pub(crate) fn tempdir(name: &str) -> io::Result<PathBuf> {
    let dir = std::env::temp_dir().join(format!("swarm-bench-{name}-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    Ok(dir)
}
