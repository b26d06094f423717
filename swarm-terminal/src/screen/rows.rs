//! Draws a row for each worker: its name, its state, and its jobs relative to the fullest worker.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use swarm_adapters_host::clock::unix_s;
use swarm_view::workers::WorkerRow;

use super::lines::{fitted, put, put_title, window};
use super::model::{Focus, Model};
use super::palette::{Palette, STRONG};

/// Length of the longest state, and minimum width of a screen that shows states.
const STATE: usize = 8;
const STATE_FROM: usize = 34;

/// Minimum useful length of a bar.
const BAR_MIN: usize = 4;

/// Left parts of a cell, by eighths.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/// Widths of the columns.
struct Widths {
    name: usize,
    state: usize,
    bar: usize,
    count: usize,
}

/// Draws the workers that fit, around the selected one.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, palette: Palette) {
    let workers = &model.scene.status.workers;
    let rows = usize::from(area.height.saturating_sub(1));
    let at = model.position();
    let (first, which) = window(at, workers.len(), rows);
    let shown = &workers[first..workers.len().min(first + rows)];
    put_title(frame, area, "workers", &which, model.focus == Focus::Workers);
    let most = model.scene.most;
    let widths = Widths::of(most, shown, usize::from(area.width));
    for ((row, worker), position) in (1..).zip(shown).zip(first..) {
        let remarks = remarks_of(worker);
        put(frame, area, row, &line(worker, position == at, most, &widths, &remarks, palette));
    }
}

impl Widths {
    fn of(most: usize, shown: &[WorkerRow], width: usize) -> Self {
        let longest = |length: &dyn Fn(&WorkerRow) -> usize| shown.iter().map(length).max();
        let name = longest(&|worker| worker.name.chars().count()).unwrap_or_default();
        let name = name.min(width * 2 / 5);
        let state = if width < STATE_FROM { 0 } else { STATE + 2 };
        let count = most.to_string().len();
        let remarks = longest(&|worker| remarks_of(worker).len());
        let used = 2 + name + 2 + state + 1 + count + 2 + remarks.unwrap_or_default();
        let bar = width.saturating_sub(used);
        Self { name, state, bar: if bar < BAR_MIN { 0 } else { bar }, count }
    }
}

fn line(
    worker: &WorkerRow,
    is_selected: bool,
    most: usize,
    widths: &Widths,
    remarks: &str,
    palette: Palette,
) -> Line<'static> {
    let Widths { name, state, bar, count } = *widths;
    let (sign, style) = if is_selected { ("▸ ", STRONG) } else { ("  ", Style::new()) };
    let shown = worker.shown_state();
    let state_style = match shown {
        "ready" => palette.good(),
        "away" | "silent" => palette.bad(),
        _ => palette.busy(),
    };
    let (granted, releasing) = bars(worker, most, bar);
    let rest = bar - granted.chars().count() - releasing.chars().count();
    Line::from(vec![
        Span::styled(sign, style),
        Span::styled(format!("{:name$}  ", fitted(&worker.name, name)), style),
        Span::styled(format!("{:state$}", &shown[..shown.len().min(state)]), state_style),
        Span::styled(granted, palette.bar()),
        Span::styled(releasing, palette.busy()),
        Span::raw(format!("{:rest$} {:>count$}", "", worker.jobs)),
        Span::styled(format!("  {remarks}"), palette.busy()),
    ])
}

/// Returns a worker's remarks, for the column after its jobs.
fn remarks_of(worker: &WorkerRow) -> String {
    worker.remarks(worker.silent_for(unix_s()))
}

/// Returns bars of a worker's granted jobs and of the jobs that it is releasing, together at most
/// `width` long.
fn bars(worker: &WorkerRow, most: usize, width: usize) -> (String, String) {
    if most == 0 {
        return Default::default();
    }
    let eighths = |jobs: usize| (jobs * width * 8).div_ceil(most);
    let granted = eighths(worker.jobs);
    let granted = format!("{}{}", "█".repeat(granted / 8), EIGHTHS[granted % 8]);
    let all = eighths(worker.jobs + worker.releasing).div_ceil(8);
    let releasing = "░".repeat(all.saturating_sub(granted.chars().count()));
    (granted, releasing)
}
