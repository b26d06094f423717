//! `diff`: the jobs that have another worker than at an earlier revision.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swarm_core::history::JobMove;

use super::Past;
use crate::pool::PoolName;
use crate::printable::{Form, printable};
use crate::table::title;

/// Number of jobs that a line about a worker names.
const JOBS_SHOWN: usize = 200;

impl Past<'_> {
    /// Compares the workers of the jobs at two revisions. `to` is the present state if it is `None`.
    ///
    /// # Errors
    ///
    /// A sentence, if the history does not reach back to these revisions.
    pub fn diff(&self, from: u64, to: Option<u64>) -> Result<Difference, String> {
        let Some(first) = self.episodes.first() else {
            return Err("the history is empty, so no revisions can be compared".to_owned());
        };
        if from < first.first_revision {
            return Err(format!(
                "the history begins at revision {}; it has nothing about {from}",
                first.first_revision
            ));
        }
        let last = self.episodes.last().map_or(0, |it| it.last_revision);
        if let Some(later) = [Some(from), to].into_iter().flatten().find(|it| last < *it) {
            return Err(format!(
                "the history ends at revision {last}; it has nothing about {later}"
            ));
        }
        let to = to.unwrap_or(u64::MAX);
        let mut difference = Difference::default();
        let mut changes = BTreeMap::<&str, JobChange>::new();
        for episode in self.episodes {
            if episode.last_revision <= from || to <= episode.first_revision {
                continue;
            }
            difference.causes.extend(episode.causes.iter().cloned());
            difference.without_details += episode.omitted;
            difference.has_gap |= episode.is_gap;
            for it in &episode.moves {
                if from < it.revision && it.revision <= to {
                    let change = changes.entry(it.job.as_str());
                    change.or_insert_with(|| JobChange::before(it)).follow(it);
                }
            }
        }
        difference.jobs = changes.into_values().filter(|it| it.from != it.to).collect();
        Ok(difference)
    }
}

/// The difference between two revisions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// The jobs that have another worker, by name.
    jobs: Vec<JobChange>,
    /// The causes of the moves between the revisions.
    causes: Vec<String>,
    /// Number of moves without details, which are only counted.
    without_details: u64,
    /// Whether some moves were not recorded, since no operator ran.
    has_gap: bool,
    /// The pool, on a cluster.
    #[serde(flatten)]
    pub pool: Option<PoolName>,
}

/// A job that has another worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
struct JobChange {
    /// The name of the job.
    job: String,
    /// The worker at the earlier revision.
    from: Option<String>,
    /// The worker at the later revision.
    to: Option<String>,
    /// The reason of the last move.
    reason: String,
}

impl JobChange {
    /// Begins with the state before the first move of a job.
    fn before(it: &JobMove) -> Self {
        Self { job: it.job.to_string(), from: it.from.clone(), to: None, reason: String::new() }
    }

    /// Follows a move of the job.
    fn follow(&mut self, it: &JobMove) {
        // The job has not arrived yet.
        self.to = it.to.clone().filter(|_| it.granted.is_some());
        self.reason.clone_from(&it.reason);
    }
}

impl Difference {
    /// Returns the names of the jobs that have another worker.
    #[must_use]
    pub fn jobs(&self) -> Vec<String> {
        self.jobs.iter().map(|change| change.job.clone()).collect()
    }

    /// Returns the difference as text: the jobs that came and went, for each worker.
    #[must_use]
    pub fn text(&self) -> String {
        let mut by_worker = BTreeMap::<&str, Vec<String>>::new();
        for JobChange { job, from, to, reason } in &self.jobs {
            let other = |worker: &Option<String>, word: &str| match worker {
                Some(worker) => format!("{word} {worker}, "),
                None => String::new(),
            };
            if let Some(worker) = from {
                let line = format!("- {job}  {}{reason}", other(to, "to"));
                by_worker.entry(worker).or_default().push(line);
            }
            if let Some(worker) = to {
                let line = format!("+ {job}  {}{reason}", other(from, "from"));
                by_worker.entry(worker).or_default().push(line);
            }
        }
        let mut text = String::new();
        for (worker, lines) in &by_worker {
            let _ = writeln!(text, "{}", title(&printable(worker, Form::Line)));
            for line in lines.iter().take(JOBS_SHOWN) {
                let _ = writeln!(text, "  {}", printable(line, Form::Line));
            }
            if let Some(more) = lines.len().checked_sub(JOBS_SHOWN).filter(|more| 0 < *more) {
                let _ = writeln!(text, "  … and {more} more; -o json has them all");
            }
        }
        if text.is_empty() {
            text.push_str("no job has another worker\n");
        }
        for note in self.notes() {
            let _ = writeln!(text, "{note}");
        }
        text
    }

    /// Returns sentences about moves that the history does not have.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if 0 < self.without_details {
            notes.push(format!("{} more moves have no details any more", self.without_details));
        }
        if self.has_gap {
            notes.push("some moves were not recorded, since no operator ran".to_owned());
        }
        notes
    }
}
