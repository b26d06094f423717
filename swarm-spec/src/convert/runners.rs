//! Runners with names, and the jobs that name them.

use std::collections::BTreeMap;
use std::time::Duration;

use swarm_core::{Job, JobName, Jobs, RunnerName};

use super::wrong;
use crate::error::SpecError;
use crate::hostport;
use crate::manifest::{Runner, param_variable};
use crate::schema::most_similar;
use crate::spec::{ParamFromSpec, ProtocolSpec, RunnerSpec, SecretKeyRefSpec, SwarmSpec};

/// The most runners with names.
const RUNNERS_MAX: usize = 16;
/// The path of the runners with names.
const PLACE: &str = "spec.worker.runners";

/// Checks all runners of a spec: each alone, their names, and the params that they share.
pub(super) fn check(spec: &SwarmSpec) -> Result<(), SpecError> {
    let named = spec.worker.as_ref().and_then(|worker| worker.runners.as_ref());
    let count = named.map_or(0, BTreeMap::len);
    if RUNNERS_MAX < count {
        return wrong(PLACE, format!("it has {count} runners; at most {RUNNERS_MAX} are allowed"));
    }
    for name in named.into_iter().flat_map(BTreeMap::keys) {
        RunnerName::new(name).or_else(|error| wrong(PLACE, error.to_string()))?;
    }
    for (place, runner) in spec.written_runners() {
        Runner::read(runner, &place)?;
        check_stop(spec, &place, runner)?;
    }
    check_references(spec)
}

/// Refuses a runner whose jobs may take longer to stop than a handover waits.
fn check_stop(spec: &SwarmSpec, place: &str, runner: &RunnerSpec) -> Result<(), SpecError> {
    let most = spec.handover.clone().unwrap_or_default().time_to_stop();
    let timeout = runner.stop.as_ref().and_then(|stop| stop.timeout).map(Duration::from);
    match timeout.filter(|timeout| most < *timeout) {
        None => Ok(()),
        Some(timeout) => wrong(
            &format!("{place}.stop.timeout"),
            format!(
                "{timeout:?} is longer than handover.stopTimeout, which is {most:?}; write \
                 {most:?} or less, or a longer handover.stopTimeout"
            ),
        ),
    }
}

/// Refuses a variable with two sources: a worker has one environment for all of its runners.
fn check_references(spec: &SwarmSpec) -> Result<(), SpecError> {
    let mut first: BTreeMap<String, (String, &SecretKeyRefSpec)> = BTreeMap::new();
    for (place, runner) in spec.written_runners() {
        for ParamFromSpec { name, secret_key_ref } in runner.params_from.iter().flatten() {
            let variable = param_variable(name);
            match first.get(&variable) {
                None => drop(first.insert(variable, (place.clone(), secret_key_ref))),
                Some((_, other)) if *other == secret_key_ref => {}
                Some((at, SecretKeyRefSpec { name: secret, key })) => {
                    let reason = format!(
                        "the variable {variable} of `{name}` has another source in {at}: the key \
                         `{key}` of Secret `{secret}`. A worker has one environment for all of its \
                         runners; rename one of the params"
                    );
                    return wrong(&format!("{place}.paramsFrom"), reason);
                }
            }
        }
    }
    Ok(())
}

/// Checks that the spec has the runners that jobs name, and that each can run its jobs.
pub(super) fn check_jobs(jobs: &Jobs, spec: &SwarmSpec) -> Result<(), SpecError> {
    for (name, job) in jobs {
        let suits = exists(spec, name, job).and_then(|()| can_run(spec, name, job));
        suits.or_else(|reason| wrong("spec.jobs", reason))?;
    }
    Ok(())
}

/// Returns the job if the spec has the runner that it names. The error is a sentence.
pub(crate) fn has_runner(
    spec: &SwarmSpec,
    name: JobName,
    job: Job,
) -> Result<(JobName, Job), String> {
    exists(spec, &name, &job).map(|()| (name, job))
}

