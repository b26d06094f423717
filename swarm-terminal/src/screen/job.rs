//! Draws the page of one job: its worker, its settings, and its log.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use swarm_adapters_host::clock::unix_s;
use swarm_adapters_host::job_log::file_name;
use swarm_core::JobName;
use swarm_view::age::age;
use swarm_view::jobs::{EVERYWHERE, JobEntry};
use swarm_view::shell;
use swarm_view::status::FailingRow;
use swarm_view::words::counted;

use super::jobs::{failure_of, remark};
use super::lines::{cut, paragraph, pieces, put, put_title};
use super::model::{JobPage, Model};
use super::palette::Palette;
use crate::scene::Ends;

/// Text before a line of the output of a job that fails.
const LAST_OUTPUT: &str = "last output: ";

/// Style of a line with the searched text, without colour.
const FOUND: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Draws the page.
pub(super) fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    model: &Model,
    page: &JobPage,
    palette: Palette,
) {
    let title = model.scene.job(&page.job).and_then(|job| job.title.as_deref());
    let title = title.unwrap_or_default();
    put_title(frame, area, &format!("job {}", page.job), title, false);
    let (_, rest) = cut(area, 1);
    let details = details(model, page, usize::from(area.width).saturating_sub(2), palette);
    let height = u16::try_from(details.len()).unwrap_or(u16::MAX);
    let (top, log) = cut(rest, height.min(rest.height / 2));
    for (row, (text, style)) in (0..).zip(details) {
        put(frame, top, row, &Line::styled(format!(" {text}"), style));
    }
    if model.ends != Ends::Reader {
        draw_log(frame, log, page);
    }
}

/// Returns the known facts about the job, in lines.
fn details(model: &Model, page: &JobPage, width: usize, palette: Palette) -> Vec<(String, Style)> {
    let scene = &model.scene;
    let Some(job) = scene.job(&page.job) else {
        return vec![("it was removed".to_owned(), palette.busy())];
    };
    let worker = job.slot.and_then(|slot| scene.status.worker(slot));
    let place = match worker {
        Some(worker) => format!("worker: {} ({})", worker.name, worker.shown_state()),
        None if job.state == EVERYWHERE => "worker: all of them".to_owned(),
        None => "worker: none".to_owned(),
    };
    let sentence = |text: &str, style: Style| -> Vec<(String, Style)> {
        paragraph(text, width).into_iter().map(|line| (line, style)).collect()
    };
    let state = format!("{place} · {} · token: {}", run(job), job.token);
    let mut lines = sentence(&state, Style::new());
    let (remark, style) = remark(model, job, palette);
    if remark != job.state {
        lines.extend(sentence(&remark, style));
    }
    if let Some(failing) = failure_of(scene, &page.job) {
        lines.extend(last_output(failing, width).into_iter().map(|line| (line, style)));
    }
    if !job.params.is_empty() {
        let params = job.params.iter().map(|(name, value)| format!("{name}={value}"));
        let params = format!("params: {}", params.collect::<Vec<_>>().join("  "));
        lines.extend(pieces(&params, width).into_iter().map(|piece| (piece, Style::new())));
    }
    let dir = &model.paths.dir;
    if model.ends == Ends::Reader {
        let job = shell::word(&job.name);
        for command in ["explain", "logs"] {
            lines.extend(sentence(&format!("kubectl swarm {command} {job}{dir}"), Style::new()));
        }
        return lines;
    }
    // Without one worker, there may be a file for each of several.
    let name = JobName::new(&job.name).ok().filter(|_| worker.is_some());
    let file = name.map(|name| file_name(&name, None)).unwrap_or_default();
    let log = format!("log:   {dir}/logs/jobs/{file}");
    lines.extend(pieces(&log, width).into_iter().map(|piece| (piece, Style::new())));
    lines
}

/// Returns the phase of the job, its process, the time since its start, and its restarts.
fn run(job: &JobEntry<String>) -> String {
    let mut text = format!("phase: {}", job.phase);
    if let Some(pid) = job.pid {
        let _ = write!(text, " · process {pid}");
    }
    if let Some(since) = job.since_unix_s {
        let _ = write!(text, " · up {}", age(Duration::from_secs(unix_s().saturating_sub(since))));
    }
    if let Some(restarts @ 1..) = job.restarts {
        let restarts = usize::try_from(restarts).unwrap_or(usize::MAX);
        let _ = write!(text, " · {}", counted(restarts, "restart"));
    }
    text
}

/// Returns the last lines of output. The last line is complete. Each previous line is cut to the end
/// that fits into one row.
fn last_output(failing: &FailingRow, width: usize) -> Vec<String> {
    let Some((last, before)) = failing.last_output.split_last() else { return Vec::new() };
    let mut rows: Vec<_> = before
        .iter()
        .map(|line| {
            format!("{LAST_OUTPUT}{}", end_of(line, width.saturating_sub(LAST_OUTPUT.len())))
        })
        .collect();
    rows.extend(pieces(&format!("{LAST_OUTPUT}{last}"), width));
    rows
}

/// Returns the end of a line that fits into `width` columns, after a sign for the missing part.
fn end_of(line: &str, width: usize) -> Cow<'_, str> {
    match line.char_indices().rev().nth(width.saturating_sub(1)) {
        Some((at, first)) if 0 < at => format!("…{}", &line[at + first.len_utf8()..]).into(),
        Some(_) | None => line.into(),
    }
}

/// Draws the log upwards from the bottom line.
fn draw_log(frame: &mut Frame<'_>, area: Rect, page: &JobPage) {
    let (lines, bottom) = (&page.log.lines, page.at_bottom());
    let place = match page.bottom {
        None => counted(lines.len(), "line"),
        Some(_) => format!("line {} of {}", bottom + 1, lines.len()),
    };
    put_title(frame, area, "log", &place, true);
    let (_, area) = cut(area, 1);
    let width = usize::from(area.width);
    // If the whole log fits, it starts at the top.
    let mut rows: Vec<(String, Style)> = Vec::new();
    for at in (0..lines.len().min(bottom + 1)).rev() {
        if usize::from(area.height) <= rows.len() {
            break;
        }
        let style = if page.is_found(at) { FOUND } else { Style::new() };
        let line = lines.get(at).map(String::as_str).unwrap_or_default();
        let pieces = pieces(line, width);
        let pieces = if pieces.is_empty() { vec![String::new()] } else { pieces };
        rows.extend(pieces.into_iter().rev().map(|piece| (piece, style)));
    }
    rows.truncate(usize::from(area.height));
    for (row, (text, style)) in (0..).zip(rows.into_iter().rev()) {
        put(frame, area, row, &Line::styled(text, style));
    }
}
