//! The output of all commands, in both homes: formats, names of columns, tables and messages.

use std::io::{self, IsTerminal as _, Write as _};
use std::iter;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::OnceLock;

use anstyle::AnsiColor;
use clap::ValueEnum;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::tcgetwinsize;
use swarm_view::printable::{Form, printable};
use swarm_view::shell;

/// Exit code for invalid usage or input.
pub const WRONG: u8 = 2;

/// Exit code for the answer "no".
pub const NO: u8 = 3;

/// Width of a terminal that does not tell its own.
const COLUMNS: usize = 100;

/// Maximum number of commands in a message.
const CHOICES_MAX: usize = 10;

/// Name of the running program; it begins each message.
static PROGRAM: OnceLock<&'static str> = OnceLock::new();

/// The format of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Text and tables for people
    #[default]
    #[value(alias = "table")]
    Text,
    /// One JSON document, in a stable format
    Json,
}

/// Sets the name that begins each message. Only the first call has an effect.
pub fn name_program(name: &'static str) {
    let _ = PROGRAM.set(name);
}

/// Returns a message about a choice that is left to the user: the command line as it was typed, with
/// each of the `options`, at most `CHOICES_MAX`.
#[must_use]
pub fn choice(what: &str, options: &[String]) -> String {
    let program = PROGRAM.get().unwrap_or(&"swarm");
    let words = std::env::args_os().skip(1).map(|word| shell::word(&word).into_owned());
    let typed: Vec<_> = iter::once((*program).to_owned()).chain(words).collect();
    let typed = typed.join(" ");
    let command = |option: &String| format!("\n  {typed}{option}");
    let mut text = format!("{what}; name one of them:");
    text.extend(options.iter().take(CHOICES_MAX).map(command));
    let more = options.len().checked_sub(CHOICES_MAX).filter(|more| 0 < *more);
    text.extend(more.map(|more| format!("\n  and {more} more")));
    text
}

/// Prints a JSON document, with characters that could control a terminal escaped.
///
/// # Errors
///
/// If standard output cannot be written.
pub fn print_json(document: &str) -> io::Result<()> {
    print(&printable(document, Form::Json))
}

/// Prints a document; its styles are removed if colours are off. The caller escapes untrusted text. A
/// reader that closes the pipe, as `head` does, is not an error.
///
/// # Errors
///
/// Standard output cannot be written for another reason.
pub fn print(document: &str) -> io::Result<()> {
    let mut stdout = anstream::stdout().lock();
    match stdout.write_all(document.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Whether a pipe has lost its reader, as after `head` has ended. A write would report that, but there
/// may be nothing to write for hours.
#[must_use]
pub fn has_no_reader(pipe: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(pipe, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| 0 < ready)
}

/// Returns the width of the terminal that gets standard output; `None` for a pipe or a file.
#[must_use]
pub fn terminal_columns() -> Option<usize> {
    let stdout = io::stdout();
    let width = || tcgetwinsize(&stdout).ok().map(|size| usize::from(size.ws_col));
    stdout.is_terminal().then(|| width().filter(|width| 0 < *width).unwrap_or(COLUMNS))
}

/// Prints a document, and succeeds.
///
/// # Errors
///
/// If standard output cannot be written.
pub fn answer(document: &str) -> anyhow::Result<ExitCode> {
    print(document)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a one-line message on standard error, after the program's name in red if colours are on.
/// Control characters, which may come from a file, are escaped.
pub fn complain(sentence: &str) {
    complain_as(sentence, Form::Line);
}

/// Same as [`complain`], for a message of several lines, such as one with an excerpt of a file.
pub fn complain_in_lines(message: &str) {
    complain_as(message, Form::Lines);
}

fn complain_as(message: &str, form: Form) {
    let red = AnsiColor::Red.on_default();
    let program = PROGRAM.get().unwrap_or(&"swarm");
    let message = printable(message, form);
    // A failure to write to standard error cannot be reported.
    let _ = writeln!(anstream::stderr(), "{red}{program}:{red:#} {message}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_that_nobody_reads_has_no_reader() {
        let (reader, writer) = io::pipe().unwrap();
        assert!(!has_no_reader(&writer));
        drop(reader);
        assert!(has_no_reader(&writer));
    }
}