/// Checks that the runner of a job can run it: a ping needs an address.
fn can_run(spec: &SwarmSpec, name: &JobName, job: &Job) -> Result<(), String> {
    let worker = spec.worker.as_ref();
    let runner = match &job.runner {
        Some(runner) => worker.and_then(|it| it.runners.as_ref()?.get(runner.as_str())),
        None => worker.and_then(|it| it.runner.as_ref()),
    };
    // The error of a runner with a mistake is another one.
    let pings = |it: &RunnerSpec| {
        it.ping.is_some() && matches!(Runner::read(it, PLACE), Ok(Runner::Ping { .. }))
    };
    if hostport::parts(name.as_str()).is_none() && runner.is_some_and(pings) {
        return Err(format!("job `{name}` cannot be pinged by its name; {}", hostport::INSTEAD));
    }
    Ok(())
}

fn exists(spec: &SwarmSpec, name: &JobName, job: &Job) -> Result<(), String> {
    let Some(runner) = &job.runner else { return Ok(()) };
    match spec.protocol() {
        ProtocolSpec::Session => {}
        ProtocolSpec::Plain => {
            return Err(format!(
                "job `{name}` has `runner`, which needs workers that learn its name: write \
                 worker.protocol: Session, or leave `runner` out"
            ));
        }
    }
    let known = spec.worker.as_ref().and_then(|worker| worker.runners.as_ref());
    if known.is_some_and(|known| known.contains_key(runner.as_str())) {
        return Ok(());
    }
    let names: Vec<_> = known.into_iter().flat_map(|it| it.keys().map(String::as_str)).collect();
    let instead = match (most_similar(runner.as_str(), &names), names.as_slice()) {
        (Some(best), _) => format!("did you mean `{best}`?"),
        (None, []) => "add it there, or leave `runner` out".to_owned(),
        (None, names) => format!("known there: {}", names.join(", ")),
    };
    Err(format!("job `{name}` names the runner `{runner}`, which is not in {PLACE}; {instead}"))
}

#[cfg(test)]
mod tests {
    use crate::convert::Home;
    use crate::manifest::{in_full, parse};

    fn refused(worker: &str, jobs: &str) -> String {
        let text = format!(
            "apiVersion: swarm.k8slab.info/v1alpha1\nkind: Swarm\nmetadata: {{name: s}}\nspec:\n  \
             replicas: 1\n  pool: {{statefulSet: {{name: w}}}}\n  jobs: [{jobs}]\n  worker: \
             {{{worker}}}\n"
        );
        let refused = [Home::Machine, Home::Cluster]
            .map(|home| parse(&text, None, home).err().map(|error| in_full(&error)));
        let [on_machine, on_cluster] = refused.map(Option::unwrap_or_default);
        assert_eq!(on_machine, on_cluster);
        on_machine.strip_prefix("Swarm `s`: ").unwrap_or(&on_machine).to_owned()
    }

    const TWO: &str = "protocol: Session, runners: {record: {command: [cat, '{job}']}, \
                       encode: {command: [cat, '{param.url}']}}";

    #[test]
    fn a_job_may_name_a_runner_and_one_that_does_not_exist_is_refused_with_the_nearest_name() {
        assert_eq!(refused(TWO, "{name: a, runner: record}, {name: b}"), "");
        for (runner, end) in
            [("recrod", "did you mean `record`?"), ("sleep", "known there: encode, record")]
        {
            assert_eq!(
                refused(TWO, &format!("{{name: x}}, {{name: a, runner: {runner}}}")),
                format!(
                    "spec.jobs[1]: job `a` names the runner `{runner}`, which is not in \
                     spec.worker.runners; {end}"
                )
            );
        }
        let none = refused("protocol: Session", "{name: a, runner: record}");
        assert!(none.ends_with("; add it there, or leave `runner` out"), "{none}");
        let plain = refused(&TWO.replace("Session", "Plain"), "{name: a, runner: record}");
        assert!(
            plain.contains("job `a` has `runner`") && plain.contains("worker.protocol: Session"),
            "{plain}"
        );
    }

