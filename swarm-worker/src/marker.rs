//! Records state for the next process with the same state directory, which is the next container.
//! The record has the session, which has ended when the next process reads it, and the running
//! jobs. After a crash the next process can therefore name the job to blame.
//!
//! A process locks `DIR/lock` as long as it runs. So does its guard, which ends its jobs when the
//! process dies. A process that gets the lock alone therefore knows that its predecessor and the
//! predecessor's jobs have ended. `DIR/session` has the session of the predecessor.
//!
//! `DIR/running.json` lists the jobs of a worker while they run, and is removed when the worker
//! ends in an orderly way. A file that exists at a start means a crash.
//!
//! A job is blamed if it was the only one that had just been started. If none had just been
//! started, a job is blamed if it was the only job. Otherwise no job is blamed. A file of another
//! pod, or from before a reboot, is ignored: in these cases a job did not end the process.
//!
//! Writes do not wait for the disk: a reboot makes the file worthless anyway.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use swarm_adapters_host::clock;
use swarm_adapters_host::file::{self, ReadError};
use swarm_core::JobName;
use swarm_core::handover::{Moment, SessionId};
use swarm_core::session::Former;

/// The time after its start during which a job counts as just started.
const STARTING: Duration = Duration::from_secs(10);
/// The size limit of the file. 100,000 jobs need far less.
const BYTES_MAX: u64 = 64 << 20;
/// The length limit of a session's name.
const SESSION_BYTES_MAX: u64 = 1 << 10;
/// The name of the file that lists jobs.
const FILE_NAME: &str = "running.json";
/// The name of the file with the session.
const SESSION: &str = "session";
/// The name of the file that is locked.
const LOCK: &str = "lock";

/// The contents of the file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Document {
    /// The identity of the process's place, such as a pod's UID.
    place: String,
    /// The boot id of the machine.
    boot: String,
    /// Jobs that were started less than [`STARTING`] ago.
    starting: Vec<String>,
    /// The other running jobs.
    running: Vec<String>,
}

/// Returns the path of the lock file in `dir`.
#[must_use]
pub(crate) fn lock_path(dir: &Path) -> PathBuf {
    dir.join(LOCK)
}

/// Joins the shared lock of the process that has locked the file, until the result is dropped.
pub(crate) fn join_lock(path: &Path) -> io::Result<File> {
    let lock = file::append(path)?;
    lock.try_lock_shared().map_err(locked)?;
    Ok(lock)
}

fn locked(error: TryLockError) -> io::Error {
    match error {
        TryLockError::WouldBlock => io::Error::new(
            io::ErrorKind::ResourceBusy,
            "another worker uses it, or the guard of an earlier one has not ended its jobs yet; each \
             container needs one of its own",
        ),
        TryLockError::Error(error) => error,
    }
}

/// The record of one process.
#[derive(Debug)]
pub(crate) struct Marker {
    path: PathBuf,
    place: String,
    boot: String,
    /// The jobs, each with its start time.
    jobs: BTreeMap<JobName, Moment>,
    /// The number of jobs that the file lists as starting. A job leaves this list as time passes.
    starting: usize,
    /// The lock, which is held until the process ends for any reason.
    _lock: Option<File>,
}

impl Marker {
    /// Takes over `dir` for a process that runs in `place`, and returns the state of its
    /// predecessor there. Creates a missing directory.
    ///
    /// # Errors
    ///
    /// If the directory cannot be used, or another process uses it.
    pub(crate) fn open(dir: &Path, place: &str) -> io::Result<(Self, Former)> {
        file::create_dir(dir)?;
        let lock = file::append(&lock_path(dir))?;
        lock.try_lock().map_err(locked)?;
        // From here on the guard can join the lock. Another process that locks it in between is
        // refused.
        lock.unlock()?;
        lock.try_lock_shared().map_err(locked)?;
        Self::take_over(dir, place, Some(lock))
    }

    fn take_over(dir: &Path, place: &str, lock: Option<File>) -> io::Result<(Self, Former)> {
        let (path, boot) = (dir.join(FILE_NAME), clock::boot_id()?);
        let culprit = match file::read_regular_text(&path, BYTES_MAX) {
            Ok(text) => culprit(&text, place, &boot),
            Err(ReadError::Failed(error)) => return Err(error),
            Err(ReadError::Missing | ReadError::TooLarge { .. } | ReadError::NotText) => None,
        };
        let place = place.to_owned();
        let session = match file::read_regular_text(&dir.join(SESSION), SESSION_BYTES_MAX) {
            Ok(text) => Some(SessionId::from_stored(text.trim())),
            Err(_) => None,
        };
        let session = session.filter(|it| !it.is_plain() && it.pod_uid() == place);
        let former = Former { session, culprit };
        let marker = Self { path, place, boot, jobs: BTreeMap::new(), starting: 0, _lock: lock };
        // This write proves that the directory is writable, at a time when an error still counts.
        marker.write(clock::now())?;
        marker.clear()?;
        Ok((marker, former))
    }

