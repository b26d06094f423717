//! Rules for the params of a job: their number, names and values.

use std::collections::BTreeMap;
use std::fmt;

use swarm_core::Jobs;

/// The most params of one job.
const PARAMS_MAX: usize = 32;
/// The most characters of the name of a param.
pub(crate) const NAME_MAX: usize = 63;
/// The most bytes of the value of a param.
const PARAM_BYTES_MAX: usize = 4_096;

/// Checks params. They become arguments and environment variables of programs, so their names are
/// plain.
pub(crate) fn check_params(params: &BTreeMap<String, String>) -> Result<(), String> {
    if PARAMS_MAX < params.len() {
        return Err(format!("it has {} params; at most {PARAMS_MAX} are allowed", params.len()));
    }
    let mut variables = BTreeMap::new();
    for (name, value) in params {
        if let Some(other) = variables.insert(name.to_ascii_uppercase(), name) {
            return Err(format!(
                "the params `{}` and `{}` differ in case only, but become the same variable of a \
                 program; rename one",
                Shortened(other),
                Shortened(name)
            ));
        }
        if !is_variable_name(name) || NAME_MAX < name.len() {
            return Err(format!(
                "`{}` cannot name a param; use a-z, A-Z, 0-9 and `_`, at most {NAME_MAX}",
                Shortened(name)
            ));
        }
        if PARAM_BYTES_MAX < value.len() || value.contains(char::is_control) {
            return Err(format!(
                "the param `{name}` is too long or has control characters; \
                 write at most {PARAM_BYTES_MAX} printable bytes"
            ));
        }
    }
    Ok(())
}

/// The advice about a value that comes from outside of the manifest. `name` is the name of a variable.
pub(crate) fn from_outside(name: &str) -> String {
    let param = name.to_ascii_lowercase();
    format!(
        "for a secret write `paramsFrom` with the param `{param}`, which the program gets as \
         SWARM_PARAM_{name}; for a variable of the worker write `inheritEnv: [{name}]`, and let the \
         program read it"
    )
}

/// The name in the first text such as `{RTSP_PASSWORD}` or `${RTSP_PASSWORD}`: other tools replace it by a
/// variable, and a param keeps it. O(length).
pub(crate) fn outer_variable(value: &str) -> Option<&str> {
    let mut rest = value;
    while let Some((_, after)) = rest.split_once('{') {
        let name = after.split_once('}').map(|(name, _)| name);
        if let Some(name) = name.filter(|name| is_outer(name)) {
            return Some(name);
        }
        rest = after;
    }
    None
}

/// Whether a name looks like a variable of an environment: upper case, which params rarely have.
pub(crate) fn is_outer(name: &str) -> bool {
    let is_upper = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    (2..=NAME_MAX).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.chars().all(is_upper)
}

/// A note about params that have a text such as `{RTSP_PASSWORD}`. O(their length).
pub(crate) fn note(jobs: &Jobs) -> Option<String> {
    let found = |job: &swarm_core::Job| {
        let mut params = job.params.iter();
        params.find_map(|(param, value)| Some((param.clone(), outer_variable(value)?.to_owned())))
    };
    let mut all = jobs.iter().filter_map(|(name, job)| Some((name, found(job)?)));
    let (job, (param, variable)) = all.next()?;
    let others = match all.count() {
        0 => String::new(),
        1 => ", as 1 other job".to_owned(),
        count => format!(", as {count} other jobs"),
    };
    Some(format!(
        "job `{job}` has the text `{{{variable}}}` in its param `{param}`{others}, and its program gets it as \
         it is: nothing is put in its place; {}",
        from_outside(&variable)
    ))
}

/// Whether an environment variable can have this name.
pub(crate) fn is_variable_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(is_plain)
}

/// A text of the file, shortened and escaped for a message of one line.
struct Shortened<'a>(&'a str);

impl fmt::Display for Shortened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().take(40).flat_map(char::escape_default).try_for_each(|c| write!(f, "{c}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_other_tools_replace_is_found() {
        for (value, name) in [
            ("rtsp://admin:{FRIGATE_PASSWORD}@a", Some("FRIGATE_PASSWORD")),
            ("rtsp://admin:${PASS2}@a", Some("PASS2")),
            ("{a}{{B_C}", Some("B_C")),
            ("{job} {Pass} {X} {1A} {}", None),
            ("{", None),
        ] {
            assert_eq!(outer_variable(value), name, "{value}");
        }
    }

    #[test]
    fn params_that_would_be_one_variable_of_a_program_are_refused() {
        let params = |names: &[&str]| {
            let params = names.iter().map(|name| ((*name).to_owned(), "x".to_owned()));
            check_params(&params.collect())
        };
        assert_eq!(params(&["url", "uri", "URL_2"]), Ok(()));
        let message = params(&["a", "url", "URL"]).unwrap_err();
        assert!(message.starts_with("the params `URL` and `url` differ in case only"), "{message}");
    }
}
