//! The runner of a worker's jobs, as the command line selects it.

use std::time::Duration;

use clap::Args;
use swarm_adapters_host::runner::RunnerKind;

use crate::Failure;

/// The runner of a worker's jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RunnerSpec {
    /// Writes a line to the log every second.
    #[default]
    Log,
    /// Runs a program; see [`swarm_adapters_host::runner::Command`].
    Command(Vec<String>),
    /// Pings an HTTP server; see [`swarm_adapters_host::runner::Ping`].
    Ping {
        /// The time from one ping to the next.
        interval: Duration,
        /// How long to wait for a response.
        timeout: Duration,
    },
}

/// The part of a worker's command line that selects the runner.
#[derive(Clone, Debug, Args)]
pub struct RunnerArgs {
    /// How to run a job: `log` writes lines to the log, `command` runs the program after `--`, `ping`
    /// sends HTTP requests to HOST:PORT, which is the job's name
    #[arg(long, value_name = "RUNNER", env = "RUNNER", default_value_t)]
    pub runner: RunnerKind,
    /// The time from one ping to the next
    #[arg(long, value_name = "TIME", env = "PING_INTERVAL", default_value = "30s", value_parser = duration)]
    pub ping_interval: Duration,
    /// How long to wait for the response to a ping
    #[arg(long, value_name = "TIME", env = "PING_TIMEOUT", default_value = "5s", value_parser = duration)]
    pub ping_timeout: Duration,
    /// How long a job may take to stop before it is killed
    #[arg(long, value_name = "TIME", env = "STOP_TIMEOUT", default_value = "5s", value_parser = duration)]
    pub stop_timeout: Duration,
    /// The program of `--runner command` and its arguments, in which `{job}` is replaced by the job's
    /// name
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

impl RunnerArgs {
    /// The runner that the arguments select.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`] if a program is given without `--runner command`, or vice versa.
    pub(crate) fn spec(&self) -> Result<RunnerSpec, Failure> {
        let is_command = self.runner == RunnerKind::Command;
        if is_command && self.command.is_empty() {
            let example = "--runner command -- ffmpeg -i {job}";
            return Err(Failure::Usage(format!(
                "no program is given; write for example {example}"
            )));
        }
        if !is_command && !self.command.is_empty() {
            let sentence = "a program is given without its runner; write --runner command as well";
            return Err(Failure::Usage(sentence.to_owned()));
        }
        Ok(match self.runner {
            RunnerKind::Log => RunnerSpec::Log,
            RunnerKind::Command => RunnerSpec::Command(self.command.clone()),
            RunnerKind::Ping => {
                RunnerSpec::Ping { interval: self.ping_interval, timeout: self.ping_timeout }
            }
        })
    }
}

impl RunnerSpec {
    /// The arguments of a command line that selects this runner. Those of the program come last, so
    /// nothing may follow.
    #[must_use]
    pub fn to_arguments(&self) -> Vec<String> {
        let millis = |span: &Duration| format!("{}ms", span.as_millis());
        match self {
            Self::Log => vec![format!("--runner={}", RunnerKind::Log)],
            Self::Ping { interval, timeout } => vec![
                format!("--runner={}", RunnerKind::Ping),
                format!("--ping-interval={}", millis(interval)),
                format!("--ping-timeout={}", millis(timeout)),
            ],
            Self::Command(words) => {
                let mut arguments = vec![format!("--runner={}", RunnerKind::Command), "--".into()];
                arguments.extend_from_slice(words);
                arguments
            }
        }
    }
}

/// Reads a time such as `30s`, `500ms` or `2m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<jiff::SignedDuration>().ok();
    let positive = parsed.and_then(|span| Duration::try_from(span).ok());
    positive
        .filter(|span| !span.is_zero())
        .ok_or_else(|| "write a time above zero, such as 500ms, 30s or 2m".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        runner: RunnerArgs,
    }

    fn parsed(words: &[String]) -> RunnerSpec {
        let words = std::iter::once("w").chain(words.iter().map(String::as_str));
        Cli::try_parse_from(words).unwrap().runner.spec().unwrap()
    }

    #[test]
    fn the_arguments_of_a_runner_select_it_again() {
        let command = ["ffmpeg", "-i", "{job}"].map(str::to_owned).to_vec();
        let (interval, timeout) = (Duration::from_millis(1500), Duration::from_secs(2));
        let specs =
            [RunnerSpec::Log, RunnerSpec::Command(command), RunnerSpec::Ping { interval, timeout }];
        for spec in specs {
            assert_eq!(parsed(&spec.to_arguments()), spec);
        }
    }

    #[test]
    fn a_program_without_its_runner_is_refused_in_a_sentence() {
        let error = |words: &[&str]| {
            let words = ["w"].iter().chain(words);
            Cli::try_parse_from(words).unwrap().runner.spec().unwrap_err().to_string()
        };
        assert!(error(&["--", "sleep"]).contains("write --runner command as well"));
        assert!(error(&["--runner=command"]).contains("no program is given"));
        assert!(duration("-1s").is_err() && duration("0s").is_err() && duration("soon").is_err());
    }
}
