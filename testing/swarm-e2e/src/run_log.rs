//! The run logs of a scenario's workers, judged as `swarm verify` judges them.
//!
//! All pods of a scenario write into one folder, which is a `hostPath` on both nodes. The nodes
//! share one kernel and one clock, so overlaps are exact.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use swarm_adapters_host::runlog::judge::{
    Event, Judge, Line, Overlap, Replication, RunName, Verdict,
};
use swarm_adapters_host::runlog::{Entry, boottime_ns, read};

use crate::cluster::FOLDER;
use crate::until::until_within;

/// The silence after which a job counts as not running: two missed ticks on a busy machine.
const SILENT_AFTER: Duration = Duration::from_millis(3_500);

/// A moment on the clock of run logs, in nanoseconds since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub u64);

impl Moment {
    /// The present moment.
    #[must_use]
    pub fn now() -> Self {
        Self(boottime_ns())
    }

    /// The time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The moment `span` before this one.
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Waits until `time` has passed since this moment.
    ///
    /// # Errors
    ///
    /// When twice that time has passed, and the wait has not noticed.
    pub async fn passed(self, time: Duration) -> Result<()> {
        until_within("time to pass", time * 2, || async {
            Ok((time <= Self::now().since(self)).then_some(()))
        })
        .await
    }
}

/// The folder of all run logs of a namespace.
#[must_use]
pub fn folder(namespace: &str) -> PathBuf {
    Path::new(FOLDER).join("run-logs").join(namespace)
}

/// Makes the folder of a namespace, in which every pod may write.
///
/// # Errors
///
/// When the folder cannot be made.
pub fn make_folder(namespace: &str) -> Result<PathBuf> {
    let folder = folder(namespace);
    fs::create_dir_all(&folder)?;
    fs::set_permissions(&folder, Permissions::from_mode(0o777))?;
    Ok(folder)
}

/// One line with owned strings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// The time of the line.
    pub at: Moment,
    /// The job of the line.
    pub job: String,
    /// The worker, session and token of the run.
    pub run: RunName,
    /// The event of the run.
    pub event: Event,
}

impl LogLine {
    fn line(&self) -> Line<'_> {
        let Self { at: Moment(t), job, run: RunName { worker, session, token }, event } = self;
        Line { t: *t, job, worker, session, token: *token, event: *event }
    }
}

/// The lines that the workers of a pool have written so far, in order of time.
#[derive(Clone, Debug, Default)]
pub struct History(Vec<LogLine>);

impl History {
    /// Reads a log to its end. Workers may still be writing.
    ///
    /// # Errors
    ///
    /// When the log cannot be read, or has a torn line that no killed writer explains.
    pub fn read(path: &Path) -> Result<Self> {
        let mut all = Vec::new();
        let mut is_rebooted = false;
        let damage = read(&[path.to_owned()], |entry| match entry {
            Entry::Line(line) => all.push(owned(&line)),
            Entry::MachineStarted => is_rebooted = true,
        })?;
        ensure!(!is_rebooted, "{} begins before this machine was booted", path.display());
        let torn = damage.torn;
        ensure!(torn.unexplained == 0, "{}: torn line {:?}", path.display(), torn.first);
        let gaps = damage.coverage.gaps;
        ensure!(gaps.is_empty(), "{}: lines are missing: {gaps:?}", path.display());
        Ok(Self(all))
    }

    /// The overlaps in which two workers ran a job at once, as text for people.
    ///
    /// # Errors
    ///
    /// When a token decreased, which is always a bug.
    pub fn overlaps(&self) -> Result<Vec<String>> {
        let mut judge = Judge::new(Replication::One);
        self.0.iter().for_each(|line| judge.take(&line.line()));
        let Verdict { overlaps, regressions, .. } = judge.verdict();
        if let Some(regression) = regressions.first() {
            bail!("a token decreased: {regression:?}; {}", self.about(&regression.job));
        }
        let describe = |overlap: Overlap| {
            let Overlap { job, older, newer, from, until } = overlap;
            let ms = (until - from) / 1_000_000;
            let about = self.about(&job);
            format!("{job} ran on {older:?} {ms} ms after {newer:?} had started it; {about}")
        };
        Ok(overlaps.into_iter().map(describe).collect())
    }

    /// The starts, stops and last ticks of a job, for people who look for a cause.
    #[must_use]
    pub fn about(&self, job: &str) -> String {
        let mut ticks = BTreeMap::new();
        let mut lines = Vec::new();
        for line in self.0.iter().filter(|line| line.job == job) {
            let RunName { worker, session, token } = &line.run;
            if line.event == Event::Tick {
                ticks.insert(session, line.at);
            } else {
                let event = line.event;
                lines.push(format!("{event:?} {worker} {session} {token} at {}", line.at.0));
            }
        }
        let last = ticks.iter().map(|(session, at)| format!("last tick of {session} at {}", at.0));
        lines.into_iter().chain(last).collect::<Vec<_>>().join("; ")
    }

