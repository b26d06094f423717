//! Completions of `kubectl swarm`. kubectl asks the program `kubectl_complete-swarm` for them, with the
//! words after `kubectl swarm`, and reads answers as commands made with cobra give them: one a line,
//! with its description after a tab, and at last what the shell shall do.

use clap::{Arg, Command, ValueHint};

/// The shell adds nothing.
const NO_FILES: &str = ":4\n";
/// The shell adds names of files.
const FILES: &str = ":0\n";

/// What could stand in place of the last of `words`, which may be empty.
pub(crate) fn candidates(command: &Command, words: &[String]) -> String {
    let (last, before) = words.split_last().map_or(("", &[][..]), |(last, rest)| (last, rest));
    let within = before.iter().fold(command, |within, word| {
        within.find_subcommand(word).filter(|found| !found.is_hide_set()).unwrap_or(within)
    });
    let given = before.last().and_then(|word| option(within, word));
    if let Some(given) = given.filter(|option| option.get_action().takes_values()) {
        return values(given, last);
    }
    let mut lines = String::new();
    if last.starts_with('-') {
        for option in within.get_arguments().filter(|option| !option.is_hide_set()) {
            let word = option.get_long().map(|name| format!("--{name}"));
            push(&mut lines, last, word.as_deref(), option.get_help());
        }
        push(&mut lines, last, Some("--help"), None);
    } else if within.get_positionals().any(|it| it.get_value_hint() == ValueHint::AnyPath) {
        return FILES.to_owned();
    } else {
        for found in within.get_subcommands().filter(|found| !found.is_hide_set()) {
            push(&mut lines, last, Some(found.get_name()), found.get_about());
        }
    }
    lines + NO_FILES
}

/// The option that a word on the command line is.
fn option<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let is_it = |option: &&Arg| {
        let is_long = || option.get_long().is_some_and(|long| word == format!("--{long}"));
        is_long() || option.get_short().is_some_and(|short| word == format!("-{short}"))
    };
    command.get_arguments().find(is_it)
}

fn values(option: &Arg, last: &str) -> String {
    let mut lines = String::new();
    for value in option.get_possible_values() {
        push(&mut lines, last, Some(value.get_name()), value.get_help());
    }
    let is_path = option.get_value_hint() == ValueHint::AnyPath;
    lines + if is_path { FILES } else { NO_FILES }
}

/// Adds a line for `word` if it begins with `start`. Of the description the first line counts.
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
    use clap::CommandFactory as _;

    use super::*;

    fn words(line: &str) -> Vec<String> {
        let mut command = crate::Args::command();
        command.build();
        let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        let answer = candidates(&command, &words);
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
    }
}
