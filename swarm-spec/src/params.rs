//! Rules for the params of a job: their number, names and values.

use std::collections::BTreeMap;
use std::fmt;

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
