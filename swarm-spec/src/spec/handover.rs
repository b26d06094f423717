//! How jobs are handed over from one worker to the next.

use std::time;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swarm_core::handover::LeaseTerms;

use crate::duration::{self, Duration};
use crate::rule::Rule;

/// Time that a worker in a pod needs beyond the stop timeout before the pod is killed: for the last
/// write of its Lease, and for late signals and timers. A worker refuses to start with less.
pub const SESSION_CLOSE: time::Duration = time::Duration::from_secs(2);

/// How workers are spoken to. `Plain`, the default: any program that reads its jobs from a file. A pod
/// that holds the Lease of a session is served as one all the same, so that a pool can be moved over
/// pod by pod. `Session`: programs that hold a Lease and acknowledge what they are told, as
/// `swarm-worker run --protocol session` and its library do; a pod without such a Lease gets no jobs.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProtocolSpec {
    /// A file.
    #[default]
    Plain,
    /// A Lease and acknowledgements.
    Session,
}

/// What it takes to end an ownership. `AtLeastOnce`, the default: a proof, or having waited
/// `releaseTimeout` for an answer or `rebalance.returnGrace` for a worker that is gone; two workers may
/// run a job for a while. `Exclusive`: a proof, whatever happens; a job may stand still for as long as
/// there is none. It needs `worker.protocol: Session`.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PolicySpec {
    /// A proof, or patience.
    #[default]
    AtLeastOnce,
    /// A proof.
    Exclusive,
}

/// How jobs are handed over, and how long workers wait for each other.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [long_enough()]))]
pub struct HandoverSpec {
    /// What it takes to end an ownership. Default: `AtLeastOnce`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicySpec>,
    /// How long workers that gain jobs wait for those that gave them and were not brought up to date
    /// yet, how long a release waits for its acknowledgement (not with `Exclusive`), and how long a
    /// Swarm that is deleted waits for its workers to stop. Default: `60s`, and at least `stopTimeout`
    /// plus 10s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [duration::bounded()]))]
    pub release_timeout: Option<Duration>,
    /// The time that a job has to stop, whatever ends it; then it is killed. A worker on a cluster needs
    /// the same value as `--stop-timeout`. Default: `5s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [duration::bounded()]))]
    pub stop_timeout: Option<Duration>,
    /// The timing of the Leases that workers hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseTermsSpec>,
}

/// The timing of the Leases that workers hold. The worker has to be told the same.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LeaseTermsSpec {
    /// How long a worker may act after it renewed its Lease, from 2s to 1h; at least 3 × `renew` +
    /// `stopTimeout`. A worker that falls silent is waited for a little longer than this. Default: `20s`;
    /// on one machine longer, where `stopTimeout` needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [Rule::new(
        "duration(self) >= duration('2s') && duration(self) <= duration('1h')",
        "write a duration from 2s to 1h, for example 20s"
    )]))]
    pub duration: Option<Duration>,
    /// How often a worker renews its Lease, from 500ms to 20m. Default: `4s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [Rule::new(
        "duration(self) >= duration('500ms') && duration(self) <= duration('20m')",
        "write a duration from 500ms to 20m, for example 4s"
    )]))]
    pub renew: Option<Duration>,
}

/// A Lease that is too short would end before a late renewal could save it.
fn long_enough() -> Rule {
    let LeaseTerms { duration, renew, stop_timeout, .. } = LeaseTerms::default();
    let [duration, renew, stop] = [duration, renew, stop_timeout].map(|it| it.as_secs());
    let of_lease = |field: &str, default: u64| {
        let is_said = format!("has(self.lease) && has(self.lease.{field})");
        format!("duration({is_said} ? self.lease.{field} : '{default}s')")
    };
    let lasts = of_lease("duration", duration);
    let renews = of_lease("renew", renew);
    let stops = format!("duration(has(self.stopTimeout) ? self.stopTimeout : '{stop}s')");
    let message = format!(
        "handover.lease.duration is too short: write at least 3 times lease.renew plus stopTimeout \
         (where they are not written, they are {duration}s, {renew}s and {stop}s)"
    );
    let rule = format!("{lasts} >= {renews} + {renews} + {renews} + {stops}");
    Rule::new(rule, message)
}
