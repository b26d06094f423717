//! Params whose values are in Secrets, in terms that need no Kubernetes.

use std::collections::BTreeMap;

use swarm_core::JobName;

use crate::error::SpecError;
use crate::params::{NAME_MAX, is_variable_name};
use crate::spec::{ParamFromSpec, SecretKeyRefSpec};

/// The field, from its runner.
const PARAMS_FROM: &str = ".paramsFrom";
/// The prefix of the variables with params.
const PARAM: &str = "SWARM_PARAM_";
/// The placeholder that is a whole key.
const JOB: &str = "{job}";
/// The most characters of a key of a Secret.
const KEY_MAX: usize = 253;
/// The endings of the variables for values of each job.
const DIR: &str = "_DIR";
const FILE: &str = "_FILE";

/// A param with a value from a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretParam {
    /// The name of the param.
    pub name: String,
    /// The name of the Secret, for messages.
    pub secret: String,
    /// Whether the key is `{job}`, so that each job has a value of its own.
    pub is_of_job: bool,
}

impl SecretParam {
    /// Reads a param that was checked before.
    #[must_use]
    pub fn of(spec: &ParamFromSpec) -> Self {
        let ParamFromSpec { name, secret_key_ref: SecretKeyRefSpec { name: secret, key } } = spec;
        Self { name: name.clone(), secret: secret.clone(), is_of_job: key == JOB }
    }

    /// The variable of the worker with the directory that has a file for each job.
    #[must_use]
    pub fn dir_variable(&self) -> String {
        param_variable(&self.name) + DIR
    }

    /// The variable of the worker with the file that maps jobs to values.
    #[must_use]
    pub fn file_variable(&self) -> String {
        param_variable(&self.name) + FILE
    }

    /// Whether a job gets both params from the same variables of its worker.
    pub(super) fn is_read_as(&self, other: &Self) -> bool {
        let Self { name, secret: _, is_of_job } = self;
        *name == other.name && *is_of_job == other.is_of_job
    }
}

/// The variable in which a job finds its param `name`: in upper case, with `_` for any character
/// that is neither a letter nor a digit.
///
/// ```
/// assert_eq!(swarm_spec::manifest::param_variable("sourceUrl"), "SWARM_PARAM_SOURCEURL");
/// ```
#[must_use]
pub fn param_variable(name: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    PARAM.chars().chain(name.chars().map(letter)).collect()
}

/// Whether a key of a Secret can have this name.
#[must_use]
pub fn is_secret_key(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    !name.is_empty()
        && name.len() <= KEY_MAX
        && name != "."
        && !name.starts_with("..")
        && name.chars().all(is_plain)
}

/// Reads the params of the field `place`.
pub(super) fn secret_params(
    place: &str,
    params: &[ParamFromSpec],
) -> Result<Vec<SecretParam>, SpecError> {
    let wrong = |reason: String| Err(SpecError { place: place.to_owned(), reason });
    let mut all: BTreeMap<String, SecretParam> = BTreeMap::new();
    for spec in params {
        let ParamFromSpec { name, secret_key_ref: SecretKeyRefSpec { name: secret, key } } = spec;
        let param = SecretParam::of(spec);
        if !is_variable_name(name) || NAME_MAX < name.len() {
            let name = name.escape_default();
            return wrong(format!("`{name}` cannot name a param; use a-z, A-Z, 0-9 and `_`"));
        }
        if secret.is_empty() || key.is_empty() {
            return wrong(format!(
                "write the Secret of `{name}`: secretKeyRef: {{name: …, key: …}}"
            ));
        }
        if !param.is_of_job && key.contains(['{', '}']) {
            let key = key.escape_default();
            return wrong(format!(
                "the key `{key}` of `{name}` has another placeholder than `{JOB}` alone; write \
                 `key: \"{JOB}\"` for a value of each job, or a name without braces"
            ));
        }
        let variable = param_variable(name);
        if let Some(before) = all.insert(variable.clone(), param) {
            let before = before.name;
            return wrong(format!("`{before}` and `{name}` are both {variable}; rename one"));
        }
    }
    let of_jobs = all.values().filter(|param| param.is_of_job);
    let variables = of_jobs
        .flat_map(|param| [param.dir_variable(), param.file_variable()].map(|it| (param, it)));
    for (param, variable) in variables {
        if let Some(other) = all.get(&variable) {
            return wrong(format!(
                "`{}` and the source of `{}` are both {variable}; rename one",
                other.name, param.name
            ));
        }
    }
    Ok(all.into_values().collect())
}

