//! Ends a program whose command line is invalid.

use std::ffi::OsString;
use std::io::{self, Write as _};

use swarm_adapters_host::printable::{Form, printable};

/// Exits with clap's message. If a word of the command line has control characters, the message is
/// escaped.
pub(crate) fn exit(error: &clap::Error) -> ! {
    let is_plain = |word: OsString| {
        let word = word.to_string_lossy();
        printable(&word, Form::Line) == word
    };
    if !error.use_stderr() || std::env::args_os().all(is_plain) {
        error.exit();
    }
    let message = error.render().to_string();
    // A failure to write to standard error cannot be reported.
    let _ = write!(io::stderr(), "{}", printable(&message, Form::Lines));
    std::process::exit(error.exit_code())
}
