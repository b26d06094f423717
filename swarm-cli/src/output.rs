//! The output of all commands: formats, tables and messages.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::OnceLock;

use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use swarm_adapters_host::printable::{Form, printable};

/// The style of titles and of the names of columns, which only a terminal shows.
const HEADER: Style = Style::new().bold();

/// The most rows of a table; the JSON document has all of them.
const ROWS_MAX: usize = 100;

/// The name of the running program, which begins each of its messages.
static PROGRAM: OnceLock<&'static str> = OnceLock::new();

/// The format of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Text and tables for people
    #[default]
    #[value(alias = "table")]
    Text,
    /// One JSON document, in a stable format
    Json,
}

/// The format of manifests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Manifests {
    /// YAML documents
    #[default]
    Yaml,
    /// One JSON document
    Json,
}

/// Sets the name that begins each message. The first name counts.
pub(crate) fn name_program(name: &'static str) {
    let _ = PROGRAM.set(name);
}

/// Prints a JSON document, in which a terminal finds nothing to obey.
pub(crate) fn print_json(document: &str) -> io::Result<()> {
    print(&printable(document, Form::Json))
}

/// Prints a document, without its styles where there are no colours. The caller has escaped what comes from
/// elsewhere. It is no error if the reader closes the pipe, as `head` does.
pub(crate) fn print(document: &str) -> io::Result<()> {
    let mut stdout = anstream::stdout().lock();
    match stdout.write_all(document.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Prints a document, and succeeds.
pub(crate) fn answer(document: &str) -> anyhow::Result<ExitCode> {
    print(document)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a message other than the answer on standard error, after the program's name in red where there are
/// colours. Control characters, which may come from a file, are escaped.
pub(crate) fn complain(sentence: &str) {
    let red = AnsiColor::Red.on_default();
    let program = PROGRAM.get().unwrap_or(&"swarm");
    let line = printable(sentence, Form::Line);
    // If standard error is closed, the message is lost.
    let _ = writeln!(anstream::stderr(), "{red}{program}:{red:#} {line}");
}

/// A row of a table.
pub(crate) fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).into()
}

/// Appends a table. The first row is its header; rows beyond the limit are only counted. Control
/// characters, which may come from a file, are escaped.
pub(crate) fn add_table(text: &mut String, title: &str, rows: &[Vec<String>], what: &str) {
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
