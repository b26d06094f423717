//! A pool of recorders on this machine: its directory, its operator, and the signals that it gets.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::files::{self, Recorded, Run};
use crate::procs::{self, Process, Role};
use crate::recorders::{self, Settings};

/// The limit for every wait.
const DEADLINE: Duration = Duration::from_mins(2);
/// A recorder writes to its file twice a second.
const WRITES_WITHIN: Duration = Duration::from_millis(2500);

/// The recorders of one day.
pub(crate) struct Pool {
    dir: PathBuf,
    program: PathBuf,
    pub(crate) settings: Settings,
    /// The operator, or the shell of the terminal that it was started from.
    child: Option<Child>,
    terminal: Option<File>,
    /// Runs with a process, a worker or a guard that was killed from outside: the last file of each may
    /// be damaged.
    pub(crate) killed: BTreeSet<Run>,
    /// The recorders that a stage stops on purpose, if not all of them.
    pub(crate) concerned: Option<BTreeSet<String>>,
    /// Further measurements of a stage.
    pub(crate) notes: Vec<String>,
    /// Faults that the act of a stage found itself.
    pub(crate) faults: Vec<String>,
}

/// The way to start an operator from a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Launch {
    Nohup,
    Bare,
}

impl Pool {
    /// Creates a pool that has not begun, in a separate directory.
    pub(crate) fn new(program: PathBuf, dir: PathBuf) -> io::Result<Self> {
        recorders::install(&dir)?;
        let settings = Settings { workers: 1, limit: 100, version: 1 };
        let pool = Self {
            dir,
            program,
            settings,
            child: None,
            terminal: None,
            killed: BTreeSet::new(),
            concerned: None,
            notes: Vec::new(),
            faults: Vec::new(),
        };
        pool.save()?;
        Ok(pool)
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.dir.join("days.yaml")
    }

    pub(crate) fn manifest(&self) -> String {
        self.settings.manifest(&self.dir)
    }

    /// Writes the manifest as careful editors do: whole, by renaming.
    pub(crate) fn save(&self) -> io::Result<()> {
        let new = self.dir.join("days.yaml.new");
        fs::write(&new, self.manifest())?;
        fs::rename(new, self.file())
    }

    fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    fn out(&self) -> PathBuf {
        self.dir.join("operator.out")
    }

    /// The output of all operators so far.
    pub(crate) fn printed(&self) -> String {
        fs::read(self.out())
            .map_or_else(|_| String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Starts the operator, in a process group of its own.
    pub(crate) fn start(&mut self) -> io::Result<()> {
        let out = OpenOptions::new().create(true).append(true).open(self.out())?;
        let mut command = Command::new(&self.program);
        command.arg("local").arg(self.file()).arg("--dir").arg(self.state()).arg("--plain");
        command.process_group(0).stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        command.env("XDG_STATE_HOME", self.state().with_file_name("home"));
        self.child = Some(command.spawn()?);
        Ok(())
    }

    /// Starts the operator from a shell on a terminal.
    pub(crate) fn start_on_a_terminal(&mut self, launch: Launch) -> io::Result<()> {
        // Its children must not have this side, or it stays open.
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&terminal)?;
        unlockpt(&terminal)?;
        let name = ptsname(&terminal, Vec::new())?;
        let line = File::from(open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty())?);
        let nohup = if launch == Launch::Nohup { "nohup " } else { "" };
        let shell = format!(
            r#"{nohup}"$0" local "$1" --dir "$2" --plain >>"$3" 2>&1 </dev/null & exec sleep 3600"#
        );
        let mut command = Command::new("setsid");
        command.args(["--ctty", "sh", "-c"]).arg(shell).arg(&self.program);
        command.arg(self.file()).arg(self.state()).arg(self.out());
        command.env("XDG_STATE_HOME", self.state().with_file_name("home"));
        command.stdin(line.try_clone()?).stdout(line.try_clone()?).stderr(line);
        self.child = Some(command.spawn()?);
        self.terminal = Some(File::from(terminal));
        until("the operator runs", || Ok(self.pids(|it| it.role == Role::Operator).pop()))?;
        Ok(())
    }

    /// Closes the terminal: the kernel sends SIGHUP to the shell and to the operator.
    pub(crate) fn close_the_terminal(&mut self) -> io::Result<()> {
        self.terminal = None;
        self.reap()
    }

    /// Runs a command of the operator's for this pool.
    pub(crate) fn ask(&self, words: &[&str]) -> io::Result<Output> {
        Command::new(&self.program).args(words).arg("--dir").arg(self.state()).output()
    }

