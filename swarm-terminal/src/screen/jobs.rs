//! Draws the list of jobs: a worker's jobs, or the requested ones.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use swarm_adapters_host::clock::unix_s;
use swarm_view::age::age;
use swarm_view::jobs::JobEntry;
use swarm_view::status::FailingRow;
use swarm_view::table::{columns_of, padded};
use swarm_view::words::counted;

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
    let rows: Vec<_> = shown.iter().map(|job| Row::of(model, job, area.width, palette)).collect();
    let widths = Widths::of(&rows, model, usize::from(area.width));
    for ((row, line), at) in (1..).zip(&rows).zip(first..) {
        let is_selected = has_focus && at == model.jobs.at;
        put(frame, area, row, &line.drawn(is_selected, &widths));
    }
}

/// Minimum width of a list with the state, process, time and restarts of each job.
const FACTS_FROM: u16 = 96;

/// Least number of columns of a title that is shown.
const TITLE_MIN: usize = 6;

/// The texts of a job.
struct Row<'a> {
    name: &'a str,
    title: &'a str,
    /// The name of its worker, in a list of all workers.
    worker: &'a str,
    /// Its state, its process, the time of its run, and its restarts.
    facts: [String; 4],
    remark: String,
    style: Style,
}

/// Numbers of columns; 0 for a text that is left out.
struct Widths {
    name: usize,
    title: usize,
    worker: usize,
    facts: [usize; 4],
}

impl<'a> Row<'a> {
    fn of(model: &'a Model, job: &'a JobEntry<String>, width: u16, palette: Palette) -> Self {
        let of_one = model.jobs.which == Which::OfWorker;
        let worker = job.slot.and_then(|slot| model.scene.status.worker(slot));
        let worker = worker.map_or("-", |worker| worker.name.as_str());
        let facts = if FACTS_FROM <= width { facts(job, unix_s()) } else { Default::default() };
        let (remark, style) = remark(model, job, palette);
        let is_said = remark == facts[0];
        Self {
            name: &job.name,
            title: job.title.as_deref().unwrap_or_default(),
            worker: if of_one { "" } else { worker },
            facts,
            remark: if is_said { String::new() } else { remark },
            style,
        }
    }

    fn drawn(&self, is_selected: bool, widths: &Widths) -> Line<'static> {
        let (sign, style) = if is_selected { ("▸ ", STRONG) } else { ("  ", Style::new()) };
        let shown = padded(&fitted(self.name, widths.name), widths.name);
        let mut line = Line::from(Span::styled(format!("{sign}{shown}  "), style));
        let mut push = |text: &str, width: usize, style: Style| {
            if 0 < width {
                let text = padded(&fitted(text, width), width);
                line.push_span(Span::styled(format!("{text}  "), style));
            }
        };
        push(self.title, widths.title, FAINT);
        push(self.worker, widths.worker, FAINT);
        for ((text, width), style) in
            self.facts.iter().zip(widths.facts).zip([self.style, FAINT, FAINT, FAINT])
        {
            push(text, width, style);
        }
        line.push_span(Span::styled(self.remark.clone(), self.style));
        line
    }
}

impl Widths {
    /// A remark gets half of the width if it needs that, and a quarter next to the facts. Without facts a
    /// title yields first, and then the name; with them the name yields to the title.
    fn of(rows: &[Row<'_>], model: &Model, width: usize) -> Self {
        let longest = |text: &dyn Fn(&Row<'_>) -> usize| rows.iter().map(text).max().unwrap_or(0);
        let has_worker = model.jobs.which != Which::OfWorker;
        let worker = if has_worker { widest_worker(model) } else { 0 };
        let facts = [0, 1, 2, 3].map(|at| longest(&|row| columns_of(&row.facts[at])));
        let has_facts = 0 < facts[0];
        let most = if has_facts { width / 4 } else { width / 2 };
        let remark = longest(&|row| columns_of(&row.remark)).min(most);
        let taken: usize =
            facts.iter().chain([&worker]).filter(|it| 0 < **it).map(|it| it + 2).sum();
        let room = width.saturating_sub(4 + taken + remark);
        let title = longest(&|row| columns_of(row.title)).min(width / 4);
        let of_name = if has_facts && 0 < title { room.saturating_sub(title + 2) } else { room };
        let name = longest(&|row| columns_of(row.name)).min(width * 3 / 5);
        let name = name.min(of_name.max(width / if has_facts { 6 } else { 4 }));
        let title = title.min(room.saturating_sub(name + 2));
        Self { name, title: if title < TITLE_MIN { 0 } else { title }, worker, facts }
    }
}

/// Returns what is known of a job at a time in seconds of Unix time.
fn facts(job: &JobEntry<String>, now_unix_s: u64) -> [String; 4] {
    let up = |since| age(Duration::from_secs(now_unix_s.saturating_sub(since)));
    let restarts = job.restarts.and_then(|restarts| usize::try_from(restarts).ok());
    let restarts = restarts.filter(|restarts| 0 < *restarts);
    [
        job.phase.to_owned(),
        job.pid.map(|pid| format!("PID {pid}")).unwrap_or_default(),
        job.since_unix_s.map(up).unwrap_or_default(),
        restarts.map(|restarts| counted(restarts, "restart")).unwrap_or_default(),
    ]
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
