//! Params that the runner needs, and that some jobs lack or cannot have.

use swarm_core::verdict::{counted, number, shortened};
use swarm_core::{Job, JobName, Jobs, RunnerName};

use crate::error::SpecError;
use crate::manifest::{self, Runner};
use crate::spec::{RunnerSpec, SwarmSpec, runner_place};

/// Refuses jobs without a param for a placeholder of their runner, and jobs that can have no secret
/// of their own. Each of them would fail at every start. O(jobs) for each runner with either.
pub(super) fn check_params(jobs: &Jobs, spec: &SwarmSpec) -> Result<(), SpecError> {
    let worker = spec.worker.as_ref();
    if let Some(runner) = worker.and_then(|worker| worker.runner.as_ref()) {
        check_runner(jobs, None, runner, Runner::PLACE)?;
    }
    for (name, runner) in worker.iter().flat_map(|worker| worker.runners.iter().flatten()) {
        check_runner(jobs, Some(name), runner, &runner_place(name))?;
    }
    Ok(())
}

/// Checks the jobs that name this runner.
fn check_runner(
    jobs: &Jobs,
    name: Option<&String>,
    runner: &RunnerSpec,
    place: &str,
) -> Result<(), SpecError> {
    // Another check refuses a runner that cannot be read.
    let Ok(Runner::Command(program)) = Runner::read(runner, place) else { return Ok(()) };
    let name = name.map(String::as_str);
    let is_its = |(_, job): &(&JobName, &Job)| job.runner.as_ref().map(RunnerName::as_str) == name;
    let its = jobs.iter().filter(is_its).map(|(name, _)| name);
    manifest::check_keys(&program.secret_params, its)
        .map_err(|error| SpecError { place: format!("{place}{}", error.place), ..error })?;
    for (param, field) in program.needed_params() {
        let lacks = |(_, job): &(&JobName, &Job)| !job.params.contains_key(param);
        let without: Vec<_> = jobs.iter().filter(is_its).filter(lacks).collect();
        if !without.is_empty() {
            let all = jobs.iter().filter(is_its).count();
            let place = format!("{place}{field}");
            return Err(SpecError { place, reason: sentence(param, &without, all) });
        }
    }
    Ok(())
}

/// Says which of `all` jobs lack `param`.
fn sentence(param: &str, without: &[(&JobName, &Job)], all: usize) -> String {
    let names: Vec<_> = without.iter().map(|(name, _)| name.as_str()).collect();
    let (shown, first) = (shortened(&names), names.first().copied().unwrap_or_default());
    let params = without.first().map(|(_, job)| &job.params);
    let others: Vec<_> = params.into_iter().flat_map(|params| params.keys()).collect();
    let others: Vec<_> = others.into_iter().map(String::as_str).collect();
    let has = match others.as_slice() {
        [] => String::new(),
        some => format!("; `{first}` has only {}", shortened(some)),
    };
    format!(
        "{} of {} {} no param for `{{param.{param}}}`: {shown}{has}; \
         write one, as in `{{name: {first}, params: {{{param}: VALUE}}}}`",
        without.len(),
        counted(all, "job"),
        number(without.len(), "has", "have"),
    )
}

#[cfg(test)]
mod tests {
    use crate::convert::Home;
    use crate::manifest::{in_full, parse};

    fn refused(runner: &str, jobs: &str) -> String {
        let text = format!(
            "apiVersion: swarm.k8slab.info/v1alpha1\nkind: Swarm\nmetadata: {{name: s}}\nspec:\n  \
             replicas: 1\n  pool: {{statefulSet: {{name: w}}}}\n  jobs: [{jobs}]\n  worker:\n    \
             protocol: Session\n    runner: {{{runner}}}\n"
        );
        parse(&text, None, Home::Machine).err().map(|error| in_full(&error)).unwrap_or_default()
    }

    #[test]
    fn a_placeholder_that_some_jobs_cannot_fill_is_refused_once_for_all_of_them() {
        let command = "command: [cat, '{param.url}']";
        let jobs: Vec<_> = (0..40).map(|n| format!("{{name: j{n}}}")).collect();
        assert_eq!(
            refused(command, &jobs.join(", ")),
            "Swarm `s`: spec.worker.runner.command: 40 of 40 jobs have no param for `{param.url}`: \
             j0, j1, j10, j11, j12 and 35 more; write one, as in `{name: j0, params: {url: VALUE}}`"
        );
        assert_eq!(
            refused(command, "{name: a, params: {url: x}}, {name: b, params: {uri: x}}"),
            "Swarm `s`: spec.worker.runner.command: 1 of 2 jobs has no param for `{param.url}`: b; \
             `b` has only uri; write one, as in `{name: b, params: {url: VALUE}}`"
        );
        assert_eq!(refused(command, "{name: a, params: {url: ''}}"), "");
        assert_eq!(refused(command, ""), "");
    }

    #[test]
    fn a_job_that_is_no_key_of_a_secret_is_refused_where_each_job_has_its_own() {
        let secret = |key: &str| {
            format!(
                "command: [cat], paramsFrom: [{{name: x, secretKeyRef: {{name: s, key: '{key}'}}}}]"
            )
        };
        let jobs = "{name: cam-1}, {name: 'stream:cctv0:new'}";
        assert_eq!(refused(&secret("k"), jobs), "");
        assert_eq!(refused(&secret("{job}"), "{name: cam-1}"), "");
        let refused = refused(&secret("{job}"), jobs);
        let expected = "Swarm `s`: spec.worker.runner.paramsFrom: job `stream:cctv0:new` cannot be a \
                        key of the Secret `s` for `x`; rename the job, ";
        assert!(refused.starts_with(expected), "{refused}");
    }

    #[test]
    fn every_field_with_placeholders_is_checked_but_params_of_secrets_are_not_of_the_job() {
        let place = |runner: &str| {
            let error = refused(runner, "{name: a}");
            error.strip_prefix("Swarm `s`: spec.worker.runner.").unwrap_or(&error).to_owned()
        };
        for (runner, field) in [
            ("command: [cat], env: {A: '{param.x}'}", "env.A: "),
            ("command: [cat], ready: {line: '{param.x}'}", "ready: "),
            ("command: [cat], ready: {http: 'http://h/{param.x}'}", "ready: "),
            ("command: [cat], alive: {exec: [test, '{param.x}']}", "alive: "),
            ("command: [cat], alive: {file: {path: '/{param.x}', within: 1m}}", "alive: "),
        ] {
            assert!(place(runner).starts_with(field), "{runner}: {}", place(runner));
        }
        let secret = "paramsFrom: [{name: x, secretKeyRef: {name: s, key: k}}]";
        assert_eq!(place(&format!("command: [cat], env: {{A: '{{param.x}}'}}, {secret}")), "");
        assert_eq!(place("command: [cat, '{{param.x}}', '${param.x}']"), "");
    }
}
