//! The checkout, its version, and programs that this tool starts in it.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Returns the top folder of the checkout.
pub(crate) fn root() -> &'static Path {
    const HOME: &str = env!("CARGO_MANIFEST_DIR");
    Path::new(HOME).ancestors().nth(2).unwrap_or(Path::new(HOME))
}

/// The version of the workspace, such as `0.1.0`.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Runs `program` in the top folder of the checkout, and returns its standard output.
///
/// # Errors
///
/// When the program cannot start or fails. The error quotes its standard error.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root()).stdin(Stdio::null());
    let output = command.output().with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("`{program} {}` failed: {}", arguments.join(" "), stderr.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Renders a folder of `deploy/` with kustomize, the program in the variable `KUSTOMIZE`.
///
/// # Errors
///
/// When kustomize is missing or fails.
pub(crate) fn kustomize(folder: &str) -> Result<String> {
    let program = std::env::var("KUSTOMIZE").unwrap_or_else(|_| "kustomize".to_owned());
    run(&program, &["build", folder])
}
