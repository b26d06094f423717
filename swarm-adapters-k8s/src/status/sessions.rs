//! Part of the status about sessions: which are live, which do not answer, and the remedy.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use swarm_core::overseer::Suspicion;
use swarm_core::session::JobOutput;
use swarm_core::verdict::{FailingShown, Reason as Shared, failing_jobs};
use swarm_core::{Desired, Failing, FailingJob, Observed, Progress, Replication};

use super::degraded::Trouble;
use super::{EventReason, Part, Reason, Verdict, counted, number, shortened};

/// The condition that says whether jobs are healthy.
pub(crate) const HEALTHY: &str = "Healthy";

/// The reason of a false condition, and of its Event.
const JOBS_FAILING: &str = EventReason::JobsFailing.as_str();

/// The reason of the problem that a policy is missing that mode Exclusive needs.
const SESSIONS_UNPROTECTED: &str = EventReason::SessionsUnprotected.as_str();

/// Number of failing jobs, or of jobs that still stop, that a message describes.
pub(crate) const SHOWN: usize = 3;

/// A worker that does not release its jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// The worker's name, or its slot if another worker has that slot now.
    pub worker: String,
    /// The time of the first request.
    pub since: Timestamp,
    /// Number of jobs that wait for the worker.
    pub jobs: usize,
}

/// A job that its previous worker still has to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StillStopping {
    /// The job.
    pub job: String,
    /// The worker's name, or its slot if another worker has that slot now.
    pub worker: String,
    /// The time of the request.
    pub since: Timestamp,
}

/// A silent session that was revoked. Other workers may run its jobs now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fenced {
    /// The worker's name, or its slot if another worker has that slot now.
    pub worker: String,
    /// The time of its last renewal.
    pub since: Timestamp,
    /// The longest time for which one of its jobs was not running.
    pub stood: Duration,
    /// Its jobs.
    pub jobs: Vec<String>,
}

impl Fenced {
    /// The sentence of its Event.
    pub(crate) fn note(&self) -> String {
        let Self { worker, since, stood, jobs } = self;
        let names: Vec<_> = jobs.iter().map(String::as_str).collect();
        format!(
            "worker `{worker}` has not renewed its Lease since {}, so its session was revoked and waited \
             out; {} stood still for at most {} s: {}",
            since.strftime("%H:%M:%S UTC"),
            counted(jobs.len(), "job"),
            stood.as_secs(),
            shortened(&names)
        )
    }
}

/// Report on the sessions of a pool after a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionReport {
    /// Jobs that are kept away from workers for a while.
    pub quarantined: Vec<String>,
    /// Number of live sessions.
    pub living: usize,
    /// The workers that have not acknowledged their newest view.
    pub stale: Vec<String>,
    /// The workers that get no jobs because of impossible claims.
    pub suspects: Vec<(String, Suspicion)>,
    /// The workers with failing jobs.
    pub failing: Vec<(String, Failing)>,
    /// The workers that no policy restricts to their own Leases.
    pub unprotected: Vec<String>,
    /// The workers that know no runners with names, with the number of jobs that wait for their
    /// update.
    pub outdated: Vec<(String, usize)>,
    /// The longest duration of a Lease.
    pub lease: Duration,
    /// Number of silent sessions that are not revoked, because many are silent at once.
    pub held_back: usize,
    /// The workers that were asked long ago to release jobs.
    pub unanswered: Vec<Unanswered>,
    /// Number of jobs whose workers acknowledged the grant and do not report them as failing.
    pub running: usize,
    /// Number of jobs whose workers have not acknowledged the grant, and never do if they are plain.
    pub published: usize,
    /// Numbers of jobs by phase.
    pub phases: BTreeMap<&'static str, usize>,
    /// Number of jobs that their previous workers still have to stop.
    pub stopping: usize,
    /// The oldest request to stop a job.
    pub oldest_release: Option<Timestamp>,
    /// The first of the stopping jobs. Jobs that their workers report as still stopping come first,
    /// then the jobs with the oldest requests.
    pub slowest: Vec<StillStopping>,
    /// The revoked sessions whose jobs run elsewhere since this turn.
    pub fenced: Vec<Fenced>,
    /// Whether only a proof ends their ownership.
    pub is_exclusive: bool,
}

