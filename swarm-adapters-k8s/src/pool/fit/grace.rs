//! Checks that workers have the time to stop their jobs before their pods are killed.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use swarm_client::api::Swarm;
use swarm_core::handover::LeaseTerms;
use swarm_spec::convert::whole_seconds;
use swarm_spec::spec::{ProtocolSpec, SESSION_CLOSE};

use super::said::{self, Said};
use super::{Misfit, is_session_worker};

/// The default termination grace of a pod, in seconds.
pub(super) const KUBERNETES_SECONDS: i64 = 30;
/// The default termination grace of a worker.
const WORKER_GRACE: Duration = Duration::from_secs(30);
/// The shortest termination grace that a message proposes, in seconds. A worker that is ending
/// keeps its jobs for that time while they are moved.
const LEAST_SECONDS: u64 = 30;
/// Time of a pod beyond the stop timeout of its jobs. It is for signals, for the last write of its
/// Lease, and for the kubelet.
const MARGIN: Duration = Duration::from_secs(10);

/// The termination grace in seconds for jobs that may take `stop_timeout` to stop: `max(30 s, stop
/// timeout + 10 s)`, rounded up.
pub(crate) fn grace_for(stop_timeout: Duration) -> i64 {
    let seconds = whole_seconds(stop_timeout.saturating_add(MARGIN));
    i64::try_from(seconds.max(LEAST_SECONDS)).unwrap_or(i64::MAX)
}

/// The termination grace of a pod as a duration; negative seconds count as zero.
pub(crate) fn grace_of(seconds: i64) -> Duration {
    Duration::from_secs(seconds.try_into().unwrap_or_default())
}

/// Whether a pod with this grace ends in time if its jobs take `stop` to stop. A worker of a
/// session also has to close the session.
pub(crate) fn is_enough(grace: Duration, stop: Duration, protocol: ProtocolSpec) -> bool {
    match protocol {
        ProtocolSpec::Session => stop.saturating_add(SESSION_CLOSE) <= grace,
        ProtocolSpec::Plain => stop < grace,
    }
}

/// Judges the termination grace.
pub(super) fn misfit(swarm: &Swarm, pod: &PodSpec) -> Option<Misfit> {
    let grace = grace_of(pod.termination_grace_period_seconds.unwrap_or(KUBERNETES_SECONDS));
    let workers = pod.containers.iter().filter(|it| is_session_worker(it));
    let of_workers = workers.clone().find_map(|worker| of_worker(swarm, worker, grace));
    of_workers.or_else(|| of_swarm(swarm, grace, workers.count()))
}

/// The stop timeout that the Swarm writes.
fn written(swarm: &Swarm) -> Option<Duration> {
    swarm.spec.handover.as_ref()?.stop_timeout.map(Into::into)
}

/// The timing settings of a worker of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    /// Stop timeout of its jobs.
    pub(crate) stop: Duration,
    /// Time in which the worker has to end.
    pub(crate) given: Duration,
}

impl Times {
    /// The settings of a container; `None` if they cannot be known.
    pub(crate) fn of(worker: &Container) -> Option<Self> {
        let stop = time(&said::STOP_TIMEOUT, worker, LeaseTerms::default().stop_timeout)?;
        Some(Self { stop, given: time(&said::GRACE, worker, WORKER_GRACE)? })
    }

    /// Whether a worker with these settings refuses to start.
    fn are_refused(self) -> bool {
        !is_enough(self.given, self.stop, ProtocolSpec::Session)
    }

    /// Whether a worker with these settings starts, and closes its session before its pod is
    /// killed.
    pub(crate) fn fit(self, grace: Duration) -> bool {
        !self.are_refused() && self.given <= grace
    }
}

/// Judges the timing settings of a worker of sessions.
fn of_worker(swarm: &Swarm, worker: &Container, grace: Duration) -> Option<Misfit> {
    let times = Times::of(worker)?;
    let (Times { stop, given }, name) = (times, &worker.name);
    let longest = stop.max(written(swarm).unwrap_or_default());
    let proposed = grace_for(longest);
    if times.are_refused() {
        return Some(Misfit {
            reason: "GraceTooShort",
            message: format!(
                "container `{name}` will not start: SWARM_GRACE gives its worker {given:?} to end \
                 (default 30s), but its jobs may take {stop:?} to stop, and closing its session \
                 {SESSION_CLOSE:?} more. Write terminationGracePeriodSeconds: {proposed} and \
                 SWARM_GRACE: {proposed}s"
            ),
        });
    }
    if !times.fit(grace) {
        let seconds = grace.as_secs();
        let write = if is_enough(grace, longest, ProtocolSpec::Session) {
            let given = whole_seconds(given);
            format!("SWARM_GRACE: {seconds}s, or terminationGracePeriodSeconds: {given}")
        } else {
            format!("terminationGracePeriodSeconds: {proposed} and SWARM_GRACE: {proposed}s")
        };
        return Some(Misfit {
            reason: "GraceContradicts",
            message: format!(
                "the worker in container `{name}` takes {given:?} to end (SWARM_GRACE, 30s if it is \
                 not written), but its pod is killed after {seconds}s \
                 (terminationGracePeriodSeconds); write {write}"
            ),
        });
    }
    None
}

/// Judges the termination grace by the stop timeout of the Swarm. A program that is not known to be
/// `swarm-worker` has no stop timeout of its own, so only a written one counts.
fn of_swarm(swarm: &Swarm, grace: Duration, workers: usize) -> Option<Misfit> {
    let stop = written(swarm)?;
    let protocol = if 0 < workers { ProtocolSpec::Session } else { swarm.protocol() };
    let (seconds, least) = (grace.as_secs(), grace_for(stop));
    let message = format!(
        "pods are killed after {seconds}s (terminationGracePeriodSeconds), and their jobs may take \
         {stop:?} to stop (spec.handover.stopTimeout); write terminationGracePeriodSeconds: {least}"
    );
    (!is_enough(grace, stop, protocol)).then_some(Misfit { reason: "GraceTooShort", message })
}

/// One timing setting of a worker; `None` if it cannot be known.
fn time(option: &said::Opt, worker: &Container, default: Duration) -> Option<Duration> {
    match option.of(worker) {
        Said::Default => Some(default),
        Said::Value(text) => text.parse::<swarm_spec::Duration>().ok().map(Into::into),
        Said::Elsewhere => None,
    }
}
