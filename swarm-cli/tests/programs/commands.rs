//! Checks that every command of `swarm` and `kubectl swarm` in the README and in `docs` parses.

#![expect(
    clippy::unwrap_used,
    reason = "clippy allows it in test functions only, and all of this is a test"
)]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::error::ErrorKind;

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
    let mut commands = BTreeMap::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let blocks = text.split("```console\n").skip(1).filter_map(|it| it.split("```").next());
        let found = blocks.flat_map(str::lines).filter_map(command);
        commands.extend(found.map(|command| (command, page.clone())));
    }
    assert!(commands.len() >= 35, "only {} commands were found", commands.len());
    // A shell splits each command into words, which a program of the same name only prints.
    let dir = tempfile::tempdir().unwrap();
    for name in ["swarm", "kubectl-swarm"] {
        let file = dir.path().join(name);
        fs::write(&file, format!("#!/bin/sh\nprintf '%s\\0' {name} \"$@\"\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    for (command, page) in commands {
        let mut shell = Command::new("sh");
        let output = shell.args(["-c", &command]).env("PATH", &path).output().unwrap();
        let words = String::from_utf8(output.stdout).unwrap();
        let words: Vec<_> = words.split_terminator('\0').collect();
        // Only help or the version is printed, after everything before it has parsed.
        let asked = words.iter().chain(&["--help"]).map(OsString::from);
        let parsed = match words.first() {
            Some(&"swarm") => swarm_cli::swarm::command().try_get_matches_from(asked),
            Some(&"kubectl-swarm") => kubectl_swarm::program::parsed(asked),
            _ => panic!("{}: {command}: {words:?}", page.display()),
        };
        let help = parsed.unwrap_err();
        let is_shown = matches!(help.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
        assert!(is_shown, "{}: {command}: {help}", page.display());
    }
}
