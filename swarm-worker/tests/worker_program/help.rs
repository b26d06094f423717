//! Tests that the page of commands shows the help of this program.

use std::path::Path;
use std::process::Command;

#[test]
fn the_page_of_commands_has_the_help_of_every_command() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/cli.md");
    let page = words(&std::fs::read_to_string(file).unwrap());
    for command in [None, Some("run"), Some("view"), Some("ping"), Some("install")] {
        let program = env!("CARGO_BIN_EXE_swarm-worker");
        let mut help = Command::new(program);
        let output = help.args(command).arg("--help").env_clear().output().unwrap();
        // The page shows no values of the environment, not even that they are empty.
        let help = words(&String::from_utf8(output.stdout).unwrap()).replace("=]", "]");
        assert!(
            page.contains(&help),
            "docs/reference/cli.md is stale: run `just generate`; {help}"
        );
    }
}

/// Returns a text without its line breaks, which depend on the length of the omitted values.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
