//! The output of all commands, in both homes: formats, names of columns, tables and messages.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::OnceLock;

use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use swarm_adapters_host::printable::{Form, printable};

/// Names of columns that several tables have.
pub mod columns {
    /// The name of a job.
    pub const JOB: &str = "JOB";
    /// The reason of a move, or of a job without a worker.
    pub const REASON: &str = "REASON";
    /// The state of a job, a worker or a replica.
    pub const STATE: &str = "STATE";
    /// The name of a worker.
    pub const WORKER: &str = "WORKER";
}

/// The exit code for invalid usage or input.
pub const WRONG: u8 = 2;

/// The exit code for an answer that is "no".
pub const NO: u8 = 3;

/// The style of titles and of the names of columns, which only a terminal shows.
const HEADER: Style = Style::new().bold();

/// The most rows of a table; the JSON document has all of them.
const ROWS_MAX: usize = 100;

/// The name of the running program, which begins each of its messages.
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

/// Sets the name that begins each message. The first name counts.
pub fn name_program(name: &'static str) {
    let _ = PROGRAM.set(name);
}

/// Prints a JSON document, in which a terminal finds nothing to obey.
///
/// # Errors
///
/// If standard output cannot be written.
pub fn print_json(document: &str) -> io::Result<()> {
    print(&printable(document, Form::Json))
}

/// Prints a document, without its styles where there are no colours. The caller has escaped what comes from
/// elsewhere. It is no error if the reader closes the pipe, as `head` does.
///
/// # Errors
///
/// If standard output cannot be written otherwise.
pub fn print(document: &str) -> io::Result<()> {
    let mut stdout = anstream::stdout().lock();
    match stdout.write_all(document.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
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

/// Prints a message other than the answer on standard error, in one line, after the program's name in red
/// where there are colours. Control characters, which may come from a file, are escaped.
pub fn complain(sentence: &str) {
    complain_as(sentence, Form::Line);
}

/// Prints a message of several lines in the same way, such as a sentence with an excerpt of a file.
pub(crate) fn complain_in_lines(message: &str) {
    complain_as(message, Form::Lines);
}

fn complain_as(message: &str, form: Form) {
    let red = AnsiColor::Red.on_default();
    let program = PROGRAM.get().unwrap_or(&"swarm");
    let message = printable(message, form);
    // If standard error is closed, the message is lost.
    let _ = writeln!(anstream::stderr(), "{red}{program}:{red:#} {message}");
}

/// Makes a row of a table.
#[must_use]
pub fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).into()
}

/// Appends a table. The first row is its header; rows beyond the limit are only counted. Control
/// characters, which may come from a file, are escaped.
pub fn add_table(text: &mut String, title: &str, rows: &[Vec<String>], what: &str) {
    text.push('\n');
    if !title.is_empty() {
        let _ = writeln!(text, "{HEADER}{title} ({}){HEADER:#}", rows.len() - 1);
    }
    let shown = rows.iter().take(ROWS_MAX + 1);
    let escaped = |cell: &String| printable(cell, Form::Line).into_owned();
    let shown: Vec<Vec<_>> = shown.map(|row| row.iter().map(escaped).collect()).collect();
    let columns = shown.first().map_or(0, Vec::len);
    let cell = |row: &[String], column: usize| row.get(column).map_or(0, String::len);
    let width = |column| shown.iter().map(|row| cell(row, column)).max().unwrap_or_default();
    let widths: Vec<_> = (0..columns).map(width).collect();
    for (row, number) in shown.iter().zip(0..) {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        let style = if number == 0 { HEADER } else { Style::new() };
        let _ = writeln!(text, "{style}{}{style:#}", line.trim_end());
    }
    if shown.len() < rows.len() {
        let rest = rows.len() - shown.len();
        let _ = writeln!(text, "… and {rest} more {what}; -o json has them all");
    }
}
