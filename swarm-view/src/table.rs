//! Tables and fields of text for people, with styles that a terminal shows.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use unicode_width::UnicodeWidthStr;

use crate::printable::{Form, printable};

/// Names of columns that several tables have.
pub mod columns {
    /// The time since the last sign of a worker.
    pub const HEARD: &str = "LAST HEARD";
    /// The name of a job.
    pub const JOB: &str = "JOB";
    /// The time since the oldest request to a worker to stop a job that it has not acknowledged.
    pub const OLDEST_RELEASE: &str = "OLDEST RELEASE";
    /// The phase of a job: the thing that its worker does with it.
    pub const PHASE: &str = "PHASE";
    /// The name of a pool.
    pub const POOL: &str = "POOL";
    /// The reason of a move, or of a job without a worker.
    pub const REASON: &str = "REASON";
    /// The state of a job, a worker or a replica.
    pub const STATE: &str = "STATE";
    /// The title of a job.
    pub const TITLE: &str = "TITLE";
    /// The name of a worker.
    pub const WORKER: &str = "WORKER";
}

/// The holder of a job that every worker runs, in tables. No worker can have this name.
pub const EVERY_WORKER: &str = "(every worker)";

/// Style of titles and column names on a terminal.
const HEADER: Style = Style::new().bold();

/// Words of columns with a phase or a state: good, soon good, and bad.
const WORDS: [(&[&str], AnsiColor); 3] = [
    (&["Settled", "done", "ok", "ready", "running"], AnsiColor::Green),
    (
        &[
            "draining",
            "leaving",
            "published",
            "releasing",
            "restarting",
            "starting",
            "stopping",
            "waiting",
        ],
        AnsiColor::Yellow,
    ),
    (
        &[
            "WRONG",
            "away",
            "ended",
            "failed",
            "failing",
            "quarantined",
            "silent",
            "stalled",
            "unassigned",
            "unknown",
        ],
        AnsiColor::Red,
    ),
];

/// Maximum number of rows of a table; the JSON document has all rows.
const ROWS_MAX: usize = 100;

/// Width of the names before the values of an answer about one thing.
const FIELD_COLUMNS: usize = 12;

/// Name before the phase of a job in an answer about one thing.
const PHASE: &str = "Phase:";

/// Maximum width of a column. A longer cell shifts the rest of its own row only.
const WIDTH_MAX: usize = 60;

/// Makes a row of a table.
#[must_use]
pub fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).into()
}

