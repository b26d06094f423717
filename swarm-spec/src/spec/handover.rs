//! Handover of jobs from one worker to the next.

use std::time;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swarm_core::handover::LeaseTerms;

use crate::duration::{self, Duration};
use crate::rule::Rule;

/// Time between the stop timeout of jobs and the end of the pod. The worker needs it for the last
/// write of its Lease, and for late signals and timers. A worker refuses to start with less.
pub const SESSION_CLOSE: time::Duration = time::Duration::from_secs(2);

/// The shortest time between two renewals of a Lease on a cluster, where an API server serves the
/// renewals of all workers.
pub(crate) const RENEW_MIN: time::Duration = time::Duration::from_millis(500);

/// Protocol of the workers. `Plain`: programs that read their jobs from a file. A pod that holds a
/// session's Lease is still served as a session, so a pool can migrate pod by pod. `Session`:
/// programs that hold a Lease and acknowledge, such as `swarm-worker run --protocol session`; other
/// pods get no jobs. Default: `Session` for `pool.managed` without `image`, and with a runner and
/// without `view`; otherwise `Plain`.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProtocolSpec {
    /// Reads a file.
    #[default]
    Plain,
    /// Holds a Lease and acknowledges.
    Session,
}

impl ProtocolSpec {
    /// The protocol of workers without a written one: of workers that the operator creates from its
    /// own image (`is_ours`), and of others. Only workers in sessions get a runner. A view is for
    /// workers that read it, so a runner next to one decides nothing.
    #[must_use]
    pub const fn following(is_ours: bool, has_runner: bool, has_view: bool) -> Self {
        if is_ours || (has_runner && !has_view) { Self::Session } else { Self::Plain }
    }
}

/// Proof that is needed before a job is granted to the next worker. `AtLeastOnce` also accepts that
/// the time for a release passed, or `rebalance.returnGrace` for a lost worker; then two workers may run
/// the job for a while. `Exclusive` always waits for a proof that the worker stopped the job, and
/// needs `worker.protocol: Session`. Default: `AtLeastOnce`.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PolicySpec {
    /// Accepts a proof or a timeout.
    #[default]
    AtLeastOnce,
    /// Accepts only a proof.
    Exclusive,
}

/// Handover of jobs between workers: the proof that a handover needs, and its timeouts.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [long_enough()]))]
pub struct HandoverSpec {
    /// Proof that is needed before a job is granted to the next worker. Default: `AtLeastOnce`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicySpec>,
    /// Time that a job has to stop before it is killed. On a cluster start workers with the same
    /// `--stop-timeout`. A runner can give its jobs less, as `stop.timeout`. Default: `5s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-validations" = [duration::bounded()])
    )]
    pub stop_timeout: Option<Duration>,
    /// Time that a worker may act after a renewal of its Lease: 2s to 1h, at least `stopTimeout` plus
    /// 1.5s. Workers must be started with the same value. A worker renews five times in it, or more
    /// often if `stopTimeout` requires it. A silent worker is fenced a little later. A worker that
    /// does not release its jobs keeps them for three times this value, at most 60s, and at least
    /// `stopTimeout` plus 10s; with `Exclusive` for any time. Default: `20s`; on one machine longer
    /// if `stopTimeout` requires it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-validations" = [Rule::new(
            "duration(self) >= duration('2s') && duration(self) <= duration('1h')",
            "write a duration from 2s to 1h, for example 20s"
        )])
    )]
    pub lease: Option<Duration>,
}

impl HandoverSpec {
    /// The time that every job has to stop before it is killed.
    pub(crate) fn time_to_stop(&self) -> time::Duration {
        self.stop_timeout.map_or(LeaseTerms::default().stop_timeout, Into::into)
    }
}

/// Refuses a Lease that would end before a late renewal could save it.
fn long_enough() -> Rule {
    let LeaseTerms { duration, stop_timeout, .. } = LeaseTerms::default();
    let [duration, stop] = [duration, stop_timeout].map(|it| it.as_secs());
    let renewals = (RENEW_MIN * 3).as_millis();
    let message = format!(
        "handover.lease is too short: write at least stopTimeout plus {renewals}ms (where they are \
         not written, they are {duration}s and {stop}s)"
    );
    let rule = format!(
        "duration(has(self.lease) ? self.lease : '{duration}s') >= duration(has(self.stopTimeout) ? \
         self.stopTimeout : '{stop}s') + duration('{renewals}ms')"
    );
    Rule::new(rule, message)
}
