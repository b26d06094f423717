//! Follows `docs/tutorial.md` on this machine: writes its files, makes its edits, runs its commands in
//! order, and compares their output with the page.

#![expect(
    clippy::unwrap_used,
    reason = "clippy allows it in test functions only, and all of this is a test"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::local::operator::DEADLINE;

/// The first start of the pool, which uses a separate terminal in the page.
const START: &str = "swarm local cameras.yaml";

/// A reader of the page, in a directory that is also the home directory.
struct Reader {
    dir: TempDir,
    /// The pool of the first terminal.
    pool: Option<Child>,
    /// The last command, and its output.
    last: (String, String),
}

impl Reader {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn state(&self) -> PathBuf {
        self.path(".local/state/swarm/cameras")
    }

    /// A command in the reader's shell.
    fn shell(&self, line: &str) -> Command {
        let ours = Path::new(env!("CARGO_BIN_EXE_swarm")).parent().unwrap();
        let path = format!("{}:{}", ours.display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).current_dir(&self.dir).env("PATH", path);
        shell.env("HOME", self.dir.path()).env_remove("XDG_STATE_HOME").stdin(Stdio::null());
        shell
    }

    fn output(&self, line: &str) -> Output {
        self.shell(line).output().unwrap()
    }

    /// Runs a line of a console. The lines that need a cluster are left to a cluster.
    fn run(&mut self, line: &str) {
        if line == START {
            let output = fs::File::create(self.path("screen")).unwrap();
            let errors = output.try_clone().unwrap();
            let mut pool = self.shell(&format!("exec {line}"));
            self.pool = Some(pool.stdout(output).stderr(errors).spawn().unwrap());
            return;
        }
        // Only the pool of this test, among all of the machine.
        let here = format!("{} ", self.state().display());
        let line = line.replace("swarm/cameras .*", &format!("{here}.*"));
        assert!(!line.contains("pkill") || line.contains(&here), "{line}");
        // A shell that waits for `pkill` would match the pattern, too.
        let line = line.replace("pkill", "exec pkill");
        let line = line.replace("kubectl swarm plan", "kubectl-swarm plan");
        if line.starts_with("kubectl ") {
            return;
        }
        let output = self.output(&line);
        let shown = String::from_utf8(output.stdout).unwrap();
        // A pool may not have its socket yet. If the page shows an answer, the command is repeated.
        let is_early = output.status.code() == Some(3);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() || is_early, "{line}: {complaint}");
        self.last = (line, shown);
        if self.last.0 == "swarm stop" {
            assert!(output.status.success() && self.last.1.contains("no process is left"));
        }
    }

    /// Repeats the last command until it prints these lines, apart from their numbers.
    fn sees(&mut self, lines: &str) {
        let since = Instant::now();
        loop {
            let shown: Vec<_> = self.last.1.lines().map(without_numbers).collect();
            let missing = lines.lines().find(|line| !shown.contains(&without_numbers(line)));
            let Some(missing) = missing else { return };
            assert!(since.elapsed() < DEADLINE, "{:?} never shows: {missing}", self.last);
            sleep(Duration::from_millis(20));
            let output = self.output(&self.last.0);
            self.last.1 = String::from_utf8(output.stdout).unwrap();
        }
    }

    /// Writes the manifest, or the fields of an edit into it.
    fn writes(&self, block: &str) {
        let file = self.path("cameras.yaml");
        let Ok(before) = fs::read_to_string(&file) else {
            fs::write(&file, block).unwrap();
            return;
        };
        let [mut manifest, edit] =
            [&before, block].map(|text| swarm_spec::yaml::documents(text).unwrap().remove(0).1);
        merge(&mut manifest, edit);
        fs::write(self.path("edited"), manifest.to_string()).unwrap();
        fs::rename(self.path("edited"), &file).unwrap();
    }

    /// Waits until the screen has a message.
    fn screen_has(&self, message: &str) {
        let since = Instant::now();
        while !fs::read_to_string(self.path("screen")).unwrap().contains(message) {
            assert!(since.elapsed() < DEADLINE, "the screen never has: {message}");
            sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.shell("swarm stop --now").output();
        if let Some(pool) = &mut self.pool {
            let _ = pool.kill();
            let _ = pool.wait();
        }
    }
}

/// Adds fields to a manifest, or replaces their values.
fn merge(into: &mut Value, edit: Value) {
    match (into, edit) {
        (Value::Object(into), Value::Object(edit)) => {
            for (field, value) in edit {
                merge(into.entry(field).or_insert(Value::Null), value);
            }
        }
        (into, edit) => *into = edit,
    }
}

/// Normalizes a line: one digit for every number and one blank between words, since times, tokens
/// and widths differ. The names of workers stay.
fn without_numbers(line: &str) -> String {
    let mut shown = Vec::new();
    for word in line.split_whitespace() {
        let mut new = String::new();
        for c in word.chars() {
            match c {
                c if word.starts_with("cameras-") => new.push(c),
                '0'..='9' if new.ends_with('0') => {}
                '0'..='9' => new.push('0'),
                c => new.push(c),
            }
        }
        shown.push(new);
    }
    shown.join(" ")
}

/// Returns the blocks of the page in order, each with its language.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let inside = page.split("```").skip(1).step_by(2);
    inside.map(|block| block.split_once('\n').unwrap()).collect()
}

#[test]
fn the_tutorial_runs_as_it_is_written() {
    let page = include_str!("../../../docs/tutorial.md");
    let refusal = "cannot change while the pool runs";
    assert!(page.contains(refusal));
    let mut reader = Reader {
        dir: tempfile::tempdir().unwrap(),
        pool: None,
        last: (String::new(), String::new()),
    };
    let mut edits = 0;
    for (language, block) in blocks(page) {
        match language {
            "sh" => fs::write(reader.path("record.sh"), block).unwrap(),
            "yaml" => {
                reader.writes(block);
                edits += 1;
                if edits == 2 {
                    reader.screen_has(refusal);
                }
            }
            "console" => block.lines().for_each(|line| reader.run(line)),
            "text" => reader.sees(block),
            "dockerfile" => assert!(block.contains("COPY record.sh")),
            other => panic!("a block in {other:?}"),
        }
    }
    assert_eq!(edits, 3);
    assert_eq!(reader.pool.take().unwrap().wait().unwrap().code(), Some(0));
    assert!(!reader.state().exists() && !reader.path("recordings").exists());
}
