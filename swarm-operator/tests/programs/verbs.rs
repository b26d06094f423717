//! Tests verbs that this program lacks or has lost.

#![expect(clippy::unwrap_used, reason = "clippy allows it in test functions only")]

use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    let program = Command::new(env!("CARGO_BIN_EXE_swarm-operator"));
    { program }.args(args).env_clear().env("NAMESPACE", "swarm").output().unwrap()
}

/// Returns the message of a command that only prints a message.
fn refusal(args: &[&str]) -> String {
    let output = run(args);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{message}");
    message
}

#[test]
fn the_verbs_of_the_go_operator_are_answered_with_ours() {
    let message = refusal(&["internal", "--http-port", "9090", "--help"]);
    let command = "`swarm-operator run --namespace swarm --listen :9090`";
    assert!(message.contains(command), "{message}");
    refusal(&["external"]);
}

#[test]
fn an_unknown_verb_is_refused_and_the_help_names_the_other_programs() {
    assert!(refusal(&["local"]).contains("unrecognized subcommand 'local'"));
    let message = refusal(&["help", "a\u{1b}[31m"]);
    assert!(!message.contains('\u{1b}'), "{message:?}");
    let help = String::from_utf8(run(&["--help"]).stdout).unwrap();
    for program in ["`swarm`", "`kubectl swarm`"] {
        assert!(help.contains(program), "{help}");
    }
}
