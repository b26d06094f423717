//! Reads the predecessors' lists of jobs: texts, or lines `host,port`.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;
use swarm_core::JobName;
use swarm_spec::hostport;

use super::report::{Report, Spot};

/// Suffix of a job that takes a whole worker, as planned for `cnbc:100`.
const WHOLE_WORKER: &str = ":100";

/// A job as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Job {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) share: Option<i32>,
}

impl Job {
    pub(super) fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), share: None }
    }
}

/// Reads the jobs of the list of texts at `list`. Duplicates are dropped; an entry that cannot be a
/// job is a mistake. O(jobs · log jobs).
pub(super) fn of_list(value: &Value, list: &Spot, report: &mut Report) -> Vec<Job> {
    let entries = match value {
        Value::Null => {
            report.note(list, "the list is empty: the Swarm has no jobs yet");
            return Vec::new();
        }
        Value::Array(entries) => entries,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            report.mistake(
                list,
                "this is not a list; write one job a line, as in `- stream:cars:new`",
            );
            return Vec::new();
        }
    };
    let (mut names, mut jobs) = (BTreeSet::new(), Vec::new());
    for (index, entry) in entries.iter().enumerate() {
        let spot = list.at(&format!("[{index}]"));
        let Some(name) = name_of(entry, list, &spot, report) else { continue };
        if names.insert(name.clone()) {
            jobs.push((name, spot));
        } else {
            report.note_entry(list, &spot, format!("job `{name}` is in the list before; dropped"));
        }
    }
    let with_share = |(name, spot): (String, Spot)| {
        let Some(bare) = name.strip_suffix(WHOLE_WORKER).filter(|bare| !bare.is_empty()) else {
            return Job::named(name);
        };
        let what = "with a share of 100: it takes a worker for itself";
        if names.contains(bare) {
            let sentence =
                format!("job `{name}` keeps its name, since `{bare}` is a job, too, {what}");
            report.note_entry(list, &spot, sentence);
            return Job { name, share: Some(100) };
        }
        let sentence = format!("job `{name}` is written as `{bare}` {what}");
        report.note_entry(list, &spot, sentence);
        Job { name: bare.to_owned(), share: Some(100) }
    };
    jobs.into_iter().map(with_share).collect()
}

/// Returns the job's name in an entry of a list.
fn name_of(entry: &Value, list: &Spot, spot: &Spot, report: &mut Report) -> Option<String> {
    let text = match entry {
        Value::String(text) => text.clone(),
        Value::Number(number) => {
            report.note_entry(list, spot, format!("the number {number} is read as a text"));
            number.to_string()
        }
        Value::Null => {
            report.note_entry(list, spot, "the entry is empty; dropped");
            return None;
        }
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
            let kind = if entry.is_object() { "a map" } else { "no text" };
            let sentence = format!(
                "the entry is {kind}; write the job's name in quotes, as in `- \"stream:cars:new\"`"
            );
            report.mistake(spot, sentence);
            return None;
        }
    };
    let name = text.trim();
    if name != text {
        report.note_entry(
            list,
            spot,
            format!("the spaces around `{}` are dropped", name.escape_default()),
        );
    }
    match JobName::new(name) {
        Ok(_) => Some(name.to_owned()),
        Err(error) => {
            report.mistake(spot, error.to_string());
            None
        }
    }
}

/// Reads the jobs of the lines `host,port` in the text at `list`. O(jobs · log jobs).
pub(super) fn of_hostports(text: &str, list: &Spot, report: &mut Report) -> Vec<Job> {
    let (mut names, mut jobs) = (BTreeSet::new(), Vec::new());
    for (number, line) in hostport::lines(text) {
        let spot = list.line_within(number);
        let name = hostport::job_of(line).filter(|name| JobName::new(name).is_ok());
        let Some(name) = name else {
            let line = hostport::excerpt(line);
            report.mistake(&spot, format!("`{line}` is not an address; write `host,port`"));
            continue;
        };
        if names.insert(name.clone()) {
            jobs.push(Job::named(name));
        } else {
            report.note_entry(list, &spot, format!("`{name}` is in the list before; dropped"));
        }
    }
    jobs
}
