//! Runs the nightly snapshot of `docs/faq.md` as the page describes.

#![expect(
    clippy::unwrap_used,
    reason = "clippy allows it in test functions only, and all of this is a test"
)]

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::local::operator::until;

/// The section of the page, and a directory with its files.
struct Example {
    section: String,
    dir: TempDir,
}

impl Example {
    fn new() -> Self {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/faq.md");
        let page = fs::read_to_string(page).unwrap();
        let (_, rest) = page.split_once("## Write a snapshot every night\n").unwrap();
        let section = rest.split("\n## ").next().unwrap().to_owned();
        let example = Self { section, dir: tempfile::tempdir().unwrap() };
        for (file, language) in [("nightly.yaml", "yaml"), ("nightly.sh", "sh")] {
            assert!(example.section.contains(&format!("`{file}`")));
            fs::write(example.path(file), example.block(language)).unwrap();
        }
        example
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The only block in this language.
    fn block(&self, language: &str) -> &str {
        let start = format!("```{language}\n");
        let mut blocks = self.section.split(&start).skip(1);
        let block = blocks.next().unwrap().split("```").next().unwrap();
        assert!(blocks.next().is_none(), "one block is {language}");
        block
    }

    /// Runs a command of the page in a shell.
    fn run(&self, command: &str) -> Output {
        let ours = Path::new(env!("CARGO_BIN_EXE_swarm")).parent().unwrap();
        let path = format!("{}:{}", ours.display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("timeout");
        shell.args(["60", "sh", "-c", command]).current_dir(&self.dir).env("PATH", path);
        shell.env("XDG_STATE_HOME", self.path("state")).output().unwrap()
    }

    fn runs(&self, command: &str) -> String {
        let output = self.run(command);
        assert!(output.status.success(), "{command}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The complete and incomplete snapshots.
    fn snapshots(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path("snapshots")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }

    /// Waits for the only snapshot.
    fn snapshot(&self) -> PathBuf {
        until("a complete snapshot", || match &self.snapshots()[..] {
            [one] if one.extension()? == "tar" => Some(one.clone()),
            _ => None,
        })
    }

    /// Waits until the log of the job has a number of starts, and the last run pauses.
    fn pauses(&self, starts: usize) {
        let pid = until("the job runs", || {
            let log = self.runs("swarm logs yard nightly");
            let list = self.runs("swarm ps nightly");
            let row: Vec<_> = list.lines().nth(1)?.split_whitespace().collect();
            let has_started = log.matches(" - started ").count() == starts;
            (has_started && row[2] == "running").then(|| row[3].to_owned())
        });
        let children = format!("/proc/{pid}/task/{pid}/children");
        until("the job pauses", || {
            let child = fs::read_to_string(&children).ok()?;
            let name = fs::read_to_string(format!("/proc/{}/comm", child.trim())).ok()?;
            (name == "sleep\n").then_some(())
        });
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.run("swarm stop nightly --now");
    }
}

#[test]
fn each_night_has_one_snapshot_and_a_missed_one_is_made_up_for() {
    let example = Example::new();
    let commands: Vec<_> = example.block("console").lines().collect();
    let (start, before) = commands.split_last().unwrap();
    for command in before {
        example.runs(command);
    }
    fs::write(example.path("recordings/yard/cat.ts"), "a cat").unwrap();
    example.runs(start);
    let snapshot = example.snapshot();
    let listed = example.runs(&format!("tar -tf {}", snapshot.display()));
    assert!(listed.contains("./cat.ts\n"), "{listed}");

    // A run that follows leaves the snapshot of the night as it is.
    example.pauses(1);
    let inode = fs::metadata(&snapshot).unwrap().ino();
    example.runs("swarm restart yard --pool nightly");
    example.pauses(2);
    assert_eq!(example.snapshots(), std::slice::from_ref(&snapshot));
    assert_eq!(fs::metadata(&snapshot).unwrap().ino(), inode);

    // A night that was missed is made up for at the next start.
    let stopped = example.runs("swarm stop nightly");
    assert!(stopped.ends_with("no process is left\n"), "{stopped}");
    fs::remove_file(&snapshot).unwrap();
    example.runs(start);
    example.snapshot();
    let stopped = example.runs("swarm stop nightly");
    assert!(stopped.ends_with("no process is left\n"), "{stopped}");
}
