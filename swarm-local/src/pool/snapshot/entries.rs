//! The documents of the jobs of a pool at one moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use swarm_view::jobs::JobEntry;
use swarm_view::picture::JobFacts;
use swarm_view::status::FailingRow;

use super::{JobRow, Snapshot};
use crate::processes::reports::Reports;

/// The reader of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// Everybody who reaches an address.
    Anyone,
    /// The user of the pool, who may read its manifest.
    User,
}

/// Failing jobs by name.
pub(crate) type Failing<'a> = BTreeMap<&'a str, &'a FailingRow>;

/// The jobs of a pool at one moment, for one reader.
pub(crate) struct Entries {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) reports: Reports,
    pub(crate) reader: Reader,
}

impl Entries {
    /// Returns the failing jobs. O(failing jobs that are listed).
    pub(crate) fn failing(&self) -> Failing<'_> {
        self.snapshot.status.failing.iter().map(|row| (row.job.as_str(), row)).collect()
    }

    /// Returns what is known of a job, for the reader. O(log jobs).
    pub(crate) fn facts<'a>(&'a self, failing: &Failing<'a>, row: &'a JobRow) -> JobFacts<'a> {
        let Self { snapshot, reports, reader } = self;
        let failing = failing.get(row.name.as_str()).copied();
        let wanted = snapshot.wanted.get(row.name.as_str()).filter(|_| *reader == Reader::User);
        JobFacts {
            params: wanted.map(|job| job.params.clone()).unwrap_or_default(),
            runner: wanted.and_then(|job| job.runner.as_ref()).map(ToString::to_string),
            ..snapshot.facts(row, failing, reports)
        }
    }

    /// Returns the documents of all jobs, in the order of their names. O(jobs · log jobs).
    pub(crate) fn all(&self) -> Vec<JobEntry<String>> {
        let (picture, failing) = (self.snapshot.picture(), self.failing());
        let rows = self.snapshot.holders.iter();
        rows.map(|row| picture.entry(self.facts(&failing, row))).collect()
    }
}
