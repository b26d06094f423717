//! The view that plain workers read: the jobs of every worker, in the format of swarm's
//! predecessors.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::{Assignment, Change, JobName, Slot};

/// The bound on versions: every reader can represent it, and no view reaches it.
pub(crate) const VERSION_MAX: u64 = 1 << 53;

/// The published map from workers to jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct View {
    /// The number of publications so far.
    pub version: u64,
    /// The entry of each worker, by the worker's name.
    #[cfg_attr(feature = "serde", serde(rename = "workloads"))]
    pub workers: BTreeMap<String, ViewEntry>,
}

/// The jobs that one worker should run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct ViewEntry {
    /// The worker's slot; only written if the worker's name does not end in it.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "crate::wire::is_default"))]
    pub slot: Option<Slot>,
    /// The publication that last changed this worker's set of jobs.
    pub version: u64,
    /// The jobs.
    pub jobs: BTreeSet<JobName>,
}

impl View {
    /// Returns the slot whose number is at the end of a worker's name.
    ///
    /// ```
    /// use swarm_core::{Slot, View};
    ///
    /// assert_eq!(View::slot_in_name("swarm-worker-2"), Some(Slot(2)));
    /// assert_eq!(View::slot_in_name("swarm-7f9c4-x2x"), None); // the pod of a Deployment
    /// ```
    #[must_use]
    pub fn slot_in_name(worker: &str) -> Option<Slot> {
        let digits = worker.rsplit_once('-')?.1;
        let plain = digits.bytes().all(|b| b.is_ascii_digit());
        digits.parse().ok().filter(|_| plain).map(Slot)
    }

    /// Returns the assignment in the view. The slot comes from the slot key, or from the number in
    /// the worker's name; a worker with neither is left out. A job under two workers belongs to the
    /// lower slot.
    ///
    /// ```
    /// use swarm_core::{Assignment, Ledger, Pool, Slot};
    ///
    /// let one = Assignment::from_iter([("a".parse()?, Slot(0))]);
    /// assert_eq!(Ledger::new(0).next(&one, &Pool::ready(2)).view().assignment(), one);
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    #[must_use]
    pub fn assignment(&self) -> Assignment {
        let mut held = BTreeMap::new();
        for (name, entry) in &self.workers {
            let Some(slot) = entry.slot.or_else(|| Self::slot_in_name(name)) else { continue };
            for job in &entry.jobs {
                let holder = held.entry(job.clone()).or_insert(slot);
                *holder = slot.min(*holder);
            }
        }
        held.into_iter().collect()
    }

    /// Returns the workers whose sets of jobs differ in `after`, by name, with the difference. A
    /// worker that is in only one of the two views has no jobs in the other. O(jobs · log jobs).
    ///
    /// ```
    /// use swarm_core::{Assignment, Ledger, Pool, Slot, View};
    ///
    /// let one = Assignment::from_iter([("a".parse()?, Slot(0))]);
    /// let view = Ledger::new(0).next(&one, &Pool::ready(1)).view();
    /// let changes = View::default().changes(&view);
    /// assert!(changes["worker-0"].included.contains("a"));
    /// assert!(view.changes(&view).is_empty());
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    #[must_use]
    pub fn changes(&self, after: &Self) -> BTreeMap<String, Change> {
        let names: BTreeSet<_> = self.workers.keys().chain(after.workers.keys()).collect();
        let none = BTreeSet::new();
        let jobs = |view: &Self, name: &String| {
            view.workers.get(name).map_or(&none, |entry| &entry.jobs).clone()
        };
        let change = |name: &String| {
            let (before, after) = (jobs(self, name), jobs(after, name));
            let (included, excluded) = (&after - &before, &before - &after);
            (name.clone(), Change { included, excluded })
        };
        let is_one = |(_, change): &(String, Change)| *change != Change::default();
        names.into_iter().map(change).filter(is_one).collect()
    }

