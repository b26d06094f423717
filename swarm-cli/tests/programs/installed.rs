//! Programs that a machine may lack. A test that needs such a program is skipped without it, with a
//! message.

#![expect(clippy::print_stderr, reason = "a test that does not run says so")]

use std::process::{Command, Stdio};

fn is_installed(program: &str) -> bool {
    // A program that refuses the argument is installed, too.
    let mut version = Command::new(program);
    version.arg("-version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    version.status().is_ok()
}

/// Whether the programs are installed; prints a line if one is missing.
pub(crate) fn are_installed(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| !is_installed(program));
    if let Some(missing) = missing {
        eprintln!(
            "skipped: this test needs the program {missing}; `just packages tests` installs it"
        );
    }
    missing.is_none()
}
