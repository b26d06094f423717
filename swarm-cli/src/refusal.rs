//! Ends a program whose command line is invalid.

use std::io::{self, Write as _};

use swarm_adapters_host::printable::{Form, are_printable, printable};

/// Exits with clap's message. If a word of the command line has control characters, the message is
/// escaped.
pub(crate) fn exit(error: &clap::Error) -> ! {
    if !error.use_stderr() || are_printable(std::env::args_os()) {
        error.exit();
    }
    let message = error.render().to_string();
    // A failure to write to standard error cannot be reported.
    let _ = write!(io::stderr(), "{}", printable(&message, Form::Lines));
    std::process::exit(error.exit_code())
}
