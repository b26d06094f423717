//! A Procfile: lines `NAME: COMMAND`. Each process type becomes a runner and a job.

use serde_json::json;
use swarm_spec::foreign::process;

use super::draft::{Draft, Job, Runner, literal};

/// The process type that runs before a release.
const RELEASE: &str = "release";

/// Characters that only a shell understands.
const OF_SHELLS: [char; 13] = ['$', '|', '&', ';', '<', '>', '(', ')', '`', '*', '?', '[', '~'];

/// Characters between several commands.
const BETWEEN: [char; 8] = ['|', '&', ';', '<', '>', '(', ')', '`'];

/// Reads a Procfile.
///
/// # Errors
///
/// A sentence with the line.
pub(super) fn read(text: &str) -> Result<Draft, String> {
    let mut draft = Draft::default();
    for (number, line) in swarm_spec::hostport::lines(text) {
        let (name, command) =
            process(line).ok_or_else(|| format!("line {number}: write `NAME: COMMAND`"))?;
        let mut job = Job::default();
        if name == RELEASE {
            let said = "Procfile: `release` runs once before each release, so it is suspended here; to run it \
                        once, write `runOnce: true` instead of `suspend: true`";
            job.comments.push(said.to_owned());
            job.is_suspended = true;
        }
        let runner = runner_of(command).map_err(|why| format!("line {number}: {why}"))?;
        job.runner = Some(draft.add_runner(name, runner));
        draft.add(name, job)?;
    }
    Ok(draft)
}

/// Makes the runner of a command line. Variables before the program become its environment, and a
/// line that needs a shell gets one.
fn runner_of(command: &str) -> Result<Runner, String> {
    let words = shlex::split(command);
    let words = words.filter(|it| !it.is_empty());
    let words = words.ok_or_else(|| format!("the quotes of `{command}` do not match"))?;
    let is_variable = |word: &&String| variable(word).is_some();
    let variables: Vec<_> = words.iter().take_while(is_variable).cloned().collect();
    let program = words.get(variables.len()..).unwrap_or_default();
    let values = variables.iter().filter_map(|it| variable(it));
    let needs_shell = |text: &str| text.contains(OF_SHELLS);
    // A quoted sign means itself; then the shell is not needed, and does no harm.
    let raw = command.split_whitespace().skip(variables.len()).collect::<Vec<_>>().join(" ");
    if program.is_empty()
        || needs_shell(&raw)
        || values.clone().any(|(_, value)| needs_shell(value))
    {
        // A shell that runs one program becomes it, so that the program gets the signals.
        let line = if command.contains(BETWEEN) {
            command.to_owned()
        } else {
            format!("exec env {command}")
        };
        return Ok(Runner::of(&["sh".to_owned(), "-c".to_owned(), literal(&line)]));
    }
    let words: Vec<_> = program.iter().map(|word| literal(word)).collect();
    let mut runner = Runner::of(&words);
    let env: serde_json::Map<_, _> =
        values.map(|(name, value)| (name.to_owned(), json!(literal(value)))).collect();
    if !env.is_empty() {
        runner.field("env", env.into());
    }
    Ok(runner)
}

/// Splits `NAME=VALUE` if the name can be one of a variable.
fn variable(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    (is_name && name.chars().all(is_plain)).then_some((name, value))
}
