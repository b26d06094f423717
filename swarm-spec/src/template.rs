//! Texts with placeholders, which are filled for every job.
//!
//! A placeholder is a name in braces, as in `--name={job}`. A brace that follows `$` belongs to a
//! shell (`${HOME}`). Doubled braces become single ones (`{{job}}` becomes the text `{job}`).
//! Braces around anything but a name stay as they are (`{"a": 1}`, `{1..3}`, `{ print }`).

use std::collections::BTreeMap;

use crate::params;

/// The prefix of placeholders for params.
const PARAM: &str = "param.";

/// A text with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Job,
    Token,
    Worker,
    Files,
    Param(String),
}

/// Values of the placeholders.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    /// The name of the job.
    pub job: &'a str,
    /// The fencing token of the job.
    pub token: u64,
    /// The name of the worker.
    pub worker: &'a str,
    /// The params of the job.
    pub params: &'a BTreeMap<String, String>,
    /// The directory of the job's files; empty if it has none.
    pub files: &'a str,
}

/// A placeholder that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown placeholder `{{{name}}}`; write {{job}}, {{token}}, {{worker}}, {{files}} or \
     {{param.NAME}}, or {{{{{name}}}}} for the text itself{}",
    from_outside(name)
)]
pub struct UnknownPlaceholder {
    name: String,
}

/// The advice about a name that variables of an environment have; empty for any other one.
fn from_outside(name: &str) -> String {
    if params::is_outer(name) { format!("; {}", params::from_outside(name)) } else { String::new() }
}

/// A job without a param that a placeholder names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the job has no param `{0}`, which a placeholder names")]
pub struct MissingParam(pub String);

impl Template {
    /// Takes a text as it is, without placeholders.
    #[must_use]
    pub fn literal(text: &str) -> Self {
        Self(vec![Part::Text(text.to_owned())])
    }

    /// Reads a text. O(its length).
    ///
    /// # Errors
    ///
    /// [`UnknownPlaceholder`] if a name in braces is not one of the known ones.
    ///
    /// ```
    /// use swarm_spec::template::Template;
    ///
    /// assert!(Template::parse("--name={job}").is_ok());
    /// let error = Template::parse("--name={jbo}").unwrap_err().to_string();
    /// assert!(error.starts_with("unknown placeholder `{jbo}`; write {job}, {token}, "));
    /// ```
    pub fn parse(text: &str) -> Result<Self, UnknownPlaceholder> {
        let (mut parts, mut literal) = (Vec::new(), String::new());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            literal.push_str(before);
            let is_shell = before.ends_with('$');
            if let Some((name, after)) = after.strip_prefix('{').and_then(|it| named(it, "}}")) {
                literal.extend(["{", name, "}"]);
                rest = after;
            } else if let Some((name, after)) = named(after, "}").filter(|_| !is_shell) {
                let part = Part::named(name)?;
                parts.extend([Part::Text(std::mem::take(&mut literal)), part]);
                rest = after;
            } else {
                literal.push('{');
                rest = after;
            }
        }
        literal.push_str(rest);
        parts.push(Part::Text(literal));
        Ok(Self(parts))
    }

    /// Whether the text has a placeholder for this param.
    #[must_use]
    pub fn has_param(&self, name: &str) -> bool {
        self.0.iter().any(|part| matches!(part, Part::Param(param) if param == name))
    }

    /// Whether the text has a placeholder for the directory of the job's files.
    pub(crate) fn has_files(&self) -> bool {
        self.0.contains(&Part::Files)
    }

    /// The params that the text has placeholders for.
    pub(crate) fn params(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Param(name) => Some(name.as_str()),
            Part::Text(_) | Part::Job | Part::Token | Part::Worker | Part::Files => None,
        })
    }

    /// The text for a job. Placeholders within a value are not filled.
    ///
    /// # Errors
    ///
    /// [`MissingParam`] if the job has no such param.
    pub fn fill(&self, values: &Values<'_>) -> Result<String, MissingParam> {
        let mut filled = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => filled.push_str(text),
                Part::Job => filled.push_str(values.job),
                Part::Token => filled.push_str(&values.token.to_string()),
                Part::Worker => filled.push_str(values.worker),
                Part::Files => filled.push_str(values.files),
                Part::Param(name) => {
                    let value = values.params.get(name);
                    filled.push_str(value.ok_or_else(|| MissingParam(name.clone()))?);
                }
            }
        }
        Ok(filled)
    }
}

