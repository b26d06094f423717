//! Lines about one job in the log of a worker.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A line about a job, as `logs -o json` prints it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogLine<'a> {
    /// Time of the line.
    pub time: String,
    /// The job.
    pub job: Cow<'a, str>,
    /// The worker that wrote it.
    pub worker: Cow<'a, str>,
    /// A line of output of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Cow<'a, str>>,
    /// An event of the job, instead of a line of output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<Cow<'a, str>>,
}

/// A matcher of the lines about one job in the log of a worker, as text or as JSON.
#[derive(Clone, Debug)]
pub struct JobLines {
    job: String,
    /// The field with the job in the worker's own lines.
    field: String,
}

/// A line about a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A line of the job's output.
    Output(Cow<'a, str>),
    /// An event of the job's worker.
    Event(&'a str),
}

/// The relevant fields of a JSON line.
#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    job: Option<Cow<'a, str>>,
    #[serde(borrow)]
    output: Option<Cow<'a, str>>,
}

impl JobLines {
    /// Makes a matcher for a job.
    #[must_use]
    pub fn of(job: &str) -> Self {
        Self { job: job.to_owned(), field: format!(" job={job}") }
    }

    /// Parses the line, if it is about the job. O(length of the line).
    #[must_use]
    pub fn find<'a>(&self, line: &'a str) -> Option<Line<'a>> {
        if line.starts_with('{') {
            let fields: Fields<'a> = serde_json::from_str(line).ok()?;
            let is_its_own = fields.job.as_deref() == Some(&self.job);
            return is_its_own.then(|| fields.output.map_or(Line::Event(line), Line::Output));
        }
        // A name has no spaces, so the first word is the whole name, and a line of output cannot be
        // mistaken for an event.
        let first = line.split(' ').next().unwrap_or_default();
        if let Some(name) = first.strip_suffix(':') {
            let output = line.strip_prefix(first)?;
            let output = output.strip_prefix(' ').unwrap_or(output);
            return (name == self.job).then_some(Line::Output(output.into()));
        }
        let is_field = |(at, field): (usize, &str)| {
            let after = &line[at + field.len()..];
            after.is_empty() || after.starts_with(' ')
        };
        line.match_indices(&self.field).any(is_field).then_some(Line::Event(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_job_are_its_output_and_what_its_worker_did_with_it() {
        let text = "2026-11-23T01:40:00.000000Z  INFO started job=a token=7 pid=4242";
        let other = "2026-11-23T01:40:00.000000Z  INFO started job=a:b token=7";
        let json = r#"{"timestamp":"2026","level":"INFO","message":"started","job":"a","token":7}"#;
        let output = |text: &'static str| Some(Line::Output(text.into()));
        for (line, expected) in [
            (text, Some(Line::Event(text))),
            (json, Some(Line::Event(json))),
            ("a: said  this", output("said  this")),
            ("a: ", output("")),
            ("a: started job=b token=7", output("started job=b token=7")),
            (r#"{"job":"a","output":"said \"this\""}"#, output("said \"this\"")),
            (r#"{"job":"b","output":"a: said"}"#, None),
            (other, None),
            ("a:b: said this", None),
            ("b: started job=a token=7", None),
            ("{ no json", None),
            ("", None),
        ] {
            assert_eq!(JobLines::of("a").find(line), expected, "{line}");
        }
        assert_eq!(JobLines::of("a:").find("a:: said"), output("said"));
    }
}
