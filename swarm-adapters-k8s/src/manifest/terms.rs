//! What a manifest asks of workers and of handovers, in words that know nothing of Kubernetes.

use std::time::Duration;

use swarm_core::Replication;
use swarm_core::handover::{LeaseTerms, Policy};

use super::spec;
use crate::convert::SpecError;

/// The most words of a command.
const WORDS_MAX: usize = 256;
/// The most bytes of one word of a command.
const WORD_BYTES_MAX: usize = 4_096;

/// What a worker does with a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Runner {
    /// Writes a line a second.
    #[default]
    Log,
    /// Runs a program with these arguments. `{job}` in them stands for the job's name; whoever runs
    /// it replaces it.
    Command(Vec<String>),
    /// Calls an HTTP endpoint `host:port`, which is the job's name, again and again.
    Ping {
        /// How long from one ping to the next.
        interval: Duration,
        /// How long an answer is waited for.
        timeout: Duration,
    },
}

impl Runner {
    /// How long from one ping to the next, unless the manifest says otherwise.
    pub const PING_INTERVAL: Duration = Duration::from_secs(30);
    /// How long an answer is waited for, unless the manifest says otherwise.
    pub const PING_TIMEOUT: Duration = Duration::from_secs(5);

    pub(super) fn read(spec: Option<spec::Runner>) -> Result<Self, SpecError> {
        let Some(spec::Runner { log, command, ping }) = spec else { return Ok(Self::Log) };
        match (log, command, ping) {
            (Some(_), None, None) => Ok(Self::Log),
            (None, Some(words), None) => command_of(words),
            (None, None, Some(spec::Ping { interval, timeout })) => Ok(Self::Ping {
                interval: longer_than_0(PING_INTERVAL_PLACE, interval, Self::PING_INTERVAL)?,
                timeout: longer_than_0(PING_TIMEOUT_PLACE, timeout, Self::PING_TIMEOUT)?,
            }),
            (log, command, ping) => {
                let count = [log.is_some(), command.is_some(), ping.is_some()];
                let count = count.into_iter().filter(|is_some| *is_some).count();
                Err(wrong(
                    "spec.worker.runner",
                    format!("it has {count} of `log`, `command` and `ping`; write exactly one"),
                ))
            }
        }
    }
}

const PING_INTERVAL_PLACE: &str = "spec.worker.runner.ping.interval";
const PING_TIMEOUT_PLACE: &str = "spec.worker.runner.ping.timeout";

fn command_of(words: Vec<String>) -> Result<Runner, SpecError> {
    let wrong = |reason: String| Err(wrong("spec.worker.runner.command", reason));
    if words.first().is_none_or(String::is_empty) {
        return wrong(
            "it names no program; write for example [\"ffmpeg\", \"-i\", \"{job}\"]".into(),
        );
    }
    if WORDS_MAX < words.len() {
        return wrong(format!("it has {} words; at most {WORDS_MAX} are allowed", words.len()));
    }
    for (index, word) in words.iter().enumerate() {
        if word.contains('\0') || WORD_BYTES_MAX < word.len() {
            let most = format!("at most {WORD_BYTES_MAX} bytes without NUL");
            return wrong(format!("word {index} cannot be an argument; write {most}"));
        }
    }
    Ok(Runner::Command(words))
}

/// How jobs are handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handover {
    /// What it takes to end an ownership.
    pub policy: Policy,
    /// How long a release waits for its acknowledgement, where the policy lets it.
    pub release_timeout: Duration,
    /// How long a job may take to stop.
    pub stop_timeout: Duration,
    /// How long a worker may act after a renewal; at least 3 × `lease_renew` + `stop_timeout`.
    pub lease_duration: Duration,
    /// How often a worker renews.
    pub lease_renew: Duration,
}

impl Default for Handover {
    fn default() -> Self {
        let lease = LeaseTerms::default();
        Self {
            policy: Policy::default(),
            release_timeout: Duration::from_mins(1),
            stop_timeout: lease.stop_timeout,
            lease_duration: lease.duration,
            lease_renew: lease.renew,
        }
    }
}

impl Handover {
    pub(super) fn read(spec: Option<spec::Handover>) -> Result<Self, SpecError> {
        let default = Self::default();
        let spec = spec.unwrap_or_default();
        let spec::Handover { policy, release_timeout, stop_timeout, lease } = spec;
        let spec::Lease { duration, renew } = lease.unwrap_or_default();
        let policy = match policy {
            None => default.policy,
            Some(spec::Policy::AtLeastOnce) => Policy::AtLeastOnce,
            Some(spec::Policy::Exclusive) => Policy::Exclusive,
        };
        let renew = longer_than_0("spec.handover.lease.renew", renew, default.lease_renew)?;
        let stop_timeout = stop_timeout.map_or(default.stop_timeout, Into::into);
        let lease_duration = duration.map_or(default.lease_duration, Into::into);
        let least = renew * 3 + stop_timeout;
        if lease_duration < least {
            return Err(wrong(
                "spec.handover.lease.duration",
                format!(
                    "{lease_duration:?} is too short; write at least {least:?}, \
                     which is 3 × renew + stopTimeout"
                ),
            ));
        }
        let release_timeout = release_timeout.map_or(default.release_timeout, Into::into);
        Ok(Self { policy, release_timeout, stop_timeout, lease_duration, lease_renew: renew })
    }
}

/// When a turn is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacing {
    /// The first change is acted on at once; those that follow within this time are gathered.
    pub batch_window: Duration,
    /// Whether everything stays where it is until this is taken back.
    pub paused: bool,
}

impl Default for Pacing {
    fn default() -> Self {
        Self { batch_window: Duration::from_secs(1), paused: false }
    }
}

impl Pacing {
    pub(super) fn read(spec: &spec::Rebalance) -> Self {
        let default = Self::default();
        Self {
            batch_window: spec.batch_window.map_or(default.batch_window, Into::into),
            paused: spec.paused.unwrap_or(default.paused),
        }
    }
}

impl From<spec::Replication> for Replication {
    fn from(spec: spec::Replication) -> Self {
        match spec {
            spec::Replication::One => Self::One,
            spec::Replication::All => Self::All,
        }
    }
}

fn longer_than_0(
    place: &str,
    given: Option<kube::core::Duration>,
    default: Duration,
) -> Result<Duration, SpecError> {
    let duration = given.map_or(default, Duration::from);
    if duration.is_zero() {
        return Err(wrong(place, "0s is no time at all; write for example 1s".into()));
    }
    Ok(duration)
}

fn wrong(place: &str, reason: String) -> SpecError {
    SpecError { place: place.to_owned(), reason }
}
