//! Runs other programs to completion, with errors that contain their output.

use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, bail};

/// Runs `program` and returns its output.
///
/// # Errors
///
/// When the program cannot be started, or fails. The error has its stderr.
pub fn run(program: &str, args: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    let output = command.output().with_context(|| format!("cannot start {program}"))?;
    stdout_of(&format!("{program} {}", args.join(" ")), &output)
}

/// Runs `command` with its output going straight to the terminal, for builds that take minutes.
///
/// # Errors
///
/// When the command cannot be started, or fails.
pub fn run_visibly(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("cannot start {program}"))?;
    if !status.success() {
        bail!("{program} ended with {status}");
    }
    Ok(())
}

/// The output of a finished program, or an error with its stderr.
///
/// # Errors
///
/// When the program failed.
pub fn stdout_of(what: &str, output: &Output) -> Result<String> {
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("`{what}` ended with {}: {}", output.status, stderr.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_program_is_quoted() {
        let err = run("sh", &["-c", "echo no such luck >&2; exit 3"]).unwrap_err().to_string();
        assert!(err.ends_with("ended with exit status: 3: no such luck"), "{err}");
    }
}
