//! Checks that every command of `swarm` and `kubectl swarm` in the README and in `docs` parses.

#![expect(
    clippy::unwrap_used,
    reason = "clippy allows it in test functions only, and all of this is a test"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Shell words that may precede a command.
const BEFORE: [&str; 5] = ["$ ", "cargo ", "nohup ", "TERM=xterm-256color ", "sudo -u swarm "];

/// The README, and the pages of `docs`.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = docs.filter(|path| path.extension().is_some_and(|it| it == "md"));
    pages.chain([root.join("README.md")]).collect()
}

/// Returns the command in a console line, without pipes, redirections, comments, and another
/// program's arguments.
fn command(line: &str) -> Option<String> {
    let mut line = line.trim();
    while let Some(rest) = BEFORE.iter().find_map(|words| line.strip_prefix(words)) {
        line = rest;
    }
    let line = line.split(['|', '<', '>', '&', '#', ';']).next()?;
    let line = line.split(" -- ").next()?;
    // The prefix `swarm: ` begins a message.
    if line.starts_with("swarm ") {
        return Some(line.to_owned());
    }
    line.strip_prefix("kubectl swarm ").map(|rest| format!("kubectl-swarm {rest}"))
}

#[test]
fn every_command_in_the_documentation_parses() {
    let ours = Path::new(env!("CARGO_BIN_EXE_swarm")).parent().unwrap();
    let path = format!("{}:{}", ours.display(), std::env::var("PATH").unwrap());
    let empty = tempfile::tempdir().unwrap();
    let mut commands = BTreeMap::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let blocks = text.split("```console\n").skip(1).filter_map(|it| it.split("```").next());
        let found = blocks.flat_map(str::lines).filter_map(command);
        commands.extend(found.map(|command| (command, page.clone())));
    }
    assert!(commands.len() >= 35, "only {} commands were found", commands.len());
    for (command, page) in commands {
        // Only help is printed, after everything before it has parsed.
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{command} --help")]).env("PATH", &path);
        let output = shell.current_dir(&empty).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {command}: {complaint}", page.display());
    }
}