/// Refuses jobs whose names cannot be keys, if a Secret has a key for each job. Each of them would
/// fail at every start. The place of an error begins at the runner. O(jobs) if there is such a Secret.
pub(crate) fn check_keys<'a>(
    params: &[SecretParam],
    mut jobs: impl Iterator<Item = &'a JobName>,
) -> Result<(), SpecError> {
    let Some(param) = params.iter().find(|param| param.is_of_job) else { return Ok(()) };
    let unfit = |name: &&JobName| !is_secret_key(name.as_str());
    let Some(job) = jobs.find(unfit) else { return Ok(()) };
    let SecretParam { name, secret, .. } = param;
    let reason = format!(
        "job `{job}` cannot be a key of the Secret `{secret}` for `{name}`; rename the job, with \
         a-z, A-Z, 0-9, `-`, `.` and `_`, at most {KEY_MAX}, without `..` at the beginning"
    );
    Err(SpecError { place: PARAMS_FROM.to_owned(), reason })
}

#[cfg(test)]
mod tests {
    use super::super::Runner;
    use super::*;

    fn params(list: &str) -> Result<Vec<SecretParam>, String> {
        let text = format!("{{command: [cat], paramsFrom: [{list}]}}");
        Runner::parse(&text).map(|runner| match runner {
            Runner::Command(program) => program.secret_params,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn a_value_is_of_all_jobs_or_of_each() {
        let read = params(
            "{name: host, secretKeyRef: {name: nvr, key: host}}, \
             {name: pass, secretKeyRef: {name: cams, key: '{job}'}}",
        )
        .unwrap();
        let [host, pass] = read.as_slice() else { panic!("{read:?}") };
        assert_eq!((host.is_of_job, pass.is_of_job), (false, true));
        assert_eq!(pass.dir_variable(), "SWARM_PARAM_PASS_DIR");
        assert_eq!(pass.file_variable(), "SWARM_PARAM_PASS_FILE");
    }

    #[test]
    fn the_placeholder_is_the_whole_key_and_alone() {
        for key in ["cam-{job}", "{job}.pw", "{worker}", "{Job}", "{{job}}", "{param.x}"] {
            let spec = ParamFromSpec {
                name: "pass".to_owned(),
                secret_key_ref: SecretKeyRefSpec { name: "cams".to_owned(), key: key.to_owned() },
            };
            let error = secret_params(PARAMS_FROM, &[spec]).unwrap_err();
            assert!(error.reason.contains("write `key: \"{job}\"`"), "{key}: {error}");
            let written = format!("{{name: pass, secretKeyRef: {{name: cams, key: '{key}'}}}}");
            assert!(params(&written).is_err(), "{key}");
        }
    }

    #[test]
    fn the_variables_of_two_params_are_apart() {
        let error = params(
            "{name: pass, secretKeyRef: {name: cams, key: '{job}'}}, \
             {name: pass_dir, secretKeyRef: {name: cams, key: a}}",
        );
        let expected = "paramsFrom: `pass_dir` and the source of `pass` are both \
                        SWARM_PARAM_PASS_DIR; rename one";
        assert_eq!(error.unwrap_err(), expected);
    }

    #[test]
    fn names_that_kubernetes_refuses_as_keys_are_no_keys() {
        let long = "a".repeat(253);
        for name in ["a", ".a", "a..b", "-", "_", "Cam.1-x_y", &long] {
            assert!(is_secret_key(name), "{name}");
        }
        let long = "a".repeat(254);
        for name in ["", ".", "..", "..data", "../x", "a/b", "a:b", "é", "a b", &long] {
            assert!(!is_secret_key(name), "{name}");
        }
    }
}
