//! Draws lines, and fits texts into them.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::super::text::wrapped;
use super::palette::{FAINT, STRONG};

/// Splits an area into its upper `height` rows, or all if it has fewer, and the rest.
pub(super) fn cut(area: Rect, height: u16) -> (Rect, Rect) {
    let height = height.min(area.height);
    let rest = Rect { y: area.y + height, height: area.height - height, ..area };
    (Rect { height, ..area }, rest)
}

/// Draws a line in a row of an area, if the area has that row.
pub(super) fn put(frame: &mut Frame<'_>, area: Rect, row: u16, line: &Line<'_>) {
    if row < area.height && 0 < area.width {
        frame.buffer_mut().set_line(area.x, area.y + row, line, area.width);
    }
}

/// Draws the first row of a part: its title and a rule, which is heavy if the part has the focus.
pub(super) fn put_title(frame: &mut Frame<'_>, area: Rect, title: &str, more: &str, focus: bool) {
    let more = if more.is_empty() { String::new() } else { format!(" {more}") };
    let used = 4 + title.chars().count() + more.chars().count();
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

/// Splits a text into pieces of at most `width` characters.
pub(super) fn pieces(text: &str, width: usize) -> Vec<String> {
    let signs: Vec<char> = text.chars().collect();
    signs.chunks(width.max(1)).map(|piece| piece.iter().collect()).collect()
}

/// Returns the beginning of a sentence, with a mark if it is cut.
pub(super) fn clipped(sentence: &str, width: usize) -> String {
    if sentence.chars().count() <= width {
        return sentence.to_owned();
    }
    let kept = sentence.chars().take(width.saturating_sub(1));
    kept.chain(['…'].into_iter().take(width)).collect()
}

/// Shortens a long name in its middle, since names of a pool differ at the end.
pub(super) fn fitted(name: &str, width: usize) -> String {
    let signs: Vec<char> = name.chars().collect();
    if signs.len() <= width {
        return name.to_owned();
    }
    let kept = width.saturating_sub(1);
    let (start, end) = (&signs[..kept / 2], &signs[signs.len() - (kept - kept / 2)..]);
    start.iter().chain(['…'].iter().take(width)).chain(end).collect()
}
