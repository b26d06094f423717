//! Tables and fields of text for people, with styles that a terminal shows.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::mem;

use anstyle::{AnsiColor, Style};
use unicode_width::UnicodeWidthStr;

use crate::printable::{Form, printable};
use crate::words::number;

/// Names of columns that several tables have.
pub mod columns {
    /// The time since the last sign of a worker.
    pub const HEARD: &str = "LAST HEARD";
    /// The name of a job.
    pub const JOB: &str = "JOB";
    /// The last end of a job by itself.
    pub const LAST_EXIT: &str = "LAST EXIT";
    /// The namespace of a Swarm.
    pub const NAMESPACE: &str = "NAMESPACE";
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
    /// The name of a Swarm.
    pub const SWARM: &str = "SWARM";
    /// The title of a job.
    pub const TITLE: &str = "TITLE";
    /// The name of a worker.
    pub const WORKER: &str = "WORKER";
}

/// Maximum number of lines of wrapped words.
pub const WRAPPED_MAX: usize = 8;

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
fn line(row: &[String], heads: &[String], widths: &[usize]) -> String {
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
    let Some((heads, rows)) = rows.split_first() else { return };
    text.push('\n');
    if !title.is_empty() {
        let _ = writeln!(text, "{HEADER}{title} ({}){HEADER:#}", rows.len());
    }
    let mut table = Table::new(heads.clone(), &[], usize::MAX);
    rows.iter().take(ROWS_MAX).for_each(|row| table.put(text, row.clone()));
    table.end(text);
    if let Some(rest) = rows.len().checked_sub(ROWS_MAX).filter(|rest| 0 < *rest) {
        let _ = writeln!(text, "… and {rest} more {what}; -o json has them all");
    }
}

/// Makes a table of all rows. The first row is its header. A column that is empty in all other rows
/// is left out. Control characters are escaped.
#[must_use]
pub fn whole_table(rows: Vec<Vec<String>>) -> String {
    let mut rows = rows.into_iter();
    let (mut table, mut text) = (Table::whole(rows.next().unwrap_or_default()), String::new());
    rows.for_each(|row| table.put(&mut text, row));
    table.end(&mut text);
    text
}

/// A table whose columns fit its first rows, so that a long one needs little memory. Control
/// characters are escaped.
#[derive(Debug)]
pub struct Table {
    heads: Vec<String>,
    /// The columns that are left out if none of the first rows has a value there.
    optional: Vec<String>,
    /// Number of rows that determine the widths.
    measured: usize,
    first: Vec<Vec<String>>,
    widths: Option<Vec<usize>>,
}

impl Table {
    /// Begins a table with these columns, whose widths the first `measured` rows determine.
    #[must_use]
    pub fn new(heads: Vec<String>, optional: &[&str], measured: usize) -> Self {
        let optional = optional.iter().map(|head| (*head).to_owned()).collect();
        Self { heads, optional, measured, first: Vec::new(), widths: None }
    }

    /// Begins a table that all of its rows determine, without the columns that are empty in all of them.
    #[must_use]
    pub fn whole(heads: Vec<String>) -> Self {
        let optional = heads.clone();
        Self { heads, optional, measured: usize::MAX, first: Vec::new(), widths: None }
    }

    /// Adds a row, whose line is appended now or later.
    pub fn put(&mut self, text: &mut String, mut row: Vec<String>) {
        row.truncate(self.heads.len());
        for cell in &mut row {
            if let Cow::Owned(escaped) = printable(cell, Form::Line) {
                *cell = escaped;
            }
        }
        if self.widths.is_none() && self.first.len() < self.measured {
            self.first.push(row);
            return;
        }
        self.measure(text);
        self.add(text, &row);
    }

    /// Appends the rows that are not appended yet.
    pub fn end(&mut self, text: &mut String) {
        self.measure(text);
    }

    /// Determines the widths, and appends the header and the first rows.
    fn measure(&mut self, text: &mut String) {
        if self.widths.is_some() {
            return;
        }
        let first = mem::take(&mut self.first);
        let width = |(column, head): (usize, &String)| {
            let cells = || first.iter().map(|row| row.get(column).map_or("", String::as_str));
            let is_empty = !first.is_empty() && cells().all(str::is_empty);
            if is_empty && self.optional.contains(head) {
                return 0;
            }
            width_of(cells().chain([head.as_str()]).map(columns_of))
        };
        self.widths = Some(self.heads.iter().enumerate().map(width).collect());
        self.add(text, &self.heads);
        for row in &first {
            self.add(text, row);
        }
    }

    fn add(&self, text: &mut String, row: &[String]) {
        let widths = self.widths.as_deref().unwrap_or_default();
        let _ = writeln!(text, "{}", line(row, &self.heads, widths));
    }
}

/// Returns the style of a word about a state.
fn style_of(word: &str) -> Style {
    let found = WORDS.iter().find(|(words, _)| words.contains(&word));
    found.map_or_else(Style::new, |(_, color)| color.on_default())
}

/// Wraps words into at most [`WRAPPED_MAX`] lines of `columns` characters. They begin at column
/// `indent`, and the last one counts the words that are left out.
#[must_use]
pub fn wrapped(words: &[String], indent: usize, columns: usize) -> String {
    let mut lines = vec![String::new()];
    for (shown, word) in words.iter().enumerate() {
        let line = lines.last().map_or(0, |line| line.chars().count());
        if line == 0 || indent + line + 1 + word.chars().count() <= columns {
            let gap = if line == 0 { "" } else { " " };
            let _ = lines.last_mut().map(|last| write!(last, "{gap}{word}"));
        } else if lines.len() < WRAPPED_MAX {
            lines.push(word.clone());
        } else {
            lines.push(format!("… and {} more", number(words.len() - shown)));
            break;
        }
    }
    lines.join(&format!("\n{}", " ".repeat(indent)))
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
