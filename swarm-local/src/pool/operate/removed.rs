//! The last edit that removed many jobs. It is shown for an hour, or until its jobs are listed again,
//! also over a restart of the operator.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use swarm_adapters_host::file;
use swarm_core::{JobName, Jobs};
use swarm_spec::removal::{Removal, SHOWN_FOR};

use crate::format;

/// The name of the record.
const NAME: &str = "removed.json";
/// The format that this program writes, and the newest that it reads.
const FORMAT: u64 = 1;
/// The maximum size of the record in bytes.
const BYTES_MAX: u64 = 64 << 20;

/// The last such edit, if it is still shown.
#[derive(Debug)]
pub(super) struct Removed {
    path: PathBuf,
    last: Option<Record>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    #[serde(default = "format::first")]
    format: u64,
    /// The sentence about the edit.
    sentence: String,
    /// The number of jobs that it removed.
    removed: usize,
    /// Its time, in seconds of Unix time.
    at_unix_s: u64,
    /// The names of all jobs before the edit.
    before: Vec<String>,
}

impl Removed {
    /// Reads the record in the state directory `dir`. No decision depends on it, so a record that cannot
    /// be read is none.
    pub(super) fn open(dir: &Path) -> Self {
        let path = dir.join(NAME);
        let text = file::read_regular_text(&path, BYTES_MAX).ok();
        let known = text.filter(|text| format::check(&path, text, FORMAT).is_ok());
        let last = known.and_then(|text| serde_json::from_str(&text).ok());
        Self { path, last }
    }

    /// Compares the listed jobs before and after an edit. `sentence` describes a removal of many jobs,
    /// and is returned then.
    pub(super) fn note(
        &mut self,
        before: &Jobs,
        after: &Jobs,
        now_unix_s: u64,
        sentence: impl FnOnce(Removal) -> String,
    ) -> Option<&str> {
        let Some(removal) = Removal::between(before.keys(), after) else {
            if self.last.as_ref().is_some_and(|last| last.is_undone(after)) {
                self.forget();
            }
            return None;
        };
        let before = before.keys().map(ToString::to_string).collect();
        let (removed, sentence) = (removal.removed, sentence(removal));
        let last = Record { format: FORMAT, sentence, removed, at_unix_s: now_unix_s, before };
        let written = serde_json::to_vec(&last).map_err(Into::into);
        if let Err(error) = written.and_then(|text| file::replace(&self.path, &text)) {
            tracing::warn!(%error, "a restart of the operator will forget that many jobs were removed");
        }
        self.last.insert(last).sentence.as_str().into()
    }

    /// Returns the sentence.
    pub(super) fn shown(&self) -> Option<&str> {
        self.last.as_ref().map(|last| last.sentence.as_str())
    }

    /// Returns the number of jobs that the edit removed; 0 without one.
    pub(super) fn jobs(&self) -> usize {
        self.last.as_ref().map_or(0, |last| last.removed)
    }

    /// Forgets the edit after its hour. Returns whether it did so just now.
    pub(super) fn forget_late(&mut self, now_unix_s: u64) -> bool {
        let is_over = self.left(now_unix_s).is_some_and(|left| left.is_zero());
        if is_over {
            self.forget();
        }
        is_over
    }

    /// Returns the time for which the edit is still shown.
    pub(super) fn left(&self, now_unix_s: u64) -> Option<Duration> {
        let age = |last: &Record| Duration::from_secs(now_unix_s.saturating_sub(last.at_unix_s));
        self.last.as_ref().map(|last| SHOWN_FOR.saturating_sub(age(last)))
    }

    fn forget(&mut self) {
        self.last = None;
        // Without the file the next operator has nothing to show either; with it, for an hour at most.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Record {
    /// Whether no more than a few of its jobs are missing.
    fn is_undone(&self, jobs: &Jobs) -> bool {
        let before: Vec<_> =
            self.before.iter().filter_map(|name| JobName::new(name).ok()).collect();
        Removal::between(&before, jobs).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(count: u32) -> Jobs {
        (0..count).map(|n| (format!("j{n}").parse().unwrap(), swarm_core::Job::default())).collect()
    }

    fn noted(removed: &mut Removed, before: u32, after: u32) -> Option<String> {
        let sentence = |it: Removal| it.sentence("m.yaml", "swarm diff 7");
        removed.note(&jobs(before), &jobs(after), 1_000, sentence).map(str::to_owned)
    }

    #[test]
    fn a_removal_is_shown_for_an_hour_also_by_the_next_operator() {
        let dir = tempfile::tempdir().unwrap();
        let mut removed = Removed::open(dir.path());
        assert_eq!(noted(&mut removed, 39, 38), None);
        assert_eq!((removed.shown(), removed.left(1_000)), (None, None));
        let said = noted(&mut removed, 39, 9).unwrap();
        assert!(said.starts_with("30 of 39 jobs ") && said.contains(" m.yaml"), "{said}");
        let mut next = Removed::open(dir.path());
        assert_eq!((next.shown(), next.jobs()), (Some(&*said), 30));
        assert_eq!(next.left(1_600), Some(Duration::from_mins(50)));
        assert!(!next.forget_late(4_599) && next.forget_late(4_600) && !next.forget_late(4_600));
        assert_eq!(Removed::open(dir.path()).shown(), None);
    }

    #[test]
    fn a_removal_that_is_undone_is_not_shown_any_more() {
        let dir = tempfile::tempdir().unwrap();
        let mut removed = Removed::open(dir.path());
        noted(&mut removed, 39, 9).unwrap();
        assert_eq!(noted(&mut removed, 9, 20), None);
        assert!(removed.shown().is_some(), "19 are still missing");
        assert_eq!(noted(&mut removed, 20, 39), None);
        assert_eq!(removed.shown(), None);
        assert_eq!(Removed::open(dir.path()).shown(), None);
        noted(&mut removed, 39, 9).unwrap();
        std::fs::write(dir.path().join(NAME), "{").unwrap();
        assert_eq!(Removed::open(dir.path()).shown(), None, "no decision depends on it");
    }
}
