//! The first lines: whether the pool is settled, and its numbers of jobs and workers.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::super::snapshot::{JobCounts, Snapshot};
use super::super::text::{counted, wrapped};
use super::draw::{put, words};
use super::model::Model;
use super::palette::{FAINT, Palette, STRONG};

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, palette: Palette) {
    let Snapshot { name, revision, .. } = &*model.snapshot;
    let (status, style) = status(model, palette);
    let revision = format!("revision {revision} ");
    let used = name.chars().count() + status.chars().count() + revision.len() + 5;
    // The revision is left out if it does not fit.
    let gap = usize::from(area.width).checked_sub(used);
    let mut line = Line::from(vec![
        Span::styled(format!(" {name}"), STRONG),
        Span::styled(format!("  ● {status}"), style),
    ]);
    if let Some(gap) = gap {
        line.push_span(Span::styled(format!("{:gap$}{revision}", ""), FAINT));
    }
    put(frame, area, 0, &line);
    put(frame, area, 1, &Line::from(format!(" {}", counts(model))));
    for (row, line) in (2..).zip(problems(model, area.width)) {
        put(frame, area, row, &Line::styled(format!(" {line}"), palette.bad()));
    }
}

/// How many rows the head has, if there is room.
pub(super) fn height(model: &Model, width: u16) -> u16 {
    2 + u16::try_from(problems(model, width).len()).unwrap_or(u16::MAX)
}

/// What somebody has to mend, for as long as it is so, in lines.
fn problems(model: &Model, width: u16) -> Vec<String> {
    let Snapshot { undelivered, invalid_file, revision, .. } = &*model.snapshot;
    let invalid = invalid_file.as_ref().map(|file| &file.message);
    let problems = [undelivered.as_ref(), invalid].into_iter().flatten();
    let width = usize::from(width).saturating_sub(2);
    let lines = problems.flat_map(|problem| {
        let text = format!("✗ {problem}; revision {revision} keeps running");
        wrapped(&words(&text, width), 0, width).lines().map(str::to_owned).collect::<Vec<_>>()
    });
    lines.collect()
}

/// The status in a few words.
fn status(model: &Model, palette: Palette) -> (String, Style) {
    let Snapshot { name, settled, undelivered, jobs, workers, .. } = &*model.snapshot;
    let coming = workers.iter().filter(|worker| worker.state != "ready").count();
    if model.is_ending {
        ("ending".to_owned(), palette.busy())
    } else if name.is_empty() {
        ("starting".to_owned(), palette.busy())
    } else if undelivered.is_some() {
        ("not delivered to the workers".to_owned(), palette.bad())
    } else if *settled && jobs.unassigned == 0 {
        ("settled".to_owned(), palette.good())
    } else if *settled {
        let left = counted(jobs.unassigned, "job");
        (format!("settled, but {left} without a worker"), palette.bad())
    } else if 0 < jobs.moving {
        (format!("moving {}", counted(jobs.moving, "job")), palette.busy())
    } else if 0 < coming {
        (format!("waiting for {}", counted(coming, "worker")), palette.busy())
    } else if 0 < jobs.waiting {
        (format!("{} waiting", counted(jobs.waiting, "job")), palette.busy())
    } else if 0 < jobs.quarantined {
        (format!("{} quarantined", counted(jobs.quarantined, "job")), palette.bad())
    } else {
        ("waiting until all workers confirm".to_owned(), palette.busy())
    }
}

/// The numbers of jobs and workers, and of jobs that do not run.
fn counts(model: &Model) -> String {
    let Snapshot { jobs, workers, .. } = &*model.snapshot;
    let JobCounts { total, granted: _, moving, waiting, done, quarantined, unassigned } = *jobs;
    let (jobs, workers) = (counted(total, "job"), counted(workers.len(), "worker"));
    let mut parts = vec![format!("{jobs} on {workers}")];
    let states = [
        (moving, "moving"),
        (waiting, "waiting"),
        (done, "done"),
        (quarantined, "quarantined"),
        (unassigned, "unassigned"),
    ];
    let some = states.iter().filter(|(count, _)| 0 < *count);
    parts.extend(some.map(|(count, state)| format!("{count} {state}")));
    let reasons = model.unassigned.iter().map(|(reason, count)| format!("{reason} {count}"));
    let reasons = reasons.collect::<Vec<_>>().join(", ");
    if let Some(last) = parts.last_mut().filter(|_| !reasons.is_empty()) {
        last.extend([" (", &*reasons, ")"]);
    }
    parts.join(" · ")
}
