//! The view of one session, with everything that its worker needs to run the jobs.
//!
//! The session's state machine needs only the tokens: it takes a [`SessionView`], which a
//! [`WorkerView`] converts to.

use std::collections::BTreeMap;

use crate::handover::{SessionId, SessionView};
use crate::hash::digest_grants;
use crate::{JobName, Jobs, Params, Token};

/// What one session shall run, with everything it needs to do so.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub struct WorkerView {
    /// The session that the view is for.
    pub session: SessionId,
    /// The incarnation of the ledger.
    pub incarnation: u64,
    /// The ledger's revision.
    pub revision: u64,
    /// The jobs to run.
    pub jobs: BTreeMap<JobName, Granted>,
}

/// One granted job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub struct Granted {
    /// The token to run it under.
    pub token: Token,
    /// Whether the job is done once it has succeeded: a run-to-completion job.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub run_once: bool,
    /// The job's parameters, as its user wrote them.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub params: Params,
}

/// The job runs until it is stopped, and has no parameters.
impl From<Token> for Granted {
    fn from(token: Token) -> Self {
        Self { token, run_once: false, params: Params::default() }
    }
}

impl From<&WorkerView> for SessionView {
    fn from(view: &WorkerView) -> Self {
        let WorkerView { session, incarnation, revision, jobs } = view;
        Self {
            session: session.clone(),
            incarnation: *incarnation,
            revision: *revision,
            jobs: jobs.iter().map(|(job, granted)| (job.clone(), granted.token)).collect(),
        }
    }
}

/// Every job runs until it is stopped, and has no parameters.
impl From<SessionView> for WorkerView {
    fn from(view: SessionView) -> Self {
        view.with_details(&Jobs::new())
    }
}

/// The jobs of which workers need more than the name: usually a small part of `jobs`. O(jobs).
///
/// ```
/// use swarm_core::{Job, session::details};
///
/// let mut jobs = swarm_core::jobs(["camera", "export"])?;
/// jobs.insert("export".parse()?, Job { run_once: true, ..Job::default() });
/// assert_eq!(details(&jobs).len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn details(jobs: &Jobs) -> Jobs {
    let detailed = jobs.iter().filter(|(_, job)| job.run_once || !job.params.is_empty());
    detailed.map(|(name, job)| (name.clone(), job.clone())).collect()
}

impl SessionView {
    /// The whole view, as a worker reads it. `details` are the jobs with more than a name, from
    /// [`details`]. Any other job runs until it is stopped, without parameters.
    ///
    /// ```
    /// use swarm_core::handover::{SessionId, SessionView};
    /// use swarm_core::{Job, Token};
    ///
    /// let details = [("export".parse()?, Job { run_once: true, ..Job::default() })].into();
    /// let jobs = [("camera".parse()?, Token(1)), ("export".parse()?, Token(2))].into();
    /// let session = SessionId::new("pod", 1);
    /// let view = SessionView { session, incarnation: 1, revision: 1, jobs };
    /// let whole = view.with_details(&details);
    /// assert!(whole.jobs["export"].run_once && !whole.jobs["camera"].run_once);
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    #[must_use]
    pub fn with_details(self, details: &Jobs) -> WorkerView {
        let Self { session, incarnation, revision, jobs } = self;
        let granted = |(name, token): (&JobName, &Token)| {
            let detail = details.get(name);
            let run_once = detail.is_some_and(|job| job.run_once);
            let params = detail.map(|job| job.params.clone()).unwrap_or_default();
            (name.clone(), Granted { token: *token, run_once, params })
        };
        WorkerView { session, incarnation, revision, jobs: jobs.iter().map(granted).collect() }
    }

    /// A digest of what the view lets its session run: jobs, tokens and `details`, as for
    /// [`with_details`](Self::with_details). It is the same on every machine and in every release.
    /// O(jobs · log details).
    ///
    /// ```
    /// use swarm_core::handover::{SessionId, SessionView};
    /// use swarm_core::{Jobs, Token};
    ///
    /// let granted = |token| SessionView {
    ///     session: SessionId::new("pod", 1),
    ///     incarnation: 1,
    ///     revision: 1,
    ///     jobs: [("camera".parse().unwrap(), Token(token))].into(),
    /// };
    /// assert_ne!(granted(1).content_digest(&Jobs::new()), granted(2).content_digest(&Jobs::new()));
    /// ```
    #[must_use]
    pub fn content_digest(&self, details: &Jobs) -> u64 {
        digest_grants(&self.jobs, details)
    }
}
