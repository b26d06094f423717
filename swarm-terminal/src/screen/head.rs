//! Draws the first lines: the status, and the numbers of jobs and workers.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use swarm_adapters_host::clock::unix_s;
use swarm_view::status::{Mood, Status};

use super::lines::{clipped, fitted, paragraph, put};
use super::model::Model;
use super::palette::{FAINT, Palette, STRONG};
use crate::scene::Ends;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, palette: Palette) {
    let Status { name, revision, .. } = &model.scene.status;
    let (status, style) = status(model, palette);
    let room = usize::from(area.width).saturating_sub(name.chars().count() + 6);
    let status = clipped(&status, room);
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
    let counts = model.scene.status.counts(&model.scene.unassigned);
    put(frame, area, 1, &Line::from(format!(" {counts}")));
    put(frame, area, 2, &Line::styled(format!(" {}", paths(model, area.width)), FAINT));
    for (row, line) in (3..).zip(problems(model, area.width)) {
        put(frame, area, row, &Line::styled(format!(" {line}"), palette.bad()));
    }
}

/// Returns the number of rows that the head needs.
pub(super) fn height(model: &Model, width: u16) -> u16 {
    3 + u16::try_from(problems(model, width).len()).unwrap_or(u16::MAX)
}

/// Returns the paths of state and logs that fit, or else the next commands.
fn paths(model: &Model, width: u16) -> String {
    let (dir, width) = (&model.paths.dir, usize::from(width).saturating_sub(2));
    if model.ends == Ends::Reader {
        return fitted(
            &format!("kubectl swarm explain JOB{dir}   kubectl swarm logs JOB{dir}"),
            width,
        );
    }
    let both = format!("state: {dir}   logs: {dir}/logs");
    if both.chars().count() <= width { both } else { fitted(&format!("logs: {dir}/logs"), width) }
}

/// Returns the present problems that a user must fix, in lines.
fn problems(model: &Model, width: u16) -> Vec<String> {
    let width = usize::from(width).saturating_sub(2);
    let problems = model.scene.status.problems().into_iter();
    let lines = problems.flat_map(|problem| paragraph(&format!("✗ {problem}"), width));
    let excerpt = model.scene.status.invalid_file.as_ref().and_then(|file| file.excerpt.as_deref());
    let excerpt = excerpt.into_iter().flat_map(str::lines).map(|line| format!("  {line}"));
    lines.chain(excerpt).collect()
}

/// Returns the status in a few words.
fn status(model: &Model, palette: Palette) -> (String, Style) {
    if model.is_ending {
        return ("ending".to_owned(), palette.busy());
    }
    let (words, mood) = model.scene.status.standing(unix_s());
    let style = match mood {
        Mood::Good => palette.good(),
        Mood::Busy => palette.busy(),
        Mood::Bad => palette.bad(),
    };
    (words, style)
}
