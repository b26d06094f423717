//! Checks of the things on this machine that every job needs: a directory, and the variables with
//! secrets.

use std::collections::BTreeMap;
use std::env;
use std::path::Path;

use swarm_core::RunnerName;
use swarm_spec::error::SpecError;
use swarm_spec::manifest::{ManifestError, Program, Runner, param_variable};
use swarm_spec::spec::{RunnerSpec, runner_place};

/// The runners of a Swarm: of jobs that name none, and by name.
pub(super) struct Written<'a> {
    pub(super) runner: &'a RunnerSpec,
    pub(super) runners: &'a BTreeMap<RunnerName, RunnerSpec>,
}

/// Checks that this machine has what each runner of the Swarm `swarm` needs. Without it no job of
/// that runner could start.
///
/// # Errors
///
/// A sentence about the first thing that is missing.
pub(super) fn check(swarm: &str, written: &Written<'_>) -> Result<(), ManifestError> {
    let named = written.runners.iter().map(|(name, it)| (runner_place(name.as_str()), it));
    for (place, runner) in [(Runner::PLACE.to_owned(), written.runner)].into_iter().chain(named) {
        // The manifest was accepted, so its runners can be read.
        let Ok(Runner::Command(program)) = Runner::read(runner, &place) else { continue };
        if let Some((field, reason)) = missing(&program) {
            let source = SpecError { place: format!("{place}.{field}"), reason };
            return Err(ManifestError::Spec { swarm: swarm.to_owned(), at: None, source });
        }
    }
    Ok(())
}

/// Returns the field that needs something that is missing, and a sentence.
fn missing(program: &Program) -> Option<(&'static str, String)> {
    let Program { working_dir, secret_params, .. } = program;
    if let Some(reason) = working_dir.as_deref().and_then(unusable) {
        return Some(("workingDir", reason));
    }
    let is_unset = |name: &&String| env::var_os(param_variable(name)).is_none();
    let (name, variable) =
        secret_params.iter().find(is_unset).map(|it| (it, param_variable(it)))?;
    let reason = format!(
        "the environment of this program has no variable {variable}, from which the jobs get the \
         param `{name}`; set it, and start the pool again"
    );
    Some(("paramsFrom", reason))
}

/// Says why a program cannot start in this directory; `None` if it can.
fn unusable(dir: &Path) -> Option<String> {
    let shown = dir.display().to_string();
    let shown = shown.escape_default();
    match dir.metadata() {
        Ok(found) if found.is_dir() => None,
        Ok(_) => Some(format!("`{shown}` is not a directory; write the path of one")),
        Err(error) => Some(format!(
            "the directory `{shown}` cannot be used: {error}; make it, or write another"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(runner: &str) -> String {
        let refused = Runner::parse(runner).map(|runner| match runner {
            Runner::Command(program) => missing(&program),
            Runner::Log | Runner::Ping { .. } => None,
        });
        refused.unwrap().map(|(field, reason)| format!("{field}: {reason}")).unwrap_or_default()
    }

    #[test]
    fn a_missing_directory_and_a_missing_secret_are_named() {
        assert_eq!(refused("{command: [cat], workingDir: /}"), "");
        let missing = refused("{command: [cat], workingDir: /no/such/dir}");
        assert!(
            missing.starts_with("workingDir: the directory `/no/such/dir` cannot"),
            "{missing}"
        );
        let file = refused("{command: [cat], workingDir: /dev/null}");
        assert_eq!(file, "workingDir: `/dev/null` is not a directory; write the path of one");
        let secret =
            "{command: [cat], paramsFrom: [{name: noSuch, secretKeyRef: {name: s, key: k}}]}";
        let expected = "paramsFrom: the environment of this program has no variable \
                        SWARM_PARAM_NOSUCH, from which the jobs get the param `noSuch`; set it, and \
                        start the pool again";
        assert_eq!(refused(secret), expected);
        assert_eq!(refused("{log: {}}"), "");
    }
}