    /// The longest time since `mark` in which each of `jobs` was not run, as the judge counts it. A
    /// gap that was open at `mark` counts from `mark`. A gap that is still open counts until now.
    #[must_use]
    pub fn gaps(&self, jobs: &BTreeSet<String>, mark: Moment) -> BTreeMap<String, Duration> {
        self.gaps_until(jobs, mark, Moment::now())
    }

    fn gaps_until(
        &self,
        jobs: &BTreeSet<String>,
        mark: Moment,
        now: Moment,
    ) -> BTreeMap<String, Duration> {
        let mut gaps = BTreeMap::new();
        for job in jobs {
            let lines: Vec<_> = self.0.iter().filter(|line| line.job == *job).collect();
            let after = lines.partition_point(|line| line.at < mark);
            let mut judge = Judge::new(Replication::One);
            // A job that ran at the mark is judged as if it had a tick at the mark.
            let before = after.checked_sub(1).map(|at| lines[at]);
            if let Some(before) = before {
                judge.take(&Line { t: before.at.max(mark).0, ..before.line() });
            }
            lines[after..].iter().for_each(|line| judge.take(&line.line()));
            let closed = judge.verdict().longest_gap.map_or(0, |gap| gap.ns);
            let last = lines.last().filter(|last| last.event == Event::Stop);
            let open = last.map_or(Duration::ZERO, |last| now.since(last.at.max(mark)));
            let silent = lines.last().map_or(Duration::ZERO, |last| now.since(last.at.max(mark)));
            let silent = if SILENT_AFTER < silent { silent } else { Duration::ZERO };
            gaps.insert(job.clone(), Duration::from_nanos(closed).max(open).max(silent));
        }
        gaps
    }

    /// The longest of the [gaps](Self::gaps), with its job.
    #[must_use]
    pub fn longest_gap(&self, jobs: &BTreeSet<String>, mark: Moment) -> (String, Duration) {
        self.gaps(jobs, mark).into_iter().max_by_key(|(_, gap)| *gap).unwrap_or_default()
    }

    /// The present run of each job. A job has exactly one run, which is not silent.
    ///
    /// # Errors
    ///
    /// When a job of `jobs` is not run, or run twice, or another job is run.
    pub fn running(&self, jobs: &BTreeSet<String>) -> Result<BTreeMap<String, RunName>> {
        self.running_at(jobs, Moment::now())
    }

    fn running_at(
        &self,
        jobs: &BTreeSet<String>,
        now: Moment,
    ) -> Result<BTreeMap<String, RunName>> {
        let mut runs = BTreeMap::<_, &LogLine>::new();
        for line in self.0.iter().filter(|line| line.at <= now) {
            runs.insert((&line.job, &line.run.session, line.run.token), line);
        }
        let is_up =
            |line: &&LogLine| line.event != Event::Stop && now.since(line.at) <= SILENT_AFTER;
        let mut found = BTreeMap::new();
        for line in runs.into_values().filter(is_up) {
            if let Some(other) = found.insert(line.job.clone(), line.run.clone()) {
                bail!("{} is run by {other:?} and by {:?}", line.job, line.run);
            }
        }
        let running: BTreeSet<_> = found.keys().cloned().collect();
        let missing = jobs.difference(&running).collect::<Vec<_>>();
        let foreign = running.difference(jobs).collect::<Vec<_>>();
        ensure!(missing.is_empty() && foreign.is_empty(), "{missing:?} missing, {foreign:?} extra");
        Ok(found)
    }

    /// The sessions that now run all of `jobs` and no other job. Several may run a job.
    ///
    /// # Errors
    ///
    /// When a session that runs any job does not run all of `jobs`, or runs another job.
    pub fn running_everywhere(&self, jobs: &BTreeSet<String>) -> Result<BTreeSet<String>> {
        let now = Moment::now();
        let mut runs = BTreeMap::<_, &LogLine>::new();
        for line in &self.0 {
            runs.insert((&line.job, &line.run.session), line);
        }
        let is_up =
            |line: &&LogLine| line.event != Event::Stop && now.since(line.at) <= SILENT_AFTER;
        let mut found = BTreeMap::<_, BTreeSet<String>>::new();
        for line in runs.into_values().filter(is_up) {
            found.entry(line.run.session.clone()).or_default().insert(line.job.clone());
        }
        for (session, running) in &found {
            ensure!(running == jobs, "{session} runs {running:?}");
        }
        Ok(found.into_keys().collect())
    }

