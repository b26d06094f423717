//! Checks of the things on this machine that every job needs: a directory, and the variables with
//! secrets.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::path::Path;

use swarm_adapters_host::caller;
use swarm_core::RunnerName;
use swarm_spec::error::SpecError;
use swarm_spec::manifest::{ManifestError, Program, Runner, SecretParam, param_variable};
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
    let Program { working_dir, secret_params, open_files, .. } = program;
    if let Some(Err(reason)) = open_files.map(caller::check_open_files) {
        return Some(("openFiles", reason));
    }
    if let Some(reason) = working_dir.as_deref().and_then(unusable) {
        return Some(("workingDir", reason));
    }
    let mut reasons = secret_params.iter().filter_map(|param| {
        if param.is_of_job {
            let sources = (env::var_os(param.dir_variable()), env::var_os(param.file_variable()));
            unusable_source(param, sources)
        } else {
            unset(&param.name)
        }
    });
    reasons.next().map(|reason| ("paramsFrom", reason))
}

/// Says that the variable with the param `name` is missing; `None` if it is set.
fn unset(name: &str) -> Option<String> {
    let variable = param_variable(name);
    env::var_os(&variable).is_none().then(|| {
        format!(
            "the environment of this program has no variable {variable}, from which the jobs get \
             the param `{name}`; set it, and start the pool again"
        )
    })
}

/// Says why jobs cannot get a param of their own from the directory or the file of these variables;
/// `None` if they can.
fn unusable_source(
    param: &SecretParam,
    sources: (Option<OsString>, Option<OsString>),
) -> Option<String> {
    let (dir, file) = (param.dir_variable(), param.file_variable());
    match sources {
        (Some(path), None) => {
            unusable(Path::new(&path)).map(|reason| format!("the variable {dir}: {reason}"))
        }
        (None, Some(path)) => {
            let path = Path::new(&path);
            (!path.is_file()).then(|| {
                let shown = path.display().to_string();
                format!(
                    "the variable {file}: the file `{}` does not exist; write one with a line \
                     `JOB: VALUE` for each job",
                    shown.escape_default()
                )
            })
        }
        (Some(_), Some(_)) => {
            Some(format!("the environment of this program has both {dir} and {file}; remove one"))
        }
        (None, None) => Some(format!(
            "the environment of this program has neither {dir}, a directory with a file for each \
             job, nor {file}, a YAML map from jobs to values; set one for the param `{}`",
            param.name
        )),
    }
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
        assert!(file.starts_with("workingDir: `/dev/null` is not a directory"), "{file}");
        let secret =
            "{command: [cat], paramsFrom: [{name: noSuch, secretKeyRef: {name: s, key: k}}]}";
        let missing = refused(secret);
        assert!(missing.starts_with("paramsFrom: "), "{missing}");
        assert!(missing.contains(" has no variable SWARM_PARAM_NOSUCH, "), "{missing}");
        assert!(missing.contains(" the param `noSuch`"), "{missing}");
        assert_eq!(refused("{log: {}}"), "");
    }

    #[test]
    fn secrets_of_each_job_need_one_source() {
        let secret =
            "{command: [cat], paramsFrom: [{name: noSuch, secretKeyRef: {name: s, key: '{job}'}}]}";
        let missing = refused(secret);
        for part in ["paramsFrom: ", " SWARM_PARAM_NOSUCH_DIR, ", " SWARM_PARAM_NOSUCH_FILE, "] {
            assert!(missing.contains(part), "{part}: {missing}");
        }
        let param = SecretParam { name: "a".into(), secret: "s".into(), is_of_job: true };
        let reason = |dir: Option<&str>, file: Option<&str>| {
            let sources = (dir.map(OsString::from), file.map(OsString::from));
            unusable_source(&param, sources).unwrap_or_default()
        };
        assert_eq!(reason(Some("/"), None), "");
        assert_eq!(reason(None, Some("/proc/self/status")), "");
        let nowhere = reason(Some("/no/such"), None);
        assert!(nowhere.starts_with("the variable SWARM_PARAM_A_DIR: the directory"), "{nowhere}");
        let nowhere = reason(None, Some("/no/such"));
        assert!(nowhere.starts_with("the variable SWARM_PARAM_A_FILE: the file"), "{nowhere}");
        assert!(
            reason(Some("/"), Some("/")).contains("both SWARM_PARAM_A_DIR and SWARM_PARAM_A_FILE")
        );
    }
}
