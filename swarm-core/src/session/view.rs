//! The view of one session, with everything that its worker needs to run the jobs.
//!
//! The session's state machine needs only the tokens. It reads a [`SessionView`], to which a
//! [`WorkerView`] converts.

use std::collections::{BTreeMap, BTreeSet};

use super::Pace;
use crate::handover::{SessionId, SessionView};
use crate::hash::{digest_and, digest_grants};
use crate::{Job, JobName, Jobs, Params, RunnerName, Token};

/// The visibility of the output of jobs outside the worker. The worker's own log always has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub enum JobOutput {
    /// The worker's report about a failing job contains the last lines of its output.
    #[default]
    Shown,
    /// No line leaves the worker, except through its own log.
    Hidden,
}

impl JobOutput {
    /// Returns the value for a field `showOutput`: shown unless it is false.
    ///
    /// ```
    /// use swarm_core::session::JobOutput;
    ///
    /// assert_eq!(JobOutput::shown_if(None), JobOutput::Shown);
    /// assert_eq!(JobOutput::shown_if(Some(false)), JobOutput::Hidden);
    /// ```
    #[must_use]
    pub fn shown_if(show_output: Option<bool>) -> Self {
        if show_output == Some(false) { Self::Hidden } else { Self::Shown }
    }
}

/// The jobs that one session should run, with everything it needs to run them.
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
    /// The way to run the jobs, in words of the worker; `None` if it was not specified.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub runner: Option<String>,
    /// The ways to run the jobs that name one, in words of the worker. Names that no job of the view
    /// has are left out.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub runners: BTreeMap<RunnerName, String>,
    /// Whether the output of the jobs may leave the worker.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub output: JobOutput,
    /// The number of jobs that begin at a time.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub pace: Pace,
}

/// One granted job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub struct Granted {
    /// The token under which to run it.
    pub token: Token,
    /// Whether the job is done once it has succeeded: a run-to-completion job.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub run_once: bool,
    /// The runner that runs it; `None` for the view's own.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub runner: Option<RunnerName>,
    /// The job's parameters, as the user wrote them.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "crate::wire::is_default"))]
    pub params: Params,
}

/// Returns a job that runs until it is stopped, and has no parameters.
impl From<Token> for Granted {
    fn from(token: Token) -> Self {
        Self { token, run_once: false, runner: None, params: Params::default() }
    }
}

impl From<&WorkerView> for SessionView {
    fn from(view: &WorkerView) -> Self {
        let WorkerView { session, incarnation, revision, jobs, .. } = view;
        let WorkerView { runner: _, runners: _, output: _, pace: _, .. } = view;
        Self {
            session: session.clone(),
            incarnation: *incarnation,
            revision: *revision,
            jobs: jobs.iter().map(|(job, granted)| (job.clone(), granted.token)).collect(),
        }
    }
}

/// Returns a view in which every job runs until it is stopped, and has no parameters.
impl From<SessionView> for WorkerView {
    fn from(view: SessionView) -> Self {
        view.with_details(&Details::default())
    }
}

/// The data that workers receive in addition to the names and tokens of their jobs.
///
/// ```
/// use swarm_core::{Job, session::Details};
///
/// let mut jobs = swarm_core::jobs(["camera", "export"])?;
/// jobs.insert("export".parse()?, Job { run_once: true, ..Job::default() });
/// let details = Details::of(&jobs).with_runner("ping");
/// assert_eq!((details.jobs().len(), details.runner()), (1, Some("ping")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    jobs: Jobs,
    runner: Option<String>,
    runners: BTreeMap<RunnerName, String>,
    /// The sessions that know runners with names; `None` for all.
    knowing: Option<BTreeSet<SessionId>>,
    output: JobOutput,
    pace: Pace,
}

impl Details {
    /// Returns the details of `jobs`. O(jobs).
    #[must_use]
    pub fn of(jobs: &Jobs) -> Self {
        let has_details =
            |job: &Job| job.run_once || job.runner.is_some() || !job.params.is_empty();
        let detailed = jobs.iter().filter(|(_, job)| has_details(job));
        let jobs = detailed.map(|(name, job)| (name.clone(), job.clone())).collect();
        Self { jobs, ..Self::default() }
    }

    /// Sets the way to run all jobs that name no runner, in words that the workers understand. No other component reads
    /// them.
    #[must_use]
    pub fn with_runner(self, runner: impl Into<String>) -> Self {
        Self { runner: Some(runner.into()), ..self }
    }