impl SessionReport {
    /// The most important verdict on sessions. Only an incomplete pool comes before it.
    pub(super) fn verdict(&self) -> Option<Verdict> {
        self.all().next()
    }

    /// The jobs that still stop, with their workers and start times, for the end of a sentence.
    pub(super) fn still_stopping(&self) -> Option<String> {
        let shown = self.slowest.iter().map(|StillStopping { job, worker, since }| {
            format!("`{job}` on `{worker}` since {}", since.strftime("%H:%M:%S UTC"))
        });
        let shown: Vec<_> = shown.collect();
        let more = self.stopping.saturating_sub(shown.len());
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        (!shown.is_empty()).then(|| format!("still to stop: {}{more}", shown.join(", ")))
    }

    /// The problems, in the order of their importance.
    pub(super) fn troubles(&self) -> impl Iterator<Item = Trouble> {
        self.all().map(Trouble::from).chain(self.unprotected())
    }

    /// The problem of workers that could renew the Leases of other workers. `swarm-worker`
    /// never does that, so the Swarm stays ready.
    fn unprotected(&self) -> Option<Trouble> {
        let names: Vec<_> = self.unprotected.iter().map(String::as_str).collect();
        let message = format!(
            "nothing keeps {} from the Leases of others, so a worker that lies breaks \
             handover.policy Exclusive: {}. An administrator applies deploy/base/policy.yaml, \
             which does not protect namespaces such as kube-system; then restart the workers",
            number(names.len(), "this worker", "these workers"),
            shortened(&names)
        );
        let is_so = self.is_exclusive && !names.is_empty();
        is_so.then_some(Trouble { reason: SESSIONS_UNPROTECTED, message })
    }

    /// The report without the output of jobs, if the Swarm hides it.
    #[must_use]
    pub fn with_output(mut self, output: JobOutput) -> Self {
        if output == JobOutput::Hidden {
            let silent = |(worker, it): (String, Failing)| (worker, it.without_output());
            self.failing = self.failing.into_iter().map(silent).collect();
        }
        self
    }

    /// Number of failing jobs.
    #[must_use]
    pub fn failing_jobs(&self) -> usize {
        self.failing.iter().map(|(_, failing)| failing.count).fold(0, usize::saturating_add)
    }

    /// The condition about failing jobs, as their workers report them. A failing job has a worker,
    /// so the Swarm is ready unless all jobs fail.
    pub(super) fn healthy(&self, observed: &Observed) -> Part {
        if 0 < self.failing_jobs() {
            return Part::new(HEALTHY, false, JOBS_FAILING, self.are_failing());
        }
        let sessions = observed.workers.values().filter_map(|worker| worker.session.as_ref());
        let has_sessions = sessions.into_iter().any(|session| !session.is_plain());
        if has_sessions && self.running == 0 && 0 < self.published {
            let message =
                "no job is known to run: its worker is silent, or has not acknowledged it";
            let (kind, status, reason) = (HEALTHY, "Unknown", "NotConfirmed".to_owned());
            return Part { kind, status, reason, message: message.to_owned() };
        }
        if has_sessions {
            return Part::new(HEALTHY, true, "NoneFailing", "no job fails".to_owned());
        }
        let message = "no worker reports how its jobs end; workers with sessions do".to_owned();
        Part { kind: HEALTHY, status: "Unknown", reason: "NotReported".to_owned(), message }
    }

    /// The verdict if every job that has a worker fails.
    pub(super) fn all_failing(&self, desired: &Desired, progress: &Progress) -> Option<Verdict> {
        let of_each = match desired.replication {
            Replication::One => 1,
            Replication::All => self.living,
        };
        let run = progress.jobs.granted * of_each;
        let is_so = 0 < run && run <= self.failing_jobs();
        is_so.then(|| Verdict {
            reason: Reason::Shared(Shared::AllJobsFailing),
            message: self.are_failing(),
        })
    }

