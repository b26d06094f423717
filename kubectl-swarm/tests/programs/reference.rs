//! Checks that the help of each command is in the reference, which a test of `swarm-cli` writes. An
//! option that most commands have is in it once.

use std::path::Path;
use std::process::Command;

#[test]
fn the_reference_has_what_the_program_prints() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/cli.md");
    let page = std::fs::read_to_string(file).unwrap();
    let sections: Vec<_> =
        page.split("\n## ").filter_map(|it| it.split_once("\n\n```text\n")).collect();
    // The section of `swarm` has the exit codes.
    let shared = ["swarm", "Options of most commands of `kubectl swarm`"];
    let once = sections.iter().filter(|(name, _)| shared.contains(name));
    let once: String = once.map(|(_, text)| *text).collect();
    let mut compared = 0;
    for (name, text) in sections.iter().filter(|(name, _)| name.starts_with("kubectl swarm")) {
        // The help would show values from the environment.
        let mut program = Command::new(env!("CARGO_BIN_EXE_kubectl-swarm"));
        let arguments = name.split(' ').skip(2);
        let output = program.args(arguments).arg("--help").env_clear().output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let (text, _) = text.split_once("\n```").unwrap();
        let (shown, printed) = (words(&format!("{text} {once}")), trimmed(&printed));
        let is_shown = |line: &&&str| shown.contains(&words(line));
        let missing: Vec<_> = printed.iter().filter(|line| !is_shown(line)).collect();
        let stale: Vec<_> = text.lines().filter(|line| !printed.contains(line)).collect();
        assert!(
            missing.is_empty() && stale.is_empty(),
            "{name}: run `just generate`; missing: {missing:?}, stale: {stale:?}"
        );
        compared += 1;
    }
    assert!(10 < compared, "only {compared} sections were found");
}

fn trimmed(text: &str) -> Vec<&str> {
    text.trim_end().lines().map(str::trim_end).collect()
}

/// Returns a text without its layout, which depends on the other options.
fn words(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    words.join(" ").replace(" (see a summary with '-h')", "")
}
