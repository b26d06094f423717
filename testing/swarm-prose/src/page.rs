//! A Markdown page with the texts of one file: Vale reads the page, and its alerts lead to the lines of
//! the file.

use std::path::Path;

/// A line of a page, and the lines of the file that it was joined from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    text: String,
    /// The number of characters before each part, with the part's line in the file.
    parts: Vec<(usize, usize)>,
}

impl Line {
    pub(crate) fn new(source: usize, text: &str) -> Self {
        Self { text: text.to_owned(), parts: vec![(0, source)] }
    }

    /// Appends a part without a space.
    pub(crate) fn push(&mut self, source: usize, text: &str) {
        if self.parts.last().is_none_or(|(_, last)| *last != source) {
            self.parts.push((self.text.chars().count(), source));
        }
        self.text.push_str(text);
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The line of the file that the character at `column` came from, where 1 is the first column.
    fn source(&self, column: usize) -> Option<usize> {
        let before = self.parts.iter().take_while(|(start, _)| *start < column.max(1));
        before.last().map(|(_, source)| *source)
    }
}

/// The page of one file.
#[derive(Debug)]
pub(crate) struct Page {
    /// The path of the file from the top of the repository.
    pub file: String,
    lines: Vec<Line>,
}

impl Page {
    /// A page of several blocks, with an empty line between two of them.
    pub(crate) fn of_blocks(file: &str, blocks: Vec<Vec<Line>>) -> Self {
        let mut lines = Vec::new();
        for block in blocks {
            lines.extend(block);
            lines.push(Line::default());
        }
        Self { file: file.to_owned(), lines }
    }

    /// A page that is the file itself.
    pub(crate) fn of_markdown(file: &str, markdown: &str) -> Self {
        let lines = markdown.lines().zip(1..).map(|(text, source)| Line::new(source, text));
        Self { file: file.to_owned(), lines: lines.collect() }
    }

    /// The path of the page below the folder that Vale reads.
    pub(crate) fn path(&self) -> String {
        let is_markdown = Path::new(&self.file).extension().is_some_and(|it| it == "md");
        if is_markdown { self.file.clone() } else { format!("{}.md", self.file) }
    }

    pub(crate) fn markdown(&self) -> String {
        self.lines.iter().flat_map(|line| [line.text.as_str(), "\n"]).collect()
    }

    /// The line of the file for a position in the page. Both count from 1.
    pub(crate) fn source(&self, line: usize, column: usize) -> usize {
        let found = line.checked_sub(1).and_then(|index| self.lines.get(index)?.source(column));
        found.unwrap_or(line)
    }

    /// Whether the page has a text that Vale can judge.
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.text.trim().is_empty())
    }
}

/// Joins the lines of a comment where Markdown would: a rule then sees a sentence as a whole, however
/// the comment is wrapped. Lists, tables, headings and code keep their lines.
pub(crate) fn joined(comment: &[(usize, &str)]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut previous = Shape::Apart;
    let mut fenced = false;
    let mut in_list = false;
    for (source, text) in comment {
        let is_fence = text.trim_start().starts_with("```");
        let shape = if fenced || is_fence { Shape::Apart } else { shape(text) };
        fenced ^= is_fence;
        let is_indented = text.starts_with(INDENT);
        in_list = shape == Shape::Item || (in_list && (is_indented || text.is_empty()));
        match lines.last_mut() {
            _ if shape == Shape::Prose && is_indented && !in_list => {
                lines.push(Line::default());
                previous = Shape::Apart;
                continue;
            }
            Some(line) if shape == Shape::Prose && previous != Shape::Apart => {
                line.push(*source, &format!(" {}", text.trim()));
            }
            _ => lines.push(Line::new(*source, text.trim_end())),
        }
        previous = shape;
    }
    lines
}

/// The indentation of a command or another example, which is not prose.
pub(crate) const INDENT: &str = "  ";

/// The part that a line plays in Markdown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// A line that continues the previous one, if that is prose or an item.
    Prose,
    /// The first line of an item of a list.
    Item,
    /// A heading, a row of a table, code or an empty line: nothing continues it.
    Apart,
}

fn shape(text: &str) -> Shape {
    let trimmed = text.trim();
    if trimmed.is_empty() || trimmed.starts_with(['#', '|', '>']) {
        return Shape::Apart;
    }
    let after_digits = trimmed.trim_start_matches(|character: char| character.is_ascii_digit());
    let is_numbered = after_digits.len() < trimmed.len() && after_digits.starts_with(". ");
    let is_item = trimmed.starts_with("- ") || trimmed.starts_with("* ") || is_numbered;
    if is_item { Shape::Item } else { Shape::Prose }
}

#[cfg(test)]
mod tests {
    use super::{Line, Page, joined};

    fn texts(comment: &[&str]) -> Vec<String> {
        let comment: Vec<_> = (1..).zip(comment.iter().copied()).collect();
        joined(&comment).iter().map(|line| line.text().to_owned()).collect()
    }

    #[test]
    fn a_wrapped_sentence_becomes_one_line() {
        assert_eq!(texts(&["One and", "two.", "", "Three."]), ["One and two.", "", "Three."]);
    }

    #[test]
    fn items_tables_headings_and_code_keep_their_lines() {
        let items = ["Intro:", "- one", "  and more", "- two", "1. three"];
        assert_eq!(texts(&items), ["Intro:", "- one and more", "- two", "1. three"]);
        let apart = ["# Title", "text", "| a |", "| b |", "```", "let x;", "let y;", "```", "end"];
        assert_eq!(texts(&apart), apart);
    }

    #[test]
    fn an_indented_command_is_left_out() {
        let comment =
            ["Apply it:", "  kubectl apply", "and", "wait.", "- one", "  more", "", "  end"];
        let expected = ["Apply it:", "", "and wait.", "- one more", "", "  end"];
        assert_eq!(texts(&comment), expected);
    }

    #[test]
    fn an_alert_leads_to_the_line_that_its_words_are_in() {
        let lines = joined(&[(7, "One \u{e9}"), (8, "two"), (9, "three")]);
        let page = Page::of_blocks("a.rs", vec![vec![Line::new(3, "x")], lines]);
        assert_eq!(page.markdown(), "x\n\nOne \u{e9} two three\n\n");
        assert_eq!(page.source(1, 1), 3);
        let columns = [(1, 7), (5, 7), (7, 8), (9, 8), (11, 9), (99, 9)];
        for (column, source) in columns {
            assert_eq!(page.source(3, column), source, "column {column}");
        }
    }

    #[test]
    fn the_page_of_a_markdown_file_is_the_file() {
        let page = Page::of_markdown("docs/a.md", "# A\n\ntext\n");
        assert_eq!(
            (page.path().as_str(), page.markdown().as_str()),
            ("docs/a.md", "# A\n\ntext\n")
        );
        assert_eq!(page.source(3, 2), 3);
    }
}
