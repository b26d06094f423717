//! The files that recorders leave: which run wrote which, what was not recorded between two runs, and
//! whether each file can be played.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};
use std::{fs, io, thread};

use crate::procs;

/// One run of a recorder: the job, its token, and the process that the job began as.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Run {
    pub(crate) job: String,
    pub(crate) token: u64,
    pub(crate) pid: u32,
}

impl Run {
    /// Whether its process exists.
    pub(crate) fn is_running(&self) -> bool {
        procs::runs(self.pid, &self.job)
    }
}

/// A file of a run.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) begun: SystemTime,
    pub(crate) written: SystemTime,
}

/// A run and its files, in the order of their beginnings.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) run: Run,
    pub(crate) files: Vec<File>,
}

impl Recorded {
    pub(crate) fn begun(&self) -> SystemTime {
        self.files.first().map_or(SystemTime::UNIX_EPOCH, |file| file.begun)
    }

    pub(crate) fn written(&self) -> SystemTime {
        self.files.last().map_or(SystemTime::UNIX_EPOCH, |file| file.written)
    }
}

/// The time between two runs of a job, in which nothing was recorded.
#[derive(Clone, Debug)]
pub(crate) struct Gap {
    pub(crate) job: String,
    /// The last write before the gap.
    pub(crate) from: SystemTime,
    /// The beginning of the next file.
    pub(crate) until: SystemTime,
    /// The time between them; zero if the two runs overlap.
    pub(crate) took: Duration,
    /// Whether the next run began before the last write of the previous run.
    pub(crate) overlaps: bool,
}

/// The runs of each job, in the order of their beginnings.
pub(crate) fn recorded(video: &Path) -> io::Result<BTreeMap<String, Vec<Recorded>>> {
    let mut runs: BTreeMap<Run, Vec<File>> = BTreeMap::new();
    for entry in fs::read_dir(video)? {
        let path = entry?.path();
        let Some(run) = run_of(&path) else { continue };
        let metadata = fs::metadata(&path)?;
        let file = File { path, begun: metadata.created()?, written: metadata.modified()? };
        runs.entry(run).or_default().push(file);
    }
    let mut jobs: BTreeMap<String, Vec<Recorded>> = BTreeMap::new();
    for (run, mut files) in runs {
        files.sort_by_key(|file| file.begun);
        jobs.entry(run.job.clone()).or_default().push(Recorded { run, files });
    }
    for runs in jobs.values_mut() {
        runs.sort_by_key(Recorded::begun);
    }
    Ok(jobs)
}

/// The run that a file is named for.
fn run_of(path: &Path) -> Option<Run> {
    let mut words = path.file_name()?.to_str()?.split('.');
    let (job, token, pid) = (words.next()?, words.next()?, words.next()?);
    Some(Run { job: job.to_owned(), token: token.parse().ok()?, pid: pid.parse().ok()? })
}

/// The gaps that ended within this time.
pub(crate) fn gaps(
    jobs: &BTreeMap<String, Vec<Recorded>>,
    from: SystemTime,
    until: SystemTime,
) -> Vec<Gap> {
    let of_job = |(job, runs): (&String, &Vec<Recorded>)| {
        let gap = |pair: &[Recorded]| {
            let (end, next) = (pair[0].written(), pair[1].begun());
            Gap {
                job: job.clone(),
                from: end,
                until: next,
                took: next.duration_since(end).unwrap_or_default(),
                overlaps: next < end,
            }
        };
        let gaps: Vec<_> = runs.windows(2).map(gap).collect();
        gaps.into_iter().filter(move |gap| from < gap.until && gap.until <= until)
    };
    jobs.iter().flat_map(of_job).collect()
}

/// A file that is not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    /// The file is empty: its recorder was asked to stop within the first second, before the first
    /// picture.
    Empty,
    /// A picture, the index or the duration is missing.
    Torn(String),
}

/// The damages of these files, as ffprobe sees them. It checks two files at a time.
pub(crate) fn damaged(files: &[PathBuf]) -> Vec<Damage> {
    let next = AtomicUsize::new(0);
    let judge = || {
        let mut damaged = Vec::new();
        while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            damaged.extend(damage(path));
        }
        damaged
    };
    thread::scope(|scope| {
        let threads = [scope.spawn(judge), scope.spawn(judge)];
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    })
}

/// The damage of a file, if any: it must have a picture, an index and a duration.
fn damage(path: &Path) -> Option<Damage> {
    let mut ffprobe = Command::new("ffprobe");
    ffprobe.args(["-v", "error", "-count_packets", "-of", "default=noprint_wrappers=1"]);
    ffprobe.args(["-show_entries", "stream=nb_read_packets:format=duration"]).arg(path);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let output = match ffprobe.output() {
        Ok(output) => output,
        Err(error) => return Some(Damage::Torn(format!("{name}: ffprobe cannot be run: {error}"))),
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let value = |key: &str| said.lines().find_map(|line| line.strip_prefix(key));
    let pictures = value("nb_read_packets=").and_then(|word| word.parse().ok()).unwrap_or(0_u32);
    let seconds = value("duration=").and_then(|word| word.parse::<f64>().ok());
    let is_whole = output.status.success() && output.stderr.is_empty() && seconds.is_some();
    if is_whole && 0 < pictures {
        return None;
    }
    let metadata = fs::metadata(path).ok()?;
    let age = metadata.modified().ok()?.duration_since(metadata.created().ok()?);
    if pictures == 0 && age.is_ok_and(|age| age < Duration::from_secs(1)) {
        return Some(Damage::Empty);
    }
    let (bytes, seconds) =
        (metadata.len(), seconds.map_or_else(|| "no".to_owned(), |s| s.to_string()));
    let what = format!("{bytes} bytes, {pictures} pictures, {seconds} duration");
    Some(Damage::Torn(format!("{name} is not whole: {what}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_which_run_wrote_the_file() {
        let run = run_of(Path::new("/video/camera-07.1795652823930044.4678.1795652830.mkv"));
        let expected = Run { job: "camera-07".to_owned(), token: 1_795_652_823_930_044, pid: 4678 };
        assert_eq!(run, Some(expected));
        assert_eq!(run_of(Path::new("/video/notes.txt")), None);
    }

    #[test]
    fn what_was_not_recorded_is_between_the_last_write_of_a_run_and_the_first_of_the_next() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let recorded = |pid, spans: &[(u64, u64)]| {
            let file = |(begun, written): &(u64, u64)| File {
                path: PathBuf::new(),
                begun: at(*begun),
                written: at(*written),
            };
            let run = Run { job: "a".to_owned(), token: 1, pid };
            Recorded { run, files: spans.iter().map(file).collect() }
        };
        let runs = vec![
            recorded(1, &[(10, 15), (15, 18)]),
            recorded(2, &[(20, 25)]),
            recorded(3, &[(24, 30)]),
        ];
        let jobs = BTreeMap::from([("a".to_owned(), runs)]);
        let all = gaps(&jobs, at(0), at(100));
        let shown: Vec<_> = all.iter().map(|gap| (gap.took.as_secs(), gap.overlaps)).collect();
        assert_eq!(shown, [(2, false), (0, true)]);
        assert_eq!(gaps(&jobs, at(0), at(21)).len(), 1, "those that ended by then");
        assert_eq!(gaps(&jobs, at(22), at(100)).len(), 1, "those that ended since then");
    }
}
