//! A document on standard output.

use std::io::{self, Write as _};
use std::process::ExitCode;

/// Prints a document. It is no error if the reader closes the pipe, as `head` does.
pub(crate) fn print(document: impl AsRef<[u8]>) -> anyhow::Result<ExitCode> {
    match io::stdout().lock().write_all(document.as_ref()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(ExitCode::SUCCESS),
    }
}