    /// The sentence about failing jobs: their number, and the worst of them with workers and last
    /// lines.
    pub(super) fn are_failing<'a>(&'a self) -> String {
        let all = self
            .failing
            .iter()
            .flat_map(|(worker, failing)| failing.worst.iter().map(move |job| (worker, job)));
        let mut all: Vec<_> = all.collect();
        all.sort_by_cached_key(|(_, job)| job.worst_first());
        let shown = |(worker, failing): &(&'a String, &'a FailingJob)| FailingShown {
            job: failing.job.as_str(),
            worker,
            state: failing.state,
            last_exit: &failing.last_exit,
            last_line: failing.last_output.last().map(String::as_str),
        };
        let worst: Vec<_> = all.iter().take(SHOWN).map(shown).collect();
        failing_jobs(self.failing_jobs(), &worst)
    }

    fn all(&self) -> impl Iterator<Item = Verdict> {
        let claims = [self.too_long(), self.suspect(), self.held_back(), self.unanswered()];
        claims.into_iter().flatten().chain(self.outdated())
    }

    /// The verdict on existing workers that get no jobs at all.
    pub(super) fn excluded(&self) -> Option<Verdict> {
        self.too_long().or_else(|| self.suspect())
    }

    fn too_long(&self) -> Option<Verdict> {
        let too_long = self.suspects.iter().filter_map(|(worker, why)| match why {
            Suspicion::LongLease(lease) => Some((worker.as_str(), lease)),
            Suspicion::UnpublishedRevision
            | Suspicion::ForeignIncarnation
            | Suspicion::UncountedRenewals
            | Suspicion::FalseFinish(_) => None,
        });
        let all: Vec<_> = too_long.collect();
        let (worker, lease) = all.first()?;
        let names: Vec<_> = all.iter().map(|(name, _)| *name).collect();
        let message = format!(
            "{} Leases for longer than the {:?} of handover.lease: {}; `{worker}` says \
             {lease:?}: start it with the duration of the Swarm, or raise that",
            number(
                names.len(),
                "this worker gets no jobs, since it holds",
                "these workers get no jobs, since they hold"
            ),
            self.lease,
            shortened(&names)
        );
        Some(Verdict { reason: Reason::LeaseTooLong, message })
    }

    /// The verdict on workers whose Leases make impossible claims.
    fn suspect(&self) -> Option<Verdict> {
        let claim = |(worker, why): &(String, Suspicion)| match why {
            Suspicion::LongLease(_) => None,
            Suspicion::UnpublishedRevision => Some(format!(
                "`{worker}` acknowledges jobs that were never published, and gets none"
            )),
            Suspicion::ForeignIncarnation => Some(format!(
                "`{worker}` acknowledges another ledger than that of this Swarm, and gets no jobs"
            )),
            Suspicion::UncountedRenewals => Some(format!(
                "`{worker}` writes its Lease without a higher number, so it renews nothing and gets no jobs"
            )),
            Suspicion::FalseFinish(jobs) => Some(format!(
                "`{worker}` calls {} finished that it does not hold or that {} not run to completion, \
                 which is ignored",
                counted(*jobs, "job"),
                number(*jobs, "does", "do")
            )),
        };
        let claims: Vec<_> = self.suspects.iter().filter_map(claim).collect();
        if claims.is_empty() {
            return None;
        }
        let claims: Vec<_> = claims.iter().map(String::as_str).collect();
        let message = format!(
            "some workers are not believed: {}; find out what their pods run and who else may write \
             their Leases, then delete them",
            shortened(&claims)
        );
        Some(Verdict { reason: Reason::WorkersSuspect, message })
    }

    fn held_back(&self) -> Option<Verdict> {
        let message = format!(
            "{} {} silent at once, or the operator's own requests fail. For twice the lease \
             duration no Lease is revoked, and then few at a time; until then the workers keep \
             their jobs",
            counted(self.held_back, "worker"),
            number(self.held_back, "is", "are")
        );
        (0 < self.held_back).then_some(Verdict { reason: Reason::RevocationHeld, message })
    }

    /// The verdict on workers that would run jobs in another way than the jobs say.
    fn outdated(&self) -> Option<Verdict> {
        let names: Vec<_> = self.outdated.iter().map(|(worker, _)| worker.as_str()).collect();
        let jobs: usize = self.outdated.iter().map(|(_, jobs)| jobs).sum();
        let message = format!(
            "{} of a version that knows no `runners`: {}; {} {} for {} update, since no worker may \
             run a job with another runner",
            number(names.len(), "this worker is", "these workers are"),
            shortened(&names),
            counted(jobs, "job"),
            number(jobs, "waits", "wait"),
            number(names.len(), "its", "their")
        );
        (!names.is_empty()).then_some(Verdict { reason: Reason::WorkersOutdated, message })
    }

    fn unanswered(&self) -> Option<Verdict> {
        let Unanswered { worker, since, jobs } = self.unanswered.first()?;
        let names: Vec<_> = self.unanswered.iter().map(|it| it.worker.as_str()).collect();
        let since = since.strftime("%H:%M:%S UTC");
        let then = if self.is_exclusive {
            "with handover.policy Exclusive no other worker gets them without a proof: an answer, \
             the end of its pod's containers, or a revoked Lease whose grace has elapsed. Delete \
             the pod if the worker never answers. If its node is permanently off, delete the node \
             or taint it node.kubernetes.io/out-of-service"
        } else {
            "after a while other workers get them anyway"
        };
        let message = format!(
            "{} not answered: {}; `{worker}` since {since}, {}; {then}",
            number(
                names.len(),
                "this worker was asked to release jobs and has",
                "these workers were asked to release jobs and have"
            ),
            shortened(&names),
            counted(*jobs, "job")
        );
        Some(Verdict { reason: Reason::ReleaseUnanswered, message })
    }
}