    /// The line of the last start of a job.
    ///
    /// # Errors
    ///
    /// When the job was never started.
    pub fn last_start(&self, job: &str) -> Result<&LogLine> {
        let is_start = |line: &&LogLine| line.event == Event::Start && line.job == job;
        self.0.iter().rfind(is_start).with_context(|| format!("{job} was never started"))
    }

    /// All lines since `mark`.
    pub fn since(&self, mark: Moment) -> impl Iterator<Item = &LogLine> {
        self.0.iter().filter(move |line| mark <= line.at)
    }

    /// All lines before `mark`.
    pub fn until(&self, mark: Moment) -> impl Iterator<Item = &LogLine> {
        self.0.iter().filter(move |line| line.at < mark)
    }
}

fn owned(line: &Line<'_>) -> LogLine {
    let Line { t, job, worker, session, token, event } = *line;
    let run = RunName { worker: worker.to_owned(), session: session.to_owned(), token };
    LogLine { at: Moment(t), job: job.to_owned(), run, event }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A log of lines such as `5.0 a/s1/1 start`: second 5, job `a`, session `s1`, token 1.
    fn history(lines: &[&str]) -> History {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for line in lines {
            let [t, run, event] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let [job, session, token] = run.split('/').collect::<Vec<_>>()[..] else { panic!() };
            let t = Duration::from_secs_f64(t.parse().unwrap()).as_nanos();
            writeln!(
                file,
                r#"{{"t":{t},"job":"{job}","worker":"w","session":"{session}","token":{token},"event":"{event}"}}"#
            )
            .unwrap();
        }
        History::read(file.path()).unwrap()
    }

    fn gap(lines: &[&str], mark: u64, now: u64) -> u128 {
        let (mark, now) = (Moment(mark * SECOND), Moment(now * SECOND));
        let gaps = history(lines).gaps_until(&BTreeSet::from(["a".to_owned()]), mark, now);
        gaps["a"].as_millis()
    }

    #[test]
    fn an_overlap_is_found_and_a_clean_handover_is_none() {
        let clean = ["1 a/s1/1 start", "2 a/s1/1 tick", "2.5 a/s1/1 stop", "2.6 a/s2/2 start"];
        assert_eq!(history(&clean).overlaps().unwrap(), Vec::<String>::new());
        let planted = ["1 a/s1/1 start", "2 a/s2/2 start", "2.1 a/s1/1 tick", "2.2 a/s1/1 stop"];
        let found = history(&planted).overlaps().unwrap();
        assert!(found.len() == 1 && found[0].contains("200 ms after RunName"), "{found:?}");
        let token = ["1 a/s1/5 start", "2 a/s1/5 stop", "3 a/s2/4 start"];
        let error = history(&token).overlaps().unwrap_err().to_string();
        assert!(error.starts_with("a token decreased"), "{error}");
    }

    #[test]
    fn a_gap_is_counted_from_the_mark_on_and_up_to_now() {
        let lines = ["1 a/s1/1 start", "2 a/s1/1 stop", "8 a/s2/2 start", "9 a/s2/2 tick"];
        assert_eq!(gap(&lines, 0, 9), 6_000);
        assert_eq!(gap(&lines, 5, 9), 3_000, "what was before the mark is another scenario");
        assert_eq!(gap(&lines, 9, 10), 0);
        assert_eq!(gap(&lines, 9, 19), 10_000, "a worker that fell silent");
        assert_eq!(gap(&lines[..2], 0, 9), 7_000, "nobody has started it");
    }

    #[test]
    fn the_newest_lines_decide_what_runs() {
        let jobs = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let lines = ["1 a/s1/1 start", "2 a/s1/1 stop", "2 a/s2/2 start", "4 a/s2/2 tick"];
        let history = history(&lines);
        let at =
            |second: u64, names: &[&str]| history.running_at(&jobs(names), Moment(second * SECOND));
        assert_eq!(at(5, &["a"]).unwrap()["a"].session, "s2");
        assert!(at(5, &["a", "b"]).unwrap_err().to_string().contains("[\"b\"] missing"));
        assert!(at(5, &[]).unwrap_err().to_string().contains("[\"a\"] extra"));
        assert!(at(8, &["a"]).is_err(), "it fell silent");
        let twice = ["1 a/s1/1 start", "2 a/s2/2 start"];
        let twice = self::history(&twice);
        let error = twice.running_at(&jobs(&["a"]), Moment(3 * SECOND)).unwrap_err().to_string();
        assert!(error.starts_with("a is run by"), "{error}");
    }
}
