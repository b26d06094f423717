//! Tests the program with words of a shell: completions, and words that do not parse.

use std::path::Path;
use std::process::Command;

#[test]
fn kubectl_completes_the_words_of_its_plugin() {
    // kubectl finds both programs in PATH.
    let bin = Path::new(env!("CARGO_BIN_EXE_kubectl-swarm")).parent().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("kubectl_complete-swarm");
    for (words, answer) in [(&["plan", "--fi"][..], "--filename\tA manifest, "), (&[""], "plan\t")]
    {
        let completed = Command::new(&script).args(words).env("PATH", bin).output().unwrap();
        assert!(String::from_utf8_lossy(&completed.stdout).starts_with(answer), "{completed:?}");
    }
}

#[test]
fn a_command_line_that_does_not_parse_does_not_steer_a_terminal() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_kubectl-swarm"));
    program.args(["plan", "c\u{1b}[31m\u{9b}2Jx"]).env("CLICOLOR_FORCE", "1");
    let output = program.output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.chars().all(|c| c == '\n' || !c.is_control()), "{message:?}");
    assert!(message.contains("Usage: "), "{message}");
}
