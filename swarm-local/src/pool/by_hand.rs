//! Jobs that a person restarts, suspends and resumes by hand.
//!
//! A suspension by hand is kept in the state directory, so it outlives the operator. The file of the
//! Swarm stays as it is: a job that the file suspends can only be resumed there.

use std::collections::BTreeSet;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use swarm_adapters_host::file;
use swarm_core::{JobName, Jobs};

use crate::format;

/// The name of the record.
const NAME: &str = "by-hand.json";
/// The format that this program writes, and the newest that it reads.
const FORMAT: u64 = 1;
/// The maximum size of the record in bytes.
const BYTES_MAX: u64 = 32 << 20;

/// The jobs that are suspended by hand.
#[derive(Debug)]
pub(super) struct ByHand {
    path: PathBuf,
    suspended: BTreeSet<JobName>,
    /// The suspended jobs that would run without it: the file does not suspend them.
    applied: BTreeSet<JobName>,
}

#[derive(Serialize, Deserialize)]
struct Record {
    #[serde(default = "format::first")]
    format: u64,
    suspended: BTreeSet<String>,
}

impl ByHand {
    /// Reads the record in the state directory `dir`. Without one, no job is suspended by hand.
    ///
    /// # Errors
    ///
    /// A sentence if the record cannot be read. To start jobs that a person has stopped would be
    /// worse than to start none.
    pub(super) fn open(dir: &Path) -> Result<Self, String> {
        let path = dir.join(NAME);
        let text = match file::read_regular_text(&path, BYTES_MAX) {
            Ok(text) => text,
            Err(file::ReadError::Missing) => {
                return Ok(Self { path, suspended: BTreeSet::new(), applied: BTreeSet::new() });
            }
            Err(error) => return Err(unreadable(&path, &error)),
        };
        format::check(&path, &text, FORMAT)?;
        let record: Record =
            serde_json::from_str(&text).map_err(|error| unreadable(&path, &error))?;
        let names = record.suspended.iter().map(|name| JobName::new(name));
        let suspended = names.collect::<Result<_, _>>().map_err(|e| unreadable(&path, &e))?;
        Ok(Self { path, suspended, applied: BTreeSet::new() })
    }

    /// Suspends the jobs among the desired `jobs` that are suspended by hand. A suspension ends with
    /// its job, so a later job of the same name runs. Returns a sentence about ended suspensions,
    /// if any. O(suspended · log jobs).
    pub(super) fn apply(&mut self, jobs: &mut Jobs) -> Option<String> {
        self.applied.clear();
        let ended = self.end_without_job(jobs);
        for name in &self.suspended {
            if jobs.get(name).is_some_and(|job| !job.suspend) {
                jobs.entry(name.clone()).and_modify(|job| job.suspend = true);
                self.applied.insert(name.clone());
            }
        }
        ended
    }

    fn end_without_job(&mut self, jobs: &Jobs) -> Option<String> {
        let (kept, ended) =
            mem::take(&mut self.suspended).into_iter().partition(|name| jobs.contains_key(name));
        self.suspended = kept;
        let first: &JobName = BTreeSet::first(&ended)?;
        let of = match ended.len() - 1 {
            0 => format!("`{first}` has"),
            more => format!("`{first}` and {more} more have"),
        };
        let sentence = format!("{of} left the list, which ends the suspension by hand");
        Some(match self.record() {
            Ok(()) => sentence,
            Err(error) => format!("{sentence}, and {} keeps it: {error}", self.path.display()),
        })
    }

    /// Returns the jobs that run again once they are resumed.
    pub(super) fn applied(&self) -> impl Iterator<Item = &JobName> {
        self.applied.iter()
    }

    /// Suspends a job, and records it before it stops.
    ///
    /// # Errors
    ///
    /// A sentence if the job is suspended already, or cannot be recorded.
    pub(super) fn suspend(&mut self, name: &JobName, jobs: &mut Jobs) -> Result<(), String> {
        if !self.suspended.insert(name.clone()) {
            return Err(format!("`{name}` is already suspended by hand"));
        }
        if let Err(error) = self.record() {
            self.suspended.remove(name);
            return Err(format!("`{name}` stays as it is: {error}"));
        }
        if jobs.get(name).is_some_and(|job| !job.suspend) {
            jobs.entry(name.clone()).and_modify(|job| job.suspend = true);
            self.applied.insert(name.clone());
        }
        Ok(())
    }

    /// Resumes a job.
    ///
    /// # Errors
    ///
    /// A sentence if the job is not suspended by hand, or the change cannot be recorded.
    pub(super) fn resume(&mut self, name: &JobName, jobs: &mut Jobs) -> Result<(), String> {
        if !self.suspended.remove(name) {
            let is_suspended = jobs.get(name).is_some_and(|job| job.suspend);
            return Err(if is_suspended {
                format!("the file suspends `{name}`; remove its `suspend: true` there")
            } else {
                format!("`{name}` is not suspended")
            });
        }
        if let Err(error) = self.record() {
            self.suspended.insert(name.clone());
            return Err(format!("`{name}` stays suspended: {error}"));
        }
        if self.applied.remove(name) {
            jobs.entry(name.clone()).and_modify(|job| job.suspend = false);
        }
        Ok(())
    }

