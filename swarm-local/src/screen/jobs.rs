//! Draws the list of jobs: a worker's jobs, or the requested ones.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use swarm_adapters_host::channel::JobVersion;
use swarm_adapters_host::clock::unix_s;
use swarm_core::Title;
use swarm_view::status::{FailingRow, UnassignedRow};
use swarm_view::table::{columns_of, padded};

use crate::pool::snapshot::{JobRow, Snapshot};

use super::lines::{fitted, put, put_title, window};
use super::model::{Ends, Focus, Model, Which};
use super::palette::{FAINT, Palette, STRONG};

/// Draws the jobs that fit, around the selected one.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, palette: Palette) {
    let places = &model.jobs.places;
    let rows = usize::from(area.height.saturating_sub(1));
    let (first, which) = window(model.jobs.at, places.len(), rows);
    let has_focus = model.focus == Focus::Jobs;
    put_title(frame, area, &title(model), &which, has_focus);
    let shown: Vec<_> = places.iter().skip(first).take(rows).collect();
    let shown = shown.into_iter().filter_map(|place| model.snapshot.holders.get(*place));
    let shown: Vec<&JobRow> = shown.collect();
    let width = usize::from(area.width);
    let longest = shown.iter().map(|job| columns_of(&job.name)).max().unwrap_or_default();
    let (name, worker) = (longest.min(width * 3 / 5), widest_worker(model));
    let title = shown.iter().map(|job| columns_of(title_of(job))).max().unwrap_or_default();
    let title = title.min(width / 4);
    for ((row, job), at) in (1..).zip(shown).zip(first..) {
        let is_selected = has_focus && at == model.jobs.at;
        let (sign, style) = if is_selected { ("▸ ", STRONG) } else { ("  ", Style::new()) };
        let shown = padded(&fitted(&job.name, name), name);
        let mut line = Line::from(Span::styled(format!("{sign}{shown}  "), style));
        if 0 < title {
            let text = padded(&fitted(title_of(job), title), title);
            line.push_span(Span::styled(format!("{text}  "), FAINT));
        }
        if model.jobs.which != Which::OfWorker {
            let of = job.slot.and_then(|slot| model.snapshot.status.worker(slot));
            let of = of.map_or("-", |worker| worker.name.as_str());
            line.push_span(Span::styled(format!("{:worker$}  ", fitted(of, worker)), FAINT));
        }
        let (text, style) = remark(model, job, palette);
        line.push_span(Span::styled(text, style));
        put(frame, area, row, &line);
    }
}

fn title(model: &Model) -> String {
    match &model.jobs.which {
        Which::OfWorker => match model.selected() {
            Some(worker) => format!("jobs of {}", worker.name),
            None => "jobs".to_owned(),
        },
        Which::Named(text) if text.is_empty() => "all jobs".to_owned(),
        Which::Named(text) => format!("jobs with `{text}`"),
        Which::Unassigned => "jobs without a worker".to_owned(),
        Which::Failing => "jobs that fail".to_owned(),
    }
}

fn title_of(job: &JobRow) -> &str {
    job.title.as_ref().map(Title::as_str).unwrap_or_default()
}

/// Maximum number of columns of the name of a worker.
const WORKER_MAX: usize = 40;

fn widest_worker(model: &Model) -> usize {
    let widest = model.snapshot.status.workers.iter().map(|worker| columns_of(&worker.name)).max();
    widest.unwrap_or(1).min(WORKER_MAX)
}

/// Returns an unusual fact about a job, if any.
pub(super) fn remark(model: &Model, job: &JobRow, palette: Palette) -> (String, Style) {
    if let Some(UnassignedRow { reason, .. }) = model.snapshot.status.unassigned(&job.name) {
        let why = model.snapshot.why(&job.name).map(|why| format!(" ({why})"));
        return (format!("unassigned: {reason}{}", why.unwrap_or_default()), palette.bad());
    }
    if let Some(failing) = failure_of(&model.snapshot, &job.name) {
        let (phase, now) = job.phase(&model.reports, None);
        let runs = now.filter(|_| matches!(phase, "running" | "ready"));
        let since = runs.and_then(|now| now.since_unix_s);
        return (failing.sentence(unix_s(), since, model.ends != Ends::Reader), palette.bad());
    }
    match job.phase(&model.reports, None) {
        (_, None) if matches!(job.state, "granted" | "everywhere") => (String::new(), Style::new()),
        (_, Some(now)) if now.version == JobVersion::Previous => {
            ("previous version".to_owned(), palette.busy())
        }
        ("running" | "ready", _) => (String::new(), Style::new()),
        ("done", _) => ("done".to_owned(), palette.good()),
        (phase @ ("quarantined" | "failed" | "stalled" | "restarting"), _) => {
            (phase.to_owned(), palette.bad())
        }
        (phase, _) => (phase.to_owned(), palette.busy()),
    }
}

/// Returns the failure of a job, if it is one of the listed failures.
pub(super) fn failure_of<'a>(snapshot: &'a Snapshot, job: &str) -> Option<&'a FailingRow> {
    snapshot.status.failing.iter().find(|row| row.job == job)
}
