//! What a worker does with a job, in words that know nothing of Kubernetes.

use std::time::Duration;

use crate::convert::SpecError;
use crate::spec::{PingRunnerSpec, RunnerSpec, WORD_MAX, WORDS_MAX};

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

    pub(crate) fn read(spec: Option<RunnerSpec>) -> Result<Self, SpecError> {
        let Some(RunnerSpec { log, command, ping }) = spec else { return Ok(Self::Log) };
        match (log, command, ping) {
            (Some(_), None, None) => Ok(Self::Log),
            (None, Some(words), None) => command_of(words),
            (None, None, Some(PingRunnerSpec { interval, timeout })) => Ok(Self::Ping {
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
        if word.contains('\0') || WORD_MAX < word.chars().count() {
            let most = format!("at most {WORD_MAX} characters without NUL");
            return wrong(format!("word {index} cannot be an argument; write {most}"));
        }
    }
    Ok(Runner::Command(words))
}

fn longer_than_0(
    place: &str,
    given: Option<crate::Duration>,
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
