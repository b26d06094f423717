//! Completions of `kubectl swarm`. kubectl runs the program `kubectl_complete-swarm` with the words
//! after `kubectl swarm`.
//!
//! The output has the format of commands made with cobra: one completion a line, with its description
//! after a tab. The last line is a directive for the shell.

use clap::{Arg, Command, ValueHint};

use crate::words::{command_at, is_named, takes_the_next_word};

/// Directive: the shell adds nothing.
const NO_FILES: &str = ":4\n";
/// Directive: the shell adds names of files.
const FILES: &str = ":0\n";

/// Names in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Names for the positional argument of the command.
    Argument,
    /// Names of Swarms, for an option.
    Swarm,
    /// Names of workers, for an option.
    Worker,
}

impl Wanted {
    /// Returns the names that an option takes, if it takes any.
    fn of(option: &Arg) -> Option<Self> {
        let is_worker = option.get_value_names().is_some_and(|names| names == ["WORKER"]);
        match option.get_long() {
            Some("swarm" | "live") => Some(Self::Swarm),
            _ => is_worker.then_some(Self::Worker),
        }
    }
}

/// Returns the completions of the last of `words`, which may be empty. `find` finds names in the
/// cluster.
pub(crate) fn candidates(
    command: &Command,
    words: &[String],
    find: impl FnOnce(&Command, &[String], Wanted) -> Vec<String>,
) -> String {
    let (last, before) = words.split_last().map_or(("", &[][..]), |(last, rest)| (last, rest));
    let named = command_at(command, before).and_then(|at| command.find_subcommand(before.get(at)?));
    let within = named.unwrap_or(command);
    let options = options(command, named);
    let given = before.last().and_then(|word| options.iter().find(|it| is_named(it, word)));
    if let Some(given) = given.filter(|option| takes_the_next_word(option)) {
        let Some(wanted) = Wanted::of(given) else { return values(given, last) };
        return found(last, find(command, words, wanted));
    }
    let mut lines = String::new();
    if last.starts_with('-') {
        for option in options.iter().filter(|option| !option.is_hide_set()) {
            let word = option.get_long().map(|name| format!("--{name}"));
            push(&mut lines, last, word.as_deref(), option.get_help());
        }
        push(&mut lines, last, Some("--help"), None);
    } else if within.get_positionals().any(|it| it.get_value_hint() == ValueHint::AnyPath) {
        return FILES.to_owned();
    } else if named.is_some() && within.get_positionals().next().is_some() {
        return found(last, find(command, words, Wanted::Argument));
    } else {
        for found in within.get_subcommands().filter(|found| !found.is_hide_set()) {
            push(&mut lines, last, Some(found.get_name()), found.get_about());
        }
    }
    lines + NO_FILES
}

/// Returns the lines for names in the cluster.
fn found(last: &str, names: Vec<String>) -> String {
    let mut lines = String::new();
    for name in names {
        push(&mut lines, last, Some(&name), None);
    }
    lines + NO_FILES
}

/// Returns the options of the named command, or else the options that every command has.
fn options<'a>(program: &'a Command, named: Option<&'a Command>) -> Vec<&'a Arg> {
    if let Some(named) = named {
        return named.get_arguments().collect();
    }
    // clap adds the command `help`, which has no options.
    let mut commands = program.get_subcommands().filter(|command| command.get_name() != "help");
    let first = commands.next().into_iter().flat_map(Command::get_arguments);
    let others: Vec<_> = commands.collect();
    let has = |command: &&Command, id| command.get_arguments().any(|option| option.get_id() == id);
    let shared = first.filter(|option| others.iter().all(|command| has(command, option.get_id())));
    program.get_arguments().chain(shared.filter(|option| option.get_long().is_some())).collect()
}

fn values(option: &Arg, last: &str) -> String {
    let mut lines = String::new();
    for value in option.get_possible_values() {
        push(&mut lines, last, Some(value.get_name()), value.get_help());
    }
    let is_path = option.get_value_hint() == ValueHint::AnyPath;
    lines + if is_path { FILES } else { NO_FILES }
}

/// Adds a line for `word` if it begins with `start`. Only the first line of the description is used.
fn push(
    lines: &mut String,
    start: &str,
    word: Option<&str>,
    about: Option<&clap::builder::StyledStr>,
) {
    let Some(word) = word.filter(|word| word.starts_with(start)) else { return };
    lines.push_str(word);
    if let Some(first) = about.map(ToString::to_string).as_deref().and_then(|it| it.lines().next())
    {
        lines.push('\t');
        lines.push_str(first);
    }
    lines.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        let command = crate::program::command();
        let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        let answer = candidates(&command, &words, |_, words, wanted| match wanted {
            Wanted::Argument => vec![format!("cam-{}", words.len()), "x".to_owned()],
            Wanted::Swarm => vec!["cameras".to_owned()],
            Wanted::Worker => vec!["ingest-1".to_owned()],
        });
        answer.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
    }

    #[test]
    fn commands_options_and_values_are_completed_and_files_left_to_the_shell() {
        assert_eq!(words("pl"), ["plan", ":4"]);
        assert!(words("").contains(&"plan".to_owned()));
        assert!(!words("").contains(&"__complete".to_owned()));
        assert_eq!(words("plan --f"), ["--filename", "--from", ":4"]);
        assert_eq!(words("plan -f a.yaml --work"), ["--workers", ":4"]);
        for files in ["plan -f ", "plan --filename a", "plan -f a --from ", "import ", "import a "]
        {
            assert_eq!(words(files), [":0"], "{files}");
        }
        assert_eq!(words("plan --workers "), [":4"]);
        assert_eq!(words("plan -o "), ["text", "json", ":4"]);
        assert_eq!(words("plan -o j"), ["json", ":4"]);
        assert_eq!(words("nonsense --x"), [":4"]);
        assert_eq!(words("status -n media c"), ["cam-4", ":4"]);
        assert_eq!(words("who "), ["cam-2", "x", ":4"]);
        assert_eq!(words("who --swarm c"), ["cameras", ":4"]);
        assert_eq!(words("plan --live "), ["cameras", ":4"]);
        assert_eq!(words("plan --live cameras --without "), ["ingest-1", ":4"]);
        assert_eq!(words("jobs cameras -w "), ["ingest-1", ":4"]);
    }

    #[test]
    fn flags_of_kubectl_are_completed_before_and_after_the_command() {
        assert_eq!(words("--kubec"), ["--kubeconfig", ":4"]);
        assert_eq!(words("--kubeconfig "), [":0"]);
        assert_eq!(words("--context plan repl"), ["replicas", ":4"]);
        assert_eq!(words("--as a replicas --as-g"), ["--as-group", ":4"]);
        assert_eq!(words("--filen"), [":4"]);
        assert_eq!(words("plan --context "), [":4"]);
        assert_eq!(words("plan -k "), [":0"]);
    }
}