#[cfg(test)]
mod tests {
    use swarm_core::FailingState;

    use super::*;

    fn reported(sessions: &SessionReport) -> Vec<String> {
        sessions.troubles().map(|it| format!("{}: {}", it.reason, it.message)).collect()
    }

    #[test]
    fn each_trouble_says_what_helps() {
        assert_eq!(reported(&SessionReport::default()), Vec::<String>::new());
        let since = "2026-01-01T10:20:30Z".parse().unwrap();
        let sessions = SessionReport {
            suspects: vec![
                ("w-0".into(), Suspicion::LongLease(Duration::from_secs(30))),
                ("w-2".into(), Suspicion::UnpublishedRevision),
                ("w-3".into(), Suspicion::FalseFinish(7)),
                ("w-4".into(), Suspicion::UncountedRenewals),
            ],
            lease: Duration::from_secs(20),
            held_back: 4,
            unanswered: vec![Unanswered { worker: "w-1".into(), since, jobs: 2 }],
            is_exclusive: true,
            ..SessionReport::default()
        };
        let all = reported(&sessions);
        let words = |n: usize, words: &[&str]| words.iter().all(|word| all[n].contains(word));
        assert!(words(0, &["LeaseTooLong: ", "`w-0` says 30s", "longer than the 20s"]), "{all:?}");
        let claims =
            ["`w-2` acknowledges", "`w-3` calls 7 jobs finished", "`w-4` writes its Lease"];
        let suspect = [&["WorkersSuspect: "], &claims[..]].concat();
        assert!(words(1, &suspect), "{all:?}");
        assert!(words(2, &["RevocationHeld: 4 workers are silent"]), "{all:?}");
        assert!(words(3, &["w-1", "since 10:20:30 UTC, 2 jobs", "Delete the pod"]), "{all:?}");
        assert_eq!(all.len(), 4);
        let weaker = SessionReport { is_exclusive: false, ..sessions };
        assert!(reported(&weaker)[3].contains("after a while"));
    }