    /// Sets the ways to run the jobs that name one, as for [`with_runner`](Self::with_runner).
    #[must_use]
    pub fn with_runners(self, runners: BTreeMap<RunnerName, String>) -> Self {
        Self { runners, ..self }
    }

    /// Sets which sessions know runners with names. No other session may receive a job with such a
    /// runner, since it would run the job in another way; see [`SessionView::known`].
    #[must_use]
    pub fn with_knowing(self, sessions: BTreeSet<SessionId>) -> Self {
        Self { knowing: Some(sessions), ..self }
    }

    /// Returns whether the job names a runner, and the session knows no runners with names.
    #[must_use]
    pub fn is_beyond(&self, session: &SessionId, job: &JobName) -> bool {
        let knows = |sessions: &BTreeSet<_>| sessions.contains(session);
        !self.knowing.as_ref().is_none_or(knows)
            && self.jobs.get(job).is_some_and(|job| job.runner.is_some())
    }

    /// Sets whether the output of the jobs may leave the workers.
    ///
    /// ```
    /// use swarm_core::session::{Details, JobOutput};
    ///
    /// assert_eq!(Details::default().output(), JobOutput::Shown);
    /// let hidden = Details::default().with_output(JobOutput::Hidden);
    /// assert_eq!(hidden.output(), JobOutput::Hidden);
    /// ```
    #[must_use]
    pub fn with_output(self, output: JobOutput) -> Self {
        Self { output, ..self }
    }

    /// Sets the number of jobs that begin at a time.
    ///
    /// ```
    /// use swarm_core::session::{Details, Pace};
    ///
    /// let pace = Pace { max_starting: Some(8), ..Pace::default() };
    /// assert_eq!(Details::default().with_pace(pace).pace(), pace);
    /// ```
    #[must_use]
    pub fn with_pace(self, pace: Pace) -> Self {
        Self { pace, ..self }
    }

    /// Returns the jobs for which workers need more than the name: usually a small part of all
    /// jobs.
    #[must_use]
    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// Returns the way to run the jobs that name no runner.
    #[must_use]
    pub fn runner(&self) -> Option<&str> {
        self.runner.as_deref()
    }

    /// Returns the ways to run the jobs that name one.
    #[must_use]
    pub fn runners(&self) -> &BTreeMap<RunnerName, String> {
        &self.runners
    }

    /// Returns the runners that these jobs name, in order. O(jobs · log details) if there are any.
    fn needed<'a>(
        &'a self,
        jobs: impl Iterator<Item = &'a JobName>,
    ) -> BTreeMap<&'a RunnerName, &'a str> {
        if self.runners.is_empty() {
            return BTreeMap::new();
        }
        let named = jobs.filter_map(|job| self.jobs.get(job)?.runner.as_ref());
        named.filter_map(|name| Some((name, self.runners.get(name)?.as_str()))).collect()
    }

    /// Returns whether the output of the jobs may leave the workers.
    #[must_use]
    pub fn output(&self) -> JobOutput {
        self.output
    }

    /// Returns the number of jobs that begin at a time.
    #[must_use]
    pub fn pace(&self) -> Pace {
        self.pace
    }
}

impl SessionView {
    /// Returns the whole view, as a worker reads it. A job without details runs until it is
    /// stopped, without parameters.
    ///
    /// ```
    /// use swarm_core::handover::{SessionId, SessionView};
    /// use swarm_core::session::Details;
    /// use swarm_core::{Job, Token};
    ///
    /// let once = Job { run_once: true, ..Job::default() };
    /// let details = Details::of(&[("export".parse()?, once)].into());
    /// let jobs = [("camera".parse()?, Token(1)), ("export".parse()?, Token(2))].into();
    /// let session = SessionId::new("pod", 1);
    /// let view = SessionView { session, incarnation: 1, revision: 1, jobs };
    /// let whole = view.with_details(&details);
    /// assert!(whole.jobs["export"].run_once && !whole.jobs["camera"].run_once);
    /// # Ok::<(), swarm_core::JobNameError>(())
    /// ```
    #[must_use]
    pub fn with_details(self, details: &Details) -> WorkerView {
        let Self { session, incarnation, revision, jobs } = self;
        let granted = |(name, token): (&JobName, &Token)| {
            let detail = details.jobs.get(name);
            let run_once = detail.is_some_and(|job| job.run_once);
            let runner = detail.and_then(|job| job.runner.clone());
            let params = detail.map(|job| job.params.clone()).unwrap_or_default();
            (name.clone(), Granted { token: *token, run_once, runner, params })
        };
        let owned = |(name, runner): (&RunnerName, &str)| (name.clone(), runner.to_owned());
        let runners = details.needed(jobs.keys()).into_iter().map(owned).collect();
        let (jobs, runner) = (jobs.iter().map(granted).collect(), details.runner.clone());
        let Details { jobs: _, runner: _, runners: _, knowing: _, output, pace } = *details;
        WorkerView { session, incarnation, revision, jobs, runner, runners, output, pace }
    }