    #[test]
    fn a_job_that_can_never_be_pinged_is_refused() {
        const PINGS: &str =
            "protocol: Session, runner: {ping: {}}, runners: {record: {command: [cat]}}";
        assert_eq!(
            refused(
                PINGS,
                "{name: 'db.local:80'}, {name: '[::1]:9090'}, {name: a, runner: record}"
            ),
            ""
        );
        let refused = refused(PINGS, "{name: 'db.local:80'}, {name: db.local}");
        assert!(refused.starts_with("spec.jobs: job `db.local` cannot be pinged"), "{refused}");
        assert!(refused.contains("HOST:PORT"), "{refused}");
    }

    #[test]
    fn each_named_runner_is_checked_like_the_runner_with_its_own_place() {
        let with = |runner: &str| format!("protocol: Session, runners: {{record: {runner}}}");
        for (runner, expected) in [
            ("{command: []}", "spec.worker.runners.record.command: it names no program"),
            ("{command: [cat, '{jbo}']}", "spec.worker.runners.record.command: "),
            ("{command: [cat], ping: {}}", "spec.worker.runners.record: it has 2 of"),
            (
                "{command: [cat, '{param.k}'], paramsFrom: [{name: k, secretKeyRef: {name: s, key: k}}]}",
                "spec.worker.runners.record.command: `{param.k}` is of paramsFrom",
            ),
            ("{command: [cat], restart: {failover: 0}}", "spec.worker.runners.record.restart.fail"),
        ] {
            let refused = refused(&with(runner), "{name: a, runner: record}");
            assert!(refused.starts_with(expected), "{refused}, not {expected}");
        }
        let upper = refused("runners: {Record: {log: {}}}", "");
        assert!(upper.starts_with("spec.worker.runners: `Record` cannot name a runner"), "{upper}");
        let many: Vec<_> = (0..17).map(|n| format!("r{n}: {{log: {{}}}}")).collect();
        let many = refused(&format!("runners: {{{}}}", many.join(", ")), "");
        assert_eq!(many, "spec.worker.runners: it has 17 runners; at most 16 are allowed");
    }

    #[test]
    fn a_job_needs_the_params_of_its_own_runner_only() {
        assert_eq!(refused(TWO, "{name: a, runner: record}"), "");
        assert_eq!(
            refused(TWO, "{name: a, runner: record}, {name: b, runner: encode}"),
            "spec.worker.runners.encode.command: 1 of 1 job has no param for `{param.url}`: b; write \
             one, as in `{name: b, params: {url: VALUE}}`"
        );
        let both = format!("{TWO}, runner: {{command: [cat, '{{param.x}}']}}");
        assert_eq!(refused(&both, "{name: a, runner: record}"), "");
        let alone = refused(&both, "{name: a, runner: record}, {name: b}");
        assert!(
            alone.starts_with("spec.worker.runner.command: 1 of 1 job has no param"),
            "{alone}"
        );
    }

    #[test]
    fn a_secret_has_one_source_for_all_runners() {
        let runners = |keys: [&str; 2]| {
            let [a, b] = keys.map(|key| {
                format!("{{command: [cat], paramsFrom: [{{name: p, secretKeyRef: {{name: s, key: {key}}}}}]}}")
            });
            refused(&format!("protocol: Session, runner: {a}, runners: {{b: {b}}}"), "")
        };
        assert_eq!(runners(["k", "k"]), "");
        let refused = runners(["k", "other"]);
        for part in [
            "spec.worker.runners.b.paramsFrom: the variable SWARM_PARAM_P of `p`",
            " in spec.worker.runner: the key `k` of Secret `s`",
        ] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
    }
}
