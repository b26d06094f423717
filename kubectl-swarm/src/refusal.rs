//! Ends a program whose command line is invalid.

use std::io::{self, Write as _};

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use swarm_view::printable::{Form, are_printable, printable};

/// Exits with clap's message. If a word of the command line has control characters, the message is
/// escaped.
pub fn exit(mut error: clap::Error) -> ! {
    advise(&mut error);
    if !error.use_stderr() || are_printable(std::env::args_os()) {
        error.exit();
    }
    let message = error.render().to_string();
    // A failure to write to standard error cannot be reported.
    let _ = write!(io::stderr(), "{}", printable(&message, Form::Lines));
    std::process::exit(error.exit_code())
}

/// Replaces clap's tip where ours is better.
fn advise(error: &mut clap::Error) {
    let tip = match (error.kind(), word(error, ContextKind::InvalidSubcommand)) {
        (ErrorKind::InvalidSubcommand, Some("version")) => {
            "`--version` prints the version".to_owned()
        }
        (ErrorKind::UnknownArgument, _) if takes_files_with_an_option(error) => {
            match word(error, ContextKind::InvalidArg) {
                Some(file) if !file.starts_with('-') => format!("write `-f {file}` to name a file"),
                _ => return,
            }
        }
        _ => return,
    };
    error.remove(ContextKind::SuggestedSubcommand);
    let tip = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
    error.insert(ContextKind::Suggested, tip);
}

/// Returns the word that an error is about.
fn word(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word),
        _ => None,
    }
}

/// Reports whether the command takes files as values of the option `--filename`, as kubectl does.
fn takes_files_with_an_option(error: &clap::Error) -> bool {
    let usage = error.get(ContextKind::Usage);
    usage.is_some_and(|usage| usage.to_string().contains("--filename <FILE>"))
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::*;

    /// A program with two commands.
    fn other() -> Command {
        Command::new("swarm").subcommands(["status", "verify"].map(Command::new))
    }

    fn refusal_of(program: Command, line: &str) -> String {
        let mut error = program.try_get_matches_from(line.split(' ')).unwrap_err();
        advise(&mut error);
        error.render().to_string()
    }

    #[test]
    fn a_word_that_other_programs_know_has_a_tip() {
        let kubectl = || crate::program::command();
        let refused = refusal_of(kubectl(), "kubectl-swarm plan a.yaml");
        assert!(refused.contains("  tip: write `-f a.yaml` to name a file\n"), "{refused}");
        for program in [other(), kubectl()] {
            let refused = refusal_of(program, "swarm version");
            assert!(refused.contains("  tip: `--version` prints the version\n"), "{refused}");
            assert!(!refused.contains("verify"), "{refused}");
        }
    }

    #[test]
    fn other_tips_stay() {
        let refused = refusal_of(other(), "swarm statsu");
        assert!(refused.contains("'status'") && !refused.contains("--version"), "{refused}");
        for line in ["kubectl-swarm replicas a.yaml", "kubectl-swarm plan -f a --nonsense"] {
            let refused = refusal_of(crate::program::command(), line);
            assert!(!refused.contains("write `-f"), "{refused}");
        }
    }
}