/// Returns the number of columns that a text takes on a terminal.
#[must_use]
pub fn columns_of(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// Returns the width of a column with cells of these widths.
#[must_use]
pub fn width_of(cells: impl Iterator<Item = usize>) -> usize {
    cells.filter(|width| *width <= WIDTH_MAX).max().unwrap_or_default()
}

/// Returns a text with blanks at its end, so that it takes this number of columns.
#[must_use]
pub fn padded(text: &str, columns: usize) -> String {
    styled(text, Style::new(), columns)
}

/// Does the same for a text in a style.
fn styled(text: &str, style: Style, columns: usize) -> String {
    format!("{style}{text}{style:#}{}", " ".repeat(columns.saturating_sub(columns_of(text))))
}

/// Returns a word about a state in its colour, with blanks at its end.
#[must_use]
pub fn state(word: &str, columns: usize) -> String {
    styled(word, style_of(word), columns)
}

/// Returns a sentence whose first word may be about a state, which has its colour then.
#[must_use]
pub fn states(sentence: &str) -> String {
    let end = sentence.find([',', ';', ' ', ':']).unwrap_or(sentence.len());
    let (word, rest) = sentence.split_at(end);
    format!("{}{rest}", state(word, 0))
}

/// Returns a title in the style of titles.
#[must_use]
pub fn title(text: &str) -> String {
    styled(text, HEADER, 0)
}

/// Appends a line with a name and its value. Control characters of the value are escaped. A phase has
/// its colour.
pub fn add_field(text: &mut String, name: &str, value: &str) {
    let value = printable(value, Form::Line);
    let value = if name == PHASE { states(&value) } else { value.into_owned() };
    let _ = writeln!(text, "{}{value}", styled(name, HEADER, FIELD_COLUMNS));
}

/// Makes a line of a table of cells without control characters. The line with the names of the
/// columns is its own `heads`. A column that has no width is left out.
#[must_use]
pub fn line(row: &[String], heads: &[String], widths: &[usize]) -> String {
    let last = row.iter().rposition(|cell| !cell.is_empty()).map_or(0, |at| at + 1);
    let has_words = |head: &str| matches!(head, columns::PHASE | columns::STATE | "STATUS");
    let cells = row.iter().zip(widths).zip(heads).take(last).zip(1..);
    let cells = cells.filter(|(((_, width), _), _)| 0 < **width);
    let cells = cells.map(|(((cell, width), head), at)| {
        let style = if std::ptr::eq(row, heads) {
            HEADER
        } else if has_words(head) {
            // Notes in brackets may follow the word.
            style_of(cell.split(" (").next().unwrap_or_default())
        } else {
            Style::new()
        };
        styled(cell, style, if at == last { 0 } else { *width })
    });
    cells.collect::<Vec<_>>().join("  ")
}

/// Appends a table. The first row is its header; rows beyond the limit are only counted. Control
/// characters, which may come from a file, are escaped.
pub fn add_table(text: &mut String, title: &str, rows: &[Vec<String>], what: &str) {
    text.push('\n');
    add_rows(text, title, rows, what, ROWS_MAX);
}

/// Makes a table of all rows. The first row is its header. A column that is empty in all other rows
/// is left out. Control characters are escaped.
#[must_use]
pub fn whole_table(mut rows: Vec<Vec<String>>) -> String {
    for column in (0..rows.first().map_or(0, Vec::len)).rev() {
        let is_empty = |row: &Vec<String>| row.get(column).is_none_or(String::is_empty);
        if 1 < rows.len() && rows.iter().skip(1).all(is_empty) {
            rows.iter_mut()
                .filter(|row| column < row.len())
                .for_each(|row| drop(row.remove(column)));
        }
    }
    let mut text = String::new();
    add_rows(&mut text, "", &rows, "", usize::MAX);
    text
}

/// Returns the style of a word about a state.
fn style_of(word: &str) -> Style {
    let found = WORDS.iter().find(|(words, _)| words.contains(&word));
    found.map_or_else(Style::new, |(_, color)| color.on_default())
}

fn add_rows(text: &mut String, title: &str, rows: &[Vec<String>], what: &str, max: usize) {
    if !title.is_empty() {
        let _ = writeln!(text, "{HEADER}{title} ({}){HEADER:#}", rows.len() - 1);
    }
    let shown = rows.iter().take(max.saturating_add(1));
    let escaped = |cell: &String| printable(cell, Form::Line).into_owned();
    let shown: Vec<Vec<_>> = shown.map(|row| row.iter().map(escaped).collect()).collect();
    let columns = shown.first().map_or(0, Vec::len);
    let cell = |row: &[String], column: usize| row.get(column).map_or(0, |it| columns_of(it));
    let width = |column| width_of(shown.iter().map(|row| cell(row, column)));
    let widths: Vec<_> = (0..columns).map(width).collect();
    let heads = shown.first().map(Vec::as_slice).unwrap_or_default();
    for row in &shown {
        let _ = writeln!(text, "{}", line(row, heads, &widths));
    }
    if shown.len() < rows.len() {
        let rest = rows.len() - shown.len();
        let _ = writeln!(text, "… and {rest} more {what}; -o json has them all");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_has_a_color_and_a_name_has_none() {
        let rows = vec![row(["JOB", "PHASE", "INFO"]), row(["running", "running", ""])];
        let red = AnsiColor::Red.on_default();
        let table = whole_table([rows, vec![row(["b", "failing", "3"])]].concat());
        let green = AnsiColor::Green.on_default();
        let expected = format!(
            "{HEADER}JOB{HEADER:#}      {HEADER}PHASE{HEADER:#}    {HEADER}INFO{HEADER:#}\n\
             running  {green}running{green:#}\n\
             b        {red}failing{red:#}  3\n"
        );
        assert_eq!(table, expected);
    }

    #[test]
    fn columns_are_as_wide_as_their_texts_on_a_terminal() {
        let rows = [row(["TITLE", "STATE"]), row(["前门摄像头", "up"]), row(["Tür", "up"])];
        let mut text = String::new();
        add_table(&mut text, "", &rows, "jobs");
        let lines: Vec<_> = text.lines().skip(2).collect();
        assert_eq!(lines, ["前门摄像头  up", "Tür         up"]);
    }

    #[test]
    fn a_very_long_cell_shifts_its_own_row_only() {
        let long = "x".repeat(253);
        let rows = [row(["JOB", "STATE"]), row(["cam-1", "up"]), row([&long, "up"])];
        let expected = format!("JOB    STATE\ncam-1  up\n{long}  up\n");
        assert_eq!(anstream::adapter::strip_str(&whole_table(rows.into())).to_string(), expected);
    }
}
