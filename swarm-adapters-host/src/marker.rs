//! What ran in a process that crashed, so that the next one in its place can say which job is to
//! blame.
//!
//! `DIR/running.json` names the jobs of a worker while they run, and is removed when the worker
//! ends in good order. One that is found at a start tells of a crash. A job can be blamed if it was
//! the only one that had just been started, or, where none had, the only one at all; of several
//! nobody is. A file of another pod, or of an earlier life of the machine, says nothing: then it
//! was no job that ended the process.
//!
//! Nothing here waits for the disk, since what a file says does not outlive the machine anyway.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use swarm_core::JobName;
use swarm_core::handover::Moment;

use crate::clock;
use crate::file::{self, ReadError};

/// How long after its start a job is taken for the one that ended the process.
const STARTING: Duration = Duration::from_secs(10);
/// The largest file that is read: far more than 100,000 jobs.
const BYTES_MAX: u64 = 64 << 20;
/// The name of the file.
const FILE_NAME: &str = "running.json";

/// What the file says.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Document {
    /// Whose it is: the identity of the place that the process runs in, such as a pod's UID.
    place: String,
    /// The life of the machine.
    boot: String,
    /// Jobs that were started less than [`STARTING`] ago.
    starting: Vec<String>,
    /// The others.
    running: Vec<String>,
}

/// Keeps the file of one process.
#[derive(Debug)]
pub struct Marker {
    path: PathBuf,
    place: String,
    boot: String,
    /// Since when they run.
    jobs: BTreeMap<JobName, Moment>,
    /// How many of them are marked as starting in the file; they stop being so with time alone.
    starting: usize,
}

impl Marker {
    /// Takes over the file in `dir`, which is made if it is missing, for a process that runs in
    /// `place`, and tells which job ended its predecessor there, if one can be blamed.
    ///
    /// # Errors
    ///
    /// If the directory cannot be used.
    pub fn open(dir: &Path, place: &str) -> io::Result<(Self, Option<JobName>)> {
        fs::create_dir_all(dir)?;
        let (path, boot) = (dir.join(FILE_NAME), clock::boot_id()?);
        let culprit = match file::read_text(&path, BYTES_MAX) {
            Ok(text) => culprit(&text, place, &boot),
            Err(ReadError::Failed(error)) => return Err(error),
            Err(ReadError::Missing | ReadError::TooLarge { .. } | ReadError::NotText) => None,
        };
        let place = place.to_owned();
        let marker = Self { path, place, boot, jobs: BTreeMap::new(), starting: 0 };
        // Proves that the directory can be written as long as somebody looks.
        marker.write(clock::now())?;
        marker.clear()?;
        Ok((marker, culprit))
    }

    /// Makes the file name `jobs`. To be called before a job is started, and again some time after;
    /// it writes only what is new.
    ///
    /// # Errors
    ///
    /// If it cannot be written; then it says what it said before.
    pub fn set<'a>(&mut self, jobs: impl Iterator<Item = &'a JobName>) -> io::Result<()> {
        let now = clock::now();
        let jobs: BTreeMap<_, _> =
            jobs.map(|job| (job.clone(), self.jobs.get(job).copied().unwrap_or(now))).collect();
        let starting = jobs.values().filter(|since| is_starting(**since, now)).count();
        if starting == self.starting && jobs == self.jobs {
            return Ok(());
        }
        // Until it is written, it counts as never written.
        (self.jobs, self.starting) = (jobs, usize::MAX);
        if self.jobs.is_empty() { self.clear() } else { self.write(now) }?;
        self.starting = starting;
        Ok(())
    }

    /// Removes the file: nothing runs, or what ends the process is no job's fault.
    ///
    /// # Errors
    ///
    /// If it is there and stays.
    pub fn clear(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn write(&self, now: Moment) -> io::Result<()> {
        let names = |starting: bool| {
            let of_kind =
                self.jobs.iter().filter(|(_, since)| is_starting(**since, now) == starting);
            of_kind.map(|(job, _)| job.to_string()).collect()
        };
        let (place, boot) = (self.place.clone(), self.boot.clone());
        let document = Document { place, boot, starting: names(true), running: names(false) };
        file::swap(&self.path, &serde_json::to_vec(&document)?)
    }
}

fn is_starting(since: Moment, now: Moment) -> bool {
    now < since.after(STARTING)
}

/// Whom the file that a predecessor left blames. One that makes no sense blames nobody.
fn culprit(text: &str, place: &str, boot: &str) -> Option<JobName> {
    let document: Document = serde_json::from_str(text).ok()?;
    if document.place != place || document.boot != boot {
        return None;
    }
    let suspects = if document.starting.is_empty() { document.running } else { document.starting };
    let [only] = suspects.as_slice() else { return None };
    JobName::new(only).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str) -> JobName {
        name.parse().unwrap()
    }

    /// Whom the next process in the same place blames.
    fn blamed(dir: &Path) -> Option<JobName> {
        Marker::open(dir, "pod").unwrap().1
    }

    #[test]
    fn the_only_job_that_was_being_started_is_blamed_and_else_the_only_one_that_ran() {
        let dir = tempfile::tempdir().unwrap();
        let (mut marker, culprit) = Marker::open(dir.path(), "pod").unwrap();
        assert_eq!(culprit, None);
        let (a, b, c) = (job("a"), job("b"), job("c"));
        marker.set([&a].into_iter()).unwrap();
        assert_eq!(blamed(dir.path()), Some(a.clone()));
        assert_eq!(blamed(dir.path()), None, "it is blamed once");

        marker.set([&a, &b].into_iter()).unwrap();
        assert_eq!(blamed(dir.path()), None, "both had just been started");
        // Both run for a while by now.
        marker.jobs.values_mut().for_each(|since| *since = Moment::default());
        marker.set([&a, &b, &c].into_iter()).unwrap();
        assert_eq!(blamed(dir.path()), Some(c));
        marker.set([&a, &b].into_iter()).unwrap();
        assert_eq!(blamed(dir.path()), None, "one of two may have done it");
        marker.set([&b].into_iter()).unwrap();
        assert_eq!(blamed(dir.path()), Some(b));
    }

    #[test]
    fn a_clean_end_blames_nobody_and_neither_does_another_pod_or_life_of_the_machine() {
        let dir = tempfile::tempdir().unwrap();
        let (mut marker, _) = Marker::open(dir.path(), "pod").unwrap();
        let (a, file) = (job("a"), dir.path().join(FILE_NAME));
        marker.set([&a].into_iter()).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(Marker::open(dir.path(), "another").unwrap().1, None);
        assert_eq!(culprit(&text, "pod", &clock::boot_id().unwrap()), Some(a));
        assert_eq!(culprit(&text, "pod", "yesterday"), None);
        assert_eq!(culprit("{", "pod", ""), None);

        marker.set([].into_iter()).unwrap();
        assert!(!file.exists(), "nothing runs");
        assert_eq!(blamed(dir.path()), None);
    }
}
