//! A manifest that is made from a file of another tool. A setting without a counterpart becomes a comment at
//! its place.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use swarm_core::{RunnerName, Title};
use swarm_spec::convert::Home;
use swarm_spec::manifest::{self, in_full};
use swarm_view::printable::{Form, printable};

/// Maximum number of jobs of a draft.
const JOBS_MAX: usize = 10_000;

/// Number of workers of a draft with as many jobs or more.
const WORKERS: usize = 3;

/// Maximum length of the name of a Swarm whose pool is managed.
const SWARM_NAME_MAX: usize = swarm_spec::spec::MANAGED_NAME_MAX;

/// Maximum length of a job's name that a draft writes.
const JOB_NAME_MAX: usize = 253;

/// Maximum length of a comment, in characters.
const COMMENT_MAX: usize = 400;

/// A manifest in the making.
#[derive(Debug, Default)]
pub(super) struct Draft {
    /// Comments at the start of the file.
    pub(super) comments: Vec<String>,
    /// The runner of the jobs that name none.
    pub(super) runner: Option<Runner>,
    /// The runners of the jobs that name one.
    pub(super) runners: Vec<(String, Runner)>,
    /// The time that jobs have to stop, in seconds.
    pub(super) stop_timeout_s: Option<u64>,
    pub(super) jobs: Vec<Job>,
    pub(super) names: Names,
    pub(super) runner_names: Names,
}

/// The names that are taken, each with the number to try next.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeMap<String, usize>);

impl Names {
    /// Returns a name that is free, and takes it. O(log names) on average.
    fn free(&mut self, wanted: &str, length_max: usize) -> String {
        let Some(next) = self.0.get(wanted).copied() else {
            self.0.insert(wanted.to_owned(), 2);
            return wanted.to_owned();
        };
        let numbered = |number: usize| {
            let end = format!("-{number}");
            let start = cut(wanted, length_max.saturating_sub(end.len()));
            format!("{}{end}", start.trim_end_matches('-'))
        };
        let found = (next..).map(|number| (number, numbered(number)));
        let mut free = found.filter(|(_, name)| !self.0.contains_key(name));
        // There are more numbers than names.
        let (number, name) = free.next().unwrap_or_default();
        drop(free);
        self.0.insert(wanted.to_owned(), number + 1);
        self.0.insert(name.clone(), 2);
        name
    }
}

/// The runner of some jobs.
#[derive(Debug, Default)]
pub(super) struct Runner {
    /// The fields, such as `command`, each after its comments.
    parts: Vec<Part>,
}

#[derive(Debug)]
enum Part {
    Comment(String),
    Field(&'static str, Value),
}

/// A job.
#[derive(Debug, Default)]
pub(super) struct Job {
    /// Comments before the job.
    pub(super) comments: Vec<String>,
    pub(super) title: Option<String>,
    pub(super) runner: Option<String>,
    pub(super) is_suspended: bool,
    pub(super) params: BTreeMap<String, String>,
    pub(super) name: String,
}

impl Runner {
    /// Makes a runner of a command without placeholders.
    pub(super) fn of(words: &[String]) -> Self {
        let mut runner = Self::default();
        runner.field("command", json!(words));
        runner
    }

    pub(super) fn field(&mut self, name: &'static str, value: Value) {
        self.parts.push(Part::Field(name, value));
    }

    pub(super) fn comment(&mut self, comment: String) {
        self.parts.push(Part::Comment(comment));
    }
}

impl Draft {
    /// Adds a job under the wanted name, or under a valid one that no other job has. A comment has the
    /// wanted one then.
    ///
    /// # Errors
    ///
    /// A sentence about too many jobs.
    pub(super) fn add(&mut self, wanted: &str, mut job: Job) -> Result<(), String> {
        if self.jobs.len() == JOBS_MAX {
            return Err(format!("it has more than {JOBS_MAX} jobs; divide it"));
        }
        job.name = self.names.free(&plain(wanted, JOB_NAME_MAX), JOB_NAME_MAX);
        if job.name != wanted {
            job.comments.push(format!("the name was: {wanted}"));
        }
        let title = job.title.take();
        job.title = title.and_then(|it| match Title::new(&it) {
            Ok(title) => Some(title.as_str().to_owned()).filter(|it| *it != job.name),
            Err(error) => {
                job.comments.push(format!("the title `{it}` cannot be used: {error}"));
                None
            }
        });
        self.jobs.push(job);
        Ok(())
    }

    /// Adds a runner under a valid name that no other runner has, and returns the name.
    pub(super) fn add_runner(&mut self, wanted: &str, runner: Runner) -> String {
        let wanted = label(wanted, RunnerName::CHARACTERS_MAX, "runner");
        let name = self.runner_names.free(&wanted, RunnerName::CHARACTERS_MAX);
        self.runners.push((name.clone(), runner));
        name
    }

