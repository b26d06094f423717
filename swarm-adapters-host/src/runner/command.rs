//! A runner whose jobs are processes.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::{Job, Outcome, RunLogKeeper, Runner};
use crate::guard::{Guard, Start};

/// Runs a program for every job, under a [`Guard`].
///
/// In every argument but the first, `{job}` and `{token}` are replaced by the job's name and token;
/// no shell is involved. A job's name may begin with a dash, so a template is safest with `--` or
/// `--name={job}`. The environment of the process has `SWARM_JOB`, `SWARM_TOKEN`, `SWARM_WORKER`,
/// `SWARM_SESSION`, and `SWARM_PARAM_NAME` for every parameter. Its standard input is empty; its
/// output goes to the worker's log, line by line, prefixed with the job's name.
#[derive(Debug)]
pub struct Command {
    template: Vec<String>,
    stop_timeout: Duration,
    guard: Guard,
}

impl Command {
    /// Runs `template`, the program first. To stop a job, SIGTERM is sent, and SIGKILL after
    /// `stop_timeout`.
    ///
    /// # Errors
    ///
    /// [`TemplateError`] if the template has no program.
    pub fn new(
        template: Vec<String>,
        stop_timeout: Duration,
        guard: Guard,
    ) -> Result<Self, TemplateError> {
        if template.first().is_none_or(String::is_empty) {
            return Err(TemplateError);
        }
        Ok(Self { template, stop_timeout, guard })
    }
}

/// A template without a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the command of the jobs is empty; write the program and its arguments")]
pub struct TemplateError;

#[async_trait]
impl Runner for Command {
    async fn run(&self, job: &Job, stop: CancellationToken) -> Outcome {
        let start = Start {
            job: job.name.clone(),
            token: job.token,
            argv: filled(&self.template, job),
            env: environment(job),
            grace: self.stop_timeout,
        };
        match self.guard.run(start, stop).await {
            Ok(end) if end.is_success() => Outcome::Ended,
            Ok(end) => Outcome::Failed(end.to_string()),
            Err(sentence) => Outcome::Failed(sentence),
        }
    }

    fn permit_until(&self, boottime_ns: u64) {
        self.guard.permit_until(boottime_ns);
    }

    fn run_log_keeper(&self) -> RunLogKeeper {
        RunLogKeeper::Runner
    }
}

/// The program, and its arguments with the placeholders replaced. Placeholders in the program itself
/// are not replaced: a job's name must not choose which program runs.
fn filled(template: &[String], job: &Job) -> Vec<String> {
    let token = job.token.0.to_string();
    let values = [("{job}", job.name.as_str()), ("{token}", token.as_str())];
    let argument = |(index, text): (usize, &String)| match index {
        0 => text.clone(),
        _ => replaced(text, &values),
    };
    template.iter().enumerate().map(argument).collect()
}

/// Replaces all placeholders in one pass, so that a value that looks like one is not replaced.
fn replaced<'a>(mut text: &'a str, values: &[(&str, &'a str)]) -> String {
    let mut result = String::new();
    while let Some(character) = text.chars().next() {
        let starts_with =
            |(name, value): &(&str, &'a str)| Some((text.strip_prefix(*name)?, *value));
        let (value, rest) = match values.iter().find_map(starts_with) {
            Some((rest, value)) => (value, rest),
            None => text.split_at(character.len_utf8()),
        };
        result.push_str(value);
        text = rest;
    }
    result
}

fn environment(job: &Job) -> BTreeMap<String, String> {
    let of = |(name, value): (&String, &String)| {
        let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        (format!("SWARM_PARAM_{}", name.chars().map(letter).collect::<String>()), value.clone())
    };
    job.params.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use swarm_core::{JobName, Token};

    use super::*;
    use crate::runner::Permit;

    fn job(name: &str) -> Job {
        Job {
            name: JobName::new(name).unwrap(),
            token: Token(7),
            params: [("source-url".into(), "rtsp://a b".into())].into_iter().collect(),
            permit: Permit::unlimited(),
            stop: CancellationToken::new(),
        }
    }

    #[test]
    fn placeholders_are_filled_in_every_argument_but_not_in_the_program_nor_twice() {
        let template = ["{job}", "--name={job}", "{token}{token}", "{jo}b", "é{job"];
        let filled = filled(&template.map(str::to_owned), &job("x{token};$(y)"));
        assert_eq!(filled, ["{job}", "--name=x{token};$(y)", "77", "{jo}b", "é{job"]);
    }

    #[test]
    fn params_become_variables() {
        let expected = BTreeMap::from([("SWARM_PARAM_SOURCE_URL".into(), "rtsp://a b".into())]);
        assert_eq!(environment(&job("a")), expected);
    }
}
