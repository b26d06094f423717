//! Input of the screen: documents of a pool, messages, and logs.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use swarm_view::jobs::JobEntry;
use swarm_view::message::Message;
use swarm_view::status::Status;

/// A pool at one moment: the documents of `status` and of its jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scene {
    /// The pool, with its workers by slot.
    pub(crate) status: Status,
    /// The jobs by name.
    pub(crate) jobs: Vec<JobEntry<String>>,
    /// Maximum number of jobs of a worker, including jobs that it is releasing.
    pub(crate) most: usize,
    /// Number of jobs without a worker, by reason.
    pub(crate) unassigned: BTreeMap<String, usize>,
}

/// News for the screen.
#[derive(Debug)]
pub enum News {
    /// The state of the pool.
    Scene(Arc<Scene>),
    /// A message.
    Message(Timed),
}

/// A message, with its time.
pub type Timed = (Message, Instant);

/// Paths of the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// The file to edit, as the user wrote it, if edits are followed.
    pub file: Option<String>,
    /// The state directory, or options that name a pool without one, such as ` -n media`.
    pub dir: String,
}

/// The effect of the end of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// The pool ends with it.
    Pool,
    /// Only the view ends, and the pool goes on.
    View,
    /// The same for a pool that the view only reads: it cannot act on jobs, and has no logs.
    Reader,
}

/// Reads the new lines of a log, and calls a function with each.
pub type Lines = Box<dyn FnMut(&mut dyn FnMut(&str)) -> io::Result<()> + Send>;

/// Opens the log of the job with this name, if it has one.
pub type OpenLog = Box<dyn Fn(&str) -> Option<Lines> + Send>;

impl Scene {
    /// Makes a scene of the document of a pool, and of its jobs in the order of their names.
    /// O(n · log n) in the workers and the jobs without a worker.
    #[must_use]
    pub fn new(mut status: Status, jobs: Vec<JobEntry<String>>) -> Self {
        status.workers.sort_by_key(|worker| worker.slot);
        status.unassigned.sort_by(|one, other| one.job.cmp(&other.job));
        let loads = status.workers.iter().map(|worker| worker.jobs + worker.releasing);
        let most = loads.max().unwrap_or_default();
        let unassigned = status.unassigned_by_reason();
        Self { status, jobs, most, unassigned }
    }

    /// Returns the document of the pool.
    #[must_use]
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// Returns the same jobs in a pool whose state is not known, with the reason. O(jobs).
    #[must_use]
    pub fn unknown(&self, sentence: &str) -> Self {
        let mut scene = self.clone();
        (scene.status.reason, scene.status.message) = ("Unknown".into(), sentence.to_owned());
        (scene.status.settled, scene.status.healthy) = (true, false);
        scene
    }

    /// Returns the index of the job with this name. O(log jobs).
    #[cfg(feature = "screen")]
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        self.jobs.binary_search_by(|job| job.name.as_str().cmp(name)).ok()
    }

    /// Returns the job with this name. O(log jobs).
    #[cfg(feature = "screen")]
    pub(crate) fn job(&self, name: &str) -> Option<&JobEntry<String>> {
        self.jobs.get(self.place(name)?)
    }
}
