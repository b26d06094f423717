//! The drawing: a function of the model, the time, and how large the terminal is.

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::super::text::{age, counted, number, wrapped};
use super::model::{Model, Tone};
use super::palette::{FAINT, Palette, STRONG};
use super::{head, rows};

/// From this width on, jobs are beside the workers instead of below them.
const WIDE: u16 = 120;

/// How wide the ages in the log are.
const AGE: usize = 6;

/// The mark of a job that its worker is releasing.
const MARK: &str = " …";

/// How wide the mark and the gap after a job are.
const GAP: usize = 4;

/// The areas of the parts of the screen. A part without room has no height.
struct Parts {
    head: Rect,
    workers: Rect,
    jobs: Rect,
    log: Rect,
    foot: Rect,
}

/// Draws everything, at any size. O(jobs).
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, now: Instant, palette: Palette) {
    let parts = Parts::of(frame.area(), model);
    head::draw(frame, parts.head, model, palette);
    rows::draw(frame, parts.workers, model, now, palette);
    draw_jobs(frame, parts.jobs, model, palette);
    draw_log(frame, parts.log, model, now, palette);
    put(frame, parts.foot, 0, &foot(model, palette));
}

impl Parts {
    /// It depends on the pool and not on the selected worker, so that the parts do not move with
    /// the selection.
    fn of(area: Rect, model: &Model) -> Self {
        let head = head::height(model, area.width).min((area.height / 3).max(2));
        let (head, rest) = cut(area, if area.height < 5 { 1 } else { head });
        let (body, foot) = cut(rest, rest.height.saturating_sub(u16::from(3 < area.height)));
        let log = if body.height < 6 { 0 } else { (body.height / 3).clamp(3, 14) };
        let room = body.height - log;
        let wanted: u16 = model.snapshot.workers.len().try_into().unwrap_or(u16::MAX);
        let wanted = wanted.saturating_add(1);
        if WIDE <= area.width {
            let width = area.width / 5 * 3;
            let needed = wanted.max(jobs_height(model, area.width - width));
            let (top, log) = cut(body, room.min(needed));
            let left = Rect { width: width - 2, ..top };
            let right = Rect { x: top.x + width, width: top.width - width, ..top };
            return Self { head, workers: left, jobs: right, log, foot };
        }
        let jobs = jobs_height(model, area.width);
        let height = match wanted {
            all if all.saturating_add(3) <= room => all,
            // With some room, a few jobs are worth more than a few more workers.
            _ if 12 <= room => wanted.min(room - jobs.min(5)),
            _ => wanted.min(room),
        };
        let (workers, rest) = cut(body, height);
        let (jobs, log) = cut(rest, (room - height).min(jobs));
        Self { head, workers, jobs, log, foot }
    }
}

/// The upper `height` rows of an area, or all if it has fewer, and the rest.
fn cut(area: Rect, height: u16) -> (Rect, Rect) {
    let height = height.min(area.height);
    let rest = Rect { y: area.y + height, height: area.height - height, ..area };
    (Rect { height, ..area }, rest)
}

/// Draws one line in a row of an area, if there is room.
pub(super) fn put(frame: &mut Frame<'_>, area: Rect, row: u16, line: &Line<'_>) {
    if row < area.height && 0 < area.width {
        frame.buffer_mut().set_line(area.x, area.y + row, line, area.width);
    }
}

/// The first row of a part: its title, and a line up to the edge.
pub(super) fn put_title(frame: &mut Frame<'_>, area: Rect, title: &str, more: &str) {
    let more = if more.is_empty() { String::new() } else { format!(" {more}") };
    let used = 4 + title.chars().count() + more.chars().count();
    let rule = "─".repeat(usize::from(area.width).saturating_sub(used));
    let line = Line::from(vec![
        Span::styled("── ", FAINT),
        Span::styled(title.to_owned(), STRONG),
        Span::styled(more, FAINT),
        Span::styled(format!(" {rule}"), FAINT),
    ]);
    put(frame, area, 0, &line);
}