    /// Returns the view without the jobs whose runners its session does not know. A view with fewer
    /// jobs is safe: the session holds the other jobs, and runs none of them. O(jobs · log details)
    /// if some sessions do not know runners with names.
    ///
    /// ```
    /// use swarm_core::handover::{SessionId, SessionView};
    /// use swarm_core::session::Details;
    /// use swarm_core::{Job, RunnerName, Token};
    ///
    /// let encoded = Job { runner: Some(RunnerName::new("encode")?), ..Job::default() };
    /// let details = Details::of(&[("b".parse()?, encoded)].into());
    /// let jobs = [("a".parse()?, Token(1)), ("b".parse()?, Token(2))].into();
    /// let session = SessionId::new("pod", 1);
    /// let view = SessionView { session: session.clone(), incarnation: 1, revision: 1, jobs };
    /// assert_eq!(view.clone().known(&details).jobs.len(), 2);
    /// let knowing = details.clone().with_knowing([session].into());
    /// assert_eq!(view.clone().known(&knowing).jobs.len(), 2);
    /// assert_eq!(view.known(&details.with_knowing([].into())).jobs.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn known(mut self, details: &Details) -> Self {
        let is_beyond = |job: &JobName| details.is_beyond(&self.session, job);
        if details.knowing.is_some() && self.jobs.keys().any(is_beyond) {
            let known = self.jobs.iter().filter(|(job, _)| !is_beyond(job));
            self.jobs = known.map(|(job, token)| (job.clone(), *token)).collect();
        }
        self
    }

    /// Returns a digest of the jobs, tokens and `details` in the view, as for
    /// [`with_details`](Self::with_details). The way to run jobs, the visibility of their output, and
    /// their pace count only if the view has jobs. The digest is the same on every machine and in
    /// every release. O(jobs · log details).
    ///
    /// ```
    /// use swarm_core::Token;
    /// use swarm_core::handover::{SessionId, SessionView};
    /// use swarm_core::session::{Details, JobOutput, Pace};
    ///
    /// let granted = |token| SessionView {
    ///     session: SessionId::new("pod", 1),
    ///     incarnation: 1,
    ///     revision: 1,
    ///     jobs: [("camera".parse().unwrap(), Token(token))].into(),
    /// };
    /// let (none, ping) = (Details::default(), Details::default().with_runner("ping"));
    /// assert_ne!(granted(1).content_digest(&none), granted(2).content_digest(&none));
    /// assert_ne!(granted(1).content_digest(&none), granted(1).content_digest(&ping));
    /// let hidden = Details::default().with_output(JobOutput::Hidden);
    /// assert_ne!(granted(1).content_digest(&none), granted(1).content_digest(&hidden));
    /// let slow = Details::default().with_pace(Pace { max_starting: Some(8), ..Pace::default() });
    /// assert_ne!(granted(1).content_digest(&none), granted(1).content_digest(&slow));
    /// ```
    #[must_use]
    pub fn content_digest(&self, details: &Details) -> u64 {
        let digest = digest_grants(&self.jobs, &details.jobs);
        if self.jobs.is_empty() {
            return digest;
        }
        let runner = details.runner.as_deref();
        let digest = runner.map_or(digest, |runner| digest_and(digest, runner));
        let needed = details.needed(self.jobs.keys()).into_iter();
        let digest = needed.fold(digest, |digest, (name, runner)| {
            digest_and(digest_and(digest, name.as_str()), runner)
        });
        let digest = match details.output {
            JobOutput::Shown => digest,
            JobOutput::Hidden => digest_and(digest, "the output is hidden"),
        };
        if details.pace == Pace::default() {
            return digest;
        }
        let Pace { max_restarting, max_starting } = details.pace;
        let max_starting = max_starting.map(|most| most.to_string()).unwrap_or_default();
        digest_and(digest, &format!("{max_restarting} restart, {max_starting} start"))
    }
}