    #[test]
    fn no_pool_is_healthy_whose_workers_confirm_no_job() {
        let session = Some(swarm_core::handover::SessionId::new("pod", 1));
        let seen = swarm_core::WorkerSeen::new("w-0", swarm_core::Presence::Ready, session);
        let observed = Observed::new([(swarm_core::Slot(0), seen)], 1, []);
        let status = |running, published| {
            let report = SessionReport { running, published, ..SessionReport::default() };
            report.healthy(&observed).status
        };
        assert_eq!([status(0, 3), status(1, 2), status(0, 0)], ["Unknown", "True", "True"]);
    }

    #[test]
    fn jobs_that_still_stop_are_named_with_their_worker_and_since_when() {
        let since = "2026-01-01T10:20:30Z".parse().unwrap();
        let slow = |job: &str| StillStopping { job: job.into(), worker: "w-1".into(), since };
        let one =
            SessionReport { stopping: 1, slowest: vec![slow("slow")], ..SessionReport::default() };
        let said = "still to stop: `slow` on `w-1` since 10:20:30 UTC";
        assert_eq!(one.still_stopping().unwrap(), said);
        let many = SessionReport { stopping: 34, ..one };
        assert_eq!(many.still_stopping().unwrap(), format!("{said} and 33 more"));
        assert_eq!(SessionReport::default().still_stopping(), None);
    }

    #[test]
    fn jobs_that_wait_for_the_update_of_their_worker_are_counted() {
        let outdated = vec![("w-0".to_owned(), 3)];
        let all = reported(&SessionReport { outdated, ..SessionReport::default() });
        let [outdated] = &all[..] else { panic!("{all:?}") };
        for part in ["WorkersOutdated: ", " no `runners`: w-0; 3 jobs wait"] {
            assert!(outdated.contains(part), "{part}: {outdated}");
        }
    }

    #[test]
    fn a_missing_policy_is_said_where_exclusive_relies_on_it() {
        let mut sessions =
            SessionReport { unprotected: vec!["w-1".into()], ..SessionReport::default() };
        assert_eq!(reported(&sessions), Vec::<String>::new());
        sessions.is_exclusive = true;
        let all = reported(&sessions);
        assert!(all[0].starts_with("SessionsUnprotected: nothing keeps this"), "{all:?}");
        assert!(all[0].contains(": w-1. An administrator"), "{all:?}");
        assert_eq!(sessions.verdict(), None, "it is ready anyway");
    }

    #[test]
    fn jobs_that_fail_are_counted_and_the_worst_described() {
        let job = |name: &str, state, restarts| FailingJob {
            job: name.parse().unwrap(),
            state,
            restarts,
            since_unix_s: 7,
            last_exit: "ended with exit code 3".into(),
            last_output: vec!["opening".into(), "no such camera".into()],
        };
        let one = Failing::of(&[job("a", FailingState::Restarting, 9)], 3);
        let sessions = SessionReport { failing: vec![("w-0".into(), one)], ..Default::default() };
        let healthy = |sessions: &SessionReport| {
            let Part { status, reason, message, .. } = sessions.healthy(&Observed::new([], 0, []));
            format!("{status} {reason} {message}")
        };
        let shown = healthy(&sessions.clone().with_output(JobOutput::Shown));
        assert_eq!(shown, healthy(&sessions));
        let hidden = healthy(&sessions.clone().with_output(JobOutput::Hidden));
        assert_eq!(hidden, shown.replace(" (`no such camera`)", ""));
        assert_ne!(hidden, shown);
        let expected = "False JobsFailing 1 job fails: `a` on `w-0` ended with exit code 3 \
                        (`no such camera`)";
        assert_eq!(healthy(&sessions), expected);
        assert_eq!(sessions.verdict(), None, "it is ready anyway");
        assert!(healthy(&SessionReport::default()).starts_with("Unknown NotReported"));
        let many = Failing { count: 7, ..Failing::of(&[job("b", FailingState::Failed, 1)], 3) };
        let failing = [sessions.failing, vec![("w-1".into(), many)]].concat();
        let all = healthy(&SessionReport { failing, ..Default::default() });
        let expected = "False JobsFailing 8 jobs fail, among them `b` on `w-1` ended";
        assert!(all.starts_with(expected), "{all}");
        assert!(all.contains("and is not restarted any more; `a` on `w-0`"), "{all}");
    }
}
