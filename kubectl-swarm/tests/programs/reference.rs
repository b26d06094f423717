//! Checks that the help of each command is in the reference, which a test of `swarm-cli` writes.

use std::path::Path;
use std::process::Command;

#[test]
fn the_reference_has_what_the_program_prints() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/cli.md");
    let page = std::fs::read_to_string(file).unwrap();
    let mut compared = 0;
    for section in page.split("\n## ").filter(|section| section.starts_with("kubectl swarm")) {
        let (name, text) = section.split_once("\n\n```text\n").unwrap();
        // The help would show values from the environment.
        let mut program = Command::new(env!("CARGO_BIN_EXE_kubectl-swarm"));
        let words = name.split(' ').skip(2);
        let output = program.args(words).arg("--help").env_clear().output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<_> = printed.trim_end().lines().map(str::trim_end).collect();
        assert_eq!(text.trim_end(), lines.join("\n") + "\n```", "{name}: run `just generate`");
        compared += 1;
    }
    assert!(10 < compared, "only {compared} sections were found");
}