    /// Whether the draft has no job.
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Writes the manifest of a Swarm whose name is made from `named`.
    ///
    /// # Errors
    ///
    /// A sentence about a manifest that swarm would refuse.
    pub(super) fn write(&self, named: &str) -> Result<String, String> {
        let name = label(named, SWARM_NAME_MAX, "swarm");
        // The name of a Swarm begins with a letter, as the names of its workers do.
        let name = if name.starts_with(|c: char| c.is_ascii_digit()) {
            format!("s{}", cut(&name, SWARM_NAME_MAX - 1))
        } else {
            name
        };
        let mut text = String::new();
        comments(&mut text, 0, &self.comments);
        let _ = write!(
            text,
            "kind: Swarm\nmetadata:\n  name: {name}\nspec:\n  replicas: {}\n  worker:\n",
            self.jobs.len().clamp(1, WORKERS)
        );
        if let Some(runner) = &self.runner {
            text += "    runner:\n";
            runner.write(&mut text, 6);
        }
        if !self.runners.is_empty() {
            text += "    runners:\n";
        }
        for (name, runner) in &self.runners {
            let _ = writeln!(text, "      {}:", scalar(name));
            runner.write(&mut text, 8);
        }
        if let Some(seconds) = self.stop_timeout_s {
            let _ = write!(text, "  handover:\n    stopTimeout: {seconds}s\n");
        }
        text += "  jobs:\n";
        for job in &self.jobs {
            job.write(&mut text);
        }
        manifest::parse(&text, None, Home::Machine).map_err(|error| in_full(&error))?;
        Ok(text)
    }
}

impl Runner {
    fn write(&self, text: &mut String, indent: usize) {
        for part in &self.parts {
            match part {
                Part::Comment(comment) => comments(text, indent, std::slice::from_ref(comment)),
                Part::Field(name, value) => field(text, indent, name, value.clone()),
            }
        }
    }
}

impl Job {
    fn write(&self, text: &mut String) {
        let Self { comments: said, title, runner, is_suspended, params, name } = self;
        comments(text, 4, said);
        let _ = writeln!(text, "    - name: {}", scalar(name));
        let fields = [
            ("title", title.as_ref().map(|it| json!(it))),
            ("runner", runner.as_ref().map(|it| json!(it))),
            ("suspend", is_suspended.then(|| json!(true))),
            ("params", Some(params).filter(|it| !it.is_empty()).map(|it| json!(it))),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                field(text, 6, name, value);
            }
        }
    }
}

/// Adds comments, each on one line.
fn comments(text: &mut String, indent: usize, comments: &[String]) {
    for comment in comments {
        let shown = printable(comment, Form::Line);
        let more = if shown.chars().nth(COMMENT_MAX).is_some() { "…" } else { "" };
        let shown: String = shown.chars().take(COMMENT_MAX).collect();
        let _ = writeln!(text, "{:indent$}# {shown}{more}", "");
    }
}

/// Adds a field in block style. Its texts have one line each.
fn field(text: &mut String, indent: usize, name: &str, value: Value) {
    let field = Map::from_iter([(name.to_owned(), value)]);
    // A value that cannot be written is not in the text, and the check of the manifest names it.
    let written = serde_yaml::to_string(&field).unwrap_or_default();
    for line in written.lines() {
        let _ = writeln!(text, "{:indent$}{line}", "");
    }
}

/// Returns a text as YAML in one line.
fn scalar(text: &str) -> String {
    serde_yaml::to_string(text).unwrap_or_default().trim_end().to_owned()
}

/// Returns the start of an ASCII text.
fn cut(text: &str, length: usize) -> &str {
    text.get(..length).unwrap_or(text)
}

/// Returns a text that can name a job: printable ASCII without spaces.
fn plain(text: &str, length_max: usize) -> String {
    let fit = |c: char| if c.is_ascii_graphic() { c } else { '-' };
    let name: String = text.trim().chars().map(fit).take(length_max).collect();
    if name.is_empty() { "job".to_owned() } else { name }
}

/// Returns a text of `a-z`, `0-9` and `-` that begins and ends with none of `-`.
fn label(text: &str, length_max: usize, otherwise: &str) -> String {
    let fit = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = text.chars().map(fit).take(length_max).collect();
    let name = name.trim_matches('-');
    if name.is_empty() { otherwise.to_owned() } else { name.to_owned() }
}

/// Returns a text as an argument without placeholders: a name in braces gets double braces.
pub(super) fn literal(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        written.push_str(before);
        let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        let length = after.find(|c| !is_inner(c)).unwrap_or(after.len());
        let (name, end) = after.split_at(length);
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let end = end.strip_prefix('}').filter(|_| is_name && !before.ends_with('$'));
        if let Some(end) = end {
            written.extend(["{{", name, "}}"]);
            rest = end;
        } else {
            written.push('{');
            rest = after;
        }
    }
    written + rest
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use swarm_spec::template::{Template, Values};

    use super::*;

    #[test]
    fn a_literal_is_filled_as_the_text_that_it_was() {
        let (params, files) = (BTreeMap::new(), "");
        let values = Values { job: "a", token: 1, worker: "w", params: &params, files };
        for text in ["{job}", "${HOME} {x", "{{job}}", "{1..3}{a-b}", "a{{.A}}", "{", "${a}{b}", ""]
        {
            let template = Template::parse(&literal(text)).unwrap();
            assert_eq!(template.fill(&values).unwrap(), text);
        }
    }

    #[test]
    fn names_are_made_valid_and_unique_and_the_old_one_is_in_a_comment() {
        let mut draft =
            Draft { runner: Some(Runner::of(&["true".to_owned()])), ..Draft::default() };
        for name in ["door", "door", "Tür 1", "", "door-2"] {
            draft.add(name, Job::default()).unwrap();
        }
        let text = draft.write("9 Lives!").unwrap();
        assert!(text.contains("name: s9-lives\n"), "{text}");
        let names = "- name: door\n    # the name was: door\n    - name: door-2\n    # the name was: Tür \
                     1\n    - name: T-r-1\n";
        assert!(text.contains(names), "{text}");
        assert!(text.contains("# the name was: \n    - name: job\n"), "{text}");
        assert!(text.contains("# the name was: door-2\n    - name: door-2-2\n"), "{text}");
    }
}