    /// Writes the record again after its directory was lost.
    pub(super) fn record_again(&self) -> io::Result<()> {
        // An older directory may have an older record.
        if self.suspended.is_empty() && !self.path.exists() { Ok(()) } else { self.record() }
    }

    fn record(&self) -> io::Result<()> {
        let suspended = self.suspended.iter().map(ToString::to_string).collect();
        let record = Record { format: FORMAT, suspended };
        file::replace(&self.path, &serde_json::to_vec(&record)?)
    }
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> String {
    let path = path.display();
    format!(
        "{path}, which lists the jobs that are suspended by hand, cannot be read: {error}; repair \
         it, or remove it to let all jobs run"
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn name(name: &str) -> JobName {
        JobName::new(name).unwrap()
    }

    fn suspended(jobs: &Jobs) -> Vec<String> {
        let suspended = jobs.iter().filter(|(_, job)| job.suspend);
        suspended.map(|(name, _)| name.to_string()).collect()
    }

    #[test]
    fn a_suspension_outlives_the_operator_and_edits() {
        let dir = tempfile::tempdir().unwrap();
        let file = || swarm_core::jobs(["a", "b"]).unwrap();
        let mut jobs = file();
        let mut hands = ByHand::open(dir.path()).unwrap();
        hands.suspend(&name("a"), &mut jobs).unwrap();
        assert_eq!(suspended(&jobs), ["a"]);
        let again = hands.suspend(&name("a"), &mut jobs).unwrap_err();
        assert_eq!(again, "`a` is already suspended by hand");

        let mut hands = ByHand::open(dir.path()).unwrap();
        let mut jobs = file();
        hands.apply(&mut jobs);
        assert_eq!(suspended(&jobs), ["a"]);
        hands.resume(&name("a"), &mut jobs).unwrap();
        assert_eq!(suspended(&jobs), [""; 0]);
        assert_eq!(hands.resume(&name("a"), &mut jobs).unwrap_err(), "`a` is not suspended");
        hands.apply(&mut jobs);
        assert_eq!(suspended(&jobs), [""; 0]);
        let jobs = &mut file();
        ByHand::open(dir.path()).unwrap().apply(jobs);
        assert_eq!(suspended(jobs), [""; 0]);
    }

    #[test]
    fn a_suspension_ends_when_its_job_leaves_the_list() {
        let dir = tempfile::tempdir().unwrap();
        let of = |names: &[&str]| swarm_core::jobs(names.iter().copied()).unwrap();
        let mut hands = ByHand::open(dir.path()).unwrap();
        for job in ["a", "b", "c"] {
            hands.suspend(&name(job), &mut of(&["a", "b", "c"])).unwrap();
        }
        let said = hands.apply(&mut of(&["c"])).unwrap();
        assert!(said.starts_with("`a` and 1 more have left the list"), "{said}");
        let mut jobs = of(&["a", "b", "c"]);
        assert_eq!(ByHand::open(dir.path()).unwrap().apply(&mut jobs), None);
        assert_eq!(suspended(&jobs), ["c"]);
        fs::remove_dir_all(dir.path()).unwrap();
        let said = hands.apply(&mut of(&[])).unwrap();
        assert!(
            said.starts_with("`c` has left the list") && said.contains("by-hand.json keeps it")
        );
    }

    #[test]
    fn a_job_that_the_file_suspends_is_resumed_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut jobs = swarm_core::jobs(["a"]).unwrap();
        let job = swarm_core::Job { suspend: true, ..swarm_core::Job::default() };
        jobs.insert(name("a"), job);
        let mut hands = ByHand::open(dir.path()).unwrap();
        let error = hands.resume(&name("a"), &mut jobs).unwrap_err();
        assert_eq!(error, "the file suspends `a`; remove its `suspend: true` there");
        // Both suspend it: the one by hand ends, and the one in the file stays.
        hands.suspend(&name("a"), &mut jobs).unwrap();
        hands.resume(&name("a"), &mut jobs).unwrap();
        assert_eq!(suspended(&jobs), ["a"]);
    }

    #[test]
    fn a_record_that_cannot_be_read_starts_no_job() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["", "{", "{\"suspended\": [\"a b\"]}", "{\"suspended\": 7}"] {
            fs::write(dir.path().join(NAME), text).unwrap();
            let error = ByHand::open(dir.path()).unwrap_err();
            assert!(error.contains("remove it to let all jobs run"), "{text}: {error}");
        }
        fs::write(dir.path().join(NAME), r#"{"format": 2, "suspended": []}"#).unwrap();
        assert!(ByHand::open(dir.path()).unwrap_err().contains("has format 2"));
    }

    #[test]
    fn a_job_stays_as_it_is_if_its_suspension_cannot_be_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let mut hands = ByHand::open(&dir.path().join("missing")).unwrap();
        let mut jobs = swarm_core::jobs(["a"]).unwrap();
        let error = hands.suspend(&name("a"), &mut jobs).unwrap_err();
        assert!(error.starts_with("`a` stays as it is: "), "{error}");
        assert_eq!(suspended(&jobs), [""; 0]);
    }
}
