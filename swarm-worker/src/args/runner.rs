//! The runner of a worker's jobs, as the command line selects it.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use swarm_spec::manifest::Runner;
use swarm_spec::spec::RunnerSpec;

use super::runner_kind::RunnerKind;
use crate::Failure;

/// The part of a worker's command line that selects the runner.
#[derive(Clone, Debug, Args)]
pub struct RunnerArgs {
    /// Runner of the jobs: `log` only writes lines to the worker's log, `command` runs the program
    /// after `--`, and `ping` sends HTTP requests to HOST:PORT, which is the job's name. `swarm`
    /// follows `spec.worker.runner` and `spec.worker.runners` of the Swarm and their changes, and
    /// needs a session. A runner as in `spec.worker.runner`, as YAML or JSON, is accepted too
    #[arg(long, value_name = "RUNNER", env = "RUNNER", default_value = "log")]
    pub runner: RunnerArg,
    /// The time from one ping to the next
    #[arg(long, value_name = "TIME", env = "PING_INTERVAL", default_value = "30s", value_parser = duration)]
    pub ping_interval: Duration,
    /// The longest time to wait for the response to a ping
    #[arg(long, value_name = "TIME", env = "PING_TIMEOUT", default_value = "5s", value_parser = duration)]
    pub ping_timeout: Duration,
    /// The time that a job has to stop before it is killed
    #[arg(long, value_name = "TIME", env = "STOP_TIMEOUT", default_value = "5s", value_parser = duration)]
    pub stop_timeout: Duration,
    /// The program of `--runner command` and its arguments. {job} is replaced by the job's name,
    /// {token} by its fencing token, {worker} by the worker's name, and {param.NAME} by a param
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// The argument that selects a runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunnerArg {
    /// A built-in runner; other arguments have its settings.
    Kind(RunnerKind),
    /// A complete runner with its settings.
    Whole(Runner),
}

impl FromStr for RunnerArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(kind) => Ok(Self::Kind(kind)),
            Err(_) if text.contains(':') => Runner::parse(text).map(Self::Whole),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl RunnerArgs {
    /// Returns the runner that the arguments select, or `None` if the Swarm selects it.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`] if a program is given without `--runner command`, or vice versa, or has an
    /// unknown placeholder.
    pub(crate) fn runner(&self) -> Result<Option<Runner>, Failure> {
        let is_command = self.runner == RunnerArg::Kind(RunnerKind::Command);
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
        let runner = match &self.runner {
            RunnerArg::Kind(RunnerKind::Swarm) => return Ok(None),
            RunnerArg::Kind(RunnerKind::Log) => Runner::Log,
            RunnerArg::Kind(RunnerKind::Command) => {
                let command = Some(self.command.clone());
                let spec = RunnerSpec { command, ..RunnerSpec::default() };
                Runner::read(&spec, Runner::PLACE).map_err(|error| Failure::Usage(error.reason))?
            }
            RunnerArg::Kind(RunnerKind::Ping) => {
                Runner::Ping { interval: self.ping_interval, timeout: self.ping_timeout }
            }
            RunnerArg::Whole(runner) => runner.clone(),
        };
        Ok(Some(runner))
    }
}

/// Reads a time above zero in the notation of a Swarm: `30s`, `500ms` or `1m30s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let span = Duration::from(text.parse::<swarm_spec::Duration>()?);
    let too_short = || "write a time above zero, such as 500ms, 30s or 2m".to_owned();
    (!span.is_zero()).then_some(span).ok_or_else(too_short)
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

    fn parsed(words: &[&str]) -> Result<Option<Runner>, String> {
        let words = ["w"].iter().chain(words);
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        cli.runner.runner().map_err(|error| error.to_string())
    }

    #[test]
    fn the_argument_of_a_runner_selects_it_again() {
        let specs = [
            "{log: {}}",
            "{ping: {interval: 1s}}",
            "{command: [ffmpeg, -i, '{job}'], env: {A: 'b c'}, ready: {line: up}, workingDir: /}",
        ];
        for text in specs {
            let spec: RunnerSpec =
                serde_json::from_value(swarm_spec::yaml::documents(text).unwrap().remove(0).1)
                    .unwrap();
            let argument = format!("--runner={}", spec.to_json());
            assert_eq!(parsed(&[&argument]), Ok(Runner::read(&spec, Runner::PLACE).ok()));
        }
    }

    #[test]
    fn runners_are_selected_by_name_too() {
        assert_eq!(parsed(&[]), Ok(Some(Runner::Log)));
        assert_eq!(parsed(&["--runner=swarm"]), Ok(None));
        let ping =
            Runner::Ping { interval: Duration::from_millis(1500), timeout: Duration::from_secs(5) };
        assert_eq!(parsed(&["--runner=ping", "--ping-interval=1500ms"]), Ok(Some(ping)));
        let program = Runner::parse("{command: [cat, '{job}']}");
        assert_eq!(parsed(&["--runner=command", "--", "cat", "{job}"]), program.map(Some));
    }

    #[test]
    fn mistakes_are_refused_in_a_sentence() {
        let error = |words: &[&str]| parsed(words).unwrap_err();
        assert!(error(&["--", "sleep"]).contains("write --runner command as well"));
        assert!(error(&["--runner=command"]).contains("no program is given"));
        let unknown = error(&["--runner=command", "--", "cat", "{jbo}"]);
        assert!(unknown.starts_with("unknown placeholder `{jbo}`; write {job}, {token}"));
        assert!(error(&["--runner=lgo"]).contains("runner `lgo` does not exist; write `log`"));
        let misspelt = error(&["--runner={logg: {}}"]);
        assert!(misspelt.contains("unknown field `logg`; did you mean `log`"), "{misspelt}");
        assert!(duration("-1s").is_err() && duration("0s").is_err() && duration("soon").is_err());
    }
}
