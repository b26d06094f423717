//! Draws lines, and fits texts into them.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use swarm_view::printable::{Form, printable};
use swarm_view::table::{columns_of, wrapped};
use unicode_width::UnicodeWidthChar as _;

use super::palette::{FAINT, STRONG};

/// Splits an area into its upper `height` rows, or all if it has fewer, and the rest.
pub(super) fn cut(area: Rect, height: u16) -> (Rect, Rect) {
    let height = height.min(area.height);
    let rest = Rect { y: area.y + height, height: area.height - height, ..area };
    (Rect { height, ..area }, rest)
}

/// Draws a line in a row of an area, if the area has that row. Its text may come from anywhere.
pub(super) fn put(frame: &mut Frame<'_>, area: Rect, row: u16, line: &Line<'_>) {
    if row < area.height && 0 < area.width {
        let plain = |span: &Span<'_>| {
            Span::styled(printable(&span.content, Form::Line).into_owned(), span.style)
        };
        let plain = Line { spans: line.spans.iter().map(plain).collect(), ..line.clone() };
        frame.buffer_mut().set_line(area.x, area.y + row, &plain, area.width);
    }
}

/// Draws the first row of a part: its title and a rule, which is heavy if the part has the focus.
pub(super) fn put_title(frame: &mut Frame<'_>, area: Rect, title: &str, more: &str, focus: bool) {
    let more = if more.is_empty() { String::new() } else { format!(" {more}") };
    let used = 4 + columns_of(title) + columns_of(&more);
    let (sign, style) = if focus { ("━", STRONG) } else { ("─", FAINT) };
    let rule = sign.repeat(usize::from(area.width).saturating_sub(used));
    let line = Line::from(vec![
        Span::styled(format!("{sign}{sign} "), style),
        Span::styled(title.to_owned(), STRONG),
        Span::styled(more, FAINT),
        Span::styled(format!(" {rule}"), style),
    ]);
    put(frame, area, 0, &line);
}

/// Returns the first visible entry of a list, so that the entry at `at` is near the middle, and a
/// clause about the visible range.
pub(super) fn window(at: usize, len: usize, rows: usize) -> (usize, String) {
    let first = at.saturating_sub(rows / 2).min(len.saturating_sub(rows));
    let end = len.min(first + rows);
    let which = if end - first < len && 0 < rows {
        format!("{}–{end} of {len}", first + 1)
    } else {
        len.to_string()
    };
    (first, which)
}

/// Wraps a text into lines of at most `width` characters.
pub(super) fn paragraph(text: &str, width: usize) -> Vec<String> {
    wrapped(&words(text, width), 0, width).lines().map(str::to_owned).collect()
}

/// Splits a text into words, and breaks words longer than `width` characters.
pub(super) fn words(text: &str, width: usize) -> Vec<String> {
    text.split_whitespace().flat_map(|word| pieces(word, width)).collect()
}

/// Splits a text into pieces of at most `width` columns.
pub(super) fn pieces(text: &str, width: usize) -> Vec<String> {
    let (mut pieces, mut used) = (Vec::<String>::new(), 0);
    for sign in text.chars() {
        let columns = sign.width().unwrap_or_default();
        if let Some(piece) = pieces.last_mut().filter(|_| used + columns <= width) {
            piece.push(sign);
        } else {
            pieces.push(sign.to_string());
            used = 0;
        }
        used += columns;
    }
    pieces
}

/// Shortens a long name in its middle, since names of a pool differ at the end.
pub(super) fn fitted(name: &str, width: usize) -> String {
    if columns_of(name) <= width {
        return name.to_owned();
    }
    let kept = width.saturating_sub(1);
    let start = fitting(name.chars(), kept / 2);
    let end = fitting(name.chars().rev(), kept - kept / 2);
    start.iter().chain(['…'].iter().take(width)).chain(end.iter().rev()).collect()
}

/// Returns the first signs that fit into this number of columns.
fn fitting(signs: impl Iterator<Item = char>, columns: usize) -> Vec<char> {
    let mut used = 0;
    let fits = |sign: &char| {
        used += sign.width().unwrap_or_default();
        used <= columns
    };
    signs.take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_by_their_columns() {
        assert_eq!(fitted("camera-front-1", 7), "cam…t-1");
        assert_eq!(fitted("前门摄像头", 7), "前…头");
        assert_eq!(fitted("前门摄像头", 10), "前门摄像头");
        assert_eq!(pieces("前门a摄像", 4), ["前门", "a摄", "像"]);
        assert_eq!((pieces("", 4).len(), pieces("abc", 0).len()), (0, 3));
    }
}
