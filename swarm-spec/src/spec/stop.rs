//! The way in which the jobs of a runner are stopped.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swarm_core::handover::LeaseTerms;

use crate::duration::{self, Duration};
use crate::rule::Rule;

/// Stop of a job, step by step.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StopSpec {
    /// Signal that asks the job to end. Default: `SIGTERM`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<StopSignal>,
    /// Processes that get the signal. `Main`: the process of `command` only, which ends its
    /// children itself. Default: `All`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<StopTo>,
    /// Program that stops the job, instead of the signal, such as `[docker, stop, "{job}"]`. It runs
    /// in the directory and environment of the job, may have the placeholders of `command`, and is
    /// killed when the job has ended or `timeout` is over. If it cannot start or fails, the job gets
    /// the signal at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 256),
        inner(length(max = 4096), regex(pattern = "^[^\\x00]*$"))
    )]
    #[schemars(extend("x-kubernetes-validations" = [Rule::new(
        "self[0] != ''",
        "write the program first, as in [\"docker\", \"stop\", \"{job}\"]"
    )]))]
    pub command: Option<Vec<String>>,
    /// Time until the job is killed, at most `handover.stopTimeout`. Default:
    /// `handover.stopTimeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-validations" = [duration::bounded()])
    )]
    pub timeout: Option<Duration>,
}

/// Signal that asks the job to end. Default: `SIGTERM`.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopSignal {
    /// The usual one.
    #[default]
    #[serde(rename = "SIGTERM")]
    Term,
    /// As Ctrl-C sends it.
    #[serde(rename = "SIGINT")]
    Int,
    /// Ends `nginx` and `php-fpm` gracefully.
    #[serde(rename = "SIGQUIT")]
    Quit,
    /// As at the end of a terminal.
    #[serde(rename = "SIGHUP")]
    Hup,
    /// Ends `haproxy` gracefully.
    #[serde(rename = "SIGUSR1")]
    Usr1,
    /// The other signal that programs define.
    #[serde(rename = "SIGUSR2")]
    Usr2,
    /// Ends `httpd` gracefully.
    #[serde(rename = "SIGWINCH")]
    Winch,
}

impl StopSignal {
    /// Returns the name of the signal, such as `SIGINT`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Term => "SIGTERM",
            Self::Int => "SIGINT",
            Self::Quit => "SIGQUIT",
            Self::Hup => "SIGHUP",
            Self::Usr1 => "SIGUSR1",
            Self::Usr2 => "SIGUSR2",
            Self::Winch => "SIGWINCH",
        }
    }
}

/// Processes that get the signal. `Main`: the process of `command` only, which ends its children
/// itself. Default: `All`.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopTo {
    /// All processes of the job.
    #[default]
    All,
    /// The first process.
    Main,
}

/// The rule that no runner's stop takes longer than the handover waits for.
pub(super) fn fits_into_the_handover() -> Rule {
    let default = LeaseTerms::default().stop_timeout.as_secs();
    let limit = format!(
        "duration(has(self.handover) && has(self.handover.stopTimeout) ? \
         self.handover.stopTimeout : '{default}s')"
    );
    let fits = |runner: &str| {
        format!(
            "!has({runner}.stop) || !has({runner}.stop.timeout) || \
             duration({runner}.stop.timeout) <= {limit}"
        )
    };
    let (alone, named) = (fits("self.worker.runner"), fits("self.worker.runners[name]"));
    Rule::new(
        format!(
            "!has(self.worker) || ((!has(self.worker.runner) || {alone}) && \
             (!has(self.worker.runners) || self.worker.runners.all(name, {named})))"
        ),
        format!(
            "stop.timeout of a runner is longer than handover.stopTimeout (where that is not \
             written, it is {default}s): write a shorter stop.timeout, or a longer stopTimeout"
        ),
    )
}
