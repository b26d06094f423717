//! Runs `kubectl swarm plan` and checks its output and exit code.

#![expect(
    clippy::unwrap_used,
    reason = "clippy allows it in test functions only, and all of this is a test"
)]

mod documented;
mod input;
mod places;
mod reasons;
mod text;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Files to plan from, in a directory of their own.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Writes a file and returns its path.
    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Runs `plan` here.
    fn plan(&self, args: &[&str]) -> Output {
        command(args).current_dir(self.0.path()).stdin(Stdio::null()).output().unwrap()
    }

    /// Runs `plan` with a text on standard input.
    fn plan_of(&self, text: &str, args: &[&str]) -> Output {
        let mut command = command(args);
        command.current_dir(self.0.path()).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-swarm"));
    command.arg("plan").args(args);
    command
}

/// A Swarm with these lines as its spec, and a pool named `w`.
fn swarm(spec: &str) -> String {
    format!(
        "apiVersion: swarm.k8slab.info/v1alpha1\nkind: Swarm\nmetadata: {{name: any}}\nspec:\n  \
         pool: {{statefulSet: {{name: w}}}}\n  {}\n",
        spec.trim().replace('\n', "\n  ")
    )
}

/// The document for a spec and a view; the exit code must be `code`.
fn planned(spec: &str, view: &str, workers: &str, code: i32) -> Value {
    let files = Files::new();
    let view = files.write("view.yml", view);
    let args = ["-f", "-", "--workers", workers, "--from", &view, "-o", "json"];
    document(&files.plan_of(&swarm(spec), &args), code)
}

/// The one document on standard output.
fn document(output: &Output, code: i32) -> Value {
    assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The one message of a run that was refused.
fn refusal(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{stderr}");
    stderr
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}