    /// Ends the pool by `stop`, and waits until no process is left.
    pub(crate) fn stop(&mut self) -> io::Result<()> {
        let output = self.ask(&["stop"])?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            self.faults.push(format!("`stop` failed: {said}"));
            self.signal_all(Signal::KILL)?;
        }
        self.gone()?;
        // The shell of a terminal outlives its operator.
        if let Some(shell) = self.child.as_mut().filter(|_| self.terminal.is_some()) {
            shell.kill()?;
        }
        self.terminal = None;
        self.reap()
    }

    /// Waits until no process of the pool is left.
    pub(crate) fn gone(&mut self) -> io::Result<()> {
        let gone = until("no process is left", || {
            let left = procs::of_pool(&self.state());
            Ok(left.is_empty().then_some(()))
        });
        if let Err(error) = gone {
            self.faults.push(error.to_string());
            self.signal_all(Signal::KILL)?;
        }
        self.reap()
    }

    fn reap(&mut self) -> io::Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let ended = until("the child ends", || child.try_wait());
        if let Err(error) = ended {
            self.faults.push(error.to_string());
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// The processes of the pool that meet a condition.
    pub(crate) fn pids(&self, is_meant: impl Fn(&Process) -> bool) -> Vec<u32> {
        let all = procs::of_pool(&self.state()).into_iter();
        all.filter(is_meant).map(|process| process.pid).collect()
    }

    /// Sends a signal to every process of the pool at once.
    pub(crate) fn signal_all(&mut self, kind: Signal) -> io::Result<()> {
        if kind == Signal::KILL {
            let all = self.jobs().into_keys().collect();
            self.excuse(&all)?;
        }
        for pid in self.pids(|_| true) {
            procs::signal(pid, kind);
        }
        Ok(())
    }

    /// The jobs that have a process, with the workers that they run on.
    pub(crate) fn jobs(&self) -> BTreeMap<String, String> {
        let of = |process: Process| match (process.role, process.worker) {
            (Role::Job(job), Some(worker)) => Some((job, worker)),
            _ => None,
        };
        procs::of_pool(&self.state()).into_iter().filter_map(of).collect()
    }

    /// Notes that the current runs of these recorders are killed from outside.
    pub(crate) fn excuse(&mut self, jobs: &BTreeSet<String>) -> io::Result<()> {
        let runs = self.recorded()?;
        let newest = jobs.iter().filter_map(|job| runs.get(job)?.last());
        self.killed.extend(newest.map(|recorded| recorded.run.clone()));
        Ok(())
    }

    /// The runs of all recorders so far.
    pub(crate) fn recorded(&self) -> io::Result<BTreeMap<String, Vec<Recorded>>> {
        files::recorded(&self.dir.join("video"))
    }

    /// Whether a recorder that needs a while to finish got it.
    pub(crate) fn has_finished(&self, run: &Run) -> bool {
        let Run { job, token, pid } = run;
        self.dir.join(format!("marks/{job}.{token}.{pid}.finished")).exists()
    }

    /// The current run of each recorder that writes its file right now.
    pub(crate) fn at_work(&self) -> io::Result<BTreeMap<String, Run>> {
        let now = SystemTime::now();
        let at_work = |(job, runs): (String, Vec<Recorded>)| {
            let newest = runs.into_iter().next_back()?;
            let age = now.duration_since(newest.written()).unwrap_or_default();
            let is_at_work = age < WRITES_WITHIN && newest.run.is_running();
            is_at_work.then_some((job, newest.run))
        };
        Ok(self.recorded()?.into_iter().filter_map(at_work).collect())
    }

    /// Waits until every recorder records, and returns their runs.
    pub(crate) fn all_record(&self) -> io::Result<BTreeMap<String, Run>> {
        self.all_record_but(&BTreeMap::new(), &BTreeSet::new())
    }

    /// Waits until every recorder records, and these recorders do so in another run than before.
    pub(crate) fn all_record_but(
        &self,
        before: &BTreeMap<String, Run>,
        others: &BTreeSet<String>,
    ) -> io::Result<BTreeMap<String, Run>> {
        let mut missing = Vec::new();
        let all = until("every recorder records", || {
            let now = self.at_work()?;
            let is_at_work = |job: &String| {
                now.get(job)
                    .is_some_and(|run| !others.contains(job) || before.get(job) != Some(run))
            };
            let names = recorders::recording().map(|(job, _)| job);
            missing = names.filter(|job| !is_at_work(job)).collect();
            Ok(missing.is_empty().then_some(now))
        });
        all.map_err(|error| io::Error::other(format!("{error}; missing: {}", missing.join(", "))))
    }

    /// Waits until the operator has printed these words more than `before` times.
    pub(crate) fn prints(&self, words: &str, before: usize) -> io::Result<()> {
        until(&format!("the operator prints {words:?}"), || {
            Ok((before < self.printed().matches(words).count()).then_some(()))
        })
    }

    pub(crate) fn run_log(&self) -> PathBuf {
        self.state().join("run.log")
    }

    /// The verdict of `verify` on the run log: whether it is good, and its words.
    pub(crate) fn verified(&self) -> io::Result<(bool, String)> {
        let output = Command::new(&self.program).arg("verify").arg(self.run_log()).output()?;
        let said = [output.stdout, output.stderr].concat();
        Ok((output.status.success(), String::from_utf8_lossy(&said).trim().to_owned()))
    }

    /// Opens the manifest for writing in place, as a shell's `>` does.
    pub(crate) fn rewrite(&self, pieces: &[&str], pause: Duration) -> io::Result<()> {
        let mut file = File::create(self.file())?;
        for piece in pieces {
            file.write_all(piece.as_bytes())?;
            file.flush()?;
            sleep(pause);
        }
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for pid in self.pids(|_| true) {
            procs::signal(pid, Signal::KILL);
        }
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Polls until there is an answer.
pub(crate) fn until<T>(
    what: &str,
    mut look: impl FnMut() -> io::Result<Option<T>>,
) -> io::Result<T> {
    let since = Instant::now();
    while since.elapsed() < DEADLINE {
        if let Some(found) = look()? {
            return Ok(found);
        }
        sleep(Duration::from_millis(50));
    }
    Err(io::Error::other(format!("not within {DEADLINE:?}: {what}")))
}