impl Part {
    fn named(name: &str) -> Result<Self, UnknownPlaceholder> {
        match (name, name.strip_prefix(PARAM)) {
            ("job", _) => Ok(Self::Job),
            ("token", _) => Ok(Self::Token),
            ("worker", _) => Ok(Self::Worker),
            ("files", _) => Ok(Self::Files),
            (_, Some(param)) if !param.is_empty() => Ok(Self::Param(param.to_owned())),
            _ => Err(UnknownPlaceholder { name: name.to_owned() }),
        }
    }
}

/// The name at the start of `text`, and the rest after `end`; `None` without a name.
fn named<'a>(text: &'a str, end: &str) -> Option<(&'a str, &'a str)> {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    let length = text.find(|c| !is_inner(c))?;
    let (name, rest) = text.split_at(length);
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    Some((name, rest.strip_prefix(end)?)).filter(|_| is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str) -> String {
        let params = BTreeMap::from([("url".to_owned(), "rtsp://{job}".to_owned())]);
        let (job, files) = ("a;$(b){token}", "/run/files/a");
        let values = Values { job, token: 7, worker: "w-0", params: &params, files };
        Template::parse(text).unwrap().fill(&values).unwrap()
    }

    #[test]
    fn placeholders_are_filled_once() {
        assert_eq!(filled("--name={job}"), "--name=a;$(b){token}");
        assert_eq!(filled("{token}{token} {worker}{"), "77 w-0{");
        assert_eq!(filled("--config={files}/a.conf"), "--config=/run/files/a/a.conf");
        assert_eq!(filled("é{param.url}é"), "értsp://{job}é");
    }

    #[test]
    fn other_braces_mean_themselves() {
        for text in ["{", "{}", "{ print $1 }", "{1..3}", "{a,b}", r#"{"a": 1}"#, "é{job", "{{.A}}"]
        {
            assert_eq!(filled(text), text);
        }
        assert_eq!(filled("${job} ${HOME}"), "${job} ${HOME}");
        assert_eq!(filled("{{job}} {{print}} {{{job}}}"), "{job} {print} {{job}}");
        assert_eq!(filled("{jo{token}b}"), "{jo7b}");
    }

    #[test]
    fn an_unknown_placeholder_is_refused_with_the_known_ones() {
        let error = Template::parse("a {jbo}").unwrap_err().to_string();
        let expected = "unknown placeholder `{jbo}`; write {job}, {token}, {worker}, {files} or \
                        {param.NAME}, or {{jbo}} for the text itself";
        assert_eq!(error, expected);
        let error = Template::parse("rtsp://a:{RTSP_PASSWORD}@b").unwrap_err().to_string();
        let advice = "`paramsFrom` with the param `rtsp_password`";
        assert!(
            error.contains(advice) && error.contains("`inheritEnv: [RTSP_PASSWORD]`"),
            "{error}"
        );
        for text in ["{Job}", "{param.}", "{param}", "{job.name}", "{_}"] {
            assert!(Template::parse(text).is_err(), "{text} was accepted");
        }
    }

    #[test]
    fn a_job_without_the_param_cannot_fill_it() {
        let (params, files) = (&BTreeMap::new(), "");
        let values = Values { job: "a", token: 1, worker: "w", params, files };
        let error = Template::parse("{param.port}").unwrap().fill(&values).unwrap_err();
        let expected = "the job has no param `port`, which a placeholder names";
        assert_eq!(error.to_string(), expected);
    }
}
