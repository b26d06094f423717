//! Draws the list of jobs: a worker's jobs, or the requested ones.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use swarm_adapters_host::clock::unix_s;
use swarm_view::jobs::JobEntry;
use swarm_view::status::FailingRow;
use swarm_view::table::{columns_of, padded};

use super::lines::{fitted, put, put_title, window};
use super::model::{Focus, Model, Which};
use super::palette::{FAINT, Palette, STRONG};
use crate::scene::{Ends, Scene};

/// Draws the jobs that fit, around the selected one.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, palette: Palette) {
    let places = &model.jobs.places;
    let rows = usize::from(area.height.saturating_sub(1));
    let (first, which) = window(model.jobs.at, places.len(), rows);
    let has_focus = model.focus == Focus::Jobs;
    put_title(frame, area, &title(model), &which, has_focus);
    let shown: Vec<_> = places.iter().skip(first).take(rows).collect();
    let shown = shown.into_iter().filter_map(|place| model.scene.jobs.get(*place));
    let shown: Vec<&JobEntry<String>> = shown.collect();
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
            let of = job.slot.and_then(|slot| model.scene.status.worker(slot));
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

fn title_of(job: &JobEntry<String>) -> &str {
    job.title.as_deref().unwrap_or_default()
}

/// Maximum number of columns of the name of a worker.
const WORKER_MAX: usize = 40;

fn widest_worker(model: &Model) -> usize {
    let widest = model.scene.status.workers.iter().map(|worker| columns_of(&worker.name)).max();
    widest.unwrap_or(1).min(WORKER_MAX)
}

/// Returns an unusual fact about a job, if any.
pub(super) fn remark(model: &Model, job: &JobEntry<String>, palette: Palette) -> (String, Style) {
    if let Some(reason) = &job.unassigned {
        let why = job.unassigned_message.as_ref().map(|why| format!(" ({why})"));
        return (format!("unassigned: {reason}{}", why.unwrap_or_default()), palette.bad());
    }
    if let Some(failing) = failure_of(&model.scene, &job.name) {
        let runs = matches!(job.phase, "running" | "ready");
        let since = job.since_unix_s.filter(|_| runs);
        return (failing.sentence(unix_s(), since, model.ends != Ends::Reader), palette.bad());
    }
    match job.phase {
        _ if job.version == "previous" => ("previous version".to_owned(), palette.busy()),
        "running" | "ready" => (String::new(), Style::new()),
        "done" => ("done".to_owned(), palette.good()),
        phase @ ("quarantined" | "failed" | "stalled" | "restarting") => {
            (phase.to_owned(), palette.bad())
        }
        phase => (phase.to_owned(), palette.busy()),
    }
}

/// Returns the failure of a job, if it is one of the listed failures.
pub(super) fn failure_of<'a>(scene: &'a Scene, job: &str) -> Option<&'a FailingRow> {
    scene.status.failing.iter().find(|row| row.job == job)
}