/// The width of a column of jobs, and how many fit.
fn columns(model: &Model, width: u16) -> (usize, usize) {
    let width = usize::from(width).saturating_sub(2);
    // The mark, and a gap. A name that is longer than the line is shortened.
    let column = (model.longest_job + GAP).min(width.max(GAP));
    (column, (width / column).max(1))
}

/// How many rows the jobs of any worker need, with the title.
fn jobs_height(model: &Model, width: u16) -> u16 {
    let (_, columns) = columns(model, width);
    u16::try_from(model.most.div_ceil(columns)).unwrap_or(u16::MAX).saturating_add(1)
}

fn draw_jobs(frame: &mut Frame<'_>, area: Rect, model: &Model, palette: Palette) {
    let Some(worker) = model.selected() else { return };
    let jobs: Vec<_> = model.jobs().collect();
    put_title(frame, area, &format!("jobs of {}", worker.name), "");
    let (column, columns) = columns(model, area.width);
    let rows = usize::from(area.height.saturating_sub(1));
    let is_cut = rows * columns < jobs.len();
    // The last place is for the number of the others.
    let shown = if is_cut { (rows * columns).saturating_sub(1) } else { jobs.len() };
    let mut spans: Vec<_> = jobs[..shown]
        .iter()
        .map(|job| {
            let (mark, style) = match job.state {
                "releasing" => (MARK, palette.busy()),
                _ => ("", Style::new()),
            };
            let name = rows::fitted(&job.name, column - GAP);
            Span::styled(format!("{:column$}", format!("{name}{mark}")), style)
        })
        .collect();
    if is_cut && 0 < rows {
        let rest = format!("… {} more", number(jobs.len() - shown));
        spans.push(Span::styled(format!("{rest:column$}"), FAINT));
    }
    for (row, spans) in (1..).zip(spans.chunks(columns)) {
        let mut line = Line::from("  ");
        line.spans.extend_from_slice(spans);
        put(frame, area, row, &line);
    }
}

fn draw_log(frame: &mut Frame<'_>, area: Rect, model: &Model, now: Instant, palette: Palette) {
    put_title(frame, area, "events", "newest first");
    let width = usize::from(area.width).saturating_sub(AGE + 4);
    let mut row = 1;
    for entry in &model.log {
        if area.height <= row {
            break;
        }
        let style = match entry.tone {
            Tone::Plain => Style::new(),
            Tone::Good => palette.good(),
            Tone::Bad => palette.bad(),
            Tone::Move => palette.moved(),
        };
        let words = words(&entry.text, width);
        let mut age = age(now.saturating_duration_since(entry.at));
        for text in wrapped(&words, 0, width).lines() {
            let line = Line::from(vec![
                Span::styled(format!("{age:>AGE$}  "), FAINT),
                Span::styled(text.to_owned(), style),
            ]);
            put(frame, area, row, &line);
            age.clear();
            row += 1;
        }
    }
}

/// The words of a text, with those longer than `width` characters broken.
pub(super) fn words(text: &str, width: usize) -> Vec<String> {
    let broken = |word: &str| {
        let signs: Vec<char> = word.chars().collect();
        signs.chunks(width.max(1)).map(|piece| piece.iter().collect()).collect::<Vec<String>>()
    };
    text.split_whitespace().flat_map(broken).collect()
}

fn foot(model: &Model, palette: Palette) -> Line<'static> {
    if model.is_ending {
        let workers = counted(model.snapshot.workers.len(), "worker");
        return Line::styled(format!(" ending {workers}"), palette.busy());
    }
    let key = |key: &'static str| Span::styled(key, STRONG);
    let says = |text: &'static str| Span::styled(text, FAINT);
    let mut spans = vec![key(" q"), says(" end   "), key("↑ ↓"), says(" worker   ")];
    if let Some(file) = &model.file {
        spans.push(Span::styled(format!("edit {file} and see what moves"), FAINT));
    }
    Line::from(spans)
}
