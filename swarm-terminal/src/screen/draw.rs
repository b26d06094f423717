//! Draws the screen from the model, the time, and the size of the terminal.

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use swarm_adapters_host::clock::unix_s;
use swarm_view::age::age;
use swarm_view::words::counted;

use super::lines::{cut, paragraph, put, put_title};
use super::model::{Focus, Model, Page, Tone, Which};
use super::palette::{FAINT, Palette, STRONG};
use super::questions::Note;
use super::{head, help, job, jobs, rows};
use crate::scene::Ends;

/// Minimum width for jobs next to the workers instead of below them.
const WIDE: u16 = 120;

/// Width of the ages of events.
const AGE: usize = 6;

/// Areas of the screen's parts. A part without room has no height.
struct Parts {
    head: Rect,
    workers: Rect,
    jobs: Rect,
    events: Rect,
    foot: Rect,
}

/// Draws the whole screen at any size. O(workers).
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, now: Instant, palette: Palette) {
    let parts = Parts::of(frame.area(), model);
    head::draw(frame, parts.head, model, palette);
    put(frame, parts.foot, 0, &foot(model, palette));
    let rest = Rect {
        y: parts.head.bottom(),
        height: parts.foot.y.saturating_sub(parts.head.bottom()),
        ..frame.area()
    };
    match &model.page {
        Page::Pool => {
            rows::draw(frame, parts.workers, model, palette);
            jobs::draw(frame, parts.jobs, model, palette);
            draw_events(frame, parts.events, model, now, palette);
        }
        Page::Help => help::draw(frame, rest, model.ends),
        Page::Job(page) => job::draw(frame, rest, model, page, palette),
    }
}

impl Parts {
    /// Divides the screen. The result does not depend on the selected worker, so the parts stay in
    /// place when the selection moves.
    fn of(area: Rect, model: &Model) -> Self {
        let head = head::height(model, area.width).min((area.height / 2).max(2));
        let (head, rest) = cut(area, if area.height < 5 { 1 } else { head });
        let (body, foot) = cut(rest, rest.height.saturating_sub(u16::from(3 < area.height)));
        let events = if body.height < 6 { 0 } else { (body.height / 3).clamp(3, 14) };
        let room = body.height - events;
        let wanted = rows_of(model.scene.status.workers.len());
        let jobs = match model.jobs.which {
            Which::OfWorker => rows_of(model.scene.most),
            Which::Named(_) | Which::Unassigned | Which::Failing => {
                rows_of(model.jobs.places.len().max(model.scene.most))
            }
        };
        if WIDE <= area.width {
            // A job has more to show than a worker.
            let width = area.width / 5 * 2;
            let (top, events) = cut(body, room.min(wanted.max(jobs)));
            let left = Rect { width: width - 2, ..top };
            let right = Rect { x: top.x + width, width: top.width - width, ..top };
            return Self { head, workers: left, jobs: right, events, foot };
        }
        let height = match wanted {
            all if all.saturating_add(3) <= room => all.min(room - jobs.min(room / 2)),
            // If there is some room, a few jobs get it instead of more workers.
            _ if 12 <= room => wanted.min(room - jobs.min(5)),
            _ => wanted.min(room),
        };
        let (workers, rest) = cut(body, height);
        let (jobs, events) = cut(rest, (room - height).min(jobs));
        Self { head, workers, jobs, events, foot }
    }
}

/// Returns the number of rows that a list needs, with its title.
fn rows_of(entries: usize) -> u16 {
    u16::try_from(entries).unwrap_or(u16::MAX).saturating_add(1)
}

fn draw_events(frame: &mut Frame<'_>, area: Rect, model: &Model, now: Instant, palette: Palette) {
    let which = match model.events_above {
        0 => "newest first".to_owned(),
        above => format!("from {} of {} on", above + 1, model.events.len()),
    };
    put_title(frame, area, "events", &which, model.focus == Focus::Events);
    let width = usize::from(area.width).saturating_sub(AGE + 4);
    let mut row = 1;
    for entry in model.events.iter().skip(model.events_above) {
        if area.height <= row {
            break;
        }
        let style = match entry.tone {
            Tone::Plain => Style::new(),
            Tone::Good => palette.good(),
            Tone::Bad => palette.bad(),
            Tone::Move => palette.moved(),
        };
        let mut age = age(now.saturating_duration_since(entry.at));
        for text in paragraph(&entry.text, width) {
            let line = Line::from(vec![
                Span::styled(format!("{age:>AGE$}  "), FAINT),
                Span::styled(text, style),
            ]);
            put(frame, area, row, &line);
            age.clear();
            row += 1;
        }
    }
}

/// Draws the last row: the keys, or the typed text.
fn foot(model: &Model, palette: Palette) -> Line<'static> {
    if model.is_ending {
        let workers = || format!("ending {}", counted(model.scene.status.workers.len(), "worker"));
        let ending = model.scene.status.ending.as_ref();
        let what = ending.map_or_else(workers, |ending| ending.sentence(unix_s()));
        let keys = if model.ends == Ends::Pool { "Ctrl-C kills them" } else { "q detaches" };
        return Line::styled(format!(" {what}; {keys}"), palette.busy());
    }
    if let Some(question) = &model.asks {
        return Line::styled(
            format!(" {}", question.sentence(&model.scene.status)),
            palette.busy(),
        );
    }
    if let Some(Note { text, is_problem }) = &model.note {
        let style = if *is_problem { palette.bad() } else { palette.good() };
        return Line::styled(format!(" {text}"), style);
    }
    let key = |key: &'static str| Span::styled(key, STRONG);
    let says = |text: &'static str| Span::styled(text, FAINT);
    let typed = |text: &str| Span::styled(format!(" /{text}▏"), STRONG);
    let spans = match (&model.page, &model.jobs.which) {
        (Page::Help, _) => vec![key(" any key"), says(" back")],
        (Page::Job(page), _) if model.is_typing => {
            vec![typed(&page.search), says("  "), key("Enter"), says(" done")]
        }
        (Page::Job(_), _) if model.ends == Ends::Reader => vec![key(" Esc"), says(" back")],
        (Page::Job(_), _) => vec![
            key(" Esc"),
            says(" back   "),
            key("↑ ↓"),
            says(" scroll   "),
            key("/"),
            says(" search   "),
            key("n N"),
            says(" older, newer   "),
            key("c"),
            says(" copy   "),
            key("r s t"),
            says(" steer"),
        ],
        (Page::Pool, Which::Named(text)) if model.is_typing => {
            vec![
                typed(text),
                says("  "),
                key("Enter"),
                says(" open   "),
                key("Esc"),
                says(" clear"),
            ]
        }
        (Page::Pool, _) => {
            let mut spans = vec![
                key(" q"),
                says(match model.ends {
                    Ends::Pool => " end   ",
                    Ends::View => " detach   ",
                    Ends::Reader => " leave   ",
                }),
                key("?"),
                says(" keys   "),
                key("Tab ↑ ↓ Enter"),
                says("   "),
                key("/"),
                says(" find   "),
            ];
            let edit = |file: &String| format!("edit {file} and see what moves");
            let edit = model.paths.file.as_ref().map(edit).unwrap_or_default();
            spans.push(Span::styled(edit, FAINT));
            spans
        }
    };
    Line::from(spans)
}