    /// Returns the version in the text of a view, parsed leniently, since any user may have edited
    /// the text. Returns 0 if the text has no version, or one that no view ever reaches.
    ///
    /// ```
    /// use swarm_core::View;
    ///
    /// let view = View { version: 7, ..View::default() };
    /// assert_eq!(View::version_in(&view.to_yaml()), 7);
    /// assert_eq!(View::version_in("workloads:\n  w-0: {version: 5}\n"), 0);
    /// ```
    #[must_use]
    pub fn version_in(text: &str) -> u64 {
        let version = |line: &str| line.strip_prefix("version:")?.trim().parse().ok();
        let version = text.lines().rev().find_map(version);
        version.filter(|version| *version < VERSION_MAX).unwrap_or_default()
    }

    /// Returns the view as a YAML document; the same view gives the same bytes.
    ///
    /// ```
    /// use swarm_core::{Assignment, Ledger, Pool, Slot};
    ///
    /// let one = Assignment::from_iter([("stream:cars:new".parse()?, Slot(0))]);
    /// let view = Ledger::new(0).next(&one, &Pool::ready(1)).view();
    /// assert_eq!(view.to_yaml(), r#"workloads:
    ///   worker-0:
    ///     jobs: ["stream:cars:new"]
    ///     version: 1
    /// version: 1
    /// "#);
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let mut yaml = String::from("workloads:");
        if self.workers.is_empty() {
            yaml.push_str(" {}");
        }
        for (name, entry) in &self.workers {
            let jobs: Vec<_> = entry.jobs.iter().map(|job| quoted(job.as_str())).collect();
            let jobs = jobs.join(", ");
            // Writing to a string cannot fail.
            let _ = write!(yaml, "\n  {}:\n    jobs: [{jobs}]", key(name));
            if let Some(slot) = entry.slot {
                let _ = write!(yaml, "\n    slot: {slot}");
            }
            let _ = write!(yaml, "\n    version: {}", entry.version);
        }
        let _ = writeln!(yaml, "\nversion: {}", self.version);
        yaml
    }
}

/// Returns a printable text as a double-quoted YAML scalar.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\""))
}

/// Returns a worker's name as a YAML key, quoted if YAML could parse it as a number, a date or a
/// keyword.
fn key(name: &str) -> String {
    let starts_as_text = name.starts_with(|c: char| c.is_ascii_lowercase());
    let is_name = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if starts_as_text && name.contains('-') && name.bytes().all(is_name) {
        name.to_owned()
    } else {
        quoted(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_view_is_a_document() {
        assert_eq!(View::default().to_yaml(), "workloads: {}\nversion: 0\n");
    }

    #[test]
    fn names_that_yaml_would_misread_are_quoted() {
        let jobs = crate::jobs([r#"a"\b"#]).unwrap().into_keys().collect();
        let entry = ViewEntry { jobs, ..ViewEntry::default() };
        let workers =
            ["2001-01-1", "null", "swarm-worker-0"].map(|name| (name.into(), entry.clone()));
        insta::assert_snapshot!(View { version: 3, workers: workers.into() }.to_yaml(), @r#"
        workloads:
          "2001-01-1":
            jobs: ["a\"\\b"]
            version: 0
          "null":
            jobs: ["a\"\\b"]
            version: 0
          swarm-worker-0:
            jobs: ["a\"\\b"]
            version: 0
        version: 3
        "#);
    }

    #[test]
    fn the_slot_of_a_worker_is_the_number_at_the_end_of_its_name() {
        assert_eq!(View::slot_in_name("swarm-worker-12"), Some(Slot(12)));
        for none in ["swarm-worker", "7f9c4-x2x", "w-", "w-+3", "w-99999999999"] {
            assert_eq!(View::slot_in_name(none), None, "{none}");
        }
    }

    #[test]
    fn a_job_under_two_workers_is_held_by_the_lowest_slot() {
        let jobs = crate::jobs(["a"]).unwrap().into_keys().collect();
        let entry = ViewEntry { jobs, ..ViewEntry::default() };
        let workers = ["w-10", "w-9"].map(|name| (name.to_owned(), entry.clone()));
        let view = View { version: 0, workers: workers.into() };
        assert_eq!(view.assignment().holder(&"a".parse().unwrap()), Some(Slot(9)));
    }
}
