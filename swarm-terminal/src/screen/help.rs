//! The page of keys.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::lines::{put, put_title};
use super::palette::STRONG;
use crate::scene::Ends;

/// The keys that end the view of an operator, of a pool that runs elsewhere, and of a pool that is
/// only read.
const OF_OPERATOR: [(&str, &str); 2] = [
    ("q", "end the pool: workers and jobs; asks first if jobs run"),
    ("Ctrl-C", "end the pool; again: kill what has not ended yet"),
];
const OF_VIEW: [(&str, &str); 2] =
    [("q", "detach: the pool goes on, and `swarm stop` ends it"), ("Ctrl-C", "the same")];
const OF_READER: [(&str, &str); 2] = [("q", "leave: the pool goes on"), ("Ctrl-C", "the same")];

/// Keys of every view, and their effects.
const KEYS: [(&str, &str); 9] = [
    ("Tab", "go to the next part: workers, jobs, events"),
    ("↑ ↓, PgUp PgDn", "move in that part; Home and End go to its ends"),
    ("Enter", "open: the jobs of a worker, the page of a job"),
    ("/", "find jobs of all workers by a part of their names"),
    ("u", "list the jobs that no worker runs, with the reasons"),
    ("e", "list the jobs that fail, the worst first, and how they end"),
    ("Esc", "go back, to the jobs of the selected worker"),
    ("Ctrl-Z", "suspend; workers and jobs go on, `fg` comes back"),
    ("Ctrl-L", "draw again"),
];

/// Keys of views that act on jobs and have their logs.
const OF_JOBS: [(&str, &str); 6] = [
    ("r, s, t", "restart the job; suspend or resume it; retry it once it has failed"),
    ("", ""),
    ("/", "on the page of a job: search in its log"),
    ("n, N", "the next older line with that text, the next newer"),
    ("c", "show the log as plain text, to select, copy and scroll"),
    ("Esc, q", "back to the pool"),
];

/// Draws the keys that fit.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, ends: Ends) {
    put_title(frame, area, "keys", "", true);
    let (first, last) = match ends {
        Ends::Pool => (OF_OPERATOR, &OF_JOBS[..]),
        Ends::View => (OF_VIEW, &OF_JOBS[..]),
        Ends::Reader => (OF_READER, &[][..]),
    };
    let last = last.iter().copied();
    for (row, (key, effect)) in (1..).zip(first.into_iter().chain(KEYS).chain(last)) {
        let line = Line::from(vec![Span::styled(format!(" {key:16}"), STRONG), Span::raw(effect)]);
        put(frame, area, row, &line);
    }
}
