//! Finds the command among the words of a command line. kubectl's own flags may precede it.

use std::ffi::{OsStr, OsString};

use clap::{Arg, Command};

/// Moves leading flags to after the command, which knows them, and keeps their order. Without a
/// command, drops the flags, so that the program asks for a command.
pub(crate) fn with_the_command_first(
    program: &Command,
    words: impl IntoIterator<Item = OsString>,
) -> Vec<OsString> {
    let mut words: Vec<_> = words.into_iter().collect();
    if let Some(at) = command_at(program, words.get(1..).unwrap_or_default()) {
        if let Some(leading) = words.get_mut(1..=at + 1) {
            leading.rotate_right(1);
        }
    } else if words.get(1).is_some_and(|word| is_known(program, word)) {
        words.truncate(1);
    }
    words
}

/// Whether a word is an option of any command, with or without a value in the same word.
fn is_known(program: &Command, word: &OsStr) -> bool {
    let word = word.to_string_lossy();
    let word = word.split_once('=').map_or(&*word, |(name, _)| name);
    let options = program.get_subcommands().flat_map(Command::get_arguments);
    options.filter(|option| option.get_action().takes_values()).any(|option| is_named(option, word))
}

/// Returns the index of the command in `words`: the first word that is neither an option nor its
/// value.
pub(crate) fn command_at<W: AsRef<OsStr>>(program: &Command, words: &[W]) -> Option<usize> {
    let mut at = 0;
    loop {
        let word = words.get(at)?.as_ref().to_string_lossy();
        if !word.starts_with('-') {
            return Some(at);
        }
        let commands = || program.get_subcommands();
        let options = commands().flat_map(Command::get_arguments);
        let is_followed = options.filter(|it| is_named(it, &word)).any(takes_the_next_word);
        at += if is_followed { 2 } else { 1 };
    }
}

/// Whether a word is this option, without a value in the same word.
pub(crate) fn is_named(option: &Arg, word: &str) -> bool {
    let is_long = || option.get_long().is_some_and(|long| word == format!("--{long}"));
    is_long() || option.get_short().is_some_and(|short| word == format!("-{short}"))
}

/// Whether the value of an option is the next word.
pub(crate) fn takes_the_next_word(option: &Arg) -> bool {
    option.get_action().takes_values() && !option.is_require_equals_set()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_kubectl_may_stand_before_the_command() {
        let program = crate::program::command();
        let moved = |line: &str| {
            let words = line.split(' ').map(OsString::from);
            let moved = with_the_command_first(&program, words);
            moved.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
        };
        for (given, expected) in [
            ("k", "k"),
            ("k plan -f a", "k plan -f a"),
            ("k --context a plan -f b", "k plan --context a -f b"),
            ("k --as-group=a --as-group plan replicas", "k replicas --as-group=a --as-group plan"),
            ("k -n a -s b replicas -n c", "k replicas -n a -s b -n c"),
            ("k --insecure-skip-tls-verify import", "k import --insecure-skip-tls-verify"),
            ("k --nonsense plan", "k plan --nonsense"),
            ("k --help", "k --help"),
            ("k --context a", "k"),
            ("k --context=a", "k"),
        ] {
            assert_eq!(moved(given), expected);
        }
    }
}