    /// Records that this process runs `session` from now on. Call it once the session has a lease:
    /// a session without one needs no proof of its end.
    ///
    /// # Errors
    ///
    /// If the session cannot be written; then the next process does not know it.
    pub(crate) fn began(&self, session: &SessionId) -> io::Result<()> {
        file::swap(&self.path.with_file_name(SESSION), format!("{session}\n").as_bytes())
    }

    /// Lists `jobs` in the file, which is only written if something changed. Call it before a job
    /// is started, and again some time later.
    ///
    /// # Errors
    ///
    /// If the file cannot be written; it then keeps its old contents.
    pub(crate) fn set<'a>(&mut self, jobs: impl Iterator<Item = &'a JobName>) -> io::Result<()> {
        let now = clock::now();
        let jobs: BTreeMap<_, _> =
            jobs.map(|job| (job.clone(), self.jobs.get(job).copied().unwrap_or(now))).collect();
        let starting = jobs.values().filter(|since| is_starting(**since, now)).count();
        if starting == self.starting && jobs == self.jobs {
            return Ok(());
        }
        // The file counts as out of date until the write succeeds.
        (self.jobs, self.starting) = (jobs, usize::MAX);
        if self.jobs.is_empty() { self.clear() } else { self.write(now) }?;
        self.starting = starting;
        Ok(())
    }

    /// Removes the file, because no job runs or no job is to blame for the end of the process.
    ///
    /// # Errors
    ///
    /// If the file exists and cannot be removed.
    pub(crate) fn clear(&self) -> io::Result<()> {
        file::existing(fs::remove_file(&self.path)).map(|_| ())
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

/// Returns the job to blame according to the file of a predecessor. An invalid file blames none.
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

    /// Returns the job that the next process in the same place blames.
    fn blamed(dir: &Path) -> Option<JobName> {
        // The marker of the predecessor may still exist: only its file matters here.
        Marker::take_over(dir, "pod", None).unwrap().1.culprit
    }

    #[test]
    fn the_only_job_that_was_being_started_is_blamed_and_else_the_only_one_that_ran() {
        let dir = tempfile::tempdir().unwrap();
        let (mut marker, former) = Marker::open(dir.path(), "pod").unwrap();
        assert_eq!(former, Former::default());
        let (a, b, c) = (job("a"), job("b"), job("c"));
        marker.set([&a].into_iter()).unwrap();
        assert_eq!(blamed(dir.path()), Some(a.clone()));
        assert_eq!(blamed(dir.path()), None, "it is blamed once");

        marker.set([&a, &b].into_iter()).unwrap();
        assert_eq!(blamed(dir.path()), None, "both had just been started");
        // Both have run for a while now.
        marker.jobs.values_mut().for_each(|since| *since = Moment::default());
        marker.set([&a, &b, &c].into_iter()).unwrap();
        assert_eq!(blamed(dir.path()), Some(c));
        marker.set([&a, &b].into_iter()).unwrap();
        assert_eq!(blamed(dir.path()), None, "one of two may have done it");
        marker.set([&b].into_iter()).unwrap();
        assert_eq!(blamed(dir.path()), Some(b));
    }

    #[test]
    fn no_job_is_blamed_after_a_clean_end_a_reboot_or_in_another_pod() {
        let dir = tempfile::tempdir().unwrap();
        let (mut marker, _) = Marker::open(dir.path(), "pod").unwrap();
        let (a, file) = (job("a"), dir.path().join(FILE_NAME));
        marker.set([&a].into_iter()).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let another = Marker::take_over(dir.path(), "another", None).unwrap().1;
        assert_eq!(another, Former::default());
        assert_eq!(culprit(&text, "pod", &clock::boot_id().unwrap()), Some(a));
        assert_eq!(culprit(&text, "pod", "yesterday"), None);
        assert_eq!(culprit("{", "pod", ""), None);

        marker.set([].into_iter()).unwrap();
        assert!(!file.exists(), "nothing runs");
        assert_eq!(blamed(dir.path()), None);
    }

    #[test]
    fn a_session_is_named_to_the_next_process_in_its_place_and_to_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let session = SessionId::new("pod", 7);
        let (marker, _) = Marker::open(dir.path(), "pod").unwrap();
        let busy = Marker::open(dir.path(), "pod").unwrap_err();
        assert!(busy.to_string().contains("each container needs one of its own"), "{busy}");
        marker.began(&session).unwrap();
        drop(marker);
        let (next, former) = Marker::open(dir.path(), "pod").unwrap();
        assert_eq!(former.session, Some(session.clone()));
        // A process that never had a lease keeps the recorded session of its predecessor.
        drop(next);
        assert_eq!(Marker::open(dir.path(), "pod").unwrap().1.session, Some(session));
        assert_eq!(Marker::open(dir.path(), "another").unwrap().1.session, None);
        fs::write(dir.path().join(SESSION), "no session").unwrap();
        assert_eq!(Marker::open(dir.path(), "pod").unwrap().1.session, None);
    }
}
